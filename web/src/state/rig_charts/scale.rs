//! The vertical axis of values: round levels, and the position of a value.

use headroom_text::decimal;

use crate::text;

/// The most levels; a chart with room for only two labels has two.
const LEVELS_MAX: u64 = 6;

/// A linear axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// The value at the bottom.
    pub low: f64,
    /// The value at the top, above the bottom's.
    pub high: f64,
    /// Grid lines: share of the height from the top, and the label.
    pub levels: Vec<(f64, String)>,
}

impl Scale {
    /// The axis from `low` to `high`. Labels are in multiples of `unit`: 2³⁰ bytes on an axis of GiB.
    pub fn new(low: f64, high: f64, unit: f64) -> Self {
        let high = if high > low { high } else { low + unit };
        let mut scale = Self { low, high, levels: vec![] };
        let (step, decimals) = round_step((high - low) / unit / LEVELS_MAX as f64);
        let first = (low / unit / step).ceil();
        // The step keeps the levels few; the bound holds despite rounding errors.
        for index in 0..=LEVELS_MAX + 1 {
            let level = (first + index as f64) * step;
            let y = scale.y(level * unit);
            // A level at the very top is included despite rounding errors.
            if y < -1e-9 {
                break;
            }
            scale.levels.push((y, number(level, decimals)));
        }
        scale
    }

    /// The position of a value, as a share of the height from the top.
    pub fn y(&self, value: f64) -> f64 {
        1.0 - (value - self.low) / (self.high - self.low)
    }
}

/// Formats a number with `decimals` decimals in the current language. A number too wide for an axis has the form of
/// [`power`].
pub fn number(value: f64, decimals: u32) -> String {
    if value.abs() >= WIDE_MIN { power(value) } else { plain(value, decimals) }
}

fn plain(value: f64, decimals: u32) -> String {
    let digits = text::table().number(&decimal::fixed(value.abs(), decimals));
    let is_nothing = digits.chars().all(|char| !char.is_ascii_digit() || char == '0');
    if value < 0.0 && !is_nothing { format!("−{digits}") } else { digits }
}

/// Formats a number of any size with about four digits: `0.0312`, `1.250`. Small and large ones have the form of
/// [`power`].
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        100.0.. => 1,
        1.0.. => 3,
        0.01.. => 4,
        _ => return power(value),
    };
    number(value, decimals)
}

/// Formats a loss to four decimals, as nanoGPT prints it. A very large one has the form of [`power`].
pub fn loss(value: f64) -> String {
    number(value, LOSS_DECIMALS)
}

/// A nonzero number in the notation of large and small numbers in configs: `6e-4`, `1.23e30`.
fn power(value: f64) -> String {
    let (mut mantissa, mut exponent) = (value, 0_i32);
    // A mantissa that rounds to one stays at this power, and one that rounds to ten belongs to the next.
    while mantissa.abs() < 0.9995 && exponent > -EXPONENT_MAX {
        (mantissa, exponent) = (mantissa * 10.0, exponent - 1);
    }
    while mantissa.abs() >= 9.995 && exponent < EXPONENT_MAX {
        (mantissa, exponent) = (mantissa / 10.0, exponent + 1);
    }
    let digits = plain(mantissa, 2);
    let digits = digits.trim_end_matches('0').trim_end_matches(|char: char| !char.is_ascii_digit());
    format!("{digits}e{exponent}")
}

/// The smallest number whose digits do not all fit beside an axis.
const WIDE_MIN: f64 = 1e5;
/// The decimals of a loss, as nanoGPT prints it.
const LOSS_DECIMALS: u32 = 4;
/// The exponent of the smallest positive float.
const EXPONENT_MAX: i32 = 324;

/// The smallest number of at least `least` that is 1, 2 or 5 times a power of ten, and the decimals of its multiples.
pub fn round_step(least: f64) -> (f64, u32) {
    /// The powers range from below any visible difference to beyond any reading.
    const POWERS: i32 = 18;
    for exponent in -6..POWERS {
        let power = if exponent < 0 { 1.0 / power_of_ten(-exponent) } else { power_of_ten(exponent) };
        for factor in [1.0, 2.0, 5.0] {
            if factor * power >= least * (1.0 - 1e-9) {
                return (factor * power, u32::try_from(-exponent).unwrap_or(0));
            }
        }
    }
    (power_of_ten(POWERS), 0)
}

/// Multiplication is exact, unlike repeated division by ten.
fn power_of_ten(exponent: i32) -> f64 {
    (0..exponent).fold(1.0, |power, _| power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(low: f64, high: f64, unit: f64, expected: &[&str]) {
        let levels: Vec<String> = Scale::new(low, high, unit).levels.into_iter().map(|(_, words)| words).collect();
        assert_eq!(levels, expected);
    }

    #[test]
    fn levels_are_round() {
        check(0.0, 100.0, 1.0, &["0", "20", "40", "60", "80", "100"]);
        check(0.0, 11.69 * 1_073_741_824.0, 1_073_741_824.0, &["0", "2", "4", "6", "8", "10"]);
        check(0.0, 3000.0, 1.0, &["0", "500", "1,000", "1,500", "2,000", "2,500", "3,000"]);
        check(2.7, 3.3, 1.0, &["2.7", "2.8", "2.9", "3.0", "3.1", "3.2", "3.3"]);
        check(-2.0, 2.0, 1.0, &["−2", "−1", "0", "1", "2"]);
        check(3.0, 3.0, 1.0, &["3.0", "3.2", "3.4", "3.6", "3.8", "4.0"]);
        check(0.0, 1e15, 1.0, &["0", "2e14", "4e14", "6e14", "8e14", "1e15"]);
    }

    #[test]
    fn figures_have_about_four_digits() {
        for (value, words) in [
            (0.0, "0"),
            (6e-4, "6e-4"),
            (-1.234e-7, "−1.23e-7"),
            (0.009_999, "1e-2"),
            (9.996e-4, "1e-3"),
            (0.0312, "0.0312"),
            (1.25, "1.250"),
            (1234.56, "1234.6"),
            (99_999.0, "99999.0"),
            (1e5, "1e5"),
            (9.994e29, "9.99e29"),
            (9.996e29, "1e30"),
            (-1e30, "−1e30"),
            (1.5e300, "1.5e300"),
            (5e-324, "4.94e-324"),
        ] {
            assert_eq!(figure(value), words);
        }
    }

    #[test]
    fn a_loss_has_four_decimals_for_as_long_as_they_have_room() {
        for (value, words) in
            [(2.0625, "2.0625"), (-0.5, "−0.5000"), (0.0, "0.0000"), (12_345.5, "12345.5000"), (1e30, "1e30")]
        {
            assert_eq!(loss(value), words);
        }
    }

    proptest! {
        #[test]
        fn levels_are_few_and_within(low in -1e3..1e12_f64, span in 1e-5..1e12_f64) {
            let scale = Scale::new(low, low + span, 1.0);
            prop_assert!(!scale.levels.is_empty() && scale.levels.len() <= 8, "{:?}", scale);
            prop_assert!(scale.levels.iter().all(|(y, _)| (-1e-6..=1.000_001).contains(y)), "{:?}", scale);
        }
    }
}
