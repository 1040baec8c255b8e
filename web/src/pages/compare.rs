//! The page that compares two runs.

use headroom_planner::link::with_compared;
use leptos::prelude::*;

use super::address::{self, Companion};
use crate::{
    browser,
    components::{
        compare::{
            chart::OverlayChart,
            fixes::PreviewedFixes,
            tables::{MemoryTables, Settings},
            tiles::{PreviewBar, Tiles},
        },
        config::ConfigInput,
        form::RunForm,
        gpu_picker::GpuPicker,
        header::Header,
        more::More,
        notice::Notice,
        problems::Problems,
    },
    state::{compare::Comparison, session::Session},
    text::{self, t},
};

/// Separator of the pinned run's text from the rest of the state of a history entry.
const SEPARATOR: char = '\0';

/// The pinned run is in the address, and its text in the state of the history entry.
impl Companion for Comparison {
    fn address(self, run: String) -> String {
        with_compared(run, &self.pinned_run())
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

/// The page.
#[component]
pub fn ComparePage() -> impl IntoView {
    let comparison = Comparison::new();
    let budget = comparison.changed;
    address::open_with(budget, comparison);
    address::keep_with(budget, comparison);
    let leave = Callback::new(move |()| address::write_with(budget, comparison));
    // For the links of other pages to this one, and for this page in another language.
    Effect::new(move |_| {
        let part = part_of(&comparison.pinned_run());
        comparison.pinned.with(|session| browser::pinned::keep(&part, &session.text));
    });
    let view = comparison.view();
    view! {
        <Header page=3 leave />
        <Notice notice=budget.notice />
        <main class="compare">
            <section class="panel compare__answer" id="answer" tabindex="-1" aria-labelledby="compare-title">
                <h1 class="compare__title" id="compare-title">{t(text::COMPARE_TITLE)}</h1>
                <Tiles comparison view />
                <button type="button" class="button compare__change" on:click=move |_| browser::scroll_to("run")>{t(text::COMPARE_CHANGE)}</button>
            </section>
            <OverlayChart comparison view />
            <section class="panel compare__run" id="run" tabindex="-1" aria-labelledby="compare-run">
                <h2 class="panel-title" id="compare-run">{t(text::COMPARE_CHANGED)}</h2>
                <GpuPicker page=budget chosen=|name: String| browser::keep_gpu(&name) />
                <ConfigInput budget />
                <Problems budget />
                <RunForm budget />
                <More budget />
            </section>
            <div class="compare__fixes">
                <PreviewedFixes comparison />
                // Below the fixes, which stay under the pointer while the list changes.
                <Settings view />
            </div>
            <div class="compare__tables"><MemoryTables view /></div>
            <PreviewBar view />
        </main>
    }
}
