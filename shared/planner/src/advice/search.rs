//! Search for fixes: which changes are tried.

use super::{Adviser, Change, Fix, Kind, RunSwitch, batch::MAX_BATCH_SIZE, largest};
use crate::{
    dtype::Dtype,
    memory::allocator::SegmentKind,
    nanogpt::Value,
    optimizer_spec::Optimizer,
    plan::PlanOutcome,
    train_config::{Attention, CrossEntropy, MAX_COUNT},
};

/// Minimum block size tried; below it, a GPT has almost no context.
const MIN_BLOCK_SIZE: u64 = 64;

/// Smaller models to try, largest first: layers, heads, channels. GPT-2's family, then common models for small GPUs.
const MODELS: [(u64, u64, u64); 9] = [
    (36, 20, 1280),
    (24, 16, 1024),
    (12, 12, 768),
    (12, 9, 576),
    (12, 8, 512),
    (12, 7, 448),
    (8, 8, 512),
    (6, 6, 384),
    (4, 4, 128),
];

/// One kind of change with its settings.
type Move = (Kind, Vec<Change>);

impl Adviser<'_> {
    /// All fixes, best first.
    pub(super) fn fixes(&self) -> Vec<Fix> {
        let mut fixes = Vec::new();
        let switches = self.switches();
        for (kind, changes) in &switches {
            self.add(&mut fixes, &[*kind], changes.clone());
        }
        if let Some(changes) = self.smaller_eval_batch() {
            self.add(&mut fixes, &[Kind::EvalBatch], changes);
        }
        let micro_batch = self.micro_batch(&[]).or_else(|| self.micro_batch_of(1));
        if let Some(changes) = micro_batch {
            self.add(&mut fixes, &[Kind::MicroBatch], changes);
        }
        // A single sufficient fix without side effects makes combinations unnecessary.
        if !fixes.iter().any(|fix| fix.fits && fix.kinds != [Kind::MicroBatch] && fix.effect() == super::Effect::None) {
            self.combine(&mut fixes, &switches);
        }
        self.change_the_model(&mut fixes, &switches);
        fixes
    }

    /// Inserts a fix at its rank.
    fn add(&self, fixes: &mut Vec<Fix>, kinds: &[Kind], changes: Vec<Change>) {
        if fixes.iter().any(|fix| fix.changes == changes) {
            return;
        }
        if let Some(fix) = self.fix(kinds, changes) {
            // Expandable segments help only if fragmentation is the cause.
            if fix.kinds == [Kind::ExpandableSegments] && !fix.fits {
                return;
            }
            let at = fixes.partition_point(|better| better.harm(&fix).is_le());
            fixes.insert(at, fix);
        }
    }

    /// Available on/off changes, least harmful first.
    fn switches(&self) -> Vec<Move> {
        let request = &self.before.request;
        let train = &request.train;
        let mut moves: Vec<Move> = Vec::new();
        let mut offer = |applies: bool, kind: Kind, change: Change| {
            if applies {
                moves.push((kind, vec![change]));
            }
        };
        let is_whole = train.cross_entropy == CrossEntropy::Whole;
        offer(!train.compile, Kind::Compile, Change::Key("compile", Value::Bool(true)));
        offer(train.attention == Attention::Math, Kind::FlashAttention, Change::Switch(RunSwitch::FlashAttention));
        offer(
            is_whole && !train.del_eval_logits && train.eval_iters > 0,
            Kind::DelEvalLogits,
            Change::Switch(RunSwitch::DelEvalLogits),
        );
        offer(
            request.machine.segments == SegmentKind::Native,
            Kind::ExpandableSegments,
            Change::Switch(RunSwitch::ExpandableSegments),
        );
        offer(
            request.machine.other_processes_bytes > 0,
            Kind::OtherProcesses,
            Change::Switch(RunSwitch::NoOtherProcesses),
        );
        offer(is_whole, Kind::ChunkedLoss, Change::Switch(RunSwitch::ChunkedLoss));
        offer(
            !train.activation_checkpointing,
            Kind::ActivationCheckpointing,
            Change::Switch(RunSwitch::ActivationCheckpointing),
        );
        let half = if request.machine.device.supports_bfloat16() { "bfloat16" } else { "float16" };
        // With emulated bfloat16, attention stays in float32.
        let is_emulated = train.dtype == Dtype::Bfloat16 && !request.machine.device.supports_bfloat16();
        offer(!train.is_half() || is_emulated, Kind::Dtype, Change::Key("dtype", Value::Str(half.to_owned())));
        for &optimizer in Optimizer::ALL {
            let is_advised = optimizer.spec().reason.is_some() && optimizer != train.optimizer;
            offer(is_advised, Kind::Optimizer(optimizer), Change::Switch(RunSwitch::Optimizer(optimizer)));
        }
        moves
    }

    /// Smaller micro-batches that keep the tokens per iteration, ascending.
    fn divisors(&self) -> Vec<u64> {
        let train = &self.before.request.train;
        let Some(sequences) = self.sequences else { return vec![] };
        (1..train.batch_size.min(MAX_BATCH_SIZE)).filter(|b| sequences.is_multiple_of(*b)).collect()
    }

    /// Sets the micro-batch and the matching accumulation steps; nanoGPT's value counts the steps of all processes.
    fn micro_batch_of(&self, batch_size: u64) -> Option<Vec<Change>> {
        let train = &self.before.request.train;
        let steps = self.sequences? / batch_size;
        let steps = steps.checked_mul(train.world_size).filter(|steps| *steps <= MAX_COUNT)?;
        (batch_size < train.batch_size)
            .then(|| vec![Change::count("batch_size", batch_size), Change::count("gradient_accumulation_steps", steps)])
    }

    /// The largest smaller micro-batch that fits with certainty together with `others`, else the largest that fits.
    fn micro_batch(&self, others: &[Change]) -> Option<Vec<Change>> {
        let sizes = self.divisors();
        let outlook = |size: &u64| {
            let changes = self.micro_batch_of(*size).map(|changes| [others, &changes].concat());
            changes.map_or(PlanOutcome::BEYOND, |changes| self.outlook(&changes))
        };
        let largest = |passes: fn(PlanOutcome) -> bool| {
            let n_passing = sizes.partition_point(|size| passes(outlook(size)));
            // A size that fails may have a larger neighbour that fits.
            let next = sizes.get(n_passing + 1).filter(|size| passes(outlook(size)));
            next.or_else(|| sizes.get(n_passing.checked_sub(1)?))
        };
        let size = largest(|outlook| outlook.is_certain).or_else(|| largest(|outlook| outlook.fits))?;
        self.micro_batch_of(*size)
    }

    /// The largest evaluation batch with which the run fits.
    fn smaller_eval_batch(&self) -> Option<Vec<Change>> {
        let train = &self.before.request.train;
        let changes = |size: u64| vec![Change::count("eval_batch_size", size)];
        if train.eval_iters == 0 || train.eval_batch() < 2 || !self.fits(&changes(1)) {
            return None;
        }
        Some(changes(largest(1, train.eval_batch(), |size| self.fits(&changes(size)))))
    }

    /// Adds moves, least harmful first, until the run fits with the largest possible micro-batch. Then removes the
    /// moves that are not needed.
    fn combine(&self, fixes: &mut Vec<Fix>, switches: &[Move]) {
        let alone = fixes.iter().find(|fix| fix.kinds == [Kind::MicroBatch] && fix.fits);
        let alone = alone.and_then(|fix| micro_batch_size(&fix.changes));
        let mut moves: Vec<Move> = Vec::new();
        for next in switches {
            moves.push(next.clone());
            // Switches without side effects are added together.
            if matches!(next.0, Kind::Compile | Kind::FlashAttention | Kind::DelEvalLogits) {
                continue;
            }
            if let Some(found) = self.with_micro_batch(&moves) {
                let (kinds, changes) = joined(&self.needed(found));
                // If the micro-batch is no larger than the one that suffices alone, the combination is not worthwhile,
                // but the next one may be.
                let size = micro_batch_size(&changes);
                if alone.is_none() || size.is_none() || size > alone {
                    self.add(fixes, &kinds, changes);
                    return;
                }
            }
        }
    }

    /// The moves, with a smaller micro-batch if needed; `None` if they fit with no micro-batch.
    fn with_micro_batch(&self, moves: &[Move]) -> Option<Vec<Move>> {
        let (_, changes) = joined(moves);
        if self.fits(&changes) {
            return Some(moves.to_vec());
        }
        let micro_batch = self.micro_batch(&changes)?;
        Some([moves, &[(Kind::MicroBatch, micro_batch)]].concat())
    }

    /// The moves without unneeded ones; the most harmful are removed first.
    fn needed(&self, mut moves: Vec<Move>) -> Vec<Move> {
        for at in (0..moves.len()).rev() {
            if moves.len() > 1 && moves[at].0 != Kind::MicroBatch {
                let mut fewer = moves.clone();
                fewer.remove(at);
                if self.fits(&joined(&fewer).1) {
                    moves = fewer;
                }
            }
        }
        moves
    }

    /// Shorter sequences and smaller models, with all milder moves if these do not suffice alone.
    fn change_the_model(&self, fixes: &mut Vec<Fix>, switches: &[Move]) {
        let gpt = &self.before.request.gpt;
        let train = &self.before.request.train;
        let something_fits = fixes.iter().any(|fix| fix.fits);
        // If nothing milder fits, these changes include all milder moves.
        let milder: &[Move] = if something_fits { &[] } else { switches };
        let mut block_size = gpt.block_size() / 2;
        while block_size >= MIN_BLOCK_SIZE {
            // The same number of tokens per iteration: twice the steps for half the length.
            let factor = gpt.block_size() / block_size;
            let sequences = self.sequences.filter(|sequences| sequences.is_multiple_of(train.batch_size));
            let steps = sequences.map_or(train.gradient_accumulation_steps, |sequences| sequences / train.batch_size);
            let steps = steps.saturating_mul(train.world_size).saturating_mul(factor);
            let changes =
                vec![Change::count("block_size", block_size), Change::count("gradient_accumulation_steps", steps)];
            if self.try_model(fixes, milder, (Kind::BlockSize, changes)) {
                break;
            }
            block_size /= 2;
        }
        for (n_layer, n_head, n_embd) in MODELS {
            let is_smaller = n_layer <= gpt.n_layer() && n_embd <= gpt.n_embd();
            if !is_smaller || (n_layer, n_embd) == (gpt.n_layer(), gpt.n_embd()) {
                continue;
            }
            let changes = vec![
                Change::count("n_layer", n_layer),
                Change::count("n_head", n_head),
                Change::count("n_embd", n_embd),
            ];
            if self.try_model(fixes, milder, (Kind::Model, changes)) {
                break;
            }
        }
    }

    /// Adds a change of the model if it fits with the milder moves; returns whether it fits.
    fn try_model(&self, fixes: &mut Vec<Fix>, milder: &[Move], model: Move) -> bool {
        let moves = [&[model], milder].concat();
        let fits = self.fits(&joined(&moves).1);
        if fits {
            let (kinds, changes) = joined(&self.needed(moves));
            self.add(fixes, &kinds, changes);
        }
        fits
    }
}

fn micro_batch_size(changes: &[Change]) -> Option<i64> {
    changes.iter().find_map(|change| match change {
        Change::Key("batch_size", Value::Int(size)) => Some(*size),
        _ => None,
    })
}

fn joined(moves: &[Move]) -> (Vec<Kind>, Vec<Change>) {
    let mut all = (Vec::new(), Vec::new());
    for (kind, changes) in moves {
        all.0.push(*kind);
        all.1.extend_from_slice(changes);
    }
    all
}
