//! The agent that serves this page: its socket and its requests, all of one origin. What is to be done with them is
//! decided in `state::rig`; here it is done.

pub mod rest;
pub mod socket;

use web_sys::window;

/// The address of something of the agent's, beside the page, also where a proxy puts both below a folder.
fn beside(name: &str) -> String {
    let base = window().and_then(|window| window.document()?.base_uri().ok().flatten()).unwrap_or_default();
    web_sys::Url::new_with_base(name, &base).map(|url| url.href()).unwrap_or_default()
}
