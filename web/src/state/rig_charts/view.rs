//! The shown range of time: one of three that follow the newest time, or a zoomed one; and the history of earlier
//! ranges.

use std::collections::VecDeque;

const HOUR_MS: u64 = 3_600_000;
/// The ranges with a button: an hour, a day, thirty days.
pub const SPANS_MS: [u64; 3] = [HOUR_MS, 24 * HOUR_MS, 30 * 24 * HOUR_MS];
/// The shortest range: a hundred samples at full rate.
pub const SPAN_MS_MIN: u64 = 10_000;
/// The longest range: the retention of history.
pub const SPAN_MS_MAX: u64 = SPANS_MS[2];
/// The most remembered earlier ranges.
const BACK_MAX: usize = 32;
/// A drag shorter than this share of the width is a click.
const DRAG_SHARE_MIN: f64 = 0.015;
/// A range that ends within this share of the width before the newest time follows it.
const EDGE_SHARE: f64 = 0.01;
/// Turns of a wheel within this time in milliseconds count as one change of the range.
const WHEEL_MS: f64 = 700.0;
/// The steps of a key or a turn of the wheel: the zoom factor, and the share of the range to pan.
const ZOOM: f64 = 2.0;
const PAN_SHARE: f64 = 0.25;

/// A range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The start, in milliseconds.
    pub from_ms: u64,
    /// The end, in milliseconds, after the start.
    pub to_ms: u64,
}

impl Range {
    /// The duration in milliseconds, at least 1.
    pub fn span_ms(self) -> u64 {
        self.to_ms.saturating_sub(self.from_ms).max(1)
    }

    /// The position of a time as a share; below 0 or above 1 outside the range.
    pub fn share(self, time_ms: u64) -> f64 {
        let apart = time_ms.abs_diff(self.from_ms) as f64 / self.span_ms() as f64;
        if time_ms < self.from_ms { -apart } else { apart }
    }

    /// The time at a share.
    pub fn at(self, share: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a span, never negative"
        )]
        let ms = (share.clamp(0.0, 1.0) * self.span_ms() as f64).round() as u64;
        self.from_ms.saturating_add(ms)
    }
}

/// A time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The duration, in milliseconds.
    pub span_ms: u64,
    /// The end, in milliseconds; `None` follows the newest time.
    pub end_ms: Option<u64>,
}

impl Window {
    /// The range, given the newest time.
    pub fn range(self, newest_ms: u64) -> Range {
        let to_ms = self.end_ms.unwrap_or(newest_ms).max(self.span_ms);
        Range { from_ms: to_ms - self.span_ms, to_ms }
    }

    /// The window of a duration that ends at a time, clamped to the available history.
    fn within(span_ms: f64, end_ms: f64, newest_ms: u64) -> Self {
        let span_ms = span_ms.clamp(SPAN_MS_MIN as f64, SPAN_MS_MAX as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to valid times")]
        let [span_ms, end_ms] = [span_ms.round() as u64, end_ms.max(span_ms).round() as u64];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a span")]
        let edge_ms = (span_ms as f64 * EDGE_SHARE) as u64;
        Self { span_ms, end_ms: (end_ms.saturating_add(edge_ms) < newest_ms).then_some(end_ms) }
    }
}

/// The current window and the earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The current window.
    pub window: Window,
    /// The earlier windows, the latest last.
    back: VecDeque<Window>,
    /// The time of the last turn of the wheel, by the page's clock.
    wheel_at_ms: Option<f64>,
}

impl Default for View {
    fn default() -> Self {
        Self { window: Window { span_ms: SPANS_MS[0], end_ms: None }, back: VecDeque::new(), wheel_at_ms: None }
    }
}

impl View {
    fn go(&mut self, window: Window) {
        self.wheel_at_ms = None;
        if window == self.window {
            return;
        }
        if self.back.len() == BACK_MAX {
            self.back.pop_front();
        }
        self.back.push_back(self.window);
        self.window = window;
    }

    /// Selects one of the ranges with a button.
    pub fn choose(&mut self, span_ms: u64) {
        self.go(Window { span_ms, end_ms: None });
    }

    /// Zooms to the part between two shares of the drawn range; false for a click.
    pub fn zoom(&mut self, drawn: Range, from: f64, to: f64, newest_ms: u64) -> bool {
        let (from, to) = (from.min(to).clamp(0.0, 1.0), from.max(to).clamp(0.0, 1.0));
        // The comparison makes NaN a click too.
        let is_drag = to - from >= DRAG_SHARE_MIN;
        if !is_drag {
            return false;
        }
        let follows = self.window.end_ms.is_none() && to >= 1.0 - EDGE_SHARE;
        let (from_ms, to_ms) = (drawn.at(from), drawn.at(to));
        let mut window = Window::within(to_ms.saturating_sub(from_ms) as f64, to_ms as f64, newest_ms);
        window.end_ms = window.end_ms.filter(|_| !follows);
        self.go(window);
        true
    }

    /// Zooms around a share of the drawn range in response to a wheel. Successive turns add one earlier window.
    pub fn turn(&mut self, drawn: Range, share: f64, is_nearer: bool, newest_ms: u64, clock_ms: f64) {
        let goes_on = self.wheel_at_ms.is_some_and(|at_ms| clock_ms - at_ms < WHEEL_MS);
        let window = self.scaled(drawn, share, is_nearer, ZOOM.sqrt(), newest_ms);
        if goes_on {
            self.window = window;
        } else {
            self.go(window);
        }
        self.wheel_at_ms = Some(clock_ms);
    }

    /// The scaled window in which that share of the range keeps its position.
    fn scaled(&self, drawn: Range, share: f64, is_nearer: bool, factor: f64, newest_ms: u64) -> Window {
        let share = share.clamp(0.0, 1.0);
        let span_ms = self.window.span_ms as f64 * if is_nearer { 1.0 / factor } else { factor };
        let span_ms = span_ms.clamp(SPAN_MS_MIN as f64, SPAN_MS_MAX as f64);
        let end_ms = drawn.at(share) as f64 + (1.0 - share) * span_ms;
        Window::within(span_ms, end_ms, newest_ms)
    }

    /// Handles a key while the cursor is at that share of the drawn range; false if the key has no meaning here.
    pub fn key(&mut self, key: &str, drawn: Range, share: f64, newest_ms: u64) -> bool {
        let aside = |sign: f64| {
            let span_ms = self.window.span_ms as f64;
            Window::within(span_ms, drawn.to_ms as f64 + sign * PAN_SHARE * span_ms, newest_ms)
        };
        let window = match key {
            "PageUp" => aside(-1.0),
            "PageDown" => aside(1.0),
            "+" | "=" => self.scaled(drawn, share, true, ZOOM, newest_ms),
            "-" | "_" => self.scaled(drawn, share, false, ZOOM, newest_ms),
            "Escape" | "Backspace" => return self.back(),
            _ => return false,
        };
        self.go(window);
        true
    }

    /// Returns to the previous window. Returns false without one.
    pub fn back(&mut self) -> bool {
        self.wheel_at_ms = None;
        let before = self.back.pop_back();
        self.window = before.unwrap_or(self.window);
        before.is_some()
    }

    /// Returns whether there is a previous window.
    pub fn can_go_back(&self) -> bool {
        !self.back.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_795_000_000_000;

    fn drawn(view: &View) -> Range {
        view.window.range(NOW)
    }

    #[test]
    fn a_drag_looks_nearer_and_back_is_where_it_was() {
        let mut view = View::default();
        let hour = drawn(&view);
        assert_eq!(hour, Range { from_ms: NOW - HOUR_MS, to_ms: NOW });
        assert!(!view.zoom(hour, 0.5, 0.505, NOW), "a click");
        assert!(!view.zoom(hour, f64::NAN, 0.9, NOW) && !view.can_go_back());
        assert!(view.zoom(hour, 0.75, 0.25, NOW), "from right to left too");
        assert_eq!(drawn(&view), Range { from_ms: NOW - HOUR_MS * 3 / 4, to_ms: NOW - HOUR_MS / 4 });
        assert_eq!(view.window.range(NOW + 5000), drawn(&view), "a past window does not move");
        assert!(view.back() && !view.back());
        assert_eq!(view, View::default());
    }

    #[test]
    fn view_at_newest_follows_newest() {
        let mut view = View::default();
        assert!(view.zoom(drawn(&view), 0.5, 1.0, NOW));
        assert_eq!(view.window, Window { span_ms: HOUR_MS / 2, end_ms: None });
        // The drawing is some time old, and the pointer is at its right edge.
        let before = view.window.range(NOW - 20_000);
        assert!(view.zoom(before, 0.5, 0.995, NOW));
        assert_eq!(view.window.end_ms, None);
    }

    #[test]
    fn turns_of_a_wheel_are_one_way_back() {
        let mut view = View::default();
        for turn in 0..6 {
            view.turn(drawn(&view), 0.5, true, NOW, f64::from(turn) * 100.0);
        }
        assert_eq!(view.window.span_ms, HOUR_MS / 8);
        view.turn(drawn(&view), 0.5, false, NOW, 5000.0);
        assert!(view.back() && view.back() && !view.back());
        assert_eq!(view, View::default());
    }

    #[test]
    fn keys_stay_within_what_there_is() {
        let mut view = View::default();
        for _ in 0..100 {
            view.key("+", drawn(&view), 0.3, NOW);
        }
        assert_eq!(view.window.span_ms, SPAN_MS_MIN);
        for _ in 0..100 {
            view.key("-", drawn(&view), 0.3, NOW);
        }
        assert_eq!(view.window.span_ms, SPAN_MS_MAX);
        for _ in 0..1000 {
            view.key("PageDown", drawn(&view), 0.3, NOW);
        }
        assert_eq!(view.window.end_ms, None, "the window does not extend past now");
        for _ in 0..10_000 {
            view.key("PageUp", drawn(&view), 0.3, NOW);
        }
        assert_eq!(drawn(&view).from_ms, 0, "nor before 1970");
        assert!(view.back.len() <= BACK_MAX);
        assert!(!view.key("a", drawn(&view), 0.3, NOW));
    }

    #[derive(Clone, Debug)]
    enum Move {
        Choose(usize),
        Zoom(f64, f64),
        Turn(f64, bool),
        Key(&'static str, f64),
        Back,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            (0_usize..3).prop_map(Move::Choose),
            (-0.5..1.5, -0.5..1.5).prop_map(|(from, to)| Move::Zoom(from, to)),
            (0.0..1.0, any::<bool>()).prop_map(|(share, is_nearer)| Move::Turn(share, is_nearer)),
            (prop::sample::select(vec!["+", "-", "PageUp", "PageDown", "Escape"]), 0.0..1.0)
                .prop_map(|(key, share)| Move::Key(key, share)),
            Just(Move::Back),
        ];
        prop::collection::vec(one, 0..40)
    }

    fn made(view: &mut View, one: &Move, clock_ms: f64) {
        let range = drawn(view);
        match one {
            Move::Choose(index) => view.choose(SPANS_MS[*index]),
            Move::Zoom(from, to) => drop(view.zoom(range, *from, *to, NOW)),
            Move::Turn(share, is_nearer) => view.turn(range, *share, *is_nearer, NOW, clock_ms),
            Move::Key(key, share) => drop(view.key(key, range, *share, NOW)),
            Move::Back => drop(view.back()),
        }
    }

    proptest! {
        #[test]
        fn view_stays_within_bounds(moves in moves()) {
            let mut view = View::default();
            for (index, one) in moves.iter().enumerate() {
                made(&mut view, one, index as f64 * 500.0);
                let range = drawn(&view);
                prop_assert!((SPAN_MS_MIN..=SPAN_MS_MAX).contains(&range.span_ms()), "{:?}", view);
                prop_assert!(range.to_ms <= NOW && view.back.len() <= BACK_MAX, "{:?}", view);
            }
        }

        #[test]
        fn back_undoes_a_nearer_look(moves in moves(), from in 0.0..1.0, to in 0.0..1.0) {
            let mut view = View::default();
            for one in &moves {
                made(&mut view, one, 0.0);
            }
            let before = view.window;
            if view.zoom(drawn(&view), from, to, NOW) && view.window != before {
                prop_assert!(view.back());
            }
            prop_assert_eq!(view.window, before);
        }

        #[test]
        fn zoom_keeps_point_under_pointer(share in 0.1..0.9) {
            let mut view = View::default();
            view.choose(SPANS_MS[1]);
            let before = drawn(&view);
            let time_ms = before.at(share);
            view.turn(before, share, true, NOW, 0.0);
            prop_assert!((drawn(&view).share(time_ms) - share).abs() < 0.02);
        }
    }
}
