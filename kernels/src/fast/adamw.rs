//! AdamW over the flat buffers, and the gradients' norm.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    math::{sum, vectorized},
    team::{Disjoint, Team},
};
use crate::{
    cpu::{Real, adamw_update::AdamW},
    layout::Layout,
};

/// Elements a task: what four buffers of it leave in a core's cache.
const PIECE: usize = 1 << 15;

/// The parameters, their moments, and their gradients, flat as [`Layout`] has them.
#[derive(Debug)]
pub struct State<'a> {
    /// Updated.
    pub params: &'a mut [f32],
    /// Updated.
    pub m: &'a mut [f32],
    /// Updated.
    pub v: &'a mut [f32],
    /// Read.
    pub grads: &'a [f32],
}

/// Updates every parameter; vectors do not decay. Twin: `cpu/adamw_update.rs`.
pub fn adamw_update(team: &Team, state: State<'_>, layout: &Layout, adamw: AdamW) {
    let State { params, m, v, grads } = state;
    let (m, v) = (Disjoint::new(m), Disjoint::new(v));
    team.for_each_piece(params, PIECE, |i, params| {
        let (start, end) = (i * PIECE, i * PIECE + params.len());
        // SAFETY: the piece's own.
        let (m, v) = unsafe { (m.part(start, params.len()), v.part(start, params.len())) };
        let grads = &grads[start..end];
        let entries = layout.entries();
        let first = entries.partition_point(|entry| entry.range.end <= start);
        for entry in entries[first..].iter().take_while(|entry| entry.range.start < end) {
            let here = entry.range.start.max(start) - start..entry.range.end.min(end) - start;
            let weight_decay = if entry.parameter.decayed { adamw.weight_decay } else { 0.0 };
            let (params, m, v) = (&mut params[here.clone()], &mut m[here.clone()], &mut v[here.clone()]);
            update(params, m, v, &grads[here], AdamW { weight_decay, ..adamw });
        }
    });
}

fn update(params: &mut [f32], m: &mut [f32], v: &mut [f32], grads: &[f32], adamw: AdamW) {
    let (correction1, root_correction2) = adamw.corrections();
    let [beta1, beta2] = [adamw.beta1, adamw.beta2].map(f32::of);
    let [rest1, rest2] = [adamw.beta1, adamw.beta2].map(|beta| f32::of(1.0 - beta));
    let decay = f32::of(1.0 - adamw.learning_rate * adamw.weight_decay);
    let step_size = f32::of(adamw.learning_rate / correction1);
    let [inverse_root, eps, scale] = [1.0 / root_correction2, adamw.eps, adamw.gradient_scale].map(f32::of);
    vectorized!({
        for ((param, &grad), (m, v)) in params.iter_mut().zip(grads).zip(m.iter_mut().zip(v.iter_mut())) {
            let grad = grad * scale;
            *m = beta1 * *m + rest1 * grad;
            *v = beta2 * *v + rest2 * grad * grad;
            *param = *param * decay - step_size * *m / (v.sqrt() * inverse_root + eps);
        }
    });
}

/// Sums that are added up side by side for the gradients' norm, however many threads there are.
const SUMS: usize = 64;

/// The gradients' norm: squares in f32 over pieces of 4096, pieces in f64, in an order of its own.
pub fn norm(team: &Team, grads: &[f32]) -> f64 {
    let sums = [const { AtomicU64::new(0) }; SUMS];
    let len = grads.len().div_ceil(SUMS).max(1);
    team.for_each(grads.len().div_ceil(len), |i| {
        let part = &grads[i * len..grads.len().min((i + 1) * len)];
        let total: f64 = vectorized!(part.chunks(4096).map(|piece| f64::from(sum(piece, |x| x * x))).sum());
        sums[i].store(total.to_bits(), Ordering::Relaxed);
    });
    sums.iter().map(|sum| f64::from_bits(sum.load(Ordering::Relaxed))).sum::<f64>().sqrt()
}
