//! Requests for ranges of a GPU's history, and the cache of responses.

use std::collections::VecDeque;

use headroom_protocol::{
    history::{History, POINTS_MAX},
    metric::Group,
};

use super::view::{Range, Window};
use crate::text::{self, Text};

/// The most cached responses, so that going back or changing the GPU is immediate. Each takes some hundred thousand
/// bytes.
const KEPT_MAX: usize = 6;
/// Pixels per point. The band between a point's extremes shows the values in between.
const PX_PER_POINT: f64 = 2.0;
/// The requested number of points is a multiple of this. Resizing the window thus causes one request instead of one per
/// pixel.
const POINTS_STEP: u64 = 120;
/// The shortest time between requests in milliseconds: a wheel turns faster than responses arrive.
const ASK_APART_MS: f64 = 250.0;
/// The bounds in milliseconds for the refresh of a range that follows the newest time. Within them, it refreshes with
/// each new point.
const FOLLOW_MS: [u64; 2] = [5_000, 60_000];
/// The timeout of a request, in milliseconds.
const ANSWER_MS_MAX: f64 = 20_000.0;
/// The delay before the retry of a failed request, in milliseconds.
const RETRY_MS: f64 = 10_000.0;

/// The data to show, independent of the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The group of readings.
    pub group: Group,
    /// The GPU's UUID; empty for the machine.
    pub gpu: String,
    /// The time window.
    pub window: Window,
    /// The most points.
    pub n_points: u64,
}

/// The number of points for a plot of `width_px` pixels.
pub fn points_for(width_px: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float becomes the nearest it can")]
    let n_points = (width_px / PX_PER_POINT) as u64;
    n_points.clamp(1, POINTS_MAX).next_multiple_of(POINTS_STEP).min(POINTS_MAX)
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// The request's serial number, which its response must name.
    pub number: u64,
    wanted: HistoryQuery,
    range: Range,
}

impl HistoryRequest {
    /// The path and query of the address.
    pub fn path(&self) -> String {
        let (Range { from_ms, to_ms }, n_points) = (self.range, self.wanted.n_points);
        let gpu = encoded(&self.wanted.gpu);
        let group = match self.wanted.group {
            Group::Fast => "",
            Group::Slow => "&group=slow",
            Group::Host => "&group=host",
        };
        format!("/api/history?gpu={gpu}&from_ms={from_ms}&to_ms={to_ms}&points={n_points}{group}")
    }
}

/// Percent-encodes a text for a query.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Requests and responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feed {
    n_asked: u64,
    /// The newest request and its time, by the page's clock.
    asked: Option<(HistoryRequest, f64)>,
    /// Whether its response is pending.
    waits: bool,
    /// The newest answered request and the time of its response.
    answered: Option<(HistoryQuery, f64)>,
    /// The newest failed request, its time, and the reason.
    failed: Option<(HistoryQuery, f64, Text)>,
    /// The cached responses, the newest last.
    kept: VecDeque<(Group, History)>,
}

impl Feed {
    /// The request to make now, if any.
    pub fn ask(&mut self, wanted: &HistoryQuery, newest_ms: u64, clock_ms: f64) -> Option<HistoryRequest> {
        let since = |at_ms: f64| clock_ms - at_ms;
        if let Some((ask, at_ms)) = &self.asked {
            let waits = self.waits && ask.wanted == *wanted && since(*at_ms) < ANSWER_MS_MAX;
            if waits || since(*at_ms) < ASK_APART_MS {
                return None;
            }
        }
        if self.failed.as_ref().is_some_and(|(failed, at_ms, _)| failed == wanted && since(*at_ms) < RETRY_MS) {
            return None;
        }
        if let Some((answered, at_ms)) = self.answered.as_ref().filter(|(answered, _)| answered == wanted) {
            let step_ms = self.kept.back().map_or(0, |(_, history)| history.step_ms);
            let follow_ms = step_ms.clamp(FOLLOW_MS[0], FOLLOW_MS[1]) as f64;
            if answered.window.end_ms.is_some() || since(*at_ms) < follow_ms {
                return None;
            }
        }
        self.n_asked += 1;
        let ask = HistoryRequest { number: self.n_asked, wanted: wanted.clone(), range: wanted.range(newest_ms) };
        self.asked = Some((ask.clone(), clock_ms));
        self.waits = true;
        Some(ask)
    }

    /// The time in milliseconds until [`Feed::ask`] can return another request.
    pub fn rest_ms(&self, clock_ms: f64) -> f64 {
        self.asked.as_ref().map_or(0.0, |(_, at_ms)| (at_ms + ASK_APART_MS - clock_ms).clamp(0.0, ASK_APART_MS))
    }

    /// Takes a response and returns its range. `None` if it answers an older request or failed.
    pub fn take(&mut self, number: u64, answer: Result<String, String>, clock_ms: f64) -> Option<Range> {
        let (ask, _) = self.asked.clone().filter(|(ask, _)| self.waits && ask.number == number)?;
        self.waits = false;
        let HistoryRequest { wanted, range, .. } = ask;
        match answer.map(|json| read(&json, &wanted.gpu)) {
            Ok(Some(history)) => {
                self.failed = None;
                // A range that follows the newest time replaces its predecessor.
                let follows = wanted.window.end_ms.is_none();
                self.kept.retain(|(group, kept)| {
                    let is_same = (kept.from_ms, kept.to_ms) == (history.from_ms, history.to_ms)
                        || follows && kept.to_ms.abs_diff(kept.from_ms) == history.to_ms.abs_diff(history.from_ms);
                    *group != wanted.group || kept.gpu != history.gpu || !is_same
                });
                if self.kept.len() >= KEPT_MAX {
                    self.kept.pop_front();
                }
                self.kept.push_back((wanted.group, history));
                self.answered = Some((wanted, clock_ms));
                Some(range)
            }
            Ok(None) => {
                self.failed = Some((wanted, clock_ms, text::HISTORY_NO_HISTORY_ANSWER.into()));
                None
            }
            Err(why) => {
                self.failed = Some((wanted, clock_ms, text::history_failed(why)));
                None
            }
        }
    }

    /// Allows an immediate retry of a failed request.
    pub fn try_again(&mut self) {
        self.failed = None;
    }

    /// The reason why the wanted data is missing.
    pub fn failure(&self, wanted: &HistoryQuery) -> Option<&Text> {
        self.failed.as_ref().filter(|(failed, ..)| failed == wanted).map(|(.., why)| why)
    }

    /// Returns whether the wanted data has arrived.
    pub fn has_answered(&self, wanted: &HistoryQuery) -> bool {
        self.answered.as_ref().is_some_and(|(answered, _)| answered == wanted)
    }

    /// The cached history of a group and a GPU that covers most of a range; of several, the finest.
    pub fn best(&self, group: Group, gpu: &str, range: Range) -> Option<&History> {
        let overlap =
            |history: &History| history.to_ms.min(range.to_ms).saturating_sub(history.from_ms.max(range.from_ms));
        let of_group = self.kept.iter().filter(|(kept, _)| *kept == group).map(|(_, history)| history);
        let of_gpu = of_group.filter(|history| history.gpu == gpu && overlap(history) > 0);
        of_gpu.max_by_key(|history| (overlap(history), std::cmp::Reverse(history.step_ms)))
    }
}

impl HistoryQuery {
    /// The range to request, rounded up to a whole second.
    pub fn range(&self, newest_ms: u64) -> Range {
        self.window.range(newest_ms.div_ceil(1000).saturating_mul(1000))
    }
}

/// Parses a history of that GPU; `None` if it is invalid or too long.
fn read(json: &str, gpu: &str) -> Option<History> {
    // Two more than requested: points that begin before the range and end after it.
    const POINTS_READ_MAX: u64 = POINTS_MAX + 2;
    let history: History = serde_json::from_str(json).ok()?;
    let ascends = history.times_ms.windows(2).all(|two| two[0] < two[1]);
    let is_whole = ascends && history.step_ms > 0 && history.to_ms > history.from_ms;
    (is_whole && history.gpu == gpu && history.times_ms.len() as u64 <= POINTS_READ_MAX).then_some(history)
}

#[cfg(test)]
mod tests {
    use super::{super::view::SPANS_MS, *};

    const NOW: u64 = 1_795_000_000_500;

    fn wanted(window: Window) -> HistoryQuery {
        HistoryQuery { group: Group::Fast, gpu: "GPU-1".to_owned(), window, n_points: 600 }
    }

    fn hour() -> HistoryQuery {
        wanted(Window { span_ms: SPANS_MS[0], end_ms: None })
    }

    fn answer(ask: &HistoryRequest, step_ms: u64) -> Result<String, String> {
        let history = History {
            gpu: ask.wanted.gpu.clone(),
            from_ms: ask.range.from_ms,
            to_ms: ask.range.to_ms,
            step_ms,
            times_ms: vec![ask.range.from_ms],
            series: vec![],
        };
        Ok(serde_json::to_string(&history).expect("a history is JSON"))
    }

    #[test]
    fn a_request_says_gpu_range_and_points() {
        let mut feed = Feed::default();
        let of_gpu = HistoryQuery { gpu: "MIG-GPU-1/7&x=ü".to_owned(), ..hour() };
        let ask = feed.ask(&of_gpu, NOW, 0.0).expect("nothing is there");
        assert_eq!(
            ask.path(),
            "/api/history?gpu=MIG-GPU-1%2F7%26x%3D%C3%BC&from_ms=1794996401000&to_ms=1795000001000&points=600"
        );
    }

    #[test]
    fn cached_history_is_per_reading() {
        let mut feed = Feed::default();
        let slow = HistoryQuery { group: Group::Slow, ..hour() };
        let ask = feed.ask(&slow, NOW, 0.0).expect("nothing is there");
        assert!(ask.path().ends_with("&points=600&group=slow"), "{}", ask.path());
        feed.take(ask.number, answer(&ask, 1000), 100.0).expect("it is the newest");
        let range = hour().range(NOW);
        assert_eq!(feed.best(Group::Fast, "GPU-1", range), None);
        assert!(feed.best(Group::Slow, "GPU-1", range).is_some());
        let ask = feed.ask(&hour(), NOW, 1000.0).expect("others");
        feed.take(ask.number, answer(&ask, 100), 1100.0).expect("it is the newest");
        assert_eq!(feed.best(Group::Slow, "GPU-1", range).map(|history| history.step_ms), Some(1000), "both stay");
    }

    #[test]
    fn live_range_is_refetched_and_past_range_is_not() {
        let mut feed = Feed::default();
        let ask = feed.ask(&hour(), NOW, 0.0).expect("nothing is there");
        assert_eq!(feed.ask(&hour(), NOW, 1000.0), None, "it waits for its answer");
        assert!(feed.take(ask.number, answer(&ask, 10_000), 1000.0).is_some());
        assert!(feed.has_answered(&hour()));
        assert_eq!(feed.ask(&hour(), NOW + 9000, 10_900.0), None);
        assert!(feed.ask(&hour(), NOW + 10_000, 11_000.0).is_some());
        let past = wanted(Window { span_ms: SPANS_MS[0], end_ms: Some(NOW - 10_000_000) });
        let ask = feed.ask(&past, NOW, 12_000.0).expect("another window");
        assert!(feed.take(ask.number, answer(&ask, 10_000), 12_100.0).is_some());
        assert_eq!(feed.ask(&past, NOW, 1e9), None);
    }

    #[test]
    fn an_answer_to_an_older_request_is_dropped() {
        let mut feed = Feed::default();
        let first = feed.ask(&hour(), NOW, 0.0).expect("nothing is there");
        let day = wanted(Window { span_ms: SPANS_MS[1], end_ms: None });
        assert_eq!(feed.ask(&day, NOW, 100.0), None, "too soon after the other");
        assert!((feed.rest_ms(100.0) - 150.0).abs() < 1e-9);
        let second = feed.ask(&day, NOW, 300.0).expect("another window");
        assert_eq!(feed.take(first.number, answer(&first, 1000), 400.0), None);
        assert_eq!(feed.best(Group::Fast, "GPU-1", hour().range(NOW)), None);
        assert_eq!(feed.take(second.number, answer(&second, 1000), 500.0), Some(day.range(NOW)));
        assert_eq!(feed.take(second.number, answer(&second, 1000), 600.0), None, "nor an answer twice");
    }

    #[test]
    fn failed_request_reports_cause_and_retries() {
        let mut feed = Feed::default();
        let ask = feed.ask(&hour(), NOW, 0.0).expect("nothing is there");
        assert_eq!(feed.take(ask.number, Err("503 stopping".to_owned()), 500.0), None);
        assert!(feed.failure(&hour()).is_some_and(|why| why.to_string().contains("503 stopping")));
        assert_eq!(feed.ask(&hour(), NOW, 2000.0), None);
        let mut by_hand = feed.clone();
        by_hand.try_again();
        assert!(by_hand.ask(&hour(), NOW, 2000.0).is_some());
        assert!(feed.ask(&hour(), NOW, 10_500.0).is_some());
    }

    #[test]
    fn a_request_that_is_never_answered_is_given_up() {
        let mut feed = Feed::default();
        assert!(feed.ask(&hour(), NOW, 0.0).is_some());
        assert_eq!(feed.ask(&hour(), NOW, 19_000.0), None);
        assert!(feed.ask(&hour(), NOW, 20_000.0).is_some());
    }

    #[test]
    fn no_history_is_no_answer() {
        let whole = |change: &dyn Fn(&mut History)| {
            let mut history = History {
                gpu: "GPU-1".to_owned(),
                from_ms: 0,
                to_ms: 1000,
                step_ms: 100,
                times_ms: vec![0, 100],
                series: vec![],
            };
            change(&mut history);
            serde_json::to_string(&history).expect("a history is JSON")
        };
        assert!(read(&whole(&|_| ()), "GPU-1").is_some());
        for json in [
            "<!doctype html>".to_owned(),
            whole(&|history| history.gpu = "GPU-2".to_owned()),
            whole(&|history| history.times_ms.reverse()),
            whole(&|history| history.step_ms = 0),
            whole(&|history| history.to_ms = 0),
            whole(&|history| history.times_ms = (0..3000).collect()),
        ] {
            assert_eq!(read(&json, "GPU-1"), None, "{json:.60}");
        }
    }

    #[test]
    fn little_is_kept_and_the_best_of_it_is_shown() {
        let mut feed = Feed::default();
        let mut clock_ms = 0.0;
        let mut get = |feed: &mut Feed, window: Window, step_ms: u64| {
            clock_ms += 100_000.0;
            let ask = feed.ask(&wanted(window), NOW, clock_ms).expect("another window, or later");
            feed.take(ask.number, answer(&ask, step_ms), clock_ms).expect("it is the newest")
        };
        for _ in 0..3 {
            get(&mut feed, Window { span_ms: SPANS_MS[1], end_ms: None }, 120_000);
        }
        assert_eq!(feed.kept.len(), 1, "a newer answer replaces the kept one");
        let near = get(&mut feed, Window { span_ms: 600_000, end_ms: Some(NOW - 3_600_000) }, 1000);
        assert_eq!(feed.best(Group::Fast, "GPU-1", near).map(|history| history.step_ms), Some(1000));
        let wide = Range { from_ms: near.from_ms - 1000, to_ms: near.to_ms };
        assert_eq!(feed.best(Group::Fast, "GPU-1", wide).map(|history| history.step_ms), Some(120_000));
        assert_eq!(feed.best(Group::Fast, "GPU-2", near), None);
        for index in 0..20 {
            get(&mut feed, Window { span_ms: 600_001 + index, end_ms: Some(NOW - 3_600_000) }, 1000);
            assert!(feed.kept.len() <= KEPT_MAX);
        }
    }

    #[test]
    fn points_go_with_the_width_and_are_bounded() {
        for (width_px, n_points) in [(0.0, 120), (360.0, 240), (1200.0, 600), (f64::NAN, 120), (1e9, POINTS_MAX)] {
            assert_eq!(points_for(width_px), n_points, "{width_px}");
        }
    }
}
