//! Unscaling, clipping, AdamW and `zero_grad`, independent of the engine that computed the gradients.
//!
//! Source: torch/optim/adamw.py, torch/nn/utils/clip_grad.py, torch/amp/grad_scaler.py of 2.11, and the recorded runs.

use super::{
    context::{Name, Run, steps_on_gpu, uses_scaler},
    program::{Batch, SectionId},
};
use crate::{
    gpt::tensors::{Parameter, Role, Tensor, TensorId},
    train_config::Optimizer,
};

/// Minimum number of elements for 8-bit moments; bitsandbytes keeps smaller tensors in float32.
const MIN_8BIT_ELEMENTS: u64 = 4096;

/// One optimizer step of the run; `first` allocates the optimizer's state, unless a resumed run already has it.
pub(super) fn step(run: &mut Run<'_>, first: bool) -> SectionId {
    let is_fused = steps_on_gpu(run.train.optimizer);
    let unscales_inside = uses_scaler(run.train) && is_fused && !run.train.clips_gradients;
    if uses_scaler(run.train) {
        // `unscale_`: the inverse scale in float64 and float32, and whether an infinity was found. Without clipping,
        // the fused kernel unscales by itself: then `_check_inf_per_device` uses a scale of 1.
        let inverse_f32 = if !unscales_inside {
            let scale = run.w.alloc(Tensor::ScalarF64, None);
            let inverse = run.w.alloc(Tensor::ScalarF64, None);
            run.w.free(scale);
            let inverse_f32 = run.w.alloc(Tensor::Scalar, None);
            run.w.free(inverse);
            inverse_f32
        } else {
            run.w.alloc(Tensor::Scalar, None)
        };
        let found = run.w.alloc(Tensor::Scalar, None);
        run.w.alloc_in(run.name(Name::FoundInf), Tensor::FoundInf, None);
        let copy = run.w.alloc(Tensor::Scalar, None);
        run.w.free_all([copy, inverse_f32, found]);
    }
    if run.train.clips_gradients {
        clip(run);
    }
    let found_inf = (uses_scaler(run.train) && is_fused).then(|| run.w.alloc(Tensor::Scalar, None));
    let grad_scale = unscales_inside.then(|| run.w.alloc(Tensor::Scalar, None));
    for group in groups(run) {
        if first && !run.train.resumes {
            allocate_state_of(run, &group);
        }
        if run.train.optimizer == Optimizer::AdamwForeach {
            denominators(run, &group);
        }
    }
    run.w.free_some(grad_scale);
    run.w.free_some(found_inf);
    if uses_scaler(run.train) {
        run.w.free_kept(run.name(Name::FoundInf));
    }
    zero_grad(run);
    run.w.section(Batch::Train)
}

fn clip(run: &mut Run<'_>) {
    let w = &mut run.w;
    let norms: Vec<_> = run.parameters.iter().map(|_| w.alloc(Tensor::GradNorm, None)).collect();
    let stacked = w.alloc(Tensor::GradNorms, None);
    let total = w.alloc(Tensor::GradNorm, None);
    w.free(stacked);
    w.free_all(norms.into_iter().rev());
    let sum = w.alloc(Tensor::Scalar, None);
    let reciprocal = w.alloc(Tensor::Scalar, None);
    let coefficient = w.alloc(Tensor::Scalar, None);
    w.free_all([reciprocal, sum]);
    let clamped = w.alloc(Tensor::Scalar, None);
    w.free_all([coefficient, clamped, total]);
}

/// AdamW's parameter groups in step order: parameters with weight decay, then the others.
fn groups(run: &Run<'_>) -> [Vec<(usize, Parameter)>; 2] {
    let all = || run.parameters.iter().copied().enumerate();
    [true, false].map(|decayed| all().filter(|(_, p)| p.decayed == decayed).collect())
}

/// Allocates the moments of all parameters, in the order of the groups.
pub(super) fn allocate_state(run: &mut Run<'_>) {
    for group in groups(run) {
        allocate_state_of(run, &group);
    }
}

/// Allocates the moments of a group's parameters.
fn allocate_state_of(run: &mut Run<'_>, group: &[(usize, Parameter)]) {
    let kind = run.train.optimizer;
    for &(index, parameter) in group {
        let quantised = kind == Optimizer::Adamw8bit && is_quantised(run.bytes.elements(parameter.tensor));
        if steps_on_gpu(kind) {
            run.w.alloc_in(run.state(2, index), Tensor::StepCount, parameter.layer);
        }
        let roles: &[Role] = if quantised {
            &[Role::State1, Role::State2, Role::Absmax, Role::Absmax]
        } else {
            &[Role::ExpAvg, Role::ExpAvgSq]
        };
        let which = [0, 1, 3, 4];
        for (&role, which) in roles.iter().zip(which) {
            let stored = TensorId { tensor: parameter.tensor, role };
            run.w.alloc_in(run.state(which, index), stored, parameter.layer);
        }
    }
}

/// Whether bitsandbytes stores the moments of a parameter with `n_elements` elements in 8 bits.
///
/// Source: `Optimizer2State.init_state` and `min_8bit_size` in bitsandbytes/optim/optimizer.py: the moments of tensors
/// with fewer elements are float32.
const fn is_quantised(n_elements: u64) -> bool {
    n_elements >= MIN_8BIT_ELEMENTS
}

/// The square roots of a group's second moments, which foreach AdamW holds while it steps that group.
fn denominators(run: &mut Run<'_>, group: &[(usize, Parameter)]) {
    let stored = |parameter: Parameter| TensorId { tensor: parameter.tensor, role: Role::Denominator };
    let held: Vec<_> = group.iter().map(|&(_, p)| run.w.alloc(stored(p), p.layer)).collect();
    run.w.free_all(held);
}

fn zero_grad(run: &mut Run<'_>) {
    for (index, _) in groups(run).into_iter().flatten() {
        let slot = run.gradient(index);
        run.w.free_kept(slot);
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        gpt::{
            GptConfig, GptShape,
            tensors::{Role, Tensor},
        },
        hardware::ComputeCapability,
        memory::{context::GpuProperties, program::Action, schedule::program},
        train_config::{Optimizer, TrainConfig},
    };

    /// The parameters whose first moment an optimizer stores in 8 bits.
    fn quantised(n_embd: u64, block_size: u64, vocab_size: u64) -> Vec<Tensor> {
        let shape = GptShape { n_layer: 1, n_head: 1, n_embd, block_size, vocab_size, dropout: 0.0, bias: true };
        let gpt = GptConfig::new(shape).expect("a small model");
        let train = TrainConfig { optimizer: Optimizer::Adamw8bit, compile: false, ..TrainConfig::default() };
        let gpu = GpuProperties { compute_capability: ComputeCapability::new(8, 9), sm_count: 46 };
        let program = program(&gpt, &train, gpu).expect("a small run");
        let events = program.sections.iter().flat_map(|section| &section.events);
        let states = events.filter_map(|event| match event.action() {
            Action::Alloc(stored, _) if stored.role == Role::State1 => Some(stored.tensor),
            _ => None,
        });
        states.collect()
    }

    #[test]
    fn eight_bit_moments_go_by_the_elements_of_each_tensor() {
        let all_matrices = [Tensor::QkvW, Tensor::AttProjW, Tensor::FcW, Tensor::FcProjW];
        let of = |n_embd, block_size, vocab_size| quantised(n_embd, block_size, vocab_size);
        let matrices = |embeddings: &[Tensor]| [embeddings, &all_matrices].concat();
        // A position embedding of 32 * 64 elements is below 4096; one of 64 * 64 is not.
        assert_eq!(of(64, 32, 64), matrices(&[Tensor::Wte]));
        assert_eq!(of(64, 64, 63), matrices(&[Tensor::Wpe]));
        // 32 * 32 and 3 * 32 * 32 elements are below, 4 * 32 * 32 are not.
        assert_eq!(of(32, 127, 128), [Tensor::Wte, Tensor::FcW, Tensor::FcProjW]);
        assert_eq!(of(1024, 4, 4).last(), Some(&Tensor::FcB), "of the biases, the longest alone");
    }
}
