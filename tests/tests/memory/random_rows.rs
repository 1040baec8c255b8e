//! Eager runs of random shapes, recorded up to a later evaluation: compared event by event, and in every figure.
//!
//! tests/golden/random has runs on which the simulation was corrected, and an equal number of held-out runs.

use headroom_planner::{dtype::Dtype, memory::allocator::SegmentKind, train_config::Attention};

use crate::{
    event_list::{events_of, fingerprint, in_canonical_order, text},
    figures::{ALLOCATED_HELD_OUT, Error, RESERVED_HELD_OUT, check, errors},
    live_bytes::{all_deviations, check_known},
    records::{Row, SM90, rows},
};

const SEEN: &str = "random/seen";
const HELD_OUT: &str = "random/held_out";
/// Runs of other random shapes, recorded independently with the same method.
const LONG: &str = "truth/new_eager_sm89";

/// Columns of allocated memory with their kind of segments.
const ALLOCATED: [(&str, SegmentKind); 2] =
    [("max_memory_allocated", SegmentKind::Native), ("max_memory_allocated_expandable", SegmentKind::Expandable)];
const RESERVED: [(&str, SegmentKind); 2] =
    [("max_memory_reserved", SegmentKind::Native), ("max_memory_reserved_expandable", SegmentKind::Expandable)];

/// Whether the simulation allocates and frees the same tensors in the same order as the recording.
fn has_recorded_events(row: &Row) -> bool {
    let events = in_canonical_order(&events_of(&row.program()));
    Some(fingerprint(&text(&events))) == row.bytes("fingerprint")
}

/// The rows of a file whose attention kernel is that of a GPU.
///
/// The recordings took flash attention for heads of more than 128 channels on an H100. On an H200 cuDNN has them.
fn rows_of_measured_kernels(file: &str) -> Vec<Row> {
    let is_measured = |row: &Row| {
        let (config, train, gpu) = row.config();
        let is_hopper = gpu.compute_capability == SM90.compute_capability;
        let is_long = (129..=256).contains(&config.head_size()) && config.head_size().is_multiple_of(8);
        !(is_hopper && is_long && train.dtype != Dtype::Float32 && train.attention == Attention::Flash)
    };
    rows(file).into_iter().filter(is_measured).collect()
}

#[test]
fn event_lists_are_the_recorded_ones() {
    for file in [SEEN, HELD_OUT] {
        let rows = rows_of_measured_kernels(file);
        let differ: Vec<_> = rows.iter().filter(|row| !has_recorded_events(row)).map(Row::tag).collect();
        assert!(differ.is_empty(), "{file}: {} of {} differ: {differ:?}", differ.len(), rows.len());
    }
}

#[test]
fn live_bytes_are_exact() {
    check_known(&all_deviations(&[SEEN, HELD_OUT, LONG]), &[]);
}

#[test]
fn figures_keep_the_bars() {
    for file in [SEEN, HELD_OUT, LONG] {
        let rows = rows_of_measured_kernels(file);
        for (columns, bound) in [(ALLOCATED, ALLOCATED_HELD_OUT), (RESERVED, RESERVED_HELD_OUT)] {
            for (column, segments) in columns {
                check(&format!("{file} {column}"), &errors(&rows, column, segments), bound);
            }
        }
    }
}

#[test]
fn must_find_a_falsified_fingerprint() {
    let row = rows(SEEN).remove(0);
    assert!(has_recorded_events(&row));
    assert!(!has_recorded_events(&row.with("fingerprint", 1)));
}

#[test]
#[should_panic(expected = "% off, over 2 %")]
fn must_find_a_falsified_reserved_figure() {
    let mut rows = rows(HELD_OUT);
    let recorded = rows[0].bytes("max_memory_reserved").expect("a recorded figure");
    rows[0] = rows[0].clone().with("max_memory_reserved", recorded * 103 / 100);
    let errors: Vec<Error> = errors(&rows, "max_memory_reserved", SegmentKind::Native);
    check("falsified", &errors, RESERVED_HELD_OUT);
}
