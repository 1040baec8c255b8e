//! What an address may ask with, and within which bounds.

use axum::extract::{Query, rejection::QueryRejection};

use crate::server::error::Refusal;

/// Characters of a run's number; ours have 16.
const RUN_CHARS_MAX: usize = 64;
/// Characters of a card's UUID; NVML's buffer has 96.
const GPU_CHARS_MAX: usize = 96;

/// What stands behind the question mark.
///
/// # Errors
/// Something is missing in it, or has another form.
pub fn read<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(error) => Err(Refusal::bad_request(format!("The address is not understood: {}.", error.body_text()))),
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
pub fn gpu(uuid: String) -> Result<String, Refusal> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = (1..=GPU_CHARS_MAX).contains(&uuid.len()) && uuid.bytes().all(is_part);
    if fits { Ok(uuid) } else { Err(Refusal::bad_request("gpu is a card's UUID, as in `GPU-8d3f…`.")) }
}

/// How many, within a bound.
///
/// # Errors
/// None, or more.
pub fn count(name: &str, n: Option<u64>, default: u64, max: u64) -> Result<u64, Refusal> {
    match n.unwrap_or(default) {
        n if (1..=max).contains(&n) => Ok(n),
        _ => Err(Refusal::bad_request(format!("{name} is a number from 1 to {max}."))),
    }
}
