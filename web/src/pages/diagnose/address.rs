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

/// Delay after a keystroke before the address is updated. Browsers refuse more than a hundred updates in half a minute.
const ADDRESS_DELAY: Duration = Duration::from_millis(300);
/// Number of history steps whose texts are kept. Older steps are restored from their addresses.
const STEPS_MAX: usize = 20;
/// Maximum size in bytes of the texts kept for a step.
const STEP_BYTES_MAX: usize = 1 << 20;

/// Returns the fields' content for the address, with the original texts if they are known.
pub(super) fn opened(kept: Option<(String, String)>) -> PastedText {
    let kept_text = browser::kept_text();
    let kept_text = kept_text.as_ref().map(|(of, text)| (of.as_str(), text.as_str()));
    PastedText::open(&browser::fragment(), kept, kept_text)
}

/// Updates the address after a change of the fields. A paste or a click is a step of the history, and so is a burst of
/// edits. A step back restores the fields.
pub(super) fn keep_address(fields: Fields, answer: Memo<Option<ShownDiagnosis>>) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    let steps = StoredValue::new(Vec::<(String, PastedText)>::new());
    // The address as it is or will be after the pending update.
    let last = StoredValue::new(String::new());
    let burst = StoredValue::new(Burst::default());
    let is_restored = StoredValue::new(false);
    // The run of the opened address with the fields as they were then. It is passed on unchanged until the user changes
    // the fields: another page's run keeps its GPU, also if the message is of another one.
    let linked = StoredValue::new(linked_run(&fields.pasted.get_untracked()));
    Effect::new(move |was_there: Option<()>| {
        let (fragment, figures, run) = answer.with(|answer| {
            let session = answer.as_ref().and_then(|shown| shown.session.as_ref());
            let message = answer.as_ref().and_then(|shown| shown.message.as_ref());
            let pasted = fields.pasted.get();
            let run = linked.with_value(|(of, run)| run.clone().filter(|_| *of == pasted)).map(|run| (run, None));
            let run = run.or_else(|| Some((pasted.run_fragment(session)?, session)));
            let fragment = PastedText::fragment(run.as_ref().map(|(run, _)| run.clone()), message);
            steps.update_value(|steps| remember(steps, &fragment, pasted.clone()));
            let text = |session: Option<&Session>| session.map_or(pasted.config, |session| session.text.clone());
            (
                fragment,
                message.map(oom::link::encode).unwrap_or_default(),
                run.map(|(run, session)| (run, text(session))),
            )
        });
        browser::keep_figures(&figures);
        if let Some((run, text)) = &run {
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
        let last = last.try_update_value(|last| std::mem::replace(last, fragment.clone())).unwrap_or_default();
        if browser::fragment().trim_start_matches('#') == fragment {
            return;
        }
        let starts = |burst: &mut Burst| burst.add(browser::focused_id(), browser::now_millis());
        if was_there.is_none() {
            // The header's link of another page may lack the message, which was kept.
            if !fragment.is_empty() {
                browser::replace_fragment(&fragment);
            }
        } else if is_action || !is_restored && burst.try_update_value(starts) == Some(true) {
            browser::replace_fragment(&last);
            browser::push_fragment(&fragment);
        } else {
            let write = move || browser::replace_fragment(&fragment);
            pending.set_value(set_timeout_with_handle(write, ADDRESS_DELAY).ok());
        }
    });
    browser::on_history_step(move || {
        let fragment = browser::fragment();
        let fragment = fragment.trim_start_matches('#');
        let known =
            steps.with_value(|steps| steps.iter().find(|(of, _)| of == fragment).map(|(_, pasted)| pasted.clone()));
        let pasted = known.unwrap_or_else(|| opened(None));
        is_restored.set_value(true);
        linked.set_value(linked_run(&pasted));
        fields.pasted.set(pasted);
    });
}

/// Returns the fields and the run of the current address, if it has one.
fn linked_run(pasted: &PastedText) -> (PastedText, Option<String>) {
    let (_, run) = oom::link::decode(browser::fragment().trim_start_matches('#'));
    (pasted.clone(), Some(split_pin(&run).0.to_owned()).filter(|run| run.contains('&') && !pasted.config.is_empty()))
}

/// Keeps the texts of a step, of each address the latest.
fn remember(steps: &mut Vec<(String, PastedText)>, fragment: &str, pasted: PastedText) {
    steps.retain(|(of, _)| of != fragment);
    if pasted.message.len() + pasted.config.len() <= STEP_BYTES_MAX {
        steps.push((fragment.to_owned(), pasted));
    }
    if steps.len() > STEPS_MAX {
        steps.remove(0);
    }
}
