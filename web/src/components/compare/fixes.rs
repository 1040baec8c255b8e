//! The fixes of the changed run if it does not fit, else those of the pinned run. The one under the pointer or with the
//! focus is previewed.

use std::{sync::Arc, time::Duration};

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{Element, Event};

use super::super::{
    dynamic::{IntoPart, Part, act, flag, part, words},
    fixes::{apply_label, item},
};
use crate::{
    browser,
    state::{
        compare::{
            Comparison,
            calculator::{Calculator, FixList, LARGER, Proposal},
        },
        memo::memo,
    },
    text::{self, t},
};

/// Delay before fixes are simulated, so that the page stays responsive while a slider moves.
const DELAY: Duration = Duration::from_millis(120);

/// The fixes of a run; `None` without a plan.
type Listed<C> = Option<Arc<FixList<<C as Calculator>::Session>>>;

/// The panel of fixes.
#[component]
pub fn PreviewedFixes<C: Calculator>(
    /// The page's state.
    comparison: Comparison<C>,
) -> impl IntoView {
    let shown = RwSignal::new(Listed::<C>::None);
    let stale = RwSignal::new(true);
    keep_fixes(comparison, shown, stale);
    // The fix under the pointer, and the one with the focus. The pointer comes first.
    let pointed = RwSignal::new(None::<String>);
    let focused = RwSignal::new(None::<String>);
    let meant = memo(move || pointed.get().or_else(|| focused.get()));
    Effect::new(move |_| {
        let meant = meant.get().filter(|_| !stale.get());
        shown.with(|fixes| match meant.and_then(|id| fixes.as_ref()?.find(&id)) {
            Some(proposal) => comparison.show_preview(proposal),
            None => comparison.preview.set(None),
        });
    });
    let apply = Callback::new(move |id: String| {
        if stale.get_untracked() {
            return;
        }
        let Some(proposal) = shown.with_untracked(|fixes| fixes.as_ref()?.find(&id).cloned()) else { return };
        pointed.set(None);
        focused.set(None);
        comparison.apply(proposal);
        browser::show_answer();
    });
    let list = move || shown.get().map(|fixes| fix_list(&fixes, apply));
    let none = move || is_without_plan(comparison).then(|| view! { <p class="fixes__lead">{t(text::NO_FIXES)}</p> });
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

/// Whether the run whose fixes are listed has no plan.
fn is_without_plan<C: Calculator>(comparison: Comparison<C>) -> bool {
    let run = if comparison.fixes_changed.get() { comparison.changed_run } else { comparison.pinned_run };
    run.with(|run| run.plan.is_err())
}

/// Simulates the fixes after the run whose fixes are listed changes.
fn keep_fixes<C: Calculator>(comparison: Comparison<C>, shown: RwSignal<Listed<C>>, stale: RwSignal<bool>) {
    let pending = StoredValue::new(None::<TimeoutHandle>);
    let fixed = memo(move || comparison.fixed_session());
    Effect::new(move |_| {
        let session = fixed.get();
        stale.set(true);
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        let compute = move || {
            // Without a plan there are no fixes. Those of an earlier plan would be wrong.
            let fixes = C::fixes_of(&session);
            stale.set(fixes.is_none());
            shown.set(fixes.map(Arc::new));
        };
        pending.set_value(set_timeout_with_handle(compute, DELAY).ok());
    });
}

fn fix_list<S>(fixes: &FixList<S>, apply: Callback<String>) -> Part {
    let larger = fixes.larger.as_ref().map(|(label, _)| {
        view! {
            <button type="button" class="button" data-fix=LARGER on:click=act(move || apply.run(LARGER.to_owned()))>
                {label.clone()}
            </button>
        }
    });
    let lead = (!fixes.lead.is_empty()).then(|| view! { <p class="fixes__lead">{fixes.lead.clone()} " " {larger}</p> });
    let rows: Vec<Part> = fixes.fixes.iter().map(|proposal| row(proposal, apply)).collect();
    view! {
        {lead}
        <ol class="fixes__list">{rows}</ol>
    }
    .into_part()
}

/// A fix with the button that applies it.
fn row<S>(proposal: &Proposal<S>, apply: Callback<String>) -> Part {
    let row = proposal.row.clone();
    let (id, label) = (row.id.clone(), apply_label(&row));
    let button = view! {
        <button type="button" class="button" class:button--primary=row.fits aria-label=label
            on:click=act(move || apply.run(id.clone()))>{t(text::APPLY)}</button>
    };
    item(row, button.into_part())
}

/// The id of the fix that contains the target of an event.
fn fix_of(event: &Event) -> Option<String> {
    let target: Element = event.target()?.dyn_into().ok()?;
    target.closest("[data-fix]").ok()??.get_attribute("data-fix")
}
