//! Names that are near enough to another to have been meant.

use super::Flag;

/// Upper bound of a name in bytes. A longer one is near to none of ours.
const LONGEST: usize = 40;

/// An option of the table that is near enough to have been meant, with its dashes.
pub fn nearest<T>(flags: &[Flag<T>], option: &str) -> Option<String> {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
    let visible = flags.iter().filter(|flag| !flag.is_hidden()).map(|flag| flag.name);
    among(visible, name).map(|name| format!("--{name}"))
}

/// The name that is nearest, if it is near enough: it begins like the other, or one or two characters differ.
pub fn among<'a>(names: impl Iterator<Item = &'a str>, given: &str) -> Option<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = plain(given);
    if wanted.len() > LONGEST {
        return None;
    }
    let distance = |name: &&str| {
        let known = plain(name);
        let same_start = wanted.len() >= 3 && (known.starts_with(&wanted) || wanted.starts_with(&known));
        // A beginning is meant before a name that is spelt another way.
        if same_start { 0 } else { edits(&known, &wanted) }
    };
    let allowed = 1 + usize::from(wanted.len() > 4) + wanted.len() / 12;
    let near = names.map(|name| (distance(&name), name)).min_by_key(|(distance, _)| *distance)?;
    (near.0 <= allowed && near.0 < wanted.len()).then_some(near.1)
}

/// Levenshtein distance in characters.
fn edits(known: &str, given: &str) -> usize {
    let known: Vec<char> = known.chars().collect();
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (i, given) in given.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, known) in known.iter().enumerate() {
            let replaced = diagonal + usize::from(given != *known);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[known.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let names = ["plan", "diagnose", "train", "serve", "runs", "gpus", "export"];
        for (given, near) in [
            ("plann", Some("plan")),
            ("Plan", Some("plan")),
            ("trian", Some("train")),
            ("diag", Some("diagnose")),
            ("run", Some("runs")),
            ("gpu", Some("gpus")),
            ("exprt", Some("export")),
            ("x", None),
            ("no", None),
            ("frobnicate", None),
            ("", None),
        ] {
            assert_eq!(among(names.into_iter(), given), near, "{given}");
        }
        assert_eq!(among(names.into_iter(), &"x".repeat(10_000)), None);
    }
}
