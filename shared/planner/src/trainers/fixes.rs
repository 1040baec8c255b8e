//! Fixes for a run of a trainer that does not fit: changes of its command line. Each one is planned, alone and, if none
//! suffices, in combination.

#[cfg(test)]
mod tests;

use std::{cell::RefCell, cmp::Ordering, collections::BTreeMap};

use headroom_text::{self as text, Key, Text};
use serde_json::{Map, Value};

use super::{Run, TrainerRequest, largest_that_fits, plan};
use crate::{
    advice::{Effect, Knob, largest_of},
    gpt::tensors::Category,
    memory::allocator::SegmentKind,
    plan::{Fit, Machine, Plan, Room, RunOnMachine},
};

/// An insufficient change is listed if it saves more than 1/`NOTEWORTHY` of the memory in use.
const NOTEWORTHY: u64 = 100;

/// Options with their values, as on the trainer's command line.
pub type Options = Vec<(&'static str, String)>;

/// A kind of change.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Id in JSON.
    pub id: &'static str,
    /// The settings to choose from, ascending in memory.
    pub variants: Vec<Options>,
    /// Whether it sets `expandable_segments:True` instead of options.
    pub expandable: bool,
    /// Effect on training.
    pub effect: Effect,
    /// Whether each step takes longer.
    pub is_slower: bool,
    /// What the change does and costs.
    pub note: Key,
}

impl Move {
    /// A change of options to one of these settings, without effect on the training.
    pub(super) fn to(id: &'static str, variants: Vec<Options>, note: Key) -> Self {
        Self { id, variants, expandable: false, effect: Effect::None, is_slower: false, note }
    }

    pub(super) fn slower(self) -> Self {
        Self { is_slower: true, ..self }
    }

    pub(super) fn with_effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    fn expandable_segments() -> Self {
        Self { expandable: true, ..Self::to("expandable_segments", vec![vec![]], text::TRAINER_WHY_EXPANDABLE) }
    }
}

/// Smaller values of a knob as settings of one option, ascending.
pub(super) fn smaller(run: &Run, knob: Knob) -> Vec<Options> {
    let values = run.candidates(knob).into_iter().filter(|value| *value < knob.value);
    values.map(|value| vec![(knob.key, value.to_string())]).collect()
}

/// A fix: changes that are applied together.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerFix {
    /// Ids of its kinds of change.
    pub ids: Vec<&'static str>,
    /// Options to change, with their values.
    pub options: Options,
    /// Whether it needs `expandable_segments:True`.
    pub expandable: bool,
    /// Effect on training.
    pub effect: Effect,
    /// Whether each step takes longer.
    pub is_slower: bool,
    /// What the changes do and cost.
    pub notes: Vec<Key>,
    /// Memory in use on the whole GPU at the peak, in bytes.
    pub device_used_bytes: u64,
    /// Reduction of that memory, in bytes.
    pub saves_bytes: u64,
    /// Whether the run fits with the fix, and the memory left.
    pub room: Room,
}

impl TrainerFix {
    /// Whether the run fits with the fix.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.room.fit != Fit::Fails
    }

    /// The options as words of the command line. A switch that is on has no value.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        arguments(&self.options)
    }

    /// What the changes do and cost, in English.
    #[must_use]
    pub fn note(&self) -> String {
        self.notes.iter().map(|note| Text::from(*note).to_string()).collect::<Vec<_>>().join(" ")
    }

    /// The fix as a row of the JSON schema.
    #[must_use]
    pub fn json(&self) -> Value {
        let value = |text: &str| match (text, text.parse::<u64>()) {
            ("True", _) => Value::Bool(true),
            (_, Ok(number)) => number.into(),
            _ => text.into(),
        };
        let expandable = self.expandable.then(|| ("expandable_segments".to_owned(), Value::Bool(true)));
        let changes: Map<String, Value> =
            self.options.iter().map(|(key, text)| ((*key).to_owned(), value(text))).chain(expandable).collect();
        serde_json::json!({
            "id": self.ids.join("+"),
            "changes": changes,
            "arguments": self.arguments(),
            "device_used_bytes": self.device_used_bytes,
            "saves_bytes": self.saves_bytes,
            "fits": self.fits(),
            "outcome": self.room.fit.name(),
            "headroom_bytes": self.room.headroom_bytes,
            "headroom_band_bytes": self.room.band_bytes,
            "effect_on_training": self.effect.name(),
            "slower": self.is_slower,
            "note": self.note(),
        })
    }

    /// Order of fixes, least harmful first: whether they suffice, their effect on training, certainty, time, number of
    /// changes, memory left.
    fn harm(&self, other: &Self) -> Ordering {
        if !self.fits() && !other.fits() {
            return other.saves_bytes.cmp(&self.saves_bytes);
        }
        let is_certain = |fix: &Self| fix.room.fit == Fit::Fits;
        (other.fits().cmp(&self.fits()))
            .then_with(|| self.effect.cmp(&other.effect))
            .then_with(|| is_certain(other).cmp(&is_certain(self)))
            .then_with(|| self.is_slower.cmp(&other.is_slower))
            .then_with(|| self.ids.len().cmp(&other.ids.len()))
            .then_with(|| other.room.headroom_bytes.cmp(&self.room.headroom_bytes))
    }
}

fn arguments(options: &Options) -> Vec<String> {
    let word = |(key, value): &(&str, String)| match value.as_str() {
        "True" => format!("--{key}"),
        value => format!("--{key}={value}"),
    };
    options.iter().map(word).collect()
}

/// Advice beyond a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainerAdvice {
    /// The largest value of each knob with which the run fits, if nothing else changes.
    pub largest: Vec<(Knob, Option<u64>)>,
    /// Fixes, best first. Insufficient ones come last; empty if the run fits.
    pub fixes: Vec<TrainerFix>,
    /// Why no change that keeps the training makes the run fit, in sentences. Empty if one does.
    pub obstacle: Vec<Text>,
}

/// Advice on a planned run.
#[must_use]
pub fn advise(plan: &Plan<TrainerRequest>) -> TrainerAdvice {
    let knobs = plan.request.run.knobs().into_iter();
    let largest = knobs.map(|knob| (knob, largest_that_fits(&plan.request, knob))).collect();
    if plan.fits {
        return TrainerAdvice { largest, ..TrainerAdvice::default() };
    }
    let adviser = Adviser::new(plan);
    let fixes = adviser.fixes();
    let keeps_training = fixes.iter().any(|fix| fix.fits() && fix.effect != Effect::ChangesModel);
    let obstacle = if keeps_training { Vec::new() } else { adviser.obstacle() };
    TrainerAdvice { largest, fixes, obstacle }
}

/// The changed options, and whether segments are expandable.
type Changes = (Options, bool);

/// A move with one of its settings.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    step: &'a Move,
    options: &'a Options,
}

/// The changes of these moves together.
fn changes(chosen: &[Chosen<'_>]) -> Changes {
    let options = chosen.iter().flat_map(|chosen| chosen.options.iter().cloned()).collect();
    (options, chosen.iter().any(|chosen| chosen.step.expandable))
}

struct Adviser<'a> {
    before: &'a Plan<TrainerRequest>,
    moves: Vec<Move>,
    /// Rooms and memory in use of changes that were planned. `None` if the trainer rejects them.
    known: RefCell<BTreeMap<Changes, Option<(Room, u64)>>>,
}

impl<'a> Adviser<'a> {
    fn new(before: &'a Plan<TrainerRequest>) -> Self {
        let TrainerRequest { run, machine } = &before.request;
        let mut moves = run.moves(machine.gpu());
        moves.retain(|step| !step.variants.is_empty());
        if machine.segments == SegmentKind::Native {
            moves.push(Move::expandable_segments());
        }
        Self { before, moves, known: RefCell::default() }
    }

    fn plan(&self, (options, expandable): &Changes) -> Option<Plan<TrainerRequest>> {
        let TrainerRequest { run, machine } = &self.before.request;
        let segments = if *expandable { SegmentKind::Expandable } else { machine.segments };
        let machine = Machine { segments, ..machine.clone() };
        plan(TrainerRequest::new(run.with_options(options)?, machine).ok()?).ok()
    }

    fn at(&self, changes: &Changes) -> Option<(Room, u64)> {
        let known = self.known.borrow().get(changes).copied();
        known.unwrap_or_else(|| {
            let found = self.plan(changes).map(|plan| (plan.room(), plan.peak.device_used_bytes));
            self.known.borrow_mut().insert(changes.clone(), found);
            found
        })
    }

    fn fit(&self, changes: &Changes) -> Fit {
        self.at(changes).map_or(Fit::Fails, |(room, _)| room.fit)
    }

    /// These moves with their settings: the largest that fits of the last move with several, and the smallest of others.
    fn chosen<'m>(&self, moves: &[&'m Move]) -> Vec<Chosen<'m>> {
        let sized = moves.iter().rposition(|step| step.variants.len() > 1);
        let at = |variant: usize| -> Vec<Chosen<'m>> {
            let of = |(index, step): (usize, &&'m Move)| {
                let variant = if Some(index) == sized { variant } else { 0 };
                step.variants.get(variant).map(|options| Chosen { step, options })
            };
            moves.iter().enumerate().filter_map(of).collect()
        };
        let n_variants = sized.map_or(1, |index| moves[index].variants.len());
        let variants: Vec<u64> = (0..n_variants as u64).collect();
        let index = |variant: u64| usize::try_from(variant).unwrap_or(0);
        let largest =
            |passes: fn(Fit) -> bool| largest_of(&variants, |variant| passes(self.fit(&changes(&at(index(variant))))));
        let found = largest(|fit| fit == Fit::Fits).or_else(|| largest(|fit| fit != Fit::Fails));
        at(index(found.unwrap_or(0)))
    }

    /// The moves as a fix; `None` if they bring no improvement.
    fn fix(&self, chosen: &[Chosen<'_>]) -> Option<TrainerFix> {
        let (options, expandable) = changes(chosen);
        let (room, device_used_bytes) = self.at(&(options.clone(), expandable))?;
        let before = self.before.peak.device_used_bytes;
        let saves_bytes = before.saturating_sub(device_used_bytes);
        if room.fit == Fit::Fails && saves_bytes < before / NOTEWORTHY {
            return None;
        }
        let steps = || chosen.iter().map(|chosen| chosen.step);
        Some(TrainerFix {
            ids: steps().map(|step| step.id).collect(),
            options,
            expandable,
            effect: steps().map(|step| step.effect).max().unwrap_or(Effect::None),
            is_slower: steps().any(|step| step.is_slower),
            notes: steps().map(|step| step.note).collect(),
            device_used_bytes,
            saves_bytes,
            room,
        })
    }

    /// All fixes, best first.
    fn fixes(&self) -> Vec<TrainerFix> {
        let mut fixes: Vec<TrainerFix> = self.moves.iter().filter_map(|step| self.fix(&self.chosen(&[step]))).collect();
        let (keeping, changing): (Vec<&Move>, Vec<&Move>) =
            self.moves.iter().partition(|step| step.effect != Effect::ChangesModel);
        let keeps_training =
            |fixes: &[TrainerFix]| fixes.iter().any(|fix| fix.fits() && fix.effect != Effect::ChangesModel);
        if !keeps_training(&fixes) {
            fixes.extend(self.pairs(&keeping));
        }
        if !keeps_training(&fixes) {
            fixes.extend(self.needed(keeping.clone()));
        }
        if !keeps_training(&fixes) {
            for step in changing.iter().filter(|step| !self.fits(&[step])) {
                fixes.extend(self.needed([&keeping[..], &[*step]].concat()));
            }
        }
        if !fixes.iter().any(TrainerFix::fits) {
            fixes.extend(self.needed([keeping, changing].concat()));
        }
        fixes.sort_by(TrainerFix::harm);
        fixes.dedup_by(|a, b| a.options == b.options && a.expandable == b.expandable);
        fixes
    }

    fn fits(&self, moves: &[&Move]) -> bool {
        self.fit(&changes(&self.chosen(moves))) != Fit::Fails
    }

    /// Fixes of two changes, neither of which suffices alone.
    fn pairs(&self, moves: &[&Move]) -> Vec<TrainerFix> {
        let insufficient: Vec<&Move> = moves.iter().copied().filter(|step| !self.fits(&[step])).collect();
        let pairs = insufficient
            .iter()
            .enumerate()
            .flat_map(|(n, first)| insufficient[n + 1..].iter().map(move |second| [*first, *second]));
        pairs.filter_map(|pair| self.fix(&self.chosen(&pair))).filter(TrainerFix::fits).collect()
    }

    /// These changes together, without those that are not needed. `None` if the run does not fit with all of them.
    fn needed(&self, mut moves: Vec<&Move>) -> Option<TrainerFix> {
        moves.sort_by_key(|step| (step.effect, step.is_slower));
        let mut chosen = self.chosen(&moves);
        let fits = |chosen: &[Chosen<'_>]| self.fit(&changes(chosen)) != Fit::Fails;
        if !fits(&chosen) {
            return None;
        }
        // The most harmful are removed first, with the settings of the others unchanged.
        for at in (0..chosen.len()).rev() {
            let mut fewer = chosen.clone();
            fewer.remove(at);
            if fits(&fewer) {
                chosen = fewer;
            }
        }
        self.fix(&chosen)
    }

    /// What the run holds even with all changes that keep the training.
    fn obstacle(&self) -> Vec<Text> {
        let keeping = self.moves.iter().filter(|step| step.effect != Effect::ChangesModel);
        let smallest: Options = keeping.filter_map(|step| step.variants.first()).flatten().cloned().collect();
        let Some(plan) = self.plan(&(smallest, false)) else { return Vec::new() };
        let of = |category: Category| plan.peak.by_category[category as usize];
        let model = [Category::Parameters, Category::Gradients, Category::OptimizerState].map(of);
        let [parameters, gradients, state] = model.map(text::size);
        let used = text::size(plan.peak.device_used_bytes);
        let total = text::size(plan.request.machine().device.total_bytes);
        let needs = text::trainer_obstacle(used, total, text::size(model.iter().sum()), parameters, gradients, state);
        [needs].into_iter().chain(plan.request.run.optimizer_remark().map(Text::from)).collect()
    }
}
