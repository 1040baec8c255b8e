//! The fixes of the changed run if it does not fit, else those of the pinned run. The one under the pointer or with the
//! focus is previewed.

use headroom_planner::advice::Change;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{Element, Event};

use super::super::{
    dynamic::{Part, act, flag, part, words},
    fixes::{keep_advice, row},
};
use crate::{
    browser,
    state::{
        compare::Comparison,
        fixes::{SharedRows, with_batch_size},
        memo::memo,
    },
    text::{self, say, t},
};

/// The id of the largest micro-batch size in the list.
const LARGER: &str = "larger";

/// The panel of fixes.
#[component]
pub fn PreviewedFixes(
    /// The page's state.
    comparison: Comparison,
) -> impl IntoView {
    let shown = RwSignal::new(SharedRows::None);
    let stale = RwSignal::new(true);
    let fixed_answer = memo(move || comparison.fixed_answer());
    let (fixed_session, set_fixed_session) = signal(untrack(|| comparison.fixed_session()));
    Effect::new(move |_| set_fixed_session.set(comparison.fixed_session()));
    keep_advice(fixed_session, fixed_answer, shown, stale);
    // The fix under the pointer, and the one with the focus. The pointer comes first.
    let pointed = RwSignal::new(None::<String>);
    let focused = RwSignal::new(None::<String>);
    let meant = memo(move || pointed.get().or_else(|| focused.get()));
    Effect::new(move |_| {
        let found = meant.get().filter(|_| !stale.get()).and_then(|id| shown.with(|rows| changes(rows, &id)));
        match found {
            Some((settings, changes)) => comparison.show_preview(&settings, &changes),
            None => comparison.preview.set(None),
        }
    });
    let apply = move |changes: Vec<Change>| {
        if stale.get_untracked() {
            return;
        }
        pointed.set(None);
        focused.set(None);
        comparison.apply(&changes);
        browser::show_answer();
    };
    let list = move || {
        shown.get().map(|rows| {
            let larger = rows.larger.map(|larger| {
                let changes = vec![with_batch_size(larger)];
                view! {
                    <button type="button" class="button" data-fix=LARGER on:click=act(move || apply(changes.clone()))>{say(&text::set_batch(larger))}</button>
                }
            });
            let lead = (!rows.lead.is_empty()).then(|| view! { <p class="fixes__lead">{rows.lead.clone()} {larger}</p> });
            let fixes: Vec<Part> = rows.fixes.iter().cloned().map(|fix| row(fix, Callback::new(apply))).collect();
            view! { {lead} <ol class="fixes__list">{fixes}</ol> }
        })
    };
    let without_plan = move || fixed_answer.with(|answer| answer.0.plan().is_none());
    let none = move || without_plan().then(|| view! { <p class="fixes__lead">{t(text::NO_FIXES)}</p> });
    let title = move || match comparison.fixes_changed.get() {
        true => t(text::COMPARE_FIXES_CHANGED).to_owned(),
        false => t(text::COMPARE_FIXES).to_owned(),
    };
    view! {
        <section class="fixes" class:stale=flag(move || stale.get()) aria-labelledby="fixes-title">
            <h2 class="panel-title"><span id="fixes-title" tabindex="-1">{words(title)}</span></h2>
            <p class="fixes__lead">{t(text::COMPARE_FIXES_HINT)}</p>
            <div class="fixes__body" id="fixes" data-testid="fixes"
                on:pointerover=move |event| pointed.set(fix_of(&event))
                on:pointerleave=move |_| pointed.set(None)
                on:focusin=move |event| focused.set(fix_of(&event))
                on:focusout=move |_| focused.set(None)>
                {part(none)}
                {part(list)}
            </div>
        </section>
    }
}

/// The id of the fix that contains the target of an event.
fn fix_of(event: &Event) -> Option<String> {
    let target: Element = event.target()?.dyn_into().ok()?;
    target.closest("[data-fix]").ok()??.get_attribute("data-fix")
}

/// The settings of a fix in words, and its changes.
fn changes(rows: &SharedRows, id: &str) -> Option<(String, Vec<Change>)> {
    let rows = rows.as_ref()?;
    if id == LARGER {
        let larger = rows.larger?;
        return Some((format!("batch_size = {larger}"), vec![with_batch_size(larger)]));
    }
    let fix = rows.fixes.iter().find(|fix| fix.id == id)?;
    Some((fix.settings.clone(), fix.changes.clone()))
}
