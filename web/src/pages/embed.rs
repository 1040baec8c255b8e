//! The calculator as a frame in somebody's page; opened as a page, it writes the lines for that.

mod snippet;

use leptos::{html::Main, prelude::*};

use crate::{
    browser::{self, frame},
    components::{
        card_picker::CardPicker,
        chart::ChartView,
        code_changes::CodeChanges,
        dynamic::words,
        fixes::Fixes,
        form::{Dtype, Models, NumberField, Switch},
        notice::Notice,
        verdict::{VerdictWords, outcome},
    },
    state::{budget::Budget, fields::NUMBERS, session::Session, verdict::Verdict},
    text::{self, t},
};
use snippet::SnippetPage;

/// Fixes that are offered; the calculator itself has the others.
const FIXES_MAX: usize = 3;
/// Numbers that have a field: the micro-batch, how many are accumulated, and the context.
const N_NUMBERS: usize = 3;

/// Whichever of the two was asked for.
#[component]
pub fn EmbedPage() -> impl IntoView {
    let budget = Budget::new();
    let take_link = move || {
        // Nothing is kept from before: somebody's page says what it shows.
        if let Some(opened) = Session::open(&browser::fragment(), None) {
            budget.open(opened);
        }
    };
    take_link();
    browser::on_fragment_change(take_link);
    match frame::host() {
        Some(host) => view! { <Embedded budget host /> }.into_any(),
        None => view! { <SnippetPage budget /> }.into_any(),
    }
}

/// The calculator, small and whole: the answer, the picture, the few numbers that decide, what to change.
#[component]
fn Embedded(
    budget: Budget,
    /// The origin of the page around it.
    host: String,
) -> impl IntoView {
    let main = NodeRef::<Main>::new();
    frame::show_as_frame();
    Effect::new(move |_| {
        if let Some(main) = main.get() {
            frame::talk(host.clone(), &main);
        }
    });
    let verdict = budget.ask(Verdict::of_answer);
    view! {
        <main class="embedded" node_ref=main aria-label=t(text::NAME)>
            <div class="verdict" data-outcome=words(move || outcome(verdict))><VerdictWords budget verdict /></div>
            <CodeChanges budget />
            <Notice notice=budget.notice />
            <ChartView budget />
            <form class="form embedded__form" aria-label=t(text::YOUR_RUN) autocomplete="off"
                on:submit=|event| event.prevent_default()>
                <CardPicker budget />
                <div class="form__row form__row--models"><Models budget /></div>
                {NUMBERS.into_iter().take(N_NUMBERS).map(|number| view! { <NumberField budget number /> }).collect_view()}
                <div class="form__row form__row--switches">
                    <Dtype budget />
                    <Switch budget key="compile" label=t(text::COMPILE) />
                </div>
            </form>
            // Last, as their number changes: nothing else moves then.
            <Fixes budget n_max=FIXES_MAX />
            <p class="embedded__foot">
                <span>{t(text::NAME)} ": " {t(text::TAGLINE)}</span>
                <a class="button" id="open" target="_blank" rel="noopener"
                    href=words(move || format!("./?lang={}#{}", browser::language(), budget.session.with(Session::fragment)))>{t(text::EMBED_OPEN)}</a>
            </p>
        </main>
    }
}
