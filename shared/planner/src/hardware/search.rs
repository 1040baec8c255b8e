//! Search in lists of GPUs by parts of names and memory sizes, regardless of spaces and case.

use super::{
    CLOUD_GPUS, CloudGpu, Device, Segment, by_popularity,
    find::{compact, find, without_count},
};
use headroom_text::units::human_size;

/// GPUs whose names, aliases and sizes contain every word of a text, in any order. The order is that of lists, except
/// that the GPU named by the whole text comes first. An empty text returns all GPUs.
#[must_use]
pub fn search(typed: &str) -> Vec<(Segment, &'static Device)> {
    let typed = without_count(typed).unwrap_or(typed);
    let meant = find(typed.trim()).ok().map(|device| &*device.name);
    let words = words(typed);
    let matches = |device: &Device| Some(&*device.name) == meant || words.iter().all(|word| word.is_in(device));
    let mut found: Vec<_> = by_popularity().filter(|(_, device)| matches(device)).collect();
    if let Some(at) = found.iter().position(|(_, device)| Some(&*device.name) == meant) {
        found[..=at].rotate_right(1);
    }
    found
}

/// Cloud machines whose names contain every word of a text. Sizes and numbers match no machine; [`search`] finds the
/// GPU for them.
pub fn search_cloud(typed: &str) -> impl Iterator<Item = &'static CloudGpu> {
    let words = words(typed);
    let matches = move |label: &str| {
        let label = compact(label);
        words.iter().all(|word| matches!(word, Word::Name(part) if label.contains(part.as_str())))
    };
    CLOUD_GPUS.iter().filter(move |rented| matches(rented.label))
}

/// One word of the search text.
#[derive(Debug, PartialEq)]
enum Word {
    /// "12GB", "11.69GiB": a size, without its unit.
    Size(String),
    /// "24": a size or a part of a name.
    Number(String),
    /// A part of a name, in lower case.
    Name(String),
}

/// Maximum number of digits before the decimal point of a size in GB; model numbers have more.
const SIZE_DIGITS_MAX: usize = 3;

fn words(typed: &str) -> Vec<Word> {
    // ASCII only: names have no other letters, and Unicode's tables would add kilobytes to a page.
    let typed = typed.to_ascii_lowercase().replace(',', ".");
    // A negative number is neither a size nor a part of a name.
    if typed.trim_start().starts_with('-') {
        return vec![Word::Name(typed)];
    }
    let separates = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '.';
    let parts = typed.split(separates).filter(|part| !part.is_empty());
    let is_number = |text: &str| {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        // Not `f64::from_str`: its tables would be a twentieth of the page's WebAssembly.
        (1..=SIZE_DIGITS_MAX).contains(&whole.len()) && whole.bytes().chain(part.bytes()).all(|c| c.is_ascii_digit())
    };
    let mut words: Vec<Word> = Vec::new();
    for part in parts {
        let start = part.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let is_unit = ["g", "gi", "gb", "gib"].contains(&&part[start.len()..]);
        match (start, words.last_mut()) {
            // "12 GB": the number is a separate word.
            ("", Some(Word::Number(number))) if is_unit => {
                let number = std::mem::take(number);
                words.pop();
                words.push(Word::Size(number));
            }
            _ if is_unit && is_number(start) => words.push(Word::Size(start.to_owned())),
            _ if is_number(part) => words.push(Word::Number(part.to_owned())),
            // Part of every full name, but of no name in the table.
            _ if part == "nvidia" => {}
            _ => words.push(Word::Name(part.to_owned())),
        }
    }
    words
}

impl Word {
    fn is_in(&self, device: &Device) -> bool {
        let is_size = |size: &str| {
            size.parse() == Ok(device.vram_bytes_nominal >> 30)
                || human_size(device.total_bytes).strip_suffix(" GiB") == Some(size)
        };
        let is_in_name = |part: &str| {
            let names = [&*device.name].into_iter().chain(device.aliases.iter().copied());
            names.map(compact).any(|name| name.contains(part))
        };
        match self {
            Self::Size(size) => is_size(size),
            Self::Number(number) => is_size(number) || is_in_name(number),
            Self::Name(part) => is_in_name(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::devices;

    fn names(typed: &str) -> Vec<&'static str> {
        search(typed).into_iter().map(|(_, device)| &*device.name).collect()
    }

    #[test]
    fn spaces_and_case_change_no_result() {
        for (one, other) in [("4070ti", "4070 Ti"), ("RTX3060", "rtx 3060"), ("a100 80gb", "A100-80 GB")] {
            assert!(
                !names(one).is_empty() && names(one) == names(other),
                "{one}: {:?}, {:?}",
                names(one),
                names(other)
            );
        }
        let found = names("4070ti");
        assert_eq!(found.first(), Some(&"GeForce RTX 4070 Ti"));
        assert!(found.contains(&"GeForce RTX 4070 Ti SUPER") && found.iter().all(|name| name.contains("4070 Ti")));
        assert_eq!(names("").len(), devices().len());
        let clouds = |typed: &str| search_cloud(typed).map(|rented| rented.label).collect::<Vec<_>>();
        for typed in ["T4 x2", "T4x2"] {
            assert!(clouds(typed).contains(&"Kaggle T4 x2"), "{typed}: {:?}", clouds(typed));
        }
        for (counted, one) in
            [("2xT4", "T4"), ("2 x T4", "T4"), ("8× a100", "a100"), ("T4 x2", "T4"), ("4x rtx 40", "rtx 40")]
        {
            assert!(!names(counted).is_empty() && names(counted) == names(one), "{counted}: {:?}", names(counted));
        }
        for nothing in ["no such GPU", "-5", " -24 GB"] {
            assert_eq!(names(nothing), Vec::<&str>::new(), "{nothing}");
        }
    }
}
