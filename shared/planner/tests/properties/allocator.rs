//! Invariants of the caching allocator for any sequence of requests.

use headroom_planner::memory::allocator::{AllocConf, Allocator, BlockId, GpuSettings, SegmentKind};
use proptest::{prelude::*, sample::select};

use crate::strategies::segment_kinds;

const MIB: u64 = 1 << 20;

/// A request to the allocator.
#[derive(Clone, Copy, Debug)]
enum AllocatorRequest {
    Alloc(u64),
    /// Frees the block at this index from the oldest, modulo the number of blocks.
    Free(usize),
}

/// Requests of every class: the small pool, 20 MiB segments, segments of the request's size, and edge cases between
/// them.
fn asks() -> impl Strategy<Value = Vec<AllocatorRequest>> {
    let edges = vec![512, MIB - 512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 10 * MIB + 512, 20 * MIB];
    let bytes = prop_oneof![
        select(edges),
        (1..2048_u64).prop_map(|blocks| blocks * 512),
        (2048..40_000_u64).prop_map(|blocks| blocks * 512),
        (1..100_u64).prop_map(|mib| mib * MIB),
    ];
    let ask = prop_oneof![3 => bytes.prop_map(AllocatorRequest::Alloc), 2 => (0..1000_usize).prop_map(AllocatorRequest::Free)];
    proptest::collection::vec(ask, 1..200)
}

/// Capacities that most request sequences exhaust, and one that none exhausts.
fn capacities() -> impl Strategy<Value = u64> {
    prop_oneof![(1..3000_u64).prop_map(|mib| mib * MIB), (1..3_000_000_000_u64), Just(u64::MAX)]
}

/// Executes the requests in order. After each one, `check` receives the allocator and the blocks in use.
fn run(
    asks: &[AllocatorRequest],
    kind: SegmentKind,
    capacity_bytes: u64,
    mut check: impl FnMut(&Allocator, &[(BlockId, u64)]) -> Result<(), TestCaseError>,
) -> Result<(Allocator, Vec<(BlockId, u64)>), TestCaseError> {
    let mut allocator = Allocator::new(kind, capacity_bytes);
    let mut held = Vec::new();
    for &ask in asks {
        match ask {
            AllocatorRequest::Alloc(bytes) => match allocator.alloc(bytes) {
                Ok(block) => held.push((block, bytes)),
                Err(failure) => {
                    prop_assert_eq!(failure.requested_bytes, bytes);
                    prop_assert!(failure.segment_bytes >= bytes);
                    let missing = match kind {
                        SegmentKind::Native => failure.segment_bytes,
                        // Free memory at the end of the segment is extended in steps of 2 or 20 MiB.
                        SegmentKind::Expandable => bytes.next_multiple_of(20 * MIB),
                    };
                    let reserved = allocator.reserved_bytes();
                    prop_assert!(reserved.saturating_add(missing) > capacity_bytes, "refused though there is room");
                }
            },
            AllocatorRequest::Free(at) if !held.is_empty() => allocator.free(held.swap_remove(at % held.len()).0),
            AllocatorRequest::Free(_) => {}
        }
        check(&allocator, &held)?;
    }
    Ok((allocator, held))
}

proptest! {
    #[test]
    fn live_fits_allocated_fits_reserved_fits_total(
        asks in asks(), kind in segment_kinds(), capacity_bytes in capacities(),
    ) {
        let mut reserved_peak = 0;
        run(&asks, kind, capacity_bytes, |allocator, held| {
            let live: u64 = held.iter().map(|(_, bytes)| bytes).sum();
            prop_assert!(live <= allocator.allocated_bytes());
            prop_assert!(allocator.allocated_bytes() <= allocator.reserved_bytes());
            prop_assert!(allocator.reserved_bytes() <= capacity_bytes);
            prop_assert!(allocator.allocated_bytes() <= allocator.max_allocated_bytes());
            reserved_peak = reserved_peak.max(allocator.reserved_bytes());
            prop_assert!(reserved_peak <= allocator.max_reserved_bytes());
            // A block of the large pool may exceed its tensor by up to 1 MiB; other blocks are split to size.
            let n_large = held.iter().filter(|(_, bytes)| *bytes > MIB).count() as u64;
            let slack = if kind == SegmentKind::Native { n_large * MIB } else { 0 };
            prop_assert!(allocator.allocated_bytes() <= live + slack);
            Ok(())
        })?;
    }

    #[test]
    fn everything_given_back_can_be_had_again(asks in asks(), kind in segment_kinds()) {
        let (mut allocator, held) = run(&asks, kind, u64::MAX, |_, _| Ok(()))?;
        for &(block, _) in &held {
            allocator.free(block);
        }
        prop_assert_eq!(allocator.allocated_bytes(), 0);
        let before = allocator.clone();
        let blocks: Vec<_> = held.iter().map(|&(_, bytes)| allocator.alloc(bytes)).collect::<Result<_, _>>().expect("there is room");
        for block in blocks {
            allocator.free(block);
        }
        prop_assert_eq!(allocator.allocated_bytes(), 0);
        prop_assert!(allocator.reserved_bytes() >= before.reserved_bytes());
    }

    #[test]
    fn a_block_given_back_at_once_leaves_no_trace(asks in asks(), kind in segment_kinds(), bytes in (1..50_000_u64)) {
        let (mut allocator, _) = run(&asks, kind, u64::MAX, |_, _| Ok(()))?;
        let block = allocator.alloc(bytes * 512).expect("there is room");
        allocator.free(block);
        let once = allocator.clone();
        let block = allocator.alloc(bytes * 512).expect("there is room");
        allocator.free(block);
        prop_assert!(once.same_state(&allocator));
    }

    #[test]
    fn a_gpu_that_is_large_enough_changes_nothing(asks in asks(), kind in segment_kinds()) {
        let (unlimited, _) = run(&asks, kind, u64::MAX, |_, _| Ok(()))?;
        let (limited, _) = run(&asks, kind, unlimited.max_reserved_bytes(), |_, _| Ok(()))?;
        prop_assert!(unlimited.same_state(&limited));
    }
}

/// The allocator after the same requests, with settings on a GPU of `total_bytes`.
fn run_with(
    asks: &[AllocatorRequest],
    kind: SegmentKind,
    capacity_bytes: u64,
    settings: GpuSettings,
) -> (Allocator<GpuSettings>, Vec<(BlockId, u64)>) {
    let mut allocator = Allocator::with_settings(kind, capacity_bytes, settings);
    let mut held = Vec::new();
    for &ask in asks {
        match ask {
            AllocatorRequest::Alloc(bytes) => held.extend(allocator.alloc(bytes).ok().map(|block| (block, bytes))),
            AllocatorRequest::Free(at) if !held.is_empty() => allocator.free(held.swap_remove(at % held.len()).0),
            AllocatorRequest::Free(_) => {}
        }
    }
    (allocator, held)
}

/// Settings with random values.
fn settings() -> impl Strategy<Value = AllocConf> {
    let divisions = select(vec![0, 1, 2, 4, 16]);
    (select(vec![20, 32, 64, 1 << 40]), 20..200_u64, 11..80_u64, 0..9_u32, 2..9_u32, divisions).prop_map(
        |(split, rounding, large, collects, fraction, divisions)| AllocConf {
            // PyTorch refuses smaller values.
            max_split_bytes: split.max(large) * MIB,
            max_non_split_rounding_bytes: rounding.max(large) * MIB,
            large_segment_bytes: large * MIB,
            garbage_collection_threshold: f64::from(collects) / 10.0,
            per_process_memory_fraction: f64::from(fraction) / 8.0,
            roundup_divisions: [divisions; 16],
            ..AllocConf::default()
        },
    )
}

proptest! {
    #[test]
    fn default_settings_change_nothing(asks in asks(), kind in segment_kinds(), capacity_bytes in capacities()) {
        let (plain, _) = run(&asks, kind, capacity_bytes, |_, _| Ok(()))?;
        let (tuned, _) = run_with(&asks, kind, capacity_bytes, AllocConf::default().on_gpu(None));
        prop_assert_eq!(plain.allocated_bytes(), tuned.allocated_bytes());
        prop_assert_eq!(plain.reserved_bytes(), tuned.reserved_bytes());
        prop_assert_eq!(plain.max_allocated_bytes(), tuned.max_allocated_bytes());
        prop_assert_eq!(plain.max_reserved_bytes(), tuned.max_reserved_bytes());
    }

    #[test]
    fn settings_keep_live_allocated_reserved_and_allowed_in_order(
        asks in asks(), kind in segment_kinds(), capacity_bytes in capacities(), conf in settings(),
    ) {
        let total_bytes = capacity_bytes.min(1 << 40);
        let (mut allocator, held) = run_with(&asks, kind, capacity_bytes, conf.on_gpu(Some(total_bytes)));
        let live: u64 = held.iter().map(|(_, bytes)| bytes).sum();
        prop_assert!(live <= allocator.allocated_bytes());
        prop_assert!(allocator.allocated_bytes() <= allocator.reserved_bytes());
        prop_assert!(allocator.reserved_bytes() <= capacity_bytes);
        // Expandable segments may exceed the limit by less than a page: c10 compares the segment of the request.
        let allowed = conf.allowed_bytes(total_bytes).unwrap_or(u64::MAX);
        let page = if kind == SegmentKind::Expandable { conf.large_segment_bytes } else { 0 };
        prop_assert!(allocator.max_reserved_bytes() <= allowed.saturating_add(page));
        for (block, _) in held {
            allocator.free(block);
        }
        allocator.empty_cache();
        prop_assert_eq!(allocator.allocated_bytes(), 0);
        prop_assert_eq!(allocator.reserved_bytes(), 0);
    }

    #[test]
    fn collection_above_the_peak_changes_nothing(asks in asks(), threshold in 1..10_u32) {
        let (plain, _) = run(&asks, SegmentKind::Native, u64::MAX, |_, _| Ok(()))?;
        let conf = AllocConf {
            garbage_collection_threshold: f64::from(threshold) / 10.0,
            per_process_memory_fraction: 0.5,
            ..AllocConf::default()
        };
        let total_bytes = plain.max_reserved_bytes().saturating_mul(40).max(1);
        let (tuned, _) = run_with(&asks, SegmentKind::Native, u64::MAX, conf.on_gpu(Some(total_bytes)));
        prop_assert_eq!(plain.max_reserved_bytes(), tuned.max_reserved_bytes());
        prop_assert_eq!(plain.allocated_bytes(), tuned.allocated_bytes());
    }
}
