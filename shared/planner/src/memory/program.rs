//! A training run as a list of allocations and frees.
//!
//! A program consists of a few sections (a forward, a backward, …) and a schedule that runs some of them many times.
//! Tensors are in slots. A section uses the same slots in every round, so it is written once.

use serde::{Deserialize, Serialize};

pub use super::stored::Batch;
use super::stored::TensorTable;
use crate::gpt::tensors::TensorId;
use headroom_text::{self as text, Key};

/// A phase of the run, with its name in the JSON schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Initialisation: the model moves to the GPU.
    Init,
    /// The first batch of `estimate_loss` before the first step.
    EvalFirst,
    /// The rest of that `estimate_loss`.
    Eval,
    /// The first micro-step's forward.
    FirstForward,
    /// The first micro-step's backward.
    FirstBackward,
    /// The first clipping and optimizer step, which allocates the optimizer's state.
    FirstOptimizer,
    /// The first batch of a later `estimate_loss`.
    LaterEvalFirst,
    /// The rest of a later `estimate_loss`.
    LaterEval,
    /// Every later forward.
    SteadyForward,
    /// Every later backward.
    SteadyBackward,
    /// Every later clipping and optimizer step.
    SteadyOptimizer,
    /// Between iterations.
    Rest,
}

impl Phase {
    /// Translation key of the name.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::Init => text::PHASE_INIT,
            Self::EvalFirst => text::PHASE_EVAL_FIRST,
            Self::Eval => text::PHASE_EVAL,
            Self::FirstForward => text::PHASE_FIRST_FORWARD,
            Self::FirstBackward => text::PHASE_FIRST_BACKWARD,
            Self::FirstOptimizer => text::PHASE_FIRST_OPTIMIZER,
            Self::LaterEvalFirst => text::PHASE_LATER_EVAL_FIRST,
            Self::LaterEval => text::PHASE_LATER_EVAL,
            Self::SteadyForward => text::PHASE_FORWARD,
            Self::SteadyBackward => text::PHASE_BACKWARD,
            Self::SteadyOptimizer => text::PHASE_OPTIMIZER,
            Self::Rest => text::PHASE_REST,
        }
    }

    /// Translation key of the name in a sentence, as in "fails in the first forward".
    #[must_use]
    pub const fn text_in(self) -> Key {
        match self {
            Self::Init => text::IN_INIT,
            Self::EvalFirst => text::IN_EVAL_FIRST,
            Self::Eval => text::IN_EVAL,
            Self::FirstForward => text::IN_FIRST_FORWARD,
            Self::FirstBackward => text::IN_FIRST_BACKWARD,
            Self::FirstOptimizer => text::IN_FIRST_OPTIMIZER,
            Self::LaterEvalFirst => text::IN_LATER_EVAL_FIRST,
            Self::LaterEval => text::IN_LATER_EVAL,
            Self::SteadyForward => text::IN_FORWARD,
            Self::SteadyBackward => text::IN_BACKWARD,
            Self::SteadyOptimizer => text::IN_OPTIMIZER,
            Self::Rest => text::IN_REST,
        }
    }

    /// All phases, in the order of the JSON schema.
    pub const ALL: [Self; 12] = [
        Self::Init,
        Self::EvalFirst,
        Self::Eval,
        Self::FirstForward,
        Self::FirstBackward,
        Self::FirstOptimizer,
        Self::LaterEvalFirst,
        Self::LaterEval,
        Self::SteadyForward,
        Self::SteadyBackward,
        Self::SteadyOptimizer,
        Self::Rest,
    ];

    /// Name in the JSON schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::EvalFirst => "eval_first",
            Self::Eval => "eval",
            Self::FirstForward => "first_forward",
            Self::FirstBackward => "first_backward",
            Self::FirstOptimizer => "first_optimizer",
            Self::LaterEvalFirst => "later_eval_first",
            Self::LaterEval => "later_eval",
            Self::SteadyForward => "steady_forward",
            Self::SteadyBackward => "steady_backward",
            Self::SteadyOptimizer => "steady_optimizer",
            Self::Rest => "rest",
        }
    }
}

/// A name that holds one tensor at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// The slot as a number, half as large as an index in a 64-bit program.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The slot as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One event. It has eight bytes because a run has thousands, and the page replays them on every keystroke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    slot: Slot,
    /// Index into the program's [`TensorTable`], or [`FREE`].
    code: u16,
    layer: u16,
}

const FREE: u16 = u16::MAX;
const NO_LAYER: u16 = u16::MAX;

/// Action of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stores the tensor with this code in the slot; the second number is the index of its block.
    Alloc(u16, Option<u64>),
    /// Frees the slot's tensor.
    Free,
}

impl Event {
    /// The slot of the event.
    #[must_use]
    pub const fn slot(self) -> Slot {
        self.slot
    }

    /// Index into the program's [`TensorTable`], or a larger number for a free.
    #[must_use]
    pub const fn code(self) -> usize {
        self.code as usize
    }

    /// The action of the event.
    #[must_use]
    pub fn action(self) -> Action {
        match self.code {
            FREE => Action::Free,
            code => Action::Alloc(code, (self.layer != NO_LAYER).then_some(u64::from(self.layer))),
        }
    }
}

/// A sequence of events in one phase.
#[derive(Clone, Debug)]
pub struct Section {
    /// Batch that determines the shapes.
    pub batch: Batch,
    /// Whether `torch.cuda.empty_cache()` precedes the events.
    pub empties_cache: bool,
    /// Events in order.
    pub events: Vec<Event>,
    /// Slots whose tensors move to other slots after the section, in order: (from, to).
    pub renames: Vec<(Slot, Slot)>,
}

/// Index of a section in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionId(usize);

impl SectionId {
    /// The index into [`Program::sections`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// An entry of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// The sections with their phases.
    pub sections: Vec<(Phase, SectionId)>,
    /// Number of rounds; a replay may stop as soon as the rounds repeat.
    pub times: u64,
}

impl ScheduleEntry {
    /// Sections that run once.
    #[must_use]
    pub const fn once(sections: Vec<(Phase, SectionId)>) -> Self {
        Self { sections, times: 1 }
    }

    /// Sections that run several times.
    #[must_use]
    pub const fn repeated(sections: Vec<(Phase, SectionId)>, times: u64) -> Self {
        Self { sections, times }
    }
}

/// The program of a whole run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The tensors that the events store.
    pub tensors: TensorTable,
    /// All sections.
    pub sections: Vec<Section>,
    /// Order of execution.
    pub schedule: Vec<ScheduleEntry>,
    /// Total number of slots.
    pub n_slots: usize,
}

/// Writer of sections: assigns slots and collects events.
///
/// Slots below `n_kept` belong to the caller, for tensors that outlive their section. The writer assigns and releases
/// the others.
#[derive(Debug)]
pub struct ProgramBuilder {
    events: Vec<Event>,
    free_slots: Vec<u32>,
    n_kept: u32,
    n_slots: u32,
    sections: Vec<Section>,
}

impl ProgramBuilder {
    /// A writer whose first `n_kept` slots belong to the caller.
    #[must_use]
    pub fn new(n_kept: u32) -> Self {
        Self { events: Vec::new(), free_slots: Vec::new(), n_kept, n_slots: n_kept, sections: Vec::new() }
    }

    /// The caller's slot with that number.
    #[must_use]
    pub const fn kept(n: u32) -> Slot {
        Slot(n)
    }

    /// Whether a slot belongs to the caller.
    #[must_use]
    pub const fn is_kept(&self, slot: Slot) -> bool {
        slot.0 < self.n_kept
    }

    /// Stores a tensor in a slot of the caller.
    pub fn alloc_in(&mut self, slot: Slot, stored: impl Into<TensorId>, layer: Option<u64>) {
        self.alloc_code_in(slot, stored.into().code(), layer);
    }

    fn alloc_code_in(&mut self, slot: Slot, code: u16, layer: Option<u64>) {
        let layer = layer.map_or(NO_LAYER, |layer| u16::try_from(layer).unwrap_or(NO_LAYER));
        self.events.push(Event { slot, code, layer });
    }

    /// Stores a tensor in a new slot of the writer.
    pub fn alloc(&mut self, stored: impl Into<TensorId>, layer: Option<u64>) -> Slot {
        self.alloc_code(stored.into().code(), layer)
    }

    /// Stores the tensor with a code of the program's table in a new slot of the writer.
    pub fn alloc_code(&mut self, code: u16, layer: Option<u64>) -> Slot {
        let slot = Slot(self.free_slots.pop().unwrap_or_else(|| {
            self.n_slots += 1;
            self.n_slots - 1
        }));
        self.alloc_code_in(slot, code, layer);
        slot
    }

    /// Frees a tensor in a slot of the caller.
    pub fn free_kept(&mut self, slot: Slot) {
        self.events.push(Event { slot, code: FREE, layer: NO_LAYER });
    }

    /// Frees a tensor in a slot of the writer.
    pub fn free(&mut self, slot: Slot) {
        self.free_kept(slot);
        self.free_slots.push(slot.0);
    }

    /// Releases a slot of the writer whose tensor moves to another slot.
    pub fn release(&mut self, slot: Slot) {
        self.free_slots.push(slot.0);
    }

    /// Frees a slot, if there is one.
    pub fn free_some(&mut self, slot: Option<Slot>) {
        if let Some(slot) = slot {
            self.free(slot);
        }
    }

    /// Frees several slots in order.
    pub fn free_all(&mut self, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            self.free(slot);
        }
    }

    /// Stores a tensor and frees it at once.
    pub fn transient(&mut self, stored: impl Into<TensorId>, layer: Option<u64>) {
        let slot = self.alloc(stored, layer);
        self.free(slot);
    }

    /// Ends a section: the events since the previous section.
    pub fn section(&mut self, batch: Batch) -> SectionId {
        self.section_renaming(batch, Vec::new())
    }

    /// Ends a section after which tensors move between slots.
    pub fn section_renaming(&mut self, batch: Batch, renames: Vec<(Slot, Slot)>) -> SectionId {
        // Copied at its exact length, so that the event list grows once for all sections.
        self.sections.push(Section { batch, empties_cache: false, events: self.events.as_slice().to_vec(), renames });
        self.events.clear();
        SectionId(self.sections.len() - 1)
    }

    /// Empties the allocator's cache before a section.
    pub fn empty_cache_before(&mut self, id: SectionId) {
        if let Some(section) = self.sections.get_mut(id.0) {
            section.empties_cache = true;
        }
    }

    /// Returns the sections and the number of slots.
    #[must_use]
    pub fn finish(self) -> (Vec<Section>, usize) {
        (self.sections, self.n_slots as usize)
    }
}
