//! The memory of a GPU over a trace: what was live before it, its peaks, and its failures.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    BlockState, Frame, PoolId, Snapshot, StackId, TraceAction, TraceEvent,
    heap::{Area, FreeMemory, Heap, LiveBlock},
};

/// Size of a segment of the small pool (`kSmallBuffer`).
const SMALL_BUFFER: u64 = 2 << 20;
/// Step by which an expandable segment of the large pool grows (`kLargeBuffer`).
const LARGE_BUFFER: u64 = 20 << 20;

/// Memory at a moment of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Number of events before it.
    pub n_events: usize,
    /// Time of the event before it, in microseconds since 1970, or 0.
    pub time_us: u64,
    /// `torch.cuda.memory_allocated()`.
    pub allocated_bytes: u64,
    /// `torch.cuda.memory_reserved()`.
    pub reserved_bytes: u64,
    /// Free memory in the segments.
    pub free: FreeMemory,
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomEvent {
    /// Memory at the failure.
    pub moment: Moment,
    /// Bytes requested from the driver.
    pub requested_bytes: u64,
    /// Free bytes of the whole GPU, as the driver reported.
    pub device_free_bytes: u64,
    /// Stack of the request.
    pub stack: StackId,
}

/// Blocks of one place in the program that are live at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteAtPeak<'a> {
    /// Innermost frame, such as a function of PyTorch; `None` if the stack is not known.
    pub inner: Option<Frame<'a>>,
    /// Innermost frame besides those of PyTorch and the standard library.
    pub library: Option<Frame<'a>>,
    /// Innermost frame of the user's code; without one, the innermost frame.
    pub user: Option<Frame<'a>>,
    /// Stack of the largest block.
    pub stack: StackId,
    /// Requested bytes of the largest block.
    pub largest_bytes: u64,
    /// Number of blocks.
    pub count: u64,
    /// Sum of the blocks in bytes.
    pub bytes: u64,
    /// Whether the blocks were live before the trace.
    pub is_before: bool,
}

/// The peaks of a trace.
pub(super) struct Peaks<'a> {
    /// Highest allocated bytes.
    pub(super) allocated: Moment,
    /// Highest reserved bytes.
    pub(super) reserved: Moment,
    pub(super) end: Moment,
    pub(super) ooms: Vec<OomEvent>,
    /// What is live at the highest allocated bytes.
    pub(super) sites: Vec<SiteAtPeak<'a>>,
}

/// A pool besides the default one, at the end of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Identity of the pool.
    pub id: PoolId,
    /// Number of segments.
    pub n_segments: u64,
    /// Sum of the segments in bytes.
    pub reserved_bytes: u64,
    /// Sum of the allocated blocks in bytes.
    pub allocated_bytes: u64,
}

/// The memory of one device over its trace.
#[derive(Debug)]
pub struct History<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Index of the device.
    pub device: usize,
    /// Memory before the trace.
    pub(super) start: Heap,
    /// Properties of a segment that the trace allocates, by the number of its event.
    areas: HashMap<usize, Area>,
    /// Events that contradict the segments, as in a trace that another process continued.
    pub n_contradictions: usize,
}

impl<'a> History<'a> {
    /// Restores the memory before the trace of a device: takes the segments at its end, and undoes its events from the
    /// last to the first.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, device: usize) -> Self {
        let mut start = Heap::default();
        for segment in snapshot.segments.iter().filter(|segment| segment.device == device as u64) {
            start.reserve(
                segment.address,
                Area {
                    end: segment.address + segment.bytes,
                    stream: segment.stream,
                    pool: segment.pool,
                    is_small: segment.is_small,
                    is_expandable: segment.is_expandable,
                },
            );
            for (address, block) in snapshot.blocks(segment).filter(|(_, block)| block.state != BlockState::Free) {
                let requested_bytes = block.requested_bytes;
                let (bytes, stack) = (block.bytes, block.stack);
                start.insert(address, LiveBlock { requested_bytes, bytes, stack, is_traced: false });
            }
        }
        let mut history = Self { snapshot, device, start, areas: HashMap::new(), n_contradictions: 0 };
        let n_events = snapshot.n_events(device);
        for (index, event) in snapshot.events(device).rev().enumerate() {
            history.undo(n_events - 1 - index, event);
        }
        history.complete_blocks();
        history
    }

    fn undo(&mut self, index: usize, event: &TraceEvent) {
        let TraceEvent { address, bytes, .. } = *event;
        match event.action {
            TraceAction::Alloc => {
                self.n_contradictions += usize::from(self.start.free(address).is_none());
            }
            TraceAction::FreeCompleted => {
                let block = LiveBlock { requested_bytes: bytes, bytes: 0, stack: StackId(0), is_traced: false };
                self.n_contradictions += usize::from(self.start.free(address).is_some());
                self.start.insert(address, block);
            }
            TraceAction::SegmentAlloc | TraceAction::SegmentMap => match self.start.release(address, bytes) {
                Some(area) => {
                    self.areas.insert(index, Area { end: address + bytes, ..area });
                }
                None => self.n_contradictions += 1,
            },
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
                let is_expandable = event.action == TraceAction::SegmentUnmap;
                let area = self.unknown_area(event, is_expandable);
                self.start.reserve(address, area);
            }
            TraceAction::FreeRequested | TraceAction::Oom | TraceAction::Other => {}
        }
    }

    /// Properties of a segment that does not exist at the end of the trace.
    fn unknown_area(&self, event: &TraceEvent, is_expandable: bool) -> Area {
        let end = event.address + event.bytes;
        let neighbours = [event.address.checked_sub(1), Some(end)].into_iter().flatten();
        let neighbour = neighbours.filter_map(|address| self.start.area(address)).find(|(_, area)| area.is_expandable);
        if is_expandable && let Some((_, area)) = neighbour {
            return Area { end, ..*area };
        }
        let is_small =
            if is_expandable { !event.bytes.is_multiple_of(LARGE_BUFFER) } else { event.bytes == SMALL_BUFFER };
        Area { end, stream: self.snapshot.stream(event), pool: (0, 0), is_small, is_expandable }
    }

    /// Gives blocks that the trace frees their whole size, which the trace lacks.
    fn complete_blocks(&mut self) {
        let unknown: Vec<(u64, LiveBlock)> =
            self.start.live.iter().filter(|(_, block)| block.bytes == 0).map(|(&at, &block)| (at, block)).collect();
        for (address, block) in unknown {
            self.start.alloc(address, block, &self.snapshot.settings);
        }
    }

    /// Replays the trace. `visit` receives each event with its number and the memory before it; false ends the replay.
    pub(super) fn replay(&self, mut visit: impl FnMut(usize, &TraceEvent, &Heap) -> bool) -> Heap {
        let mut heap = self.start.clone();
        let settings = &self.snapshot.settings;
        for (index, event) in self.snapshot.events(self.device).enumerate() {
            if !visit(index, event, &heap) {
                break;
            }
            let TraceEvent { address, bytes, stack, .. } = *event;
            match event.action {
                TraceAction::Alloc => {
                    let block = LiveBlock { requested_bytes: bytes, bytes: 0, stack, is_traced: true };
                    heap.alloc(address, block, settings);
                }
                TraceAction::FreeCompleted => {
                    heap.free(address);
                }
                TraceAction::SegmentAlloc | TraceAction::SegmentMap => {
                    let is_expandable = event.action == TraceAction::SegmentMap;
                    let area = self.areas.get(&index).copied();
                    heap.reserve(address, area.unwrap_or_else(|| self.unknown_area(event, is_expandable)));
                }
                TraceAction::SegmentFree | TraceAction::SegmentUnmap => {
                    heap.release(address, bytes);
                }
                TraceAction::FreeRequested | TraceAction::Oom | TraceAction::Other => {}
            }
        }
        heap
    }

    /// The peaks of the trace, its end, and the failed requests.
    pub(super) fn peaks(&self) -> Peaks<'a> {
        let [mut allocated, mut reserved] = [Moment::of(0, 0, &self.start); 2];
        let mut ooms = Vec::new();
        let mut before = (0, 0);
        let mut note = |n_events: usize, time_us: u64, heap: &Heap| {
            if heap.allocated_bytes > allocated.allocated_bytes {
                allocated = Moment::of(n_events, time_us, heap);
            }
            if heap.reserved_bytes > reserved.reserved_bytes {
                reserved = Moment::of(n_events, time_us, heap);
            }
        };
        let end = self.replay(|index, event, heap| {
            note(before.0, before.1, heap);
            if event.action == TraceAction::Oom && ooms.len() < MAX_OOMS {
                ooms.push(OomEvent {
                    moment: Moment::of(index, event.time_us, heap).with_free(heap),
                    requested_bytes: event.bytes,
                    device_free_bytes: event.address,
                    stack: event.stack,
                });
            }
            before = (index + 1, event.time_us);
            true
        });
        note(before.0, before.1, &end);
        let last = Moment::of(before.0, before.1, &end).with_free(&end);
        // The free blocks of a peak, and what is live, need the memory of its moment.
        let at_peak = self.heap_at(allocated.n_events);
        allocated = allocated.with_free(&at_peak);
        reserved = reserved.with_free(&self.heap_at(reserved.n_events));
        Peaks { allocated, reserved, end: last, ooms, sites: self.sites(&at_peak) }
    }

    /// Memory after a number of events.
    fn heap_at(&self, n_events: usize) -> Heap {
        self.replay(|index, _, _| index < n_events)
    }

    /// Live blocks before the trace: their number and bytes.
    #[must_use]
    pub fn before(&self) -> (u64, Moment) {
        (self.start.live.len() as u64, Moment::of(0, 0, &self.start).with_free(&self.start))
    }

    /// The live blocks in groups by their place in the program, largest first.
    fn sites(&self, heap: &Heap) -> Vec<SiteAtPeak<'a>> {
        let snapshot = self.snapshot;
        let mut sites: BTreeMap<_, SiteAtPeak<'a>> = BTreeMap::new();
        for block in heap.live.values() {
            let inner = snapshot.stack(block.stack).next();
            let library = snapshot.library_frame(block.stack);
            let user = snapshot.user_frame(block.stack);
            let key = (inner.map(|frame| frame.name), library, user, block.is_traced);
            let site = sites.entry(key).or_insert(SiteAtPeak {
                inner,
                library,
                user,
                stack: block.stack,
                largest_bytes: 0,
                count: 0,
                bytes: 0,
                is_before: !block.is_traced,
            });
            site.count += 1;
            site.bytes = site.bytes.saturating_add(block.bytes);
            if block.requested_bytes > site.largest_bytes {
                (site.largest_bytes, site.stack) = (block.requested_bytes, block.stack);
            }
        }
        let mut sites: Vec<_> = sites.into_values().collect();
        sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
        sites
    }

    /// Number of streams with allocations in the trace, at least one.
    pub(super) fn n_streams(&self) -> usize {
        let allocations = self.snapshot.events(self.device).filter(|event| event.action == TraceAction::Alloc);
        let streams: BTreeSet<u16> = allocations.map(|event| event.stream).collect();
        streams.len().max(1)
    }

    /// Pools besides the default one at the end of the trace.
    #[must_use]
    pub fn private_pools(&self) -> Vec<PoolState> {
        let mut pools: BTreeMap<PoolId, PoolState> = BTreeMap::new();
        let segments = self.snapshot.segments.iter().filter(|segment| segment.device == self.device as u64);
        for segment in segments.filter(|segment| segment.pool != (0, 0)) {
            let pool = pools.entry(segment.pool).or_insert(PoolState { id: segment.pool, ..PoolState::default() });
            pool.n_segments += 1;
            pool.reserved_bytes = pool.reserved_bytes.saturating_add(segment.bytes);
            for (_, block) in self.snapshot.blocks(segment).filter(|(_, block)| block.state != BlockState::Free) {
                pool.allocated_bytes = pool.allocated_bytes.saturating_add(block.bytes);
            }
        }
        pools.into_values().collect()
    }
}

/// Maximum number of failures that are reported.
const MAX_OOMS: usize = 100;

impl Moment {
    const fn of(n_events: usize, time_us: u64, heap: &Heap) -> Self {
        let Heap { allocated_bytes, reserved_bytes, .. } = *heap;
        let free = FreeMemory { bytes: 0, largest_bytes: 0, n_blocks: 0 };
        Self { n_events, time_us, allocated_bytes, reserved_bytes, free }
    }

    fn with_free(self, heap: &Heap) -> Self {
        Self { free: heap.free_memory(), ..self }
    }
}
