//! The CPU trainer: the model, its gradients and its optimizer state.

use headroom_planner::gpt::{
    GptConfig,
    buffers::{Buffers, cpu_training},
    tensors::{Role, Tensor, TensorTooLarge},
};
use thiserror::Error;

use super::{
    adamw,
    arena::{Arena, Floats},
    buffers::PassBuffers,
    initial::initialize,
    model::Model,
    thread_pool::{ThreadPool, Workers},
};
use crate::{
    layout::{Layout, TooLarge},
    reference::{
        adamw_update::AdamW,
        gpt::{DropoutPass, Micro, Sizes},
    },
};

/// An error while creating a trainer.
#[derive(Debug, Error)]
pub enum TrainerError {
    /// The model exceeds the address space.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A tensor of the model is too large.
    #[error(transparent)]
    Tensor(#[from] TensorTooLarge),
    /// The threads cannot be started.
    #[error("the threads that compute cannot be started: {0}")]
    Threads(#[from] std::io::Error),
}

/// A GPT trained on CPU threads.
#[derive(Debug)]
pub struct Trainer {
    layout: Layout,
    sizes: Sizes,
    thread_pool: ThreadPool,
    planned: Buffers,
    allocated_bytes: u64,
    params: Floats,
    grads: Floats,
    m: Floats,
    v: Floats,
    inputs: Vec<u32>,
    targets: Vec<u32>,
    buffers: PassBuffers,
    scratch: Floats,
}

impl Trainer {
    /// Allocates all memory of a run, for micro-batches of `batch_size` sequences of `block_size` tokens.
    ///
    /// # Errors
    /// The model exceeds the address space, or the threads cannot be started.
    pub fn new(config: &GptConfig, batch_size: u64, threads: usize) -> Result<Self, TrainerError> {
        let layout = Layout::new(config)?;
        let sizes = Sizes::new(config, usize::try_from(config.block_size()).map_err(|_| TooLarge)?)?;
        let thread_pool = ThreadPool::new(threads)?;
        let planned = cpu_training(config, batch_size, thread_pool.threads() as u64)?;
        if planned.bytes() > isize::MAX.unsigned_abs() as u64 {
            return Err(TooLarge.into());
        }
        let mut arena = Arena::new(&planned);
        let n = layout.entries().len();
        let [params, grads] = [Role::Value, Role::Value].map(|role| arena.flat(n, role));
        let [m, v] = [Role::ExpAvg, Role::ExpAvgSq].map(|role| arena.flat(n, role));
        let [inputs, targets] = [Tensor::Tokens; 2].map(|tensor| arena.tokens(tensor));
        let buffers = PassBuffers::new(&mut arena, sizes.l, config.dropout() > 0.0);
        let scratch = arena.floats(Tensor::AttScratch);
        let allocated_bytes = arena.finish();
        Ok(Self {
            layout,
            sizes,
            thread_pool,
            allocated_bytes,
            planned,
            params,
            grads,
            m,
            v,
            inputs,
            targets,
            buffers,
            scratch,
        })
    }

    #[must_use]
    pub fn planned(&self) -> &Buffers {
        &self.planned
    }

    /// The bytes that were allocated.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// The offsets of the parameters in the flat buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[must_use]
    pub fn thread_pool(&self) -> &ThreadPool {
        &self.thread_pool
    }

    /// The parameters, in the layout's order.
    #[must_use]
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// The gradients of the last iteration.
    #[must_use]
    pub fn grads(&self) -> &[f32] {
        &self.grads
    }

    /// AdamW's first and second moments.
    #[must_use]
    pub fn moments(&self) -> (&[f32], &[f32]) {
        (&self.m, &self.v)
    }

    /// Parameters and both moments, mutably, for loading a checkpoint.
    pub fn state_mut(&mut self) -> (&mut [f32], &mut [f32], &mut [f32]) {
        (&mut self.params, &mut self.m, &mut self.v)
    }

    /// Initialises the parameters as of a new model.
    pub fn initialize(&mut self, seed: u64) {
        let (params, layout, l) = (&mut self.params, &self.layout, self.sizes.l);
        initialize(&self.thread_pool, params, layout, l, seed);
    }

    /// The inputs and targets of the next batch, (B, T) each, for the caller to fill.
    pub fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.inputs, &mut self.targets)
    }

    /// The mean loss of the batch, without dropout.
    ///
    /// # Panics
    /// If a token of the batch is not in the vocabulary.
    pub fn loss(&mut self) -> f64 {
        self.run(None)
    }

    /// Runs forward and backward of the batch, adds to the gradients, and returns the mean loss.
    ///
    /// # Panics
    /// If a token of the batch is not in the vocabulary.
    pub fn micro_step(&mut self, micro: Micro) -> f64 {
        self.run(Some(micro))
    }

    fn run(&mut self, micro: Option<Micro>) -> f64 {
        let (inp, targets, v) = (&self.inputs, &self.targets, self.sizes.v);
        assert!(inp.iter().chain(targets).all(|&token| (token as usize) < v), "a token is a row of the embedding");
        let crew = Workers::new(&self.thread_pool, &mut self.scratch);
        let model = Model { layout: &self.layout, sizes: self.sizes, params: &self.params, crew };
        let (grads, buffers) = (&mut self.grads, &mut self.buffers);
        if let Some(micro) = micro {
            if micro.first {
                model.clear_vectors(grads);
            }
            model.forward(buffers, inp, micro.dropout);
            model.backward(buffers, grads, inp, targets, micro);
        } else {
            model.forward(buffers, inp, DropoutPass::NONE);
            model.classify(buffers, targets, None);
        }
        self.buffers.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / targets.len() as f64
    }

    #[must_use]
    pub fn gradient_norm(&self) -> f64 {
        adamw::norm(&self.thread_pool, &self.grads)
    }

    /// Updates every parameter from its gradient. `weight_decay` applies to matrices; vectors have none.
    pub fn update(&mut self, adamw: AdamW) {
        let state = adamw::State { params: &mut self.params, m: &mut self.m, v: &mut self.v, grads: &self.grads };
        let layout = &self.layout;
        adamw::adamw_update(&self.thread_pool, state, layout, adamw);
    }
}
