//! Commit subjects: `area: imperative summary` within 72 characters, so that a log of one line per commit is readable.

use super::{root, tidy};
use std::process::Command;

/// Number of latest commits that are checked. Earlier ones were written before the rule.
const COMMITS: &str = "50";
/// Maximum length of a subject, in characters.
const SUBJECT_MAX: usize = 72;

/// Subjects that are too long or have no area.
fn untidy_subjects<'a>(subjects: impl Iterator<Item = &'a str>) -> Vec<String> {
    let has_area = |subject: &str| subject.split_once(": ").is_some_and(|(area, _)| !area.is_empty());
    let length = |subject: &str| subject.chars().count();
    let untidy = subjects.filter(|subject| length(subject) > SUBJECT_MAX || !has_area(subject));
    untidy.map(|subject| format!("{subject:?}: write `area: summary` in {SUBJECT_MAX} characters")).collect()
}

#[test]
fn commit_subjects_have_an_area_and_fit_one_line() {
    let log =
        Command::new("git").args(["log", "--no-merges", "--format=%s", "-n", COMMITS]).current_dir(root()).output();
    // A source archive has no history.
    let Some(log) = log.ok().filter(|log| log.status.success()) else { return };
    tidy(untidy_subjects(String::from_utf8_lossy(&log.stdout).lines()));
}

#[test]
fn must_find_long_subjects_and_subjects_without_area() {
    let subjects = ["nanogpt: read star imports", "read star imports", &format!("page: {}", "é".repeat(66)), ": x"];
    assert_eq!(untidy_subjects(subjects.into_iter()).len(), 2);
    assert_eq!(untidy_subjects([format!("page: {}", "é".repeat(67)).as_str()].into_iter()).len(), 1);
}
