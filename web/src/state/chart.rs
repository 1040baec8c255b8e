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
use crate::text;

/// The height in the paths' own units.
pub const HEIGHT: u64 = 1000;
/// Bands, from the bottom: other programs, the context, then the categories in their fixed order.
pub const N_BANDS: usize = 2 + Category::ALL.len();
/// A band is labelled inside where it is at least this share of the height.
const LABEL_HEIGHT_MIN: f64 = 0.05;
/// Room above the highest line.
const HEADROOM_SHARE: f64 = 1.06;

/// A label at a place, both as shares of the chart from the top left.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The band it names.
    pub band: usize,
    /// From the left.
    pub x: f64,
    /// From the top.
    pub y: f64,
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
    /// Where it fails, as a share of the width.
    pub failure_x: Option<f64>,
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
        let bands = std::array::from_fn(|band| {
            let lower = |column: usize| if band == 0 { 0 } else { height(stacks[column][band - 1]) };
            area(n, |column| height(stacks[column][band]), lower)
        });
        let held: u64 = outside.iter().sum();
        let x_of = |column: usize| column as f64 / n.max(1) as f64;
        Self {
            n_columns: n,
            bands,
            reserved: line(n, |column| height(held + timeline.points[column].reserved_bytes)),
            capacity_y: 1.0 - total as f64 / top,
            levels: levels(top),
            phases: ticks(timeline, n, text::phase_short, text::phase),
            stretches: stretches(timeline, n),
            labels: (0..N_BANDS).filter_map(|band| label(band, &stacks, top)).collect(),
            failure_x: plan.failure.map(|failure| x_of(failure_column(timeline, failure))),
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

/// About six round levels.
fn levels(top: f64) -> Vec<(f64, String)> {
    let gib = top / (1_u64 << 30) as f64;
    let rough = gib / 6.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
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
fn ticks(
    timeline: &Timeline,
    n: usize,
    label: impl Fn(Phase) -> &'static str,
    title: impl Fn(Phase) -> &'static str,
) -> Vec<Tick> {
    let share = |columns: usize| columns as f64 / n.max(1) as f64;
    let mut ticks: Vec<Tick> = Vec::new();
    for span in &timeline.spans {
        let width = share(span.end - span.start);
        match ticks.last_mut() {
            Some(last) if last.title == title(span.phase) => last.width += width,
            _ => {
                ticks.push(Tick {
                    start: share(span.start),
                    width,
                    label: label(span.phase),
                    title: title(span.phase),
                });
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
                let label = if in_iteration { text::iteration(n_iterations) } else { text::stretch(span.phase) };
                n_iterations += usize::from(in_iteration);
                ticks.push(Tick { start: share(span.start), width, label, title: label });
            }
        }
        before = Some(span.phase);
    }
    ticks
}

/// Where a band is thickest over some width, its name stands in its middle.
fn label(band: usize, stacks: &[[u64; N_BANDS]], top: f64) -> Option<Label> {
    let n = stacks.len();
    let window = (n / 14).max(1);
    let lower = |column: usize| if band == 0 { 0 } else { stacks[column][band - 1] };
    let mut best: Option<(f64, Label)> = None;
    for start in (0..n.saturating_sub(window)).step_by(3) {
        let columns = start..start + window;
        let floor = columns.clone().map(lower).max().unwrap_or(0) as f64 / top;
        let ceiling = columns.map(|column| stacks[column][band]).min().unwrap_or(0) as f64 / top;
        let thickness = ceiling - floor;
        if thickness >= LABEL_HEIGHT_MIN && best.as_ref().is_none_or(|(most, _)| thickness > *most + 0.004) {
            let x = (start as f64 + window as f64 / 2.0) / n as f64;
            best = Some((thickness, Label { band, x, y: 1.0 - f64::midpoint(floor, ceiling) }));
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
            assert_eq!(chart.failure_x.is_some(), !planned.plan.fits);
            let width: f64 = chart.phases.iter().map(|tick| tick.width).sum();
            assert!((width - 1.0).abs() < 1e-9);
            assert!(!chart.labels.is_empty(), "{text}");
        }
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
