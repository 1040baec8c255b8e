//! A training run as events: which tensor is stored when, and which is given back.
//!
//! A program is a handful of sections (a forward, a backward, …) and a schedule that runs some of them many times.
//! Tensors live in slots. A section that runs again uses the same slots, so that a section is written once.

use serde::{Deserialize, Serialize};

use crate::{
    gpt::tensors::{Dims, Stored, TensorBytes},
    text::{self, Key},
};

/// A part of the run, under the name of the JSON contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model moves to the card.
    Init,
    /// The first batch of `estimate_loss` before the first step.
    EvalFirst,
    /// The rest of that `estimate_loss`.
    Eval,
    /// The first micro-step's forward.
    FirstForward,
    /// The first micro-step's backward.
    FirstBackward,
    /// The first clipping and optimizer step, which makes the optimizer's state.
    FirstOptimizer,
    /// The first batch of a later `estimate_loss`.
    LaterEvalFirst,
    /// The rest of a later `estimate_loss`.
    LaterEval,
    /// Every other forward.
    SteadyForward,
    /// Every other backward.
    SteadyBackward,
    /// Every other clipping and optimizer step.
    SteadyOptimizer,
    /// Between iterations.
    Rest,
}

impl Phase {
    /// Its name for a person.
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

    /// Its name in a sentence, as in "fails in the first forward".
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

    /// All, in the order of the JSON contract.
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

    /// The name of the JSON contract.
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

/// A place that holds one tensor at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// The slot as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One event. Eight bytes, since a run has thousands and the page replays them on every keystroke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    slot: Slot,
    /// A [`Stored::code`], or [`FREE`].
    code: u16,
    layer: u16,
}

const FREE: u16 = u16::MAX;
const NO_LAYER: u16 = u16::MAX;

/// What an [`Event`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The tensor is stored in the slot.
    Alloc(Stored, Option<u64>),
    /// The slot's tensor is given back.
    Free,
}

impl Event {
    /// The slot it is about.
    #[must_use]
    pub const fn slot(self) -> Slot {
        self.slot
    }

    /// A [`Stored::code`], or a number beyond every code where the slot is given back.
    #[must_use]
    pub const fn code(self) -> usize {
        self.code as usize
    }

    /// What it does.
    #[must_use]
    pub fn action(self) -> Action {
        match Stored::from_code(self.code) {
            Some(stored) => Action::Alloc(stored, (self.layer != NO_LAYER).then_some(u64::from(self.layer))),
            None => Action::Free,
        }
    }
}

/// Whose batch a section's shapes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// `batch_size`.
    Train,
    /// `eval_batch_size`.
    Eval,
}

/// A stretch of events in one phase.
#[derive(Clone, Debug)]
pub struct Section {
    /// Whose batch its shapes have.
    pub batch: Batch,
    /// Its events.
    pub events: Vec<Event>,
    /// Slots whose tensor goes by another slot's name afterwards, in order: (from, to).
    pub renames: Vec<(Slot, Slot)>,
}

/// A section's place in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionId(usize);

impl SectionId {
    /// The place as an index into [`Program::sections`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// What the schedule does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The sections, each with the phase it counts for.
    pub sections: Vec<(Phase, SectionId)>,
    /// How often they run; a replay may stop as soon as the rounds repeat.
    pub times: u64,
}

impl Turn {
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

/// A whole run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Shapes of the training batch.
    pub dims: Dims,
    /// Shapes of the evaluation batch.
    pub eval_dims: Dims,
    /// Bytes of the training batch's tensors.
    pub bytes: TensorBytes,
    /// Bytes of the evaluation batch's tensors.
    pub eval_bytes: TensorBytes,
    /// The sections.
    pub sections: Vec<Section>,
    /// The order in which they run.
    pub schedule: Vec<Turn>,
    /// Slots in all.
    pub n_slots: usize,
}

impl Program {
    /// Shapes and bytes of a section's tensors.
    #[must_use]
    pub fn sizes(&self, batch: Batch) -> (&Dims, &TensorBytes) {
        match batch {
            Batch::Train => (&self.dims, &self.bytes),
            Batch::Eval => (&self.eval_dims, &self.eval_bytes),
        }
    }
}

/// Writes sections: gives out slots and collects events.
///
/// Slots below `n_kept` are the caller's, for tensors that outlive the section that makes them; the rest are taken and
/// given back here.
#[derive(Debug)]
pub struct Writer {
    events: Vec<Event>,
    free_slots: Vec<u32>,
    n_kept: u32,
    n_slots: u32,
    sections: Vec<Section>,
}

impl Writer {
    /// A writer whose first `n_kept` slots belong to the caller.
    #[must_use]
    pub fn new(n_kept: u32) -> Self {
        Self { events: Vec::new(), free_slots: Vec::new(), n_kept, n_slots: n_kept, sections: Vec::new() }
    }

    /// The caller's slot of that number.
    #[must_use]
    pub const fn kept(n: u32) -> Slot {
        Slot(n)
    }

    /// Whether a slot is the caller's.
    #[must_use]
    pub const fn is_kept(&self, slot: Slot) -> bool {
        slot.0 < self.n_kept
    }

    /// Stores a tensor in a slot of the caller's.
    pub fn alloc_in(&mut self, slot: Slot, stored: impl Into<Stored>, layer: Option<u64>) {
        let layer = layer.map_or(NO_LAYER, |layer| u16::try_from(layer).unwrap_or(NO_LAYER));
        self.events.push(Event { slot, code: stored.into().code(), layer });
    }

    /// Stores a tensor in a slot of the writer's.
    pub fn alloc(&mut self, stored: impl Into<Stored>, layer: Option<u64>) -> Slot {
        let slot = Slot(self.free_slots.pop().unwrap_or_else(|| {
            self.n_slots += 1;
            self.n_slots - 1
        }));
        self.alloc_in(slot, stored, layer);
        slot
    }

    /// Gives back a tensor in a slot of the caller's.
    pub fn free_kept(&mut self, slot: Slot) {
        self.events.push(Event { slot, code: FREE, layer: NO_LAYER });
    }

    /// Gives back a tensor in a slot of the writer's.
    pub fn free(&mut self, slot: Slot) {
        self.free_kept(slot);
        self.free_slots.push(slot.0);
    }

    /// Gives back what is there.
    pub fn free_some(&mut self, slot: Option<Slot>) {
        if let Some(slot) = slot {
            self.free(slot);
        }
    }

    /// Gives back several, in order.
    pub fn free_all(&mut self, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            self.free(slot);
        }
    }

    /// A tensor stored and given back at once.
    pub fn transient(&mut self, stored: impl Into<Stored>, layer: Option<u64>) {
        let slot = self.alloc(stored, layer);
        self.free(slot);
    }

    /// Ends a section: the events since the last.
    pub fn section(&mut self, batch: Batch) -> SectionId {
        self.section_renaming(batch, Vec::new())
    }

    /// Ends a section after which slots go by other names.
    pub fn section_renaming(&mut self, batch: Batch, renames: Vec<(Slot, Slot)>) -> SectionId {
        // Copied out at its exact length, so that the list grows once for all sections.
        self.sections.push(Section { batch, events: self.events.as_slice().to_vec(), renames });
        self.events.clear();
        SectionId(self.sections.len() - 1)
    }

    /// The sections and the number of slots.
    #[must_use]
    pub fn finish(self) -> (Vec<Section>, usize) {
        (self.sections, self.n_slots as usize)
    }
}
