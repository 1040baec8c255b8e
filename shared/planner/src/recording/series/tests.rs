//! Tests of series: their polynomials, recordings that are combined, and hostile files.

use proptest::prelude::*;

use super::*;
use crate::{
    recording::{Decoder, Problem, plan, tests::File},
    session::Options,
};

fn read(bytes: &[u8]) -> Result<Recording, Problem> {
    let mut decoder = Decoder::default();
    decoder.push(bytes).and_then(|()| decoder.finish()).map_err(|error| error.problem)
}

/// A run with a weight, an activation of `elements` floats, a buffer of a kernel, and the weight's gradient.
fn run(elements: u64, scratch: u64) -> Recording {
    let mut file = File::new();
    for text in ["weight", "fc", "model.py:9 forward", "mm"] {
        file.defined(text);
    }
    file.label([1, 2, 0], 1, 1000).label([4, 2, 3], 0, elements).label([1, 2, 0], 2, 1000);
    file.alloc(0).mark(1).alloc(1).mark(2).scratch(0, &[scratch]).alloc(2).control(5, &[]).free(1).free(0);
    read(&file.end(9)).expect("a recording")
}

fn runs(sizes: &[u64], elements: impl Fn(u64) -> u64) -> Vec<(u64, Recording)> {
    sizes.iter().map(|&size| (size, run(elements(size), 512 * size))).collect()
}

fn linear() -> Recording {
    merge(Variable::BatchSize, runs(&[8, 4, 12], |size| (1 << 20) * size)).expect("a series")
}

fn at(recording: &Recording, size: u64) -> Result<Recording, SizeError> {
    recording.at(Variable::BatchSize, size)
}

#[test]
fn run_at_a_size_is_the_recording_of_that_size() {
    let series = linear();
    assert_eq!(series.series().expect("a series").sizes, [4, 8, 12]);
    assert_eq!(series.size(), Some(4));
    for size in [1, 4, 7, 12, 100] {
        let run_at = at(&series, size).expect("a run");
        let recorded = run((1 << 20) * size, 512 * size);
        assert_eq!((&run_at.labels, &run_at.scratch), (&recorded.labels, &recorded.scratch), "{size}");
        assert_eq!(run_at.events, recorded.events);
    }
}

#[test]
fn encoded_series_is_the_same_series() {
    for recording in [linear(), at(&linear(), 4).expect("a run"), run(5, 6)] {
        assert_eq!(read(&recording.encode()).as_ref(), Ok(&recording));
    }
}

#[test]
fn lowest_degree_that_a_further_size_confirms_is_used() {
    let square = |size| 64 * size * size;
    let error =
        merge(Variable::BatchSize, runs(&[4, 8, 12], square)).expect_err("two sizes left to determine a square");
    assert_eq!(
        error.to_string(),
        "cannot combine the recordings: mm (fc), model.py:9 forward has bytes 4096 at 4, 16384 at 8, 36864 at 12, which is no \
         polynomial of the batch size"
    );
    let series = merge(Variable::BatchSize, runs(&[4, 8, 12, 16], square)).expect("a series");
    assert_eq!(at(&series, 100).map(|run| run.labels[1].shape[0]), Ok(640_000));
}

#[test]
fn labels_that_coincide_at_one_size_stay_apart() {
    // At batch size 4, the tensor is as large as the weight.
    let constant = |elements: u64, varying: u64| {
        let mut file = File::new();
        file.defined("a").label([1, 0, 0], 0, elements);
        if varying != elements {
            file.label([1, 0, 0], 0, varying);
        }
        let second = u64::from(varying != elements);
        file.alloc(0).alloc(second);
        read(&file.end(2)).expect("a recording")
    };
    let runs = [4, 8, 12].map(|size| (size, constant(400, 100 * size)));
    let series = merge(Variable::BatchSize, runs.to_vec()).expect("a series");
    let run = at(&series, 4).expect("a run");
    assert_eq!(run.labels.len(), 2);
    let run = at(&series, 10).expect("a run");
    assert_eq!([run.labels[0].bytes, run.labels[1].bytes], [1600, 4000]);
}

#[test]
fn order_of_consecutive_frees_is_no_difference() {
    let run = |frees: [u64; 2], elements| {
        let mut file = File::new();
        file.defined("a").label([1, 0, 0], 0, elements).alloc(0).alloc(0).free(frees[0]).free(frees[1]);
        read(&file.end(4)).expect("a recording")
    };
    let runs = vec![(1, run([0, 1], 10)), (2, run([1, 0], 20)), (3, run([1, 0], 30))];
    merge(Variable::BatchSize, runs).expect("a series");
}

#[test]
fn runs_with_other_events_are_refused_with_their_tensor() {
    let mut longer = run(8 << 20, 512 * 8);
    longer.events.push(Event::Alloc(1));
    let mut runs = runs(&[4, 8, 12], |size| (1 << 20) * size);
    runs[1].1 = longer;
    let error = merge(Variable::BatchSize, runs).expect_err("another event");
    assert_eq!(
        error.to_string(),
        "cannot combine the recordings: batch size 8 has `mm (fc), model.py:9 forward` where batch size 4 has the end of the run"
    );
    let mut runs = self::runs(&[4, 8, 12], |size| (1 << 20) * size);
    runs[0].1.events.push(Event::Alloc(1));
    let error = merge(Variable::BatchSize, runs).expect_err("another event");
    assert!(error.to_string().contains("batch size 8 has the end of the run where batch size 4 has `mm"), "{error}");
    for sizes in [&[][..], &[4], &[4, 8], &[4, 8, 8], &[0, 4, 8], &[4, 8, MAX_SIZE + 1]] {
        assert_eq!(merge(Variable::BatchSize, self::runs(sizes, |_| 10)), Err(MergeError::Sizes), "{sizes:?}");
    }
}

#[test]
fn sizes_without_a_run_are_errors() {
    // Half a sequence more per size: only even sizes have whole elements.
    let runs = [4, 8, 12].map(|size| (size, run(10 + size / 2, 512)));
    let series = merge(Variable::BatchSize, runs.to_vec()).expect("a series");
    assert!(at(&series, 6).is_ok());
    let error = at(&series, 7).expect_err("half an element");
    assert!(error.to_string().contains("at batch size 7: mm (fc), model.py:9 forward has no whole size"), "{error}");
    for size in [0, MAX_SIZE + 1, u64::MAX] {
        assert!(matches!(at(&linear(), size), Err(SizeError::TooLarge { .. })), "{size}");
    }
    // 16 Mi times 4 MiB exceed the limit of a tensor, 32 TiB.
    assert!(matches!(at(&linear(), MAX_SIZE), Err(SizeError::TooLarge { .. })));
    assert!(matches!(linear().at(Variable::SequenceLength, 4), Err(SizeError::OtherVariable { .. })));
    assert_eq!(at(&run(4, 4), 4), Err(SizeError::OneSize(Variable::BatchSize)));
}

#[test]
fn largest_size_fits_and_the_next_does_not() {
    let series = linear();
    let machine = Options { gpu: "RTX 4070".to_owned(), ..Options::default() }.machine().expect("a GPU");
    let fits = |size: u64| plan(&at(&series, size).expect("a run"), machine.clone()).expect("a program").fits;
    let largest = series.largest_that_fits(&machine).expect("a size fits");
    assert!(largest > 1000 && fits(largest) && !fits(largest + 1), "{largest}");
    let none = Options { vram_bytes: Some(1 << 20), ..Options::default() }.machine().expect("a machine");
    assert_eq!(series.largest_that_fits(&none), None);
    assert_eq!(run(4, 4).largest_that_fits(&machine), None);
}

#[test]
fn remark_names_recorded_sizes_and_sizes_beside_their_step() {
    let remark = |size| {
        let remarks = at(&linear(), size).expect("a run").size_of_run().expect("a series").remarks();
        remarks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(remark(8), "The run was recorded at batch sizes 4, 8, 12.");
    assert!(remark(20).ends_with("The sizes of its tensors at 20 are computed from them."), "{}", remark(20));
    assert!(remark(5).contains("5 is beside their step of 4"), "{}", remark(5));
}

/// A file of version 2 with a series record of these numbers.
fn with_series(numbers: &[u64]) -> File {
    let mut file = File::of_version(2);
    file.defined("a").control(7, numbers);
    file
}

#[test]
fn hostile_series_are_refused() {
    let end = |file: &mut File, n| read(&file.end(n));
    assert!(end(&mut with_series(&[0, 3, 4, 8, 12]), 0).is_ok());
    for (numbers, problem) in [
        (&[2, 3, 4, 8, 12][..], Problem::Kind),
        (&[0, 1, 4], Problem::Series),
        (&[0, 17, 4], Problem::Series),
        (&[0, 3, 4, 4, 12], Problem::Series),
        (&[0, 3, 0, 4, 12], Problem::Series),
        (&[0, 3, 4, 8, MAX_SIZE + 1], Problem::Series),
    ] {
        assert_eq!(end(&mut with_series(numbers), 0), Err(problem), "{numbers:?}");
    }
    // Two series, and a series in a file of version 1.
    assert_eq!(end(with_series(&[0, 2, 4, 8]).control(7, &[0, 2, 4, 8]), 0), Err(Problem::Kind));
    assert_eq!(end(File::new().control(7, &[0, 2, 4, 8]), 0), Err(Problem::Kind));
    // A label and scratch memory with no value, with more values than sizes, and without a series.
    let label = [1, 0, 0, 0, 0];
    let of = |rest: &[u64]| [&label, rest].concat();
    assert!(end(with_series(&[0, 2, 4, 8]).control(8, &of(&[2, 16, 32, 1, 2, 4, 8])).alloc(0), 1).is_ok());
    assert_eq!(end(with_series(&[0, 2, 4, 8]).control(8, &of(&[0, 1, 2, 4, 8])), 0), Err(Problem::Series));
    assert_eq!(end(with_series(&[0, 2, 4, 8]).control(8, &of(&[3, 1, 2, 3, 0])), 0), Err(Problem::Series));
    assert_eq!(end(with_series(&[0, 2, 4, 8]).control(8, &of(&[1, 0, 0])), 0), Err(Problem::Size));
    assert_eq!(end(with_series(&[0, 2, 4, 8]).control(9, &[9, 1, 4]), 0), Err(Problem::Kind));
    assert_eq!(end(File::of_version(2).defined("a").control(8, &of(&[1, 4, 0])), 0), Err(Problem::Kind));
}

proptest! {
    #[test]
    fn quantity_is_its_polynomial(
        coefficients in proptest::collection::vec(0_u64..1000, 1..=4),
        start in 1_u64..50,
        steps in proptest::collection::vec(1_u64..60, 4),
        at in 1_u64..10_000,
    ) {
        let sizes: Vec<u64> = steps.iter().scan(start, |size, step| { *size += step; Some(*size) }).collect();
        let value = |size: u64| coefficients.iter().rev().fold(0, |sum, coefficient| sum * size + coefficient);
        let quantity = Quantity(sizes.iter().take(coefficients.len()).map(|size| value(*size)).collect());
        prop_assert_eq!(quantity.at(&sizes, at), Some(value(at)));
    }

    #[test]
    fn numbers_of_any_size_do_not_panic(
        values in proptest::collection::vec(any::<u64>(), 1..=4),
        sizes in proptest::collection::btree_set(1..=MAX_SIZE, 4),
        at in 1..=MAX_SIZE,
    ) {
        let sizes: Vec<u64> = sizes.into_iter().collect();
        let _ = Quantity(values).at(&sizes, at);
    }
}
