//! The card as a person writes it: a name of the table, or an amount of memory.

use headroom_shared::{
    hardware::{Device, devices, find},
    session::Options,
    units::parse_size,
};

use super::format;

/// Takes what stands in the card's field.
pub fn set(options: &mut Options, typed: &str) {
    let typed = typed.trim();
    let is_size = typed.starts_with(|c: char| c.is_ascii_digit()) && typed.to_ascii_lowercase().ends_with('b');
    match parse_size(typed) {
        Ok(bytes) if is_size && bytes > 0 && find(typed).is_err() => {
            options.gpu.clear();
            options.vram_bytes = Some(bytes);
        }
        _ => {
            typed.clone_into(&mut options.gpu);
            options.vram_bytes = None;
        }
    }
}

/// Whether that is a card or an amount of memory.
pub fn is_known(typed: &str) -> bool {
    let mut options = Options { gpu: String::new(), ..Options::default() };
    set(&mut options, typed);
    options.vram_bytes.is_some() || find(&options.gpu).is_ok()
}

/// What stands in the card's field.
pub fn field(options: &Options) -> String {
    match (options.gpu.as_str(), options.vram_bytes) {
        ("", Some(bytes)) => format!("{}GiB", format::gib_field(bytes)),
        (name, _) => name.to_owned(),
    }
}

/// A card of the list: its name and its memory.
pub fn choices() -> impl Iterator<Item = (&'static str, String)> {
    let mut all: Vec<&'static Device> = devices().iter().collect();
    // The newest first, as the table rises by compute capability.
    all.reverse();
    all.into_iter().map(|device| (&*device.name, format::size(device.total_bytes)))
}

/// The cards whose name has every word that was typed, in any order; first the one the typed text is taken for.
pub fn matching(typed: &str) -> Vec<(&'static str, String)> {
    let meant = find(typed.trim()).ok().map(|device| &*device.name);
    let words: Vec<String> = typed.split_whitespace().map(str::to_ascii_lowercase).collect();
    let mut found: Vec<_> = choices()
        .filter(|(name, memory)| {
            let text = format!("{name} {memory}").to_ascii_lowercase();
            words.iter().all(|word| text.contains(word))
        })
        .collect();
    if let Some(at) = found.iter().position(|(name, _)| Some(*name) == meant) {
        found[..=at].rotate_right(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_card_without_a_name() {
        let mut options = Options::default();
        set(&mut options, "16 GiB");
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("", Some(16 << 30)));
        assert_eq!(field(&options), "16GiB");
        set(&mut options, "RTX 3060");
        assert_eq!((options.gpu.as_str(), options.vram_bytes), ("RTX 3060", None));
        assert_eq!(field(&options), "RTX 3060");
        for (typed, known) in [("3060", true), ("12GB", true), ("30", false), ("", false), ("RTX 3060 T", false)] {
            assert_eq!(is_known(typed), known, "{typed}");
        }
    }

    #[test]
    fn every_choice_is_found_by_its_name() {
        assert!(choices().count() >= 45);
        for (name, _) in choices() {
            assert!(find(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn words_match_in_any_order() {
        let found = matching("laptop 4070");
        assert!(!found.is_empty());
        assert!(found.iter().all(|(name, _)| name.contains("4070") && name.contains("Laptop")));
        assert_eq!(matching("no such card"), []);
        // What Enter takes is what the words would be taken for.
        for typed in ["RTX 4070", "3060", "A100 80GB"] {
            let meant = find(typed).expect("a card people name so");
            assert_eq!(matching(typed).first().map(|(name, _)| *name), Some(&*meant.name), "{typed}");
        }
    }
}
