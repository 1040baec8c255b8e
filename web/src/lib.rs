//! The pages. Pages compose components, components render state, and only `browser` knows the browser.
//!
//! Each page is a program of its own, so that a visit fetches no more than it shows.

mod bench;
mod browser;
mod components;
mod pages;
mod state;
mod text;

/// Shows the calculator.
pub fn budget() {
    browser::remove_loading_screen();
    leptos::mount::mount_to_body(pages::BudgetPage);
}

/// Shows the calculator in somebody's page, or the page that writes the lines for that.
pub fn embed() {
    browser::remove_loading_screen();
    leptos::mount::mount_to_body(pages::EmbedPage);
}

/// Shows the page that explains a message.
pub fn diagnose() {
    browser::remove_loading_screen();
    leptos::mount::mount_to_body(pages::DiagnosePage);
}
