//! The address of a page with a run of another trainer. It contains the run, so that it can be shared and reloaded.

use std::time::Duration;

use leptos::prelude::*;

use crate::{
    browser,
    state::{burst::Burst, trainer::TrainerPage},
};

/// Delay after an edit before the address is updated. Browsers refuse more than a hundred updates in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// Separator of the step from the texts in the state of a history entry.
const SEPARATOR: char = '\u{2}';

/// An entry of the browser's history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The fragment, without `#`.
    pub fragment: String,
    /// The texts that the fragment does not contain.
    pub texts: String,
}

/// Returns the texts of the current history entry, and makes its step that of the page.
pub fn kept_texts(page: TrainerPage) -> Option<String> {
    let state = browser::entry_state()?;
    let (step, texts) = state.split_once(SEPARATOR)?;
    page.steps.update(|steps| *steps = steps.at(step.parse().unwrap_or_default()));
    Some(texts.to_owned())
}

/// Writes an entry to the address.
pub fn write(page: TrainerPage, Entry { fragment, texts }: &Entry) {
    let step = page.steps.get_untracked().now;
    browser::replace_entry(fragment, &format!("{step}{SEPARATOR}{texts}"));
}

/// Updates the address after a change of `entry`, which is tracked. A completed action is a step of the history, and so
/// is a burst of edits. Calls `open` after Back, Forward or a link to the page.
pub fn keep(page: TrainerPage, entry: impl Fn() -> Entry + Copy + 'static, open: impl Fn() + 'static) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    // The entry and the number of completed actions as they are after the pending update.
    let last = StoredValue::new((Entry::default(), 0));
    let burst = StoredValue::new(Burst::default());
    let is_restored = StoredValue::new(false);
    Effect::new(move |was_there: Option<()>| {
        let (now, n_now) = (entry(), page.n_steps.get());
        let next = (now.clone(), n_now);
        let Some((before, n_before)) = last.try_update_value(|last| std::mem::replace(last, next)) else { return };
        let is_restored = is_restored.try_update_value(std::mem::take).unwrap_or_default();
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let is_edit = was_there.is_some() && !is_restored && before.fragment != now.fragment;
        let is_step = burst.try_update_value(|burst| {
            if n_before != n_now {
                burst.end();
                return true;
            }
            is_edit && burst.add(browser::focused_id(), browser::now_millis())
        });
        if is_step == Some(true) {
            // Back leads to the run as it was before the step.
            write(page, &before);
            if browser::push_entry(&now.fragment) {
                page.steps.update(|steps| *steps = steps.next());
            }
            write(page, &now);
        } else {
            pending.set_value(set_timeout_with_handle(move || write(page, &now), ADDRESS_DELAY).ok());
        }
    });
    browser::on_history_step(move || {
        is_restored.set_value(true);
        open();
    });
}
