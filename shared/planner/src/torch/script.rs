//! A training script on the engine, recorded by phase, and the program of its run.
//!
//! A loop runs three times at most. If the third round repeats the second one, the program replays the second round for
//! all later ones.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use super::{
    Layout, Torch,
    heap::{Event, Label, Name},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::{Lifetime, MAX_TENSOR_BYTES, TensorTooLarge},
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
        Recording { events: self.torch.take_events(), modules: self.torch.modules.paths(), parts: self.parts }
    }
}

/// A script's events by section.
#[derive(Debug)]
pub struct Recording {
    events: Vec<Event>,
    modules: Vec<String>,
    parts: Vec<Part>,
}

impl Recording {
    /// Phase and events of each section that ran, in order.
    pub fn sections(&self) -> impl Iterator<Item = (Phase, &[Event])> {
        let sections = self.parts.iter().flat_map(|part| &part.rounds).flatten();
        sections.map(|section| (section.phase, &self.events[section.events.clone()]))
    }

    /// The program of the whole run.
    ///
    /// # Errors
    /// A tensor exceeds the memory of every GPU.
    pub fn program(&self) -> Result<Program, TensorTooLarge> {
        let mut writer = Writer {
            recording: self,
            codes: HashMap::new(),
            tensors: Vec::new(),
            slots: HashMap::new(),
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

    fn events_of(&self, round: &[Section]) -> &[Event] {
        let start = round.first().map_or(0, |section| section.events.start);
        let end = round.last().map_or(start, |section| section.events.end);
        &self.events[start..end]
    }

    /// Tensors that a round hands to the next one. `None` if the rounds differ.
    fn replacements(&self, round: &[Section], next: &[Section]) -> Option<Replacements> {
        let (round, next) = (self.events_of(round), self.events_of(next));
        if round.len() != next.len() {
            return None;
        }
        // Tensors by block that the round, or the next one, allocated and did not free: the index of the allocation.
        let (mut handed, mut own): (HashMap<u32, usize>, HashMap<u32, usize>) = (HashMap::new(), HashMap::new());
        let mut frees_before = HashMap::new();
        for (at, event) in round.iter().enumerate() {
            match event {
                Event::Alloc { block, .. } => {
                    handed.insert(*block, at);
                }
                Event::Free { block } => {
                    frees_before.insert(at, handed.remove(block));
                }
            }
        }
        let mut replacements = HashMap::new();
        for (at, (event, earlier)) in next.iter().zip(round).enumerate() {
            match (event, earlier) {
                (Event::Alloc { block, bytes, label }, Event::Alloc { bytes: bytes_before, label: before, .. })
                    if (bytes, label) == (bytes_before, before) =>
                {
                    own.insert(*block, at);
                }
                (Event::Free { block }, Event::Free { .. }) => {
                    let before = *frees_before.get(&at)?;
                    match own.remove(block) {
                        Some(allocated) if before == Some(allocated) => {}
                        Some(_) => return None,
                        None if before.is_none() => {
                            replacements.insert(at, handed.remove(block)?);
                        }
                        None => return None,
                    }
                }
                _ => return None,
            }
        }
        handed.is_empty().then_some(replacements)
    }
}

/// What determines a row of the table: everything except the block's number.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: Name,
    module: u16,
    is_in_block: bool,
    category: u8,
    lifetime: Lifetime,
    layout: Layout,
    dtype: Dtype,
}

/// Tensors that a round hands to the next one: the index of the allocation, by the index of the free of the tensor that it
/// replaces.
type Replacements = HashMap<usize, usize>;

/// A written round.
struct Written {
    sections: Vec<(Phase, SectionId)>,
    /// Slots of the tensors that the round hands over, by the index of their allocation.
    sources: HashMap<usize, Slot>,
    /// Slots of the tensors that they replace, by the same index.
    targets: HashMap<usize, Slot>,
}

struct Writer<'r> {
    recording: &'r Recording,
    codes: HashMap<Key, u16>,
    tensors: Vec<Arc<DerivedTensor>>,
    /// Slot of each live block.
    slots: HashMap<u32, Slot>,
    w: ProgramBuilder,
}

impl Writer<'_> {
    fn code(&mut self, label: &Label, bytes: u64) -> Result<u16, TensorTooLarge> {
        let Label { name, scope, category, lifetime, layout, dtype } = *label;
        if bytes > MAX_TENSOR_BYTES {
            let (Name::Parameter(name) | Name::Operation(name) | Name::Of(_, name)) = name;
            return Err(TensorTooLarge { name });
        }
        let is_in_block = scope.layer.is_some();
        let key = Key { name, module: scope.module, is_in_block, category: category as u8, lifetime, layout, dtype };
        if let Some(code) = self.codes.get(&key) {
            return Ok(*code);
        }
        let module = self.recording.modules.get(usize::from(scope.module)).cloned().unwrap_or_default();
        let dot = if module.is_empty() { "" } else { "." };
        let name = match name {
            Name::Parameter(name) => [&module, dot, name].concat(),
            Name::Of(role, name) => [role, " of ", &module, dot, name].concat(),
            Name::Operation(name) if module.is_empty() => name.to_owned(),
            Name::Operation(name) => [name, " (", &module, ")"].concat(),
        };
        let shape = layout.sizes().to_vec();
        self.tensors.push(Arc::new(DerivedTensor { name, module, category, lifetime, shape, dtype, bytes }));
        let code = u16::try_from(self.tensors.len() - 1).map_err(|_| TensorTooLarge { name: "the model" })?;
        self.codes.insert(key, code);
        Ok(code)
    }

    fn alloc(&mut self, block: u32, bytes: u64, label: &Label) -> Result<(), TensorTooLarge> {
        // A tensor without elements has no block in the allocator.
        if bytes > 0 {
            let code = self.code(label, bytes)?;
            let slot = self.w.alloc_code(code, label.scope.layer.map(u64::from));
            self.slots.insert(block, slot);
        }
        Ok(())
    }

    /// Writes the sections of a round. `replacements` are those of a round that repeats; at its end, each tensor that is
    /// handed over moves to the slot of the one that it replaces.
    fn round(&mut self, round: &[Section], replacements: &Replacements) -> Result<Written, TensorTooLarge> {
        let start = round.first().map_or(0, |section| section.events.start);
        let handed: HashSet<usize> = replacements.values().copied().collect();
        let (mut sections, mut sources, mut targets) = (Vec::new(), HashMap::new(), HashMap::new());
        for (at, section) in round.iter().enumerate() {
            for (index, event) in section.events.clone().zip(&self.recording.events[section.events.clone()]) {
                let index = index - start;
                match event {
                    Event::Alloc { block, bytes, label } => {
                        self.alloc(*block, *bytes, label)?;
                        if handed.contains(&index) {
                            sources.extend(self.slots.get(block).map(|slot| (index, *slot)));
                        }
                    }
                    Event::Free { block } => {
                        let Some(slot) = self.slots.remove(block) else { continue };
                        match replacements.get(&index) {
                            Some(replacement) => {
                                self.w.free_kept(slot);
                                targets.insert(*replacement, slot);
                            }
                            None => self.w.free(slot),
                        }
                    }
                }
            }
            let mut renames = Vec::new();
            if at + 1 == round.len() {
                renames.extend(targets.iter().filter_map(|(index, to)| Some((*sources.get(index)?, *to))));
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
        Ok(ScheduleEntry::once(self.round(round, &Replacements::new())?.sections))
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
        self.slots.retain(|_, slot| !sources.values().any(|handed| handed == slot));
        sources.into_values().for_each(|slot| self.w.release(slot));
        for (index, event) in self.recording.events_of(next).iter().enumerate() {
            if let (Event::Alloc { block, .. }, Some(slot)) = (event, targets.get(&index)) {
                self.slots.insert(*block, *slot);
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
