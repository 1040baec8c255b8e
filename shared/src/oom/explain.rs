//! What a message means: the allocation of a simulated run that it reports, or, without a config, the tensors that have
//! its size.

use serde_json::{Map, Value as Json};

use super::{
    Cause, Kind, Message, Note, Size,
    guess::{Guess, guesses},
};
use crate::{
    dtype::Dtype,
    hardware::{Device, devices},
    memory::{allocator::segment_bytes, program::Phase},
    plan::{Plan, Request, plan},
    text::{self, Text},
};

/// What is allocated may differ by this part of itself and still be called close.
const CLOSE: u64 = 33;

/// A tensor that the message may be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Its name, in words where it may be one of several.
    pub tensor: Text,
    /// Its axes, slowest first.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// Where in the run; `None` without a config.
    pub phase: Option<Phase>,
    /// Whether every figure agrees to the printed digit.
    pub exact: bool,
}

impl Match {
    /// The JSON contract's row.
    #[must_use]
    pub fn json(&self) -> Json {
        let mut row = Map::new();
        let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
        put("tensor", Json::from(self.tensor.to_string()));
        put("shape", Json::from(self.shape.clone()));
        put("dtype", Json::from(self.dtype.name()));
        put("phase", Json::from(self.phase.map(Phase::name)));
        put("exact", Json::from(self.exact));
        Json::Object(row)
    }
}

/// How well a simulated run agrees with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Every printed digit.
    Exact,
    /// The same tensor, with other sums around it.
    Close,
    /// No allocation of the run.
    None,
}

/// Who holds the card when the allocation fails, in bytes; `None` where the message does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// The card.
    pub total: Option<u64>,
    /// Other processes; with an old message, the context too.
    pub others: Option<u64>,
    /// This process outside PyTorch.
    pub context: Option<u64>,
    /// Live tensors.
    pub allocated: Option<u64>,
    /// Reserved by PyTorch and not allocated.
    pub unallocated: Option<u64>,
    /// Free.
    pub free: Option<u64>,
    /// Asked for.
    pub requested: Option<u64>,
    /// Asked for beyond what is free.
    pub missing: Option<u64>,
}

impl Arithmetic {
    /// The sums of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let bytes = |size: Option<Size>| size.map(|size| size.bytes);
        let [total, free, process, reserved] =
            [message.total, message.free, message.process, message.reserved].map(bytes);
        // In a container this process goes by a number like the others.
        let own = message.own_process.and_then(|at| message.other_processes.get(at)).map(|own| own.bytes.bytes);
        let process = process.or(own);
        let (requested, allocated) = (bytes(message.requested), bytes(message.allocated));
        let inside = process.or(reserved);
        // Three rounded figures: what they differ by within their last digits is nobody's.
        let noise = [message.total, message.free, message.process.or(message.reserved)];
        let noise: u64 = noise.into_iter().flatten().map(|size| size.resolution_bytes).sum::<u64>() / 2;
        let others = match (total, free, inside) {
            (Some(total), Some(free), Some(inside)) => {
                let others = total.saturating_sub(free).saturating_sub(inside);
                Some(if others > noise { others } else { 0 })
            }
            _ => None,
        };
        let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_sub(b));
        Self {
            total,
            others,
            context: both(process, reserved),
            allocated,
            unallocated: bytes(message.unallocated).or_else(|| both(reserved, allocated)),
            free,
            requested,
            missing: both(requested, free),
        }
    }
}

/// What is made of a report.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The tensors it may be about, the most probable first.
    pub matches: Vec<Match>,
    /// How well the best of them agrees, where there is a config.
    pub agreement: Option<Agreement>,
    /// In words.
    pub text: Text,
    /// Who holds the card.
    pub arithmetic: Arithmetic,
    /// Why memory ran out, the first cause first; empty where the message has no figures.
    pub causes: Vec<Cause>,
    /// The run as it was planned for this card, where there is a config.
    pub plan: Option<Plan>,
}

/// Explains a message; `asked` is the run, where a config is known, on the card as
/// the message has it.
#[must_use]
pub fn explain(message: Option<&Message>, asked: Option<Request>) -> Explanation {
    let Some(message) = message else {
        return without_plan(vec![], text::NO_OOM.into(), Arithmetic::default());
    };
    let arithmetic = Arithmetic::of(message);
    if !matches!(message.kind, Kind::Pytorch) {
        return without_plan(vec![], super::words::other_kind(message).into(), arithmetic);
    }
    let Some(requested) = message.requested else {
        let text = if message.notes.contains(&Note::MoreThanExabyte) { text::NEGATIVE_SIZE } else { text::CUT_OFF };
        return without_plan(vec![], text.into(), arithmetic);
    };
    match asked.and_then(|asked| plan(asked).ok()) {
        Some(plan) => simulated(message, requested, plan, arithmetic),
        None => guessed(requested, arithmetic),
    }
}

fn without_plan(matches: Vec<Match>, text: Text, arithmetic: Arithmetic) -> Explanation {
    Explanation { matches, agreement: None, text, arithmetic, causes: vec![], plan: None }
}

/// The card a message speaks of: of the cards whose memory prints as its figure, the first of the table.
#[must_use]
pub fn card_of(message: &Message) -> Option<&'static Device> {
    let total = message.total?;
    devices()
        .iter()
        .min_by_key(|device| device.total_bytes.abs_diff(total.bytes))
        .filter(|device| device.total_bytes.abs_diff(total.bytes) <= total.resolution_bytes)
}

fn is_close(bytes: u64, size: Size) -> bool {
    bytes.abs_diff(size.bytes) <= size.bytes / CLOSE
}

fn simulated(message: &Message, requested: Size, plan: Plan, arithmetic: Arithmetic) -> Explanation {
    let mut matches: Vec<Match> = Vec::new();
    let mut agreement = Agreement::None;
    if let Some(oom) = &plan.oom
        && requested.is_printed_for(oom.requested_bytes)
    {
        let exact = message.allocated.is_some_and(|allocated| allocated.is_printed_for(oom.allocated_bytes));
        agreement = match message.allocated {
            Some(_) if exact => Agreement::Exact,
            Some(allocated) if !is_close(oom.allocated_bytes, allocated) => Agreement::None,
            _ => Agreement::Close,
        };
        if agreement != Agreement::None {
            matches.push(Match {
                tensor: text::verbatim(oom.tensor.as_str()),
                shape: oom.shape.clone(),
                dtype: oom.dtype,
                phase: Some(oom.phase),
                exact,
            });
        }
    }
    // Other allocations of the run that ask for as much.
    let near = message.allocated.map_or(0, |allocated| allocated.bytes);
    for asked in plan.allocations(|bytes| requested.is_printed_for(segment_bytes(bytes)), near) {
        let tensor = text::verbatim(asked.stored.name(asked.layer));
        let same = |known: &Match| known.tensor == tensor && known.phase == Some(asked.phase);
        if !matches.iter().any(same) && matches.len() < MAX_MATCHES {
            let exact = message.allocated.is_some_and(|allocated| allocated.is_printed_for(asked.live_bytes));
            matches.push(Match { tensor, shape: asked.shape, dtype: asked.dtype, phase: Some(asked.phase), exact });
        }
    }
    let text = super::words::simulated(message, &plan, agreement, &matches);
    Explanation { matches, agreement: Some(agreement), text, arithmetic, causes: vec![], plan: Some(plan) }
}

/// More tensors than these nobody weighs.
pub(super) const MAX_MATCHES: usize = 8;

fn guessed(requested: Size, arithmetic: Arithmetic) -> Explanation {
    let guesses = guesses(requested);
    let text = super::words::guessed(requested, &guesses);
    let matches = guesses.into_iter().map(Guess::into_match).collect();
    without_plan(matches, text, arithmetic)
}
