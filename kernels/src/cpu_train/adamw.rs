//! AdamW over the flat buffers, and the gradients' norm.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    math::{sum, vectorized},
    thread_pool::{DisjointSlice, ThreadPool},
};
use crate::{
    layout::Layout,
    reference::{RealNumber, adamw_update::AdamW},
};

/// Elements per task, chosen so that four such buffers fit a core's cache.
const PIECE: usize = 1 << 15;

/// The parameters, their moments, and their gradients, in [`Layout`]'s order.
#[derive(Debug)]
pub struct State<'a> {
    /// The parameters, updated in place.
    pub params: &'a mut [f32],
    /// The first moments, updated in place.
    pub m: &'a mut [f32],
    /// The second moments, updated in place.
    pub v: &'a mut [f32],
    /// The gradients.
    pub grads: &'a [f32],
}

/// Updates every parameter. Vectors have no weight decay. Reference: `reference/adamw_update.rs`.
pub fn adamw_update(thread_pool: &ThreadPool, state: State<'_>, layout: &Layout, adamw: AdamW) {
    let State { params, m, v, grads } = state;
    let (m, v) = (DisjointSlice::new(m), DisjointSlice::new(v));
    thread_pool.for_each_piece(params, PIECE, |i, params| {
        let (start, end) = (i * PIECE, i * PIECE + params.len());
        // SAFETY: this range belongs to this task only.
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

/// Partial sums of the gradients' norm, independent of the number of threads.
const SUMS: usize = 64;

/// The gradients' norm: sums squares in f32 over pieces of 4096 elements, and pieces in f64, in a fixed order.
pub fn norm(thread_pool: &ThreadPool, grads: &[f32]) -> f64 {
    let sums = [const { AtomicU64::new(0) }; SUMS];
    let len = grads.len().div_ceil(SUMS).max(1);
    thread_pool.for_each(grads.len().div_ceil(len), |i| {
        let part = &grads[i * len..grads.len().min((i + 1) * len)];
        let total: f64 = vectorized!(part.chunks(4096).map(|piece| f64::from(sum(piece, |x| x * x))).sum());
        sums[i].store(total.to_bits(), Ordering::Relaxed);
    });
    sums.iter().map(|sum| f64::from_bits(sum.load(Ordering::Relaxed))).sum::<f64>().sqrt()
}
