//! The page that compares two runs: of nanoGPT, or of the other trainers.

mod nanogpt;
mod trainers;

use headroom_planner::link::trainer;
use headroom_text::Text;
use leptos::prelude::*;

use crate::{
    browser,
    components::{
        compare::{
            chart::OverlayChart,
            fixes::PreviewedFixes,
            tables::{MemoryTables, Settings},
            tiles::{PreviewBar, Tiles},
        },
        dynamic::{IntoPart, Part},
        header::Header,
        notice::Notice,
    },
    state::compare::{Comparison, calculator::Calculator},
    text::{self, t},
};

/// Position of the page in the header.
const COMPARE: usize = 3;

/// The page.
#[component]
pub fn ComparePage() -> impl IntoView {
    let is_of_trainer = is_of_trainer();
    browser::on_history_step(move || {
        if self::is_of_trainer() != is_of_trainer {
            browser::rig::reload();
        }
    });
    if is_of_trainer { trainers::page() } else { nanogpt::page() }
}

/// Whether the address has a run of another trainer than nanoGPT.
fn is_of_trainer() -> bool {
    trainer::decode(&browser::fragment()).is_some()
}

/// Renders the parts that all comparisons have, with the form of the changed run.
fn layout<C: Calculator>(
    comparison: Comparison<C>,
    notice: RwSignal<Option<Text>>,
    leave: Callback<()>,
    form: Part,
) -> Part {
    let view = comparison.view();
    view! {
        <Header page=COMPARE leave />
        <Notice notice />
        <main class="compare">
            <section class="panel compare__answer" id="answer" tabindex="-1" aria-labelledby="compare-title">
                <h1 class="compare__title" id="compare-title">{t(text::COMPARE_TITLE)}</h1>
                <Tiles comparison view />
                <button type="button" class="button compare__change" on:click=move |_| browser::scroll_to("run")>{t(text::COMPARE_CHANGE)}</button>
            </section>
            <OverlayChart view />
            <section class="panel compare__run" id="run" tabindex="-1" aria-labelledby="compare-run">
                <h2 class="panel-title" id="compare-run">{t(text::COMPARE_CHANGED)}</h2>
                {form}
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
    .into_part()
}
