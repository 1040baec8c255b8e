//! The AdamW optimizer.

use super::RealNumber;

/// The hyperparameters of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate of this update.
    pub learning_rate: f64,
    /// The decay rate of the first moment.
    pub beta1: f64,
    /// The decay rate of the second moment.
    pub beta2: f64,
    /// The constant added to the root of the second moment.
    pub eps: f64,
    /// The weight decay; 0 for vectors.
    pub weight_decay: f64,
    /// The number of updates including this one, from 1.
    pub step: u64,
    /// The factor of gradients, from gradient clipping.
    pub gradient_scale: f64,
}

impl AdamW {
    /// The default `eps` of `torch.optim.AdamW`.
    pub const EPS: f64 = 1e-8;

    /// The bias corrections: 1 - beta1^step and the root of 1 - beta2^step.
    #[must_use]
    pub fn corrections(&self) -> (f64, f64) {
        let step = i32::try_from(self.step).unwrap_or(i32::MAX);
        (1.0 - self.beta1.powi(step), (1.0 - self.beta2.powi(step)).sqrt())
    }
}

/// Updates parameters from their gradients, in place.
///
/// Shapes: `param`, `m`, `v` and `grad` are equal. Source: arXiv:1711.05101, in the order of `torch.optim.AdamW`.
///
/// # Panics
/// If the lengths differ.
pub fn adamw_update<F: RealNumber>(param: &mut [F], m: &mut [F], v: &mut [F], grad: &[F], adamw: AdamW) {
    assert!(param.len() == grad.len() && m.len() == grad.len() && v.len() == grad.len(), "all have one shape");
    let (correction1, root_correction2) = adamw.corrections();
    let (beta1, beta2) = (F::of(adamw.beta1), F::of(adamw.beta2));
    let decay = F::of(1.0 - adamw.learning_rate * adamw.weight_decay);
    let step_size = F::of(adamw.learning_rate / correction1);
    let (inverse_root, eps) = (F::of(1.0 / root_correction2), F::of(adamw.eps));
    let scale = F::of(adamw.gradient_scale);
    for ((param, &grad), (m, v)) in param.iter_mut().zip(grad).zip(m.iter_mut().zip(v)) {
        let grad = grad * scale;
        *m = beta1 * *m + (F::one() - beta1) * grad;
        *v = beta2 * *v + (F::one() - beta2) * grad * grad;
        *param = *param * decay - step_size * *m / (v.sqrt() * inverse_root + eps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first step equals the learning rate whatever the gradient's size, and weight decay shrinks the parameter.
    #[test]
    fn the_first_step_is_the_learning_rate() {
        let adamw = AdamW {
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            eps: AdamW::EPS,
            weight_decay: 0.5,
            step: 1,
            gradient_scale: 1.0,
        };
        let (mut param, mut m, mut v) = ([1.0_f64, 1.0], [0.0; 2], [0.0; 2]);
        adamw_update(&mut param, &mut m, &mut v, &[1e-3, -5.0], adamw);
        assert!((param[0] - (0.95 - 0.1)).abs() < 1e-5 && (param[1] - (0.95 + 0.1)).abs() < 1e-6, "{param:?}");
    }
}
