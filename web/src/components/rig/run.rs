//! The current run, or the newest: its progress, its losses, and its memory compared with the plan.

use headroom_protocol::run::Run;
use leptos::prelude::*;

use super::{RigContext, acts::acts, losses::losses, oom::Oom};
use crate::{
    components::{
        dynamic::{IntoPart, part_of, words},
        rig_charts::{MemoryChart, ZONE, width_of},
    },
    state::{
        memo::memo,
        rig::{
            energy,
            fetched::FetchedHistory,
            memory::RunMemory,
            names::listed,
            orders::waits,
            run::{self, facts, not_given, share_done},
            values::Fact,
        },
        rig_charts::{axis::Chart, plot::Frame},
    },
    text::{self, say, t},
};

/// An example of the command that monitors a run.
const WATCH: &str = "headroom watch -- python train.py config/train_shakespeare_char.py";

/// The panel of the shown run.
#[component]
pub fn RunPanel(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    view! {
        <section class="panel run" aria-labelledby="run-title" data-testid="run">
            {part_of(move || desk.run(), move |id| match id {
                None => view! {
                    <h2 class="panel-title" id="run-title">{t(text::RIG_RUN)}</h2>
                    <p class="rig__hint">{t(text::RIG_NO_RUNS)}</p>
                    <pre class="rig__command" tabindex="0">{WATCH}</pre>
                    <p class="rig__hint">{t(text::RIG_NO_RUNS_THEN)}</p>
                }
                .into_part(),
                Some(id) => shown(desk, id).into_part(),
            })}
        </section>
    }
}

/// Reads from the run, subscribing to events.
fn of<T>(desk: RigContext, id: StoredValue<String>, look: impl FnOnce(&Run) -> T) -> Option<T> {
    id.with_value(|id| desk.events(|rig| rig.runs.iter().find(|w| w.run.id == *id).map(|watched| look(&watched.run))))
}

fn shown(desk: RigContext, id: String) -> impl IntoView {
    let shown = id.clone();
    let id = StoredValue::new(id);
    let ask = move |look: fn(&Run) -> String| of(desk, id, look).unwrap_or_default();
    let choices = move || {
        desk.events(|rig| rig.runs.iter().map(|w| (w.run.id.clone(), listed(rig, &w.run, ZONE))).collect::<Vec<_>>())
    };
    let all = move || {
        let now_ms = desk.agent_now_ms();
        let counted = |run: &Run| {
            desk.run_history.with(|fetched| energy::recorded_joules(run, fetched.of(&run.id).history()?, now_ms))
        };
        desk.settings.with(|settings| {
            let describe = |run: &Run| {
                let waits = desk.look(|rig| waits(rig, run, now_ms)).into_iter().collect();
                [waits, facts(run, settings, counted(run), now_ms), desk.look(|rig| not_given(rig, run))].concat()
            };
            of(desk, id, describe).unwrap_or_default()
        })
    };
    let explained = move || of(desk, id, |run| run.explanation.as_ref().map(text::message)).flatten();
    let notes = move || {
        of(desk, id, |run| run.config_notes.iter().map(text::message).collect::<Vec<_>>().join(" "))
            .filter(|notes| !notes.is_empty())
    };
    let unplanned = move || of(desk, id, run::unplanned).flatten();
    let done = move || headroom_text::decimal::fixed(of(desk, id, share_done).flatten().unwrap_or(0.0) * 100.0, 1);
    let has_end = move || of(desk, id, |run| share_done(run).is_some()) == Some(true);
    view! {
        <div class="run__head">
            <h2 class="panel-title" id="run-title">{t(text::RIG_RUN)}</h2>
            <strong class="run__name" data-testid="run-name">{words(move || ask(|run| run.name.clone()))}</strong>
            <span class=words(move || format!("run__status run__status--{}", ask(|run| run::look(run).to_owned()))) data-testid="run-status">
                {words(move || ask(|run| run::status(run.status)))}
            </span>
            {part_of(choices, move |choices| (choices.len() > 1).then(|| {
                let options: Vec<_> = choices.into_iter().map(|(choice, listed)| view! {
                    <option value=choice.clone() selected=choice == shown>{listed}</option>
                }).collect();
                view! {
                    <select class="input run__choice" aria-label=t(text::RIG_CHOOSE_RUN) data-testid="choose-run"
                        on:change:target=move |event| desk.chosen_run.set(Some(event.target().value()))>{options}</select>
                }
            }))}
        </div>
        {part_of(has_end, move |has_end| has_end.then(|| view! {
            <svg class="run__progress" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                <rect class="gpu__ground" width="100" height="4" />
                <rect class="run__done" width=words(done) height="4" />
            </svg>
        }))}
        {acts(desk, id)}
        <Oom desk id />
        {part_of(explained, |explained| explained.map(|why| view! { <p class="rig__trouble" data-testid="explained">{why}</p> }))}
        {part_of(notes, |notes| notes.map(|notes| view! { <p class="rig__hint" data-testid="config-notes">{notes}</p> }))}
        {part_of(unplanned, |unplanned| unplanned.map(|why| view! { <p class="rig__hint" data-testid="unplanned">{why}</p> }))}
        <dl class="run__facts" data-testid="facts">
            {part_of(all, |all| all.into_iter().map(fact).collect_view())}
        </dl>
        <div class="run__charts">
            {losses(desk, id)}
            {memory(desk, id)}
        </div>
    }
}

fn fact(fact: Fact) -> impl IntoView {
    let note = (!fact.note.is_empty()).then(|| view! { <span class="run__note">{fact.note}</span> });
    view! {
        <div class="run__fact">
            <dt>{t(fact.name)}</dt>
            <dd>{fact.value} {note}</dd>
        </div>
    }
}

/// Renders the memory of the run's GPU, if the run has one.
fn memory(desk: RigContext, id: StoredValue<String>) -> impl IntoView {
    let node = NodeRef::new();
    let drawn = memo(move || {
        // The width is known only after layout and changes with the window.
        desk.now_ms.track();
        let range = id.with_value(|id| desk.range_of_run(id))?;
        let frame = Frame { range, chart: Chart::Memory, width_px: width_of(node), zone: ZONE };
        desk.run_history.with(|fetched| {
            id.with_value(|id| desk.slow(|rig| RunMemory::of(rig, id, fetched.of(id).history(), &frame)))
        })
    });
    let none = Signal::derive(move || {
        desk.run_history.with(|fetched| match id.with_value(|id| fetched.of(id)) {
            FetchedHistory::Nothing => t(text::HISTORY_LOADING).to_owned(),
            FetchedHistory::History(_) => t(text::HISTORY_NOTHING).to_owned(),
            FetchedHistory::Failed(why) => say(&text::history_failed(why.as_str())),
        })
    });
    part_of(
        move || drawn.with(Option::is_some),
        move |has_any| {
            has_any.then(|| {
                let drawn = memo(move || drawn.get().unwrap_or_default());
                view! { <div class="run__chart"><MemoryChart drawn none node /></div> }
            })
        },
    )
}
