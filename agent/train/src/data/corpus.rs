//! The built-in corpus: short stories in plain English, generated at random from this project's own tables.
//!
//! It is designed for a character-level model with under a million parameters and a context of 256 characters. Stories
//! are therefore short, and their few names recur. "He" and "she" are never ambiguous, a cause is close to its effect,
//! and every sum is correct. Plots, phrases and words are in `corpus/stories.txt` and `corpus/words.txt`; nothing is
//! copied from other sources.

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

/// Seed of the corpus that `headroom data prepare builtin` writes.
pub const SEED: u64 = 1;
/// Minimum size of that corpus in bytes; it ends at the end of a story.
pub const BYTES: usize = 4_000_000;
/// Line that follows each story.
pub const SEPARATOR: &str = "***";

/// Generates stories until they have at least `bytes` bytes; the last story is complete.
///
/// A seed gives the same bytes on every machine. A shorter corpus is a prefix of a longer one. The text is ASCII.
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

/// Capitalizes the first letter of each sentence, except after a sentence that ends inside quotes.
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

/// Capitalizes a title.
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
