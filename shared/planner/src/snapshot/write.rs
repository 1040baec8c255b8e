//! Writes a planned run as a snapshot of PyTorch, for `torch.cuda._memory_viz` and other tools that read snapshots.

use std::collections::HashMap;

use crate::{
    memory::{
        allocator::{Allocator, BlockId, SegmentKind, SegmentState, expandable_segment_bytes},
        program::{Action, Batch, Phase, Program},
        simulate::{Outcome, simulate},
    },
    plan::{Plan, RunOnMachine},
};

/// Address of the first segment. Addresses of CUDA are of this size, and a float of 64 bits holds them exactly.
const BASE: u64 = 0x7f00_0000_0000;
/// Distance of expandable segments.
const EXPANDABLE_STEP: u64 = 1 << 40;

/// The run of a plan as a snapshot: a pickle of protocol 4. It ends at the first request that fails.
///
/// A stack has the tensor, its source line if the run is recorded, and the phase. `time_us` is the number of the event.
#[must_use]
pub fn write<R: RunOnMachine>(plan: &Plan<R>) -> Vec<u8> {
    let machine = plan.request.machine();
    write_program(plan.program(), machine.segments, machine.capacity_bytes())
}

fn write_program(program: &Program, kind: SegmentKind, capacity_bytes: u64) -> Vec<u8> {
    let outcome = simulate(program, kind, capacity_bytes);
    let mut pickle = Pickle::default();
    pickle.raw(&[0x80, 4]);
    pickle.open_dict();
    let mut trace = Trace {
        program,
        kind,
        capacity_bytes,
        pickle,
        allocator: Allocator::new(kind, capacity_bytes),
        segments: Vec::new(),
        stacks: HashMap::new(),
        live: HashMap::new(),
        slots: vec![None; program.n_slots],
        n_events: 0,
    };
    trace.pickle.text("device_traces");
    trace.pickle.open_list();
    trace.pickle.open_list();
    trace.events(&outcome);
    trace.pickle.close_list();
    trace.pickle.close_list();
    trace.segments();
    trace.settings();
    trace.pickle.close_dict();
    trace.pickle.raw(b".");
    trace.pickle.bytes
}

/// Writer of a pickle. Texts are written once and then taken from the memo.
#[derive(Default)]
struct Pickle {
    bytes: Vec<u8>,
    texts: HashMap<String, u32>,
    n_memo: u32,
}

impl Pickle {
    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn open_dict(&mut self) {
        self.raw(b"}(");
    }

    fn close_dict(&mut self) {
        self.raw(b"u");
    }

    fn open_list(&mut self) {
        self.raw(b"](");
    }

    fn close_list(&mut self) {
        self.raw(b"e");
    }

    fn memoize(&mut self) -> u32 {
        self.raw(&[0x94]);
        self.n_memo += 1;
        self.n_memo - 1
    }

    fn get(&mut self, entry: u32) {
        self.raw(b"j");
        self.raw(&entry.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        if let Some(&entry) = self.texts.get(text) {
            return self.get(entry);
        }
        let length = u32::try_from(text.len()).unwrap_or_default();
        self.raw(b"X");
        self.raw(&length.to_le_bytes());
        self.raw(&text.as_bytes()[..length as usize]);
        let entry = self.memoize();
        self.texts.insert(text.to_owned(), entry);
    }

    fn number(&mut self, number: u64) {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(byte), _) => self.raw(&[b'K', byte]),
            (_, Ok(number)) => {
                self.raw(b"J");
                self.raw(&number.to_le_bytes());
            }
            _ => {
                // No address and no size has the highest bit, which is the sign.
                self.raw(&[0x8a, 8]);
                self.raw(&(number & (u64::MAX >> 1)).to_le_bytes());
            }
        }
    }

    fn bool(&mut self, value: bool) {
        self.raw(&[if value { 0x88 } else { 0x89 }]);
    }

    fn text_item(&mut self, key: &str, value: &str) {
        self.text(key);
        self.text(value);
    }

    fn number_item(&mut self, key: &str, value: u64) {
        self.text(key);
        self.number(value);
    }
}

/// A stack: tensor, block, batch and phase.
type StackKey = (u16, Option<u64>, Batch, Phase);

struct Trace<'a> {
    program: &'a Program,
    kind: SegmentKind,
    capacity_bytes: u64,
    pickle: Pickle,
    allocator: Allocator,
    /// Segments after the last event.
    segments: Vec<SegmentState>,
    /// Memo entry of each stack.
    stacks: HashMap<StackKey, u32>,
    /// Requested bytes and stack of each allocated block, by its address.
    live: HashMap<u64, (u64, StackKey)>,
    slots: Vec<Option<BlockId>>,
    n_events: u64,
}

impl Trace<'_> {
    fn events(&mut self, outcome: &Outcome) {
        let program = self.program;
        for played in &outcome.played {
            let section = &program.sections[played.section.index()];
            if section.empties_cache {
                self.allocator.empty_cache();
                self.changed_segments(None);
            }
            for event in &section.events {
                match event.action() {
                    Action::Free => {
                        if let Some(block) = self.slots[event.slot().index()].take() {
                            self.free(block);
                        }
                    }
                    Action::Alloc(code, layer) => {
                        let bytes = program.tensors.bytes(code, section.batch);
                        let key = (code, layer, section.batch, played.phase);
                        let Some(block) = self.alloc(bytes, key) else { return };
                        self.slots[event.slot().index()] = Some(block);
                    }
                }
            }
            for &(from, to) in &section.renames {
                self.slots[to.index()] = self.slots[from.index()].take();
            }
        }
    }

    /// Real address of an address of the replica.
    fn address(&self, address: u64) -> u64 {
        match self.kind {
            SegmentKind::Native => BASE + address,
            SegmentKind::Expandable => {
                let size = expandable_segment_bytes();
                BASE + address / size * EXPANDABLE_STEP + address % size
            }
        }
    }

    fn alloc(&mut self, bytes: u64, key: StackKey) -> Option<BlockId> {
        let before = (self.allocator.reserved_bytes(), self.allocator.n_releases());
        let allocated = self.allocator.alloc(bytes);
        if before != (self.allocator.reserved_bytes(), self.allocator.n_releases()) {
            self.changed_segments(Some(key));
        }
        let block = match allocated {
            Ok(block) => block,
            Err(failure) => {
                let free = self.capacity_bytes.saturating_sub(self.allocator.reserved_bytes());
                self.event("oom", ("device_free", free), failure.segment_bytes, Some(key));
                return None;
            }
        };
        let (address, _) = self.allocator.extent(block);
        self.live.insert(address, (bytes, key));
        let address = self.address(address);
        self.event("alloc", ("addr", address), bytes, Some(key));
        Some(block)
    }

    fn free(&mut self, block: BlockId) {
        let (address, _) = self.allocator.extent(block);
        self.allocator.free(block);
        let Some((bytes, key)) = self.live.remove(&address) else { return };
        let address = self.address(address);
        for action in ["free_requested", "free_completed"] {
            self.event(action, ("addr", address), bytes, Some(key));
        }
    }

    /// Writes the segments that the driver gave or took since the last event.
    fn changed_segments(&mut self, key: Option<StackKey>) {
        let now = self.allocator.segments();
        let before = std::mem::take(&mut self.segments);
        let [alloc, free] = match self.kind {
            SegmentKind::Native => ["segment_alloc", "segment_free"],
            SegmentKind::Expandable => ["segment_map", "segment_unmap"],
        };
        for (action, ranges) in [(free, uncovered(&before, &now)), (alloc, uncovered(&now, &before))] {
            for (start, end) in ranges {
                let address = self.address(start);
                self.event(action, ("addr", address), end - start, key);
            }
        }
        self.segments = now;
    }

    fn event(&mut self, action: &str, (key, address): (&str, u64), bytes: u64, stack: Option<StackKey>) {
        let time = self.n_events;
        self.n_events += 1;
        self.pickle.open_dict();
        self.pickle.text_item("action", action);
        self.pickle.number_item(key, address);
        self.pickle.number_item("size", bytes);
        self.pickle.number_item("stream", 0);
        self.pickle.number_item("time_us", time);
        self.pickle.text("frames");
        self.stack(stack);
        self.pickle.close_dict();
    }

    /// Writes a stack: the tensor, its source line and the phase.
    fn stack(&mut self, key: Option<StackKey>) {
        let Some(key) = key else { return self.pickle.raw(b"]") };
        if let Some(&entry) = self.stacks.get(&key) {
            return self.pickle.get(entry);
        }
        let (code, layer, batch, phase) = key;
        self.pickle.raw(b"]");
        let entry = self.pickle.memoize();
        self.pickle.raw(b"(");
        if let Some(info) = self.program.tensors.get(code, batch) {
            let block = layer.map(|layer| layer.to_string());
            let module = info.stored.module_in(block.as_deref());
            let file = if module.is_empty() { info.stored.category().name().to_owned() } else { module };
            self.frame(&info.stored.name(layer), &file, 0);
            if let Some((file, rest)) = info.stored.source().split_once(':') {
                let (line, function) = rest.split_once(' ').unwrap_or((rest, ""));
                self.frame(function, file, line.parse().unwrap_or_default());
            }
        }
        self.frame(phase.name(), "phase", 0);
        self.pickle.raw(b"e");
        self.stacks.insert(key, entry);
    }

    fn frame(&mut self, name: &str, file: &str, line: u64) {
        self.pickle.open_dict();
        self.pickle.text_item("name", name);
        self.pickle.text_item("filename", file);
        self.pickle.number_item("line", line);
        self.pickle.close_dict();
    }

    fn segments(&mut self) {
        self.pickle.text("segments");
        self.pickle.open_list();
        let is_expandable = self.kind == SegmentKind::Expandable;
        for segment in self.allocator.segments() {
            let allocated: u64 = segment.allocated.iter().map(|(_, bytes)| bytes).sum();
            self.pickle.open_dict();
            self.pickle.number_item("device", 0);
            let address = self.address(segment.address);
            self.pickle.number_item("address", address);
            self.pickle.number_item("total_size", segment.bytes);
            for key in ["allocated_size", "active_size", "requested_size"] {
                self.pickle.number_item(key, allocated);
            }
            self.pickle.number_item("stream", 0);
            self.pickle.text_item("segment_type", if segment.is_small { "small" } else { "large" });
            self.pickle.text("segment_pool_id");
            self.pickle.raw(&[b'K', 0, b'K', 0, 0x86]);
            self.pickle.text("is_expandable");
            self.pickle.bool(is_expandable);
            self.pickle.text("frames");
            self.stack(None);
            self.pickle.text("blocks");
            self.pickle.open_list();
            let end = segment.address + segment.bytes;
            let mut from = segment.address;
            for &(address, bytes) in segment.allocated.iter().chain([&(end, 0)]) {
                if address > from {
                    self.block(from, address - from, false);
                }
                if bytes > 0 {
                    self.block(address, bytes, true);
                }
                from = address + bytes;
            }
            self.pickle.close_list();
            self.pickle.close_dict();
        }
        self.pickle.close_list();
    }

    fn block(&mut self, address: u64, bytes: u64, is_allocated: bool) {
        let live = self.live.get(&address).copied().filter(|_| is_allocated);
        self.pickle.open_dict();
        let real = self.address(address);
        self.pickle.number_item("address", real);
        self.pickle.number_item("size", bytes);
        self.pickle.number_item("requested_size", live.map_or(0, |(bytes, _)| bytes));
        self.pickle.text_item("state", if is_allocated { "active_allocated" } else { "inactive" });
        self.pickle.text("frames");
        self.stack(live.map(|(_, key)| key));
        self.pickle.close_dict();
    }

    fn settings(&mut self) {
        let is_expandable = self.kind == SegmentKind::Expandable;
        self.pickle.text("allocator_settings");
        self.pickle.open_dict();
        let text = if is_expandable { "expandable_segments:True" } else { "" };
        self.pickle.text_item("PYTORCH_CUDA_ALLOC_CONF", text);
        self.pickle.text("expandable_segments");
        self.pickle.bool(is_expandable);
        self.pickle.close_dict();
    }
}

/// Parts of segments that others do not cover. Both lists are in order.
fn uncovered(of: &[SegmentState], by: &[SegmentState]) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    for segment in of {
        let (mut from, end) = (segment.address, segment.address + segment.bytes);
        let first = by.partition_point(|other| other.address + other.bytes <= from);
        for other in by[first..].iter().take_while(|other| other.address < end) {
            if other.address > from {
                parts.push((from, other.address));
            }
            from = from.max(other.address + other.bytes);
        }
        if from < end {
            parts.push((from, end));
        }
    }
    parts
}
