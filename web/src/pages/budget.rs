//! The budget page: a run and a card on the left, the answer on the right.

use std::time::Duration;

use headroom_shared::link;
use leptos::prelude::*;

use crate::{
    browser,
    components::{
        card_picker::CardPicker, chart::ChartView, code_changes::CodeChanges, config::ConfigInput, fixes::Fixes,
        form::RunForm, header::Header, message::Message, more::More, notice::Notice, phases::PhaseTable,
        problems::Problems, tensors::TensorList, verdict::VerdictView,
    },
    state::{budget::Budget, session::Session},
    text::{self, t},
};

/// How long the address waits for the next edit: browsers refuse a hundred writes in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// Takes the session out of the address, where one is in it.
fn open_address(budget: Budget) {
    let kept = browser::kept_text();
    let kept = kept.as_ref().map(|(of, text)| (of.as_str(), text.as_str()));
    match Session::open(&browser::fragment(), kept) {
        Some(mut opened) => {
            if !opened.names_gpu {
                opened.session.prefer_gpu(browser::kept_gpu().as_deref());
            }
            budget.open(opened);
        }
        None => budget.session.update(|session| session.prefer_gpu(browser::kept_gpu().as_deref())),
    }
}

/// The page.
#[component]
pub fn BudgetPage() -> impl IntoView {
    let budget = Budget::new();
    open_address(budget);
    keep_address(budget);
    let leave = Callback::new(move |()| budget.session.with_untracked(write_address));
    view! {
        <Header leave />
        <Notice notice=budget.notice />
        <main class="budget">
            <section class="budget__run" aria-label=t(text::YOUR_RUN)>
                <CardPicker budget chosen=|name: String| browser::keep_gpu(&name) />
                <ConfigInput budget />
                <Problems budget />
                <RunForm budget />
                <More budget />
            </section>
            <section class="budget__answer" id="answer" tabindex="-1" aria-label=t(text::NAME)>
                <VerdictView budget />
                <CodeChanges budget />
                <div class="budget__course">
                    <ChartView budget />
                    <Fixes budget />
                </div>
                <div class="budget__tables">
                    <TensorList budget />
                    <PhaseTable budget />
                </div>
                // Last, so that nothing moves when it comes and goes.
                <Message budget />
            </section>
        </main>
    }
}

fn write_address(session: &Session) {
    write_fragment(&session.fragment(), session);
}

fn write_fragment(fragment: &str, session: &Session) {
    browser::keep_text(fragment, &session.text);
    browser::replace_fragment(fragment);
}

/// The session's fragment, of what the answer has read already: a long text is not read once more.
fn fragment(budget: Budget) -> String {
    budget
        .answer
        .with(|answer| budget.session.with(|session| link::encode(&answer.0.resolved.settings, &session.options)))
}

/// The address follows the session, and the session follows a link that is opened in the same window.
fn keep_address(budget: Budget) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    Effect::new(move |was_there: Option<bool>| {
        let fragment = fragment(budget);
        browser::carry_run(&fragment);
        // At first the address already says what is shown, or nothing was asked yet.
        if was_there.is_none() {
            return true;
        }
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let write = move || budget.session.with_untracked(|session| write_fragment(&fragment, session));
        pending.set_value(set_timeout_with_handle(write, ADDRESS_DELAY).ok());
        true
    });
    browser::on_fragment_change(move || {
        if Session::open(&browser::fragment(), None).is_some() {
            open_address(budget);
        }
    });
}
