//! Comparison of the allocator's figures over all recorded rows: bounds on the median and the worst relative error.

use headroom_planner::memory::allocator::SegmentKind;

use crate::records::{COMPILED, EAGER, Row, rows};

/// Bounds on the errors over all rows, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Maximum of the median of absolute errors.
    pub median: f64,
    /// Maximum of the worst absolute error.
    pub worst: f64,
}

/// `max_memory_allocated`, eager.
pub const ALLOCATED_EAGER: Bound = Bound { median: 0.1, worst: 0.5 };
/// `max_memory_allocated`, compiled.
pub const ALLOCATED_COMPILED: Bound = Bound { median: 0.3, worst: 1.5 };
/// `max_memory_reserved` with native segments.
pub const RESERVED: Bound = Bound { median: 1.0, worst: 4.0 };

/// A row's signed relative error in percent, with its name.
pub type Error = (f64, String);

/// `max_memory_allocated` of held-out runs, on which the simulation was not corrected.
pub const ALLOCATED_HELD_OUT: Bound = Bound { median: 0.05, worst: 0.3 };
/// `max_memory_reserved` of held-out runs, with either kind of segments.
pub const RESERVED_HELD_OUT: Bound = Bound { median: 0.1, worst: 2.0 };

/// Relative error of each row in a column; rows without the column are omitted.
pub fn errors(rows: &[Row], column: &str, segments: SegmentKind) -> Vec<Error> {
    rows.iter()
        .filter_map(|row| {
            let recorded = row.bytes(column)?;
            let outcome = row.replay(segments);
            let ours = if column.starts_with("max_memory_allocated") {
                outcome.max_allocated_bytes
            } else {
                outcome.max_reserved_bytes
            };
            let error = (ours as f64 / recorded as f64 - 1.0) * 100.0;
            Some((error, format!("{} {}", row.file, row.tag())))
        })
        .collect()
}

/// Median and worst of the absolute errors.
#[track_caller]
pub fn summary(errors: &[Error]) -> (f64, Error) {
    let mut errors = errors.to_vec();
    errors.sort_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    let median = errors[errors.len() / 2].0.abs();
    (median, errors.pop().expect("there are errors"))
}

/// Asserts that the errors are within the bound, and prints them.
#[expect(clippy::print_stdout, reason = "the figures are part of the test's output")]
#[track_caller]
pub fn check(what: &str, errors: &[Error], bound: Bound) {
    let (median, (worst, name)) = summary(errors);
    println!("{what}: {} rows, median {median:.4} %, worst {worst:+.4} % ({name})", errors.len());
    assert!(median <= bound.median, "{what}: the median is {median:.4} %, over {} %", bound.median);
    assert!(worst.abs() <= bound.worst, "{what}: {name} is {worst:+.4} % off, over {} %", bound.worst);
}

/// The rows of several files.
pub fn rows_of(files: &[&str]) -> Vec<Row> {
    files.iter().flat_map(|file| rows(file)).collect()
}

#[test]
fn eager_allocated_keeps_its_bounds() {
    let errors = errors(&rows_of(&EAGER), "max_memory_allocated", SegmentKind::Native);
    check("eager allocated", &errors, ALLOCATED_EAGER);
}

#[test]
fn compiled_allocated_keeps_its_bounds() {
    let errors = errors(&rows_of(&COMPILED), "max_memory_allocated", SegmentKind::Native);
    check("compiled allocated", &errors, ALLOCATED_COMPILED);
}

#[test]
fn eager_reserved_keeps_its_bounds() {
    let errors = errors(&rows_of(&EAGER), "max_memory_reserved", SegmentKind::Native);
    check("eager reserved", &errors, RESERVED);
}

#[test]
fn compiled_reserved_keeps_its_bounds() {
    let errors = errors(&rows_of(&COMPILED), "max_memory_reserved", SegmentKind::Native);
    check("compiled reserved", &errors, RESERVED);
}

#[track_caller]
fn falsified(by_percent: u64) -> Vec<Error> {
    let mut rows = rows(COMPILED[1]);
    let recorded = rows[0].bytes("max_memory_allocated").expect("a recorded figure");
    rows[0] = rows[0].clone().with("max_memory_allocated", recorded + recorded * by_percent / 100);
    errors(&rows, "max_memory_allocated", SegmentKind::Native)
}

#[test]
#[should_panic(expected = "% off, over 1.5 %")]
fn must_find_a_falsified_figure() {
    check("falsified", &falsified(3), ALLOCATED_COMPILED);
}

#[test]
#[should_panic(expected = "the median is")]
fn must_find_a_median_that_is_off() {
    let all: Vec<_> = (0..9).map(|n| (0.4, n.to_string())).collect();
    check("falsified", &all, ALLOCATED_COMPILED);
}
