//! The GPU as a person writes it: a name of the table, or an amount of memory.

use headroom_shared::{
    hardware::{Device, Segment, by_popularity, find},
    session::Options,
    units::{human_size, parse_size},
};

use super::format;
use crate::text::{self, Key};

/// Takes what stands in the card's field.
pub fn set(options: &mut Options, typed: &str) {
    let typed = typed.trim();
    let is_size = typed.starts_with(|c: char| c.is_ascii_digit()) && typed.to_ascii_lowercase().ends_with('b');
    match parse_size(typed) {
        Ok(bytes) if is_size && bytes > 0 && find(typed).is_err() => {
            options.gpu.clear();
            options.vram_bytes = Some(bytes);
        }
        _ => {
            typed.clone_into(&mut options.gpu);
            options.vram_bytes = None;
        }
    }
}

/// Whether that is a card or an amount of memory.
pub fn is_known(typed: &str) -> bool {
    let mut options = Options { gpu: String::new(), ..Options::default() };
    set(&mut options, typed);
    options.vram_bytes.is_some() || find(&options.gpu).is_ok()
}

/// Whether that is an amount of memory and no card.
pub fn is_size(typed: &str) -> bool {
    let mut options = Options::default();
    set(&mut options, typed);
    options.vram_bytes.is_some()
}

/// What stands in the card's field.
pub fn field(options: &Options) -> String {
    match (options.gpu.as_str(), options.vram_bytes) {
        ("", Some(bytes)) => format!("{}GiB", format::gib_field(bytes)),
        (name, _) => name.to_owned(),
    }
}

/// A GPU of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its name in the table.
    pub name: &'static str,
    /// The size on the box, in GB.
    pub nominal_gb: u64,
    /// What CUDA reports, in words.
    pub total: String,
    /// The part of the list that it is in.
    pub segment: Segment,
}

/// The heading of a part of the list.
pub const fn heading(segment: Segment) -> Key {
    match segment {
        Segment::Desktop => text::GPUS_DESKTOP,
        Segment::Laptop => text::GPUS_LAPTOP,
        Segment::Workstation => text::GPUS_WORKSTATION,
        Segment::DataCentre => text::GPUS_DATA_CENTRE,
    }
}

/// The GPUs whose names, aliases and sizes have every word that was typed, in any order, as a list offers them. The one
/// that the whole text names comes first. All of them while nothing is typed.
pub fn matching(typed: &str) -> Vec<Choice> {
    let meant = find(typed.trim()).ok().map(|device| &*device.name);
    let words = words(typed);
    let matches = |device: &Device| Some(&*device.name) == meant || words.iter().all(|word| word.is_in(device));
    let mut found: Vec<_> = by_popularity()
        .filter(|(_, device)| matches(device))
        .map(|(segment, device)| choice(segment, device))
        .collect();
    if let Some(at) = found.iter().position(|choice| Some(choice.name) == meant) {
        found[..=at].rotate_right(1);
    }
    found
}

/// Where the GPU that the field names is in the whole list.
pub fn position(field: &str) -> Option<usize> {
    let name = &find(field).ok()?.name;
    by_popularity().position(|(_, device)| device.name == *name)
}

fn choice(segment: Segment, device: &'static Device) -> Choice {
    Choice {
        name: &device.name,
        nominal_gb: device.vram_bytes_nominal >> 30,
        total: format::size(device.total_bytes),
        segment,
    }
}

/// One thing that a person typed to narrow the list.
#[derive(Debug, PartialEq)]
enum Word {
    /// "12GB", "11.69GiB": a size, without its unit.
    Size(String),
    /// "24": a size or a part of a name.
    Number(String),
    /// A part of a name, in lower case.
    Name(String),
}

/// Most digits before the point that a size in GB has; model numbers have more.
const SIZE_DIGITS_MAX: usize = 3;

fn words(typed: &str) -> Vec<Word> {
    let typed = typed.to_lowercase().replace(',', ".");
    let parts = typed.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|part| !part.is_empty());
    let is_number = |text: &str| {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        // Not `f64::from_str`: its tables are a twentieth of the page.
        (1..=SIZE_DIGITS_MAX).contains(&whole.len()) && whole.bytes().chain(part.bytes()).all(|c| c.is_ascii_digit())
    };
    let mut words: Vec<Word> = Vec::new();
    for part in parts {
        let start = part.trim_end_matches(|c: char| c.is_alphabetic());
        let is_unit = ["g", "gi", "gb", "gib"].contains(&&part[start.len()..]);
        match (start, words.last_mut()) {
            // "12 GB": the number came as a word of its own.
            ("", Some(Word::Number(number))) if is_unit => {
                let number = std::mem::take(number);
                words.pop();
                words.push(Word::Size(number));
            }
            _ if is_unit && is_number(start) => words.push(Word::Size(start.to_owned())),
            _ if is_number(part) => words.push(Word::Number(part.to_owned())),
            // In every full name, and in none of the table's.
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

/// A name without blanks and signs, in lower case.
fn compact(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::hardware::devices;

    fn names(typed: &str) -> Vec<&'static str> {
        matching(typed).into_iter().map(|choice| choice.name).collect()
    }

    #[test]
    fn a_size_is_a_card_without_a_name() {
        let mut options = Options::default();
        set(&mut options, "16 GiB");
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("", Some(16 << 30)));
        assert_eq!(field(&options), "16GiB");
        set(&mut options, "RTX 3060");
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("RTX 3060", None));
        assert_eq!(field(&options), "RTX 3060");
        for (typed, known) in [("3060", true), ("12GB", true), ("30", false), ("", false), ("RTX 3060 T", false)] {
            assert_eq!(is_known(typed), known, "{typed}");
        }
    }

    #[test]
    fn every_choice_is_found_by_its_name_and_stands_where_it_is_listed() {
        let all = matching("");
        assert_eq!(all.len(), devices().len());
        for (index, choice) in all.iter().enumerate() {
            assert_eq!(position(choice.name), Some(index), "{}", choice.name);
            assert_eq!(names(choice.name).first(), Some(&choice.name));
        }
        assert_eq!(all[position("RTX 4070").expect("listed")].name, "GeForce RTX 4070");
        assert_eq!(position("foobar"), None);
    }

    #[test]
    fn words_match_in_any_order() {
        let found = names("laptop 4070");
        assert!(!found.is_empty());
        assert!(found.iter().all(|name| name.contains("4070") && name.contains("Laptop")));
        assert_eq!(names("no such card"), Vec::<&str>::new());
        // What Enter takes is what the words would be taken for.
        for typed in ["RTX 4070", "3060", "A100 80GB", "a100-80"] {
            let meant = find(typed).expect("a card people name so");
            assert_eq!(names(typed).first(), Some(&&*meant.name), "{typed}");
        }
    }

    #[test]
    fn a_size_finds_every_gpu_of_that_size_and_no_other() {
        let sizes: std::collections::BTreeSet<u64> = devices().iter().map(|d| d.vram_bytes_nominal >> 30).collect();
        for size in sizes {
            let mut of_size: Vec<&str> =
                devices().iter().filter(|d| d.vram_bytes_nominal >> 30 == size).map(|d| &*d.name).collect();
            of_size.sort_unstable();
            for typed in [format!("{size} GB"), format!("{size}GB"), format!("{size}gib"), format!("{size} g")] {
                let mut found = names(&typed);
                found.sort_unstable();
                assert_eq!(found, of_size, "{typed}");
            }
            let found = names(&size.to_string());
            assert!(of_size.iter().all(|name| found.contains(name)), "{size}: {found:?}");
        }
        assert_eq!(names("12 GB").len(), 13);
        assert_eq!(names("11.69 GiB"), names("11,69gib"));
        assert!(names("11.69").contains(&"GeForce RTX 4070"));
    }

    #[test]
    fn names_without_blanks_find_all_of_theirs() {
        for (typed, in_name) in
            [("rtx3060", "RTX 3060"), ("4070ti", "4070 Ti"), ("RTX-A2000", "RTX A2000"), ("nvidia 4090", "4090")]
        {
            let found = names(typed);
            let expected = devices().iter().filter(|device| device.name.contains(in_name)).count();
            assert_eq!(found.len(), expected, "{typed}: {found:?}");
            assert!(found.iter().all(|name| name.contains(in_name)), "{typed}: {found:?}");
        }
        assert_eq!(names("colab"), ["Tesla T4"]);
    }
}
