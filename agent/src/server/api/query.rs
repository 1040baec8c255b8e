//! What an address may ask with, and within which bounds.

use axum::{
    extract::{Query, rejection::QueryRejection},
    http::Uri,
};
use headroom_shared::protocol::{gpu::Gpu, history::Group};

use crate::{server::error::Refusal, store::Card};

/// Characters of a run's number; ours have 16.
const RUN_CHARS_MAX: usize = 64;
/// Characters of a card's UUID; NVML's buffer has 96.
const GPU_CHARS_MAX: usize = 96;
/// Characters of a value that a refusal repeats.
const REPEATED_CHARS_MAX: usize = 40;

/// Cards that a refusal names: a machine has sixteen at most, and one that was rebuilt may have had more.
const CARDS_NAMED_MAX: usize = 16;

/// What each path takes behind the question mark; all others take nothing there.
pub const TAKEN: &[(&str, &[&str])] = &[
    ("/api/history", &["gpu", "group", "from_ms", "to_ms", "points"]),
    ("/api/runs", &["limit"]),
    ("/api/runs/{id}/events", &["after", "limit"]),
];

/// What stands behind the question mark, as axum reads it.
pub type Read = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// What stands behind the question mark. A refusal says which part of it is wrong, and what that takes.
pub struct Asked(Vec<(String, String)>);

impl Asked {
    /// By names.
    ///
    /// # Errors
    /// It is no list of names and values.
    pub fn read(query: Read) -> Result<Self, Refusal> {
        match query {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(_) => Err(Refusal::bad_request(
                "What stands behind the question mark is not understood; it takes `name=value&name=value`.",
            )),
        }
    }

    fn value(&self, name: &str, takes: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.0.iter().filter(|(of, _)| of == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (Some(_), Some(_)) => {
                Err(Refusal::bad_request(format!("{name} stands there twice; it takes {takes}, once.")))
            }
            (value, _) => Ok(value),
        }
    }

    /// A value that has to be there.
    ///
    /// # Errors
    /// It is not there, or twice.
    pub fn text(&self, name: &str, takes: &str) -> Result<String, Refusal> {
        let missing = || Refusal::bad_request(format!("{name} is missing; it takes {takes}."));
        self.value(name, takes)?.map(str::to_owned).ok_or_else(missing)
    }

    /// A whole number, where it is there.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&self, name: &str, takes: &str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.value(name, takes)? else { return Ok(None) };
        let other = |_| {
            let value: String = value.chars().take(REPEATED_CHARS_MAX).collect();
            Refusal::bad_request(format!("{name} takes {takes}, and not {value:?}."))
        };
        value.parse().map(Some).map_err(other)
    }

    /// A time that has to be there.
    ///
    /// # Errors
    /// It is not, or no time.
    pub fn time_ms(&self, name: &str) -> Result<u64, Refusal> {
        const TAKES: &str = "milliseconds since 1970, as 1795000000000";
        let missing = || Refusal::bad_request(format!("{name} is missing; it takes {TAKES}."));
        self.number(name, TAKES)?.ok_or_else(missing)
    }

    /// Which readings; those that come ten times a second where none is named.
    ///
    /// # Errors
    /// There are no such.
    pub fn group(&self) -> Result<Group, Refusal> {
        const TAKES: &str = "fast, slow or host";
        match self.value("group", TAKES)? {
            None | Some("fast") => Ok(Group::Fast),
            Some("slow") => Ok(Group::Slow),
            Some("host") => Ok(Group::Host),
            Some(_) => Err(Refusal::bad_request(format!("group takes {TAKES}."))),
        }
    }

    /// How many, within a bound.
    ///
    /// # Errors
    /// None, or more.
    pub fn count(&self, name: &str, default: u64, max: u64) -> Result<u64, Refusal> {
        let takes = format!("a number from 1 to {max}");
        match self.number(name, &takes)?.unwrap_or(default) {
            n if (1..=max).contains(&n) => Ok(n),
            n => Err(Refusal::bad_request(format!("{name} takes {takes}, and not {n}."))),
        }
    }
}

/// A run's number.
///
/// # Errors
/// It cannot be one.
pub fn run(id: String) -> Result<String, Refusal> {
    let fits = (1..=RUN_CHARS_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits { Ok(id) } else { Err(Refusal::bad_request("A run's number is of letters and digits.")) }
}

/// What is asked for as a card: its UUID, or the index of one that is there.
///
/// # Errors
/// It can be neither.
pub fn gpu(asked: &Asked) -> Result<String, Refusal> {
    const TAKES: &str = "a card's UUID, as GPU-8d3f…, or its index, both of which /api/rig lists";
    let gpu = asked.text("gpu", TAKES)?;
    // Drivers before 470 have slashes in those of a card's parts.
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    let fits = (1..=GPU_CHARS_MAX).contains(&gpu.len()) && gpu.bytes().all(is_part);
    if fits { Ok(gpu) } else { Err(Refusal::bad_request(format!("gpu takes {TAKES}."))) }
}

/// The UUID of a card that is there by that name, if one is.
pub fn present(cards: &[Gpu], asked: &str) -> Option<String> {
    let by_uuid = cards.iter().find(|card| card.uuid == asked);
    let by_index = || cards.iter().find(|card| card.index.to_string() == asked);
    by_uuid.or_else(by_index).map(|card| card.uuid.clone())
}

/// There is no such card, neither now nor in history.
pub fn no_card(cards: &[Gpu], kept: &[Card], asked: &str) -> Refusal {
    let is_gone = |card: &&Card| cards.iter().all(|present| present.uuid != card.uuid);
    let now = cards.iter().map(|card| format!("{}: {} ({})", card.index, card.uuid, card.name));
    let gone = kept.iter().filter(is_gone).map(|card| format!("{} ({}), which is gone", card.uuid, card.name));
    let all: Vec<String> = now.chain(gone).collect();
    let further = all.len().saturating_sub(CARDS_NAMED_MAX);
    let mut there = all.into_iter().take(CARDS_NAMED_MAX).collect::<Vec<_>>().join(", ");
    if there.is_empty() {
        "there is none so far".clone_into(&mut there);
    }
    if further > 0 {
        there += &format!(" and {further} more");
    }
    Refusal::no_card(format!("There is no card {asked:?} here: {there}."))
}

/// Refuses what a path does not take: a name that is mistyped would be answered as if it were not there.
///
/// # Errors
/// There is something, or it is no list of names and values.
pub fn check_names(path: &str, uri: &Uri) -> Result<(), Refusal> {
    let Asked(pairs) = Asked::read(Query::try_from_uri(uri))?;
    let takes = TAKEN.iter().find(|(of, _)| *of == path).map_or(&[][..], |(_, names)| names);
    let Some((name, _)) = pairs.iter().find(|(name, _)| !takes.contains(&name.as_str())) else { return Ok(()) };
    let name: String = name.chars().take(REPEATED_CHARS_MAX).collect();
    let takes = if takes.is_empty() { "nothing".to_owned() } else { takes.join(", ") };
    Err(Refusal::bad_request(format!("{name:?} is not known behind the question mark; this takes {takes} there.")))
}
