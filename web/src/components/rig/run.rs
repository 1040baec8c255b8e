//! The run that goes on, or the newest: how far it is, its losses, and its memory against the plan.

use headroom_shared::protocol::{history::Metric, run::Run};
use leptos::prelude::*;

use super::{Desk, oom::Oom};
use crate::{
    components::{
        dynamic::{part, words},
        rig_charts::LossChart,
    },
    state::{
        format,
        rig::{
            Watched,
            plot::{self, Plot, columns, plot},
            processes::predicted_bytes,
            run::{self, Fact, facts, share_done},
            words as said,
        },
    },
    text::{self, say, t},
};

/// The command that makes a run known.
const WATCH: &str = "headroom watch -- python train.py config/train_shakespeare_char.py";

/// The panel.
#[component]
pub fn RunPanel(
    /// The page.
    desk: Desk,
) -> impl IntoView {
    let id = Memo::new(move |_| desk.run());
    view! {
        <section class="panel run" aria-labelledby="run-title" data-testid="run">
            {part(move || match id.get() {
                None => view! {
                    <h2 class="panel-title" id="run-title">{t(text::RIG_RUN)}</h2>
                    <p class="rig__hint">{t(text::RIG_NO_RUNS)}</p>
                    <pre class="rig__command" tabindex="0">{WATCH}</pre>
                    <p class="rig__hint">{t(text::RIG_NO_RUNS_THEN)}</p>
                }
                .into_any(),
                Some(id) => shown(desk, id).into_any(),
            })}
        </section>
    }
}

/// A question to the run; followed where something happens.
fn of<T>(desk: Desk, id: StoredValue<String>, look: impl FnOnce(&Run) -> T) -> Option<T> {
    id.with_value(|id| desk.events(|rig| rig.runs.iter().find(|w| w.run.id == *id).map(|watched| look(&watched.run))))
}

fn shown(desk: Desk, id: String) -> impl IntoView {
    let shown = id.clone();
    let id = StoredValue::new(id);
    let ask = move |look: fn(&Run) -> String| of(desk, id, look).unwrap_or_default();
    let choices = Memo::new(move |_| {
        desk.events(|rig| {
            rig.runs.iter().map(|w| (w.run.id.clone(), w.run.name.clone(), w.run.started_ms)).collect::<Vec<_>>()
        })
    });
    let all = Memo::new(move |_| {
        let counted = desk.run_history.with(|fetched| fetched.history().and_then(run::joules));
        let now_ms = desk.agent_now_ms();
        desk.settings.with(|settings| of(desk, id, |run| facts(run, settings, counted, now_ms))).unwrap_or_default()
    });
    let unplanned = Memo::new(move |_| of(desk, id, run::unplanned).flatten());
    let done = move || headroom_shared::decimal::fixed(of(desk, id, share_done).flatten().unwrap_or(0.0) * 100.0, 1);
    let has_end = Memo::new(move |_| of(desk, id, |run| share_done(run).is_some()) == Some(true));
    view! {
        <div class="run__head">
            <h2 class="panel-title" id="run-title">{t(text::RIG_RUN)}</h2>
            <strong class="run__name" data-testid="run-name">{words(move || ask(|run| run.name.clone()))}</strong>
            <span class=words(move || format!("run__status run__status--{}", ask(|run| run::look(run).to_owned()))) data-testid="run-status">
                {words(move || ask(|run| run::status(run.status)))}
            </span>
            {part(move || choices.with(|choices| (choices.len() > 1).then(|| {
                let options: Vec<_> = choices.iter().map(|(choice, name, started_ms)| view! {
                    <option value=choice.clone() selected=*choice == shown>
                        {format!("{name} · {}", crate::browser::rig::moment(*started_ms, true))}
                    </option>
                }).collect();
                view! {
                    <select class="input run__choice" aria-label=t(text::RIG_CHOOSE_RUN) data-testid="choose-run"
                        on:change:target=move |event| desk.chosen_run.set(Some(event.target().value()))>{options}</select>
                }
            })))}
        </div>
        {part(move || has_end.get().then(|| view! {
            <svg class="run__progress" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                <rect class="gpu__ground" width="100" height="4" />
                <rect class="run__done" width=words(done) height="4" />
            </svg>
        }))}
        <Oom desk id />
        {part(move || unplanned.get().map(|why| view! { <p class="rig__hint" data-testid="unplanned">{why}</p> }))}
        <dl class="run__facts" data-testid="facts">
            {part(move || all.get().into_iter().map(fact).collect_view())}
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

fn losses(desk: Desk, id: StoredValue<String>) -> impl IntoView {
    let losses = Signal::derive(move || {
        id.with_value(|id| {
            let found = |watched: &Watched| watched.losses.clone();
            desk.events(|rig| rig.runs.iter().find(|watched| watched.run.id == *id).map(found)).unwrap_or_default()
        })
    });
    view! { <div class="run__chart"><LossChart losses /></div> }
}

/// What is drawn of a run's memory: the card's, the plan's peak as a share of the top, and the range.
fn memory(desk: Desk, id: StoredValue<String>) -> impl IntoView {
    let metric = Metric::MemoryUsed.place();
    // What is drawn is the whole card's: while others are known their share stands below the plan's.
    let peak = move || {
        let (gpu, peak, ended) = of(desk, id, |run| {
            Some((run.gpus.first().cloned()?, run.plan.as_ref()?.peak_bytes, run.status.has_ended()))
        })??;
        let with_others = desk.slow(|rig| predicted_bytes(rig, rig.card(&gpu)?));
        Some(with_others.filter(|_| !ended).unwrap_or(peak))
    };
    let drawn = Memo::new(move |_| -> Option<Plot> {
        let range = id.with_value(|id| desk.range_of_run(id))?;
        let gpu = of(desk, id, |run| run.gpus.first().cloned()).flatten()?;
        let peak_bytes = peak().unwrap_or(0);
        desk.run_history.with(|fetched| {
            desk.look(|rig| {
                let card = rig.card(&gpu)?;
                let all = columns(fetched.history(), Some(&card.hour), metric, range);
                // A peak beyond the card is drawn beyond it.
                let top_bytes = card.total_bytes().unwrap_or(1).max(peak_bytes);
                Some(plot(&all, top_bytes as f64))
            })
        })
    });
    let top = move || drawn.with(|drawn| drawn.as_ref().map_or(1.0, |drawn| drawn.top));
    let ask = move |look: fn(&Plot) -> String| drawn.with(|drawn| drawn.as_ref().map(look).unwrap_or_default());
    let y = move || {
        peak().map_or_else(|| "-9".to_owned(), |peak| crate::state::rig::spark::y_of(peak as f64, top(), plot::HEIGHT))
    };
    let predicted = move || peak().map(|peak| say(&text::rig_predicted(format::size(peak)))).unwrap_or_default();
    let has_any = Memo::new(move |_| drawn.with(Option::is_some));
    part(move || {
        has_any.get().then(|| view! {
            <figure class="run__chart">
                <figcaption class="run__caption"><h3>{t(text::RIG_MEMORY_OF_RUN)}</h3></figcaption>
                <div class="run__drawing">
                    <svg viewBox="0 0 600 100" preserveAspectRatio="none" role="img" data-testid="run-memory"
                        aria-label=words(move || format!("{}, {}", t(text::RIG_MEMORY_OF_RUN), predicted()))>
                        <path class="plot__band" d=words(move || ask(|plot| plot.band.clone())) />
                        <path class="plot__line" d=words(move || ask(|plot| plot.line.clone())) />
                        <line class="plot__peak" x1="0" x2="600" y1=words(y) y2=words(y) />
                    </svg>
                    <span class="run__end run__end--top">{words(move || said::metric(Metric::MemoryUsed, top()))}</span>
                    <span class="run__end run__end--bottom">"0"</span>
                </div>
                <ul class="run__legend">
                    <li><svg class="run__key" viewBox="0 0 20 8" aria-hidden="true"><path class="plot__line" d="M0 4H20" /></svg>{t(text::RIG_USED)}</li>
                    {part(move || peak().map(|_| view! {
                        <li><svg class="run__key" viewBox="0 0 20 8" aria-hidden="true"><path class="plot__peak" d="M0 4H20" /></svg>{words(predicted)}</li>
                    }))}
                </ul>
            </figure>
        })
    })
}
