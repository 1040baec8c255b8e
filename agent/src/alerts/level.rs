//! A value and its bound: whether it is beyond, and for how long.

/// How long a value has to stay beyond its bound: a spike of a second is none.
const ON_AFTER_MS: u64 = 3000;
/// How long it has to stay well within to be over, so that a load that comes and goes is one alert.
const OVER_AFTER_MS: u64 = 60_000;
/// A hole so long in what is told begins the wait anew.
const HOLE_MS: u64 = 5000;

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The alert goes off.
    On,
    /// It is over.
    Over,
}

/// How a rule stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    on: bool,
    /// Since when the value is on the other side of what `on` says.
    other_since_ms: Option<u64>,
    told_ms: u64,
}

impl Level {
    /// Of an alert that went off before anything was told.
    pub fn that_is_on() -> Self {
        Self { on: true, ..Self::default() }
    }

    /// Whether the alert went off and is not over.
    pub const fn is_on(&self) -> bool {
        self.on
    }

    /// Whether the value is beyond the bound and the alert did not go off yet.
    pub const fn is_rising(&self) -> bool {
        !self.on && self.other_since_ms.is_some()
    }

    /// Takes a value.
    pub fn step(&mut self, value: f64, bound: f64, margin: f64, time_ms: u64) -> Option<Edge> {
        // So does a clock that was set back.
        if time_ms < self.told_ms || time_ms - self.told_ms > HOLE_MS {
            self.other_since_ms = None;
        }
        self.told_ms = time_ms;
        // A value that is no number is on neither side.
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

    /// Edges and the seconds at which they are, of values that are told ten times a second.
    fn edges(value: impl Fn(f64) -> f64, seconds: u64) -> Vec<(u64, Edge)> {
        let mut level = Level::default();
        let times = (0..10 * seconds).map(|tenth| 1_000_000 + 100 * tenth);
        let told = times.filter_map(|time_ms| {
            let second = (time_ms - 1_000_000) as f64 / 1000.0;
            level.step(value(second), 80.0, 3.0, time_ms).map(|edge| ((time_ms - 1_000_000) / 1000, edge))
        });
        told.collect()
    }

    #[test]
    fn a_value_that_stays_beyond_sets_off_one_alert() {
        assert_eq!(edges(|_| 80.0, 1000), [], "the bound itself is within");
        assert_eq!(edges(|_| 81.0, 1000), [(3, Edge::On)]);
        assert_eq!(edges(|second| if second < 10.0 { 81.0 } else { 77.0 }, 1000), [(3, Edge::On), (70, Edge::Over)]);
        assert_eq!(edges(|second| if second < 10.0 { 81.0 } else { 77.5 }, 1000), [(3, Edge::On)], "not well within");
    }

    #[test]
    fn a_value_that_trembles_makes_no_flood() {
        let trembles = |period: f64| move |second: f64| if second % period < period / 2.0 { 90.0 } else { 10.0 };
        assert_eq!(edges(trembles(1.0), 3600), [], "it never stays");
        assert_eq!(edges(trembles(10.0), 3600), [(3, Edge::On)], "it stays beyond, and never within");
        assert!(edges(trembles(200.0), 3600).len() <= 36, "once in a while is told once in a while");
        assert_eq!(edges(|second| 80.0 + (second * 7.0).sin(), 3600), []);
    }

    #[test]
    fn a_hole_begins_the_wait_anew() {
        let mut level = Level::default();
        let mut step = |time_ms| level.step(90.0, 80.0, 3.0, time_ms);
        assert_eq!([0, 1000, 2900].map(&mut step), [None; 3]);
        assert_eq!(step(60_000), None, "what was between is not known");
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
