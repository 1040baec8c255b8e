//! The way back from a sentence to its text: what the agent keeps and what its runs print is English, and a reader of
//! another language is told the same by the text that the sentence was made of, as gettext does it.
//!
//! Only texts of the section `agent` are looked for. How an argument's name begins says what it has to be ([`Kind`]), so
//! that no text takes a sentence for its own that only resembles it.

use std::sync::OnceLock;

use super::{Argument, Key, LANGUAGES, LIST_MARK, Table, Text, source};

/// The section's name.
const SECTION: &str = "agent";
/// Bytes of a sentence that is looked for: ten times the longest there is, for paths and names within it.
const SENTENCE_BYTES_MAX: usize = 8 << 10;
/// Texts within texts at most: a list in the reason of a sentence has four.
const DEPTH_MAX: u32 = 6;
/// What stands between the parts of a list.
const SEPARATORS: [&str; 2] = ["; ", ", "];
/// The first of them, where marks are full-width.
const FULL_WIDTH_SEMICOLON: &str = "；";
/// Units of sizes, as people are told them.
const UNITS: [&str; 6] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];

/// An English text as it is recognised.
#[derive(Debug)]
struct Known {
    key: Key,
    /// What stands before the first argument.
    begin: &'static str,
    /// Each argument: its place among the text's arguments, what is known of it, and what stands behind it.
    rest: Vec<(usize, Kind, &'static str)>,
    n_arguments: usize,
    /// Bytes that are no arguments: of several texts that a sentence could be, the one with the most is meant.
    n_own_bytes: usize,
}

/// What is known of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Whatever it is: a name, a path, the words of a system.
    Any,
    /// `said…`: another text.
    Said,
    /// `listed…`: several, between commas or semicolons.
    Listed,
    /// `number…`: digits alone.
    Number,
    /// `size…`: as [`human_size`](crate::units::human_size) says it.
    Size,
}

impl Kind {
    fn of(name: &str) -> Self {
        let kinds = [("said", Self::Said), ("listed", Self::Listed), ("number", Self::Number), ("size", Self::Size)];
        kinds.into_iter().find(|(begin, _)| name.starts_with(begin)).map_or(Self::Any, |(_, kind)| kind)
    }
}

impl Known {
    /// `None` where an argument has forms for one and many, which are not recognised.
    fn of(index: usize, entry: &source::Entry<'static>) -> Option<Self> {
        let mut parts = entry.text.split('{');
        let begin = parts.next()?;
        let mut rest = vec![];
        for part in parts {
            let (name, behind) = part.split_once('}')?;
            let at = entry.arguments.iter().position(|argument| *argument == name)?;
            rest.push((at, Kind::of(name), behind));
        }
        let n_own_bytes = begin.len() + rest.iter().map(|(_, _, behind)| behind.len()).sum::<usize>();
        let key = Key(u16::try_from(index).ok()?);
        Some(Self { key, begin, rest, n_arguments: entry.arguments.len(), n_own_bytes })
    }

    /// Whether digits and another text have to stand in it, as in a line of a config with its place: what is within would
    /// take the place for its own first argument.
    fn is_strict(&self) -> bool {
        let has = |wanted: Kind| self.rest.iter().any(|(_, kind, _)| *kind == wanted);
        has(Kind::Number) && has(Kind::Said)
    }

    /// The arguments that make a sentence of it, by their places; each ends at the first of what stands behind it.
    fn arguments<'s>(&self, sentence: &'s str) -> Option<Vec<(Kind, &'s str)>> {
        let mut left = sentence.strip_prefix(self.begin)?;
        let mut found = vec![(Kind::Any, ""); self.n_arguments];
        for (i, (at, kind, behind)) in self.rest.iter().enumerate() {
            let is_last = i + 1 == self.rest.len();
            let (argument, rest) = if is_last { (left.strip_suffix(behind)?, "") } else { left.split_once(behind)? };
            *found.get_mut(*at)? = (*kind, argument);
            left = rest;
        }
        left.is_empty().then_some(found)
    }
}

/// Those of the section, the strict ones first, and of several the one with the most of its own.
fn all() -> &'static [Known] {
    static ALL: OnceLock<Vec<Known>> = OnceLock::new();
    ALL.get_or_init(|| {
        let entries = source::entries(LANGUAGES[0].source).unwrap_or_default();
        let of_agent = entries.iter().enumerate().filter(|(_, entry)| entry.pages.contains(&SECTION));
        let mut all: Vec<Known> = of_agent.filter_map(|(index, entry)| Known::of(index, entry)).collect();
        all.sort_by_key(|known| std::cmp::Reverse((known.is_strict(), known.n_own_bytes)));
        all
    })
}

fn is_number(words: &str) -> bool {
    !words.is_empty() && words.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_size(words: &str) -> bool {
    let number = UNITS.iter().find_map(|unit| words.strip_suffix(unit));
    number.is_some_and(|number| is_number(&number.replacen('.', "", 1)))
}

/// A sentence that is of a text.
#[derive(Debug)]
struct Found<'s> {
    key: Key,
    arguments: Vec<Said<'s>>,
}

/// What stands in the place of an argument.
#[derive(Debug)]
enum Said<'s> {
    /// The same in every language.
    Words(&'s str),
    /// A size, which has a decimal mark.
    Size(&'s str),
    /// Another text.
    Text(Found<'s>),
    /// Several, and what stands between them.
    List(&'static str, Vec<Self>),
}

fn found(sentence: &str, depth: u32) -> Option<Found<'_>> {
    if sentence.is_empty() || sentence.len() > SENTENCE_BYTES_MAX || depth > DEPTH_MAX {
        return None;
    }
    all().iter().find_map(|known| of_text(known, sentence, depth))
}

fn of_text<'s>(known: &Known, sentence: &'s str, depth: u32) -> Option<Found<'s>> {
    let arguments = known.arguments(sentence)?.into_iter().map(|(kind, words)| match kind {
        Kind::Said => found(words, depth + 1).map(Said::Text),
        Kind::Listed => Some(list(words, depth + 1)),
        Kind::Number => is_number(words).then_some(Said::Words(words)),
        Kind::Size => is_size(words).then_some(Said::Size(words)),
        Kind::Any if is_size(words) => Some(Said::Size(words)),
        Kind::Any => Some(found(words, depth + 1).map_or(Said::Words(words), Said::Text)),
    });
    Some(Found { key: known.key, arguments: arguments.collect::<Option<_>>()? })
}

/// Several in a row, or one.
fn list(words: &str, depth: u32) -> Said<'_> {
    if let Some(found) = found(words, depth) {
        return Said::Text(found);
    }
    match SEPARATORS.into_iter().find(|separator| words.contains(separator)) {
        // A part of what semicolons stand between may have commas.
        Some(separator) if depth <= DEPTH_MAX => {
            Said::List(separator, words.split(separator).map(|part| list(part, depth + 1)).collect())
        }
        None if is_size(words) => Said::Size(words),
        _ => Said::Words(words),
    }
}

impl Found<'_> {
    fn append_to(&self, texts: &mut Vec<Text>) {
        texts.push(self.key.into());
        self.arguments.iter().for_each(|argument| argument.append_to(texts));
    }
}

impl Said<'_> {
    fn append_to(&self, texts: &mut Vec<Text>) {
        match self {
            Self::Words(_) | Self::Size(_) => {}
            Self::Text(found) => found.append_to(texts),
            Self::List(_, parts) => parts.iter().for_each(|part| part.append_to(texts)),
        }
    }
}

/// Which texts the lines of an English sentence of the agent's are of, with those within them: without their arguments,
/// for [`Text::is`].
#[must_use]
pub fn texts_of(english: &str) -> Vec<Text> {
    let mut texts = vec![];
    english.split('\n').filter_map(|line| found(line, 0)).for_each(|found| found.append_to(&mut texts));
    texts
}

impl Table {
    /// What English sentences of the agent's are in this table's language, each line for itself. A line that is of no
    /// text, as the words of a system or a driver, stays as it is.
    #[must_use]
    pub fn translated(&self, english: &str) -> String {
        let lines = english.split('\n');
        let lines = lines.map(|line| found(line, 0).map_or_else(|| line.to_owned(), |found| self.text(&found)));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The same of a list of them, between semicolons or commas.
    #[must_use]
    pub fn translated_list(&self, english: &str) -> String {
        self.said(&list(english, 0))
    }

    fn text(&self, found: &Found<'_>) -> String {
        let said: Vec<String> = found.arguments.iter().map(|argument| self.said(argument)).collect();
        let arguments: Vec<&dyn Argument> = said.iter().map(|argument| argument as &dyn Argument).collect();
        self.say(&Text::new(found.key, &arguments))
    }

    fn said(&self, said: &Said<'_>) -> String {
        match said {
            Said::Words(words) => (*words).to_owned(),
            Said::Size(size) => self.number(size),
            Said::Text(found) => self.text(found),
            Said::List(separator, parts) => {
                let mark = self.word(LIST_MARK);
                // A full-width mark has its blank in itself.
                let between = match *separator {
                    ascii if mark.is_ascii() => ascii,
                    ", " => mark,
                    _ => FULL_WIDTH_SEMICOLON,
                };
                parts.iter().map(|part| self.said(part)).collect::<Vec<_>>().join(between)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{self, english, size, table};

    fn german(sentence: &dyn ToString) -> String {
        table("de").translated(&sentence.to_string())
    }

    /// Whatever the agent says by a text is found again, in whichever language.
    #[test]
    fn every_text_of_the_section_is_found_again() {
        let entries = source::entries(LANGUAGES[0].source).expect("it is read");
        let of_agent: Vec<_> = entries.iter().filter(|entry| entry.pages.contains(&SECTION)).collect();
        assert_eq!(of_agent.len(), all().len(), "one has an argument with forms for one and many");
        for entry in of_agent {
            let mut sentence = entry.text.to_owned();
            for argument in &entry.arguments {
                let value = match Kind::of(argument) {
                    Kind::Said => "process 7",
                    Kind::Number => "7",
                    Kind::Size => "1.50 GiB",
                    Kind::Any | Kind::Listed => "x9",
                };
                let place = format!("{{{argument}}}");
                assert_eq!(sentence.matches(&place).count(), 1, "{}: {place} stands once", entry.name);
                sentence = sentence.replace(&place, value);
            }
            for language in &LANGUAGES[1..] {
                let said = table(language.code).translated(&sentence);
                assert_ne!(said, sentence, "{}.txt, {}", language.code, entry.name);
            }
            assert_eq!(english().translated(&sentence), sentence, "{}", entry.name);
        }
    }

    #[test]
    fn what_is_of_no_text_stays_as_it_is() {
        for words in ["", "\n", "Driver Not Loaded", "x of y", "a, b", "no space left on device (os error 28)"] {
            assert_eq!(german(&words), words);
        }
        let long = format!("run {} has not ended", "7".repeat(SENTENCE_BYTES_MAX));
        assert_eq!(german(&long), long);
        let known = text::run_not_ended("7").to_string();
        assert_eq!(german(&format!("else\n\n{known}\n")), format!("else\n\n{}\n", german(&known)));
    }

    #[test]
    fn arguments_are_said_too() {
        let holders = "process 7 with 1.50 GiB, a, b (process 9), 2 more";
        let missing = text::shortage_held(text::shortage_missing(size(3 << 29)), holders);
        let said = german(&missing);
        assert!(said.contains("1,50 GiB") && !said.contains("process") && !said.contains("more"), "{said}");
        let japanese = table("ja").translated(&missing.to_string());
        assert!(japanese.contains('、') && !japanese.contains(", "), "{japanese}");
    }

    #[test]
    fn a_sentence_is_known_by_its_texts_whatever_it_says() {
        let apart = text::shortage_held(text::SHORTAGE_APART, "process 7");
        let short = text::shortage_plan(size(1), size(2), "a card", size(3), size(4), apart);
        let texts = texts_of(&format!("{short}\n\n{}", text::tries(text::TRY_CPU)));
        let is_one = |text: Text| texts.iter().any(|found| found.is(&text));
        assert!(texts[0].is(&short), "the whole is first");
        assert!(
            is_one(text::SHORTAGE_APART.into()) && is_one(text::holder_unnamed(0_u64)) && is_one(text::TRY_CPU.into())
        );
        assert_eq!(texts.len(), 6, "{texts:?}");
        assert_eq!(texts_of("no space left on device"), []);
    }

    /// Names and paths come from outside.
    #[test]
    fn nothing_that_is_looked_for_takes_long() {
        let nested = format!("{}x", "hint: ".repeat(1300));
        assert!(german(&nested).ends_with('x'));
        let many = format!("hint: {}", "a; ".repeat(2600));
        assert!(german(&many).ends_with("a; "));
    }

    #[test]
    fn levels_of_several_blocks_are_a_list() {
        let levels = "attention, GELU and layer norms of blocks 0 to 3; nothing of block 4";
        let said = table("de").translated_list(levels);
        assert_eq!(said, "Attention, GELU und Layer-Norms (Blöcke 0 bis 3); nichts (Block 4)");
        assert_eq!(table("de").translated_list("everything of every block"), "alles (alle Blöcke)");
        assert_eq!(english().translated_list(levels), levels);
    }
}
