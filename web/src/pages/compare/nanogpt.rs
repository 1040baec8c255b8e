//! Two runs of nanoGPT.

use headroom_planner::link::{trainer, with_compared};
use leptos::prelude::*;

use super::{
    super::address::{self, Companion},
    layout,
};
use crate::{
    browser,
    components::{
        config::ConfigInput,
        dynamic::{IntoPart, Part},
        form::RunForm,
        gpu_picker::GpuPicker,
        more::More,
        problems::Problems,
    },
    state::{budget::Budget, compare::Comparison, session::Session},
};

/// Separator of the pinned run's text from the rest of the state of a history entry.
const SEPARATOR: char = '\0';

/// The pinned run is in the address, and its text in the state of the history entry.
impl Companion for Comparison<Budget> {
    fn address(self, run: String) -> String {
        self.pinned_link.with(|pinned| with_compared(run, pinned))
    }

    fn state(self) -> String {
        let mut text = self.pinned.with(|session| session.text.replace(SEPARATOR, ""));
        text.push(SEPARATOR);
        text
    }

    fn split(self, state: &str) -> (Option<&str>, &str) {
        match state.split_once(SEPARATOR) {
            Some((text, rest)) => (Some(text), rest),
            None => (None, state),
        }
    }

    fn open(self, run: &Session, compared: Option<&str>, texts: Option<&str>) {
        // A page in another language has no history entry with the texts.
        let (part, text) = browser::pinned::kept();
        let kept = |link: &str| (part == part_of(link) && !text.is_empty()).then_some(text.as_str());
        // A run of another trainer is of the other comparison.
        let compared = compared.filter(|link| trainer::decode(link).is_none());
        let opened =
            compared.and_then(|link| Session::open(link, texts.or_else(|| kept(link)).map(|text| (link, text))));
        self.set_pinned(match opened {
            Some(mut opened) => {
                if !opened.names_gpu {
                    opened.session.options.gpu.clone_from(&run.options.gpu);
                    opened.session.options.vram_bytes = run.options.vram_bytes;
                }
                opened.session
            }
            None => run.clone(),
        });
    }
}

/// The part of a link with the pinned run.
fn part_of(pinned: &str) -> String {
    with_compared(String::new(), pinned)
}

/// Renders the page.
pub fn page() -> Part {
    let budget = Budget::new();
    let comparison = Comparison::new(budget);
    address::open_with(budget, comparison);
    address::keep_with(budget, comparison);
    let leave = Callback::new(move |()| address::write_with(budget, comparison));
    // For the links of other pages to this one, and for this page in another language.
    Effect::new(move |_| {
        let part = comparison.pinned_link.with(|link| part_of(link));
        comparison.pinned.with(|session| browser::pinned::keep(&part, &session.text));
    });
    let form = view! {
        <GpuPicker page=budget chosen=|name: String| browser::keep_gpu(&name) />
        <ConfigInput budget />
        <Problems budget />
        <RunForm budget />
        <More budget />
    };
    layout(comparison, budget.notice, leave, form.into_part())
}
