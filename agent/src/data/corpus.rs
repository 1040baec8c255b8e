//! The built-in corpus: small stories in plain English, told by chance from tables of this project's own.
//!
//! It is for a model of under a million parameters that reads characters and sees 256 of them. So a story is short, its
//! few names come again and again, "he" and "she" are never two people, a cause stands near its effect, and every sum is
//! right. Plots, phrases and words are in `corpus/stories.txt` and `corpus/words.txt`; nothing is taken from elsewhere.

mod plots;
mod rng;
mod scene;
#[cfg(test)]
mod tests;
mod words;

use plots::{Plot, Plots};
use rng::Rng;
use scene::Scene;
use words::Words;

/// The seed of the corpus that `headroom data prepare builtin` writes.
pub const SEED: u64 = 1;
/// How much of it there is, to the end of a story.
pub const BYTES: usize = 4_000_000;
/// What stands on a line of its own after each story.
pub const SEPARATOR: &str = "***";

/// Tells stories until there are `bytes` of them or a little more: the last one is told to its end.
///
/// A seed gives the same bytes on every machine; fewer bytes are the beginning of more. ASCII only.
pub fn corpus(seed: u64, bytes: usize) -> String {
    let words = Words::parse(include_str!("corpus/words.txt"));
    let plots = Plots::parse(include_str!("corpus/stories.txt"));
    let mut rng = Rng::new(seed);
    let mut text = String::with_capacity(bytes + 4096);
    while text.len() < bytes {
        let plot = &plots.plots[rng.index(plots.plots.len())];
        text.push_str(&story(&words, &plots, plot, &mut rng));
        text.push_str(&format!("\n\nThe end.\n\n{SEPARATOR}\n\n"));
    }
    text
}

fn story(words: &Words, plots: &Plots, plot: &Plot, rng: &mut Rng) -> String {
    let scene = Scene::draw(words, plots, plot, rng);
    let mut text = format!("# {}\n", title_case(&scene.tell(rng.pick(&plot.titles), rng)));
    for (i, beat) in plot.beats.iter().enumerate() {
        text.push_str(match (i, beat.paragraph) {
            (0, _) => "\n",
            (_, true) => "\n\n",
            (_, false) => " ",
        });
        text.push_str(&sentence_case(&scene.tell(rng.pick(&beat.lines), rng)));
    }
    text
}

/// Capitals at the beginning and after a sentence that ends outside of quotes.
fn sentence_case(text: &str) -> String {
    let mut begins = true;
    let mut ended = false;
    let mut cased = String::with_capacity(text.len());
    for char in text.chars() {
        begins |= ended && char == ' ';
        ended = matches!(char, '.' | '!' | '?');
        let is_word = char.is_ascii_alphanumeric();
        cased.push(if begins { char.to_ascii_uppercase() } else { char });
        begins &= !is_word;
    }
    cased
}

/// Capitals as titles have them.
fn title_case(text: &str) -> String {
    const SMALL: [&str; 13] = ["a", "an", "and", "the", "of", "in", "on", "at", "to", "for", "by", "with", "near"];
    let mut cased = String::with_capacity(text.len());
    for (i, word) in text.split(' ').enumerate() {
        cased.push_str(if i == 0 { "" } else { " " });
        if i > 0 && SMALL.contains(&word) {
            cased.push_str(word);
        } else if let Some(first) = word.chars().next() {
            cased.push(first.to_ascii_uppercase());
            cased.push_str(&word[1..]);
        }
    }
    cased
}
