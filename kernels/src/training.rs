//! The interface between the training loop and the trainers on CPU threads and on a GPU.
//!
//! Every method can fail, as a GPU can fail at any time. Batches are written in place to avoid copies.

use std::borrow::Cow;

use headroom_text::{self as text, Text};
use thiserror::Error;

#[cfg(feature = "train")]
use crate::cpu_train;
#[cfg(feature = "cuda")]
use crate::cuda::{self, CudaError};
use crate::{
    layout::Layout,
    reference::{adamw_update::AdamW, gpt::Micro},
};

/// An error of a trainer.
#[derive(Debug, Error)]
pub enum TrainingError {
    /// An error of the GPU or its driver, with the name of the kernel that caused it.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A wrong number of values.
    #[error("{given} values are given for {expected} parameters")]
    Length {
        /// Parameters of the model.
        expected: usize,
        /// The given number of values.
        given: usize,
    },
}

impl TrainingError {
    /// The error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(error) => error.text(),
            Self::Length { .. } => text::as_is(self.to_string()),
        }
    }
}

/// A model in training, on any backend.
pub trait Training {
    /// The parameter offsets in flat buffers.
    fn layout(&self) -> &Layout;

    /// The bytes allocated for training.
    fn allocated_bytes(&self) -> u64;

    /// The inputs and targets of the next batch, (B, T) each, for the caller to fill with tokens below V.
    fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]);

    /// The mean loss of the batch, without dropout.
    ///
    /// # Errors
    /// An error of the GPU.
    fn loss(&mut self) -> Result<f64, TrainingError>;

    /// Runs forward and backward of the batch, adds to the gradients, and returns the mean loss.
    ///
    /// # Errors
    /// An error of the GPU.
    fn micro_step(&mut self, micro: Micro) -> Result<f64, TrainingError>;

    /// The norm of all gradients.
    ///
    /// # Errors
    /// An error of the GPU.
    fn gradient_norm(&mut self) -> Result<f64, TrainingError>;

    /// Updates every parameter from its gradient. `weight_decay` applies to matrices; vectors have none.
    ///
    /// # Errors
    /// An error of the GPU.
    fn update(&mut self, adamw: AdamW) -> Result<(), TrainingError>;

    /// Initialises the parameters as of a new model, depending on the seed only.
    ///
    /// # Errors
    /// An error of the GPU.
    fn initialize(&mut self, seed: u64) -> Result<(), TrainingError>;

    /// The parameters, flat in the order of [`Self::layout`].
    ///
    /// # Errors
    /// An error of the GPU.
    fn params(&self) -> Result<Cow<'_, [f32]>, TrainingError>;

    /// AdamW's first and second moments, flat.
    ///
    /// # Errors
    /// An error of the GPU.
    fn moments(&self) -> Result<AdamMoments<'_>, TrainingError>;

    /// Replaces the parameters.
    ///
    /// # Errors
    /// [`TrainingError::Length`], or an error of the GPU.
    fn set_params(&mut self, params: &[f32]) -> Result<(), TrainingError>;

    /// Replaces AdamW's moments.
    ///
    /// # Errors
    /// [`TrainingError::Length`], or an error of the GPU.
    fn set_moments(&mut self, exp_avg: &[f32], exp_avg_sq: &[f32]) -> Result<(), TrainingError>;
}

/// AdamW's moments, flat: borrowed if they are in host memory, else copied.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamMoments<'a> {
    /// The first moments.
    pub exp_avg: Cow<'a, [f32]>,
    /// The second moments.
    pub exp_avg_sq: Cow<'a, [f32]>,
}

#[cfg(feature = "train")]
impl Training for cpu_train::Trainer {
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
        Ok(cpu_train::Trainer::gradient_norm(self))
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

    fn moments(&self) -> Result<AdamMoments<'_>, TrainingError> {
        let (exp_avg, exp_avg_sq) = self.moments();
        Ok(AdamMoments { exp_avg: exp_avg.into(), exp_avg_sq: exp_avg_sq.into() })
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

    fn moments(&self) -> Result<AdamMoments<'_>, TrainingError> {
        let (exp_avg, exp_avg_sq) = self.read_moments()?;
        Ok(AdamMoments { exp_avg: exp_avg.into(), exp_avg_sq: exp_avg_sq.into() })
    }

    fn set_params(&mut self, params: &[f32]) -> Result<(), TrainingError> {
        Ok(self.write_params(params)?)
    }

    fn set_moments(&mut self, exp_avg: &[f32], exp_avg_sq: &[f32]) -> Result<(), TrainingError> {
        Ok(self.write_moments(exp_avg, exp_avg_sq)?)
    }
}
