//! A tensor: a storage, a layout, a dtype, and its place in autograd's graph.

use super::{
    heap::{Label, Storage},
    layout::Layout,
};
use crate::dtype::Dtype;

/// Where a gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The gradient of the parameter with this number.
    Leaf(u32),
    /// An output of a node.
    Node(u32, u8),
}

/// A reference to a tensor. A clone shares the storage, as a second Python variable does.
#[derive(Clone, Debug)]
pub struct Tensor {
    storage: Storage,
    layout: Layout,
    dtype: Dtype,
    /// Whether the tensor is a view, which holds its base.
    is_view: bool,
    /// Node that computes the gradient of this tensor, if it requires one.
    pub(super) edge: Option<Edge>,
}

impl Tensor {
    pub(super) fn new(storage: Storage, layout: Layout, dtype: Dtype) -> Self {
        Self { storage, layout, dtype, is_view: false, edge: None }
    }

    /// Layout of the tensor.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Sizes, slowest axis first.
    #[must_use]
    pub fn sizes(&self) -> &[u64] {
        self.layout.sizes()
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether the tensor requires a gradient.
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        self.edge.is_some()
    }

    /// Whether both are the same parameter that requires gradients.
    #[must_use]
    pub fn is_parameter(&self, other: &Self) -> bool {
        self.edge.is_some() && self.edge == other.edge
    }

    /// Whether no other tensor shares the storage. A view shares it with its base.
    pub(super) fn is_unique(&self) -> bool {
        !self.is_view && self.storage.is_unique()
    }

    /// A view of all elements, which holds the tensor as its base.
    pub(super) fn into_view(self) -> Self {
        Self { is_view: true, ..self }
    }

    /// The label of the storage's allocation.
    pub(super) fn label(&self) -> Option<Label> {
        let mut found = None;
        self.storage.relabel(|label| found = Some(*label));
        found
    }

    /// Changes the label of the storage's allocation.
    pub(super) fn relabel(&self, change: impl FnOnce(&mut Label)) {
        self.storage.relabel(change);
    }

    /// The same storage with another layout, outside of autograd's graph.
    pub(super) fn with_layout(&self, layout: Layout) -> Self {
        Self { storage: self.storage.clone(), layout, dtype: self.dtype, is_view: true, edge: None }
    }

    /// A view with another size of an axis of size 1, counted from the last one.
    #[must_use]
    pub fn expanded(&self, axis: usize, size: u64) -> Self {
        self.with_layout(self.layout.expanded(axis, size))
    }

    /// The same tensor outside of autograd's graph.
    #[must_use]
    pub fn detached(&self) -> Self {
        self.with_layout(self.layout)
    }
}
