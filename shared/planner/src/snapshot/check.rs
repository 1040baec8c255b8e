//! Compares a trace with the replica of the allocator: the address of every block and the size of every segment.

use std::collections::HashMap;

use super::{
    PoolId, TraceAction, TraceEvent,
    heap::{Area, Heap},
    history::History,
};
use crate::memory::allocator::{Allocator, BlockId, SegmentKind, SegmentState, is_small};

/// How the replica differs from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// A block has another address. `expected` and `actual` are offsets in the segment or addresses.
    Address,
    /// Another number of bytes was reserved from the driver before the block was given.
    Reserved,
    /// Another number of bytes was released to the driver.
    Released,
    /// A request failed that a cached block serves.
    Failure,
}

/// The first difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the event, from 0.
    pub event: usize,
    /// How the replica differs.
    pub kind: DifferenceKind,
    /// Value of the trace.
    pub recorded: u64,
    /// Value of the replica.
    pub replica: u64,
}

/// Outcome of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Number of allocations that agree.
    pub n_allocations: u64,
    /// Number of segments or mapped parts that agree.
    pub n_segments: u64,
    /// The first difference, at which the comparison ends.
    pub difference: Option<Difference>,
    /// Why there is no comparison.
    pub obstacle: Option<&'static str>,
}

/// A replica of the memory of one stream and pool. The allocator serves each from segments of its own.
struct Replica {
    allocator: Allocator,
    blocks: HashMap<u64, BlockId>,
    /// Difference of addresses between trace and replica, of the large and the small pool.
    shifts: [Option<u64>; 2],
}

type Group = (u64, PoolId);

/// Compares the trace of a history with the replica.
#[must_use]
pub fn check(history: &History<'_>) -> Check {
    let snapshot = history.snapshot;
    if !snapshot.settings.not_modelled().is_empty() {
        return Check { obstacle: Some("the replica does not model these settings"), ..Check::default() };
    }
    if history.n_contradictions > 0 {
        return Check { obstacle: Some("the trace and the segments contradict each other"), ..Check::default() };
    }
    let Some(mut checker) = Checker::new(history) else {
        let obstacle = "the memory before the trace cannot be restored";
        return Check { obstacle: Some(obstacle), ..Check::default() };
    };
    history.replay(|index, event, heap| {
        let difference = checker.event(index, event, heap, history);
        checker.outcome.difference = checker.outcome.difference.or(difference);
        checker.outcome.difference.is_none()
    });
    checker.outcome
}

struct Checker {
    kind: SegmentKind,
    replicas: HashMap<Group, Replica>,
    /// Segments that the trace allocated since the last block: the last address, their number and bytes.
    grown: (u64, u64, u64),
    /// Bytes that the trace released since the last other event, by group.
    released: Vec<(Group, u64)>,
    outcome: Check,
}

impl Checker {
    fn new(history: &History<'_>) -> Option<Self> {
        let settings = &history.snapshot.settings;
        let kind = if settings.expandable_segments { SegmentKind::Expandable } else { SegmentKind::Native };
        let mut groups: HashMap<Group, Vec<SegmentState>> = HashMap::new();
        for (&address, area) in &history.start.areas {
            if area.is_expandable != (kind == SegmentKind::Expandable) {
                return None;
            }
            let live = history.start.live.range(address..area.end);
            groups.entry((area.stream, area.pool)).or_default().push(SegmentState {
                address,
                bytes: area.end - address,
                is_small: area.is_small,
                allocated: live.map(|(&address, block)| (address, block.bytes)).collect(),
            });
        }
        let mut replicas = HashMap::new();
        for (group, segments) in groups {
            replicas.insert(group, Replica::restore(kind, &segments)?);
        }
        Some(Self { kind, replicas, grown: (0, 0, 0), released: Vec::new(), outcome: Check::default() })
    }

    fn event(&mut self, index: usize, event: &TraceEvent, heap: &Heap, history: &History<'_>) -> Option<Difference> {
        let is_release = matches!(event.action, TraceAction::SegmentFree | TraceAction::SegmentUnmap);
        if !is_release && let Some(difference) = self.release(index) {
            return Some(difference);
        }
        match event.action {
            TraceAction::Alloc => return self.alloc(index, event, heap, history),
            TraceAction::FreeCompleted => {
                if let Some((_, area)) = heap.area(event.address)
                    && let Some(replica) = self.replicas.get_mut(&group(area))
                    && let Some(block) = replica.blocks.remove(&event.address)
                {
                    replica.allocator.free(block);
                }
            }
            TraceAction::SegmentAlloc | TraceAction::SegmentMap => {
                let (_, n, bytes) = self.grown;
                self.grown = (event.address, n + 1, bytes.saturating_add(event.bytes));
            }
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
                if let Some((_, area)) = heap.area(event.address) {
                    let group = group(area);
                    match self.released.iter_mut().find(|(other, _)| *other == group) {
                        Some((_, bytes)) => *bytes = bytes.saturating_add(event.bytes),
                        None => self.released.push((group, event.bytes)),
                    }
                    self.outcome.n_segments += 1;
                }
            }
            TraceAction::Oom => {
                let stream = history.snapshot.stream(event);
                let replica = self.replicas.get(&(stream, (0, 0)));
                // An expandable segment grows from its last block, so less than the request may be missing.
                if self.kind == SegmentKind::Native
                    && replica.is_some_and(|replica| replica.allocator.serves(event.bytes))
                {
                    let (kind, recorded) = (DifferenceKind::Failure, event.bytes);
                    return Some(Difference { event: index, kind, recorded, replica: 0 });
                }
                self.grown = (0, 0, 0);
            }
            TraceAction::FreeRequested | TraceAction::Other => {}
        }
        None
    }

    /// Releases cached segments as the trace did.
    fn release(&mut self, index: usize) -> Option<Difference> {
        for (group, recorded) in std::mem::take(&mut self.released) {
            let replica = self.replicas.get_mut(&group)?;
            let before = replica.allocator.reserved_bytes();
            replica.allocator.empty_cache();
            let released = before - replica.allocator.reserved_bytes();
            if released != recorded {
                let kind = DifferenceKind::Released;
                return Some(Difference { event: index, kind, recorded, replica: released });
            }
        }
        None
    }

    fn alloc(&mut self, index: usize, event: &TraceEvent, heap: &Heap, history: &History<'_>) -> Option<Difference> {
        let settings = &history.snapshot.settings;
        let bytes = settings.rounded(event.bytes);
        let stream = history.snapshot.stream(event);
        let pool = heap.area(event.address).map_or((0, 0), |(_, area)| area.pool);
        let replica = self.replicas.entry((stream, pool)).or_insert_with(|| Replica {
            allocator: Allocator::new(self.kind, u64::MAX),
            blocks: HashMap::new(),
            shifts: [None; 2],
        });
        let (address, n_grown, grown) = std::mem::take(&mut self.grown);
        if n_grown > 0 && self.kind == SegmentKind::Native {
            replica.allocator.place_next_segment(address);
        }
        let before = replica.allocator.reserved_bytes();
        // Without a limit, only a sum beyond 64 bits fails.
        let block = replica.allocator.alloc(bytes).ok()?;
        let reserved = replica.allocator.reserved_bytes() - before;
        if reserved != grown {
            let kind = DifferenceKind::Reserved;
            return Some(Difference { event: index, kind, recorded: grown, replica: reserved });
        }
        let (actual, _) = replica.allocator.extent(block);
        let shift = match self.kind {
            SegmentKind::Native => 0,
            SegmentKind::Expandable => {
                *replica.shifts[usize::from(is_small(bytes))].get_or_insert_with(|| event.address.wrapping_sub(actual))
            }
        };
        let actual = actual.wrapping_add(shift);
        if actual != event.address {
            let kind = DifferenceKind::Address;
            return Some(Difference { event: index, kind, recorded: event.address, replica: actual });
        }
        replica.blocks.insert(event.address, block);
        self.outcome.n_allocations += 1;
        self.outcome.n_segments += n_grown;
        None
    }
}

const fn group(area: &Area) -> Group {
    (area.stream, area.pool)
}

impl Replica {
    fn restore(kind: SegmentKind, segments: &[SegmentState]) -> Option<Self> {
        let (allocator, ids) = Allocator::restore(kind, segments)?;
        let addresses = segments.iter().flat_map(|segment| &segment.allocated).map(|&(address, _)| address);
        let first = |small| segments.iter().find(|segment| segment.is_small == small).map(|segment| segment.address);
        let shift = |small| first(small).map(|address| address.wrapping_sub(Allocator::restored_base(small)));
        let shifts = [shift(false), shift(true)];
        Some(Self { allocator, blocks: addresses.zip(ids).collect(), shifts })
    }
}
