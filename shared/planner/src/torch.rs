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
mod scope;
mod script;
mod tensor;

use std::{cell::RefCell, rc::Rc};

pub use checkpoint::Function;
pub use heap::{Event, Label, Name};
pub use layout::Layout;
pub use ops::{CrossEntropyInput, FourBit, Weight4Bit, Weight8Bit};
pub(crate) use ops::{embedding_backward_numbers, row_sum_bytes};
pub use scope::{Scope, ScopeGuard};
pub use script::{Recording, Script};
pub use tensor::Tensor;

use autograd::Tape;
use heap::Heap;
use scope::Modules;
use tensor::Edge;

use crate::{
    dtype::Dtype,
    gpt::tensors::{CUBLASLT_WORKSPACE_BYTES, Category, Lifetime},
    memory::context::GpuProperties,
};

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
    modules: Modules,
    state: RefCell<State>,
}

/// A parameter, with its gradient.
#[derive(Debug)]
struct Leaf {
    name: &'static str,
    scope: Scope,
    gradient: Option<Tensor>,
}

#[derive(Debug)]
struct State {
    tape: Tape,
    records_graph: bool,
    is_training: bool,
    autocast: Option<Autocast>,
    leaves: Vec<Leaf>,
    /// cuBLAS workspaces of the main thread and of the autograd thread.
    workspaces: [Option<Tensor>; 2],
    /// cuBLASLt workspaces of the same threads.
    lt_workspaces: [Option<Tensor>; 2],
    in_backward: bool,
    checkpoint: Option<checkpoint::Pass>,
    /// Tensors that executed nodes of the graph hold, until the graph ends.
    held_by_graph: Vec<ops::Held>,
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
            is_training: true,
            autocast: None,
            leaves: Vec::new(),
            workspaces: [None, None],
            lt_workspaces: [None, None],
            in_backward: false,
            checkpoint: None,
            held_by_graph: Vec::new(),
        };
        Self { heap: Rc::default(), gpu, recorder, modules: Modules::default(), state: RefCell::new(state) }
    }

    /// Takes all events. Labels of tensors cannot change afterwards.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        let events = self.heap.take_events();
        events.expanded(0..events.events.len())
    }

    /// Number of events so far.
    #[must_use]
    pub fn n_events(&self) -> usize {
        self.heap.n_events()
    }

    /// Enters a module, until the guard is dropped.
    pub fn enter(&self, module: &'static str) -> ScopeGuard<'_> {
        self.modules.enter(module, None)
    }

    /// Enters the module of a block, such as `h.3`.
    pub fn enter_block(&self, list: &'static str, block: u64) -> ScopeGuard<'_> {
        self.modules.enter(list, Some(block))
    }

    /// Assigns a category to the tensors of operations, until the guard is dropped.
    pub fn enter_category(&self, category: Category) -> ScopeGuard<'_> {
        self.modules.enter_scope(Scope { category, ..self.modules.current() })
    }

    /// Allocates a contiguous tensor: an operation's output or scratch memory.
    #[must_use]
    pub fn empty(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        self.empty_with(name, Layout::contiguous(sizes), dtype)
    }

    /// Allocates a dense tensor with this layout.
    fn empty_with(&self, name: &'static str, layout: Layout, dtype: Dtype) -> Tensor {
        let scope = self.modules.current();
        let lifetime = Lifetime::Intermediate;
        self.allocate(Label { name: Name::Operation(name), scope, category: scope.category, lifetime, layout, dtype })
    }

    fn allocate(&self, label: Label) -> Tensor {
        Tensor::new(self.heap.alloc(label), label.layout, label.dtype)
    }

    /// Allocates a tensor that has this name in its module for as long as the script keeps it.
    fn named(&self, name: Name, sizes: &[u64], dtype: Dtype, (category, lifetime): (Category, Lifetime)) -> Tensor {
        let (scope, layout) = (self.modules.current(), Layout::contiguous(sizes));
        self.allocate(Label { name, scope, category, lifetime, layout, dtype })
    }

    /// Allocates scratch memory of a kernel.
    fn scratch(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        self.named(Name::Operation(name), sizes, dtype, (Category::Workspace, Lifetime::Scratch))
    }

    /// Allocates a buffer of the model.
    #[must_use]
    pub fn buffer(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        self.named(Name::Parameter(name), sizes, dtype, (Category::Parameters, Lifetime::Run))
    }

    /// Allocates a tensor of the batch.
    #[must_use]
    pub fn input(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        self.named(Name::Operation(name), sizes, dtype, (Category::Input, Lifetime::Batch))
    }

    /// Allocates a state of the optimizer for a parameter or for several ones.
    #[must_use]
    pub fn optimizer_state(&self, name: &'static str, sizes: &[u64], dtype: Dtype, of: Option<&Tensor>) -> Tensor {
        let state = &self.state.borrow();
        let leaf = match of.and_then(|parameter| parameter.edge) {
            Some(Edge::Leaf(leaf)) => state.leaves.get(leaf as usize),
            _ => None,
        };
        let lifetime = Lifetime::FromFirstStep;
        let (name, scope) = match leaf {
            Some(leaf) => (Name::Of(name, leaf.name), leaf.scope),
            None => (Name::Operation(name), self.modules.current()),
        };
        let (category, layout) = (Category::OptimizerState, Layout::contiguous(sizes));
        self.allocate(Label { name, scope, category, lifetime, layout, dtype })
    }

    /// Allocates a parameter that requires gradients.
    #[must_use]
    pub fn parameter(&self, name: &'static str, sizes: &[u64], dtype: Dtype) -> Tensor {
        let mut tensor = self.buffer(name, sizes, dtype);
        tensor.edge = Some(Edge::Leaf(self.add_leaf(name)));
        tensor
    }

    /// Adds a leaf of the graph in the current module. Returns its number.
    fn add_leaf(&self, name: &'static str) -> u32 {
        let leaves = &mut self.state.borrow_mut().leaves;
        leaves.push(Leaf { name, scope: self.modules.current(), gradient: None });
        u32::try_from(leaves.len() - 1).unwrap_or(u32::MAX)
    }

    /// A copy of a parameter in another dtype, with which `module.to(dtype)` replaces the parameter.
    #[must_use]
    pub fn parameter_like(&self, name: &'static str, parameter: &Tensor, dtype: Dtype) -> Tensor {
        let mut tensor = self.buffer(name, parameter.sizes(), dtype);
        tensor.edge = parameter.edge;
        tensor
    }

    /// `parameter.data = parameter.data.to(dtype)`. The tensor keeps its name.
    pub fn cast_parameter(&self, parameter: &mut Tensor, dtype: Dtype) {
        if parameter.dtype() == dtype {
            return;
        }
        let Some(label) = parameter.label() else { return };
        let mut copy = self.allocate(Label { dtype, ..label });
        copy.edge = parameter.edge;
        *parameter = copy;
    }

    /// Runs a function with `torch.device("meta")`: its tensors have no memory.
    pub fn on_meta<R>(&self, run: impl FnOnce() -> R) -> R {
        self.heap.pause(true);
        let result = run();
        self.heap.pause(false);
        result
    }

    /// Runs a function under `torch.no_grad()`.
    pub fn no_grad<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.state.borrow_mut().records_graph, false);
        let result = run();
        self.state.borrow_mut().records_graph = before;
        result
    }

    /// Runs a function under `torch.no_grad()`, after `model.eval()`.
    pub fn evaluation<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.state.borrow_mut().is_training, false);
        let result = self.no_grad(run);
        self.state.borrow_mut().is_training = before;
        result
    }

    /// Whether modules are in training mode.
    #[must_use]
    pub fn is_training(&self) -> bool {
        self.state.borrow().is_training
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

    /// `torch.is_autocast_enabled()`.
    #[must_use]
    pub fn is_autocast_enabled(&self) -> bool {
        self.autocast_dtype().is_some()
    }

    /// Ends the graph of the last backward, as the end of the loss does.
    pub fn end_graph(&self) {
        let held = std::mem::take(&mut self.state.borrow_mut().held_by_graph);
        drop(held);
    }

    /// The dtype of autocast, if it is enabled.
    fn autocast_dtype(&self) -> Option<Dtype> {
        self.state.borrow().autocast.as_ref().map(|autocast| autocast.dtype)
    }

    /// `zero_grad(set_to_none=True)` for parameters in order.
    pub fn zero_grad<'a>(&self, parameters: impl IntoIterator<Item = &'a Tensor>) {
        for parameter in parameters {
            let Some(Edge::Leaf(leaf)) = parameter.edge else { continue };
            let gradient = self.state.borrow_mut().leaves.get_mut(leaf as usize).and_then(|leaf| leaf.gradient.take());
            drop(gradient);
        }
    }

    /// Allocates the cuBLASLt workspace of the current thread at its first product with a bias.
    fn cublaslt_workspace(&self) {
        let at = usize::from(self.state.borrow().in_backward);
        if self.recorder == Recorder::Gpu && self.state.borrow().lt_workspaces[at].is_none() {
            let workspace = self.workspace("cuBLASLt workspace", CUBLASLT_WORKSPACE_BYTES);
            self.state.borrow_mut().lt_workspaces[at] = Some(workspace);
        }
    }

    /// Allocates a workspace of a thread, which belongs to no module.
    fn workspace(&self, name: &'static str, bytes: u64) -> Tensor {
        let _scope = self.modules.enter_scope(Scope::ROOT);
        self.named(Name::Operation(name), &[bytes], Dtype::Uint8, (Category::Workspace, Lifetime::Run))
    }

    /// Allocates the cuBLAS workspace of the current thread at its first product.
    pub fn cublas_workspace(&self) {
        let at = usize::from(self.state.borrow().in_backward);
        if self.state.borrow().workspaces[at].is_none() {
            let bytes = self.gpu.compute_capability.architecture().cublas_workspace_bytes;
            let workspace = self.workspace("cuBLAS workspace", bytes);
            self.state.borrow_mut().workspaces[at] = Some(workspace);
        }
    }
}
