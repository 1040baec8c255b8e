//! Causal attention, forward and backward.

use headroom_kernels::{
    cuda::{
        Bf16, CudaError, Device,
        ops::{
            attention_backward::{SavedAttention, attention_backward},
            attention_forward::attention_forward,
        },
    },
    reference::{self, attention_forward::Heads, dropout::Dropout},
};

use crate::{
    compare::close_each,
    gpu::{CheckFailure, Outcome, catches, holds, normals_bf16},
    numbers::{BF16_ROUNDING, read, repeats, wide, wide_f32},
};

/// B, T, NH and HS: one token; one token less and one more than a tile; several blocks. Every kernel, with head sizes
/// that do and do not fill their tiles.
const SIZES: [[usize; 4]; 9] = [
    [1, 1, 1, 32],
    [2, 63, 2, 64],
    [1, 65, 3, 32],
    [1, 200, 1, 64],
    [2, 33, 1, 80],
    [1, 130, 1, 96],
    [1, 100, 1, 128],
    [1, 70, 2, 8],
    [1, 129, 1, 120],
];

/// Error of scores: from float32 sums over a head's channels, and from exponentials and logarithms of 21 bits.
const SCORES: f64 = 2e-5;

/// A case with the reference's results.
pub struct Case {
    tokens: usize,
    heads: Heads,
    qkv: Vec<Bf16>,
    dout: Vec<Bf16>,
}

impl Case {
    pub fn new([b, t, nh, hs]: [usize; 4], p: f64) -> Self {
        let (tokens, c) = (b * t, nh * hs);
        let heads = Heads { t, c, nh, dropout: Dropout::new(p, 77) };
        Self { tokens, heads, qkv: normals_bf16(1, tokens * 3 * c), dout: normals_bf16(2, tokens * c) }
    }

    fn rows(&self) -> usize {
        self.tokens * self.heads.nh
    }

    /// Computes `out` and `lse` of any values by the reference.
    fn forward(&self, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut out, mut lse) = (vec![0.0; self.dout.len()], vec![0.0; self.rows()]);
        reference::attention_forward::attention_forward(&mut out, &mut lse, qkv, self.heads);
        (out, lse)
    }

    /// Returns the error bounds of results: a bfloat16 rounding of each weight and of the result, and the error of
    /// scores.
    fn forward_bounds(&self, out: &[f64]) -> Vec<f64> {
        let c = self.heads.c;
        let of_values = |(i, x): (usize, f64)| if i / c % 3 == 2 { x.abs() } else { x };
        let (sizes, _) = self.forward(&wide(&self.qkv).into_iter().enumerate().map(of_values).collect::<Vec<_>>());
        out.iter()
            .zip(sizes)
            .map(|(x, size)| x.abs() * BF16_ROUNDING + size * (BF16_ROUNDING + SCORES) * 1.01)
            .collect()
    }

    /// Returns the gradient and its error bounds: weights and their gradients are rounded between two products.
    fn backward(&self, out: &[f64], lse: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (qkv, dout) = (wide(&self.qkv), wide(&self.dout));
        let mut dqkv = vec![0.0; qkv.len()];
        let saved = reference::attention_backward::SavedAttention { qkv: &qkv, out, lse };
        reference::attention_backward::attention_backward(&mut dqkv, &dout, saved, self.heads);

        let Heads { t, c, nh, .. } = self.heads;
        let (hs, scale) = (self.heads.hs(), self.heads.scale());
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut sizes = vec![0.0; qkv.len()];
        for (row, lse) in lse.iter().enumerate() {
            let (b, h, query) = (row / (nh * t), row / t % nh, row % t);
            let at = |token: usize, which: usize| ((b * t + token) * 3 + which) * c + h * hs;
            let part = |token, which| &qkv[at(token, which)..][..hs];
            let here = (b * t + query) * c + h * hs;
            let (dout, out) = (&dout[here..][..hs], &out[here..][..hs]);
            let d = dot(dout, out);
            let d_size = dout.iter().zip(out).map(|(a, b)| (a * b).abs()).sum::<f64>();
            for key in 0..=query {
                let weight = (dot(part(query, 0), part(key, 1)) * scale - lse).exp();
                let factor = f64::from(self.heads.dropped(row, key));
                let dweight = dot(dout, part(key, 2)) * factor;
                let value_size = dout.iter().zip(part(key, 2)).map(|(a, b)| (a * b).abs()).sum::<f64>() * factor;
                let dscore = weight * (dweight - d).abs();
                // A rounding of dS, and the errors of its weight and of the two terms of its difference.
                let off = (dscore * (BF16_ROUNDING + SCORES) + weight * (value_size + d_size) * 1e-6) * scale;
                for i in 0..hs {
                    sizes[at(query, 0) + i] += off * part(key, 1)[i].abs();
                    sizes[at(key, 1) + i] += off * part(query, 0)[i].abs();
                    sizes[at(key, 2) + i] += weight * factor * (BF16_ROUNDING + SCORES) * dout[i].abs();
                }
            }
        }
        let bounds = dqkv.iter().zip(sizes).map(|(x, off)| x.abs() * BF16_ROUNDING * 1.01 + off * 1.01).collect();
        (dqkv, bounds)
    }
}

pub fn forward_is_right(device: &Device, case: &Case) -> Outcome {
    let qkv = device.upload(&case.qkv)?;
    let (out, lse) = (device.allocate(case.dout.len() as u64)?, device.allocate(case.rows() as u64)?);
    attention_forward(device, out.slice(), lse.slice(), qkv.slice(), case.heads)?;
    let (expected, expected_lse) = case.forward(&wide(&case.qkv));
    close_each("out", &read(device, out.slice())?, &expected, &case.forward_bounds(&expected))?;
    let bounds: Vec<f64> = expected_lse.iter().map(|lse| SCORES * (1.0 + lse.abs())).collect();
    close_each("lse", &device.download(lse.slice())?, &expected_lse, &bounds)
}

fn gradient(device: &Device, case: &Case) -> Result<[Vec<f32>; 3], CheckFailure> {
    let (qkv, dout) = (device.upload(&case.qkv)?, device.upload(&case.dout)?);
    let (out, lse) = (device.allocate(case.dout.len() as u64)?, device.allocate(case.rows() as u64)?);
    let (dqkv, rows) = (device.allocate(case.qkv.len() as u64)?, device.allocate(case.rows() as u64)?);
    let saved = SavedAttention { qkv: qkv.slice(), out: out.slice(), lse: lse.slice() };
    attention_forward(device, saved.out, saved.lse, saved.qkv, case.heads)?;
    attention_backward(device, dqkv.slice(), rows.slice(), dout.slice(), saved, case.heads)?;
    Ok([read(device, dqkv.slice())?, read(device, saved.out)?, device.download(saved.lse)?])
}

/// Checks the gradient, starting from the kernel's forward results so that forward's roundings do not count.
pub fn backward_is_right(device: &Device, case: &Case) -> Outcome {
    let [dqkv, out, lse] = gradient(device, case)?;
    let (expected, bounds) = case.backward(&wide_f32(&out), &wide_f32(&lse));
    close_each("dqkv", &dqkv, &expected, &bounds)
}

#[test]
fn forward_is_that_of_the_reference() {
    for sizes in SIZES {
        holds(|device| forward_is_right(device, &Case::new(sizes, 0.0)));
    }
}

#[test]
fn backward_is_that_of_the_reference() {
    for sizes in SIZES {
        holds(|device| backward_is_right(device, &Case::new(sizes, 0.0)));
    }
}

#[test]
fn dropout_drops_the_weights_that_the_reference_drops() {
    for sizes in [SIZES[2], SIZES[3], SIZES[6]] {
        let case = Case::new(sizes, 0.3);
        holds(|device| {
            forward_is_right(device, &case)?;
            backward_is_right(device, &case)
        });
    }
}

#[test]
fn scores_that_leave_f32_as_exponentials_stay_finite() {
    let mut case = Case::new(SIZES[2], 0.0);
    for q in case.qkv.chunks_mut(case.heads.c).step_by(3).flatten() {
        *q = Bf16::from_f32(q.to_f32() * 100.0);
    }
    holds(|device| {
        let all = gradient(device, &case)?;
        assert!(all.iter().flatten().all(|x| x.is_finite()));
        // A score of 1000 has a larger error than one of 1.
        let (expected, lse) = case.forward(&wide(&case.qkv));
        let largest = lse.iter().fold(0.0, |largest: f64, lse| largest.max(lse.abs()));
        let bounds: Vec<f64> =
            case.forward_bounds(&expected).into_iter().map(|bound| bound + largest * SCORES * 8.0).collect();
        close_each("out", &all[1], &expected, &bounds)
    });
}

#[test]
fn attention_gives_the_same_bits_each_time() {
    let case = Case::new([1, 200, 1, 64], 0.1);
    repeats(|device| Ok(gradient(device, &case)?.concat()));
}

#[test]
fn mistakes_in_attention_are_noticed() {
    let (case, dropping) = (Case::new([1, 200, 1, 64], 0.0), Case::new([1, 70, 1, 64], 0.3));
    for mutation in ["no_barrier", "waits_too_little", "into_a_stage_in_use", "mask_off_by_one", "a_sum_not_rescaled"] {
        catches("attention_forward_64", mutation, |device| forward_is_right(device, &case));
    }
    catches("attention_forward_64", "drops_by_another_row", |device| forward_is_right(device, &dropping));
    for kernel in ["attention_backward_keys_64", "attention_backward_queries_64"] {
        for mutation in ["no_barrier", "waits_too_little", "mask_off_by_one", "skips_the_diagonal"] {
            catches(kernel, mutation, |device| backward_is_right(device, &case));
        }
    }
    catches("attention_backward_keys_64", "rows_of_the_wrong_stage", |device| backward_is_right(device, &case));
    catches("attention_backward_keys_128", "mask_off_by_one", |device| {
        backward_is_right(device, &Case::new([1, 40, 1, 128], 0.0))
    });
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    holds(|device| {
        let (qkv, lse) = (device.upload(&normals_bf16(0, 192))?, device.allocate(8)?);
        let error_of = |out, heads| {
            let out = qkv.slice().part(0, out)?;
            let refused = attention_forward(device, out, lse.slice(), qkv.slice(), heads);
            Ok::<_, CudaError>(refused.expect_err("it does not fit").to_string())
        };
        let heads = |t, c, nh| Heads { t, c, nh, dropout: None };
        assert_eq!(error_of(64, heads(0, 8, 1))?, "attention_forward: T is 0, and has to be at least 1");
        assert_eq!(error_of(64, heads(8, 8, 3))?, "attention_forward: C is 8, and has to be a multiple of NH");
        assert_eq!(error_of(64, heads(8, 8, 2))?, "attention_forward: HS is 4, and has to be a multiple of 8");
        assert_eq!(error_of(64, heads(8, 136, 1))?, "attention_forward: HS is 136, and has to be at most 128");
        assert_eq!(
            error_of(64, heads(3, 8, 1))?,
            "attention_forward: the number of elements of qkv is 192, and has to be a multiple of T * 3 * C"
        );
        assert_eq!(error_of(56, heads(8, 8, 1))?, "attention_forward: out has 56 elements instead of 64");
        Ok(())
    });
}
