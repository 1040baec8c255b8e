//! A card's history: what is chosen, the words, the plot, and the table.

use std::{future::Future, pin::Pin, rc::Rc, time::Duration};

use headroom_shared::protocol::gpu::Gpu;
use leptos::{html::Div, prelude::*, task::spawn_local};

use super::{
    frame::{Levels, Ticks, width_of},
    history_plot::HistoryPlot,
    history_table::HistoryTable,
    per_frame::PerFrame,
};
use crate::{
    browser,
    components::dynamic::{IntoPart, flag, part_of, words},
    state::rig_charts::{
        history::{Charted, Standing},
        kind::Kind,
        plot::{Planned, Plot},
        reading::Said,
        view::SPANS_MS,
        zone::Zone,
    },
    text::{self, Key, say, t},
};

/// Gets a path of the agent's: the body of its answer, or why there is none, for a person.
pub type Fetch = Rc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// Local time, as the browser has it.
pub const ZONE: Zone = Zone(browser::clock::minutes_ahead_of_utc);

/// Where a plot is pointed at: its cursor, and where a drag began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pointed {
    /// The cursor's share of the width.
    pub share: f64,
    /// Where the pointer was pressed.
    pub from: Option<f64>,
}

/// What the chart's parts share.
#[derive(Clone, Copy)]
pub struct Shown {
    /// The chart.
    pub charted: RwSignal<Charted>,
    /// The cards.
    pub gpus: Memo<Vec<Gpu>>,
    /// The agent's newest time.
    pub newest_ms: Signal<u64>,
    /// What is drawn.
    pub plot: Memo<Plot>,
    /// How it stands.
    pub standing: Memo<Standing>,
    /// What is pointed at.
    pub pointed: PerFrame<Option<Pointed>>,
    /// The element that is drawn in.
    pub node: NodeRef<Div>,
    fetch: StoredValue<Fetch, LocalStorage>,
}

impl Shown {
    /// Reads the chart, following it.
    pub fn with<T>(self, read: impl FnOnce(&Charted, &[Gpu], u64) -> T) -> T {
        // The newest time is not followed: it changes ten times a second, and what is drawn does not.
        let newest_ms = self.newest_ms.get_untracked();
        self.charted.with(|charted| self.gpus.with(|gpus| read(charted, gpus, newest_ms)))
    }

    /// Changes the chart, and asks for what it then wants.
    pub fn change(self, change: impl FnOnce(&mut Charted, u64)) {
        let newest_ms = self.newest_ms.get_untracked();
        self.charted.update(|charted| change(charted, newest_ms));
        self.ask();
    }

    /// Makes the request that is to be made now, if there is one.
    pub fn ask(self) {
        let width_px = width_of(self.node);
        if browser::clock::is_hidden() || width_px < 1.0 {
            return;
        }
        let (newest_ms, clock_ms) = (self.newest_ms.get_untracked(), browser::now_millis());
        let asked = self.charted.try_maybe_update(|charted| {
            let before_px = charted.width_px;
            let ask = self.gpus.with_untracked(|gpus| charted.ask(gpus, newest_ms, clock_ms, width_px));
            let is_wider = (charted.width_px - before_px).abs() >= 1.0;
            (ask.is_some() || is_wider, (ask, charted.rest_ms(clock_ms)))
        });
        match asked {
            Some((Some(ask), _)) => {
                let Some(answer) = self.fetch.try_with_value(|fetch| fetch(ask.path())) else { return };
                spawn_local(async move {
                    let answer = answer.await;
                    // The chart may be gone by then.
                    let _ = self.charted.try_update(|charted| charted.take(ask.number, answer, browser::now_millis()));
                });
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds within a second")]
            Some((None, rest_ms)) if rest_ms > 0.0 => {
                set_timeout(move || self.ask_if_there(), Duration::from_millis(rest_ms as u64 + 1));
            }
            _ => {}
        }
    }

    fn ask_if_there(self) {
        if self.fetch.try_with_value(|_| ()).is_some() {
            self.ask();
        }
    }
}

/// The history of the rig's cards.
#[component]
pub fn HistoryChart(
    /// The cards, in the agent's order.
    #[prop(into)]
    gpus: Signal<Vec<Gpu>>,
    /// Gets `/api/history?…` of the agent.
    fetch: Fetch,
    /// The newest time that the agent told, by its own clock; 0 while none is known. The chart asks for nothing while
    /// it stands still.
    #[prop(into)]
    newest_ms: Signal<u64>,
    /// The peaks that are planned for what runs now: each card's UUID, and the peak.
    #[prop(into, default = Signal::stored(vec![]))]
    planned: Signal<Vec<(String, Planned)>>,
    /// What is to be said where nothing new is recorded: that history is paused, and why.
    #[prop(into, default = Signal::stored(None))]
    paused: Signal<Option<String>>,
) -> impl IntoView {
    let gpus = Memo::new(move |_| gpus.get());
    let planned = Memo::new(move |_| planned.get());
    let charted = RwSignal::new(Charted::default());
    let plot = Memo::new(move |_| {
        let newest_ms = newest_ms.get_untracked();
        charted.with(|charted| gpus.with(|gpus| planned.with(|p| charted.plot(gpus, p, newest_ms, ZONE))))
    });
    let standing = Memo::new(move |_| {
        let newest_ms = newest_ms.get_untracked();
        charted.with(|charted| gpus.with(|gpus| plot.with(|plot| charted.standing(gpus, newest_ms, plot))))
    });
    let pointed = PerFrame::new(None);
    let fetch = StoredValue::new_local(fetch);
    let shown = Shown { charted, gpus, newest_ms, plot, standing, pointed, node: NodeRef::new(), fetch };
    // Once a second, and when there are other cards to ask for: the time and the list come from outside.
    let second = Memo::new(move |_| newest_ms.get() / 1000);
    Effect::new(move || {
        // Read and not only tracked: a memo that nobody reads follows nothing.
        second.get();
        gpus.with(|_| ());
        shown.ask();
    });
    let kind = Memo::new(move |_| charted.with(|charted| charted.kind));
    view! {
        <section class="rig-chart" aria-labelledby="history-title" data-testid="history">
            <div class="rig-chart__head">
                <h2 class="panel-title">
                    <span id="history-title">{t(text::HISTORY_TITLE)}</span>
                    <span class="rig-chart__unit">{words(move || kind.get().unit().to_owned())}</span>
                </h2>
                <Choices shown kind />
            </div>
            <Words shown />
            <div class="rig-chart__frame">
                <Levels levels=Signal::derive(move || plot.with(|plot| plot.scale.levels.clone())) />
                <HistoryPlot shown />
                <Ticks ticks=Signal::derive(move || plot.with(Plot::named_ticks)) />
            </div>
            <Notes shown paused />
            <HistoryTable shown />
        </section>
    }
}

/// Card, subject, range, and the way back.
#[component]
fn Choices(shown: Shown, kind: Memo<Kind>) -> impl IntoView {
    let choose = move |chosen: Kind| {
        shown.pointed.set(None);
        shown.change(|charted, _| charted.kind = chosen);
    };
    let window = move || shown.charted.with(|charted| charted.view.window);
    let can_go_back = move || shown.charted.with(|charted| charted.view.can_go_back());
    const SPANS: [(Key, Key); 3] = [
        (text::HISTORY_HOUR, text::HISTORY_HOUR_LONG),
        (text::HISTORY_DAY, text::HISTORY_DAY_LONG),
        (text::HISTORY_MONTH, text::HISTORY_MONTH_LONG),
    ];
    view! {
        <Cards shown />
        <div class="rig-chart__choice" role="group" aria-label=t(text::HISTORY_READING)>
            {Kind::ALL.map(|of| view! {
                <button type="button" class="rig-chart__button"
                    aria-pressed=words(move || (kind.get() == of).to_string())
                    on:click=move |_| choose(of)>{t(of.name())}</button>
            }).collect_view()}
        </div>
        <div class="rig-chart__choice rig-chart__choice--ranges" role="group" aria-label=t(text::HISTORY_RANGE)>
            {SPANS_MS.into_iter().zip(SPANS).map(|(span_ms, (short, long))| view! {
                <button type="button" class="rig-chart__button" title=t(long)
                    aria-pressed=words(move || {
                        let window = window();
                        (window.span_ms == span_ms && window.end_ms.is_none()).to_string()
                    })
                    on:click=move |_| shown.change(|charted, newest_ms| {
                        charted.look(newest_ms, |view, _| view.choose(span_ms));
                    })>{t(short)}</button>
            }).collect_view()}
            <button type="button" class="rig-chart__button" title=t(text::HISTORY_BACK_HINT)
                prop:disabled=flag(move || !can_go_back())
                on:click=move |_| shown.change(|charted, newest_ms| {
                    charted.look(newest_ms, |view, _| view.back());
                })><span aria-hidden="true">"‹ "</span>{t(text::HISTORY_BACK)}</button>
        </div>
    }
}

/// The list of cards, where there are several.
#[component]
fn Cards(shown: Shown) -> impl IntoView {
    let named = move || {
        let of = |gpu: &Gpu| (gpu.uuid.clone(), format!("{}: {}", gpu.index, gpu.name.trim_start_matches("NVIDIA ")));
        shown.gpus.with(|gpus| gpus.iter().map(of).collect::<Vec<_>>())
    };
    let chosen = move || shown.with(|charted, gpus, _| charted.card(gpus).map(|gpu| gpu.uuid.clone()));
    part_of(named, move |named| {
        (named.len() > 1).then(|| {
            view! {
                <select class="input rig-chart__cards" id="history-card" aria-label=t(text::HISTORY_CARD)
                    prop:value=words(move || chosen().unwrap_or_default())
                    on:change:target=move |event| {
                        let uuid = event.target().value();
                        shown.change(|charted, _| charted.gpu = Some(uuid));
                    }>
                    {named.into_iter().map(|(uuid, name)| {
                        let is_chosen = untrack(chosen).as_ref() == Some(&uuid);
                        view! { <option value=uuid selected=is_chosen>{name}</option> }
                    }).collect_view()}
                </select>
            }
        })
    })
}

/// What is under the cursor, else the range, in words.
#[component]
fn Words(shown: Shown) -> impl IntoView {
    let said = move || {
        let share = shown.pointed.get().map(|pointed| pointed.share);
        shown.with(|charted, gpus, newest_ms| match share {
            Some(share) => charted.reading(gpus, newest_ms, share, ZONE).1,
            None => charted.summary(gpus, newest_ms, ZONE),
        })
    };
    let is_double = move || shown.charted.with(|charted| charted.kind.metrics().len() > 1);
    view! {
        <p class="rig-chart__said" class:rig-chart__said--two=flag(is_double) data-testid="history-said">
            {part_of(said, |Said { when, values }| {
                let values = values.into_iter().enumerate().map(|(index, value)| view! {
                    <span class="rig-chart__value">
                        <span class=format!("rig-chart__key rig-chart__key--{index}") aria-hidden="true"></span>
                        {value.unwrap_or_else(|| "–".to_owned())}
                    </span>
                });
                view! { <span class="rig-chart__when">{when}</span> {values.collect_view()} }
            })}
        </p>
    }
}

/// What is to be known of the drawing: that it is not up to date and why, else how to use it.
#[component]
fn Notes(shown: Shown, paused: Signal<Option<String>>) -> impl IntoView {
    let stale = move || {
        let is_drawn = shown.standing.with(|standing| *standing == Standing::Drawn);
        shown.with(|charted, gpus, _| charted.stale(gpus)).filter(|_| is_drawn).map(|why| say(&why))
    };
    view! {
        <div class="rig-chart__foot">
            <ul class="rig-chart__legend" aria-hidden="true">
                <li><span class="rig-chart__key rig-chart__key--0"></span>{t(text::HISTORY_MEAN)}</li>
                <li><span class="rig-chart__key rig-chart__key--band"></span>{t(text::HISTORY_EXTREMES)}</li>
            </ul>
            <p class="rig-chart__note" role="status">
                {part_of(move || (stale(), paused.get()), move |of| match of {
                    (Some(why), _) => view! {
                        <span class="rig-chart__warning">{why}</span>" "<TryAgain shown />
                    }.into_part(),
                    (None, Some(reason)) => view! {
                        <span class="rig-chart__warning">{reason}</span>
                    }.into_part(),
                    (None, None) => view! {
                        <span class="rig-chart__hint">{t(text::HISTORY_HINT)}</span>" "
                        <span class="rig-chart__hint rig-chart__hint--wheel">{t(text::HISTORY_HINT_WHEEL)}</span>
                    }.into_part(),
                })}
            </p>
        </div>
    }
}

/// Asks at once for what failed.
#[component]
pub fn TryAgain(shown: Shown) -> impl IntoView {
    view! {
        <button type="button" class="button button--quiet"
            on:click=move |_| shown.change(|charted, _| charted.try_again())>{t(text::HISTORY_TRY_AGAIN)}</button>
    }
}
