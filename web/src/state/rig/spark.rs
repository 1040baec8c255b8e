//! A minute as one path.

use std::collections::VecDeque;

use headroom_shared::decimal;

use super::card::Moment;

/// Time that is drawn.
pub const SPAN_MS: u64 = 60_000;
/// Columns of the drawing, each half a second: five samples, of which the highest is drawn.
pub const COLUMNS: usize = 120;
/// Height of the drawing.
pub const HEIGHT: f64 = 40.0;

/// The path of one of the sparks, from its oldest column to the newest; empty where nothing was read.
///
/// Columns lie at whole half seconds, so that the line moves on and does not flicker.
pub fn path(recent: &VecDeque<Moment>, which: usize, top: f64) -> String {
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
        // `max` takes the number where one of two is none.
        columns[at] = columns[at].max(moment.values[which]);
    }
    line(columns.iter().map(|value| (!value.is_nan()).then(|| f64::from(*value))), top, HEIGHT)
}

/// A line through columns; where there is nothing for a while it is broken.
pub fn line(columns: impl Iterator<Item = Option<f64>>, top: f64, height: f64) -> String {
    let mut path = String::new();
    let mut empty = usize::MAX;
    for (x, value) in columns.enumerate() {
        let Some(value) = value else {
            empty = empty.saturating_add(1);
            continue;
        };
        // A second's history leaves every other half second empty.
        path.push(if empty > BRIDGED_COLUMNS_MAX { 'M' } else { 'L' });
        empty = 0;
        path.push_str(&x.to_string());
        path.push(' ');
        path.push_str(&y_of(value, top, height));
    }
    // A point alone is a line of no length, which round ends make visible.
    if path.starts_with('M') && !path.contains('L') {
        path.push_str("h.1");
    }
    path
}

/// Columns without a reading that a line goes over.
const BRIDGED_COLUMNS_MAX: usize = 3;
/// Readings this far apart are still of one line, wherever columns begin.
pub const BRIDGED_MS: u64 = (BRIDGED_COLUMNS_MAX as u64 + 1) * (SPAN_MS / COLUMNS as u64);

/// A value's place from the top.
pub fn y_of(value: f64, top: f64, height: f64) -> String {
    decimal::fixed((1.0 - (value / top.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)) * height, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: impl IntoIterator<Item = (u64, f32)>) -> VecDeque<Moment> {
        values.into_iter().map(|(time_ms, value)| Moment { time_ms, values: [value; 4] }).collect()
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
        assert_eq!(y_of(1.0, 0.0, 40.0), "0.0", "a card without a limit");
        assert_eq!(y_of(-5.0, 200.0, 40.0), "40.0");
    }
}
