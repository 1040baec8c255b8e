//! Inductor's wrapper code: allocation, in-place reuse, pooling and deletion of buffers.
//!
//! Source: torch/_inductor/codegen/wrapper.py (`AllocateLine`, `FreeIfNotReusedLine`) and scheduler.py
//! (`decide_inplace_update`) of 2.11. A dead buffer waits in a pool for a buffer of the same dtype and size. If none
//! comes, it is deleted at the place where it died. Outputs of external kernels join the pool; saved tensors and other
//! inputs do not.

use std::ops::Range;

use crate::{
    dtype::Dtype,
    gpt::tensors::Tensor,
    memory::{
        context::Run,
        program::{Batch, Slot},
    },
};

/// A buffer of the generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Buf(usize);

/// Origin of a buffer's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `empty_strided_cuda` or the pool of dead buffers.
    Planned,
    /// Allocated by the kernel.
    External,
    /// Existing memory: a saved tensor or an argument, freed at its last use.
    Input(Slot),
    /// Existing memory with another owner.
    Held(Slot),
}

struct Buffer {
    tensor: Tensor,
    layer: Option<u64>,
    origin: Origin,
    /// Caller's slot for a graph output that has its own name.
    slot: Option<Slot>,
    /// Index of the kernel that writes it; 0 for existing memory.
    written: usize,
    /// Index of the last kernel that reads it.
    last_use: usize,
    /// Whether the graph returns it.
    kept: bool,
}

/// A kernel launch; the ranges are its parts of the graph's lists.
struct Kernel {
    outputs: Range<usize>,
    inputs: Range<usize>,
    in_place: Range<usize>,
    scratch: Range<usize>,
    /// Whether it is a cuBLAS product; the thread's first product allocates the thread's cuBLAS workspace.
    is_product: bool,
}

/// A graph under construction, planned after its last kernel.
///
/// The operands of all kernels share one list: allocating a list per kernel took longer than planning.
pub(super) struct Graph {
    buffers: Vec<Buffer>,
    kernels: Vec<Kernel>,
    /// Outputs and inputs of the kernels.
    operands: Vec<Buf>,
    /// Outputs that may reuse an input's memory: (output, input).
    in_place: Vec<(Buf, Buf)>,
    /// Scratch memory that kernels allocate and free before they end.
    scratch: Vec<Tensor>,
}

impl Graph {
    /// An empty graph, with capacity for a dozen layers.
    pub(super) fn new() -> Self {
        Self {
            buffers: Vec::with_capacity(512),
            kernels: Vec::with_capacity(512),
            operands: Vec::with_capacity(2048),
            in_place: Vec::with_capacity(64),
            scratch: Vec::new(),
        }
    }

    fn buffer(&mut self, tensor: Tensor, layer: Option<u64>, origin: Origin) -> Buf {
        self.buffers.push(Buffer { tensor, layer, origin, slot: None, written: 0, last_use: 0, kept: false });
        Buf(self.buffers.len() - 1)
    }

    /// Adds a buffer that the wrapper allocates.
    pub(super) fn planned(&mut self, tensor: Tensor, layer: Option<u64>) -> Buf {
        self.buffer(tensor, layer, Origin::Planned)
    }

    /// Adds a buffer that an external kernel allocates.
    pub(super) fn external(&mut self, tensor: Tensor, layer: Option<u64>) -> Buf {
        self.buffer(tensor, layer, Origin::External)
    }

    /// Adds a saved tensor, freed after its last use.
    pub(super) fn input(&mut self, tensor: Tensor, slot: Slot) -> Buf {
        self.buffer(tensor, None, Origin::Input(slot))
    }

    /// Adds an argument with another owner.
    pub(super) fn held(&mut self, tensor: Tensor, slot: Slot) -> Buf {
        self.buffer(tensor, None, Origin::Held(slot))
    }

    /// Returns a buffer from the graph.
    pub(super) fn keep(&mut self, buf: Buf) {
        self.buffers[buf.0].kept = true;
    }

    /// Returns a buffer from the graph, stored in a slot of the caller.
    pub(super) fn keep_in(&mut self, buf: Buf, slot: Slot) {
        self.keep(buf);
        self.buffers[buf.0].slot = Some(slot);
    }

    /// Adds a kernel that writes `outputs` and reads `inputs`.
    pub(super) fn kernel(&mut self, outputs: &[Buf], inputs: &[Buf]) -> &mut Self {
        let at = self.kernels.len();
        for input in inputs {
            self.buffers[input.0].last_use = at;
        }
        for output in outputs {
            let buffer = &mut self.buffers[output.0];
            (buffer.written, buffer.last_use) = (at, at);
        }
        let start = self.operands.len();
        self.operands.extend_from_slice(outputs);
        let middle = self.operands.len();
        self.operands.extend_from_slice(inputs);
        self.kernels.push(Kernel {
            outputs: start..middle,
            inputs: middle..self.operands.len(),
            in_place: self.in_place.len()..self.in_place.len(),
            scratch: self.scratch.len()..self.scratch.len(),
            is_product: false,
        });
        self
    }

    /// Allows the last kernel to write `output` over one of `inputs`.
    pub(super) fn in_place(&mut self, output: Buf, inputs: &[Buf]) -> &mut Self {
        if let Some(kernel) = self.kernels.last_mut() {
            self.in_place.extend(inputs.iter().map(|&input| (output, input)));
            kernel.in_place.end = self.in_place.len();
        }
        self
    }

    /// Marks the last kernel as a cuBLAS product.
    pub(super) fn product(&mut self) {
        if let Some(kernel) = self.kernels.last_mut() {
            kernel.is_product = true;
        }
    }

    /// Adds scratch memory of the last kernel.
    pub(super) fn scratch(&mut self, tensors: &[Tensor]) {
        if let Some(kernel) = self.kernels.last_mut() {
            self.scratch.extend_from_slice(tensors);
            kernel.scratch.end = self.scratch.len();
        }
    }

    /// Plans the buffers at the sizes of a batch, for a graph that is written several times.
    pub(super) fn plan(self, run: &Run<'_>, batch: Batch) -> PlannedGraph {
        PlannedGraph { plan: Plan::of(&self, &Sizes::of(&self, run, batch)), graph: self }
    }

    /// Plans the buffers of a training graph and writes the events; returns the slot of each returned buffer.
    pub(super) fn write(self, run: &mut Run<'_>, backward: bool) -> Slots {
        self.plan(run, Batch::Train).write(run, backward)
    }
}

/// A graph with planned buffers.
pub(super) struct PlannedGraph {
    graph: Graph,
    plan: Plan,
}

impl PlannedGraph {
    /// Writes the events; returns the slot of each returned buffer.
    pub(super) fn write(&self, run: &mut Run<'_>, backward: bool) -> Slots {
        self.plan.write(&self.graph, run, backward)
    }
}

/// Slots of a written graph's buffers.
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
}

impl Slots {
    /// The slot of a buffer that the graph returned.
    pub(super) fn of(&self, buf: Buf) -> Option<Slot> {
        self.slots.get(buf.0).copied().flatten()
    }
}

/// A memory region of the plan, which several buffers may use in succession.
#[derive(Clone, Copy)]
struct Memory(usize);

enum Line {
    Allocate(Memory, Buf),
    Product,
    Scratch(usize),
    Free(Memory),
    /// A cancelled free: the memory was reused later.
    Reused,
}

struct Plan {
    lines: Vec<Line>,
    /// Memory of each buffer.
    memory: Vec<Option<Memory>>,
    n_memories: usize,
}

/// Sizes of a graph's buffers. Buffers with the same dtype and size form a class; buffers of one class may share memory
/// in succession.
struct Sizes {
    /// Bytes and class of each buffer.
    buffers: Vec<(u64, usize)>,
    n_classes: usize,
}

impl Sizes {
    fn of(graph: &Graph, run: &Run<'_>, batch: Batch) -> Self {
        let table = match batch {
            Batch::Train => run.bytes,
            Batch::Eval => run.eval_bytes,
        };
        let mut keys: Vec<(Dtype, u64)> = Vec::new();
        let mut tensors = vec![None; Tensor::ALL.len()];
        let sizes = graph.buffers.iter().map(|buffer| {
            *tensors[buffer.tensor as usize].get_or_insert_with(|| {
                let bytes = table.of(buffer.tensor.into());
                let key = (buffer.tensor.dtype(run.train.dtype), bytes);
                let class = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                    keys.push(key);
                    keys.len() - 1
                });
                (bytes, class)
            })
        });
        let buffers = sizes.collect();
        Self { buffers, n_classes: keys.len() }
    }

    fn bytes(&self, buf: Buf) -> u64 {
        self.buffers[buf.0].0
    }

    fn class(&self, buf: Buf) -> usize {
        self.buffers[buf.0].1
    }
}

/// Memory without a live buffer.
struct FreeMemory {
    memory: Memory,
    /// Line that frees the memory unless it is reused.
    line: usize,
    /// Index of the last kernel that used it.
    kernel: usize,
}

/// Inductor's estimate of a graph's memory, by which it rejects reuse that would increase the peak.
///
/// The estimate counts a returned buffer as freed before the first kernel. A graph that saves much therefore starts far
/// below zero and peaks near zero at the end, where nearly every reuse is rejected. (`estimate_peak_memory` in
/// torch/_inductor/memory.py, `EfficientPeakEstimate` in codegen/wrapper.py.)
struct PeakEstimate {
    after: Vec<i128>,
    peak: i128,
}

impl PeakEstimate {
    fn of(graph: &Graph, sizes: &Sizes) -> Self {
        let mut changes = vec![0_i128; graph.kernels.len() + 2];
        for (buffer, (bytes, _)) in graph.buffers.iter().zip(&sizes.buffers) {
            if matches!(buffer.origin, Origin::Held(_)) {
                continue;
            }
            changes[buffer.written] += i128::from(*bytes);
            changes[if buffer.kept { 0 } else { buffer.last_use + 1 }] -= i128::from(*bytes);
        }
        let (mut now, mut peak) = (0, 0);
        let after = changes
            .into_iter()
            .map(|change| {
                now += change;
                peak = peak.max(now);
                now
            })
            .collect();
        Self { after, peak }
    }

    /// Whether an output of kernel `taken` may reuse memory last used by kernel `freed`.
    fn allows(&self, freed: usize, taken: usize, bytes: u64) -> bool {
        let bytes = i128::from(bytes);
        if freed + 1 == taken || freed == taken {
            return true;
        }
        // In Inductor too, the maximum of an empty range is zero.
        bytes <= self.peak && self.after[freed + 1..taken].iter().all(|&between| bytes + between.max(0) <= self.peak)
    }

    fn raise(&mut self, freed: usize, taken: usize, bytes: u64) {
        if freed + 1 < taken {
            for between in &mut self.after[freed + 1..taken] {
                *between += i128::from(bytes);
            }
        }
    }
}

impl Plan {
    fn of(graph: &Graph, sizes: &Sizes) -> Self {
        let mut plan = Self {
            lines: Vec::with_capacity(2 * graph.buffers.len()),
            memory: vec![None; graph.buffers.len()],
            n_memories: 0,
        };
        // Dead memory by class, latest last.
        let mut pool: Vec<Vec<FreeMemory>> = Vec::new();
        pool.resize_with(sizes.n_classes, Vec::new);
        let mut estimate = PeakEstimate::of(graph, sizes);
        for (index, buffer) in graph.buffers.iter().enumerate() {
            if matches!(buffer.origin, Origin::Input(_) | Origin::Held(_)) {
                plan.memory[index] = Some(plan.new_memory());
            }
        }
        // Both lists are per kernel; they are outside the loop only to be allocated once.
        let (mut taken, mut dead) = (Vec::<Buf>::new(), Vec::<Buf>::new());
        for (at, kernel) in graph.kernels.iter().enumerate() {
            taken.clear();
            for &output in &graph.operands[kernel.outputs.clone()] {
                if plan.memory[output.0].is_some() {
                    continue;
                }
                let is_planned = graph.buffers[output.0].origin == Origin::Planned;
                let class = sizes.class(output);
                let over = graph.in_place[kernel.in_place.clone()].iter().find(|&&(over, input)| {
                    let source = &graph.buffers[input.0];
                    over == output
                        && source.last_use == at
                        && !source.kept
                        && matches!(source.origin, Origin::Planned | Origin::External)
                        && sizes.class(input) == class
                        && !taken.contains(&input)
                });
                if let (Some(&(_, input)), true) = (over, is_planned) {
                    plan.memory[output.0] = plan.memory[input.0];
                    taken.push(input);
                    continue;
                }
                let reused =
                    pool[class].pop_if(|dead| is_planned && estimate.allows(dead.kernel, at, sizes.bytes(output)));
                let memory = match reused {
                    Some(FreeMemory { memory, line, kernel }) => {
                        estimate.raise(kernel, at, sizes.bytes(output));
                        plan.lines[line] = Line::Reused;
                        memory
                    }
                    None => {
                        let memory = plan.new_memory();
                        plan.lines.push(Line::Allocate(memory, output));
                        memory
                    }
                };
                plan.memory[output.0] = Some(memory);
            }
            if kernel.is_product {
                plan.lines.push(Line::Product);
            }
            if !kernel.scratch.is_empty() {
                plan.lines.push(Line::Scratch(at));
            }
            dead.clear();
            for &buf in &graph.operands[kernel.outputs.start..kernel.inputs.end] {
                let buffer = &graph.buffers[buf.0];
                if buffer.last_use == at
                    && !buffer.kept
                    && !taken.contains(&buf)
                    && let Err(place) = dead.binary_search(&buf)
                {
                    dead.insert(place, buf);
                }
            }
            for &buf in &dead {
                let Some(memory) = plan.memory[buf.0] else { continue };
                match graph.buffers[buf.0].origin {
                    Origin::Held(_) => {}
                    Origin::Input(_) => plan.lines.push(Line::Free(memory)),
                    Origin::Planned | Origin::External => {
                        pool[sizes.class(buf)].push(FreeMemory { memory, line: plan.lines.len(), kernel: at });
                        plan.lines.push(Line::Free(memory));
                    }
                }
            }
        }
        plan
    }

    fn new_memory(&mut self) -> Memory {
        self.n_memories += 1;
        Memory(self.n_memories - 1)
    }

    fn write(&self, graph: &Graph, run: &mut Run<'_>, backward: bool) -> Slots {
        // A returned buffer may use memory that another buffer allocated, so the caller's slot must be known at that
        // allocation. Entries are therefore the intended slot first, and the actual slot after the allocation's line.
        let mut slots: Vec<Option<Slot>> = vec![None; self.n_memories];
        for (buffer, memory) in graph.buffers.iter().zip(&self.memory) {
            let Some(memory) = memory else { continue };
            let slot = &mut slots[memory.0];
            match buffer.origin {
                Origin::Input(input) | Origin::Held(input) => *slot = Some(input),
                _ => *slot = slot.or(buffer.slot),
            }
        }
        for line in &self.lines {
            match *line {
                Line::Allocate(memory, buf) => {
                    let Buffer { tensor, layer, .. } = graph.buffers[buf.0];
                    match slots[memory.0] {
                        Some(slot) => run.w.alloc_in(slot, tensor, layer),
                        None => slots[memory.0] = Some(run.w.alloc(tensor, layer)),
                    }
                }
                Line::Product => {
                    // Inductor calls `addmm`, as eager PyTorch does.
                    if !backward {
                        run.cublaslt_workspace(false);
                    }
                    run.cublas_workspace(backward);
                }
                Line::Scratch(kernel) => {
                    let scratch = &graph.scratch[graph.kernels[kernel].scratch.clone()];
                    if scratch == [Tensor::EffWorkspace] {
                        run.efficient_backward_scratch(None);
                        continue;
                    }
                    let held: Vec<_> = scratch.iter().map(|&tensor| run.w.alloc(tensor, None)).collect();
                    run.w.free_all(held);
                }
                Line::Free(memory) => match slots[memory.0] {
                    Some(slot) if run.w.is_kept(slot) => run.w.free_kept(slot),
                    slot => run.w.free_some(slot),
                },
                Line::Reused => {}
            }
        }
        Slots { slots: self.memory.iter().map(|memory| slots[memory.as_ref()?.0]).collect() }
    }
}
