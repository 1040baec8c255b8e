//! The link of a second run at the end of a link, for the page that compares two runs.

use super::percent::{percent_decode, percent_encode};

/// Key of the run that this one is compared with, as a link in a link. It does not affect this run.
pub const AGAINST: &str = "against";

/// Appends the link of the run that a fragment is compared with. The same run is omitted.
#[must_use]
pub fn with_compared(mut fragment: String, other: &str) -> String {
    if fragment != other {
        fragment.push('&');
        fragment.push_str(AGAINST);
        fragment.push('=');
        percent_encode(other, &mut fragment);
    }
    fragment
}

/// Splits the link of the compared run off the end of a fragment.
#[must_use]
pub fn split_compared(fragment: &str) -> (&str, Option<String>) {
    let split = fragment.rsplit_once('&').and_then(|(run, last)| Some((run, last.split_once('=')?)));
    match split {
        Some((run, (AGAINST, other))) => (run, Some(percent_decode(other))),
        _ => (fragment, None),
    }
}
