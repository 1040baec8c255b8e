//! The calculator page: the run and the GPU on the left, the result on the right.

use std::{collections::VecDeque, time::Duration};

use leptos::prelude::*;

use crate::{
    browser,
    components::{
        builtin::BuiltinView, chart::ChartView, code_changes::CodeChanges, config::ConfigInput, fixes::Fixes,
        form::RunForm, gpu_picker::GpuPicker, header::Header, message::Message, more::More, notice::Notice,
        phases::PhaseTable, problems::Problems, summary::RunSummary, tensors::TensorList, verdict::VerdictView,
    },
    state::{
        budget::Budget,
        burst::Burst,
        excerpt::is_long,
        session::{Session, split_pin, with_pin},
    },
    text::{self, t},
};

/// Delay after an edit before the address is updated. Browsers refuse more than a hundred updates in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// Opens the session in the address, if there is one.
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
        None => budget.edit(|session| session.prefer_gpu(browser::kept_gpu().as_deref())),
    }
}

/// The calculator page.
#[component]
pub fn BudgetPage() -> impl IntoView {
    let budget = Budget::new();
    open_address(budget);
    keep_address(budget);
    let leave = Callback::new(move |()| {
        let run = budget.run();
        budget.session.with_untracked(|session| write_address(&run, session, budget.pinned.get_untracked()));
    });
    view! {
        <Header leave />
        <Notice notice=budget.notice />
        <main class="budget">
            <RunSummary budget />
            <section class="budget__run" id="run" tabindex="-1" aria-label=t(text::YOUR_RUN)>
                <GpuPicker budget chosen=|name: String| browser::keep_gpu(&name) />
                <ConfigInput budget />
                <Problems budget />
                <RunForm budget />
                <More budget />
            </section>
            <section class="budget__answer" id="answer" tabindex="-1" aria-label=t(text::RESULT)>
                <VerdictView budget />
                <CodeChanges budget />
                <div class="budget__course">
                    <ChartView budget />
                    <BuiltinView budget />
                    <TensorList budget />
                    // Last, so that the layout above does not shift when it appears or disappears.
                    <Message budget />
                </div>
                <div class="budget__side">
                    <Fixes budget />
                    <PhaseTable budget />
                </div>
            </section>
        </main>
    }
}

fn write_address(fragment: &str, session: &Session, pinned: Option<f64>) {
    browser::keep_text(fragment, &session.text);
    browser::replace_fragment(&with_pin(fragment.to_owned(), pinned));
}

/// Number of sessions that Back and Forward restore completely. A link alone has no comments, and no values from before
/// a fix.
const MAX_SHOWN: usize = 64;

/// Updates the address after an edit of the session. A completed action is a step of the history, and so is a burst of
/// edits. Restores the session after a link in the same window, Back or Forward.
fn keep_address(budget: Budget) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    // The run and the address as they are or will be after the pending update, and the number of steps.
    let last = StoredValue::new((String::new(), String::new(), 0));
    let shown = StoredValue::new(VecDeque::<(String, Session)>::new());
    let burst = StoredValue::new(Burst::default());
    let is_restored = StoredValue::new(false);
    Effect::new(move |was_there: Option<bool>| {
        let (fragment, n_steps) = (budget.run(), budget.n_steps.get());
        browser::carry_run(&fragment, &browser::kept_figures());
        budget.session.with_untracked(|session| remember(shown, &fragment, session));
        let pinned = budget.pinned.get();
        let address = with_pin(fragment.clone(), pinned);
        let (last_fragment, last_address, last_step) = last.get_value();
        last.set_value((fragment.clone(), address.clone(), n_steps));
        let is_restored = is_restored.try_update_value(std::mem::take).unwrap_or_default();
        // On the first run the address already matches the session, or the user has not changed anything yet.
        if was_there.is_none() {
            return true;
        }
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let is_action = n_steps != last_step;
        let is_step = burst.try_update_value(|burst| {
            let is_edit = !is_action && !is_restored && fragment != last_fragment;
            if !is_edit && (is_action || is_restored) {
                burst.end();
            }
            is_action || is_edit && burst.add(browser::focused_id(), browser::now_millis())
        });
        if is_step == Some(true) {
            // Back leads to the session as it was before the step, including pending edits.
            browser::replace_fragment(&last_address);
            browser::push_fragment(&address);
        }
        let write = move || budget.session.with_untracked(|session| write_address(&fragment, session, pinned));
        pending.set_value(set_timeout_with_handle(write, ADDRESS_DELAY).ok());
        true
    });
    browser::on_history_step(move || {
        let fragment = browser::fragment();
        let fragment = fragment.strip_prefix('#').unwrap_or(&fragment);
        let (run, pinned) = split_pin(fragment);
        let known =
            shown.with_value(|shown| shown.iter().find(|(of, _)| of == run).map(|(_, session)| session.clone()));
        is_restored.set_value(known.is_some() || Session::open(fragment, None).is_some());
        match known {
            Some(session) => {
                budget.show(session);
                budget.pinned.set(pinned);
            }
            None if is_restored.get_value() => open_address(budget),
            None => {}
        }
    });
}

/// Remembers a session by its fragment, unless its text is long.
fn remember(shown: StoredValue<VecDeque<(String, Session)>>, fragment: &str, session: &Session) {
    if is_long(&session.text) {
        return;
    }
    shown.update_value(|shown| {
        shown.retain(|(of, _)| of != fragment);
        shown.push_front((fragment.to_owned(), session.clone()));
        shown.truncate(MAX_SHOWN);
    });
}
