//! The fixes, each with a button that applies it; for a run that fits, how much larger it can be.

use std::{sync::Arc, time::Duration};

use headroom_planner::advice::Change;
use leptos::prelude::*;

use super::dynamic::{IntoPart, Part, act, flag, part, words};
use crate::{
    browser,
    state::{
        answer::Shared,
        budget::Budget,
        fixes::{Row, SharedRows, applied, rows, with_batch_size},
        memo::memo,
        session::Session,
    },
    text::{self, say, t},
};

/// Delay before fixes are simulated. Simulating every fix takes as long as a few keystrokes, so it waits until typing
/// pauses.
const ADVICE_DELAY: Duration = Duration::from_millis(120);

/// The panel of fixes.
#[component]
pub fn Fixes(
    /// The calculator's state.
    budget: Budget,
    /// Maximum number of fixes shown.
    #[prop(default = usize::MAX)]
    n_max: usize,
) -> impl IntoView {
    let shown = RwSignal::new(SharedRows::None);
    let stale = RwSignal::new(true);
    keep_advice(budget.session, budget.answer, shown, stale);
    let is_outdated = move || stale.get_untracked() || !untrack(move || budget.is_entered());
    // The sessions before and after the last applied fix.
    let made = RwSignal::new(None::<[Session; 2]>);
    let apply = move |changes: Vec<Change>| {
        let gpu = budget
            .answer
            .with_untracked(|answer| answer.0.plan().map(|plan| plan.request.machine.device.name.to_string()));
        // Without a plan, or while a GPU is typed, the fix belongs to an earlier plan.
        let Some(gpu) = gpu.filter(|_| !is_outdated()) else { return };
        let session = budget.session.get_untracked();
        let after = applied(&session, &changes, &gpu);
        made.set(Some([session, after.clone()]));
        budget.shown.pinned.set(None);
        budget.commit(|session| *session = after);
        browser::show_answer();
    };
    // Undoing is not offered after a later edit, which would be lost.
    let can_undo = memo(move || {
        made.with(|made| made.as_ref().is_some_and(|[_, after]| budget.session.with(|session| session == after)))
    });
    let undo = move || {
        can_undo.get().then(|| {
            view! {
                <button type="button" class="button button--quiet" id="undo-fix" data-testid="undo-fix" on:click=act(move || {
                    if let Some([before, _]) = made.get_untracked() {
                        budget.commit(|session| *session = before);
                        browser::show_answer();
                    }
                })>{t(text::UNDO)}</button>
            }
        })
    };
    let title = move || match shown.with(|rows| rows.as_ref().is_some_and(|rows| rows.has_room)) {
        true => t(text::ROOM),
        false => t(text::FIXES),
    };
    let without_plan = budget.ask(|answer| answer.plan().is_none());
    let none = move || without_plan.get().then(|| view! { <p class="fixes__lead">{t(text::NO_FIXES)}</p> });
    let list = move || {
        shown.get().map(|rows| {
            let larger = rows.larger.map(|larger| {
                let changes = vec![with_batch_size(larger)];
                view! {
                    <button type="button" class="button" data-testid="apply-larger"
                        on:click=act(move || apply(changes.clone()))>{say(&text::set_batch(larger))}</button>
                }
            });
            let lead =
                (!rows.lead.is_empty()).then(|| view! { <p class="fixes__lead">{rows.lead.clone()} {larger}</p> });
            let fixes: Vec<_> =
                rows.fixes.iter().take(n_max).cloned().map(|fix| row(fix, Callback::new(apply))).collect();
            view! { {lead} <ol class="fixes__list">{fixes}</ol> }
        })
    };
    view! {
        <section class="fixes" class:stale=flag(move || stale.get() || !budget.is_entered()) aria-labelledby="fixes-title">
            <h2 class="panel-title"><span id="fixes-title" tabindex="-1">{words(move || title().to_owned())}</span> {part(undo)}</h2>
            // The fixes are for the values before while a field is invalid.
            <div class="fixes__body" id="fixes" prop:inert=flag(move || !budget.is_entered()) data-testid="fixes">
                {part(none)}
                {part(list)}
            </div>
        </section>
    }
}

/// Updates the advice on a session after its answer changes, with a delay.
pub fn keep_advice(
    session: ReadSignal<Session>,
    answer: Memo<Shared>,
    shown: RwSignal<SharedRows>,
    stale: RwSignal<bool>,
) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    Effect::new(move |_| {
        answer.track();
        stale.set(true);
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let look = move || {
            let session = session.get_untracked();
            // Without a plan there is no advice. The advice for an earlier plan would be wrong.
            let found = answer.with_untracked(|answer| rows(&answer.0, &session));
            stale.set(found.is_none());
            shown.set(found.map(Arc::new));
        };
        pending.set_value(set_timeout_with_handle(look, ADVICE_DELAY).ok());
    });
}

/// Renders a fix in a list, with the button that applies it.
pub fn row(fix: Row, apply: Callback<Vec<Change>>) -> Part {
    let (changes, label) = (fix.changes.clone(), apply_label(&fix));
    let button = view! {
        <button type="button" class="button" class:button--primary=fix.fits aria-label=label
            on:click=act(move || apply.run(changes.clone()))>{t(text::APPLY)}</button>
    };
    item(fix, button.into_part())
}

/// Returns the accessible name of the button that applies a fix.
pub fn apply_label(fix: &Row) -> String {
    format!("{} {}", t(text::APPLY), fix.settings.replace('\n', ", "))
}

/// Renders a fix in a list, with the element that applies it.
pub fn item(fix: Row, apply: Part) -> Part {
    let by_hand = fix.by_hand.into_iter().map(|(what, code)| {
        let code = (!code.is_empty()).then(|| view! { <pre class="fixes__code" tabindex="0">{code}</pre> });
        view! { <p>{what}</p> {code} }.into_part()
    });
    let by_hand: Vec<Part> = by_hand.collect();
    let how = (!by_hand.is_empty()).then(|| {
        view! { <details class="fixes__how"><summary>{t(text::HOW)}</summary>{by_hand}</details> }.into_part()
    });
    view! {
        <li class="fixes__fix" data-fix=fix.id data-fits=fix.fits.to_string()>
            <code class="fixes__settings">{fix.settings}</code>
            {apply}
            <p class="fixes__facts">{fix.facts}</p>
            <p class="fixes__reason">{fix.reason}</p>
            {how}
        </li>
    }
    .into_part()
}
