//! The trainers whose runs Headroom plans, as links to their pages.

use leptos::prelude::*;

use crate::{
    browser,
    text::{self, t},
};

/// The trainers by name, with the page and the fragment of each. The first is that of the calculator, and
/// the last is that of recordings.
const TRAINERS: [(&str, &str, &str); 4] = [
    ("nanoGPT", "./calculator.html", ""),
    ("nanochat", "./trainers.html", "#1&trainer=nanochat"),
    ("Hugging Face", "./trainers.html", "#1&trainer=hf"),
    ("PyTorch", "./replay.html", ""),
];

/// Index of the page of recordings, which are of any program.
pub const RECORDINGS: usize = TRAINERS.len() - 1;

/// The links to the trainers.
#[component]
pub fn TrainerLinks(
    /// Index of the shown trainer.
    #[prop(optional)]
    current: usize,
) -> impl IntoView {
    let links = TRAINERS.into_iter().enumerate().map(|(index, (name, page, fragment))| {
        let href = [page, &browser::query(), fragment].concat();
        view! { <a href=href aria-current=(index == current).then_some("page")>{name}</a> }
    });
    view! { <p class="trainers"><span>{t(text::TRAINER)}</span> {links.collect_view()}</p> }
}
