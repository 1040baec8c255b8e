//! Search for similar names.

use strsim::osa_distance;

/// Maximum length of a compared name in bytes. A longer one is similar to no known name.
const LONGEST: usize = 40;

/// Most similar name, if similar enough: one is a prefix of the other, or one or two characters differ.
pub fn among<'a>(names: impl Iterator<Item = &'a str>, given: &str) -> Option<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = plain(given);
    if wanted.len() > LONGEST {
        return None;
    }
    let distance = |name: &&str| {
        let known = plain(name);
        let same_start = wanted.len() >= 3 && (known.starts_with(&wanted) || wanted.starts_with(&known));
        // A common prefix takes precedence over spelling differences.
        if same_start { 0 } else { osa_distance(&known, &wanted) }
    };
    let allowed = 1 + usize::from(wanted.len() > 4) + wanted.len() / 12;
    let near = names.map(|name| (distance(&name), name)).min_by_key(|(distance, _)| *distance)?;
    (near.0 <= allowed && near.0 < wanted.len()).then_some(near.1)
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
            ("rnus", Some("runs")),
            ("lpan", Some("plan")),
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
