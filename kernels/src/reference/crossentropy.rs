//! Softmax and cross-entropy over the vocabulary.

use super::RealNumber;

/// Computes each row's loss: the negative logarithm of the probability of its target.
///
/// Shapes: `logits` (N, V), `targets` (N) → `losses` (N).
/// Source: `torch.nn.functional.cross_entropy(reduction="none")`.
///
/// # Panics
/// If slice lengths are inconsistent, or a target exceeds the number of columns.
pub fn crossentropy_forward<F: RealNumber>(losses: &mut [F], logits: &[F], targets: &[u32]) {
    assert_eq!(losses.len(), targets.len(), "losses and targets are (N)");
    let v = logits.len() / targets.len().max(1);
    for ((loss, logits), &target) in losses.iter_mut().zip(logits.chunks_exact(v)).zip(targets) {
        *loss = logsumexp(logits) - logits[target as usize];
    }
}

/// Adds the gradient of the losses' weighted sum to the gradient of the logits.
///
/// Shapes: `dlosses` (N), `logits` (N, V), `targets` (N) → adds to `dlogits` (N, V): (softmax - onehot) * dloss.
///
/// # Panics
/// As for [`crossentropy_forward`].
pub fn crossentropy_softmax_backward<F: RealNumber>(dlogits: &mut [F], dlosses: &[F], logits: &[F], targets: &[u32]) {
    assert_eq!(dlosses.len(), targets.len(), "dlosses and targets are (N)");
    assert_eq!(dlogits.len(), logits.len(), "dlogits and logits are (N, V)");
    let v = logits.len() / targets.len().max(1);
    let rows = dlogits.chunks_exact_mut(v).zip(logits.chunks_exact(v));
    for ((dlogits, logits), (&dloss, &target)) in rows.zip(dlosses.iter().zip(targets)) {
        let lse = logsumexp(logits);
        for (dlogit, &logit) in dlogits.iter_mut().zip(logits) {
            *dlogit += (logit - lse).exp() * dloss;
        }
        dlogits[target as usize] -= dloss;
    }
}

fn logsumexp<F: RealNumber>(logits: &[F]) -> F {
    let max = logits.iter().copied().fold(F::neg_infinity(), F::max);
    max + logits.iter().map(|&logit| (logit - max).exp()).sum::<F>().ln()
}
