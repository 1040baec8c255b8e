//! Query parameters and their bounds.

use axum::{
    extract::{Query, rejection::QueryRejection},
    http::Uri,
};
use headroom_protocol::{gpu::Gpu, metric::Group};

use crate::error::ApiError;
use headroom_agent_core::store::ArchivedGpu;

/// The maximum length of a GPU's UUID; NVML's buffer has 96 bytes.
const GPU_CHARS_MAX: usize = 96;
/// The maximum length of a value that a refusal repeats, in characters.
const REPEATED_CHARS_MAX: usize = 40;

/// The maximum number of GPUs that a refusal lists. A machine has at most sixteen, but a rebuilt one may have had more.
const GPUS_NAMED_MAX: usize = 16;

/// A query as axum parses it.
pub type RawQuery = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The parameters of a query. A refusal names the invalid parameter and its valid values.
pub struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The query is not a list of names and values.
    pub fn read(query: RawQuery) -> Result<Self, ApiError> {
        match query {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(_) => Err(ApiError::bad_request("Cannot read the query: write it as `name=value&name=value`.")),
        }
    }

    fn value(&self, name: &str, expected: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.0.iter().filter(|(of, _)| of == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (Some(_), Some(_)) => Err(ApiError::bad_request(format!("{name} is given twice: give {expected}, once."))),
            (value, _) => Ok(value),
        }
    }

    /// Returns a required parameter.
    ///
    /// # Errors
    /// The parameter is missing or repeated.
    pub fn text(&self, name: &str, expected: &str) -> Result<String, ApiError> {
        let missing = || ApiError::bad_request(format!("{name} is missing: give {expected}."));
        self.value(name, expected)?.map(str::to_owned).ok_or_else(missing)
    }

    /// Returns an optional integer.
    ///
    /// # Errors
    /// The value is not an integer, or the parameter is repeated.
    pub fn number(&self, name: &str, expected: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.value(name, expected)? else { return Ok(None) };
        let other = |_| {
            let value: String = value.chars().take(REPEATED_CHARS_MAX).collect();
            ApiError::bad_request(format!("{name} must be {expected}, not {value:?}."))
        };
        value.parse().map(Some).map_err(other)
    }

    /// Returns a required time in milliseconds.
    ///
    /// # Errors
    /// The parameter is missing or invalid.
    pub fn time_ms(&self, name: &str) -> Result<u64, ApiError> {
        const EXPECTED: &str = "milliseconds since 1970, such as 1795000000000";
        let missing = || ApiError::bad_request(format!("{name} is missing: give {EXPECTED}."));
        self.number(name, EXPECTED)?.ok_or_else(missing)
    }

    /// Returns the group of readings; by default those of ten times a second.
    ///
    /// # Errors
    /// The group does not exist.
    pub fn group(&self) -> Result<Group, ApiError> {
        const EXPECTED: &str = "fast, slow or host";
        match self.value("group", EXPECTED)? {
            None | Some("fast") => Ok(Group::Fast),
            Some("slow") => Ok(Group::Slow),
            Some("host") => Ok(Group::Host),
            Some(_) => Err(ApiError::bad_request(format!("group must be {EXPECTED}."))),
        }
    }

    /// Returns a count from 1 to `max`.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn count(&self, name: &str, default: u64, max: u64) -> Result<u64, ApiError> {
        let expected = format!("a number from 1 to {max}");
        match self.number(name, &expected)?.unwrap_or(default) {
            n if (1..=max).contains(&n) => Ok(n),
            n => Err(ApiError::bad_request(format!("{name} must be {expected}, not {n}."))),
        }
    }
}

/// Returns the requested GPU as given: a UUID, or the index of a present GPU.
///
/// # Errors
/// The value is invalid for both.
pub fn gpu(requested: &QueryParameters) -> Result<String, ApiError> {
    const EXPECTED: &str = "a GPU's UUID, such as GPU-8d3f…, or its index; /api/rig lists both";
    let gpu = requested.text("gpu", EXPECTED)?;
    // Before driver 470, UUIDs of MIG instances contain slashes.
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    let fits = (1..=GPU_CHARS_MAX).contains(&gpu.len()) && gpu.bytes().all(is_part);
    if fits { Ok(gpu) } else { Err(ApiError::bad_request(format!("gpu must be {EXPECTED}."))) }
}

/// Returns the UUID of a present GPU with the given UUID or index.
pub fn present(gpus: &[Gpu], requested: &str) -> Option<String> {
    let by_uuid = gpus.iter().find(|gpu| gpu.uuid == requested);
    let by_index = || gpus.iter().find(|gpu| gpu.index.to_string() == requested);
    by_uuid.or_else(by_index).map(|gpu| gpu.uuid.clone())
}

/// Creates the refusal for a GPU that is neither present nor in the history.
pub fn no_gpu(gpus: &[Gpu], kept: &[ArchivedGpu], requested: &str) -> ApiError {
    let is_gone = |gpu: &&ArchivedGpu| gpus.iter().all(|present| present.uuid != gpu.uuid);
    let now = gpus.iter().map(|gpu| format!("{}: {} ({})", gpu.index, gpu.uuid, gpu.name));
    let gone = kept.iter().filter(is_gone).map(|gpu| format!("{} ({}), no longer present", gpu.uuid, gpu.name));
    let all: Vec<String> = now.chain(gone).collect();
    let further = all.len().saturating_sub(GPUS_NAMED_MAX);
    let mut there = all.into_iter().take(GPUS_NAMED_MAX).collect::<Vec<_>>().join(", ");
    if there.is_empty() {
        "none so far".clone_into(&mut there);
    }
    if further > 0 {
        there += &format!(" and {further} more");
    }
    ApiError::no_gpu(format!("This machine has no GPU {requested:?}. GPUs: {there}."))
}

/// Refuses parameters that are not among `names`, those of the route. A mistyped name would otherwise be ignored silently.
///
/// # Errors
/// There is an unknown parameter, or the query is not a list of names and values.
pub fn check_names(names: &[String], uri: &Uri) -> Result<(), ApiError> {
    let QueryParameters(pairs) = QueryParameters::read(Query::try_from_uri(uri))?;
    let Some((name, _)) = pairs.iter().find(|(name, _)| !names.contains(name)) else { return Ok(()) };
    let name: String = name.chars().take(REPEATED_CHARS_MAX).collect();
    let accepted = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(ApiError::bad_request(format!("Unknown query parameter {name:?}; this path accepts: {accepted}.")))
}
