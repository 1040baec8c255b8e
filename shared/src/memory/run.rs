//! The course of a nanoGPT run: what happens in which order, whichever engine computes the model.
//!
//! train.py's own names decide what outlives what: `X, Y`, `logits, loss` keep their tensors until they are assigned
//! anew, `estimate_loss` has names of its own, and `state_dict` of a resumed run is never let go.

mod attention_kernel;

pub use attention_kernel::AttentionKernel;
pub(crate) use attention_kernel::{Pass, attention_kernel};

use crate::{
    dtype::Dtype,
    gpt::{
        GptConfig,
        tensors::{Dims, Parameter, ResidentThreads, Role, Stored, Tensor, TensorBytes, TensorTooLarge, parameters},
    },
    hardware::ComputeCapability,
    memory::{
        compiled, eager, optimizer,
        program::{Batch, Phase, Program, SectionId, Slot, Turn, Writer},
    },
    train_config::{Attention, CrossEntropy, Optimizer, TrainConfig},
};

/// What the card decides about the events of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its generation.
    pub compute_capability: ComputeCapability,
    /// Streaming multiprocessors; Inductor's split reductions depend on it.
    pub sm_count: u32,
}

/// cuBLAS takes 32 MiB on sm_90 and 8.125 MiB elsewhere: `getChosenWorkspaceSize` of PyTorch, `:4096:2:16:8`.
const fn cublas_workspace_bytes(compute_capability: ComputeCapability) -> u64 {
    if compute_capability.major == 9 { 33_554_432 } else { 8_519_680 }
}

/// Threads that fit on a multiprocessor: the CUDA C++ programming guide's table of technical specifications.
const fn threads_per_sm(capability: ComputeCapability) -> u64 {
    match (capability.major, capability.minor) {
        (7, 5) => 1024,
        (8, 6 | 7 | 9) | (12, _) => 1536,
        _ => 2048,
    }
}

/// A run being written.
pub(super) struct Run<'a> {
    pub(super) config: &'a GptConfig,
    pub(super) train: &'a TrainConfig,
    pub(super) card: Card,
    pub(super) parameters: Vec<Parameter>,
    /// Sizes at `batch_size`.
    pub(super) bytes: &'a TensorBytes,
    /// Sizes at `eval_batch_size`.
    pub(super) eval_bytes: &'a TensorBytes,
    /// Parts into which flash attention's forward splits the keys, at `batch_size` and at `eval_batch_size`.
    flash_splits: [u64; 2],
    pub(super) w: Writer,
    pub(super) graphs: compiled::Graphs,
    /// Whether the forward thread has its cuBLAS workspace, and the autograd thread.
    pub(super) has_workspace: [bool; 2],
    /// Whether the gradient scaler has its two scalars.
    pub(super) has_scaler: bool,
}

/// Slots that outlive sections, one a name of train.py.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Name {
    X,
    Y,
    NextX,
    NextY,
    EvalX,
    EvalY,
    NextEvalX,
    NextEvalY,
    Logits,
    Loss,
    NewLogits,
    NewLoss,
    EvalLogits,
    EvalLoss,
    ForwardWorkspace,
    BackwardWorkspace,
    Scaler,
    ScalerGrowth,
    FoundInf,
    DdpBuckets,
    Count,
}

/// A forward of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardKind {
    /// Under `no_grad`; whether an earlier batch's logits are still named.
    Eval { has_logits: bool },
    /// With autograd; whether an earlier micro-step's logits are still named.
    Train { has_logits: bool },
}

impl Run<'_> {
    fn n(&self) -> u32 {
        u32::try_from(self.parameters.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn name(&self, name: Name) -> Slot {
        Writer::kept(name as u32)
    }

    fn indexed(&self, group: u32, index: usize) -> Slot {
        Writer::kept(Name::Count as u32 + group * self.n() + u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn gradient(&self, parameter: usize) -> Slot {
        self.indexed(1, parameter)
    }

    /// The slot of an optimizer's companion of a parameter; `which` is 0 to 4.
    pub(super) fn state(&self, which: u32, parameter: usize) -> Slot {
        self.indexed(2 + which, parameter)
    }

    fn mask(&self, layer: u64) -> Slot {
        self.indexed(8, usize::try_from(layer).unwrap_or(usize::MAX))
    }

    /// The kernel of this run's attention in a pass.
    pub(super) fn attention_kernel(&self, pass: Pass) -> AttentionKernel {
        attention_kernel(self.config, self.train, self.card.compute_capability, pass)
    }

    /// Parts into which flash attention's forward without dropout splits the keys.
    pub(super) fn flash_splits(&self, trains: bool) -> u64 {
        if trains { self.flash_splits[0] } else { self.flash_splits[1] }
    }

    /// The cuBLAS workspace of the thread that computes, taken at that thread's first product.
    pub(super) fn cublas_workspace(&mut self, backward: bool) {
        if std::mem::replace(&mut self.has_workspace[usize::from(backward)], true) {
            return;
        }
        let name = if backward { Name::BackwardWorkspace } else { Name::ForwardWorkspace };
        self.w.alloc_in(self.name(name), Tensor::CublasWorkspace, None);
    }

    pub(super) fn drops(&self) -> bool {
        self.config.dropout() > 0.0
    }

    fn init(&mut self) -> SectionId {
        let buckets = self.name(Name::DdpBuckets);
        let all = self.parameters.clone();
        if self.train.resumes {
            // torch.load maps the checkpoint to the card before the model gets there.
            for (index, parameter) in all.iter().enumerate() {
                let stored = Stored { tensor: parameter.tensor, role: Role::Checkpoint };
                self.w.alloc_in(self.state(5, index), stored, parameter.layer);
            }
            optimizer::allocate_state(self);
        }
        for (index, parameter) in all.iter().enumerate() {
            self.w.alloc_in(self.indexed(0, index), parameter.tensor, parameter.layer);
            let ends_attention =
                parameter.tensor == if self.config.bias() { Tensor::AttProjB } else { Tensor::AttProjW };
            if let (Attention::Math, true, Some(layer)) = (self.train.attention, ends_attention, parameter.layer) {
                self.w.alloc_in(self.mask(layer), Tensor::Mask, Some(layer));
            }
        }
        if self.train.world_size > 1 {
            self.w.alloc_in(buckets, Tensor::DdpBuckets, None);
        }
        self.w.section(Batch::Train)
    }

    fn forward(&mut self, kind: ForwardKind) -> ForwardState {
        if self.train.compile {
            ForwardState::Compiled(compiled::forward(self, kind))
        } else {
            ForwardState::Eager(eager::forward(self, kind))
        }
    }

    /// One batch of `estimate_loss`.
    fn eval_batch(&mut self, first: bool) -> SectionId {
        let pair = |run: &Self, x, y| [(run.name(x), Tensor::X), (run.name(y), Tensor::Y)];
        let (new, old) = (pair(self, Name::NextEvalX, Name::NextEvalY), pair(self, Name::EvalX, Name::EvalY));
        for (slot, tensor) in if first { old } else { new } {
            self.w.alloc_in(slot, tensor, None);
        }
        let mut renames = Vec::new();
        if !first {
            for ((old, _), (new, _)) in old.into_iter().zip(new) {
                self.w.free_kept(old);
                renames.push((new, old));
            }
        }
        self.forward(ForwardKind::Eval { has_logits: !first && !self.train.del_eval_logits });
        if !first {
            // With its logits deleted, the loss is all that is left of the batch before.
            if self.train.del_eval_logits || !self.keeps_logits() {
                self.w.free_kept(self.name(Name::EvalLoss));
            }
        }
        let (logits, loss) = (self.name(Name::NewLogits), self.name(Name::NewLoss));
        if self.keeps_logits() {
            if self.train.del_eval_logits {
                self.w.free_kept(logits);
            } else {
                renames.push((logits, self.name(Name::EvalLogits)));
            }
        }
        renames.push((loss, self.name(Name::EvalLoss)));
        self.w.section_renaming(Batch::Eval, renames)
    }

    /// `estimate_loss` returns, and its names go.
    fn eval_end(&mut self) -> SectionId {
        for name in [Name::EvalX, Name::EvalY] {
            self.w.free_kept(self.name(name));
        }
        if self.keeps_logits() && !self.train.del_eval_logits {
            self.w.free_kept(self.name(Name::EvalLogits));
        }
        self.w.free_kept(self.name(Name::EvalLoss));
        self.w.section(Batch::Eval)
    }

    /// Whether the model returns all logits; a chunked or fused loss returns none.
    pub(super) fn keeps_logits(&self) -> bool {
        self.train.cross_entropy == CrossEntropy::Whole
    }

    /// One micro-step: forward, the next batch, backward.
    fn micro_step(&mut self, first_ever: bool, accumulates: bool) -> (SectionId, SectionId) {
        let has_logits = !first_ever && !self.train.del_train_logits && self.keeps_logits();
        let state = self.forward(ForwardKind::Train { has_logits });
        let forward = {
            if !first_ever && !has_logits {
                self.w.free_kept(self.name(Name::Loss));
            }
            // The next batch is fetched while the card is still at the forward.
            self.w.alloc_in(self.name(Name::NextX), Tensor::X, None);
            self.w.alloc_in(self.name(Name::NextY), Tensor::Y, None);
            let mut renames = vec![(self.name(Name::NewLoss), self.name(Name::Loss))];
            if self.keeps_logits() {
                renames.push((self.name(Name::NewLogits), self.name(Name::Logits)));
            }
            self.w.section_renaming(Batch::Train, renames)
        };
        match state {
            ForwardState::Eager(state) => eager::backward(self, state, accumulates),
            ForwardState::Compiled(state) => compiled::backward(self, state, accumulates),
        }
        if self.train.del_train_logits && self.keeps_logits() {
            self.w.free_kept(self.name(Name::Logits));
        }
        let renames = vec![(self.name(Name::NextX), self.name(Name::X)), (self.name(Name::NextY), self.name(Name::Y))];
        (forward, self.w.section_renaming(Batch::Train, renames))
    }

    fn first_batch(&mut self) -> SectionId {
        self.w.alloc_in(self.name(Name::X), Tensor::X, None);
        self.w.alloc_in(self.name(Name::Y), Tensor::Y, None);
        self.w.section(Batch::Train)
    }
}

enum ForwardState {
    Eager(Option<eager::Saved>),
    Compiled(Option<compiled::Saved>),
}

/// Writes the whole run.
///
/// # Errors
/// A tensor is larger than a plan is made for.
pub fn program(config: &GptConfig, train: &TrainConfig, card: Card) -> Result<Program, TensorTooLarge> {
    let parameters = parameters(config);
    let n = u64::try_from(parameters.len()).unwrap_or(u64::MAX);
    let dims = Dims {
        b: train.batch_size,
        t: config.block_size(),
        c: config.n_embd(),
        h: config.n_head(),
        v: config.vocab_size(),
        compute: train.dtype,
        cublas_workspace_bytes: cublas_workspace_bytes(card.compute_capability),
        cudnn_workspace_bytes: 0,
        n_parameter_tensors: n,
        n_parameters: config.n_parameters().ok_or(TensorTooLarge { name: "the model" })?,
        n_layer: config.n_layer(),
        resident_threads: ResidentThreads {
            sm_count: u64::from(card.sm_count),
            threads_per_sm: threads_per_sm(card.compute_capability),
        },
        threads: 1,
        trainer_parts: 0,
    };
    let eval_dims = Dims { b: train.eval_batch(), ..dims };
    let kernels =
        [Pass::Evaluation, Pass::Training].map(|pass| attention_kernel(config, train, card.compute_capability, pass));
    let used = |tensor: Tensor| kernels.iter().any(|&kernel| is_used(train, kernel, tensor));
    let bytes = TensorBytes::new(&dims, used)?;
    let eval_bytes = if eval_dims == dims { bytes.clone() } else { TensorBytes::new(&eval_dims, used)? };

    let kept = Name::Count as u64 + 8 * n + config.n_layer() + 1;
    let mut run = Run {
        config,
        train,
        card,
        bytes: &bytes,
        eval_bytes: &eval_bytes,
        flash_splits: [&dims, &eval_dims].map(Dims::flash_splits),
        w: Writer::new(u32::try_from(kept).unwrap_or(u32::MAX)),
        graphs: compiled::Graphs::default(),
        parameters,
        has_workspace: [false; 2],
        has_scaler: false,
    };
    let mut schedule = vec![Turn::once(vec![(Phase::Init, run.init())])];
    // `X, Y = get_batch('train')` comes before the loop, and so counts for what comes next.
    let next_phase = if train.eval_iters > 0 { Phase::EvalFirst } else { Phase::FirstForward };
    schedule.push(Turn::once(vec![(next_phase, run.first_batch())]));
    if train.eval_iters > 0 {
        let first = run.eval_batch(true);
        let next = run.eval_batch(false);
        let end = run.eval_end();
        schedule.push(Turn::once(vec![(Phase::EvalFirst, first)]));
        schedule.push(Turn::repeated(vec![(Phase::Eval, next)], 2 * train.eval_iters - 1));
        schedule.push(Turn::once(vec![(Phase::Eval, end)]));
    }
    if !train.eval_only {
        training(&mut run, &mut schedule);
    }
    let (sections, n_slots) = run.w.finish();
    Ok(Program { dims, eval_dims, bytes, eval_bytes, sections, schedule, n_slots })
}

fn training(run: &mut Run<'_>, schedule: &mut Vec<Turn>) {
    let train = run.train;
    let (forward, backward) = run.micro_step(true, false);
    schedule.push(Turn::once(vec![(Phase::FirstForward, forward), (Phase::FirstBackward, backward)]));
    let later_micro_steps = train.gradient_accumulation_steps - 1;
    let accumulating = (later_micro_steps > 0).then(|| {
        let (forward, backward) = run.micro_step(false, true);
        let sections = vec![(Phase::SteadyForward, forward), (Phase::SteadyBackward, backward)];
        Turn::repeated(sections, later_micro_steps)
    });
    schedule.extend(accumulating.clone());
    let first_step = optimizer::step(run, true);
    schedule.push(Turn::once(vec![(Phase::FirstOptimizer, first_step)]));

    let evaluates_again = train.eval_iters > 0 && train.eval_interval <= train.max_iters;
    if train.max_iters == 0 {
        schedule.push(Turn::once(vec![(Phase::Rest, run.w.section(Batch::Train))]));
        return;
    }
    let (forward, backward) = run.micro_step(false, false);
    let step = optimizer::step(run, false);
    let mut iteration = vec![Turn::once(vec![(Phase::SteadyForward, forward), (Phase::SteadyBackward, backward)])];
    iteration.extend(accumulating);
    iteration.push(Turn::once(vec![(Phase::SteadyOptimizer, step)]));
    let rest = Turn::once(vec![(Phase::Rest, run.w.section(Batch::Train))]);
    // The second iteration is the first with the optimizer's state; it comes before a later evaluation unless every
    // iteration evaluates.
    if train.eval_interval > 1 || !evaluates_again {
        schedule.extend(iteration.iter().cloned());
    }
    if evaluates_again {
        let first = run.eval_batch(true);
        let next = run.eval_batch(false);
        let end = run.eval_end();
        schedule.push(Turn::once(vec![(Phase::LaterEvalFirst, first)]));
        schedule.push(Turn::repeated(vec![(Phase::LaterEval, next)], 2 * train.eval_iters - 1));
        schedule.push(Turn::once(vec![(Phase::LaterEval, end)]));
        schedule.extend(iteration);
    }
    schedule.push(rest);
}

/// Whether a run of that kind stores the tensor at all; only those are held to the size limit.
fn is_used(train: &TrainConfig, kernel: AttentionKernel, tensor: Tensor) -> bool {
    let shape_of_attention = matches!(
        tensor,
        Tensor::Mask
            | Tensor::Preatt
            | Tensor::PreattScaled
            | Tensor::AttMask
            | Tensor::PreattMasked
            | Tensor::PreattF32
            | Tensor::Att
            | Tensor::AttDropped
            | Tensor::AttDropMask
            | Tensor::AttCast
            | Tensor::DattCast
            | Tensor::DattF32
            | Tensor::DattDropped
            | Tensor::Dpreatt
            | Tensor::DpreattCast
            | Tensor::DpreattMasked
            | Tensor::DpreattScaled
    );
    if shape_of_attention {
        return matches!(kernel, AttentionKernel::Math | AttentionKernel::Composite);
    }
    match tensor {
        Tensor::WideQkv
        | Tensor::WideOperand
        | Tensor::CausalMask
        | Tensor::CausalBias
        | Tensor::AttHidden
        | Tensor::AttHiddenRows
        | Tensor::WideAtty
        | Tensor::WideDatty
        | Tensor::WideDqkv => kernel == AttentionKernel::Composite,
        Tensor::Logits
        | Tensor::LogProbs
        | Tensor::LogProbsF32
        | Tensor::DlogProbsF32
        | Tensor::DlogProbs
        | Tensor::Dlogits => train.cross_entropy == CrossEntropy::Whole,
        Tensor::DdpBuckets => train.world_size > 1,
        _ => true,
    }
}

/// Whether the optimizer's step counts live on the card: only the fused kernel keeps them there.
pub(super) fn steps_on_card(optimizer: Optimizer) -> bool {
    optimizer == Optimizer::AdamwFused
}

/// Whether a run uses a gradient scaler.
pub(super) fn uses_scaler(train: &TrainConfig) -> bool {
    train.dtype == Dtype::Float16
}
