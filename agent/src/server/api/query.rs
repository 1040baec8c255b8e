//! What an address may ask with, and within which bounds.

use axum::extract::{Query, rejection::QueryRejection};
use headroom_shared::protocol::history::Group;

use crate::server::error::Refusal;

/// Characters of a run's number; ours have 16.
const RUN_CHARS_MAX: usize = 64;
/// Characters of a card's UUID; NVML's buffer has 96.
const GPU_CHARS_MAX: usize = 96;

/// Characters of a value that a refusal repeats.
const REPEATED_CHARS_MAX: usize = 40;

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

/// A card's UUID.
///
/// # Errors
/// It cannot be one.
pub fn gpu(asked: &Asked) -> Result<String, Refusal> {
    const TAKES: &str = "a card's UUID, as GPU-8d3f…, which /api/rig lists";
    let uuid = asked.text("gpu", TAKES)?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = (1..=GPU_CHARS_MAX).contains(&uuid.len()) && uuid.bytes().all(is_part);
    if fits { Ok(uuid) } else { Err(Refusal::bad_request(format!("gpu takes {TAKES}."))) }
}
