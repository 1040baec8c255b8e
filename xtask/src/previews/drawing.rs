//! Charts and bars of the preview images, as SVG.

use headroom_languages::english;
use headroom_planner::{
    gpt::{buffers::Buffers, tensors::Category},
    plan::Plan,
};
use headroom_text::units::human_size;
use std::fmt::Write as _;

/// Columns of a chart.
const COLUMNS: usize = 240;
/// Width and height of a chart in its own units.
const CHART: [f64; 2] = [1200.0, 318.0];
/// Distance of the GPU's capacity from the top of a chart.
const ABOVE_CAPACITY: f64 = 46.0;
/// Width of a bar in its own units.
const BAR: f64 = 1000.0;
/// Index of the first category's colour. The bands below are other processes and the CUDA context.
const FIRST_BAND: usize = 2;

/// Returns a chart of memory over a run, below the GPU's capacity.
pub fn chart(plan: &Plan) -> String {
    let timeline = plan.timeline(COLUMNS);
    let [width, height] = CHART;
    let total = plan.request.machine.device.total_bytes;
    let y = |bytes: u64| height - bytes as f64 / total as f64 * (height - ABOVE_CAPACITY);
    let x = |column: usize| column as f64 / timeline.points.len() as f64 * width;
    let outside = plan.peak.device_used_bytes.saturating_sub(plan.peak.max_reserved_bytes);
    let mut paths = Vec::new();
    let mut below = vec![0; timeline.points.len()];
    for band in FIRST_BAND - 1..FIRST_BAND + Category::ALL.len() {
        let mut path = format!("M0 {height}");
        for (column, point) in timeline.points.iter().enumerate() {
            below[column] += match band.checked_sub(FIRST_BAND) {
                Some(category) => point.live_bytes[category],
                None => outside,
            };
            let _ = write!(path, "V{:.1}H{:.1}", y(below[column]), x(column + 1));
        }
        paths.push(format!("<path class=\"band-{band}\" d=\"{path}V{height}Z\"/>"));
    }
    // The topmost band is drawn first, since each path reaches down to the axis.
    let paths: String = paths.into_iter().rev().collect();
    let line = y(total);
    format!(
        "<p style=\"top:0\">{}</p><svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\">{paths}\
         <path class=\"capacity\" d=\"M0 {line}H{width}\"/></svg>",
        human_size(total)
    )
}

/// Returns a bar of used memory that is as wide as the whole memory.
pub fn meter(used: u64, total: u64) -> String {
    meter_of(used, total, total)
}

/// Returns a bar of used memory with a line at the whole memory. `largest` is the memory of the whole width.
pub fn meter_of(used: u64, total: u64, largest: u64) -> String {
    let at = |bytes: u64| bytes as f64 / largest as f64 * BAR;
    let (class, end) = if used > total { ("bad", at(total)) } else { ("used", at(used)) };
    format!(
        "<svg class=\"meter\" viewBox=\"0 0 {BAR} 24\" preserveAspectRatio=\"none\"><rect width=\"{:.1}\" height=\"24\"/>\
         <rect class=\"{class}\" width=\"{end:.1}\" height=\"24\"/><line x1=\"{1:.1}\" x2=\"{1:.1}\" y1=\"-4\" y2=\"28\"/></svg>",
        at(total),
        at(total) - 2.0
    )
}

/// Returns the bytes of each category that has buffers, with the index of its colour.
fn by_category(buffers: &Buffers) -> Vec<(usize, Category, u64)> {
    let bytes = |category: Category| -> u64 {
        buffers.all().iter().filter(|buffer| buffer.category() == category).map(|buffer| buffer.bytes).sum()
    };
    let all = (FIRST_BAND..).zip(Category::ALL).map(|(band, category)| (band, category, bytes(category)));
    all.filter(|(_, _, bytes)| *bytes > 0).collect()
}

/// Returns a bar of an engine's buffers by category.
pub fn stack(buffers: &Buffers) -> String {
    let mut rects = String::new();
    let mut start = 0.0;
    for (band, _, bytes) in by_category(buffers) {
        let width = bytes as f64 / buffers.bytes() as f64 * BAR;
        let _ = write!(rects, "<rect class=\"band-{band}\" x=\"{start:.1}\" width=\"{width:.1}\" height=\"64\"/>");
        start += width;
    }
    format!("<svg class=\"stack\" viewBox=\"0 0 {BAR} 64\" preserveAspectRatio=\"none\">{rects}</svg>")
}

/// Returns the names and sizes of the categories in [`stack`].
pub fn legend(buffers: &Buffers) -> String {
    let entry = |(band, category, bytes): (usize, Category, u64)| {
        let name = english().word(category.text());
        let key = format!("<svg viewBox=\"0 0 1 1\"><rect class=\"band-{band}\" width=\"1\" height=\"1\"/></svg>");
        format!("<span>{key}{name} {}</span>", human_size(bytes))
    };
    by_category(buffers).into_iter().map(entry).collect()
}
