//! Sizes and strides of a tensor, with PyTorch's rules of when an operation is a view and when it copies.

/// Maximum number of axes.
pub const MAX_RANK: usize = 5;

/// Sizes and strides, slowest axis first, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    sizes: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
    rank: usize,
}

impl Layout {
    /// A contiguous tensor with these sizes. More than [`MAX_RANK`] axes are joined into the last one.
    #[must_use]
    pub fn contiguous(sizes: &[u64]) -> Self {
        let rank = sizes.len().min(MAX_RANK);
        let mut layout = Self { sizes: [1; MAX_RANK], strides: [1; MAX_RANK], rank };
        for (at, &size) in sizes.iter().enumerate() {
            let axis = &mut layout.sizes[at.min(MAX_RANK - 1)];
            *axis = axis.saturating_mul(size);
        }
        layout.restride(&[0, 1, 2, 3, 4][..rank]);
        layout
    }

    /// Sets the strides of a dense tensor whose axes are in this order in memory, slowest first.
    fn restride(&mut self, order: &[usize]) {
        let mut stride = 1_u64;
        for &axis in order.iter().rev() {
            self.strides[axis] = stride;
            stride = stride.saturating_mul(self.sizes[axis].max(1));
        }
    }

    /// Sizes, slowest axis first.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        &self.sizes[..self.rank]
    }

    fn strides(&self) -> &[u64] {
        &self.strides[..self.rank]
    }

    /// Size of an axis, counted from the last one.
    #[must_use]
    pub fn from_last(&self, n: usize) -> u64 {
        self.sizes().iter().rev().nth(n).copied().unwrap_or(1)
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.sizes().iter().fold(1, |n, &size| n.saturating_mul(size))
    }

    /// Whether the elements follow each other in memory. Axes of size 1 do not count.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let contiguous = Self::contiguous(self.sizes());
        self.elements() == 0
            || (0..self.rank).all(|at| self.sizes[at] == 1 || self.strides[at] == contiguous.strides[at])
    }

    /// The layout with two axes exchanged, counted from the last one.
    #[must_use]
    pub fn transposed(mut self, [a, b]: [usize; 2]) -> Self {
        let [a, b] = [a, b].map(|n| self.rank.saturating_sub(n + 1));
        self.sizes.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    /// The layout with another size of the last axis, as a slice or one part of a split.
    #[must_use]
    pub fn narrowed(self, size: u64) -> Self {
        self.sliced(0, size)
    }

    /// The layout with another size of an axis, counted from the last one.
    #[must_use]
    pub fn sliced(mut self, axis: usize, size: u64) -> Self {
        if let Some(axis) = self.rank.checked_sub(axis + 1) {
            self.sizes[axis] = size;
        }
        self
    }

    /// The layout with another size of an axis of size 1, whose elements are repeated: `expand`.
    #[must_use]
    pub fn expanded(mut self, axis: usize, size: u64) -> Self {
        if let Some(axis) = self.rank.checked_sub(axis + 1) {
            self.sizes[axis] = size;
            self.strides[axis] = 0;
        }
        self
    }

    /// The layout of a scalar, which an index of every axis selects.
    #[must_use]
    pub fn scalar() -> Self {
        Self::contiguous(&[])
    }

    /// Layout of a dense tensor with the same order of axes in memory, as `empty_like` allocates it.
    #[must_use]
    pub fn dense(&self) -> Self {
        let mut order = [0, 1, 2, 3, 4];
        let order = &mut order[..self.rank];
        order.sort_by_key(|&axis| std::cmp::Reverse(self.strides[axis]));
        let mut dense = *self;
        dense.restride(order);
        dense
    }

    /// The same elements with other sizes, if no copy is necessary.
    ///
    /// Source: `computeStride_impl` in aten/src/ATen/TensorUtils.cpp (2.11).
    #[must_use]
    pub fn viewed(&self, sizes: &[u64]) -> Option<Self> {
        let mut view = Self::contiguous(sizes);
        if self.elements() == 0 || self.rank == 0 {
            return Some(view);
        }
        let mut next = view.rank;
        let mut chunk_stride = self.strides[self.rank - 1];
        let (mut tensor_elements, mut view_elements) = (1_u64, 1_u64);
        for axis in (0..self.rank).rev() {
            tensor_elements = tensor_elements.saturating_mul(self.sizes[axis]);
            let ends_chunk = axis == 0
                || self.sizes[axis - 1] != 1
                    && self.strides()[axis - 1] != tensor_elements.saturating_mul(chunk_stride);
            if !ends_chunk {
                continue;
            }
            while next > 0 && (view_elements < tensor_elements || view.sizes[next - 1] == 1) {
                next -= 1;
                view.strides[next] = view_elements.saturating_mul(chunk_stride);
                view_elements = view_elements.saturating_mul(view.sizes[next]);
            }
            if view_elements != tensor_elements {
                return None;
            }
            if axis > 0 {
                chunk_stride = self.strides[axis - 1];
                (tensor_elements, view_elements) = (1, 1);
            }
        }
        (next == 0).then_some(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_a_view_of_channels_and_need_a_copy_to_be_joined_again() {
        let channels = Layout::contiguous(&[2, 8, 12]);
        let heads = channels.viewed(&[2, 8, 3, 4]).expect("the channels are contiguous").transposed([1, 2]);
        assert_eq!(heads.sizes(), [2, 3, 8, 4]);
        assert!(!heads.is_contiguous());
        assert_eq!(heads.viewed(&[6, 8, 4]), None, "batch and heads are not adjacent");
        assert!(heads.transposed([1, 2]).is_contiguous());
        let one_head = channels.viewed(&[2, 8, 1, 12]).expect("a view").transposed([1, 2]);
        assert!(one_head.viewed(&[2, 8, 12]).is_some(), "an axis of size 1 is a part of any other");
    }

    #[test]
    fn a_part_of_a_split_is_a_view_by_heads() {
        let q = Layout::contiguous(&[2, 8, 36]).narrowed(12);
        assert!(!q.is_contiguous());
        assert!(q.viewed(&[2, 8, 3, 4]).is_some());
        assert_eq!(q.viewed(&[2, 96]), None);
    }

    #[test]
    fn a_dense_copy_keeps_the_order_of_axes() {
        let transposed = Layout::contiguous(&[2, 3, 4]).narrowed(2).transposed([0, 1]);
        let dense = transposed.dense();
        assert_eq!(dense.sizes(), [2, 2, 3]);
        assert!(dense.transposed([0, 1]).is_contiguous());
    }
}
