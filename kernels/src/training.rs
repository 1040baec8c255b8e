//! What a training loop asks of whoever trains: the one interface of the trainer on CPU threads and of the one on a card.
//!
//! Every question can fail, as a card can while it is asked. A batch is written in place, so that none is copied that
//! need not be.

use std::borrow::Cow;

use thiserror::Error;

#[cfg(feature = "cuda")]
use crate::cuda::{self, CudaError};
#[cfg(feature = "train")]
use crate::fast;
use crate::{
    cpu::{adamw_update::AdamW, gpt::Micro},
    layout::Layout,
};

/// Why a trainer gave no answer.
#[derive(Debug, Error)]
pub enum TrainingError {
    /// The card, or its driver. A kernel that did it is named.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Values of another model.
    #[error("{given} values are given for {expected} parameters")]
    Length {
        /// Parameters of the model.
        expected: usize,
        /// Values that were to be theirs.
        given: usize,
    },
}

/// A model that learns, wherever it is computed.
pub trait Training {
    /// Where each parameter lies in flat buffers.
    fn layout(&self) -> &Layout;

    /// What was allocated for it.
    fn allocated_bytes(&self) -> u64;

    /// The batch to be computed next, (B, T) each: inputs and targets, to be written by the caller, each below V.
    fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]);

    /// The mean loss of the batch, without dropout.
    ///
    /// # Errors
    /// The card.
    fn loss(&mut self) -> Result<f64, TrainingError>;

    /// Forward and backward of the batch: adds to the gradients, and gives the mean loss.
    ///
    /// # Errors
    /// The card.
    fn micro_step(&mut self, micro: Micro) -> Result<f64, TrainingError>;

    /// The length of all gradients together.
    ///
    /// # Errors
    /// The card.
    fn gradient_norm(&mut self) -> Result<f64, TrainingError>;

    /// Updates every parameter from its gradient. `weight_decay` is that of matrices; vectors do not decay.
    ///
    /// # Errors
    /// The card.
    fn update(&mut self, adamw: AdamW) -> Result<(), TrainingError>;

    /// Gives the parameters a fresh model's values, a function of the seed alone.
    ///
    /// # Errors
    /// The card.
    fn initialize(&mut self, seed: u64) -> Result<(), TrainingError>;

    /// The parameters, flat as [`Self::layout`] has them.
    ///
    /// # Errors
    /// The card.
    fn params(&self) -> Result<Cow<'_, [f32]>, TrainingError>;

    /// AdamW's first and second moments, flat.
    ///
    /// # Errors
    /// The card.
    fn moments(&self) -> Result<Moments<'_>, TrainingError>;

    /// Writes the parameters.
    ///
    /// # Errors
    /// [`TrainingError::Length`], or the card.
    fn set_params(&mut self, params: &[f32]) -> Result<(), TrainingError>;

    /// Writes AdamW's moments.
    ///
    /// # Errors
    /// [`TrainingError::Length`], or the card.
    fn set_moments(&mut self, exp_avg: &[f32], exp_avg_sq: &[f32]) -> Result<(), TrainingError>;
}

/// AdamW's moments, flat: where they are on this machine, else copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments<'a> {
    /// The first.
    pub exp_avg: Cow<'a, [f32]>,
    /// The second.
    pub exp_avg_sq: Cow<'a, [f32]>,
}

#[cfg(feature = "train")]
impl Training for fast::Trainer {
    fn layout(&self) -> &Layout {
        self.layout()
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes()
    }

    fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        self.batch_mut()
    }

    fn loss(&mut self) -> Result<f64, TrainingError> {
        Ok(self.loss())
    }

    fn micro_step(&mut self, micro: Micro) -> Result<f64, TrainingError> {
        Ok(self.micro_step(micro))
    }

    fn gradient_norm(&mut self) -> Result<f64, TrainingError> {
        Ok(fast::Trainer::gradient_norm(self))
    }

    fn update(&mut self, adamw: AdamW) -> Result<(), TrainingError> {
        self.update(adamw);
        Ok(())
    }

    fn initialize(&mut self, seed: u64) -> Result<(), TrainingError> {
        self.initialize(seed);
        Ok(())
    }

    fn params(&self) -> Result<Cow<'_, [f32]>, TrainingError> {
        Ok(self.params().into())
    }

    fn moments(&self) -> Result<Moments<'_>, TrainingError> {
        let (exp_avg, exp_avg_sq) = self.moments();
        Ok(Moments { exp_avg: exp_avg.into(), exp_avg_sq: exp_avg_sq.into() })
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), TrainingError> {
        write(self.state_mut().0, params)
    }

    fn set_moments(&mut self, exp_avg: &[f32], exp_avg_sq: &[f32]) -> Result<(), TrainingError> {
        let (_, m, v) = self.state_mut();
        write(m, exp_avg)?;
        write(v, exp_avg_sq)
    }
}

#[cfg(feature = "train")]
fn write(to: &mut [f32], values: &[f32]) -> Result<(), TrainingError> {
    if to.len() != values.len() {
        return Err(TrainingError::Length { expected: to.len(), given: values.len() });
    }
    to.copy_from_slice(values);
    Ok(())
}

#[cfg(feature = "cuda")]
impl Training for cuda::Trainer {
    fn layout(&self) -> &Layout {
        self.layout()
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes()
    }

    fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        self.batch_mut()
    }

    fn loss(&mut self) -> Result<f64, TrainingError> {
        Ok(self.loss()?)
    }

    fn micro_step(&mut self, micro: Micro) -> Result<f64, TrainingError> {
        Ok(self.micro_step(micro)?)
    }

    fn gradient_norm(&mut self) -> Result<f64, TrainingError> {
        Ok(cuda::Trainer::gradient_norm(self)?)
    }

    fn update(&mut self, adamw: AdamW) -> Result<(), TrainingError> {
        Ok(self.update(adamw)?)
    }

    fn initialize(&mut self, seed: u64) -> Result<(), TrainingError> {
        Ok(self.initialize(seed)?)
    }

    fn params(&self) -> Result<Cow<'_, [f32]>, TrainingError> {
        Ok(self.read_params()?.into())
    }

    fn moments(&self) -> Result<Moments<'_>, TrainingError> {
        let (exp_avg, exp_avg_sq) = self.read_moments()?;
        Ok(Moments { exp_avg: exp_avg.into(), exp_avg_sq: exp_avg_sq.into() })
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), TrainingError> {
        Ok(self.write_params(params)?)
    }

    fn set_moments(&mut self, exp_avg: &[f32], exp_avg_sq: &[f32]) -> Result<(), TrainingError> {
        Ok(self.write_moments(exp_avg, exp_avg_sq)?)
    }
}
