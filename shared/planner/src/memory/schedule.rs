//! Sequence of events of a nanoGPT run, independent of the engine that computes the model.
//!
//! train.py's variables determine lifetimes. `X, Y` and `logits, loss` keep their tensors until the next assignment,
//! `estimate_loss` has its own variables, and a resumed run never releases `state_dict`.

use super::{
    attention_kernel::{AttentionKernel, Pass, attention_kernel},
    compiled::{self, Graphs},
    context::{ForwardKind, GpuProperties, Group, Name, Run, n_kept},
    eager,
    efficient_backward::EfficientBackward,
    optimizer,
    program::{Batch, Phase, Program, ProgramBuilder, ScheduleEntry, SectionId},
    stored::{GptTensors, TensorTable},
};
use crate::{
    gpt::{
        GptConfig,
        tensors::{Dims, ResidentThreads, Role, Tensor, TensorBytes, TensorId, TensorTooLarge, parameters},
    },
    train_config::{Attention, CrossEntropy, TrainConfig},
};

impl Run<'_> {
    fn init(&mut self) -> SectionId {
        let buckets = self.name(Name::DdpBuckets);
        let all = self.parameters.clone();
        if self.train.resumes {
            // torch.load copies the checkpoint to the GPU before the model.
            for (index, parameter) in all.iter().enumerate() {
                let stored = TensorId { tensor: parameter.tensor, role: Role::Checkpoint };
                self.w.alloc_in(self.indexed(Group::Checkpoint, index), stored, parameter.layer);
            }
            optimizer::allocate_state(self);
        }
        for (index, parameter) in all.iter().enumerate() {
            self.w.alloc_in(self.indexed(Group::Parameter, index), parameter.tensor, parameter.layer);
            let ends_attention =
                parameter.tensor == if self.config.bias() { Tensor::AttProjB } else { Tensor::AttProjW };
            if let (Attention::Math, true, Some(layer)) = (self.train.attention, ends_attention, parameter.layer) {
                let mask = self.indexed(Group::Mask, usize::try_from(layer).unwrap_or(usize::MAX));
                self.w.alloc_in(mask, Tensor::Mask, Some(layer));
            }
        }
        if self.train.world_size > 1 {
            self.w.alloc_in(buckets, Tensor::DdpBuckets, None);
        }
        self.w.section(Batch::Train)
    }

    fn forward(&mut self, graphs: &mut Graphs, kind: ForwardKind) -> ForwardState {
        if self.train.compile {
            ForwardState::Compiled(compiled::forward(self, graphs, kind))
        } else {
            ForwardState::Eager(eager::forward(self, kind))
        }
    }

    /// One batch of `estimate_loss`.
    fn eval_batch(&mut self, graphs: &mut Graphs, first: bool) -> SectionId {
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
        self.forward(graphs, ForwardKind::Eval { has_logits: !first && !self.train.del_eval_logits });
        if !first {
            // With the logits deleted, only the loss remains from the previous batch.
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

    /// `estimate_loss` returns and releases its variables.
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

    /// One micro-step: forward, the next batch, backward.
    fn micro_step(&mut self, graphs: &mut Graphs, first_ever: bool, accumulates: bool) -> (SectionId, SectionId) {
        let has_logits = !first_ever && !self.train.del_train_logits && self.keeps_logits();
        let state = self.forward(graphs, ForwardKind::Train { has_logits });
        let forward = {
            if !first_ever && !has_logits {
                self.w.free_kept(self.name(Name::Loss));
            }
            // The next batch is fetched while the GPU still computes the forward.
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
    Eager(Option<eager::SavedTensors>),
    Compiled(Option<compiled::CompiledSavedTensors>),
}

/// Writes the program of the whole run.
///
/// # Errors
/// [`TensorTooLarge`] if a tensor exceeds the maximum size.
pub fn program(config: &GptConfig, train: &TrainConfig, gpu: GpuProperties) -> Result<Program, TensorTooLarge> {
    let parameters = parameters(config);
    let n = u64::try_from(parameters.len()).unwrap_or(u64::MAX);
    let architecture = gpu.compute_capability.architecture();
    let kernels = [Pass::Evaluation, Pass::Training].map(|pass| attention_kernel(config, train, architecture, pass));
    let [_, trains_with] = kernels;
    let efficient = (trains_with == AttentionKernel::Efficient)
        .then(|| EfficientBackward::new(config.head_size(), train.is_half(), architecture));
    let dims = Dims {
        b: train.batch_size,
        t: config.block_size(),
        c: config.n_embd(),
        h: config.n_head(),
        v: config.vocab_size(),
        compute: train.dtype,
        cublas_workspace_bytes: architecture.cublas_workspace_bytes,
        efficient_workspace_bytes: efficient.map_or(0, |kernel| {
            let heads = train.batch_size.saturating_mul(config.n_head());
            kernel.workspace_bytes(heads, config.block_size(), config.head_size())
        }),
        cudnn_workspace_bytes: 0,
        n_parameter_tensors: n,
        n_parameters: config.n_parameters().ok_or(TensorTooLarge { name: "the model" })?,
        n_layer: config.n_layer(),
        resident_threads: ResidentThreads {
            sm_count: u64::from(gpu.sm_count),
            threads_per_sm: u64::from(architecture.threads_per_sm),
        },
        threads: 1,
        trainer_parts: 0,
    };
    let eval_dims = Dims { b: train.eval_batch(), ..dims };
    let used = |tensor: Tensor| kernels.iter().any(|&kernel| is_used(train, kernel, tensor));
    let bytes = TensorBytes::new(&dims, used)?;
    let eval_bytes = if eval_dims == dims { bytes.clone() } else { TensorBytes::new(&eval_dims, used)? };

    let kept = n_kept(parameters.len(), Group::State as usize + train.optimizer.spec().n_states());
    let mut run = Run {
        config,
        train,
        gpu,
        bytes: &bytes,
        eval_bytes: &eval_bytes,
        flash_splits: [&dims, &eval_dims].map(Dims::flash_splits),
        efficient,
        w: ProgramBuilder::new(u32::try_from(kept).unwrap_or(u32::MAX)),
        parameters,
        has_workspace: [false; 2],
        has_lt_workspace: [false; 2],
        has_scaler: false,
    };
    let graphs = &mut Graphs::default();
    let mut schedule = vec![ScheduleEntry::once(vec![(Phase::Init, run.init())])];
    // `X, Y = get_batch('train')` precedes the loop, so it belongs to the next phase.
    let next_phase = if train.eval_iters > 0 { Phase::EvalFirst } else { Phase::FirstForward };
    schedule.push(ScheduleEntry::once(vec![(next_phase, run.first_batch())]));
    if train.eval_iters > 0 {
        let first = run.eval_batch(graphs, true);
        let next = run.eval_batch(graphs, false);
        let end = run.eval_end();
        schedule.push(ScheduleEntry::once(vec![(Phase::EvalFirst, first)]));
        schedule.push(ScheduleEntry::repeated(vec![(Phase::Eval, next)], 2 * train.eval_iters - 1));
        schedule.push(ScheduleEntry::once(vec![(Phase::Eval, end)]));
    }
    if !train.eval_only {
        training(&mut run, graphs, &mut schedule);
    }
    let (sections, n_slots) = run.w.finish();
    let tensors = TensorTable::Gpt(Box::new(GptTensors { dims, eval_dims, bytes, eval_bytes }));
    Ok(Program { tensors, sections, schedule, n_slots })
}

fn training(run: &mut Run<'_>, graphs: &mut Graphs, schedule: &mut Vec<ScheduleEntry>) {
    let train = run.train;
    let (forward, backward) = run.micro_step(graphs, true, false);
    schedule.push(ScheduleEntry::once(vec![(Phase::FirstForward, forward), (Phase::FirstBackward, backward)]));
    let later_micro_steps = train.gradient_accumulation_steps - 1;
    let accumulating = (later_micro_steps > 0).then(|| {
        let (forward, backward) = run.micro_step(graphs, false, true);
        let sections = vec![(Phase::SteadyForward, forward), (Phase::SteadyBackward, backward)];
        ScheduleEntry::repeated(sections, later_micro_steps)
    });
    schedule.extend(accumulating.clone());
    let first_step = optimizer::step(run, true);
    schedule.push(ScheduleEntry::once(vec![(Phase::FirstOptimizer, first_step)]));

    let evaluates_again = train.eval_iters > 0 && train.eval_interval <= train.max_iters;
    if train.max_iters == 0 {
        schedule.push(ScheduleEntry::once(vec![(Phase::Rest, run.w.section(Batch::Train))]));
        return;
    }
    let (forward, backward) = run.micro_step(graphs, false, false);
    let step = optimizer::step(run, false);
    let mut iteration =
        vec![ScheduleEntry::once(vec![(Phase::SteadyForward, forward), (Phase::SteadyBackward, backward)])];
    iteration.extend(accumulating);
    iteration.push(ScheduleEntry::once(vec![(Phase::SteadyOptimizer, step)]));
    let rest = ScheduleEntry::once(vec![(Phase::Rest, run.w.section(Batch::Train))]);
    // The second iteration is the first with the optimizer's state. It precedes a later evaluation unless every
    // iteration evaluates.
    if train.eval_interval > 1 || !evaluates_again {
        schedule.extend(iteration.iter().cloned());
    }
    if evaluates_again {
        let first = run.eval_batch(graphs, true);
        let next = run.eval_batch(graphs, false);
        let end = run.eval_end();
        schedule.push(ScheduleEntry::once(vec![(Phase::LaterEvalFirst, first)]));
        schedule.push(ScheduleEntry::repeated(vec![(Phase::LaterEval, next)], 2 * train.eval_iters - 1));
        schedule.push(ScheduleEntry::once(vec![(Phase::LaterEval, end)]));
        schedule.extend(iteration);
    }
    schedule.push(rest);
}

/// Whether a run of that kind stores the tensor; the size limit applies only to stored tensors.
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
        Tensor::EffCast | Tensor::EffProducts | Tensor::EffRowSums | Tensor::EffDelta | Tensor::EffWorkspace => {
            kernel == AttentionKernel::Efficient
        }
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
