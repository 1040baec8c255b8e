//! The wording of every text in every language, in one file for each.
//!
//! Only programs that show wording depend on this crate: the agent, the build of the pages, and tests. The page's
//! programs and the planner name texts by their keys of `headroom-text` and depend on no wording.

#![warn(missing_docs)]

mod source;
#[cfg(test)]
mod tests;

use headroom_text::{ENGLISH, LANGUAGES, Language, NAMES, Table};
use linkme::distributed_slice;
use source::Entry;
use std::sync::OnceLock;

#[distributed_slice(ENGLISH)]
static REGISTERED: fn() -> &'static Table = english;

/// Returns all texts of a language by its code, loaded on first use; English for an unknown code.
#[must_use]
pub fn table(code: &str) -> &'static Table {
    static TABLES: [OnceLock<Table>; LANGUAGES.len()] = [const { OnceLock::new() }; LANGUAGES.len()];
    let at = LANGUAGES.iter().position(|language| language.code == code).unwrap_or(0);
    TABLES[at].get_or_init(|| Table::unpacked(&packed_if(&LANGUAGES[at], |_| true)))
}

/// Returns the English table.
#[must_use]
pub fn english() -> &'static Table {
    table(LANGUAGES[0].code)
}

/// Returns the file that a page fetches for a language. Pages are `budget`, `diagnose`, `gpus`, `compare`, `embed`, `demo` and `rig`;
/// `writes` is the worker that a rig's page starts.
#[must_use]
pub fn packed(language: &Language, page: &str) -> String {
    packed_if(language, |pages| pages.contains(&"all") || pages.contains(&page))
}

/// Encodes all texts in the order of their keys, one line each, with numbered arguments. Texts that the page does not
/// fetch are empty lines.
fn packed_if(language: &Language, is_fetched: impl Fn(&[&str]) -> bool) -> String {
    let (english, own) = (entries(&LANGUAGES[0]), entries(language));
    let find = |entries: &[Entry<'static>], name: &str| entries.iter().find(|entry| entry.name == name).cloned();
    let mut out = String::new();
    for name in NAMES {
        if let Some(entry) = find(&english, name).filter(|entry| is_fetched(&entry.pages)) {
            // A test ensures that no translation is missing. English is the fallback.
            let text = find(&own, name).map_or(entry.text, |other| other.text);
            out.push_str(&source::numbered(text, &entry.arguments).unwrap_or_default());
        }
        out.push('\n');
    }
    // Trailing empty lines are equivalent to missing lines.
    out.truncate(out.trim_end_matches('\n').len());
    out
}

/// Returns the texts of a language's file; empty if the file is invalid, which a test excludes.
fn entries(language: &Language) -> Vec<Entry<'static>> {
    source::entries(file(language)).unwrap_or_default()
}

/// Returns the contents of a language's file.
fn file(language: &Language) -> &'static str {
    match language.code {
        "zh" => include_str!("../zh.txt"),
        "ja" => include_str!("../ja.txt"),
        "de" => include_str!("../de.txt"),
        _ => include_str!("../en.txt"),
    }
}
