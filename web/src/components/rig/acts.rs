//! Actions on the shown run: stop, resume, delete.

use leptos::prelude::*;

use super::{PageRequest, RigContext};
use crate::{
    browser::rig::keep_focus,
    components::dynamic::{IntoPart, Part, part, some_words, words},
    state::{
        memo::memo,
        rig::{
            ShownRun,
            orders::{self, RunAction},
        },
    },
    text::{self, t},
};

/// Reads from a watched run, subscribing to events.
fn of<T: Default>(desk: RigContext, id: StoredValue<String>, look: impl FnOnce(&ShownRun) -> T) -> T {
    let watched = |id: &String| desk.events(|rig| rig.runs.iter().find(|w| w.run.id == *id).map(look));
    id.with_value(watched).unwrap_or_default()
}

/// Renders the buttons and the results of actions. A page without permission shows why there are no buttons.
pub fn acts(desk: RigContext, id: StoredValue<String>) -> Part {
    let can = memo(move || {
        let now_ms = desk.agent_now_ms();
        of(desk, id, |watched| orders::acts(watched, now_ms))
    });
    let may_change = desk.may_change;
    let is_sure = RwSignal::new(false);
    let stopping =
        move || of(desk, id, |watched| watched.stopping_ms.is_some()).then(|| t(text::RIG_STOPPING).to_owned());
    let goes = move || is_sure.get().then(|| of(desk, id, |watched| orders::goes_too(&watched.run)));
    let buttons = move || {
        // The pressed button may disappear, so the keyboard focus is restored.
        keep_focus("act-", "#acts");
        let acts = if may_change.get() { can.get() } else { vec![] };
        acts.into_iter().map(|act| button(desk, id, act, is_sure)).collect_view()
    };
    view! {
        <div class="acts" id="acts" tabindex="-1" data-testid="acts">
            {part(buttons)}
            {part(move || is_sure.get().then(|| view! {
                <button type="button" class="button button--quiet" id="act-keep" on:click=move |_| is_sure.set(false)>{t(text::RIG_KEEP)}</button>
            }))}
            <p role="status">{some_words(stopping)}{some_words(goes)}</p>
            {said(desk, move || id.get_value())}
            {part(move || (!may_change.get() && !can.with(Vec::is_empty)).then(|| view! {
                <p class="rig__hint">{t(text::RIG_MAY_NOT)}</p>
            }))}
        </div>
    }
    .into_part()
}

/// Renders a button. Deleting requires a second click.
fn button(desk: RigContext, id: StoredValue<String>, act: RunAction, is_sure: RwSignal<bool>) -> Part {
    let press = move |_| {
        if act != RunAction::Delete || is_sure.get_untracked() {
            is_sure.set(false);
            desk.ask.run(PageRequest::Act(id.get_value(), act));
        } else {
            is_sure.set(true);
        }
    };
    let name = move || {
        t(if act == RunAction::Delete && is_sure.get() { text::RIG_DELETE_SURE } else { act.name() }).to_owned()
    };
    view! {
        <button type="button" class="button" id=format!("act-{act:?}").to_ascii_lowercase() on:click=press
            aria-disabled=busy(desk, move || id.get_value())>{words(name)}</button>
    }
    .into_part()
}

/// Returns `aria-disabled` for a button whose action `name` is pending.
pub fn busy(desk: RigContext, name: impl Fn() -> String + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    some_words(move || desk.presses.with(|presses| presses.is_under_way(&name())).then(|| "true".to_owned()))
}

/// Renders the result of the action `name`. Refusals are announced immediately, in the agent's words.
pub fn said(desk: RigContext, name: impl Fn() -> String + Copy + Send + 'static) -> Part {
    let of = move |is_refusal: bool| {
        let said = desk.presses.with(|presses| presses.said(&name()));
        said.filter(|(_, refused)| *refused == is_refusal).map(|(words, _)| words)
    };
    view! {
        <p class="rig__fault" role="alert">{some_words(move || of(true))}</p>
        <p role="status">{some_words(move || of(false))}</p>
    }
    .into_part()
}
