//! Which range of a card's history to ask for and when, and what of the answers is kept.

use std::collections::VecDeque;

use headroom_shared::protocol::history::{Group, History, POINTS_MAX};

use super::view::{Range, Window};
use crate::text::{self, Text};

/// Answers that are kept, so that the way back and another card are there at once. One has some hundred thousand bytes.
const KEPT_MAX: usize = 6;
/// Pixels to a point: the band between a point's extremes shows what is between.
const PX_PER_POINT: f64 = 2.0;
/// Points that are asked for come in such numbers, so that a window drawn larger by hand asks once and not at every pixel.
const POINTS_STEP: u64 = 120;
/// Requests are so far apart at least: a wheel turns faster than anybody answers.
const ASK_APART_MS: f64 = 250.0;
/// What follows the newest is asked for anew when there is a new point, but this often at most, and at least.
const FOLLOW_MS: [u64; 2] = [5_000, 60_000];
/// A request without an answer is given up after this.
const ANSWER_MS_MAX: f64 = 20_000.0;
/// One that failed is made again by itself after this.
const RETRY_MS: f64 = 10_000.0;

/// What is wanted, whatever time it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which readings.
    pub group: Group,
    /// The card's UUID; empty of the machine.
    pub gpu: String,
    /// What is looked at.
    pub window: Window,
    /// In so many points at most.
    pub n_points: u64,
}

/// Points for a plot of so many pixels.
pub fn points_for(width_px: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float becomes the nearest it can")]
    let n_points = (width_px / PX_PER_POINT) as u64;
    n_points.clamp(1, POINTS_MAX).next_multiple_of(POINTS_STEP).min(POINTS_MAX)
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Counts up: the answer has to name it.
    pub number: u64,
    wanted: Wanted,
    range: Range,
}

impl Ask {
    /// The address's path and query.
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

/// As a query has it.
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

/// Requests and answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feed {
    n_asked: u64,
    /// The newest request, and when it was made, by the page's clock.
    asked: Option<(Ask, f64)>,
    /// Whether it has no answer yet.
    waits: bool,
    /// When what was wanted last was answered.
    answered: Option<(Wanted, f64)>,
    /// What failed, when, and why.
    failed: Option<(Wanted, f64, Text)>,
    /// The newest last.
    kept: VecDeque<(Group, History)>,
}

impl Feed {
    /// The request to make now, if one is to be made.
    pub fn ask(&mut self, wanted: &Wanted, newest_ms: u64, clock_ms: f64) -> Option<Ask> {
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
        let ask = Ask { number: self.n_asked, wanted: wanted.clone(), range: wanted.range(newest_ms) };
        self.asked = Some((ask.clone(), clock_ms));
        self.waits = true;
        Some(ask)
    }

    /// How long to wait before asking again whether a request is to be made, where one is wanted at once.
    pub fn rest_ms(&self, clock_ms: f64) -> f64 {
        self.asked.as_ref().map_or(0.0, |(_, at_ms)| (at_ms + ASK_APART_MS - clock_ms).clamp(0.0, ASK_APART_MS))
    }

    /// Takes an answer: the range it is of. Nothing for one to an older request, and for one that failed.
    pub fn take(&mut self, number: u64, answer: Result<String, String>, clock_ms: f64) -> Option<Range> {
        let (ask, _) = self.asked.clone().filter(|(ask, _)| self.waits && ask.number == number)?;
        self.waits = false;
        let Ask { wanted, range, .. } = ask;
        match answer.map(|json| read(&json, &wanted.gpu)) {
            Ok(Some(history)) => {
                self.failed = None;
                // What follows the newest takes the place of what it was.
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

    /// Lets a request be made at once that failed before.
    pub fn try_again(&mut self) {
        self.failed = None;
    }

    /// Why what is wanted is not there.
    pub fn failure(&self, wanted: &Wanted) -> Option<&Text> {
        self.failed.as_ref().filter(|(failed, ..)| failed == wanted).map(|(.., why)| why)
    }

    /// Whether what is wanted was answered.
    pub fn has_answered(&self, wanted: &Wanted) -> bool {
        self.answered.as_ref().is_some_and(|(answered, _)| answered == wanted)
    }

    /// What is kept of such readings of a card that shows most of a range, and that most finely.
    pub fn best(&self, group: Group, gpu: &str, range: Range) -> Option<&History> {
        let overlap =
            |history: &History| history.to_ms.min(range.to_ms).saturating_sub(history.from_ms.max(range.from_ms));
        let of_group = self.kept.iter().filter(|(kept, _)| *kept == group).map(|(_, history)| history);
        let of_card = of_group.filter(|history| history.gpu == gpu && overlap(history) > 0);
        of_card.max_by_key(|history| (overlap(history), std::cmp::Reverse(history.step_ms)))
    }
}

impl Wanted {
    /// The range to ask for, to a whole second.
    pub fn range(&self, newest_ms: u64) -> Range {
        self.window.range(newest_ms.div_ceil(1000).saturating_mul(1000))
    }
}

/// A history of that card; nothing where it is none, or more than was to be expected.
fn read(json: &str, gpu: &str) -> Option<History> {
    // Two more than are asked for: points that begin before the range and end after it.
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

    fn wanted(window: Window) -> Wanted {
        Wanted { group: Group::Fast, gpu: "GPU-1".to_owned(), window, n_points: 600 }
    }

    fn hour() -> Wanted {
        wanted(Window { span_ms: SPANS_MS[0], end_ms: None })
    }

    fn answer(ask: &Ask, step_ms: u64) -> Result<String, String> {
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
    fn a_request_says_card_range_and_points() {
        let mut feed = Feed::default();
        let of_card = Wanted { gpu: "MIG-GPU-1/7&x=ü".to_owned(), ..hour() };
        let ask = feed.ask(&of_card, NOW, 0.0).expect("nothing is there");
        assert_eq!(
            ask.path(),
            "/api/history?gpu=MIG-GPU-1%2F7%26x%3D%C3%BC&from_ms=1794996401000&to_ms=1795000001000&points=600"
        );
    }

    #[test]
    fn what_is_kept_of_other_readings_is_not_taken_for_these() {
        let mut feed = Feed::default();
        let slow = Wanted { group: Group::Slow, ..hour() };
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
    fn what_follows_is_asked_for_anew_and_what_is_over_is_not() {
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
        assert_eq!(feed.take(second.number, answer(&second, 1000), 600.0), None, "nor one twice");
    }

    #[test]
    fn what_failed_says_why_and_is_made_again_by_itself_and_at_once_by_hand() {
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
        assert_eq!(feed.kept.len(), 1, "what follows takes its own place");
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
