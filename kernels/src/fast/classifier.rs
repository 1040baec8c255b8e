//! lm_head, softmax, cross-entropy and their gradients together, a chunk of tokens at a time: never all logits.

use super::{
    math::{exp, max, sum, vectorized},
    product::{Into, Mat, product},
    team::{Disjoint, Team},
};

/// What the classifier reads and writes in any case.
#[derive(Debug)]
pub struct Classifier<'a> {
    /// Who computes.
    pub team: &'a Team,
    /// Room for the logits of a chunk, (chunk, V).
    pub logits: &'a mut [f32],
    /// Each token's loss, (N).
    pub losses: &'a mut [f32],
    /// (N, C).
    pub lnf: &'a [f32],
    /// (V, C).
    pub wte: &'a [f32],
    /// (N).
    pub targets: &'a [u32],
}

/// Where gradients go.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// (N, C), written.
    pub dlnf: &'a mut [f32],
    /// (V, C).
    pub dwte: &'a mut [f32],
    /// What becomes of what stands in `dwte`.
    pub into: Into,
    /// What each token's loss counts.
    pub dloss: f32,
}

/// Losses, and gradients where asked. Twins: `cpu/matmul.rs`, `cpu/crossentropy.rs`.
pub fn classify(classifier: Classifier<'_>, mut gradients: Option<Gradients<'_>>) {
    let Classifier { team, logits, losses, lnf, wte, targets } = classifier;
    let n = targets.len();
    let c = lnf.len() / n;
    let v = wte.len() / c;
    let chunk = logits.len() / v;
    for start in (0..n).step_by(chunk) {
        let rows = chunk.min(n - start);
        let logits = &mut logits[..rows * v];
        let lnf = Mat::new(&lnf[start * c..][..rows * c], rows, c);
        let wte = Mat::new(wte, v, c);
        product(team, logits, lnf, wte.transposed(), Into::Fresh);
        let dloss = gradients.as_ref().map(|gradients| gradients.dloss);
        let losses = Disjoint::new(&mut losses[start..][..rows]);
        team.for_each_piece(logits, v, |row, logits| {
            // SAFETY: the row's own.
            let loss = unsafe { losses.part(row, 1) };
            loss[0] = softmax(logits, targets[start + row] as usize, dloss);
        });
        if let Some(Gradients { dlnf, dwte, into, .. }) = &mut gradients {
            let dlogits = Mat::new(logits, rows, v);
            product(team, &mut dlnf[start * c..][..rows * c], dlogits, wte, Into::Fresh);
            product(team, dwte, dlogits.transposed(), lnf, *into);
            *into = Into::Sum;
        }
    }
}

/// A token's loss; its logits become their gradients where the loss counts for something.
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
