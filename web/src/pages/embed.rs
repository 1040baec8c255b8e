//! The embedded calculator. Opened directly, the page generates the HTML to embed it.

mod snippet;

use leptos::{html::Main, prelude::*};

use super::address;
use crate::{
    browser::{self, frame},
    components::{
        chart::ChartView,
        code_changes::CodeChanges,
        dynamic::words,
        fixes::Fixes,
        form::{Dtype, Models, NumberField, Switch},
        gpu_picker::GpuPicker,
        notice::Notice,
        verdict::{VerdictWords, open_unread, outcome},
    },
    state::{budget::Budget, fields::NUMBERS, session::Session},
    text::{self, t},
};
use snippet::SnippetPage;

/// Maximum number of fixes shown. The full calculator shows all.
const FIXES_MAX: usize = 3;
/// Number of numeric fields: micro-batch size, gradient accumulation steps and context length.
const N_NUMBERS: usize = 3;

/// The embedded calculator or the page that generates the HTML, depending on the address.
#[component]
pub fn EmbedPage() -> impl IntoView {
    let budget = Budget::new();
    let host = frame::host();
    match host {
        Some(host) => {
            // No stored values are used, because the host page determines the content.
            let open = move || {
                if let Some(opened) = Session::open(&browser::fragment(), None) {
                    budget.open(opened);
                }
            };
            open();
            browser::on_history_step(open);
            view! { <Embedded budget host /> }.into_any()
        }
        None => {
            address::open(budget);
            address::keep(budget);
            view! { <SnippetPage budget /> }.into_any()
        }
    }
}

/// The embedded calculator: the verdict, the chart, the most important settings, and fixes.
#[component]
fn Embedded(
    budget: Budget,
    /// The origin of the host page.
    host: String,
) -> impl IntoView {
    let main = NodeRef::<Main>::new();
    frame::show_as_frame();
    Effect::new(move |_| {
        if let Some(main) = main.get() {
            frame::talk(host.clone(), &main);
        }
    });
    let verdict = budget.verdict();
    let no_plan = budget.no_plan();
    view! {
        <main class="embedded" node_ref=main aria-label=t(text::NAME)>
            <div class="verdict" data-outcome=words(move || outcome(verdict))><VerdictWords verdict no_plan open=open_unread(budget, no_plan) /></div>
            <CodeChanges budget />
            <Notice notice=budget.notice />
            <ChartView shown=budget.shown />
            <form class="form embedded__form" aria-label=t(text::YOUR_RUN) autocomplete="off"
                on:submit=|event| event.prevent_default()>
                <GpuPicker page=budget />
                <div class="form__row form__row--models"><Models budget /></div>
                {NUMBERS.into_iter().take(N_NUMBERS).map(|number| view! { <NumberField budget number /> }).collect_view()}
                <div class="form__row form__row--switches">
                    <Dtype budget />
                    <Switch budget key="compile" label=t(text::COMPILE) />
                </div>
            </form>
            // Last, because the number of fixes changes: nothing else moves then.
            <Fixes budget n_max=FIXES_MAX />
            <p class="embedded__foot">
                <span>{t(text::NAME)} ": " {t(text::TAGLINE)}</span>
                <a class="button" id="open" target="_blank" rel="noopener"
                    href=words(move || format!("./calculator.html?lang={}#{}", browser::language(), budget.fragment()))>{t(text::EMBED_OPEN)}</a>
            </p>
        </main>
    }
}
