//! The model, its gradients and its optimizer's state, and what a training loop asks of them.

use headroom_shared::gpt::{
    GptConfig,
    buffers::{Buffers, cpu_training},
    tensors::{Role, Tensor, TensorTooLarge},
};
use thiserror::Error;

use super::{
    adamw,
    arena::{Arena, Floats},
    initial::initialize,
    model::Model,
    room::Room,
    team::{Crew, Team},
};
use crate::{
    cpu::{
        adamw_update::AdamW,
        gpt::{DropoutPass, Micro, Sizes},
    },
    layout::{Layout, TooLarge},
};

/// Why there is no trainer.
#[derive(Debug, Error)]
pub enum TrainerError {
    /// The model.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A tensor of it.
    #[error(transparent)]
    Tensor(#[from] TensorTooLarge),
    /// The threads.
    #[error("the threads that compute cannot be started: {0}")]
    Threads(#[from] std::io::Error),
}

/// A GPT that trains on CPU threads.
#[derive(Debug)]
pub struct Trainer {
    layout: Layout,
    sizes: Sizes,
    team: Team,
    planned: Buffers,
    allocated_bytes: u64,
    params: Floats,
    grads: Floats,
    m: Floats,
    v: Floats,
    inputs: Vec<u32>,
    targets: Vec<u32>,
    room: Room,
    scratch: Floats,
}

impl Trainer {
    /// Allocates everything a run needs, for micro-batches of `batch_size` sequences of `block_size` tokens.
    ///
    /// # Errors
    /// The model is larger than this machine can address, or its threads cannot be started.
    pub fn new(config: &GptConfig, batch_size: u64, threads: usize) -> Result<Self, TrainerError> {
        let layout = Layout::new(config)?;
        let sizes = Sizes::new(config, usize::try_from(config.block_size()).map_err(|_| TooLarge)?)?;
        let team = Team::new(threads)?;
        let planned = cpu_training(config, batch_size, team.threads() as u64)?;
        if planned.bytes() > isize::MAX.unsigned_abs() as u64 {
            return Err(TooLarge.into());
        }
        let mut arena = Arena::new(&planned);
        let n = layout.entries().len();
        let [params, grads] = [Role::Value, Role::Value].map(|role| arena.flat(n, role));
        let [m, v] = [Role::ExpAvg, Role::ExpAvgSq].map(|role| arena.flat(n, role));
        let [inputs, targets] = [Tensor::Tokens; 2].map(|tensor| arena.tokens(tensor));
        let room = Room::new(&mut arena, sizes.l, config.dropout() > 0.0);
        let scratch = arena.floats(Tensor::AttScratch);
        let allocated_bytes = arena.finish();
        Ok(Self { layout, sizes, team, allocated_bytes, planned, params, grads, m, v, inputs, targets, room, scratch })
    }

    /// What was to be allocated.
    #[must_use]
    pub fn planned(&self) -> &Buffers {
        &self.planned
    }

    /// What was allocated.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Where each parameter lies in the flat buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The threads.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The parameters.
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

    /// Parameters and moments, to read a checkpoint into.
    pub fn state_mut(&mut self) -> (&mut [f32], &mut [f32], &mut [f32]) {
        (&mut self.params, &mut self.m, &mut self.v)
    }

    /// Gives the parameters a fresh model's values.
    pub fn initialize(&mut self, seed: u64) {
        let (params, layout, l) = (&mut self.params, &self.layout, self.sizes.l);
        initialize(&self.team, params, layout, l, seed);
    }

    /// The batch to be computed next, (B, T) each: inputs and targets, to be written by the caller.
    pub fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.inputs, &mut self.targets)
    }

    /// The mean loss of the batch, without dropout.
    ///
    /// # Panics
    /// A token of the batch is no row of the embedding.
    pub fn loss(&mut self) -> f64 {
        self.run(None)
    }

    /// Forward and backward of the batch: adds to the gradients, and gives the mean loss.
    ///
    /// # Panics
    /// A token of the batch is no row of the embedding.
    pub fn micro_step(&mut self, micro: Micro) -> f64 {
        self.run(Some(micro))
    }

    fn run(&mut self, micro: Option<Micro>) -> f64 {
        let (inp, targets, v) = (&self.inputs, &self.targets, self.sizes.v);
        assert!(inp.iter().chain(targets).all(|&token| (token as usize) < v), "a token is a row of the embedding");
        let crew = Crew::new(&self.team, &mut self.scratch);
        let model = Model { layout: &self.layout, sizes: self.sizes, params: &self.params, crew };
        let (grads, room) = (&mut self.grads, &mut self.room);
        if let Some(micro) = micro {
            if micro.first {
                model.clear_vectors(grads);
            }
            model.forward(room, inp, micro.dropout);
            model.backward(room, grads, inp, targets, micro);
        } else {
            model.forward(room, inp, DropoutPass::NONE);
            model.classify(room, targets, None);
        }
        self.room.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / targets.len() as f64
    }

    /// The length of all gradients together.
    #[must_use]
    pub fn gradient_norm(&self) -> f64 {
        adamw::norm(&self.team, &self.grads)
    }

    /// Updates every parameter from its gradient. `weight_decay` is that of matrices; vectors do not decay.
    pub fn update(&mut self, adamw: AdamW) {
        let state = adamw::State { params: &mut self.params, m: &mut self.m, v: &mut self.v, grads: &self.grads };
        let layout = &self.layout;
        adamw::adamw_update(&self.team, state, layout, adamw);
    }
}
