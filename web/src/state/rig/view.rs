//! Which part of history is looked at, and the way back from there.

use super::plot::Range;

const HOUR_MS: u64 = 3_600_000;
/// Spans that a press shows.
pub const SPANS_MS: [u64; 3] = [HOUR_MS, 24 * HOUR_MS, 30 * 24 * HOUR_MS];
/// Nearer than this there is nothing more to see: a sample a pixel.
const SPAN_MS_MIN: u64 = 30_000;
/// Steps back that are remembered.
const BACK_MAX: usize = 32;
/// Less of a chart's width than this was a click and no drag.
const DRAG_SHARE_MIN: f64 = 0.02;

/// A window onto history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How long.
    pub span_ms: u64,
    /// Its end; `None` follows now.
    pub end_ms: Option<u64>,
}

/// The window, and those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// What is looked at.
    pub window: Window,
    back: Vec<Window>,
}

impl Default for View {
    fn default() -> Self {
        Self { window: Window { span_ms: SPANS_MS[0], end_ms: None }, back: Vec::new() }
    }
}

impl View {
    /// The range that is looked at.
    pub fn range(&self, now_ms: u64) -> Range {
        let to_ms = self.window.end_ms.unwrap_or(now_ms).max(1);
        Range { from_ms: to_ms.saturating_sub(self.window.span_ms), to_ms }
    }

    fn go(&mut self, window: Window) {
        if window == self.window {
            return;
        }
        if self.back.len() == BACK_MAX {
            self.back.remove(0);
        }
        self.back.push(self.window);
        self.window = window;
    }

    /// Looks at the last hour, day or month.
    pub fn last(&mut self, span_ms: u64) {
        self.go(Window { span_ms, end_ms: None });
    }

    /// Looks at a part of the window, from one share of it to another; false where that was no part.
    pub fn zoom(&mut self, from: f64, to: f64, now_ms: u64) -> bool {
        let (from, to) = (from.min(to), from.max(to));
        if to - from < DRAG_SHARE_MIN {
            return false;
        }
        let range = self.range(now_ms);
        let (from_ms, to_ms) = (range.at(from), range.at(to));
        let span_ms = to_ms.saturating_sub(from_ms).max(SPAN_MS_MIN);
        // What ends at now goes on with it.
        let end_ms = (to < 1.0 || self.window.end_ms.is_some()).then_some(to_ms.max(from_ms + span_ms));
        self.go(Window { span_ms, end_ms });
        true
    }

    /// The window before; false where there is none.
    pub fn back(&mut self) -> bool {
        let before = self.back.pop();
        self.window = before.unwrap_or(self.window);
        before.is_some()
    }

    /// Whether there is a window before.
    pub const fn can_go_back(&self) -> bool {
        !self.back.is_empty()
    }

    /// Moves by a key; false where it means nothing here.
    pub fn key(&mut self, key: &str, now_ms: u64) -> bool {
        let Window { span_ms, end_ms } = self.window;
        let end = end_ms.unwrap_or(now_ms);
        let step = span_ms / 4;
        let window = match key {
            "ArrowLeft" => Window { span_ms, end_ms: Some(end.saturating_sub(step).max(span_ms)) },
            "ArrowRight" => {
                let end = end.saturating_add(step);
                Window { span_ms, end_ms: (end < now_ms).then_some(end) }
            }
            "+" | "=" => Window { span_ms: (span_ms / 2).max(SPAN_MS_MIN), end_ms },
            "-" => Window { span_ms: (span_ms * 2).min(SPANS_MS[2]), end_ms },
            "End" => Window { span_ms, end_ms: None },
            "Escape" | "Backspace" => return self.back(),
            _ => return false,
        };
        self.go(window);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000_000;

    #[test]
    fn a_drag_looks_nearer_and_a_double_click_goes_back() {
        let mut view = View::default();
        assert_eq!(view.range(NOW), Range { from_ms: NOW - HOUR_MS, to_ms: NOW });
        assert!(!view.zoom(0.5, 0.505, NOW), "a click");
        assert!(view.zoom(0.75, 0.25, NOW), "from right to left too");
        assert_eq!(view.range(NOW), Range { from_ms: NOW - HOUR_MS * 3 / 4, to_ms: NOW - HOUR_MS / 4 });
        assert_eq!(view.range(NOW + 5000), view.range(NOW), "what is over stays where it is");
        assert!(view.back() && !view.back());
        assert_eq!(view, View::default());
        assert!(view.zoom(0.5, 1.0, NOW));
        assert_eq!(view.window, Window { span_ms: HOUR_MS / 2, end_ms: None }, "what ends now goes on with it");
    }

    #[test]
    fn keys_move_and_zoom_within_bounds() {
        let mut view = View::default();
        for key in ["ArrowLeft", "+", "-", "ArrowRight", "End", "Escape"] {
            assert!(view.key(key, NOW), "{key}");
        }
        assert!(!view.key("a", NOW));
        for _ in 0..100 {
            view.key("+", NOW);
        }
        assert_eq!(view.window.span_ms, SPAN_MS_MIN);
        for _ in 0..100 {
            view.key("-", NOW);
            view.key("ArrowLeft", NOW);
        }
        assert_eq!(view.window.span_ms, SPANS_MS[2]);
        assert!(view.back.len() <= BACK_MAX);
        for _ in 0..100_000 {
            view.key("ArrowLeft", 1000);
        }
        assert!(view.range(NOW).from_ms <= view.range(NOW).to_ms);
        for _ in 0..10_000 {
            view.key("ArrowRight", NOW);
        }
        assert_eq!(view.window.end_ms, None, "nobody looks beyond now");
    }
}
