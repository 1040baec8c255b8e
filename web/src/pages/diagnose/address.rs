//! The address of the page. It contains the run and the figures of the message, so that it can be shared and reloaded.

use std::time::Duration;

use headroom_planner::oom;
use leptos::prelude::*;

use super::Fields;
use crate::{
    browser,
    state::{
        burst::Burst,
        diagnosis::ShownDiagnosis,
        pasted::PastedText,
        session::{Session, split_pin},
    },
};

/// Separator of the config and the message in the state of a history entry.
const SEPARATOR: &str = "\0";
/// Delay after a keystroke before the address is updated. Browsers refuse more than a hundred updates in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);

/// Returns the fields' content for the address. The texts are those of the history entry, or those that a page passed
/// on.
pub(super) fn opened() -> PastedText {
    let passed_on = browser::kept_message();
    let state = browser::entry_state();
    let of_entry = state.as_ref().and_then(|state| state.split_once(SEPARATOR));
    let kept = of_entry.map(|(config, message)| (message.to_owned(), config.to_owned())).or(passed_on);
    let kept_text = browser::kept_text();
    let kept_text = kept_text.as_ref().map(|(of, text)| (of.as_str(), text.as_str()));
    PastedText::open(&browser::fragment(), kept, kept_text)
}

/// Updates the address after a change of the fields. A paste or a click is a step of the history, and so is a burst of
/// edits. A step back restores the fields.
pub(super) fn keep_address(fields: Fields, answer: Memo<Option<ShownDiagnosis>>) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    // The address and the fields as they are or will be after the pending update.
    let last = StoredValue::new((String::new(), PastedText::default()));
    let burst = StoredValue::new(Burst::default());
    let is_restored = StoredValue::new(false);
    // The run of the opened address with the fields as they were then. It is passed on unchanged until the user changes
    // the fields: another page's run keeps its GPU, also if the message is of another one.
    let linked = StoredValue::new(linked_run(&fields.pasted.get_untracked()));
    Effect::new(move |was_there: Option<()>| {
        let pasted = fields.pasted.get();
        let (fragment, figures, run) = answer.with(|answer| {
            let session = answer.as_ref().and_then(|shown| shown.session.as_ref());
            let message = answer.as_ref().and_then(|shown| shown.message.as_ref());
            let run = linked.with_value(|(of, run)| run.clone().filter(|_| *of == pasted)).map(|run| (run, None));
            let run = run.or_else(|| Some((pasted.run_fragment(session)?, session)));
            let fragment = PastedText::fragment(run.as_ref().map(|(run, _)| run.clone()), message);
            let text = |session: Option<&Session>| session.map_or(&pasted.config, |session| &session.text).clone();
            (
                fragment,
                message.map(oom::link::encode).unwrap_or_default(),
                run.map(|(run, session)| (run, text(session))),
            )
        });
        browser::keep_figures(&figures);
        // The calculator's text of the same run has more than the config, such as a log.
        let is_passed_on = linked.with_value(|(of, _)| *of == pasted);
        if let Some((run, text)) = &run
            && !(is_passed_on && browser::kept_run() == *run)
        {
            browser::keep_text(run, text);
        }
        browser::carry_run(run.as_ref().map_or("", |(run, _)| run), &figures);
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let is_action = fields.is_step.try_update_value(std::mem::take).unwrap_or_default();
        let is_restored = is_restored.try_update_value(std::mem::take).unwrap_or_default();
        if is_action || is_restored {
            burst.update_value(Burst::end);
        }
        let is_same = browser::fragment().trim_start_matches('#') == fragment;
        let next = (fragment.clone(), pasted.clone());
        let last = last.try_update_value(|last| std::mem::replace(last, next)).unwrap_or_default();
        let starts = |burst: &mut Burst| burst.add(browser::focused_id(), browser::now_millis());
        // The header's link of another page may lack the message, which was kept.
        let is_opened = was_there.is_none();
        let is_step =
            !is_opened && !is_same && (is_action || !is_restored && burst.try_update_value(starts) == Some(true));
        if is_step {
            write(&last.0, &last.1);
            browser::push_entry(&fragment);
        }
        let write = move || write(&fragment, &pasted);
        if is_step || is_opened {
            write();
        } else {
            pending.set_value(set_timeout_with_handle(write, ADDRESS_DELAY).ok());
        }
    });
    browser::on_history_step(move || {
        let pasted = opened();
        is_restored.set_value(true);
        linked.set_value(linked_run(&pasted));
        fields.pasted.set(pasted);
    });
}

/// Writes the address, and the texts that it does not contain, to the current history entry.
pub(super) fn write(fragment: &str, pasted: &PastedText) {
    browser::replace_entry(fragment, &[&pasted.config, SEPARATOR, &pasted.message].concat());
}

/// Returns the fields and the run of the current address, if it has one.
fn linked_run(pasted: &PastedText) -> (PastedText, Option<String>) {
    let (_, run) = oom::link::decode(browser::fragment().trim_start_matches('#'));
    (pasted.clone(), Some(split_pin(&run).0.to_owned()).filter(|run| run.contains('&') && !pasted.config.is_empty()))
}
