//! Scratch memory of reductions over the rows of a matrix.
//!
//! Source: `setReduceConfig` in aten/src/ATen/native/cuda/Reduce.cuh (2.11).

use crate::{
    memory::context::GpuProperties,
    torch::{Recorder, Tensor, Torch},
};

/// Maximum threads of a block.
const MAX_THREADS: u64 = 512;
const WARP: u64 = 32;
/// Values that a thread sums before the kernel splits rows over blocks.
const MAX_VALUES_PER_THREAD: u64 = 256;
const MIN_VALUES_PER_THREAD: u64 = 16;
/// Bytes of an element of the accumulator and of a semaphore.
const ELEMENT_BYTES: u64 = 4;

/// The largest power of 2 that is not above `n`, up to `max`.
fn power_of_two(n: u64, max: u64) -> u64 {
    let n = n.clamp(1, max);
    1 << n.ilog2()
}

/// Bytes of partial sums and of semaphores, if several blocks sum the rows of a column.
pub(crate) fn row_sum_bytes([rows, columns]: [u64; 2], gpu: GpuProperties) -> Option<[u64; 2]> {
    let vector = [4, 2].into_iter().find(|n| columns.is_multiple_of(*n)).unwrap_or(1);
    let max_threads = MAX_THREADS / vector;
    let [width, height] = [columns / vector, rows].map(|n| power_of_two(n, max_threads));
    let block_height = height.min(max_threads / width.min(WARP));
    let block_width = width.min(max_threads / block_height);
    if rows < (block_height * 16).min(MAX_VALUES_PER_THREAD) {
        return None;
    }
    let values = rows.div_ceil(block_height);
    let blocks_per_sm = u64::from(gpu.compute_capability.architecture().threads_per_sm) / (block_width * block_height);
    let target = u64::from(gpu.sm_count) * blocks_per_sm;
    let grid = (columns / vector).div_ceil(block_width);
    if values < MAX_VALUES_PER_THREAD || grid > target {
        return None;
    }
    let most = target.div_ceil(grid.max(1)).min(values.div_ceil(MIN_VALUES_PER_THREAD));
    let blocks = most.max(values.div_ceil(MAX_VALUES_PER_THREAD));
    let sums = columns.saturating_mul(blocks * block_width * vector * ELEMENT_BYTES);
    (blocks > 1).then_some([sums, grid * ELEMENT_BYTES])
}

impl Torch {
    /// The scratch memory of a sum over rows, to be held after the allocation of the result.
    pub fn column_reduction(&self, sizes: [u64; 2]) -> Vec<Tensor> {
        let bytes = row_sum_bytes(sizes, self.gpu).filter(|_| self.recorder == Recorder::Gpu);
        let scratch = |bytes| self.scratch("partial sums", &[bytes], crate::dtype::Dtype::Uint8);
        bytes.into_iter().flatten().map(scratch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::ComputeCapability;

    #[test]
    fn several_blocks_sum_a_long_column() {
        let gpu = GpuProperties { compute_capability: ComputeCapability::new(9, 0), sm_count: 132 };
        // 423 blocks of 32 x 4 threads for each column, each with 4 sums.
        assert_eq!(row_sum_bytes([49_152, 576], gpu), Some([576 * 423 * 128 * 4, 20]));
        assert_eq!(row_sum_bytes([576, 49_152], gpu), None, "one block for each column fills the GPU");
        assert_eq!(row_sum_bytes([1, 1], gpu), None);
    }
}
