//! GPU lookup by name, alias or loose spelling.
//!
//! [`find`] reduces a query and every spelling in the table to words ("rtx4070 ti super" → 4070, super, ti), a memory
//! size and a form factor. A GPU matches when the words are equal. Similarity never matches; it only ranks the
//! suggestions of an error.
//!
//! When several GPUs match:
//! 1. A GPU whose full `name` is the query wins. So does one whose `reported_name` is the query, if no other GPU shares
//!    it.
//! 2. If all have the same nominal memory, the first of the table wins (for data centre GPUs that is SXM).
//! 3. A later size that reused an older GPU's name matches only with its size. Plain "RTX 3060" is the 12 GB GPU, "RTX
//!    3080" the 10 GB one, "RTX 2060" the 6 GB one and "RTX 3050" the 8 GB one.
//! 4. Otherwise the query is ambiguous, and the error lists the sizes.
//!
//! A number of GPUs ("2xT4") means one of them. When none matches, a number at the end is read as the memory size ("a100-80"). A query that is part of the names of
//! GPUs with different memory ("rtx6000") is ambiguous too.

use thiserror::Error;

use super::{Device, devices};
use headroom_text::{self as text, Text};

/// GPU names that rule 3 of this module resolves to.
const DEFAULT_VARIANTS: [&str; 4] =
    ["GeForce RTX 2060 6GB", "GeForce RTX 3050 8GB", "GeForce RTX 3060 12GB", "GeForce RTX 3080 10GB"];
/// Maximum length of a query in characters; the longest name in use has about 50.
const MAX_QUERY_CHARS: usize = 120;
/// Maximum number of suggestions in an error.
const MAX_SUGGESTIONS: usize = 5;
/// Minimum score of a suggestion: about half of a short name's letters agree.
const MIN_SCORE: f64 = 0.45;

/// Words that do not distinguish GPUs.
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
/// Suffixes that may follow a model number without a space.
const SUFFIXES: [&str; 7] = ["ti", "super", "laptop", "mobile", "ada", "s", "m"];
/// Prefixes that may precede a model number without a space.
const PREFIXES: [&str; 6] = ["nvidia", "geforce", "tesla", "quadro", "rtx", "gtx"];

/// Error of a GPU lookup.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.text())]
pub enum UnknownDevice {
    /// No GPU matches.
    NotFound {
        /// The query, truncated if it was long.
        query: String,
        /// Names from the table, closest first.
        suggestions: Vec<&'static str>,
    },
    /// GPUs with different memory match.
    Ambiguous {
        /// The query, truncated if it was long.
        query: String,
        /// Every matching GPU, in the order of the table.
        candidates: Vec<&'static str>,
    },
}

impl UnknownDevice {
    /// Error message, with the suggestions or candidates.
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

    /// Names to suggest instead, best first.
    #[must_use]
    pub fn suggestions(&self) -> &[&'static str] {
        match self {
            Self::NotFound { suggestions, .. } => suggestions,
            Self::Ambiguous { candidates, .. } => candidates,
        }
    }
}

/// Finds a GPU by its name, an alias or a looser spelling: "NVIDIA GeForce RTX 4070", "rtx4070", "A100 80GB".
///
/// # Errors
/// [`UnknownDevice::Ambiguous`] if GPUs with different memory match, [`UnknownDevice::NotFound`] if none matches.
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
        if let Some(one) = without_count(&query) {
            return find(one);
        }
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

/// Finds a GPU by the name that NVML, nvidia-smi or CUDA reports. Among GPUs with one reported name and different
/// memory, returns the one nearest to `total_bytes`.
#[must_use]
pub fn reported(name: &str, total_bytes: Option<u64>) -> Option<&'static Device> {
    let plain = name.strip_prefix("NVIDIA ").unwrap_or(name);
    let same = devices().iter().filter(|device| device.reported_name == plain);
    let nearest = same.min_by_key(|device| total_bytes.map_or(0, |total| total.abs_diff(device.total_bytes)));
    nearest.or_else(|| find(name).ok())
}

/// The only GPU whose name, or unshared reported name, equals the query up to case, spaces and "NVIDIA".
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

/// Maximum number of digits of a count; model numbers have more.
const COUNT_DIGITS_MAX: usize = 2;

/// The name of one GPU if the text counts several, as "2xT4", "8 x A100" and "T4 x2" do. Each process of a run has one.
pub(super) fn without_count(text: &str) -> Option<&str> {
    let (text, is_digit) = (text.trim(), |letter: char| letter.is_ascii_digit());
    let is_count = |rest: &str| (1..=COUNT_DIGITS_MAX).contains(&(text.len() - rest.len()));
    let times = ['x', 'X', '×'];
    let after = Some(text.trim_start_matches(is_digit)).filter(|rest| is_count(rest));
    let after = after.and_then(|rest| rest.trim_start().strip_prefix(times));
    let before = Some(text.trim_end_matches(is_digit)).filter(|rest| is_count(rest));
    // The last letter of "RTX" does not count.
    let before = before.and_then(|rest| rest.trim_end().strip_suffix(times));
    let before = before.filter(|rest| !rest.ends_with(|letter: char| letter.is_ascii_alphabetic()));
    after.or(before).map(str::trim).filter(|name| !name.is_empty())
}

/// A spelling reduced to the parts that distinguish GPUs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Spelling {
    /// Words in the order of the text; the order does not matter.
    words: Vec<String>,
    /// "sxm" or "pcie", if the spelling contains it.
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
                // "12 GB": the number is a separate word.
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

    /// Moves a short number at the end into `size_gib`; returns whether there was one.
    fn ends_with_a_size(&mut self) -> bool {
        let size = self.words.last().filter(|word| word.len() <= 3).and_then(|word| word.parse().ok());
        if size.is_none() || self.size_gib.is_some() || self.words.len() < 2 {
            return false;
        }
        self.words.pop();
        self.size_gib = size;
        true
    }

    /// Whether the query `self` matches any spelling of this GPU.
    fn names(&self, device: &Device) -> bool {
        self.has_size_of(device) && !self.words.is_empty() && spellings(device).any(|spelling| self.fits(&spelling))
    }

    /// Whether the query has a model number and is part of one of the GPU's spellings.
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

/// All spellings of a GPU.
fn spellings(device: &Device) -> impl Iterator<Item = Spelling> {
    let names = [&*device.name, &*device.reported_name].into_iter().chain(device.aliases.iter().copied());
    names.map(Spelling::parse)
}

/// Lower-case letters and digits only.
pub(super) fn compact(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The names that share the most words with the query; ties are broken by shared letter pairs.
fn closest(query: &str) -> Vec<&'static str> {
    let (wanted, words) = (compact(query), Spelling::parse(query).words);
    let mut best: Vec<(f64, &'static str)> = Vec::new();
    for device in devices() {
        let spellings = [&*device.name, &*device.reported_name].into_iter().chain(device.aliases.iter().copied());
        let score = |spelling: &str| {
            // A model number distinguishes GPUs better than "super" or "laptop".
            let weight = |word: &String| if word.contains(|letter: char| letter.is_ascii_digit()) { 2.0 } else { 0.2 };
            let parsed = Spelling::parse(spelling);
            let shared: f64 = parsed.words.iter().filter(|word| words.contains(word)).map(weight).sum();
            // Queries rarely contain "GeForce" before a number.
            let spelling = compact(spelling);
            shared + resemblance(&wanted, spelling.strip_prefix("geforce").unwrap_or(&spelling))
        };
        let score = spellings.map(score).fold(0.0, f64::max);
        // Equal scores keep the order of the table.
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
