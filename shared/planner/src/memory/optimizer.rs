//! Unscaling, clipping, the optimizer and `zero_grad`, independent of the engine that computed the gradients.
//!
//! Source: torch/optim/adamw.py, torch/nn/utils/clip_grad.py, torch/amp/grad_scaler.py of 2.11, and the recorded runs.

use super::{
    context::{Name, Run, uses_scaler},
    program::{Batch, SectionId},
};
use crate::gpt::tensors::{Parameter, Role, Tensor, TensorId};

/// One optimizer step of the run; `first` allocates the optimizer's state, unless a resumed run already has it.
pub(super) fn step(run: &mut Run<'_>, first: bool) -> SectionId {
    let optimizer = run.train.optimizer.spec();
    let is_fused = optimizer.is_fused;
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
        if let Some(role) = optimizer.foreach_temporary {
            foreach_temporaries(run, &group, role);
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

/// The optimizer's parameter groups in step order: parameters with weight decay, then the others.
fn groups(run: &Run<'_>) -> [Vec<(usize, Parameter)>; 2] {
    let all = || run.parameters.iter().copied().enumerate();
    [true, false].map(|decayed| all().filter(|(_, p)| p.decayed == decayed).collect())
}

/// Allocates the state of all parameters, in the order of the groups.
pub(super) fn allocate_state(run: &mut Run<'_>) {
    for group in groups(run) {
        allocate_state_of(run, &group);
    }
}

/// Allocates the state of a group's parameters.
fn allocate_state_of(run: &mut Run<'_>, group: &[(usize, Parameter)]) {
    let optimizer = run.train.optimizer.spec();
    for &(index, parameter) in group {
        if optimizer.is_fused {
            run.w.alloc_in(run.state(0, index), Tensor::StepCount, parameter.layer);
        }
        let roles = optimizer.states_of(run.bytes.elements(parameter.tensor));
        for (which, &role) in (1..).zip(roles) {
            let stored = TensorId { tensor: parameter.tensor, role };
            run.w.alloc_in(run.state(which, index), stored, parameter.layer);
        }
    }
}

/// The temporaries that a foreach implementation holds while it steps a group.
fn foreach_temporaries(run: &mut Run<'_>, group: &[(usize, Parameter)], role: Role) {
    let stored = |parameter: Parameter| TensorId { tensor: parameter.tensor, role };
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
            tensors::{Role, Tensor, TensorId},
        },
        hardware::ComputeCapability,
        memory::{context::GpuProperties, program::Action, schedule::program},
        optimizer_spec::Optimizer,
        train_config::TrainConfig,
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
            Action::Alloc(code, _) => {
                TensorId::from_code(code).filter(|stored| stored.role == Role::State1).map(|stored| stored.tensor)
            }
            Action::Free => None,
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
