//! The page's entry point. Pages compose components, components render state, and only `browser` knows the browser.

mod bench;
mod browser;
mod components;
mod pages;
mod state;
mod text;

fn main() {
    browser::remove_loading_screen();
    leptos::mount::mount_to_body(pages::BudgetPage);
}
