//! State that the parts of a history chart share.

use std::{future::Future, pin::Pin, rc::Rc, time::Duration};

use headroom_protocol::gpu::Gpu;
use leptos::{html::Div, prelude::*, task::spawn_local};

use super::{frame::width_of, per_frame::PerFrame};
use crate::{
    browser,
    state::rig_charts::{
        history::{ChartState, ChartStatus},
        plot::Plot,
        zone::UtcOffset,
    },
    text::{self, t},
};

/// Fetches a path from the agent and returns the body of the answer, or an error message for the user.
pub type Fetch = Rc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<String, String>>>>>;

/// The browser's time zone.
pub const ZONE: UtcOffset = UtcOffset(browser::clock::minutes_ahead_of_utc);

/// The pointer's state on a plot: the cursor, and the start of a drag.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pointed {
    /// Position of the cursor as a fraction of the width.
    pub share: f64,
    /// Position where the pointer was pressed, as a fraction of the width.
    pub from: Option<f64>,
}

/// State shared by the chart's parts.
#[derive(Clone, Copy)]
pub struct ChartContext {
    /// The chart's data and view.
    pub charted: RwSignal<ChartState>,
    /// The machine's GPUs.
    pub gpus: Memo<Vec<Gpu>>,
    /// The newest time that the agent reported, in milliseconds.
    pub newest_ms: Signal<u64>,
    /// The content of the drawing.
    pub plot: Memo<Plot>,
    /// Whether the chart is loading, drawn, empty or failed.
    pub standing: Memo<ChartStatus>,
    /// The pointer's state.
    pub pointed: PerFrame<Option<Pointed>>,
    /// The plot's element.
    pub node: NodeRef<Div>,
    /// Fetches data from the agent.
    pub fetch: StoredValue<Fetch, LocalStorage>,
}

impl ChartContext {
    /// Reads the chart, subscribing to the chart and the GPUs.
    pub fn with<T>(self, read: impl FnOnce(&ChartState, &[Gpu], u64) -> T) -> T {
        // No subscription to the newest time, which changes ten times per second without changing the drawing.
        let newest_ms = self.newest_ms.get_untracked();
        self.charted.with(|charted| self.gpus.with(|gpus| read(charted, gpus, newest_ms)))
    }

    /// Changes the chart and requests the data that it then needs.
    pub fn change(self, change: impl FnOnce(&mut ChartState, u64)) {
        let newest_ms = self.newest_ms.get_untracked();
        self.charted.update(|charted| change(charted, newest_ms));
        self.ask();
    }

    /// Sends the next request, if one is due.
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
                    // The chart may have been removed by then.
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

/// A button that repeats the failed request immediately.
#[component]
pub fn TryAgain(shown: ChartContext) -> impl IntoView {
    view! {
        <button type="button" class="button button--quiet"
            on:click=move |_| shown.change(|charted, _| charted.try_again())>{t(text::HISTORY_TRY_AGAIN)}</button>
    }
}
