//! The pages. Pages compose components, components render state, and only `browser` knows the browser.
//!
//! Each page is a program of its own, so that a visit fetches no more than it shows.

mod agent_client;
pub mod bench;
mod browser;
mod components;
mod pages;
mod state;
mod text;

use leptos::{mount::mount_to_body, prelude::*};

use text::Key;

/// Shows the calculator.
pub fn budget() {
    show(text::TITLE_BUDGET, pages::BudgetPage);
}

/// Shows the calculator in somebody's page, or the page that writes the lines for that.
pub fn embed() {
    show(text::TITLE_EMBED, pages::EmbedPage);
}

/// Shows the page that explains a message.
pub fn diagnose() {
    show(text::TITLE_DIAGNOSE, pages::DiagnosePage);
}

/// Shows the page where a GPT runs.
pub fn demo() {
    show(text::TITLE_DEMO, pages::DemoPage);
}

/// Shows the page of the machine with the GPUs.
pub fn rig() {
    show(text::TITLE_RIG, pages::RigPage);
}

/// Shows a page in the language that was fetched along with it. Another one is another visit.
fn show<V: IntoView + 'static>(title: Key, page: impl FnOnce() -> V + 'static) {
    browser::remove_loading_screen();
    text::show(&browser::fetched_text());
    document().set_title(text::t(title));
    mount_to_body(page);
}
