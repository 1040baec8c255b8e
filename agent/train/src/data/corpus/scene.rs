//! Instantiates one story template: characters, words and numbers, and the conversion of a table line to English.

use std::collections::BTreeMap;

use super::{
    plots::{Plot, Plots},
    rng::Rng,
    words::{Words, article},
};

/// Words and numbers drawn for a story.
#[derive(Debug)]
pub struct Scene<'a> {
    words: &'a Words,
    plots: &'a Plots,
    slots: BTreeMap<String, &'static str>,
    numbers: BTreeMap<&'static str, u32>,
    /// Whether A is female. B has the other gender, so that "he" and "she" are unambiguous.
    a_is_she: bool,
}

impl<'a> Scene<'a> {
    /// Draws every word and number that a line of this plot may use.
    pub fn draw(words: &'a Words, plots: &'a Plots, plot: &Plot, rng: &mut Rng) -> Self {
        let mut slots = BTreeMap::new();
        for list in &words.lists {
            draw_list(&list.names, &list.rows, rng, &mut slots);
        }
        let a_is_she = rng.index(2) == 0;
        let c_is_she = rng.index(2) == 0;
        let mut cast = |slot: &str, name: &str| slots.insert(slot.to_owned(), slots[name]);
        let (she, he) = if plot.animals { ("she", "he") } else { ("girl", "boy") };
        cast("A", if a_is_she { she } else { he });
        cast("B", if a_is_she { he } else { she });
        cast("C", if c_is_she { "aunt" } else { "uncle" });
        cast("P", "name");
        cast("bond", if a_is_she { "brother" } else { "sister" });
        for group in &plot.kits {
            slots.extend(group[rng.index(group.len())].iter().map(|(name, word)| ((*name).to_owned(), *word)));
        }
        Self { words, plots, slots, numbers: numbers(rng), a_is_she }
    }

    /// Converts a line of the table to English.
    pub fn tell(&self, line: &str, rng: &mut Rng) -> String {
        let mut output = String::new();
        self.expand(line, rng, &mut output);
        // An empty choice may leave a trailing space, and a choice of words may need another article.
        with_articles(output.trim_end())
    }

    fn expand(&self, line: &str, rng: &mut Rng, output: &mut String) {
        let mut rest = line;
        while let Some(at) = rest.find(['[', '{']) {
            output.push_str(&rest[..at]);
            let (inner, after) = if rest[at..].starts_with('[') {
                enclosed(&rest[at..], '[', ']')
            } else {
                enclosed(&rest[at..], '{', '}')
            };
            if rest[at..].starts_with('[') {
                let choices = choices(inner);
                self.expand(rng.pick(&choices), rng, output);
            } else if let Some(fragment) = inner.strip_prefix('>') {
                let lines = self.plots.fragments.get(fragment);
                let lines = lines.unwrap_or_else(|| panic!("there is no fragment {fragment:?}"));
                self.expand(rng.pick(lines), rng, output);
            } else {
                output.push_str(&self.slot(inner));
            }
            rest = after;
        }
        output.push_str(rest);
    }

    fn slot(&self, inner: &str) -> String {
        match inner.split_once(' ') {
            None => self.word(inner),
            Some(("an", name)) => format!("a {}", self.word(name)),
            Some(("was", name)) => if self.number(name) == 1 { "was" } else { "were" }.to_owned(),
            Some((name, "s")) => self.words.plural(&self.word(name)),
            Some((who @ ("A" | "B"), form)) => pronoun((who == "A") == self.a_is_she, form).to_owned(),
            Some((count, noun)) => {
                let count = self.number(count.strip_prefix('+').unwrap_or_else(|| panic!("{{{inner}}} is unknown")));
                let noun = self.slots.get(noun).map_or(noun.trim_end_matches('_'), |word| word);
                let noun = if count == 1 { noun.to_owned() } else { self.words.plural(noun) };
                format!("{count} {noun}")
            }
        }
    }

    fn word(&self, name: &str) -> String {
        match self.slots.get(name) {
            Some(word) => (*word).to_owned(),
            None => self.number(name).to_string(),
        }
    }

    fn number(&self, name: &str) -> u32 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("unknown name {name:?}"))
    }
}

/// Draws a word of a list. If the list is long enough, also draws a second and a third one, all different.
fn draw_list(names: &[&str], rows: &[Vec<&'static str>], rng: &mut Rng, slots: &mut BTreeMap<String, &'static str>) {
    let mut drawn: Vec<usize> = Vec::new();
    for suffix in ["", "2", "3"].iter().take(rows.len().min(3)) {
        let row = loop {
            let row = rng.index(rows.len());
            if !drawn.contains(&row) {
                break row;
            }
        };
        drawn.push(row);
        for (name, word) in names.iter().zip(&rows[row]) {
            slots.insert(format!("{name}{suffix}"), word);
        }
    }
}

/// Draws the numbers of a story. Every sum and difference is computed from them, so all are correct.
fn numbers(rng: &mut Rng) -> BTreeMap<&'static str, u32> {
    let n = rng.within(3, 12);
    let m = rng.within(2, n.min(10) - 1);
    let sum = n + m;
    let k = rng.within(1, (sum - 1).min(9));
    let half = rng.within(2, 9);
    let age = rng.within(4, 9);
    let wrong = [sum - 2, sum - 1, sum + 1, sum + 2][rng.index(4)];
    BTreeMap::from([
        ("n", n),
        ("m", m),
        ("sum", sum),
        ("sum_more", sum + 1),
        ("diff", n - m),
        ("n_less", n - 1),
        ("m_more", m + 1),
        ("double_m", 2 * m),
        ("k", k),
        ("rest", sum - k),
        ("half", half),
        ("half_less", half - 1),
        ("twice", 2 * half),
        ("age", age),
        ("age_less", age - 1),
        ("age_more", age + 1),
        ("age_two", age + 2),
        ("wrong", wrong),
        ("k2", rng.within(2, 5)),
        ("m2", rng.within(2, 9)),
    ])
}

fn pronoun(she: bool, form: &str) -> &'static str {
    match (form, she) {
        ("he", true) => "she",
        ("he", false) => "he",
        ("He", true) => "She",
        ("He", false) => "He",
        ("him", true) | ("his", true) => "her",
        ("him", false) => "him",
        ("his", false) => "his",
        ("His", true) => "Her",
        ("His", false) => "His",
        ("child", true) => "girl",
        ("child", false) => "boy",
        _ => panic!("{form:?} is not a pronoun"),
    }
}

/// Corrects "a" and "an" by the next word.
fn with_articles(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for i in 1..words.len() {
        if matches!(words[i - 1], "a" | "an") {
            words[i - 1] = article(words[i]);
        } else if matches!(words[i - 1], "A" | "An") {
            words[i - 1] = if article(words[i]) == "an" { "An" } else { "A" };
        }
    }
    words.join(" ")
}

/// Returns the text between a bracket and its partner, and the text after it.
fn enclosed(text: &str, open: char, close: char) -> (&str, &str) {
    let mut depth = 0;
    for (at, char) in text.char_indices() {
        depth += i32::from(char == open) - i32::from(char == close);
        if depth == 0 {
            return (&text[1..at], &text[at + 1..]);
        }
    }
    panic!("a bracket is not closed: {text:?}");
}

/// Splits `a|b` into its parts; nested brackets stay intact.
fn choices(inner: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut parts = vec![];
    let mut start = 0;
    for (at, char) in inner.char_indices() {
        match char {
            '[' => depth += 1,
            ']' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    parts
}
