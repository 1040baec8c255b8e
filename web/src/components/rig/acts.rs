//! What can be asked of the run that is shown: to stop, to go on, to be deleted.

use leptos::prelude::*;

use super::{Ask, Desk};
use crate::{
    browser::rig::keep_focus,
    components::dynamic::{IntoPart, Part, part, some_words, words},
    state::rig::{
        Watched,
        orders::{self, Act},
    },
    text::{self, t},
};

/// A question to a run of the page; followed where something happens.
fn of<T: Default>(desk: Desk, id: StoredValue<String>, look: impl FnOnce(&Watched) -> T) -> T {
    let watched = |id: &String| desk.events(|rig| rig.runs.iter().find(|w| w.run.id == *id).map(look));
    id.with_value(watched).unwrap_or_default()
}

/// The buttons, and what came of pressing them; where this page may only look, why there are none.
pub fn acts(desk: Desk, id: StoredValue<String>) -> Part {
    let can = Memo::new(move |_| {
        let now_ms = desk.agent_now_ms();
        of(desk, id, |watched| orders::acts(watched, now_ms))
    });
    let may_change = desk.may_change;
    let is_sure = RwSignal::new(false);
    let stopping =
        move || of(desk, id, |watched| watched.stopping_ms.is_some()).then(|| t(text::RIG_STOPPING).to_owned());
    let goes = move || is_sure.get().then(|| of(desk, id, |watched| orders::goes_too(&watched.run)));
    let buttons = move || {
        // What was pressed may be gone, and the keyboard is not to be lost with it.
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

/// A button of it. What cannot be taken back takes a second press.
fn button(desk: Desk, id: StoredValue<String>, act: Act, is_sure: RwSignal<bool>) -> Part {
    let press = move |_| {
        if act != Act::Delete || is_sure.get_untracked() {
            is_sure.set(false);
            desk.ask.run(Ask::Act(id.get_value(), act));
        } else {
            is_sure.set(true);
        }
    };
    let name =
        move || t(if act == Act::Delete && is_sure.get() { text::RIG_DELETE_SURE } else { act.name() }).to_owned();
    view! {
        <button type="button" class="button" id=format!("act-{act:?}").to_ascii_lowercase() on:click=press
            aria-disabled=busy(desk, move || id.get_value())>{words(name)}</button>
    }
    .into_part()
}

/// Whether a press of that name is on its way, as an attribute has it.
pub fn busy(desk: Desk, name: impl Fn() -> String + Send + 'static) -> Box<dyn FnMut() -> Option<String> + Send> {
    some_words(move || desk.presses.with(|presses| presses.is_under_way(&name())).then(|| "true".to_owned()))
}

/// What came of a press of that name: a refusal at once, as it was worded.
pub fn said(desk: Desk, name: impl Fn() -> String + Copy + Send + 'static) -> Part {
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
