//! Memory that a kernel allocates itself: PyTorch's dispatcher does not show it, and parts of it depend on the GPU.

use crate::{
    dtype::Dtype,
    gpt::tensors::{MAX_TENSOR_BYTES, flash_splits},
    memory::{context::GpuProperties, efficient_backward::EfficientBackward},
    torch::{embedding_backward_numbers, row_sum_bytes},
};

/// Scratch memory of an operation, as a file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scratch {
    /// A buffer with these bytes on every GPU.
    Bytes(u64),
    /// The workspace of a thread's cuBLAS handle, which lives until the end of the run.
    Cublas,
    /// Flash attention's forward without dropout: heads of all sequences, tokens, head size.
    FlashForward([u64; 3]),
    /// Memory-efficient attention's backward: heads of all sequences, tokens, head size, 1 in half precision, 1 if a sequence
    /// has one head.
    EfficientBackward([u64; 5]),
    /// The sum of the rows of a matrix: rows, columns.
    RowSums([u64; 2]),
    /// The gradient of an embedding: indices, rows of the table, channels.
    EmbeddingBackward([u64; 3]),
}

/// A step of a kernel with its scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Allocates bytes until the end of the operation.
    Alloc(u64),
    /// Allocates bytes until the end of the run.
    Keep(u64),
    /// Frees the allocation with this number, from 0 in each operation's scratch memory.
    Free(usize),
}

impl Scratch {
    /// Number of the arguments of a kind in a file; `None` for an unknown kind.
    pub(super) const fn n_arguments(kind: u64) -> Option<usize> {
        Some(match kind {
            0 => 1,
            1 => 0,
            2 => 3,
            3 => 5,
            4 => 2,
            5 => 3,
            _ => return None,
        })
    }

    /// The scratch memory of a kind with its arguments; `None` if they are not in range.
    pub(super) fn new(kind: u64, arguments: [u64; 5]) -> Option<Self> {
        let [a, b, c, d, e] = arguments;
        // Products of all arguments stay below the largest tensor, so no later arithmetic overflows. Rows and indices of an
        // embedding are in no product.
        let factors = if kind == 5 { [a.max(b), c, 1, 1, 1] } else { arguments };
        let product = factors.iter().try_fold(1_u64, |product, n| product.checked_mul((*n).max(1)))?;
        if product > MAX_TENSOR_BYTES {
            return None;
        }
        Some(match kind {
            0 => Self::Bytes(a),
            1 => Self::Cublas,
            2 => Self::FlashForward([a, b, c]),
            3 if d <= 1 && e <= 1 => Self::EfficientBackward([a, b, c, d, e]),
            4 => Self::RowSums([a, b]),
            5 => Self::EmbeddingBackward([a, b, c]),
            _ => return None,
        })
    }

    /// Number of the kind in a file.
    pub(super) const fn kind(self) -> u64 {
        match self {
            Self::Bytes(_) => 0,
            Self::Cublas => 1,
            Self::FlashForward(_) => 2,
            Self::EfficientBackward(_) => 3,
            Self::RowSums(_) => 4,
            Self::EmbeddingBackward(_) => 5,
        }
    }

    /// Arguments in a file.
    pub(super) const fn arguments(&self) -> &[u64] {
        match self {
            Self::Bytes(bytes) => std::slice::from_ref(bytes),
            Self::Cublas => &[],
            Self::FlashForward(arguments) | Self::EmbeddingBackward(arguments) => arguments,
            Self::EfficientBackward(arguments) => arguments,
            Self::RowSums(arguments) => arguments,
        }
    }

    /// Name of the buffers for the user.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bytes(_) => "scratch memory",
            Self::Cublas => "cuBLAS workspace",
            Self::FlashForward(_) => "flash attention by split",
            Self::EfficientBackward(_) => "scratch memory of memory-efficient attention",
            Self::RowSums(_) => "partial sums",
            Self::EmbeddingBackward(_) => "scratch memory of an embedding's gradient",
        }
    }

    /// What the kernel allocates on a GPU, in order.
    pub(super) fn steps(self, gpu: GpuProperties) -> Vec<Step> {
        let architecture = gpu.compute_capability.architecture();
        match self {
            Self::Bytes(bytes) => vec![Step::Alloc(bytes)],
            Self::Cublas => vec![Step::Keep(architecture.cublas_workspace_bytes)],
            Self::RowSums([rows, columns]) => {
                let bytes = row_sum_bytes([rows.max(1), columns.max(1)], gpu);
                bytes.into_iter().flatten().map(Step::Alloc).collect()
            }
            Self::EmbeddingBackward([n, rows, channels]) => {
                let Some(numbers) = embedding_backward_numbers(n, rows) else { return Vec::new() };
                let integers = numbers.map(|n| Step::Alloc(n.saturating_mul(Dtype::Int64.bytes())));
                let [.., sums] = numbers;
                let sums = Step::Alloc(sums.saturating_mul(channels).saturating_mul(FLOAT));
                integers.into_iter().chain([sums]).collect()
            }
            Self::FlashForward([heads, tokens, head_size]) => {
                let splits = flash_splits(heads, tokens, head_size, u64::from(gpu.sm_count));
                if splits <= 1 {
                    return Vec::new();
                }
                let multiple = if head_size <= 128 { 32 } else { 64 };
                let rows = splits.saturating_mul(heads).saturating_mul(tokens);
                let of = |columns: u64| Step::Alloc(rows.saturating_mul(columns).saturating_mul(FLOAT));
                vec![of(1), of(head_size.next_multiple_of(multiple))]
            }
            Self::EfficientBackward([heads, tokens, head_size, is_half, one_head]) => {
                let kernel = EfficientBackward::new(head_size, is_half == 1, architecture);
                let workspace = kernel.workspace_bytes(heads, tokens, head_size);
                let rows = heads.saturating_mul(tokens).saturating_mul(FLOAT);
                let products = rows.saturating_mul(head_size);
                let mut steps = Vec::new();
                if kernel.computes_delta() {
                    steps.push(Step::Alloc(rows));
                } else {
                    // The order of `EfficientBackward::write_scratch`: casts, products, row sums, and their copy.
                    let n_casts = if is_half == 1 { 2 } else { 0 };
                    steps.extend(vec![Step::Alloc(products); n_casts + 1]);
                    steps.push(Step::Alloc(rows));
                    if one_head == 0 {
                        steps.extend([Step::Alloc(rows), Step::Free(n_casts + 1)]);
                    }
                    steps.push(Step::Free(n_casts));
                    steps.extend((0..n_casts).map(Step::Free));
                }
                steps.extend((workspace > 0).then_some(Step::Alloc(workspace)));
                steps
            }
        }
    }
}

const FLOAT: u64 = Dtype::Float32.bytes();
