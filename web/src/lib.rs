//! The web pages. Pages compose components, components render state, and only `browser` accesses the browser.
//!
//! Each page is a program of its own, so that a visit loads no more code than it needs.

mod agent_client;
pub mod bench;
mod browser;
mod components;
mod pages;
mod state;
mod text;

use leptos::{mount::mount_to_body, prelude::*};

use text::Key;

/// Shows the start page.
pub fn start() {
    show(text::TITLE_START, pages::StartPage);
}

/// Shows the calculator.
pub fn budget() {
    show(text::TITLE_BUDGET, pages::BudgetPage);
}

/// Shows the embedded calculator, or the page that generates the HTML to embed it.
pub fn embed() {
    show(text::TITLE_EMBED, pages::EmbedPage);
}

/// Shows the page that explains out-of-memory messages.
pub fn diagnose() {
    show(text::TITLE_DIAGNOSE, pages::DiagnosePage);
}

/// Shows the demo page, which runs a GPT in the browser.
pub fn demo() {
    show(text::TITLE_DEMO, pages::DemoPage);
}

/// Shows the page that lists the GPUs on which a run fits.
pub fn gpus() {
    show(text::TITLE_GPUS, pages::GpusPage);
}

/// Shows the page that compares two runs.
pub fn compare() {
    show(text::TITLE_COMPARE, pages::ComparePage);
}

/// Shows the calculator of trainers other than nanoGPT.
pub fn trainers() {
    show(text::TITLE_TRAINERS, pages::TrainersPage);
}

/// Shows the page that replays recordings.
pub fn replay() {
    show(text::TITLE_REPLAY, pages::ReplayPage);
}

/// Shows the rig page, which monitors the machine with the GPUs.
pub fn rig() {
    show(text::TITLE_RIG, pages::RigPage);
}

/// Mounts a page in the language whose texts were loaded with it. Another language requires a reload.
fn show<V: IntoView + 'static>(title: Key, page: impl FnOnce() -> V + 'static) {
    browser::remove_loading_screen();
    text::show(&browser::fetched_text());
    document().set_title(text::t(title));
    mount_to_body(page);
}
