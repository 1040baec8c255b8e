//! The program of a recording on a GPU.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Event, Label, MAX_LIVE_BYTES, Phases, Recording, Scratch, TensorRole, scratch::Step};
use crate::{
    dtype::Dtype,
    memory::{
        context::GpuProperties,
        program::{Batch, Phase, Program, ProgramBuilder, ScheduleEntry, Slot},
        stored::{DerivedTensor, TensorTable},
    },
};

/// Error: a recording is no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A program has fewer kinds of tensors.
    #[error("cannot replay the recording: it has more than {} kinds of tensors", u16::MAX)]
    TooManyTensors,
    /// The tensors are too large.
    #[error("cannot replay the recording: its tensors exceed every GPU")]
    TensorsTooLarge,
    /// The scratch memory of its kernels is too large.
    #[error("cannot replay the recording: the scratch memory of its kernels exceeds every GPU")]
    TooLarge,
}

/// Properties that tensors with one code share: those of a label without the number of its block.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    name: String,
    module: String,
    source: Arc<str>,
    role: TensorRole,
    dtype: Dtype,
    bytes: u64,
    shape: Vec<u64>,
}

/// Replaces the first part of a path that is a number by `*`, and returns that number.
fn without_block(path: &str) -> (String, Option<u64>) {
    let mut block = None;
    let parts = path.split('.').map(|part| match part.parse::<u64>() {
        // A larger number is not that of a block: a program has 16 bits for it.
        Ok(number) if block.is_none() && number < u64::from(u16::MAX) => {
            block = Some(number);
            "*"
        }
        _ => part,
    });
    (parts.collect::<Vec<_>>().join("."), block)
}

/// Leaves out the buffer of generated code behind an operation, as in `mm buf12`. Blocks differ by it.
fn without_buffer(name: &str) -> &str {
    match name.rsplit_once(" buf") {
        Some((operation, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => operation,
        _ => name,
    }
}

impl Kind {
    fn of(label: &Label) -> (Self, Option<u64>) {
        let (module, block) = without_block(&label.module);
        let name = if block.is_some() {
            without_buffer(&without_block(&label.name).0).to_owned()
        } else {
            label.name.to_string()
        };
        let Label { role, dtype, bytes, .. } = *label;
        (
            Self { name, module, source: Arc::clone(&label.source), role, dtype, bytes, shape: label.shape.clone() },
            block,
        )
    }

    fn tensor(&self) -> DerivedTensor {
        let Self { role, dtype, bytes, .. } = *self;
        DerivedTensor {
            name: role.name(&self.name, &self.module),
            module: self.module.clone(),
            source: Arc::clone(&self.source),
            category: role.category(),
            lifetime: role.lifetime(),
            shape: self.shape.clone(),
            dtype,
            bytes,
        }
    }
}

/// Writer of a program.
struct Writer {
    tensors: Vec<Arc<DerivedTensor>>,
    /// Code of each kind.
    codes: FxHashMap<Kind, u16>,
    w: ProgramBuilder,
    schedule: Vec<ScheduleEntry>,
    /// Scratch memory that ends with the operation, with its bytes.
    held: Vec<(Slot, u64)>,
    /// Bytes of all scratch memory that is live.
    scratch_bytes: u64,
    /// Whether the section has events.
    has_events: bool,
    phase: Phase,
    phases: Phases,
}

impl Writer {
    fn code(&mut self, kind: Kind) -> Result<u16, ProgramError> {
        if let Some(code) = self.codes.get(&kind) {
            return Ok(*code);
        }
        // The largest number is that of a free.
        let code = u16::try_from(self.tensors.len())
            .ok()
            .filter(|code| *code < u16::MAX)
            .ok_or(ProgramError::TooManyTensors)?;
        self.tensors.push(Arc::new(kind.tensor()));
        self.codes.insert(kind, code);
        Ok(code)
    }

    fn scratch_code(&mut self, scratch: Scratch, bytes: u64) -> Result<u16, ProgramError> {
        let kind = Kind {
            name: scratch.name().to_owned(),
            module: String::new(),
            source: Arc::from(""),
            role: TensorRole::Workspace,
            dtype: Dtype::Uint8,
            bytes,
            shape: vec![bytes],
        };
        self.code(kind)
    }

    /// Writes the scratch memory of a kernel. `self.held` are the buffers that end with the operation.
    fn scratch(&mut self, scratch: Scratch, gpu: GpuProperties) -> Result<(), ProgramError> {
        let mut slots: Vec<Option<(Slot, u64)>> = Vec::new();
        for step in scratch.steps(gpu) {
            match step {
                Step::Alloc(bytes) => slots.push(self.scratch_buffer(scratch, bytes)?),
                Step::Keep(bytes) => {
                    self.scratch_buffer(scratch, bytes)?;
                }
                Step::Free(at) => {
                    let freed = slots.get_mut(at).and_then(Option::take);
                    self.free_scratch(freed.into_iter().collect());
                }
            }
        }
        self.held.extend(slots.into_iter().flatten());
        Ok(())
    }

    /// Allocates a buffer; `None` if it has no bytes.
    fn scratch_buffer(&mut self, scratch: Scratch, bytes: u64) -> Result<Option<(Slot, u64)>, ProgramError> {
        if bytes == 0 {
            return Ok(None);
        }
        self.scratch_bytes = self.scratch_bytes.saturating_add(bytes);
        if self.scratch_bytes > MAX_LIVE_BYTES {
            return Err(ProgramError::TooLarge);
        }
        let code = self.scratch_code(scratch, bytes)?;
        self.has_events = true;
        Ok(Some((self.w.alloc_code(code, None), bytes)))
    }

    fn free_scratch(&mut self, buffers: Vec<(Slot, u64)>) {
        for (slot, bytes) in buffers {
            self.w.free(slot);
            self.scratch_bytes -= bytes;
            self.has_events = true;
        }
    }

    fn end_section(&mut self) {
        if std::mem::take(&mut self.has_events) {
            let batch = if matches!(self.phase, Phase::Eval | Phase::LaterEval) { Batch::Eval } else { Batch::Train };
            let id = self.w.section(batch);
            self.schedule.push(ScheduleEntry::once(vec![(self.phase, id)]));
        }
    }

    /// Empties the cache before the events that follow.
    fn empty_cache(&mut self) {
        self.end_section();
        let id = self.w.section(Batch::Train);
        self.w.empty_cache_before(id);
        self.schedule.push(ScheduleEntry::once(vec![(self.phase, id)]));
    }
}

impl Recording {
    /// The program of the run on a GPU.
    ///
    /// # Errors
    /// The recording has too many kinds of tensors, or too much scratch memory.
    pub fn program(&self, gpu: GpuProperties) -> Result<Program, ProgramError> {
        let mut writer = Writer {
            tensors: Vec::new(),
            codes: FxHashMap::default(),
            w: ProgramBuilder::new(0),
            schedule: Vec::new(),
            held: Vec::new(),
            scratch_bytes: 0,
            has_events: false,
            phase: Phase::Init,
            phases: Phases::default(),
        };
        let mut codes = vec![None; self.labels.len()];
        let mut blocks = Vec::new();
        for event in &self.events {
            match *event {
                Event::Alloc(label) => {
                    let (code, layer) = match codes[label as usize] {
                        Some(known) => known,
                        None => {
                            let (kind, layer) = Kind::of(&self.labels[label as usize]);
                            *codes[label as usize].insert((writer.code(kind)?, layer))
                        }
                    };
                    blocks.push(writer.w.alloc_code(code, layer));
                    writer.has_events = true;
                }
                Event::Free(block) => {
                    writer.w.free(blocks[block as usize]);
                    writer.has_events = true;
                }
                Event::Scratch(index) => writer.scratch(self.scratch[index as usize], gpu)?,
                Event::EndOfOperation => {
                    let held = std::mem::take(&mut writer.held);
                    writer.free_scratch(held);
                }
                Event::Mark(mark) => {
                    writer.end_section();
                    writer.phase = writer.phases.phase(mark);
                }
                Event::EmptyCache => writer.empty_cache(),
            }
        }
        writer.end_section();
        let (sections, n_slots) = writer.w.finish();
        Ok(Program { tensors: TensorTable::Derived(writer.tensors), sections, schedule: writer.schedule, n_slots })
    }
}
