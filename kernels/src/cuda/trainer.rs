//! Trainer on a GPU: the model, its gradients and its optimizer state.

use std::thread;

use headroom_planner::gpt::{
    GptConfig,
    buffers::cuda::{AttentionBackend, CudaTraining},
};

use super::{
    Bf16, CudaError, Device, Slice,
    attention::{Attention, AutotuneInputs},
    gemm::{BuiltinKernels, Gemm},
    model::Model,
    ops::{
        self,
        adamw_update::{self, Rounding, adamw_update},
        attention_backward::SavedAttention,
        encoder_backward::TokenOrder,
        global_norm::{self, global_norm},
    },
    tensors::{Parameter, RunTensors},
};
use crate::{
    initial::Initial,
    layout::{Layout, TooLarge},
    reference::{
        adamw_update::AdamW,
        attention_forward::Heads,
        gpt::{DropoutPass, Micro, Sizes},
    },
};

/// A GPT in training on an NVIDIA GPU.
#[derive(Debug)]
pub struct Trainer {
    device: Device,
    layout: Layout,
    sizes: Sizes,
    plan: CudaTraining,
    // Declared before `tensors`, so that they are dropped first: they use a part of its memory.
    gemm: Box<dyn Gemm>,
    attention: Box<dyn Attention>,
    tensors: RunTensors,
    table: adamw_update::Table,
    tokens: TokenOrder,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl Trainer {
    /// Allocates everything that a run needs, as planned, with the built-in kernels as GEMM and attention backends.
    /// Parameters and moments are zero until they are written.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] if less memory is free than planned, in which case nothing is allocated.
    /// [`CudaError::Module`] if the driver cannot load a file of kernels; all are loaded when this returns. Also if the
    /// model exceeds the address range of this machine or has a size that the kernels do not support.
    pub fn new(device: &Device, config: &GptConfig, plan: CudaTraining) -> Result<Self, CudaError> {
        Self::with(device, config, plan, Box::new(BuiltinKernels), Box::new(BuiltinKernels))
    }

    /// Creates a trainer with other GEMM and attention backends. The plan must be made for their [`Gemm::gemm_backend`]
    /// and [`Attention::attention_backend`]. Algorithms are selected when this returns.
    ///
    /// # Errors
    /// As [`Self::new`]; [`CudaError::NotPlanned`] if the plan has less workspace than the backends need.
    pub fn with(
        device: &Device,
        config: &GptConfig,
        plan: CudaTraining,
        mut gemm: Box<dyn Gemm>,
        attention: Box<dyn Attention>,
    ) -> Result<Self, CudaError> {
        let (needed, planned) = (gemm.gemm_backend().workspace_bytes(), plan.libraries.gemm_backend.workspace_bytes());
        if planned < needed {
            let asked = format!("{needed} bytes of workspace for {}", gemm.name());
            return Err(CudaError::NotPlanned { asked, planned: format!("{planned} bytes") });
        }
        let too_large = |_: TooLarge| CudaError::TooLarge { what: "the model", value: config.n_embd() };
        if plan.libraries.attention_backend != attention.attention_backend() {
            let asked = format!("room for attention by {}", attention.name());
            return Err(CudaError::NotPlanned { asked, planned: "that of another".to_owned() });
        }
        let layout = Layout::new(config).map_err(too_large)?;
        let t = usize::try_from(config.block_size()).map_err(|_| too_large(TooLarge))?;
        let sizes = Sizes::new(config, t).map_err(too_large)?;
        let tensors = RunTensors::new(device, config, &plan)?;
        // A backend that rehearses loads the built-in GEMM kernels itself if it needs them.
        ops::load(device, !gemm.rehearses(), config.dropout() > 0.0)?;
        // The vocabulary's padding must be zero and stay zero. Gaps between tensors count as data, so they are zero too.
        device.zero(tensors.arena.whole())?;
        gemm.begin(tensors.workspace);
        let parameter = |(i, of): (usize, &Parameter)| adamw_update::Parameter {
            weight: of.weight,
            master: Some(of.master),
            m: of.m,
            v: of.v,
            grad: of.grad,
            decayed: layout.entries()[i].parameter.decayed,
        };
        let parameters: Vec<_> = tensors.parameters.iter().enumerate().map(parameter).collect();
        let table = adamw_update::Table::new(&parameters)?;
        let n = usize::try_from(tensors.inputs.len()).map_err(|_| too_large(TooLarge))?;
        let tokens = TokenOrder::new(sizes.v as u64)?;
        let (inputs, targets) = (vec![0; n], vec![0; n]);
        let device = device.clone();
        let mut trainer =
            Self { device, layout, sizes, plan, gemm, attention, tensors, table, tokens, inputs, targets };
        if let Some(trial) = trainer
            .trial(config.dropout() > 0.0)
            .filter(|_| trainer.attention.attention_backend() != AttentionBackend::BuiltinKernels)
        {
            trainer.attention.settle(&trainer.device, trial)?;
            trainer.device.zero(trainer.tensors.arena.whole())?;
        }
        if trainer.gemm.rehearses() {
            trainer.run(Some(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE }))?;
            trainer.gemm.settle();
            trainer.device.zero(trainer.tensors.arena.whole())?;
        }
        trainer.device.write(trainer.tensors.table, trainer.table.words())?;
        Ok(trainer)
    }

    /// The GEMM backend.
    #[must_use]
    pub fn gemm(&self) -> &dyn Gemm {
        self.gemm.as_ref()
    }

    /// The attention backend.
    #[must_use]
    pub fn attention(&self) -> &dyn Attention {
        self.attention.as_ref()
    }

    /// Tensors of the last block's backward, for selecting attention algorithms.
    fn trial(&self, drops: bool) -> Option<AutotuneInputs> {
        let (tensors, block) = (&self.tensors, self.tensors.blocks.last()?);
        let saved = SavedAttention { qkv: block.qkv.backward, out: block.atty.backward, lse: block.lse.backward };
        let Sizes { t, c, nh, .. } = self.sizes;
        let heads = Heads { t, c, nh, dropout: None };
        let (dout, dqkv, rows) = (tensors.datty, tensors.dqkv, tensors.datt_rows);
        Some(AutotuneInputs { saved, dout, dqkv, rows, heads, drops, rooms: tensors.attention })
    }

    /// The memory plan of the run.
    #[must_use]
    pub fn planned(&self) -> &CudaTraining {
        &self.plan
    }

    /// Size of the arena in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.tensors.arena.bytes()
    }

    /// Position of each parameter in the flat buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The GPU.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The next batch, (B, T) each: inputs and targets, written by the caller.
    pub fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.inputs, &mut self.targets)
    }

    /// Initializes the parameters for a new model, with the same values as the CPU trainer for the same seed.
    ///
    /// # Errors
    /// A copy fails.
    pub fn initialize(&mut self, seed: u64) -> Result<(), CudaError> {
        // The host generates the values, one tensor at a time, on all CPU threads.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        for (index, (entry, parameter)) in self.layout.entries().iter().zip(&self.tensors.parameters).enumerate() {
            let initial = Initial::of(index, entry, self.sizes.l);
            let mut values = vec![0.0; entry.range.len()];
            let piece = values.len().div_ceil(threads).max(1);
            thread::scope(|scope| {
                for (i, values) in values.chunks_mut(piece).enumerate() {
                    scope.spawn(move || initial.fill(values, i * piece, seed));
                }
            });
            self.write_parameter(parameter, &values)?;
        }
        Ok(())
    }

    /// Writes the parameters, flat in the order of [`Self::layout`], and the bfloat16 weights rounded from them.
    ///
    /// # Errors
    /// [`CudaError::Length`], or a copy fails.
    pub fn write_params(&mut self, params: &[f32]) -> Result<(), CudaError> {
        self.check_length(params)?;
        for (entry, parameter) in self.layout.entries().iter().zip(&self.tensors.parameters) {
            self.write_parameter(parameter, &params[entry.range.clone()])?;
        }
        Ok(())
    }

    fn write_parameter(&self, parameter: &Parameter, values: &[f32]) -> Result<(), CudaError> {
        let weights: Vec<Bf16> = values.iter().map(|&x| Bf16::from_f32(x)).collect();
        let n = values.len() as u64;
        self.device.write(parameter.master.part(0, n)?, values)?;
        self.device.write(parameter.weight.part(0, n)?, &weights)
    }

    /// Writes AdamW's first and second moments, flat.
    ///
    /// # Errors
    /// As [`Self::write_params`].
    pub fn write_moments(&mut self, exp_avg: &[f32], exp_avg_sq: &[f32]) -> Result<(), CudaError> {
        self.scatter(|parameter| parameter.m, exp_avg)?;
        self.scatter(|parameter| parameter.v, exp_avg_sq)
    }

    /// Reads the parameters, flat.
    ///
    /// # Errors
    /// A previously launched kernel faulted.
    pub fn read_params(&self) -> Result<Vec<f32>, CudaError> {
        self.gather(|parameter| parameter.master)
    }

    /// Reads AdamW's first and second moments, flat.
    ///
    /// # Errors
    /// A previously launched kernel faulted.
    pub fn read_moments(&self) -> Result<(Vec<f32>, Vec<f32>), CudaError> {
        Ok((self.gather(|parameter| parameter.m)?, self.gather(|parameter| parameter.v)?))
    }

    /// Reads the gradients of the last iteration, flat.
    ///
    /// # Errors
    /// A previously launched kernel faulted.
    pub fn read_grads(&self) -> Result<Vec<f32>, CudaError> {
        self.gather(|parameter| parameter.grad)
    }

    fn scatter(&self, of: fn(&Parameter) -> Slice<f32>, values: &[f32]) -> Result<(), CudaError> {
        self.check_length(values)?;
        for (entry, parameter) in self.layout.entries().iter().zip(&self.tensors.parameters) {
            let values = &values[entry.range.clone()];
            self.device.write(of(parameter).part(0, values.len() as u64)?, values)?;
        }
        Ok(())
    }

    fn check_length(&self, values: &[f32]) -> Result<(), CudaError> {
        let (expected, given) = (self.layout.len() as u64, values.len() as u64);
        if given == expected {
            return Ok(());
        }
        Err(CudaError::Length { op: "write", tensor: "the parameters", expected, given })
    }

    fn gather(&self, of: fn(&Parameter) -> Slice<f32>) -> Result<Vec<f32>, CudaError> {
        let mut flat = vec![0.0; self.layout.len()];
        for (entry, parameter) in self.layout.entries().iter().zip(&self.tensors.parameters) {
            let values = &mut flat[entry.range.clone()];
            self.device.read(values, of(parameter).part(0, values.len() as u64)?)?;
        }
        Ok(flat)
    }

    /// Computes the mean loss of the batch, without dropout.
    ///
    /// # Errors
    /// A token of the batch exceeds the vocabulary; a launch or a kernel fails.
    pub fn loss(&mut self) -> Result<f64, CudaError> {
        self.run(None)
    }

    /// Runs forward and backward of the batch: adds to the gradients and returns the mean loss.
    ///
    /// # Errors
    /// As [`Self::loss`].
    pub fn micro_step(&mut self, micro: Micro) -> Result<f64, CudaError> {
        self.run(Some(micro))
    }

    fn run(&mut self, micro: Option<Micro>) -> Result<f64, CudaError> {
        let tensors = &self.tensors;
        self.tokens.check(&self.targets)?;
        if micro.is_some() {
            self.tokens.sort(&self.inputs)?;
        } else {
            self.tokens.check(&self.inputs)?;
        }
        self.device.write(tensors.inputs, &self.inputs)?;
        self.device.write(tensors.targets, &self.targets)?;
        // Copied together with the other inputs, as every copy waits: between forward and backward the GPU would idle.
        if micro.is_some() {
            self.device.write(tensors.token_order, self.tokens.words())?;
        }
        let model = Model {
            device: &self.device,
            gemm: self.gemm.as_ref(),
            attention: self.attention.as_ref(),
            layout: &self.layout,
            sizes: self.sizes,
            tensors,
            recompute: &self.plan.recompute,
            dropout: micro.map_or(DropoutPass::NONE, |micro| micro.dropout),
            chunk_rows: self.plan.chunk_rows,
        };
        model.forward()?;
        if let Some(micro) = micro {
            if micro.first {
                self.device.zero(tensors.grads)?;
            }
            model.classify(Some(micro.loss_scale))?;
            model.backward(&self.tokens)?;
        } else {
            model.classify(None)?;
        }
        let loss = self.device.download(tensors.loss)?;
        Ok(loss.first().copied().map_or(f64::NAN, f64::from))
    }

    /// Computes the L2 norm of all gradients together.
    ///
    /// # Errors
    /// A launch or a kernel fails.
    pub fn gradient_norm(&self) -> Result<f64, CudaError> {
        let (norm, grads) = (self.tensors.norm, self.tensors.grads);
        global_norm(&self.device, norm, self.tensors.parts.part(0, global_norm::N_SUMS)?, grads)?;
        Ok(self.device.download(norm)?.first().copied().map_or(f64::NAN, f64::from))
    }

    /// Updates every parameter from its gradient. `weight_decay` applies to matrices only.
    ///
    /// # Errors
    /// A launch fails.
    pub fn update(&mut self, adamw: AdamW) -> Result<(), CudaError> {
        adamw_update(&self.device, (&self.table, self.tensors.table), None, adamw, Rounding::Nearest)
    }
}
