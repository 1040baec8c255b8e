//! The whole history chart: GPU, subject, range, requests, and status.

use headroom_protocol::{gpu::Gpu, history::History, metric::Group};

use super::{
    axis::Chart,
    feed::{Feed, HistoryQuery, HistoryRequest, points_for},
    plot::{Frame, PlannedPeak, Plot},
    reading::{self, ReadingText, Row},
    view::{Range, View},
    zone::UtcOffset,
};
use crate::text::{self, Key, Text};

/// The user's choices and the data for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartState {
    /// The range.
    pub view: View,
    /// The subject.
    pub chart: Chart,
    /// The UUID of the chosen GPU; `None` for the first.
    pub gpu: Option<String>,
    /// The drawn range: that of the last response, so that the drawing does not move between two responses.
    pub drawn: Option<Range>,
    /// The width of the plot when it was last drawn.
    pub width_px: f64,
    feed: Feed,
}

/// The status of a chart, in order of precedence.
#[derive(Clone, Debug, PartialEq)]
pub enum ChartStatus {
    /// There is no GPU.
    NoGpu,
    /// The wanted data is missing, with the reason.
    Failed(Text),
    /// The data is loading.
    Loading,
    /// The range has no data.
    Nothing,
    /// The GPU has a history without this metric.
    NotGiven,
    /// The chart is drawn.
    Drawn,
}

impl ChartStatus {
    /// The text over the plot.
    pub fn words(&self) -> Option<Text> {
        let key: Key = match self {
            Self::NoGpu => text::HISTORY_NO_CARD,
            Self::Failed(why) => return Some(why.clone()),
            Self::Loading => text::HISTORY_LOADING,
            Self::Nothing => text::HISTORY_NOTHING,
            Self::NotGiven => text::HISTORY_NOT_GIVEN,
            Self::Drawn => return None,
        };
        Some(key.into())
    }
}

impl ChartState {
    /// The shown GPU. A chosen GPU that is lost is shown again when it returns.
    pub fn gpu<'a>(&self, gpus: &'a [Gpu]) -> Option<&'a Gpu> {
        let chosen = self.gpu.as_ref().and_then(|uuid| gpus.iter().find(|gpu| gpu.uuid == *uuid));
        chosen.or_else(|| gpus.first())
    }

    /// The shown group of readings and the GPU's UUID. The machine's readings need no GPU.
    fn subject<'a>(&self, gpus: &'a [Gpu]) -> Option<(Group, &'a str)> {
        let group = self.chart.group();
        Some((group, if group == Group::Host { "" } else { &self.gpu(gpus)?.uuid }))
    }

    fn wanted(&self, gpus: &[Gpu]) -> Option<HistoryQuery> {
        let (group, gpu) = self.subject(gpus)?;
        Some(HistoryQuery { group, gpu: gpu.to_owned(), window: self.view.window, n_points: points_for(self.width_px) })
    }

    /// Changes the view and draws its range immediately from the cached data.
    pub fn look<T>(&mut self, newest_ms: u64, change: impl FnOnce(&mut View, Range) -> T) -> T {
        let range = self.range(newest_ms);
        let before = self.view.window;
        let changed = change(&mut self.view, range);
        if self.view.window != before {
            self.drawn = Some(self.view.window.range(newest_ms));
        }
        changed
    }

    /// The drawn range.
    pub fn range(&self, newest_ms: u64) -> Range {
        self.drawn.unwrap_or_else(|| self.view.window.range(newest_ms))
    }

    /// The request to make now. `newest_ms` is the agent's newest time; 0 if unknown.
    pub fn ask(&mut self, gpus: &[Gpu], newest_ms: u64, clock_ms: f64, width_px: f64) -> Option<HistoryRequest> {
        if newest_ms == 0 {
            return None;
        }
        self.width_px = width_px;
        let wanted = self.wanted(gpus)?;
        self.feed.ask(&wanted, newest_ms, clock_ms)
    }

    /// The time in milliseconds until [`Self::ask`] can return a delayed request.
    pub fn rest_ms(&self, clock_ms: f64) -> f64 {
        self.feed.rest_ms(clock_ms)
    }

    /// Takes the response to a request.
    pub fn take(&mut self, number: u64, answer: Result<String, String>, clock_ms: f64) {
        let range = self.feed.take(number, answer, clock_ms);
        // A window chosen since then keeps its range; its own response is pending.
        self.drawn = range.filter(|range| range.span_ms() == self.view.window.span_ms).or(self.drawn);
    }

    /// Allows an immediate retry of a failed request.
    pub fn try_again(&mut self) {
        self.feed.try_again();
    }

    /// The cached data for the current view.
    pub fn history(&self, gpus: &[Gpu], newest_ms: u64) -> Option<&History> {
        let (group, gpu) = self.subject(gpus)?;
        self.feed.best(group, gpu, self.range(newest_ms))
    }

    /// The drawing.
    pub fn plot(&self, gpus: &[Gpu], planned: &[(String, PlannedPeak)], newest_ms: u64, zone: UtcOffset) -> Plot {
        let gpu = self.gpu(gpus);
        let planned = planned.iter().find(|(uuid, _)| gpu.is_some_and(|gpu| gpu.uuid == *uuid));
        let frame = Frame { range: self.range(newest_ms), chart: self.chart, width_px: self.width_px, zone };
        Plot::of(self.history(gpus, newest_ms), gpu, planned.map(|(_, planned)| *planned), &frame)
    }

    /// The status of the chart.
    pub fn standing(&self, gpus: &[Gpu], newest_ms: u64, plot: &Plot) -> ChartStatus {
        let Some(wanted) = self.wanted(gpus) else { return ChartStatus::NoGpu };
        match self.feed.failure(&wanted) {
            Some(why) if plot.is_empty => ChartStatus::Failed(why.clone()),
            _ if !plot.is_empty => ChartStatus::Drawn,
            _ if !self.feed.has_answered(&wanted) => ChartStatus::Loading,
            _ if self.history(gpus, newest_ms).is_some_and(|history| !history.times_ms.is_empty()) => {
                ChartStatus::NotGiven
            }
            _ => ChartStatus::Nothing,
        }
    }

    /// The reason why the drawing could not be updated; `None` if it is current or nothing is drawn.
    pub fn stale(&self, gpus: &[Gpu]) -> Option<Text> {
        self.feed.failure(&self.wanted(gpus)?).cloned()
    }

    /// The position of the reading under a cursor, and the words.
    pub fn reading(&self, gpus: &[Gpu], newest_ms: u64, share: f64, zone: UtcOffset) -> (f64, ReadingText) {
        let range = self.range(newest_ms);
        let found = reading::at(self.history(gpus, newest_ms), self.chart, range, share);
        (range.share(found.time_ms).clamp(0.0, 1.0), found.said(self.chart, range, zone))
    }

    /// A summary of the range in words.
    pub fn summary(&self, gpus: &[Gpu], newest_ms: u64, zone: UtcOffset) -> ReadingText {
        reading::summary(self.history(gpus, newest_ms), self.chart, self.range(newest_ms), zone)
    }

    /// The range as a table.
    pub fn table(&self, gpus: &[Gpu], newest_ms: u64, zone: UtcOffset) -> Vec<Row> {
        reading::table(self.history(gpus, newest_ms), self.chart, self.range(newest_ms), zone)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fold,
            view::{SPANS_MS, Window},
        },
        *,
    };
    use headroom_protocol::reading::{MissingReason, Reading};

    const NOW: u64 = 1_795_000_000_000;
    const UTC: UtcOffset = UtcOffset(|_| 0);

    fn gpu(uuid: &str) -> Gpu {
        Gpu {
            index: 0,
            uuid: uuid.to_owned(),
            name: "NVIDIA GeForce RTX 4070".to_owned(),
            present: true,
            memory_total_bytes: Reading::Is(12 << 30),
            compute_capability: Reading::Is((8, 9)),
            power_limit_watts: Reading::Is(200.0),
            power_limit_max_watts: Reading::missing(MissingReason::NotSupported),
            temperature_slowdown_celsius: Reading::Is(90),
            temperature_shutdown_celsius: Reading::missing(MissingReason::NotSupported),
            clock_sm_max_mhz: Reading::Is(3105),
            clock_memory_max_mhz: Reading::Is(10_501),
            mig_enabled: Reading::Is(false),
            nvlinks_active: Reading::Is(0),
            pci_bus_id: Reading::Is("0000:01:00.0".to_owned()),
            listed_as: None,
        }
    }

    /// A response with a value every ten seconds.
    fn answer(uuid: &str, range: Range, value: Option<f64>) -> Result<String, String> {
        let n = range.span_ms() / 10_000;
        let points: Vec<(u64, Option<f64>)> =
            (0..n.min(1000)).map(|index| (range.from_ms + index * 10_000, value)).collect();
        let mut history = fold::tests::history(10_000, &points);
        (history.gpu, history.from_ms, history.to_ms) = (uuid.to_owned(), range.from_ms, range.to_ms);
        Ok(serde_json::to_string(&history).expect("a history is JSON"))
    }

    fn standing(charted: &ChartState, gpus: &[Gpu]) -> ChartStatus {
        charted.standing(gpus, NOW, &charted.plot(gpus, &[], NOW, UTC))
    }

    #[test]
    fn chart_shows_its_status() {
        let gpus = [gpu("GPU-1")];
        let mut charted = ChartState::default();
        assert_eq!(standing(&charted, &[]), ChartStatus::NoGpu);
        assert_eq!(charted.ask(&gpus, 0, 0.0, 1200.0), None, "the agent's time is not known yet");
        assert_eq!(standing(&charted, &gpus), ChartStatus::Loading);
        let ask = charted.ask(&gpus, NOW, 0.0, 1200.0).expect("a request");
        charted.take(ask.number, Err("503".to_owned()), 100.0);
        assert!(matches!(standing(&charted, &gpus), ChartStatus::Failed(_)));
        charted.try_again();
        let ask = charted.ask(&gpus, NOW, 1000.0, 1200.0).expect("another");
        let range = charted.range(NOW);
        charted.take(ask.number, answer("GPU-1", range, None), 1100.0);
        assert_eq!(standing(&charted, &gpus), ChartStatus::NotGiven);
        let ask = charted.ask(&gpus, NOW, 100_000.0, 1200.0).expect("a later request");
        charted.take(ask.number, answer("GPU-1", range, Some(5e9)), 101_000.0);
        assert_eq!((standing(&charted, &gpus), charted.stale(&gpus)), (ChartStatus::Drawn, None));
        let ask = charted.ask(&gpus, NOW, 200_000.0, 1200.0).expect("and again");
        charted.take(ask.number, Err("503".to_owned()), 201_000.0);
        assert_eq!(standing(&charted, &gpus), ChartStatus::Drawn, "the previous chart stays");
        assert!(charted.stale(&gpus).is_some());
    }

    #[test]
    fn a_nearer_look_is_drawn_at_once_of_what_is_there() {
        let gpus = [gpu("GPU-1")];
        let mut charted = ChartState::default();
        let ask = charted.ask(&gpus, NOW, 0.0, 1200.0).expect("a request");
        charted.take(ask.number, answer("GPU-1", charted.range(NOW), Some(5e9)), 100.0);
        assert!(charted.look(NOW, |view, drawn| view.zoom(drawn, 0.25, 0.5, NOW)));
        assert_eq!(charted.range(NOW).span_ms(), SPANS_MS[0] / 4);
        assert_eq!(standing(&charted, &gpus), ChartStatus::Drawn);
        // A response for an earlier view does not change the drawing.
        let drawn = charted.range(NOW);
        charted.take(ask.number, answer("GPU-1", drawn, Some(9e9)), 200.0);
        assert_eq!(charted.range(NOW), drawn);
        assert!(charted.look(NOW, |view, _| view.back()));
        assert_eq!(charted.range(NOW), Window { span_ms: SPANS_MS[0], end_ms: None }.range(NOW));
    }

    #[test]
    fn chosen_gpu_is_restored_when_it_returns() {
        let gpus = [gpu("GPU-1"), gpu("GPU-2")];
        let charted = ChartState { gpu: Some("GPU-2".to_owned()), ..ChartState::default() };
        assert_eq!(charted.gpu(&gpus).map(|gpu| gpu.uuid.as_str()), Some("GPU-2"));
        assert_eq!(charted.gpu(&gpus[..1]).map(|gpu| gpu.uuid.as_str()), Some("GPU-1"));
        assert!(charted.gpu(&[]).is_none());
    }

    #[test]
    fn the_plans_peak_is_drawn_on_its_own_gpu_alone() {
        let gpus = [gpu("GPU-1")];
        let mut charted = ChartState::default();
        let ask = charted.ask(&gpus, NOW, 0.0, 1200.0).expect("a request");
        charted.take(ask.number, answer("GPU-1", charted.range(NOW), Some(5e9)), 100.0);
        let limits = |uuid: &str| {
            let planned = PlannedPeak { bytes: 9 << 30, from_ms: NOW - 1000 };
            charted.plot(&gpus, &[(uuid.to_owned(), planned)], NOW, UTC).limits.len()
        };
        assert_eq!(limits("GPU-1"), 2);
        assert_eq!(limits("GPU-2"), 1);
    }
}
