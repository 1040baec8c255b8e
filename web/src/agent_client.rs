//! Client of the agent that serves this page: its WebSocket and its HTTP requests, all of one origin. `state::rig`
//! decides what to send; this module sends it.

pub mod rest;
pub mod socket;

use web_sys::window;

/// Resolves an address relative to the page. This also works if a proxy serves page and agent below a path prefix.
fn beside(name: &str) -> String {
    let base = window().and_then(|window| window.document()?.base_uri().ok().flatten()).unwrap_or_default();
    web_sys::Url::new_with_base(name, &base).map(|url| url.href()).unwrap_or_default()
}
