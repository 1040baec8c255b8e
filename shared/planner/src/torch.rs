//! PyTorch's eager engine on tensors without data: the allocations and frees of a model's forward and backward.
//!
//! A model is a Rust function that reads like its Python source. A tensor is freed when its last reference is gone:
//! variables, autograd's saved tensors, autocast's cache, and gradients. Nothing else frees. Each operation states what
//! ATen allocates in forward and backward, and what autograd saves.
//!
//! Source: PyTorch 2.11.

mod autograd;
mod checkpoint;
mod heap;
mod layout;
mod ops;
pub mod optim;
mod tensor;

use std::{cell::RefCell, rc::Rc};

pub use checkpoint::Function;
pub use heap::Event;
pub use layout::Layout;
pub use ops::CrossEntropyInput;
pub use tensor::Tensor;

use autograd::Tape;
use heap::{Heap, Storage};
use tensor::Edge;

use crate::{dtype::Dtype, memory::context::GpuProperties};

/// What recorded the events that the engine reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// A GPU.
    Gpu,
    /// PyTorch on fake tensors, without a GPU. It adds gradients out of place, and does not show a kernel's scratch
    /// memory.
    FakeTensors,
}

/// A PyTorch process.
#[derive(Debug)]
pub struct Torch {
    heap: Rc<Heap>,
    gpu: GpuProperties,
    recorder: Recorder,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    tape: Tape,
    records_graph: bool,
    autocast: Option<Autocast>,
    /// Gradient of each parameter.
    gradients: Vec<Option<Tensor>>,
    /// cuBLAS workspaces of the main thread and of the autograd thread.
    workspaces: [Option<Storage>; 2],
    in_backward: bool,
    checkpoint: Option<checkpoint::Pass>,
}

/// The autocast context: its dtype, and the copies of parameters by their number.
#[derive(Clone, Debug)]
struct Autocast {
    dtype: Dtype,
    cache: Vec<(u32, Tensor)>,
}

impl Torch {
    /// A process without tensors.
    #[must_use]
    pub fn new(gpu: GpuProperties, recorder: Recorder) -> Self {
        let state = State {
            tape: Tape::default(),
            records_graph: true,
            autocast: None,
            gradients: Vec::new(),
            workspaces: [None, None],
            in_backward: false,
            checkpoint: None,
        };
        Self { heap: Rc::default(), gpu, recorder, state: RefCell::new(state) }
    }

    /// Takes the events since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.heap.take_events()
    }

    /// Allocates a contiguous tensor.
    #[must_use]
    pub fn empty(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        self.empty_with(name, Layout::contiguous(sizes), dtype)
    }

    /// Allocates a dense tensor with this layout.
    fn empty_with(&self, name: &'static str, layout: Layout, dtype: Dtype) -> Tensor {
        let bytes = layout.elements().saturating_mul(dtype.bytes());
        Tensor::new(self.heap.alloc(bytes, name), layout, dtype)
    }

    /// Allocates a parameter that requires gradients.
    #[must_use]
    pub fn parameter(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        let mut tensor = self.empty(name, sizes, dtype);
        let gradients = &mut self.state.borrow_mut().gradients;
        tensor.edge = Some(Edge::Leaf(u32::try_from(gradients.len()).unwrap_or(u32::MAX)));
        gradients.push(None);
        tensor
    }

    /// A copy of a parameter in another dtype, with which `module.to(dtype)` replaces the parameter.
    #[must_use]
    pub fn parameter_like(&self, name: &'static str, parameter: &Tensor, dtype: Dtype) -> Tensor {
        let mut tensor = self.empty(name, parameter.sizes(), dtype);
        tensor.edge = parameter.edge;
        tensor
    }

    /// Runs a function under `torch.no_grad()`.
    pub fn no_grad<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.state.borrow_mut().records_graph, false);
        let result = run();
        self.state.borrow_mut().records_graph = before;
        result
    }

    /// Runs a function under `torch.autocast` with half precision; in float32, without autocast.
    pub fn autocast<R>(&self, dtype: Dtype, run: impl FnOnce() -> R) -> R {
        let context = (dtype != Dtype::Float32).then(|| Autocast { dtype, cache: Vec::new() });
        let before = std::mem::replace(&mut self.state.borrow_mut().autocast, context);
        let result = run();
        let ended = std::mem::replace(&mut self.state.borrow_mut().autocast, before);
        drop(ended);
        result
    }

    /// The dtype of autocast, if it is enabled.
    fn autocast_dtype(&self) -> Option<Dtype> {
        self.state.borrow().autocast.as_ref().map(|autocast| autocast.dtype)
    }

    /// `zero_grad(set_to_none=True)` for parameters in order.
    pub fn zero_grad<'a>(&self, parameters: impl IntoIterator<Item = &'a Tensor>) {
        for parameter in parameters {
            let Some(Edge::Leaf(leaf)) = parameter.edge else { continue };
            let gradient = self.state.borrow_mut().gradients.get_mut(leaf as usize).and_then(Option::take);
            drop(gradient);
        }
    }

    /// Allocates the cuBLAS workspace of the current thread at its first product.
    fn cublas_workspace(&self) {
        let at = usize::from(self.state.borrow().in_backward);
        if self.state.borrow().workspaces[at].is_none() {
            let bytes = self.gpu.compute_capability.architecture().cublas_workspace_bytes;
            let workspace = self.heap.alloc(bytes, "cuBLAS workspace");
            self.state.borrow_mut().workspaces[at] = Some(workspace);
        }
    }
}
