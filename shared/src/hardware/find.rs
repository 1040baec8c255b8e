//! Finding a card by whatever a person calls it.
//!
//! A query and every spelling in the table are reduced to words ("rtx4070 ti super" → 4070, super, ti), a memory size
//! and a form factor; a card matches when the words are equal. Nothing is matched by resemblance: that only ranks the
//! suggestions of an error.
//!
//! When several cards match:
//! 1. one whose `name` or, if no other shares it, `reported_name` was written out wins;
//! 2. if all have the same nominal memory, the first of the table wins (for data centre cards that is SXM);
//! 3. a later size that reused an older card's name has to be asked for, so plain "RTX 3060" is the 12 GB card, "RTX
//!    3080" the 10 GB one, "RTX 2060" the 6 GB one and "RTX 3050" the 8 GB one;
//! 4. otherwise the query is ambiguous and the error lists the sizes.
//!
//! When none does, a number at the end is read as the memory ("a100-80"); and a query that is part of the names of
//! cards with different memory ("rtx6000") is ambiguous too.

use thiserror::Error;

use super::{Device, devices};
use crate::text::{self, Text};

/// Names that rule 3 of this module resolves to.
const DEFAULT_VARIANTS: [&str; 4] =
    ["GeForce RTX 2060 6GB", "GeForce RTX 3050 8GB", "GeForce RTX 3060 12GB", "GeForce RTX 3080 10GB"];
/// Longest query looked at; the longest name in use has about 50 characters.
const MAX_QUERY_CHARS: usize = 120;
/// Cards an error lists when nothing matched.
const MAX_SUGGESTIONS: usize = 5;
/// A score below which a name is no suggestion: half of a short name's letters agree.
const MIN_SCORE: f64 = 0.45;

/// Words that tell no card from another.
const NOISE: [&str; 24] = [
    "nvidia",
    "geforce",
    "tesla",
    "rtx",
    "gtx",
    "gpu",
    "graphics",
    "card",
    "generation",
    "gen",
    "edition",
    "design",
    "workstation",
    "tensor",
    "core",
    "vram",
    "memory",
    "with",
    "hbm2",
    "hbm2e",
    "hbm3",
    "hbm3e",
    "gddr6",
    "gddr6x",
];
/// What may follow a model number without a space.
const SUFFIXES: [&str; 7] = ["ti", "super", "laptop", "mobile", "ada", "s", "m"];
/// What may precede a model number without a space.
const PREFIXES: [&str; 6] = ["nvidia", "geforce", "tesla", "quadro", "rtx", "gtx"];

/// Why a name did not lead to one card.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.text())]
pub enum UnknownDevice {
    /// No card matches.
    NotFound {
        /// What was asked for, shortened if it was long.
        query: String,
        /// Names of the table, closest first.
        suggestions: Vec<&'static str>,
    },
    /// Cards with different memory match.
    Ambiguous {
        /// What was asked for, shortened if it was long.
        query: String,
        /// Every card that matches, in the order of the table.
        candidates: Vec<&'static str>,
    },
}

impl UnknownDevice {
    /// What is wrong, with what may be meant.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::NotFound { query, suggestions } if suggestions.is_empty() => text::no_such_card(query.as_str()),
            Self::NotFound { query, suggestions } => {
                text::no_such_card_but(query.as_str(), text::names(suggestions.iter().copied()), suggestions.len())
            }
            Self::Ambiguous { query, candidates } => {
                text::several_cards(query.as_str(), text::names(candidates.iter().copied()))
            }
        }
    }

    /// Names to offer instead, best first.
    #[must_use]
    pub fn suggestions(&self) -> &[&'static str] {
        match self {
            Self::NotFound { suggestions, .. } => suggestions,
            Self::Ambiguous { candidates, .. } => candidates,
        }
    }
}

/// Finds a card by its name, an alias or a looser spelling: "NVIDIA GeForce RTX 4070", "rtx4070", "A100 80GB".
///
/// # Errors
/// [`UnknownDevice::Ambiguous`] when the memory depends on which card is meant, [`UnknownDevice::NotFound`] otherwise.
pub fn find(name: &str) -> Result<&'static Device, UnknownDevice> {
    let query: String = name.trim().chars().take(MAX_QUERY_CHARS).collect();
    if let Some(device) = written_out(&query) {
        return Ok(device);
    }
    let mut wanted = Spelling::parse(&query);
    let named = |wanted: &Spelling| devices().iter().filter(|device| wanted.names(device)).collect();
    let mut matches: Vec<&'static Device> = named(&wanted);
    if matches.is_empty() && wanted.ends_with_a_size() {
        matches = named(&wanted);
    }
    let Some(&first) = matches.first() else {
        let longer: Vec<&'static Device> = devices().iter().filter(|device| wanted.is_part_of(device)).collect();
        let differ =
            |first: &&Device| longer.iter().any(|device| device.vram_bytes_nominal != first.vram_bytes_nominal);
        if longer.first().is_some_and(differ) {
            return Err(UnknownDevice::Ambiguous {
                query,
                candidates: longer.iter().map(|device| &*device.name).collect(),
            });
        }
        return Err(UnknownDevice::NotFound { suggestions: closest(&query), query });
    };
    if matches.iter().all(|device| device.vram_bytes_nominal == first.vram_bytes_nominal) {
        return Ok(first);
    }
    if let Some(default) = matches.iter().find(|device| DEFAULT_VARIANTS.contains(&&*device.name)) {
        return Ok(default);
    }
    Err(UnknownDevice::Ambiguous { query, candidates: matches.iter().map(|device| &*device.name).collect() })
}

/// The card that NVML, nvidia-smi or CUDA calls so, on the machine that it is in. Of several with one name and other
/// memory, the one nearest to what it has.
#[must_use]
pub fn reported(name: &str, total_bytes: Option<u64>) -> Option<&'static Device> {
    let plain = name.strip_prefix("NVIDIA ").unwrap_or(name);
    let same = devices().iter().filter(|device| device.reported_name == plain);
    let nearest = same.min_by_key(|device| total_bytes.map_or(0, |total| total.abs_diff(device.total_bytes)));
    nearest.or_else(|| find(name).ok())
}

/// The one card whose name, or unshared reported name, is the query up to case, spaces and "NVIDIA".
fn written_out(query: &str) -> Option<&'static Device> {
    let plain = |text: &str| {
        let text = compact(text);
        text.strip_prefix("nvidia").map_or_else(|| text.clone(), str::to_owned)
    };
    let wanted = plain(query);
    if let Some(device) = devices().iter().find(|device| plain(&device.name) == wanted) {
        return Some(device);
    }
    let mut reported = devices().iter().filter(|device| plain(&device.reported_name) == wanted);
    reported.next().filter(|_| reported.next().is_none())
}

/// A spelling reduced to what tells cards apart.
#[derive(Debug, Default, PartialEq, Eq)]
struct Spelling {
    /// In the order of the text, which says nothing.
    words: Vec<String>,
    /// "sxm" or "pcie", where it is said.
    form: Option<&'static str>,
    size_gib: Option<u64>,
}

impl Spelling {
    fn parse(text: &str) -> Self {
        let mut spelling = Self::default();
        let lower = text.to_ascii_lowercase();
        for token in lower.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|token| !token.is_empty()) {
            spelling.take_token(token);
        }
        spelling
    }

    fn take_token(&mut self, token: &str) {
        let after_prefix =
            |prefix| token.strip_prefix(prefix).filter(|rest| !rest.is_empty()).map(|rest| (prefix, rest));
        if let Some((prefix, rest)) = PREFIXES.into_iter().find_map(after_prefix) {
            self.push(prefix);
            return self.take_token(rest);
        }
        let digits = token.len() - token.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, rest) = token.split_at(digits);
        match (number.is_empty(), rest) {
            (false, "gb" | "g" | "gib") => self.size_gib = number.parse().ok(),
            (true, "gb" | "g" | "gib") => {
                // "12 GB": the number came as a word of its own.
                let size = self.words.last().filter(|word| word.len() <= 3).and_then(|word| word.parse().ok());
                if size.is_some() {
                    self.size_gib = size;
                    self.words.pop();
                }
            }
            (true, word) => self.push(word),
            (false, mut rest) => {
                self.push(number);
                while let Some((suffix, left)) =
                    SUFFIXES.into_iter().find_map(|suffix| Some((suffix, rest.strip_prefix(suffix)?)))
                {
                    self.push(suffix);
                    rest = left;
                }
                if !rest.is_empty() {
                    self.push(rest);
                }
            }
        }
    }

    fn push(&mut self, word: &str) {
        match word {
            "sxm" | "sxm2" | "sxm3" | "sxm4" | "sxm5" => self.form = Some("sxm"),
            "pcie" => self.form = Some("pcie"),
            "s" => self.words.push("super".to_owned()),
            "mobile" | "notebook" | "m" => self.words.push("laptop".to_owned()),
            word if NOISE.contains(&word) => {}
            word => self.words.push(word.to_owned()),
        }
    }

    /// Takes a short number at the end for the memory; whether there was one.
    fn ends_with_a_size(&mut self) -> bool {
        let size = self.words.last().filter(|word| word.len() <= 3).and_then(|word| word.parse().ok());
        if size.is_none() || self.size_gib.is_some() || self.words.len() < 2 {
            return false;
        }
        self.words.pop();
        self.size_gib = size;
        true
    }

    /// Whether the query `self` names this card by any of its spellings.
    fn names(&self, device: &Device) -> bool {
        self.has_size_of(device) && !self.words.is_empty() && spellings(device).any(|spelling| self.fits(&spelling))
    }

    /// Whether the query has a model's number and is a part of one of the card's spellings.
    fn is_part_of(&self, device: &Device) -> bool {
        let has_number =
            self.words.iter().any(|word| word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_digit()));
        let all_in = |spelling: Self| self.words.iter().all(|word| spelling.words.contains(word));
        has_number && self.has_size_of(device) && spellings(device).any(all_in)
    }

    fn has_size_of(&self, device: &Device) -> bool {
        self.size_gib.is_none_or(|gib| gib.checked_mul(1 << 30) == Some(device.vram_bytes_nominal))
    }

    fn fits(&self, spelling: &Self) -> bool {
        let count = |words: &[String], word: &String| words.iter().filter(|other| *other == word).count();
        let same_words = self.words.len() == spelling.words.len()
            && self.words.iter().all(|word| count(&self.words, word) == count(&spelling.words, word));
        same_words && (self.form.is_none() || self.form == spelling.form)
    }
}

/// Every spelling of a card.
fn spellings(device: &Device) -> impl Iterator<Item = Spelling> {
    let names = [&*device.name, &*device.reported_name].into_iter().chain(device.aliases.iter().copied());
    names.map(Spelling::parse)
}

/// Lower-case letters and digits only.
fn compact(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The names that share most words with the query; among equals, most neighbouring letters.
fn closest(query: &str) -> Vec<&'static str> {
    let (wanted, words) = (compact(query), Spelling::parse(query).words);
    let mut best: Vec<(f64, &'static str)> = Vec::new();
    for device in devices() {
        let spellings = [&*device.name, &*device.reported_name].into_iter().chain(device.aliases.iter().copied());
        let score = |spelling: &str| {
            // A model number says more than "super" or "laptop".
            let weight = |word: &String| if word.contains(|letter: char| letter.is_ascii_digit()) { 2.0 } else { 0.2 };
            let parsed = Spelling::parse(spelling);
            let shared: f64 = parsed.words.iter().filter(|word| words.contains(word)).map(weight).sum();
            // Nobody writes "GeForce" before a number.
            let spelling = compact(spelling);
            shared + resemblance(&wanted, spelling.strip_prefix("geforce").unwrap_or(&spelling))
        };
        let score = spellings.map(score).fold(0.0, f64::max);
        // Equals stay in the order of the table.
        let rank = best.partition_point(|(better, _)| *better >= score);
        best.insert(rank, (score, &*device.name));
        best.truncate(MAX_SUGGESTIONS);
    }
    best.into_iter().filter(|(score, _)| *score >= MIN_SCORE).map(|(_, name)| name).collect()
}

/// Dice's coefficient over pairs of neighbouring letters, 0 to 1.
fn resemblance(left: &str, right: &str) -> f64 {
    let pairs = |text: &str| text.as_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (left, mut right) = (pairs(left), pairs(right));
    let total = left.len() + right.len();
    if total == 0 {
        return 0.0;
    }
    let mut shared = 0_u32;
    for pair in left {
        if let Some(position) = right.iter().position(|other| *other == pair) {
            right.swap_remove(position);
            shared += 1;
        }
    }
    2.0 * f64::from(shared) / total as f64
}
