//! Attention masks of a forward: masking_utils.py.

use super::{AttentionKind, body::Inputs};
use crate::{
    dtype::Dtype,
    torch::{Tensor, Torch},
};

/// The pattern of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All earlier tokens.
    Causal,
    /// The last tokens, of this number.
    Sliding(u64),
}

impl Inputs<'_> {
    /// `create_causal_mask` or `create_sliding_window_causal_mask`, for embeddings of a dtype. `None` if the attention
    /// masks the later tokens itself.
    ///
    /// A padding mask of ones is no mask, unless the window is shorter than the sequence. flash-attn has its own windows.
    pub fn mask(&self, torch: &Torch, kind: AttentionKind, pattern: Pattern, dtype: Dtype) -> Option<Tensor> {
        let padding = self.mask.map(|mask| torch.empty("attention mask", mask.sizes(), Dtype::Bool));
        if padding.is_none() {
            find_packed_sequence_indices(torch, self.sizes());
        }
        let is_local = matches!(pattern, Pattern::Sliding(window) if window <= self.sizes()[0]);
        if kind == AttentionKind::FlashAttention2 {
            drop(padding.map(|_padding| torch.empty("whether all tokens are attended to", &[], Dtype::Bool)));
            return None;
        }
        if kind == AttentionKind::Sdpa && !is_local {
            if let Some(padding) = padding {
                fast_all(torch, padding.sizes());
            }
            return None;
        }
        let mask = self.boolean_mask(torch, pattern, padding.as_ref());
        Some(match kind {
            AttentionKind::Sdpa | AttentionKind::FlashAttention2 => mask,
            // `eager_mask`.
            AttentionKind::Eager => {
                let _numbers = [(); 2].map(|()| torch.empty("scalar", &[], dtype));
                torch.empty("attention mask", mask.sizes(), dtype)
            }
        })
    }

    /// `sdpa_mask`: the intersection of its patterns, one after the other.
    fn boolean_mask(&self, torch: &Torch, pattern: Pattern, padding: Option<&Tensor>) -> Tensor {
        let [t, b] = self.sizes();
        let bools = |sizes: &[u64]| torch.empty("attention mask", sizes, Dtype::Bool);
        let positions = || {
            let _range = torch.empty("positions", &[t], Dtype::Int64);
            torch.empty("positions", &[t], Dtype::Int64)
        };
        let _batch = [b, 1].map(|n| torch.empty("positions", &[n], Dtype::Int64));
        let _positions = [positions(), positions()];
        let is_causal = || bools(&[1, 1, t, t]);
        let within = || {
            let _first = torch.empty("positions", &[1, 1, t, 1], Dtype::Int64);
            bools(&[1, 1, t, t])
        };
        let and = |result: Tensor, part: Tensor| {
            let both = bools(if result.sizes().is_empty() { part.sizes() } else { result.sizes() });
            drop(part);
            drop(result);
            both
        };
        let ones = padding.map(|_| bools(&[]));
        let mask = match pattern {
            Pattern::Causal => is_causal(),
            Pattern::Sliding(_) => {
                let ones = bools(&[]);
                and(and(ones, within()), is_causal())
            }
        };
        let Some(ones) = ones else { return mask.expanded(3, b) };
        let result = and(ones, mask);
        let _tokens = bools(&[b, 1, 1, t]);
        let both = bools(&[b, 1, t, t]);
        drop(result);
        both
    }
}

/// `fast_all`: the sum of a mask, which the kernel casts to integers first, and its comparison.
fn fast_all(torch: &Torch, sizes: &[u64]) {
    let empty = |sizes: &[u64], dtype| torch.empty("whether all tokens are attended to", sizes, dtype);
    let sum = empty(&[], Dtype::Int64);
    drop(empty(sizes, Dtype::Int64));
    let _is_all = empty(&[], Dtype::Bool);
    drop(sum);
}

/// `find_packed_sequence_indices`, which does not find any.
fn find_packed_sequence_indices(torch: &Torch, [t, b]: [u64; 2]) {
    let empty = |sizes: &[u64], dtype| torch.empty("search for packed sequences", sizes, dtype);
    let first_dummy_value = empty(&[b, 1], Dtype::Int64);
    let position_diff = {
        let _positions = empty(&[b, t + 1], Dtype::Int64);
        empty(&[b, t], Dtype::Int64)
    };
    let packed_sequence_mask = {
        let _starts = empty(&[b, t], Dtype::Bool);
        let sums = empty(&[b, t], Dtype::Int64);
        drop(empty(&[b, t], Dtype::Int64));
        sums
    };
    let last = empty(&[b], Dtype::Bool);
    let all = empty(&[], Dtype::Bool);
    // Temporaries, then variables in the order of Python's frame.
    [last, all, first_dummy_value, position_diff, packed_sequence_mask].into_iter().for_each(drop);
}
