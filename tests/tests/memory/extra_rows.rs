//! Runs outside the sample on which the simulation was developed: the same bounds, with named exceptions.

use headroom_planner::memory::allocator::SegmentKind;

use crate::{
    figures::{ALLOCATED_COMPILED, ALLOCATED_EAGER, Bound, Error, RESERVED, check, errors, rows_of},
    live_bytes::{all_deviations, check_known},
};

const EAGER: [&str; 2] = ["extra/eager_sm89", "extra/variants_eager_sm89"];
const COMPILED: [&str; 2] = ["extra/compile_sm89", "extra/variants_compile_sm89"];

#[test]
fn eager_rows_are_exact() {
    check_known(&all_deviations(&EAGER), &[]);
}

/// A row beyond the bound on the worst error: name and error in percent, rounded to tenths.
type RowBeyondBound = (&'static str, f64);

/// Checks that the median is within the bound, and that all rows except the named ones are within its worst error.
#[track_caller]
fn check_but(what: &str, errors: &[Error], bound: Bound, beyond: &[RowBeyondBound]) {
    check(what, errors, Bound { worst: f64::INFINITY, ..bound });
    let found: Vec<_> = errors
        .iter()
        .filter(|(error, _)| error.abs() > bound.worst)
        .map(|(error, name)| (name.as_str(), (error * 10.0).round() / 10.0))
        .collect();
    assert_eq!(found, beyond, "{what}");
}

/// In all of these rows the live peak differs, mostly with a small vocabulary, where the peak is in the blocks. None
/// was known when the simulation was written; the cause is unknown.
const COMPILED_ALLOCATED_BEYOND: &[RowBeyondBound] = &[
    ("extra/compile_sm89 V65 dropout bias T256 b16", 2.8),
    ("extra/compile_sm89 fp32 math", -3.3),
    ("extra/compile_sm89 C384 h6 b12 V65 T64", 3.0),
    ("extra/compile_sm89 fp16 V101", 3.3),
];
const COMPILED_RESERVED_BEYOND: &[RowBeyondBound] = &[
    ("extra/compile_sm89 fp32 dropout bias", 10.2),
    ("extra/compile_sm89 V65 dropout bias T256 b16", 4.2),
    ("extra/compile_sm89 C384 h6 b12 V65 T64", 21.3),
    ("extra/variants_compile_sm89 fp32 later", 13.0),
];
const COMPILED_EXPANDABLE_BEYOND: &[RowBeyondBound] = &[
    ("extra/compile_sm89 fp32 math", -5.9),
    ("extra/compile_sm89 C384 h6 b12 V65 T64", 21.3),
    ("extra/compile_sm89 fp16 V101", 6.5),
    ("extra/compile_sm89 T128 b512", 29.3),
    ("extra/compile_sm89 ckpt", -10.1),
];

/// With the recorder's tensors, `scaled_dot_product_attention` adds the causal mask to a second tensor of shape (B, H,
/// T, T). With real tensors it adds the mask in place (`areAnyTensorSubclassLike` in
/// aten/src/ATen/native/transformers/attention.cpp). The maximum of live bytes is elsewhere and does not change.
const EAGER_EXPANDABLE_BEYOND: &[RowBeyondBound] = &[("extra/eager_sm89 hs11 fp32 bias", 7.7)];

#[test]
fn eager_figures_keep_their_bounds_but_for_those_named() {
    let rows = rows_of(&EAGER);
    let allocated = errors(&rows, "max_memory_allocated", SegmentKind::Native);
    check("eager allocated, extra", &allocated, ALLOCATED_EAGER);
    let reserved = errors(&rows, "max_memory_reserved", SegmentKind::Native);
    check("eager reserved, extra", &reserved, RESERVED);
    let expandable = errors(&rows, "max_memory_reserved_expandable", SegmentKind::Expandable);
    check_but("eager expandable reserved, extra", &expandable, RESERVED, EAGER_EXPANDABLE_BEYOND);
}

#[test]
fn compiled_figures_keep_their_bounds_but_for_those_named() {
    let rows = rows_of(&COMPILED);
    let allocated = errors(&rows, "max_memory_allocated", SegmentKind::Native);
    check_but("compiled allocated, extra", &allocated, ALLOCATED_COMPILED, COMPILED_ALLOCATED_BEYOND);
    let reserved = errors(&rows, "max_memory_reserved", SegmentKind::Native);
    check_but("compiled reserved, extra", &reserved, RESERVED, COMPILED_RESERVED_BEYOND);
    let expandable = errors(&rows, "max_memory_reserved_expandable", SegmentKind::Expandable);
    check_but("compiled expandable reserved, extra", &expandable, RESERVED, COMPILED_EXPANDABLE_BEYOND);
}

/// Number of rows of [`COMPILED`] that are exact in every column; it must not decrease.
const N_EXACT_COMPILED: usize = 29;

#[test]
fn as_many_compiled_rows_are_exact_as_is_stated() {
    let deviations = all_deviations(&COMPILED);
    let rows = rows_of(&COMPILED);
    let deviates = |tag: &str| deviations.iter().any(|deviation| deviation.1 == tag);
    let n_exact = rows.iter().filter(|row| !deviates(row.tag())).count();
    println!("compiled, extra: {n_exact} of {} rows exact", rows.len());
    assert_eq!(n_exact, N_EXACT_COMPILED);
}
