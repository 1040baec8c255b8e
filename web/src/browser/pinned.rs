//! The pinned run of Compare, for the links of other pages to it and for the same page in another language.

use super::{KEPT_BYTES_MAX, session_storage};

const PART_KEY: &str = "headroom.pinned";
const TEXT_KEY: &str = "headroom.pinned_text";

/// Stores the pinned run, as the part of a link and as its text.
pub fn keep(part: &str, text: &str) {
    if let Some(storage) = session_storage() {
        // A text that is too large removes the stored one, which belongs to another run.
        let _ = storage.remove_item(TEXT_KEY);
        let _ = storage.set_item(PART_KEY, part);
        if text.len() <= KEPT_BYTES_MAX {
            let _ = storage.set_item(TEXT_KEY, text);
        }
    }
}

/// Returns the part of a link with the run that was pinned in this window, and its text. Both are empty without one.
pub fn kept() -> (String, String) {
    let get = |key| session_storage().and_then(|storage| storage.get_item(key).ok()?).unwrap_or_default();
    (get(PART_KEY), get(TEXT_KEY))
}
