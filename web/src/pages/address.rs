//! The address of a page with a run. It contains the run, so that it can be shared and reloaded.

use std::time::Duration;

use leptos::prelude::*;

use crate::{
    browser,
    state::{
        budget::Budget,
        burst::Burst,
        session::{ConfigFile, Session, split_pin, with_pin},
    },
};

/// Separator of the texts in the state of a history entry.
const SEPARATOR: &str = "\0";

/// Delay after an edit before the address is updated. Browsers refuse more than a hundred updates in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// Opens the session in the address, if there is one. The text is that of the history entry, or that of a page which
/// passed the run on.
pub fn open(budget: Budget) {
    let fragment = browser::fragment();
    let run = split_pin(fragment.trim_start_matches('#')).0;
    let mut file = None;
    let kept = match browser::entry_state() {
        Some(state) => {
            // The step, then the name and the text of the file, none of which has the separator, then the text.
            let mut parts = state.splitn(4, SEPARATOR);
            let mut part = || parts.next().unwrap_or_default().to_owned();
            let step = part().parse().unwrap_or_default();
            budget.steps.update(|steps| *steps = steps.at(step));
            file = Some(ConfigFile { name: part(), text: part() }).filter(|file| !file.name.is_empty());
            Some((run.to_owned(), part()))
        }
        None => {
            forget_message_of_other(run);
            browser::kept_text()
        }
    };
    let kept = kept.as_ref().map(|(of, text)| (of.as_str(), text.as_str()));
    match Session::open(&fragment, kept) {
        Some(mut opened) => {
            if !opened.names_gpu {
                opened.session.prefer_gpu(browser::kept_gpu().as_deref());
            }
            opened.session.file = file;
            budget.open(opened);
        }
        None => budget.edit(|session| session.prefer_gpu(browser::kept_gpu().as_deref())),
    }
}

/// Writes the run to the address, also for the page that opens next.
pub fn write(budget: Budget) {
    let run = budget.run();
    let step = budget.steps.get_untracked().now;
    budget.session.with_untracked(|session| write_run(step, &run, session, budget.pinned.get_untracked()));
}

/// Removes the last message's figures if they belong to another run.
fn forget_message_of_other(run: &str) {
    if run != browser::kept_run() {
        browser::forget_message();
    }
}

fn write_run(step: u32, run: &str, session: &Session, pinned: Option<f64>) {
    browser::keep_text(run, &session.text);
    write_entry(step, &with_pin(run.to_owned(), pinned), session);
}

/// Writes the address, the step, and the texts that the address does not contain, to the current history entry.
fn write_entry(step: u32, address: &str, session: &Session) {
    let (name, text) = session.file.as_ref().map_or(("", ""), |file| (&file.name, &file.text));
    let state = [&*step.to_string(), name, text, &session.text].join(SEPARATOR);
    browser::replace_entry(address, &state);
}

/// Updates the address after an edit of the session. A completed action is a step of the history, and so is a burst of
/// edits. Restores the session after a link in the same window, Back or Forward.
pub fn keep(budget: Budget) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    // The session and the address as they are or will be after the pending update, and the number of steps and of runs.
    let last = StoredValue::new((Session::default(), String::new(), (0, 0)));
    let burst = StoredValue::new(Burst::default());
    let is_restored = StoredValue::new(false);
    Effect::new(move |was_there: Option<bool>| {
        let (run, counts) = (budget.run(), (budget.n_steps.get(), budget.n_runs.get()));
        let (session, pinned) = (budget.session.get_untracked(), budget.pinned.get());
        let address = with_pin(run.clone(), pinned);
        let next = (session.clone(), address.clone(), counts);
        let Some((last_session, last_address, last_counts)) =
            last.try_update_value(|last| std::mem::replace(last, next))
        else {
            return true;
        };
        let is_restored = is_restored.try_update_value(std::mem::take).unwrap_or_default();
        // Another run is not that of the last message.
        if counts.1 != last_counts.1 {
            browser::forget_message();
        }
        browser::carry_run(&run, &browser::kept_figures());
        // On the first run the address already matches the session, or the user has not changed anything yet.
        if was_there.is_none() {
            let step = budget.steps.get_untracked().now;
            write_entry(step, browser::fragment().trim_start_matches('#'), &session);
            return true;
        }
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let is_action = counts.0 != last_counts.0;
        let is_step = burst.try_update_value(|burst| {
            let is_edit = !is_action && !is_restored && split_pin(&last_address).0 != run;
            if !is_edit && (is_action || is_restored) {
                burst.end();
            }
            is_action || is_edit && burst.add(browser::focused_id(), browser::now_millis())
        });
        let write = move || write_run(budget.steps.get_untracked().now, &run, &session, pinned);
        if is_step == Some(true) {
            // Back leads to the session as it was before the step, including pending edits.
            write_entry(budget.steps.get_untracked().now, &last_address, &last_session);
            if browser::push_entry(&address) {
                budget.steps.update(|steps| *steps = steps.next());
            }
            write();
        } else {
            pending.set_value(set_timeout_with_handle(write, ADDRESS_DELAY).ok());
        }
        true
    });
    browser::on_history_step(move || {
        is_restored.set_value(Session::open(&browser::fragment(), None).is_some());
        if is_restored.get_value() {
            open(budget);
        }
    });
}
