//! Unscaling, clipping, AdamW and `zero_grad`, the same whichever engine computed the gradients.
//!
//! Source: torch/optim/adamw.py, torch/nn/utils/clip_grad.py, torch/amp/grad_scaler.py of 2.11, and the recorded runs.

use super::{
    program::{Batch, SectionId},
    run::{Name, Run, steps_on_card, uses_scaler},
};
use crate::{
    gpt::tensors::{Parameter, Role, Stored, Tensor},
    train_config::Optimizer,
};

/// bitsandbytes leaves tensors with fewer elements in float32.
const MIN_8BIT_ELEMENTS: u64 = 4096;

/// One optimizer step of the run; `first` makes the optimizer's state, unless the run resumed with it.
pub(super) fn step(run: &mut Run<'_>, first: bool) -> SectionId {
    let is_fused = steps_on_card(run.train.optimizer);
    let unscales_inside = uses_scaler(run.train) && is_fused && !run.train.clips_gradients;
    if uses_scaler(run.train) {
        // `unscale_`: the inverse scale in float64 and float32, and whether an infinity was found. The fused kernel
        // unscales by itself where nothing is clipped: then `_check_inf_per_device` takes a scale of 1.
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

/// AdamW's groups, in the order in which it steps them: parameters that decay, then the others.
fn groups(run: &Run<'_>) -> [Vec<(usize, Parameter)>; 2] {
    let all = || run.parameters.iter().copied().enumerate();
    [true, false].map(|decayed| all().filter(|(_, p)| p.decayed == decayed).collect())
}

/// The moments of every parameter, in the order of the groups.
pub(super) fn allocate_state(run: &mut Run<'_>) {
    for group in groups(run) {
        allocate_state_of(run, &group);
    }
}

/// The moments of a group's parameters.
fn allocate_state_of(run: &mut Run<'_>, group: &[(usize, Parameter)]) {
    let kind = run.train.optimizer;
    for &(index, parameter) in group {
        let quantised = kind == Optimizer::Adamw8bit && is_quantised(run.config.n_embd(), parameter);
        if steps_on_card(kind) {
            run.w.alloc_in(run.state(2, index), Tensor::StepCount, parameter.layer);
        }
        let roles: &[Role] = if quantised {
            &[Role::State1, Role::State2, Role::Absmax, Role::Absmax]
        } else {
            &[Role::ExpAvg, Role::ExpAvgSq]
        };
        let which = [0, 1, 3, 4];
        for (&role, which) in roles.iter().zip(which) {
            let stored = Stored { tensor: parameter.tensor, role };
            run.w.alloc_in(run.state(which, index), stored, parameter.layer);
        }
    }
}

/// Vectors are short of the limit in every model but the widest; matrices are above it in all but the smallest.
fn is_quantised(n_embd: u64, parameter: Parameter) -> bool {
    let elements = match parameter.tensor {
        Tensor::FcB => 4 * n_embd,
        Tensor::QkvB => 3 * n_embd,
        _ if parameter.decayed => return n_embd.saturating_mul(n_embd) >= MIN_8BIT_ELEMENTS,
        _ => n_embd,
    };
    elements >= MIN_8BIT_ELEMENTS
}

/// AdamW over lists of tensors holds the square roots of a group's second moments while it steps that group.
fn denominators(run: &mut Run<'_>, group: &[(usize, Parameter)]) {
    let stored = |parameter: Parameter| Stored { tensor: parameter.tensor, role: Role::Denominator };
    let held: Vec<_> = group.iter().map(|&(_, p)| run.w.alloc(stored(p), p.layer)).collect();
    run.w.free_all(held);
}

fn zero_grad(run: &mut Run<'_>) {
    for (index, _) in groups(run).into_iter().flatten() {
        let slot = run.gradient(index);
        run.w.free_kept(slot);
    }
}
