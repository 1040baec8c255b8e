//! The headline of a comparison, and a tile for each run.

use leptos::prelude::*;

use super::super::{
    actions::CopyButton,
    dynamic::{IntoPart, Part, act, part, some_words, words},
};
use crate::{
    browser,
    state::{
        compare::{
            Comparison,
            calculator::Calculator,
            view::{ComparisonView, PlanFigures, RunTile},
        },
        format,
    },
    text::{self, Key, say, t},
};

/// The headline and both tiles, with the buttons that exchange them.
#[component]
pub fn Tiles<C: Calculator>(
    /// The page's state.
    comparison: Comparison<C>,
    /// Both runs as they are shown.
    view: Memo<ComparisonView>,
) -> impl IntoView {
    let preview = move || view.with(|view| view.preview.clone());
    let is_preview = move || preview().map(|_| "true".to_owned());
    view! {
        <div class="compare__summary" aria-live="polite">
            <h2 class="compare__headline" id="verdict" tabindex="-1" data-testid="compare-headline"
                data-preview=some_words(is_preview)>
                {words(move || view.with(|view| view.headline.clone()))}
            </h2>
            <p class="compare__soft" data-testid="compare-detail">{words(move || view.with(|view| view.detail.clone()))}</p>
        </div>
        <div class="compare__tiles">
            {[0, 1].map(|run| part(move || view.with(|view| tile(run, view))))}
        </div>
        <div class="compare__buttons">
            <button type="button" class="button" id="compare-swap" on:click=act(move || comparison.swap())>{t(text::COMPARE_SWAP)}</button>
            <button type="button" class="button" id="compare-pin" on:click=act(move || comparison.pin())>{t(text::COMPARE_PIN)}</button>
            <button type="button" class="button" id="compare-back" on:click=act(move || comparison.change_back())>{t(text::COMPARE_BACK)}</button>
            <CopyButton id="copy-link" label=t(text::COMPARE_COPY) content=move |()| Some(browser::address_with(&comparison.fragment())) />
        </div>
    }
}

/// The headline at the bottom of the window while a fix is previewed, because the tiles may be out of view.
#[component]
pub fn PreviewBar(
    /// Both runs as they are shown.
    view: Memo<ComparisonView>,
) -> impl IntoView {
    part(move || {
        let words = view.with(|view| Some(format!("{} · {}", preview_title(view.preview.as_ref()?), view.headline)));
        words.map(|words| view! { <p class="compare__bar" aria-hidden="true">{words}</p> })
    })
}

fn preview_title(settings: &str) -> String {
    say(&text::compare_preview(settings))
}

fn tile(run: usize, view: &ComparisonView) -> Part {
    let RunTile { outcome, verdict, gpu, figures } = view.tiles[run].clone();
    let title = match (run, &view.preview) {
        (0, _) => t(text::COMPARE_PINNED).to_owned(),
        (_, None) => t(text::COMPARE_CHANGED).to_owned(),
        (_, Some(settings)) => preview_title(settings),
    };
    let is_preview = run == 1 && view.preview.is_some();
    let figures = figures.map(|figures| rows(&gpu, &figures));
    view! {
        <section class="compare__tile" class:compare__tile--preview=is_preview data-run=["pinned", "changed"][run]
            data-outcome=outcome aria-label=title.clone()>
            <h3 class="compare__name" title=title.clone()>{title.clone()}</h3>
            <p class="compare__verdict" title=verdict.clone()>{verdict.clone()}</p>
            {figures.unwrap_or_else(|| view! { <dl class="compare__figures">{figure(text::GPU, gpu, String::new())}</dl> }.into_part())}
        </section>
    }
    .into_part()
}

fn rows(gpu: &str, figures: &PlanFigures) -> Part {
    let unsigned = figures.headroom_bytes.unsigned_abs();
    let left = if figures.headroom_bytes < 0 { text::COMPARE_SHORT } else { text::COMPARE_LEFT };
    let estimate = |value: Option<String>| value.map_or_else(|| "–".to_owned(), |value| format!("≈ {value}"));
    let times = figures.times.clone().map(|[iteration, per_token]| {
        [
            figure(text::COMPARE_ITERATION, estimate(iteration), String::new()),
            figure(text::COMPARE_PER_TOKEN, estimate(per_token), String::new()),
        ]
    });
    view! {
        <dl class="compare__figures">
            {figure(text::GPU, format!("{gpu} · {}", format::size(figures.gpu_bytes)), format::exact_bytes(figures.gpu_bytes))}
            {figure(text::COMPARE_PEAK, format!("≈ {}", format::size(figures.used_bytes)), format::exact_bytes(figures.used_bytes))}
            {figure(left, format!("≈ {}", format::size(unsigned)), format::exact_bytes(unsigned))}
            {times.map(Vec::from)}
        </dl>
    }
    .into_part()
}

fn figure(label: Key, value: String, title: String) -> Part {
    view! { <div><dt>{t(label)}</dt><dd title=title>{value}</dd></div> }.into_part()
}
