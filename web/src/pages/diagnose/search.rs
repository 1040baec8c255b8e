//! The search for the run that prints a message, in slices that keep the page responsive.

use std::time::Duration;

use leptos::prelude::*;

use crate::{
    browser,
    state::{
        diagnosis::ShownDiagnosis,
        memo::memo,
        solving::{Found, OpenQuestion, SearchProgress, Searches, solved},
    },
};

/// Length of a slice in milliseconds, shorter than a frame.
const SLICE_MILLIS: f64 = 10.0;

/// Starts a search for each new answer and publishes what it finds: exact runs at once, the others at its end. A new
/// message cancels the previous search.
pub(super) fn keep_search(answer: Memo<Option<ShownDiagnosis>>, shown: RwSignal<SearchProgress>) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    let unsolved = memo(move || answer.with(|answer| answer.as_ref()?.unsolved.clone()));
    Effect::new(move |_| {
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let Some(unsolved) = unsolved.get() else { return shown.set(SearchProgress::default()) };
        match unsolved.search() {
            Some(search) => {
                shown.set(SearchProgress { searching: true, ..SearchProgress::default() });
                go_on(search, unsolved, shown, pending);
            }
            None => shown.set(solved(&Found::default(), &unsolved, false)),
        }
    });
}

fn go_on(
    mut search: Searches,
    unsolved: OpenQuestion,
    shown: RwSignal<SearchProgress>,
    pending: StoredValue<Option<TimeoutHandle>>,
) {
    let slice = move || {
        let start = browser::now_millis();
        while browser::now_millis() - start < SLICE_MILLIS {
            if !search.advance() {
                shown.set(solved(&search.found(), &unsolved, false));
                return;
            }
        }
        if search.n_exact() > shown.with_untracked(|shown| shown.offers.len()) {
            shown.set(solved(&search.found(), &unsolved, true));
        }
        go_on(search, unsolved, shown, pending);
    };
    // The handle of the scheduled slice, which an answer to another message cancels.
    pending.set_value(timeout_once(slice));
}

fn timeout_once(slice: impl FnOnce() + 'static) -> Option<TimeoutHandle> {
    set_timeout_with_handle(slice, Duration::ZERO).ok()
}
