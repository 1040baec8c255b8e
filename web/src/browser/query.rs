//! Parts of the address's query besides the language.

use leptos::prelude::window;
use web_sys::UrlSearchParams;

/// Returns a part of the address's query, decoded.
pub fn part(name: &str) -> Option<String> {
    let search = window().location().search().unwrap_or_default();
    UrlSearchParams::new_with_str(&search).ok()?.get(name)
}

/// Sets parts of the address's query, or removes those without a value. The history entry and its state stay.
pub fn set_parts(names: &[&str], values: &[Option<String>]) {
    let (location, Ok(history)) = (window().location(), window().history()) else { return };
    let (search, hash) = (location.search().unwrap_or_default(), super::fragment());
    let Ok(parts) = UrlSearchParams::new_with_str(&search) else { return };
    for (name, value) in names.iter().zip(values) {
        match value {
            Some(value) => parts.set(name, value),
            None => parts.delete(name),
        }
    }
    let query = String::from(parts.to_string());
    let mark = if query.is_empty() { "" } else { "?" };
    let path = location.pathname().unwrap_or_default();
    let state = history.state().unwrap_or_default();
    drop(history.replace_state_with_url(&state, "", Some(&[&path, mark, &query, &hash].concat())));
}
