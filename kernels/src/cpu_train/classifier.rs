//! The output layer, softmax, cross-entropy and their gradients fused, for a chunk of tokens at a time.
//!
//! The full logits never exist.

use super::{
    math::{exp, max, sum, vectorized},
    product::{Mat, OutputMode, product},
    thread_pool::{DisjointSlice, ThreadPool},
};

/// The classifier's inputs and outputs, without gradients.
#[derive(Debug)]
pub struct Classifier<'a> {
    pub thread_pool: &'a ThreadPool,
    /// The logits of a chunk, (chunk, V); a workspace.
    pub logits: &'a mut [f32],
    /// Each token's loss, (N).
    pub losses: &'a mut [f32],
    /// The output of the final layer norm, (N, C).
    pub lnf: &'a [f32],
    /// The token embeddings, (V, C).
    pub wte: &'a [f32],
    /// The target tokens, (N).
    pub targets: &'a [u32],
}

/// The gradients that the classifier computes.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// The gradient of `lnf`, (N, C), overwritten.
    pub dlnf: &'a mut [f32],
    /// The gradient of `wte`, (V, C).
    pub dwte: &'a mut [f32],
    /// Whether the result replaces the contents of `dwte` or is added to them.
    pub into: OutputMode,
    /// The gradient of each token's loss.
    pub dloss: f32,
}

/// Computes losses, and gradients if requested. References: `reference/matmul.rs`, `reference/crossentropy.rs`.
pub fn classify(classifier: Classifier<'_>, mut gradients: Option<Gradients<'_>>) {
    let Classifier { thread_pool, logits, losses, lnf, wte, targets } = classifier;
    let n = targets.len();
    let c = lnf.len() / n;
    let v = wte.len() / c;
    let chunk = logits.len() / v;
    for start in (0..n).step_by(chunk) {
        let rows = chunk.min(n - start);
        let logits = &mut logits[..rows * v];
        let lnf = Mat::new(&lnf[start * c..][..rows * c], rows, c);
        let wte = Mat::new(wte, v, c);
        product(thread_pool, logits, lnf, wte.transposed(), OutputMode::Fresh);
        let dloss = gradients.as_ref().map(|gradients| gradients.dloss);
        let losses = DisjointSlice::new(&mut losses[start..][..rows]);
        thread_pool.for_each_piece(logits, v, |row, logits| {
            // SAFETY: this element belongs to this row only.
            let loss = unsafe { losses.part(row, 1) };
            loss[0] = softmax(logits, targets[start + row] as usize, dloss);
        });
        if let Some(Gradients { dlnf, dwte, into, .. }) = &mut gradients {
            let dlogits = Mat::new(logits, rows, v);
            product(thread_pool, &mut dlnf[start * c..][..rows * c], dlogits, wte, OutputMode::Fresh);
            product(thread_pool, dwte, dlogits.transposed(), lnf, *into);
            *into = OutputMode::Sum;
        }
    }
}

/// Computes a token's loss and, if `dloss` is given, replaces its logits by their gradients.
fn softmax(logits: &mut [f32], target: usize, dloss: Option<f32>) -> f32 {
    let at_target = logits[target];
    let lse = vectorized!({
        let largest = max(logits);
        let total = if dloss.is_some() {
            logits.iter_mut().for_each(|logit| *logit = exp(*logit - largest));
            sum(logits, |x| x)
        } else {
            sum(logits, |x| exp(x - largest))
        };
        if let Some(dloss) = dloss {
            let scale = dloss / total;
            logits.iter_mut().for_each(|x| *x *= scale);
        }
        largest + total.ln()
    });
    if let Some(dloss) = dloss {
        logits[target] -= dloss;
    }
    lse - at_target
}
