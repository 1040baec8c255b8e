//! The chart's geometry: columns across, thousandths of the height down. It stretches to whatever room it has.

use headroom_shared::{
    decimal,
    gpt::tensors::Category,
    memory::{
        program::Phase,
        timeline::{Point, Timeline},
    },
};

use super::{answer::Planned, course::failure_column};
use crate::text::{self, t};

/// The height in the paths' own units.
pub const HEIGHT: u64 = 1000;
/// Bands, from the bottom: other programs, the context, then the categories in their fixed order.
pub const N_BANDS: usize = 2 + Category::ALL.len();
/// A band is labelled inside where it is at least this share of the height over this share of the width.
const LABEL_HEIGHT_MIN: f64 = 0.06;
const LABEL_WIDTH_MIN: f64 = 0.1;
/// Bands that are thin for most of a run are told apart by strokes across them, so many columns apart.
pub const HATCHES: [(usize, usize); 3] = [(3, 4), (4, 10), (5, 2)];
/// The room that the words at the failure take at most, with and without their second sentence: shares of the width
/// and of the height.
const WORDS: [[f64; 2]; 2] = [[0.38, 0.2], [0.18, 0.11]];
/// Room above the highest line.
const HEADROOM_SHARE: f64 = 1.06;

/// A label in the largest box that its band has room for; shares of the chart from the top left.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The band it names.
    pub band: usize,
    /// The box's left edge.
    pub x: f64,
    /// The box's width.
    pub width: f64,
    /// The box's middle.
    pub y: f64,
}

/// Where it fails, and where the words for that stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureMark {
    /// The line, as a share of the width.
    pub x: f64,
    /// Whether the words are to the line's left.
    pub is_left: bool,
    /// The words' upper edge, as a share of the height from the top.
    pub top: f64,
    /// Whether there is room for both sentences.
    pub is_long: bool,
}

/// A stretch of the axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Where it starts, as a share of the width.
    pub start: f64,
    /// How wide it is, as a share of the width.
    pub width: f64,
    /// What it is called there.
    pub label: &'static str,
    /// The same where there is little room.
    pub short: &'static str,
    /// What it is called in full.
    pub title: &'static str,
}

/// Everything that is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Columns.
    pub n_columns: usize,
    /// A closed path a band, from the bottom.
    pub bands: [String; N_BANDS],
    /// Strokes across the bands of [`HATCHES`].
    pub hatches: [String; HATCHES.len()],
    /// The line of what PyTorch holds.
    pub reserved: String,
    /// The card's capacity, as a share of the height from the top.
    pub capacity_y: f64,
    /// Lines of the axis: share of the height from the top, and GiB.
    pub levels: Vec<(f64, String)>,
    /// Phases.
    pub phases: Vec<Tick>,
    /// What they belong to.
    pub stretches: Vec<Tick>,
    /// Names inside bands.
    pub labels: Vec<Label>,
    /// Where it fails.
    pub failure: Option<FailureMark>,
}

impl Chart {
    /// The chart of a plan.
    pub fn of(planned: &Planned) -> Self {
        let Planned { plan, timeline } = planned;
        let n = timeline.points.len();
        let outside = [plan.request.other_processes_bytes, plan.request.context.bytes];
        let total = plan.request.device.total_bytes;
        let top = (total.max(plan.peak.device_used_bytes) as f64 * HEADROOM_SHARE).max(1.0);
        // Tops of all bands, column by column.
        let stacks: Vec<[u64; N_BANDS]> = timeline.points.iter().map(|point| stack(outside, point)).collect();
        let height = |bytes: u64| units(bytes, top);
        let lower = |band: usize, column: usize| if band == 0 { 0 } else { height(stacks[column][band - 1]) };
        let bands =
            std::array::from_fn(|band| area(n, |column| height(stacks[column][band]), |column| lower(band, column)));
        let hatches =
            HATCHES.map(|(band, apart)| hatch(n, apart, |column| [lower(band, column), height(stacks[column][band])]));
        let held: u64 = outside.iter().sum();
        let reserved = |column: usize| height(held + timeline.points[column].reserved_bytes);
        let x_of = |column: usize| column as f64 / n.max(1) as f64;
        let capacity_y = 1.0 - total as f64 / top;
        Self {
            n_columns: n,
            bands,
            hatches,
            reserved: line(n, reserved),
            capacity_y,
            levels: levels(top),
            phases: ticks(timeline, n),
            stretches: stretches(timeline, n),
            labels: (0..N_BANDS).filter_map(|band| label(band, &stacks, top)).collect(),
            failure: plan.failure.map(|failure| {
                let from_top = |column| 1.0 - reserved(column) as f64 / HEIGHT as f64;
                words_at(x_of(failure_column(timeline, failure)), n, capacity_y, from_top)
            }),
        }
    }
}

fn stack(outside: [u64; 2], point: &Point) -> [u64; N_BANDS] {
    let mut sum = 0_u64;
    let all = outside.into_iter().chain(point.live_bytes);
    let mut tops = [0; N_BANDS];
    for (top, bytes) in tops.iter_mut().zip(all) {
        sum = sum.saturating_add(bytes);
        *top = sum;
    }
    tops
}

/// Units from the bottom.
fn units(bytes: u64, top: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of HEIGHT, never negative")]
    let units = (bytes as f64 / top * HEIGHT as f64).round() as u64;
    units.min(HEIGHT)
}

/// A stepped area between two outlines; a band with no height anywhere is no path.
fn area(n: usize, upper: impl Fn(usize) -> u64, lower: impl Fn(usize) -> u64) -> String {
    if (0..n).all(|column| upper(column) == lower(column)) {
        return String::new();
    }
    let mut path = String::from("M0 ");
    push(&mut path, HEIGHT - lower(0));
    steps(&mut path, 0..n, &upper);
    let mut now = None;
    for column in (0..n).rev() {
        let y = HEIGHT - lower(column);
        if now != Some(y) {
            // Along the bottom from right to left, a step stands at its column's right edge.
            path.push('H');
            push(&mut path, column as u64 + 1);
            path.push('V');
            push(&mut path, y);
            now = Some(y);
        }
    }
    path.push_str("H0Z");
    path
}

/// Upright strokes between two outlines, so many columns apart, where they are apart at all.
pub fn hatch(n: usize, apart: usize, ends: impl Fn(usize) -> [u64; 2]) -> String {
    let mut path = String::new();
    for column in (apart / 2..n).step_by(apart) {
        let [lower, upper] = ends(column);
        if upper > lower {
            path.push('M');
            push(&mut path, column as u64);
            path.push(' ');
            push(&mut path, HEIGHT - lower);
            path.push('V');
            push(&mut path, HEIGHT - upper);
        }
    }
    path
}

/// Where words beside a failure's line stand clear of what PyTorch holds and of the card's line, if they can.
fn words_at(x: f64, n: usize, capacity_y: f64, reserved: impl Fn(usize) -> f64) -> FailureMark {
    for (index, [width, height]) in WORDS.into_iter().enumerate() {
        for (top, is_left) in [0.0, 0.2, 0.4, 0.6, 0.8].into_iter().flat_map(|top| [(top, false), (top, true)]) {
            let start = if is_left { x - width } else { x };
            let bottom = top + height;
            if start < 0.0 || start + width > 1.0 || (top - 0.1..bottom).contains(&capacity_y) {
                continue;
            }
            let columns = column_at_share(n, start)..=column_at_share(n, start + width);
            // A step of the line is as high as both its ends.
            let ends = columns.map(&reserved).fold([1.0_f64, 0.0], |[low, high], y| [low.min(y), high.max(y)]);
            if ends[1] < top || ends[0] > bottom {
                return FailureMark { x, is_left, top, is_long: index == 0 };
            }
        }
    }
    FailureMark { x, is_left: x > 0.6, top: 0.0, is_long: false }
}

/// A stepped line.
fn line(n: usize, height: impl Fn(usize) -> u64) -> String {
    if n == 0 {
        return String::new();
    }
    let mut path = String::from("M0 ");
    push(&mut path, HEIGHT - height(0));
    steps(&mut path, 0..n, &height);
    path
}

fn steps(path: &mut String, columns: std::ops::Range<usize>, height: &impl Fn(usize) -> u64) {
    let end = columns.end;
    let mut now = None;
    for column in columns {
        let y = HEIGHT - height(column);
        if now != Some(y) {
            path.push('H');
            push(path, column as u64);
            path.push('V');
            push(path, y);
            now = Some(y);
        }
    }
    path.push('H');
    push(path, end as u64);
}

fn push(path: &mut String, number: u64) {
    path.push_str(&number.to_string());
}

/// Powers of ten from more memory than any card has to less than any model takes, in GiB.
const MAGNITUDES: [f64; 12] = [1e5, 1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6];

/// About six round levels.
fn levels(top: f64) -> Vec<(f64, String)> {
    let gib = top / (1_u64 << 30) as f64;
    let rough = gib / 6.0;
    // The logarithm would bring its own code, for this alone.
    let magnitude = MAGNITUDES.into_iter().find(|magnitude| *magnitude <= rough).unwrap_or(rough);
    let step = [1.0, 2.0, 4.0, 5.0, 10.0].map(|s| s * magnitude).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let mut levels = Vec::new();
    let mut level = 0.0;
    while level < gib && levels.len() < 12 {
        let text = decimal::fixed(level, u32::from(step < 1.0));
        levels.push((1.0 - level / gib, text));
        level += step;
    }
    levels
}

/// Neighbouring spans of one name as one tick.
fn ticks(timeline: &Timeline, n: usize) -> Vec<Tick> {
    let share = |columns: usize| columns as f64 / n.max(1) as f64;
    let mut ticks: Vec<Tick> = Vec::new();
    for span in &timeline.spans {
        let width = share(span.end - span.start);
        match ticks.last_mut() {
            Some(last) if last.title == t(span.phase.text()) => last.width += width,
            _ => {
                let (label, short) = text::phase_tick(span.phase);
                ticks.push(Tick { start: share(span.start), width, label, short, title: t(span.phase.text()) });
            }
        }
    }
    ticks
}

/// The run by what train.py does: its evaluations and its iterations.
fn stretches(timeline: &Timeline, n: usize) -> Vec<Tick> {
    let share = |columns: usize| columns as f64 / n.max(1) as f64;
    let mut ticks: Vec<Tick> = Vec::new();
    let mut n_iterations = 0;
    let mut before = None;
    for span in &timeline.spans {
        let in_iteration = text::is_in_iteration(span.phase);
        let ended = matches!(before, Some(Phase::FirstOptimizer | Phase::SteadyOptimizer));
        let starts = match before {
            Some(before) => ended || in_iteration != text::is_in_iteration(before) || before == Phase::Init,
            None => true,
        };
        let width = share(span.end - span.start);
        match ticks.last_mut() {
            Some(last) if !starts => last.width += width,
            _ => {
                let (label, short) =
                    if in_iteration { text::iteration(n_iterations) } else { text::stretch(span.phase) };
                n_iterations += usize::from(in_iteration);
                ticks.push(Tick { start: share(span.start), width, label, short, title: label });
            }
        }
        before = Some(span.phase);
    }
    ticks
}

/// The name of a band in the middle of the largest box inside it; none where no box has room for a word.
fn label(band: usize, stacks: &[[u64; N_BANDS]], top: f64) -> Option<Label> {
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
            if high - low < LABEL_HEIGHT_MIN {
                break;
            }
            let width = share(columns + 1);
            let area = width * (high - low);
            if width >= LABEL_WIDTH_MIN && best.as_ref().is_none_or(|(most, _)| area > *most) {
                best = Some((area, Label { band, x: share(start), width, y: 1.0 - f64::midpoint(low, high) }));
            }
        }
    }
    best.map(|(_, label)| label)
}

/// The column at a share of the width.
pub fn column_at_share(n_columns: usize, share: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the columns")]
    let column = (share.clamp(0.0, 1.0) * n_columns as f64) as usize;
    column.min(n_columns.saturating_sub(1))
}

/// The middle of a column as a share of the width.
pub fn share_of(column: usize, n_columns: usize) -> f64 {
    (column as f64 + 0.5) / n_columns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::answer::Answer;

    #[test]
    fn a_stepped_area_closes_on_itself() {
        let path = area(3, |column| [10, 10, 20][column], |column| [0, 5, 5][column]);
        assert_eq!(path, "M0 1000H0V990H2V980H3H3V995H1V1000H0Z");
        assert_eq!(area(3, |_| 7, |_| 7), "");
    }

    #[test]
    fn levels_are_round_and_few() {
        for gib in [0.3, 1.0, 6.0, 12.4, 25.0, 80.0, 700.0] {
            let levels = levels(gib * (1_u64 << 30) as f64);
            assert!((4..=8).contains(&levels.len()), "{gib}: {levels:?}");
        }
    }

    #[test]
    fn the_chart_holds_capacity_and_peak() {
        for text in ["batch_size = 4\ncompile = False\n", "batch_size = 64\ncompile = False\n"] {
            let answer = Answer::of_text(text);
            let planned = answer.planned.as_ref().expect("a plan");
            let chart = Chart::of(planned);
            assert!((0.0..1.0).contains(&chart.capacity_y), "{}", chart.capacity_y);
            assert_eq!(chart.failure.is_some(), !planned.plan.fits);
            let width: f64 = chart.phases.iter().map(|tick| tick.width).sum();
            assert!((width - 1.0).abs() < 1e-9);
            assert!(!chart.labels.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_label_stands_in_the_largest_box_of_its_band() {
        // A thick peak of two columns, and a thinner stretch with room for a word.
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
        assert!((found.y - 0.85).abs() < 1e-9);
        assert_eq!(label(2, &stacks, 100.0), None);
    }

    #[test]
    fn words_at_a_failure_keep_clear_of_the_lines_beside_it() {
        // Low at first, then near the top.
        let reserved = |column: usize| if column < 51 { 0.9 } else { 0.05 };
        let mark = words_at(0.5, 100, 0.7, reserved);
        assert_eq!((mark.is_left, mark.top, mark.is_long), (true, 0.0, true));
        // Both sentences would reach the step.
        let mark = words_at(0.2, 100, 0.7, reserved);
        assert_eq!((mark.is_left, mark.top, mark.is_long), (false, 0.0, false));
        let mark = words_at(0.1, 100, 0.1, |_| 0.02);
        assert!(mark.top >= 0.2, "{mark:?}");
    }

    #[test]
    fn strokes_cross_their_band_and_nothing_else() {
        assert_eq!(hatch(10, 4, |column| [5, if column < 5 { 25 } else { 5 }]), "M2 995V975");
    }

    #[test]
    fn a_share_and_its_column_agree() {
        for column in [0, 1, 57, 99] {
            assert_eq!(column_at_share(100, share_of(column, 100)), column);
        }
        assert_eq!(column_at_share(100, 1.0), 99);
        assert_eq!(column_at_share(0, 0.5), 0);
    }
}
