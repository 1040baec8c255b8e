//! A minute as one path.

use std::collections::VecDeque;

use headroom_text::decimal;

/// The values at one moment, NaN if missing. Single precision is finer than any pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplePoint {
    /// The time, in milliseconds.
    pub time_ms: u64,
    /// The values of [`SPARKS`](super::gpu::SPARKS).
    pub values: [f32; 4],
}

/// The time span of the drawing, in milliseconds.
pub const SPAN_MS: u64 = 60_000;
/// The columns of the drawing, each half a second: it shows the highest of five samples.
pub const COLUMNS: usize = 120;
/// The height of the drawing.
pub const HEIGHT: f64 = 40.0;

/// The path of one of the sparklines, from its oldest column to the newest; empty without readings.
///
/// Columns begin at whole half seconds, so that the line scrolls without flicker.
pub fn path(recent: &VecDeque<SamplePoint>, which: usize, top: f64) -> String {
    let Some(newest) = recent.back() else { return String::new() };
    let width_ms = SPAN_MS / COLUMNS as u64;
    let last = newest.time_ms / width_ms;
    let mut columns = [f32::NAN; COLUMNS];
    for moment in recent.iter().rev() {
        let back = usize::try_from(last.saturating_sub(moment.time_ms / width_ms)).unwrap_or(COLUMNS);
        if back >= COLUMNS {
            break;
        }
        let at = COLUMNS - 1 - back;
        // `max` returns the number if the other operand is NaN.
        columns[at] = columns[at].max(moment.values[which]);
    }
    line(columns.iter().map(|value| (!value.is_nan()).then(|| f64::from(*value))), top, HEIGHT)
}

/// A line through columns, broken at longer gaps.
pub fn line(columns: impl Iterator<Item = Option<f64>>, top: f64, height: f64) -> String {
    let mut path = String::new();
    let mut empty = usize::MAX;
    for (x, value) in columns.enumerate() {
        let Some(value) = value else {
            empty = empty.saturating_add(1);
            continue;
        };
        // History in seconds leaves every other half second empty.
        path.push(if empty > BRIDGED_COLUMNS_MAX { 'M' } else { 'L' });
        empty = 0;
        path.push_str(&x.to_string());
        path.push(' ');
        path.push_str(&y_of(value, top, height));
    }
    // A single point is a line of no length, which round caps make visible.
    if path.starts_with('M') && !path.contains('L') {
        path.push_str("h.1");
    }
    path
}

/// The most columns without a reading that a line bridges.
const BRIDGED_COLUMNS_MAX: usize = 3;
/// The longest time between two readings of one line, in milliseconds, wherever columns begin.
pub const BRIDGED_MS: u64 = (BRIDGED_COLUMNS_MAX as u64 + 1) * (SPAN_MS / COLUMNS as u64);

/// A value's distance from the top.
pub fn y_of(value: f64, top: f64, height: f64) -> String {
    decimal::fixed((1.0 - (value / top.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)) * height, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: impl IntoIterator<Item = (u64, f32)>) -> VecDeque<SamplePoint> {
        values.into_iter().map(|(time_ms, value)| SamplePoint { time_ms, values: [value; 4] }).collect()
    }

    #[test]
    fn a_minute_has_a_point_every_half_second_and_the_highest_of_it() {
        let recent = moments((0..1200_u16).map(|tick| (u64::from(tick) * 100, if tick == 1003 { 80.0 } else { 20.0 })));
        let path = path(&recent, 0, 100.0);
        assert_eq!(path.matches('L').count() + path.matches('M').count(), 120);
        assert_eq!(path.matches(" 8.0").count(), 1, "{path}");
        assert!(path.starts_with("M0 32.0L1 32.0") && path.contains("L119 32.0"));
    }

    #[test]
    fn where_nothing_was_read_nothing_is_drawn() {
        assert_eq!(path(&VecDeque::new(), 0, 100.0), "");
        let recent = moments([(0, 50.0), (500, f32::NAN), (30_000, 50.0), (30_500, 50.0)]);
        let path = path(&recent, 0, 100.0);
        assert_eq!(path, "M58 20.0M118 20.0L119 20.0");
        assert_eq!(line([Some(1.0)].into_iter(), 1.0, 40.0), "M0 0.0h.1");
    }

    #[test]
    fn a_value_beyond_the_top_stays_in_the_drawing() {
        assert_eq!(y_of(300.0, 200.0, 40.0), "0.0");
        assert_eq!(y_of(1.0, 0.0, 40.0), "0.0", "a GPU without a limit");
        assert_eq!(y_of(-5.0, 200.0, 40.0), "40.0");
    }
}
