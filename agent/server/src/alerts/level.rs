//! A value and its limit: whether the value exceeds the limit, and for how long.

/// Time for which a value must exceed its limit to fire. A spike of a second does not fire.
const ON_AFTER_MS: u64 = 3000;
/// Time for which a value must stay below its limit to end the alert. An intermittent load then causes only one alert.
const OVER_AFTER_MS: u64 = 60_000;
/// A gap of this length in the observations restarts the wait.
const HOLE_MS: u64 = 5000;

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The alert fires.
    On,
    /// The alert is over.
    Over,
}

/// State of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    on: bool,
    /// Time since which the value contradicts `on`.
    other_since_ms: Option<u64>,
    reported_ms: u64,
}

impl Level {
    /// Creates the state of an alert that fired before the first observation.
    pub fn that_is_on() -> Self {
        Self { on: true, ..Self::default() }
    }

    /// Whether the alert fired and is not over.
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// Whether the value exceeds the limit and the alert has not fired yet.
    pub const fn is_rising(&self) -> bool {
        !self.on && self.other_since_ms.is_some()
    }

    /// Evaluates a value.
    pub fn step(&mut self, value: f64, bound: f64, margin: f64, time_ms: u64) -> Option<Edge> {
        // A clock that was set back also restarts the wait.
        if time_ms < self.reported_ms || time_ms - self.reported_ms > HOLE_MS {
            self.other_since_ms = None;
        }
        self.reported_ms = time_ms;
        // NaN is on neither side of the limit.
        let is_other = if self.on { value <= bound - margin } else { value > bound };
        if !is_other {
            self.other_since_ms = None;
            return None;
        }
        let since_ms = *self.other_since_ms.get_or_insert(time_ms);
        let (after_ms, edge) = if self.on { (OVER_AFTER_MS, Edge::Over) } else { (ON_AFTER_MS, Edge::On) };
        if time_ms.saturating_sub(since_ms) < after_ms {
            return None;
        }
        self.on = !self.on;
        self.other_since_ms = None;
        Some(edge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the edges and their seconds, for values that are observed ten times per second.
    fn edges(value: impl Fn(f64) -> f64, seconds: u64) -> Vec<(u64, Edge)> {
        let mut level = Level::default();
        let times = (0..10 * seconds).map(|tenth| 1_000_000 + 100 * tenth);
        let found_edges = times.filter_map(|time_ms| {
            let second = (time_ms - 1_000_000) as f64 / 1000.0;
            level.step(value(second), 80.0, 3.0, time_ms).map(|edge| ((time_ms - 1_000_000) / 1000, edge))
        });
        found_edges.collect()
    }

    #[test]
    fn a_value_that_stays_beyond_sets_off_one_alert() {
        assert_eq!(edges(|_| 80.0, 1000), [], "the bound itself is within the limit");
        assert_eq!(edges(|_| 81.0, 1000), [(3, Edge::On)]);
        assert_eq!(edges(|second| if second < 10.0 { 81.0 } else { 77.0 }, 1000), [(3, Edge::On), (70, Edge::Over)]);
        assert_eq!(
            edges(|second| if second < 10.0 { 81.0 } else { 77.5 }, 1000),
            [(3, Edge::On)],
            "too close to the bound"
        );
    }

    #[test]
    fn a_value_that_trembles_makes_no_flood() {
        let trembles = |period: f64| move |second: f64| if second % period < period / 2.0 { 90.0 } else { 10.0 };
        assert_eq!(edges(trembles(1.0), 3600), [], "it never stays beyond the bound");
        assert_eq!(edges(trembles(10.0), 3600), [(3, Edge::On)], "it stays beyond the bound but never within");
        assert!(edges(trembles(200.0), 3600).len() <= 36, "slow swings set off at most one alert each");
        assert_eq!(edges(|second| 80.0 + (second * 7.0).sin(), 3600), []);
    }

    #[test]
    fn gap_restarts_wait() {
        let mut level = Level::default();
        let mut step = |time_ms| level.step(90.0, 80.0, 3.0, time_ms);
        assert_eq!([0, 1000, 2900].map(&mut step), [None; 3]);
        assert_eq!(step(60_000), None, "the time between is unknown");
        assert_eq!([62_000, 63_000].map(&mut step), [None, Some(Edge::On)]);
        assert!(!level.is_rising(), "it is on");
        level = Level::default();
        let mut step = |time_ms| level.step(90.0, 80.0, 3.0, time_ms);
        assert_eq!([900_000, 901_000, 0, 1000].map(&mut step), [None; 4], "the clock was set back");
        assert_eq!([2000, 3000].map(&mut step), [None, Some(Edge::On)]);
        level = Level::default();
        level.step(90.0, 80.0, 3.0, 0);
        assert!(level.is_rising());
        level.step(80.0, 80.0, 3.0, 100);
        assert!(!level.is_rising());
        assert_eq!(Level::default().step(f64::NAN, 80.0, 3.0, 0), None);
    }
}
