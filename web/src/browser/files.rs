//! Bytes of local files, and the file that a page keeps for a reload or passes on to another page.

use js_sys::Uint8Array;
use leptos::prelude::window;
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use web_sys::{File, Response};

use super::{keep, session_storage};

/// The key of the kept file. `shortcuts.js` and `pages/start.rs` write it too.
const FILE: &str = "headroom.recording";
/// Separator of the name and the content.
const SEPARATOR: char = '\n';

/// Reads the bytes of a file. Returns `None` if the file is unreadable.
pub async fn file_bytes(file: File) -> Option<Vec<u8>> {
    let buffer = JsFuture::from(file.array_buffer()).await.ok()?;
    Some(Uint8Array::new(&buffer).to_vec())
}

/// Fetches a file of the site.
///
/// # Errors
/// The browser's reason, or the status of the answer.
pub async fn fetched_file(name: &str) -> Result<Vec<u8>, String> {
    let fetched = JsFuture::from(window().fetch_with_str(name)).await;
    let answer: Response = fetched.map_err(|error| format!("{error:?}"))?.unchecked_into();
    if !answer.ok() {
        return Err(answer.status().to_string());
    }
    let buffer = answer.array_buffer().map(JsFuture::from).map_err(|error| format!("{error:?}"))?;
    Ok(Uint8Array::new(&buffer.await.map_err(|error| format!("{error:?}"))?).to_vec())
}

/// Keeps a file for this tab. A file that is too large for the browser's storage is not kept.
pub fn keep_file(name: &str, bytes: &[u8]) {
    let binary: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    if let Ok(content) = window().btoa(&binary) {
        keep(FILE, &format!("{name}{SEPARATOR}{content}"));
    }
}

/// Returns the kept file: its name and its bytes.
pub fn kept_file() -> Option<(String, Vec<u8>)> {
    let kept = session_storage()?.get_item(FILE).ok()??;
    let (name, content) = kept.split_once(SEPARATOR)?;
    let binary = window().atob(content).ok()?;
    let bytes = binary.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>()?;
    Some((name.to_owned(), bytes))
}
