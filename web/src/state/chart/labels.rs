//! Words on the drawing: the names of bands, and the failure.

use super::{N_BANDS, band_name, column_at_share};

/// The minimum height of a band name's box, and its minimum widths per column of text, as shares of the drawing. The
/// second width is for wide drawings, where no box has the first. The page omits a name whose box is too small.
const LABEL_HEIGHT_MIN: f64 = 0.03;
const LABEL_WIDTHS_MIN: [f64; 2] = [0.0128, 0.008];
/// The largest box of the words at the failure, with and without their second sentence: shares of the width and the
/// height.
const WORDS: [[f64; 2]; 2] = [[0.38, 0.2], [0.18, 0.11]];

/// A label in the largest box that fits inside its band, in shares of the chart from the top left.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The band that it names.
    pub band: usize,
    /// The box's left edge.
    pub x: f64,
    /// The box's width.
    pub width: f64,
    /// The box's upper edge.
    pub y: f64,
    /// The box's height.
    pub height: f64,
}

/// The position of the failure and of its words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureMark {
    /// The failure's line, as a share of the width.
    pub x: f64,
    /// Whether the words are to the left of the line.
    pub is_left: bool,
    /// The upper edge of the words, as a share of the height from the top.
    pub top: f64,
    /// Whether both sentences fit.
    pub is_long: bool,
}

/// Places the words beside a failure's line. If possible, they overlap neither the reserved memory nor the capacity
/// line.
pub fn words_at(x: f64, n: usize, capacity_y: f64, reserved: impl Fn(usize) -> f64) -> FailureMark {
    for (index, [width, height]) in WORDS.into_iter().enumerate() {
        for (top, is_left) in [0.0, 0.2, 0.4, 0.6, 0.8].into_iter().flat_map(|top| [(top, false), (top, true)]) {
            let start = if is_left { x - width } else { x };
            let bottom = top + height;
            if start < 0.0 || start + width > 1.0 || (top - 0.1..bottom).contains(&capacity_y) {
                continue;
            }
            let columns = column_at_share(n, start)..=column_at_share(n, start + width);
            // A step of the line covers the heights of both its ends.
            let ends = columns.map(&reserved).fold([1.0_f64, 0.0], |[low, high], y| [low.min(y), high.max(y)]);
            if ends[1] < top || ends[0] > bottom {
                return FailureMark { x, is_left, top, is_long: index == 0 };
            }
        }
    }
    FailureMark { x, is_left: x > 0.6, top: 0.0, is_long: false }
}

/// The columns that a text occupies in a fixed-width font; an ideograph occupies two.
fn text_columns(text: &str) -> usize {
    text.chars().map(|c| if c < '\u{1100}' { 1 } else { 2 }).sum()
}

/// The name of a band in the largest box inside it; `None` if no box is large enough.
pub fn label(band: usize, stacks: &[[u64; N_BANDS]], top: f64) -> Option<Label> {
    let columns = text_columns(band_name(band)) as f64;
    LABEL_WIDTHS_MIN.into_iter().find_map(|width| largest_box(band, stacks, top, columns * width))
}

fn largest_box(band: usize, stacks: &[[u64; N_BANDS]], top: f64, width_min: f64) -> Option<Label> {
    let n = stacks.len();
    let share = |columns: usize| columns as f64 / n.max(1) as f64;
    let step = (n / 110).max(1);
    let mut best: Option<(f64, Label)> = None;
    for start in (0..n).step_by(step) {
        let (mut floor, mut ceiling) = (0, u64::MAX);
        for (columns, stack) in stacks[start..].iter().enumerate() {
            floor = floor.max(if band == 0 { 0 } else { stack[band - 1] });
            ceiling = ceiling.min(stack[band]);
            let [low, high] = [floor, ceiling].map(|bytes| bytes as f64 / top);
            let height = high - low;
            if height < LABEL_HEIGHT_MIN {
                break;
            }
            let width = share(columns + 1);
            let area = width * height;
            if width >= width_min && best.as_ref().is_none_or(|(most, _)| area > *most) {
                best = Some((area, Label { band, x: share(start), width, y: 1.0 - high, height }));
            }
        }
    }
    best.map(|(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_in_largest_box_of_its_band() {
        // A high peak of two columns, and a lower stretch that is wide enough for a word.
        let mut stacks = vec![[0; N_BANDS]; 100];
        for (column, stack) in stacks.iter_mut().enumerate() {
            let thick = match column {
                10..12 => 90,
                40..80 => 30,
                _ => 2,
            };
            stack.fill(thick);
            stack[0] = 0;
        }
        let found = label(1, &stacks, 100.0).expect("there is room");
        assert_eq!((found.x, found.width), (0.4, 0.4));
        assert!((found.y - 0.7).abs() < 1e-9 && (found.height - 0.3).abs() < 1e-9);
        assert_eq!(label(2, &stacks, 100.0), None);
    }

    #[test]
    fn words_at_a_failure_keep_clear_of_the_lines_beside_it() {
        // Low at first, then near the top.
        let reserved = |column: usize| if column < 51 { 0.9 } else { 0.05 };
        let mark = words_at(0.5, 100, 0.7, reserved);
        assert_eq!((mark.is_left, mark.top, mark.is_long), (true, 0.0, true));
        // Both sentences would overlap the step.
        let mark = words_at(0.2, 100, 0.7, reserved);
        assert_eq!((mark.is_left, mark.top, mark.is_long), (false, 0.0, false));
        let mark = words_at(0.1, 100, 0.1, |_| 0.02);
        assert!(mark.top >= 0.2, "{mark:?}");
    }
}
