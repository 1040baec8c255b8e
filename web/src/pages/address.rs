//! The address of a page with a run. It contains the run, so that it can be shared and reloaded.

use std::time::Duration;

use leptos::prelude::*;

use crate::{
    browser,
    state::{
        budget::Budget,
        burst::Burst,
        session::{ConfigFile, Session, run_of, with_pin},
    },
};

/// Separator of the texts in the state of a history entry.
const SEPARATOR: &str = "\0";

/// Delay after an edit before the address is updated. Browsers refuse more than a hundred updates in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// What an address contains besides the run.
pub trait Companion: Copy + Send + Sync + 'static {
    /// Returns the address of a run with it, and tracks its changes.
    fn address(self, run: String) -> String;

    /// Returns the beginning of the state of a history entry: the texts that the address does not contain.
    fn state(self) -> String;

    /// Splits its texts off the state of a history entry.
    fn split(self, state: &str) -> (Option<&str>, &str);

    /// Opens it beside a run, from the address and from its texts.
    fn open(self, run: &Session, compared: Option<&str>, texts: Option<&str>);
}

/// The run is alone.
impl Companion for () {
    fn address(self, run: String) -> String {
        run
    }

    fn state(self) -> String {
        String::new()
    }

    fn split(self, state: &str) -> (Option<&str>, &str) {
        (None, state)
    }

    fn open(self, _: &Session, _: Option<&str>, _: Option<&str>) {}
}

/// Opens the session in the address, if there is one. The text is that of the history entry, or that of a page which
/// passed the run on.
pub fn open(budget: Budget) {
    open_with(budget, ());
}

/// Does the same as [`open`] with a companion.
pub fn open_with(budget: Budget, companion: impl Companion) {
    let fragment = browser::fragment();
    let run = run_of(fragment.trim_start_matches('#'));
    let mut file = None;
    let state = browser::entry_state();
    let (texts, state) = state.as_deref().map(|state| companion.split(state)).unzip();
    let kept = match state {
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
    let mut compared = None;
    match Session::open(&fragment, kept) {
        Some(mut opened) => {
            compared = opened.compared.take();
            if !opened.names_gpu {
                opened.session.prefer_gpu(browser::kept_gpu().as_deref());
            }
            opened.session.file = file;
            budget.open(opened);
        }
        None => budget.edit(|session| session.prefer_gpu(browser::kept_gpu().as_deref())),
    }
    budget.session.with_untracked(|session| companion.open(session, compared.as_deref(), texts.flatten()));
}

/// Writes the run to the address, also for the page that opens next.
pub fn write(budget: Budget) {
    write_with(budget, ());
}

/// Does the same as [`write`] with a companion.
pub fn write_with(budget: Budget, companion: impl Companion) {
    let run = budget.run();
    let address = with_pin(companion.address(run.clone()), budget.shown.pinned.get_untracked());
    let step = budget.steps.get_untracked().now;
    budget.session.with_untracked(|session| write_run(step, &run, &address, session, companion.state()));
}

/// Removes the last message's figures if they belong to another run.
fn forget_message_of_other(run: &str) {
    if run != browser::kept_run() {
        browser::forget_message();
    }
}

fn write_run(step: u32, run: &str, address: &str, session: &Session, state: String) {
    browser::keep_text(run, &session.text);
    write_entry(step, address, session, state);
}

/// Writes the address, the step, and the texts that the address does not contain, to the current history entry.
fn write_entry(step: u32, address: &str, session: &Session, mut state: String) {
    let (name, text) = session.file.as_ref().map_or(("", ""), |file| (&file.name, &file.text));
    for part in [&step.to_string(), SEPARATOR, name, SEPARATOR, text, SEPARATOR, &session.text] {
        state.push_str(part);
    }
    browser::replace_entry(address, &state);
}

/// Updates the address after an edit of the session. A completed action is a step of the history, and so is a burst of
/// edits. Restores the session after a link in the same window, Back or Forward.
pub fn keep(budget: Budget) {
    keep_with(budget, ());
}

/// Does the same as [`keep`] with a companion.
pub fn keep_with(budget: Budget, companion: impl Companion) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    // The session and the address as they are or will be after the pending update, and the number of steps and of runs.
    let last = StoredValue::new((Session::default(), String::new(), (0, 0), String::new()));
    let burst = StoredValue::new(Burst::default());
    let is_restored = StoredValue::new(false);
    Effect::new(move |was_there: Option<bool>| {
        // The address follows when the slider rests, so that each frame has time for the verdict and the chart.
        if budget.shown.is_sliding.get() && was_there.is_some() {
            return true;
        }
        let (run, counts) = (budget.run(), (budget.n_steps.get(), budget.n_runs.get()));
        let (session, pinned) = (budget.session.get_untracked(), budget.shown.pinned.get());
        let address = with_pin(companion.address(run.clone()), pinned);
        let state = companion.state();
        let next = (session.clone(), address.clone(), counts, state.clone());
        let Some((last_session, last_address, last_counts, last_state)) =
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
            write_entry(step, browser::fragment().trim_start_matches('#'), &session, state);
            return true;
        }
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let new_address = address.clone();
        let is_action = counts.0 != last_counts.0;
        let is_step = burst.try_update_value(|burst| {
            let is_edit = !is_action && !is_restored && run_of(&last_address) != run_of(&new_address);
            if !is_edit && (is_action || is_restored) {
                burst.end();
            }
            is_action || is_edit && burst.add(browser::focused_id(), browser::now_millis())
        });
        let write = move || write_run(budget.steps.get_untracked().now, &run, &new_address, &session, state);
        if is_step == Some(true) {
            // Back leads to the session as it was before the step, including pending edits.
            write_entry(budget.steps.get_untracked().now, &last_address, &last_session, last_state);
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
            open_with(budget, companion);
        }
    });
}
