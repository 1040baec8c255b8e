//! AdamW over the flat buffers, and the gradients' norm.

use rayon::prelude::*;

use super::{
    math::{sum, vectorized},
    team::tree_sum,
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
pub fn adamw_update(state: State<'_>, layout: &Layout, adamw: AdamW) {
    let State { params, m, v, grads } = state;
    let pieces = params.par_chunks_mut(PIECE).zip(m.par_chunks_mut(PIECE)).zip(v.par_chunks_mut(PIECE));
    pieces.zip(grads.par_chunks(PIECE)).enumerate().for_each(|(i, (((params, m), v), grads))| {
        let (start, end) = (i * PIECE, i * PIECE + params.len());
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
    vectorized(|| {
        for ((param, &grad), (m, v)) in params.iter_mut().zip(grads).zip(m.iter_mut().zip(v)) {
            let grad = grad * scale;
            *m = beta1 * *m + rest1 * grad;
            *v = beta2 * *v + rest2 * grad * grad;
            *param = *param * decay - step_size * *m / (v.sqrt() * inverse_root + eps);
        }
    });
}

/// The gradients' norm: squares in f32 over pieces of 4096, pieces in f64, in an order of its own.
pub fn norm(grads: &[f32]) -> f64 {
    let leaf = |start: usize, end: usize| {
        vectorized(|| grads[start..end].chunks(4096).map(|piece| f64::from(sum(piece, |x| x * x))).sum())
    };
    tree_sum(0, grads.len(), PIECE, &leaf).sqrt()
}
