//! Gradients of the embeddings, and the batch's tokens sorted for the kernels.

use headroom_planner::gpt::buffers::cuda::workspace;

use super::{count, dropout::parts, encoder_forward::Sizes};
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
    reference::{dropout::Dropout, encoder::Positions},
};

pub(super) static MODULE: Module =
    Module { name: "encoder_backward", ptx: include_str!("../../../ptx/encoder_backward.ptx") };
static WPE: Kernel = Kernel { module: &MODULE, name: "encoder_backward_wpe", threads: THREADS, shared_bytes: 0 };
static FEW: Kernel = Kernel { module: &MODULE, name: "encoder_backward_wte_few", threads: THREADS, shared_bytes: 0 };
static MANY: Kernel =
    Kernel { module: &MODULE, name: "encoder_backward_wte_many", threads: THREADS, shared_bytes: 8192 };

const THREADS: u32 = 256;
/// Tokens and columns per block of `encoder_backward_wte_few`: one token per warp, eight columns per lane.
const FEW_TOKENS: u64 = 8;
const FEW_COLUMNS: u64 = 256;
/// Columns per block of `encoder_backward_wte_many`.
const MANY_COLUMNS: u64 = 64;
/// Maximum number of rows of a token that a warp sums; a token with more has its own blocks, which read this many at
/// once.
const MANY_ROWS: u32 = 32;

const OP: &str = "encoder_backward";
/// Words of a token's bucket: the token, its first row's index, its number of rows, and padding.
const BUCKET: usize = 4;
const _: () = assert!(BUCKET as u64 == workspace::BUCKET_WORDS, "the plan has room for the kernels' buckets");

/// The tokens of a micro-batch, each with the rows in which it occurs. The kernels read its [`words`](Self::words), of
/// which there are [`workspace::token_words`].
#[derive(Debug)]
pub struct TokenOrder {
    /// First a bucket for each distinct token, those with many rows first, padded to the maximum number of buckets.
    /// Then the rows grouped by token, in ascending order within a token.
    words: Vec<u32>,
    n_many: u64,
    n_few: u64,
    /// Number of rows of each token.
    counts: Vec<u32>,
    /// Next position in the list of rows, for each token.
    next: Vec<u32>,
}

impl TokenOrder {
    /// An empty order for a vocabulary of `v` tokens.
    ///
    /// # Errors
    /// [`CudaError::TooLarge`] if this machine cannot address the vocabulary.
    pub fn new(v: u64) -> Result<Self, CudaError> {
        let too_large = |_| CudaError::TooLarge { what: "the vocabulary", value: v };
        let counts = vec![0; usize::try_from(v).map_err(too_large)?];
        Ok(Self { words: vec![], n_many: 0, n_few: 0, next: counts.clone(), counts })
    }

    /// Checks that each token is below V.
    ///
    /// # Errors
    /// [`CudaError::Size`] for a token that is not below V.
    pub fn check(&self, tokens: &[u32]) -> Result<(), CudaError> {
        match tokens.iter().find(|&&token| token as usize >= self.counts.len()) {
            None => Ok(()),
            Some(&token) => {
                Err(CudaError::Size { op: OP, what: "a token", value: u64::from(token), needed: "below V" })
            }
        }
    }

    /// Sorts the tokens of the next micro-batch.
    ///
    /// # Errors
    /// [`CudaError::Size`] for a token that is not below V.
    pub fn sort(&mut self, tokens: &[u32]) -> Result<(), CudaError> {
        count(OP, "the number of tokens", tokens.len() as u64)?;
        self.check(tokens)?;
        self.counts.fill(0);
        for &token in tokens {
            self.counts[token as usize] += 1;
        }
        let room = tokens.len().min(self.counts.len()) * BUCKET;
        self.words.clear();
        self.words.resize(room + tokens.len(), 0);
        let (buckets, order) = self.words.split_at_mut(room);
        let mut buckets = buckets.chunks_exact_mut(BUCKET);
        let (mut first, mut n_buckets) = (0, [0_u64; 2]);
        for many in [true, false] {
            let tokens = (0_u32..).zip(&self.counts).filter(|(_, count)| **count > 0 && (**count > MANY_ROWS) == many);
            // The buckets suffice for all distinct tokens.
            for ((token, &count), bucket) in tokens.zip(&mut buckets) {
                bucket.copy_from_slice(&[token, first, count, 0]);
                self.next[token as usize] = first;
                first += count;
                n_buckets[usize::from(many)] += 1;
            }
        }
        [self.n_few, self.n_many] = n_buckets;
        for (row, &token) in (0_u32..).zip(tokens) {
            let next = &mut self.next[token as usize];
            order[*next as usize] = row;
            *next += 1;
        }
        Ok(())
    }

    /// Number of tokens in the micro-batch.
    fn rows(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Number of distinct tokens in the micro-batch.
    #[must_use]
    pub const fn n_different(&self) -> u64 {
        self.n_many + self.n_few
    }

    /// The words to copy to the GPU.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }
}

/// Gradients that are added to.
#[derive(Clone, Copy, Debug)]
pub struct Gradients {
    /// Gradient of the token embedding, (V, C).
    pub dwte: Slice<f32>,
    /// Gradient of the position embedding, (maxT, C).
    pub dwpe: Slice<f32>,
}

/// Adds the gradients of [`super::encoder_forward::encoder_forward`], with the same dropout.
///
/// Shapes: `dout` (B, T, C), `words` are those of `tokens` → adds to `dwte` (V, C), `dwpe` (maxT, C); C a multiple of
/// 8.
///
/// Numerics: f32. Each element's sum has an order that depends on the tokens only, and is then added to the old value.
///
/// Twins: [`crate::reference::dropout::dropout`] and then [`crate::reference::encoder::encoder_backward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or a launch fails.
#[track_caller]
pub fn encoder_backward(
    device: &Device,
    gradients: Gradients,
    dout: Slice<Bf16>,
    (tokens, words): (&TokenOrder, Slice<u32>),
    positions: Positions,
    c: u64,
    dropout: Option<Dropout>,
) -> Result<(), CudaError> {
    let Gradients { dwte, dwpe } = gradients;
    let sizes = Sizes::new(OP, positions, c)?;
    let v = tokens.counts.len() as u64;
    let rows = tokens.rows();
    dout.expect(OP, "dout", rows.saturating_mul(c))?;
    dwte.expect(OP, "dwte", v.saturating_mul(c))?;
    words.expect(OP, "words", tokens.words.len() as u64)?;
    sizes.check(OP, "dwpe", dwpe.len(), rows)?;
    if rows == 0 {
        return Ok(());
    }
    let (threshold, scale, key) = parts(dropout);
    let Sizes { t, first, c: channels } = sizes;
    let eighths = count(OP, "an eighth of T times C", u64::from(t) * c / super::EIGHT)?;
    let sequences = count(OP, "B", rows / u64::from(t))?;
    let grid = Grid::x(u64::from(eighths).div_ceil(u64::from(THREADS)))?;
    device.launch(&WPE, grid, &[&dwpe, &dout, &eighths, &sequences, &first, &channels, &threshold, &scale, &key])?;

    let room = words.len() - rows;
    let (buckets, order) = (words.part(0, room)?, words.part(room, rows)?);
    if tokens.n_many > 0 {
        let grid = Grid::xy(tokens.n_many, c.div_ceil(MANY_COLUMNS))?;
        device.launch(&MANY, grid, &[&dwte, &dout, &order, &buckets, &channels, &threshold, &scale, &key])?;
    }
    if tokens.n_few > 0 {
        let few = buckets.part(tokens.n_many * BUCKET as u64, tokens.n_few * BUCKET as u64)?;
        let grid = Grid::xy(tokens.n_few.div_ceil(FEW_TOKENS), c.div_ceil(FEW_COLUMNS))?;
        let n = count(OP, "the number of tokens", tokens.n_few)?;
        device.launch(&FEW, grid, &[&dwte, &dout, &order, &few, &n, &channels, &threshold, &scale, &key])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(tokens: &[u32], v: u64) -> TokenOrder {
        let mut order = TokenOrder::new(v).expect("small");
        order.sort(tokens).expect("tokens below V");
        order
    }

    #[test]
    fn tokens_of_many_rows_come_first_and_rows_keep_their_order() {
        let tokens: Vec<u32> = (0..100).map(|i| if i % 2 == 0 { 6 } else { i % 5 }).collect();
        let order = sorted(&tokens, 7);
        assert_eq!((order.n_many, order.n_few), (1, 5));
        assert_eq!(order.words().len() as u64, workspace::token_words(100, 7));
        let (buckets, rows) = order.words().split_at(7 * BUCKET);
        assert_eq!(buckets[..2 * BUCKET], [6, 0, 50, 0, 0, 50, 10, 0]);
        for bucket in buckets.chunks_exact(BUCKET).take(6) {
            let mine = &rows[bucket[1] as usize..][..bucket[2] as usize];
            assert!(mine.iter().all(|&row| tokens[row as usize] == bucket[0]), "{bucket:?}: {mine:?}");
            assert!(mine.is_sorted(), "{mine:?}");
        }
        let mut all = rows.to_vec();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100), "every row belongs to a token");
    }

    #[test]
    fn there_is_room_for_as_many_different_tokens_as_there_can_be() {
        for (tokens, v) in [(vec![3, 1, 2, 0], 4), (vec![9, 5], 10), (vec![0; 40], 1), (vec![], 3)] {
            let order = sorted(&tokens, v);
            assert_eq!(order.words().len() as u64, workspace::token_words(tokens.len() as u64, v));
            let mut different = tokens.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!(order.n_many + order.n_few, different.len() as u64, "{tokens:?}");
        }
    }

    #[test]
    fn a_token_beyond_the_vocabulary_is_refused() {
        let error = TokenOrder::new(5).and_then(|mut order| order.sort(&[4, 5])).expect_err("there are 5");
        assert_eq!(error.to_string(), "encoder_backward: a token is 5, and has to be below V");
    }
}
