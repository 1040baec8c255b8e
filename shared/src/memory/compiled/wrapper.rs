//! Inductor's wrapper code: which buffer is allocated, reused in place, taken from the pool of dead ones, or deleted.
//!
//! Source: torch/_inductor/codegen/wrapper.py (`AllocateLine`, `FreeIfNotReusedLine`) and scheduler.py
//! (`decide_inplace_update`) of 2.11. A dead buffer waits in a pool for a buffer of the same dtype and size; only one
//! that nobody takes is deleted, and then at the place where it died. Outputs of external kernels join the pool,
//! saved tensors and other inputs do not.

use crate::{
    dtype::Dtype,
    gpt::tensors::{Stored, Tensor},
    memory::{
        program::{Slot, Writer},
        run::Run,
    },
};

/// A buffer of the generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Buf(usize);

/// Where a buffer's memory comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `empty_strided_cuda`, or the pool.
    Planned,
    /// The kernel allocates it.
    External,
    /// It was there before: a saved tensor or an argument, given back at its last use.
    Input(Slot),
    /// It was there before and somebody else holds it.
    Held(Slot),
}

struct Buffer {
    stored: Stored,
    layer: Option<u64>,
    origin: Origin,
    /// A slot of the caller's to store it in, for graph outputs that have a name of their own.
    slot: Option<Slot>,
    /// The last kernel that reads it.
    last_use: usize,
    /// Whether the graph returns it.
    kept: bool,
}

/// A kernel launch.
struct Kernel {
    outputs: Vec<Buf>,
    inputs: Vec<Buf>,
    /// Outputs that may take an input's memory: first the output, then the input.
    in_place: Vec<(Buf, Buf)>,
    /// Memory the kernel takes for itself and gives back before it ends.
    scratch: Vec<Tensor>,
    /// Whether its first product takes a cuBLAS workspace of this thread.
    is_product: bool,
}

/// A graph being written, kernel by kernel, and then planned.
pub(super) struct Graph {
    buffers: Vec<Buffer>,
    kernels: Vec<Kernel>,
}

impl Graph {
    /// An empty graph.
    pub(super) fn new() -> Self {
        Self { buffers: Vec::new(), kernels: Vec::new() }
    }

    fn buffer(&mut self, stored: Stored, layer: Option<u64>, origin: Origin) -> Buf {
        self.buffers.push(Buffer { stored, layer, origin, slot: None, last_use: 0, kept: false });
        Buf(self.buffers.len() - 1)
    }

    /// A buffer the wrapper allocates.
    pub(super) fn planned(&mut self, tensor: Tensor, layer: Option<u64>) -> Buf {
        self.buffer(tensor.into(), layer, Origin::Planned)
    }

    /// A buffer an external kernel allocates.
    pub(super) fn external(&mut self, tensor: Tensor, layer: Option<u64>) -> Buf {
        self.buffer(tensor.into(), layer, Origin::External)
    }

    /// A saved tensor, which goes with its last use.
    pub(super) fn input(&mut self, tensor: Tensor, slot: Slot) -> Buf {
        self.buffer(tensor.into(), None, Origin::Input(slot))
    }

    /// An argument that somebody else holds.
    pub(super) fn held(&mut self, tensor: Tensor, slot: Slot) -> Buf {
        self.buffer(tensor.into(), None, Origin::Held(slot))
    }

    /// Returns a buffer from the graph.
    pub(super) fn keep(&mut self, buf: Buf) {
        self.buffers[buf.0].kept = true;
    }

    /// Returns a buffer from the graph, stored in a slot of the caller's.
    pub(super) fn keep_in(&mut self, buf: Buf, slot: Slot) {
        self.keep(buf);
        self.buffers[buf.0].slot = Some(slot);
    }

    /// A kernel that writes `outputs` and reads `inputs`.
    pub(super) fn kernel(&mut self, outputs: &[Buf], inputs: &[Buf]) -> &mut Self {
        let at = self.kernels.len();
        for input in inputs.iter().chain(outputs) {
            self.buffers[input.0].last_use = at;
        }
        self.kernels.push(Kernel {
            outputs: outputs.to_vec(),
            inputs: inputs.to_vec(),
            in_place: Vec::new(),
            scratch: Vec::new(),
            is_product: false,
        });
        self
    }

    /// The last kernel may write this output over that input.
    pub(super) fn in_place(&mut self, output: Buf, inputs: &[Buf]) -> &mut Self {
        if let Some(kernel) = self.kernels.last_mut() {
            kernel.in_place.extend(inputs.iter().map(|&input| (output, input)));
        }
        self
    }

    /// The last kernel is a matrix product of cuBLAS.
    pub(super) fn product(&mut self) {
        if let Some(kernel) = self.kernels.last_mut() {
            kernel.is_product = true;
        }
    }

    /// The last kernel needs this memory while it runs.
    pub(super) fn scratch(&mut self, tensors: &[Tensor]) {
        if let Some(kernel) = self.kernels.last_mut() {
            kernel.scratch.extend_from_slice(tensors);
        }
    }

    /// Plans the buffers and writes the events; gives each kept buffer's slot.
    pub(super) fn write(self, run: &mut Run<'_>, backward: bool) -> Slots {
        let plan = Plan::of(&self, run);
        plan.write(&self, run, backward)
    }
}

/// Where buffers of a written graph are.
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
}

impl Slots {
    /// The slot of a buffer the graph returned.
    pub(super) fn of(&self, buf: Buf) -> Option<Slot> {
        self.slots.get(buf.0).copied().flatten()
    }
}

/// A piece of memory of the plan, which several buffers may use one after the other.
#[derive(Clone, Copy)]
struct Memory(usize);

enum Line {
    Allocate(Memory, Buf),
    Product,
    Scratch(usize),
    /// Given back unless the piece of memory was taken again afterwards.
    FreeIfNotReused(Memory),
}

struct Plan {
    lines: Vec<Line>,
    /// By line: whether a free was cancelled by a later reuse.
    reused: Vec<bool>,
    /// By buffer.
    memory: Vec<Option<Memory>>,
    n_memories: usize,
}

/// What two buffers must agree in to share memory one after the other.
type Key = (Dtype, u64);

/// Memory nobody uses any more.
struct Dead {
    key: Key,
    memory: Memory,
    /// The line that gives it back unless it is taken.
    line: usize,
    /// The kernel that used it last.
    kernel: usize,
}

/// Inductor's estimate of a graph's memory, by which it refuses reuse that would raise the peak.
///
/// It counts a returned buffer as given back before the first kernel, so that a graph which saves much starts far below
/// zero and has its peak near zero at the end: there it refuses nearly every reuse. (`estimate_peak_memory` in
/// torch/_inductor/memory.py, `EfficientPeakEstimate` in codegen/wrapper.py.)
struct PeakEstimate {
    after: Vec<i128>,
    peak: i128,
}

impl PeakEstimate {
    fn of(graph: &Graph, bytes: impl Fn(Buf) -> u64) -> Self {
        let mut changes = vec![0_i128; graph.kernels.len() + 2];
        let mut start = vec![0; graph.buffers.len()];
        for (at, kernel) in graph.kernels.iter().enumerate() {
            for output in &kernel.outputs {
                start[output.0] = at;
            }
        }
        for (index, buffer) in graph.buffers.iter().enumerate() {
            if matches!(buffer.origin, Origin::Held(_)) {
                continue;
            }
            let size = i128::from(bytes(Buf(index)));
            changes[start[index]] += size;
            changes[if buffer.kept { 0 } else { buffer.last_use + 1 }] -= size;
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

    /// Whether memory that kernel `freed` used last may go to an output of kernel `taken`.
    fn allows(&self, freed: usize, taken: usize, bytes: u64) -> bool {
        let bytes = i128::from(bytes);
        if freed + 1 == taken || freed == taken {
            return true;
        }
        // The largest of nothing is zero there as well.
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
    fn of(graph: &Graph, run: &Run<'_>) -> Self {
        let mut plan =
            Self { lines: Vec::new(), reused: Vec::new(), memory: vec![None; graph.buffers.len()], n_memories: 0 };
        // Dead memory, latest last.
        let mut pool: Vec<Dead> = Vec::new();
        let mut estimate = PeakEstimate::of(graph, |buf| run.bytes.of(graph.buffers[buf.0].stored));
        let key = |buf: Buf| {
            let stored = graph.buffers[buf.0].stored;
            let bytes = run.bytes.of(stored);
            (stored.dtype(run.train.dtype), bytes)
        };
        for (index, buffer) in graph.buffers.iter().enumerate() {
            if matches!(buffer.origin, Origin::Input(_) | Origin::Held(_)) {
                plan.memory[index] = Some(plan.new_memory());
            }
        }
        for (at, kernel) in graph.kernels.iter().enumerate() {
            let mut taken = Vec::new();
            for &output in &kernel.outputs {
                if plan.memory[output.0].is_some() {
                    continue;
                }
                let buffer = &graph.buffers[output.0];
                let over = kernel.in_place.iter().map(|&(_, input)| input).find(|input| {
                    let source = &graph.buffers[input.0];
                    kernel.in_place.contains(&(output, *input))
                        && source.last_use == at
                        && !source.kept
                        && matches!(source.origin, Origin::Planned | Origin::External)
                        && key(*input) == key(output)
                        && !taken.contains(input)
                });
                if let (Some(input), Origin::Planned) = (over, buffer.origin) {
                    plan.memory[output.0] = plan.memory[input.0];
                    taken.push(input);
                    continue;
                }
                let dead = pool.iter().rposition(|dead| dead.key == key(output)).filter(|&dead| {
                    buffer.origin == Origin::Planned && estimate.allows(pool[dead].kernel, at, key(output).1)
                });
                let memory = match dead {
                    Some(dead) => {
                        let Dead { memory, line, kernel, .. } = pool.remove(dead);
                        estimate.raise(kernel, at, key(output).1);
                        plan.reused[line] = true;
                        memory
                    }
                    _ => {
                        let memory = plan.new_memory();
                        plan.push(Line::Allocate(memory, output));
                        memory
                    }
                };
                plan.memory[output.0] = Some(memory);
            }
            if kernel.is_product {
                plan.push(Line::Product);
            }
            if !kernel.scratch.is_empty() {
                plan.push(Line::Scratch(at));
            }
            let mut dead: Vec<Buf> = kernel.inputs.iter().chain(&kernel.outputs).copied().collect();
            dead.sort_unstable();
            dead.dedup();
            for buf in dead {
                let buffer = &graph.buffers[buf.0];
                if buffer.last_use != at || buffer.kept || taken.contains(&buf) {
                    continue;
                }
                let Some(memory) = plan.memory[buf.0] else { continue };
                match buffer.origin {
                    Origin::Held(_) => {}
                    Origin::Input(_) => plan.push(Line::FreeIfNotReused(memory)),
                    Origin::Planned | Origin::External => {
                        plan.push(Line::FreeIfNotReused(memory));
                        pool.push(Dead { key: key(buf), memory, line: plan.lines.len() - 1, kernel: at });
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

    fn push(&mut self, line: Line) {
        self.lines.push(line);
        self.reused.push(false);
    }

    fn write(self, graph: &Graph, run: &mut Run<'_>, backward: bool) -> Slots {
        let mut at: Vec<Option<Slot>> = vec![None; self.n_memories];
        let mut own = vec![false; self.n_memories];
        // A kept buffer may sit in memory that another buffer allocated: the caller's slot must be known by then.
        let mut wanted: Vec<Option<Slot>> = vec![None; self.n_memories];
        for (buffer, memory) in graph.buffers.iter().zip(&self.memory) {
            let Some(memory) = memory else { continue };
            match buffer.origin {
                Origin::Input(slot) | Origin::Held(slot) => at[memory.0] = Some(slot),
                _ => wanted[memory.0] = wanted[memory.0].or(buffer.slot),
            }
        }
        for (line, reused) in self.lines.iter().zip(&self.reused) {
            match *line {
                Line::Allocate(memory, buf) => {
                    let Buffer { stored, layer, .. } = graph.buffers[buf.0];
                    at[memory.0] = Some(match wanted[memory.0] {
                        Some(slot) => {
                            run.w.alloc_in(slot, stored, layer);
                            own[memory.0] = true;
                            slot
                        }
                        None => run.w.alloc(stored, layer),
                    });
                }
                Line::Product => run.cublas_workspace(backward),
                Line::Scratch(kernel) => {
                    let scratch = &graph.kernels[kernel].scratch;
                    let held: Vec<_> = scratch.iter().map(|&tensor| run.w.alloc(tensor, None)).collect();
                    run.w.free_all(held);
                }
                Line::FreeIfNotReused(_) if *reused => {}
                Line::FreeIfNotReused(memory) => {
                    if let Some(slot) = at[memory.0] {
                        free(&mut run.w, slot, own[memory.0]);
                    }
                }
            }
        }
        Slots { slots: self.memory.iter().map(|memory| at[memory.as_ref()?.0]).collect() }
    }
}

fn free(w: &mut Writer, slot: Slot, is_callers: bool) {
    if is_callers || w.is_kept(slot) {
        w.free_kept(slot);
    } else {
        w.free(slot);
    }
}
