//! A training script on the engine, recorded by phase, and the program of its run.
//!
//! A loop runs three times at most. If the third round repeats the second one, the program replays the second round for
//! all later ones.

use std::{ops::Range, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    Scope, Torch,
    heap::{CompactEvent, Event, Events, Label, Name},
};
use crate::{
    gpt::tensors::{MAX_TENSOR_BYTES, TensorTooLarge},
    memory::{
        program::{Batch, Phase, Program, ProgramBuilder, ScheduleEntry, SectionId, Slot},
        stored::{DerivedTensor, TensorTable},
    },
};

/// Rounds of a loop that run: the first, a later one, and one more to see whether it repeats.
const MAX_ROUNDS: u64 = 3;

/// Events of a phase.
#[derive(Clone, Debug)]
struct Section {
    phase: Phase,
    /// Whether `torch.cuda.empty_cache()` precedes the events.
    empties_cache: bool,
    events: Range<usize>,
}

/// A part of the run: the rounds that ran, and how often the part runs in total.
#[derive(Debug)]
struct Part {
    rounds: Vec<Vec<Section>>,
    times: u64,
}

/// A script that runs on the engine.
#[derive(Debug)]
pub struct Script<'t> {
    torch: &'t Torch,
    parts: Vec<Part>,
    sections: Vec<Section>,
    start: usize,
    empties_cache: bool,
}

impl<'t> Script<'t> {
    /// A script without sections.
    #[must_use]
    pub const fn new(torch: &'t Torch) -> Self {
        Self { torch, parts: Vec::new(), sections: Vec::new(), start: 0, empties_cache: false }
    }

    /// Ends a section: the events since the previous one.
    pub fn section(&mut self, phase: Phase) {
        let end = self.torch.n_events();
        let empties_cache = std::mem::take(&mut self.empties_cache);
        self.sections.push(Section { phase, empties_cache, events: self.start..end });
        self.start = end;
    }

    /// `torch.cuda.empty_cache()` at the start of the section that ends next.
    pub fn empty_cache(&mut self) {
        self.empties_cache = true;
    }

    fn end_part(&mut self) {
        let sections = std::mem::take(&mut self.sections);
        if !sections.is_empty() {
            self.parts.push(Part { rounds: vec![sections], times: 1 });
        }
    }

    /// Runs a loop of `times` rounds. Every event of a round is in a section of it.
    pub fn repeat(&mut self, times: u64, mut round: impl FnMut(&mut Self)) {
        self.end_part();
        let mut rounds = Vec::new();
        for _ in 0..times.min(MAX_ROUNDS) {
            round(self);
            rounds.push(std::mem::take(&mut self.sections));
        }
        self.parts.push(Part { rounds, times });
    }

    /// Ends the script.
    #[must_use]
    pub fn finish(mut self) -> Recording {
        self.end_part();
        Recording { events: self.torch.heap.take_events(), modules: self.torch.modules.paths(), parts: self.parts }
    }
}

/// A script's events by section.
#[derive(Debug)]
pub struct Recording {
    events: Events,
    modules: Vec<String>,
    parts: Vec<Part>,
}

impl Recording {
    /// Phase and events of each section that ran, in order.
    pub fn sections(&self) -> impl Iterator<Item = (Phase, Vec<Event>)> {
        let sections = self.parts.iter().flat_map(|part| &part.rounds).flatten();
        sections.map(|section| (section.phase, self.events.expanded(section.events.clone())))
    }

    /// The program of the whole run.
    ///
    /// # Errors
    /// A tensor exceeds the memory of every GPU.
    pub fn program(&self) -> Result<Program, TensorTooLarge> {
        let mut writer = Writer {
            recording: self,
            codes: FxHashMap::default(),
            tensors: Vec::new(),
            slots: ByNumber::default(),
            w: ProgramBuilder::new(0),
        };
        let mut schedule = Vec::new();
        for part in &self.parts {
            if let [first, second, third] = part.rounds.as_slice()
                && part.times > MAX_ROUNDS
                && let Some(replacements) = self.replacements(second, third)
            {
                schedule.push(writer.once(first)?);
                let round = writer.repeated_round(second, third, &replacements)?;
                schedule.push(ScheduleEntry::repeated(round, part.times - 1));
            } else {
                for round in &part.rounds {
                    schedule.push(writer.once(round)?);
                }
            }
        }
        let (sections, n_slots) = writer.w.finish();
        Ok(Program { tensors: TensorTable::Derived(writer.tensors), sections, schedule, n_slots })
    }

    fn events_of(&self, round: &[Section]) -> &[CompactEvent] {
        let start = round.first().map_or(0, |section| section.events.start);
        let end = round.last().map_or(start, |section| section.events.end);
        &self.events.events[start..end]
    }

    /// Tensors that a round hands to the next one. `None` if the rounds differ.
    fn replacements(&self, round: &[Section], next: &[Section]) -> Option<Replacements> {
        let (round, next) = (self.events_of(round), self.events_of(next));
        if round.len() != next.len() {
            return None;
        }
        // Tensors by block that the round, or the next one, allocated and did not free: the index of the allocation.
        let (mut handed, mut own) = (ByNumber::default(), ByNumber::default());
        let mut frees_before = vec![None; round.len()];
        for (at, event) in round.iter().enumerate() {
            if self.events.label(*event).is_some() {
                handed.insert(event.block as usize, at);
            } else {
                frees_before[at] = handed.remove(event.block as usize);
            }
        }
        let mut replacements = Replacements::default();
        for (at, ((event, earlier), before)) in next.iter().zip(round).zip(frees_before).enumerate() {
            let label = self.events.label(*event);
            if label != self.events.label(*earlier) {
                return None;
            }
            if label.is_some() {
                own.insert(event.block as usize, at);
                continue;
            }
            match (own.remove(event.block as usize), before) {
                (Some(allocated), Some(before)) if allocated == before => {}
                (None, None) => {
                    replacements.insert(at, handed.remove(event.block as usize)?);
                }
                _ => return None,
            }
        }
        handed.iter().next().is_none().then_some(replacements)
    }
}

/// Tensors that a round hands to the next one: the index of the allocation, by the index of the free of the tensor that it
/// replaces.
type Replacements = ByNumber<usize>;

/// A map from small numbers: of a block, or of an event of a round.
#[derive(Debug)]
struct ByNumber<T>(Vec<Option<T>>);

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> ByNumber<T> {
    fn insert(&mut self, number: usize, value: T) {
        if self.0.len() <= number {
            self.0.resize(number + 1, None);
        }
        self.0[number] = Some(value);
    }

    fn get(&self, number: usize) -> Option<T> {
        self.0.get(number).copied().flatten()
    }

    fn remove(&mut self, number: usize) -> Option<T> {
        self.0.get_mut(number).and_then(Option::take)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, T)> {
        self.0.iter().enumerate().filter_map(|(number, value)| Some((number, (*value)?)))
    }
}

/// A written round.
struct Written {
    sections: Vec<(Phase, SectionId)>,
    /// Slots of the tensors that the round hands over, by the index of their allocation.
    sources: ByNumber<Slot>,
    /// Slots of the tensors that they replace, by the same index.
    targets: ByNumber<Slot>,
}

struct Writer<'r> {
    recording: &'r Recording,
    /// Code of each label, by the label in the first block.
    codes: FxHashMap<Label, u16>,
    tensors: Vec<Arc<DerivedTensor>>,
    /// Slot of each live block.
    slots: ByNumber<Slot>,
    w: ProgramBuilder,
}

impl Writer<'_> {
    /// Code of a tensor in the table. The tensors of several blocks have the same one.
    fn code(&mut self, label: &Label) -> Result<u16, TensorTooLarge> {
        let scope = Scope { layer: label.scope.layer.map(|_| 0), ..label.scope };
        let label = Label { scope, ..*label };
        if let Some(code) = self.codes.get(&label) {
            return Ok(*code);
        }
        let tensor = self.tensor(&label)?;
        self.tensors.push(Arc::new(tensor));
        let code = u16::try_from(self.tensors.len() - 1).map_err(|_| TensorTooLarge { name: "the model" })?;
        self.codes.insert(label, code);
        Ok(code)
    }

    fn tensor(&self, label: &Label) -> Result<DerivedTensor, TensorTooLarge> {
        let (Label { name, scope, category, lifetime, layout, dtype }, bytes) = (*label, label.bytes());
        if bytes > MAX_TENSOR_BYTES {
            let (Name::Parameter(name) | Name::Operation(name) | Name::Of(_, name)) = name;
            return Err(TensorTooLarge { name });
        }
        let module = self.recording.modules.get(usize::from(scope.module)).cloned().unwrap_or_default();
        let dot = if module.is_empty() { "" } else { "." };
        let name = match name {
            Name::Parameter(name) => [&module, dot, name].concat(),
            Name::Of(role, name) => [role, " of ", &module, dot, name].concat(),
            Name::Operation(name) if module.is_empty() => name.to_owned(),
            Name::Operation(name) => [name, " (", &module, ")"].concat(),
        };
        let (source, shape) = ("".into(), layout.sizes().to_vec());
        Ok(DerivedTensor { name, module, source, category, lifetime, shape, dtype, bytes })
    }

    /// Writes an allocation. Returns the slot of its tensor; `None` if it has no elements and thus no block in the
    /// allocator.
    fn alloc(&mut self, block: u32, label: &Label) -> Result<Option<Slot>, TensorTooLarge> {
        if label.bytes() == 0 {
            return Ok(None);
        }
        let code = self.code(label)?;
        let slot = self.w.alloc_code(code, label.scope.layer.map(u64::from));
        self.slots.insert(block as usize, slot);
        Ok(Some(slot))
    }

    /// Writes the sections of a round. `replacements` are those of a round that repeats; at its end, each tensor that is
    /// handed over moves to the slot of the one that it replaces.
    fn round(&mut self, round: &[Section], replacements: &Replacements) -> Result<Written, TensorTooLarge> {
        let start = round.first().map_or(0, |section| section.events.start);
        let mut handed = ByNumber::default();
        replacements.iter().for_each(|(_, index)| handed.insert(index, ()));
        let (mut sections, mut sources, mut targets) = (Vec::new(), ByNumber::default(), ByNumber::default());
        for (at, section) in round.iter().enumerate() {
            for (index, &event) in section.events.clone().zip(&self.recording.events.events[section.events.clone()]) {
                let index = index - start;
                if let Some(label) = self.recording.events.label(event) {
                    let slot = self.alloc(event.block, label)?;
                    if let (Some(slot), Some(())) = (slot, handed.get(index)) {
                        sources.insert(index, slot);
                    }
                    continue;
                }
                let Some(slot) = self.slots.remove(event.block as usize) else { continue };
                match replacements.get(index) {
                    Some(replacement) => {
                        self.w.free_kept(slot);
                        targets.insert(replacement, slot);
                    }
                    None => self.w.free(slot),
                }
            }
            let mut renames = Vec::new();
            if at + 1 == round.len() {
                renames.extend(targets.iter().filter_map(|(index, to)| Some((sources.get(index)?, to))));
                renames.sort_by_key(|(_, to)| to.index());
            }
            let id = self.w.section_renaming(batch(section.phase), renames);
            if section.empties_cache {
                self.w.empty_cache_before(id);
            }
            sections.push((section.phase, id));
        }
        Ok(Written { sections, sources, targets })
    }

    /// Writes a round that runs once.
    fn once(&mut self, round: &[Section]) -> Result<ScheduleEntry, TensorTooLarge> {
        Ok(ScheduleEntry::once(self.round(round, &Replacements::default())?.sections))
    }

    /// Writes the sections of a round that repeats. Afterwards, blocks are those of the next round, which is not
    /// written.
    fn repeated_round(
        &mut self,
        round: &[Section],
        next: &[Section],
        replacements: &Replacements,
    ) -> Result<Vec<(Phase, SectionId)>, TensorTooLarge> {
        let Written { sections, sources, targets } = self.round(round, replacements)?;
        for slot in &mut self.slots.0 {
            *slot = slot.filter(|slot| !sources.iter().any(|(_, handed)| handed == *slot));
        }
        sources.iter().for_each(|(_, slot)| self.w.release(slot));
        let next = self.recording.events_of(next);
        for (index, slot) in targets.iter() {
            if let Some(event) = next.get(index) {
                self.slots.insert(event.block as usize, slot);
            }
        }
        Ok(sections)
    }
}

/// Batch of a phase's shapes.
const fn batch(phase: Phase) -> Batch {
    match phase {
        Phase::EvalFirst | Phase::Eval | Phase::LaterEvalFirst | Phase::LaterEval => Batch::Eval,
        _ => Batch::Train,
    }
}

#[cfg(test)]
mod tests;
