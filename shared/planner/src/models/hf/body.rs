//! What the models of all families have: the body below the head, its inputs, and checkpointed layers.

use std::{cell::RefCell, fmt::Debug, rc::Rc};

use super::{
    modules::{Linear, Lora},
    quantized::Checkpoint,
};
use crate::{
    dtype::Dtype,
    torch::{Function, Tensor, Torch},
};

/// How the layers are checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointing {
    /// `use_reentrant=False`.
    NonReentrant,
    /// `use_reentrant=True`.
    Reentrant,
}

/// A model without its head.
pub trait Body: Debug {
    /// The last hidden states.
    fn forward(&self, torch: &Torch, inputs: Inputs<'_>, settings: &Settings) -> Tensor;

    /// Freezes the model and adds adapters.
    fn adapt(&mut self, torch: &Torch, lora: &Lora);

    /// Copies the embeddings of tokens, which are trained from then on.
    fn save_embeddings(&mut self, torch: &Torch);

    /// Loads the parameters in the natural order of their names, then the buffers. The linear layers are quantized.
    fn load(&mut self, checkpoint: &Checkpoint<'_>);

    /// The linear layers.
    fn linears(&mut self) -> Vec<&mut Linear>;

    /// The parameters that are not quantized, in the order of `named_parameters()`.
    fn full_parameters(&mut self) -> Vec<&mut Tensor>;

    /// The weight of the token embeddings.
    fn embeddings(&self) -> &Tensor;

    /// The weights of all embeddings, in the order of `named_parameters()`.
    fn all_embeddings(&self) -> Vec<&Tensor>;

    /// Parameters, in the order of `named_parameters()`.
    fn parameters(&self) -> Vec<&Tensor>;
}

/// Arguments of a model's forward.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub ids: &'a Tensor,
    /// A mask of ones.
    pub mask: Option<&'a Tensor>,
}

impl Inputs<'_> {
    /// Length of a sequence, and sequences of a batch.
    pub fn sizes(&self) -> [u64; 2] {
        [0, 1].map(|n| self.ids.layout().from_last(n))
    }

    /// `position_ids`.
    pub fn positions(&self, torch: &Torch) -> Tensor {
        let sizes = [self.sizes()[0]];
        let _range = torch.empty("positions", &sizes, Dtype::Int64);
        torch.empty("positions", &sizes, Dtype::Int64)
    }
}

/// Settings of a model that the trainer changes.
#[derive(Debug, Default)]
pub struct Settings {
    /// `gradient_checkpointing_enable`.
    pub checkpointing: Option<Checkpointing>,
    /// `enable_input_require_grads`.
    pub inputs_require_grads: bool,
    /// The embeddings, which the graph holds, and the number of their gradient.
    input_leaf: RefCell<Option<(Tensor, usize)>>,
}

impl Settings {
    /// The hook of `enable_input_require_grads` on the embeddings of the tokens.
    pub fn hook(&self, torch: &Torch, mut inputs_embeds: Tensor) -> Tensor {
        if self.inputs_require_grads && torch.is_training() && !inputs_embeds.requires_grad() {
            let leaf = torch.require_grad(&mut inputs_embeds);
            *self.input_leaf.borrow_mut() = Some((inputs_embeds.clone(), leaf));
        }
        inputs_embeds
    }

    /// Frees the gradient of the embeddings, which ends with the graph.
    pub fn free_input_gradient(&self, torch: &Torch) {
        if let Some((_embeddings, leaf)) = self.input_leaf.take() {
            drop(torch.remove_leaf(leaf));
        }
    }

    /// `GradientCheckpointingLayer.__call__`. A checkpoint holds the function with all its arguments.
    pub fn call(&self, torch: &Torch, function: &Rc<Function>, hidden_states: Tensor) -> Tensor {
        match self.checkpointing.filter(|_| torch.is_training()) {
            None => function(torch, hidden_states),
            Some(Checkpointing::NonReentrant) => torch.checkpoint(function, hidden_states),
            Some(Checkpointing::Reentrant) => torch.checkpoint_reentrant(function, &hidden_states),
        }
    }
}
