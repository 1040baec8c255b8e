//! The model on the card, its gradients and its optimizer's state, and what a training loop asks of them.

use std::thread;

use headroom_shared::gpt::{
    GptConfig,
    buffers::cuda::{Attender, CudaTraining},
};

use super::{
    Bf16, CudaError, Device, Slice,
    attention::{Attention, Trial},
    model::Model,
    ops::{
        self,
        adamw_update::{self, Rounding, adamw_update},
        attention_backward::Saved,
        encoder_backward::TokenOrder,
        global_norm::{self, global_norm},
    },
    products::{Own, Products},
    room::{Parameter, Room},
};
use crate::{
    cpu::{
        adamw_update::AdamW,
        attention_forward::Heads,
        gpt::{DropoutPass, Micro, Sizes},
    },
    initial::Initial,
    layout::{Layout, TooLarge},
};

/// A GPT that trains on a CUDA card.
#[derive(Debug)]
pub struct Trainer {
    device: Device,
    layout: Layout,
    sizes: Sizes,
    plan: CudaTraining,
    // Before the room, a part of which they have.
    products: Box<dyn Products>,
    attention: Box<dyn Attention>,
    room: Room,
    table: adamw_update::Table,
    tokens: TokenOrder,
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl Trainer {
    /// Allocates everything a run needs, as its plan has it. Parameters and moments are zero until they are written.
    /// All is computed by our own kernels.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] where less is free than the plan takes, and then nothing was allocated;
    /// [`CudaError::Module`] where the driver cannot load a file of kernels, all of which it has when this returns; the
    /// model is larger than this machine can address, or one that the kernels are not made for.
    pub fn new(device: &Device, config: &GptConfig, plan: CudaTraining) -> Result<Self, CudaError> {
        Self::with(device, config, plan, Box::new(Own), Box::new(Own))
    }

    /// The same with matrices multiplied, and attention computed, by others, for whose [`Products::multiplier`] and
    /// [`Attention::attender`] the plan was made. Whoever rehearses has done so when this returns.
    ///
    /// # Errors
    /// As [`Self::new`]; [`CudaError::NotPlanned`] where the plan has less room for it than it needs.
    pub fn with(
        device: &Device,
        config: &GptConfig,
        plan: CudaTraining,
        mut products: Box<dyn Products>,
        attention: Box<dyn Attention>,
    ) -> Result<Self, CudaError> {
        let (needed, planned) = (products.multiplier().workspace_bytes(), plan.libraries.multiplier.workspace_bytes());
        if planned < needed {
            let asked = format!("{needed} bytes of workspace for {}", products.name());
            return Err(CudaError::NotPlanned { asked, planned: format!("{planned} bytes") });
        }
        let too_large = |_: TooLarge| CudaError::TooLarge { what: "the model", value: config.n_embd() };
        if plan.libraries.attender != attention.attender() {
            let asked = format!("room for attention by {}", attention.name());
            return Err(CudaError::NotPlanned { asked, planned: "that of another".to_owned() });
        }
        let layout = Layout::new(config).map_err(too_large)?;
        let t = usize::try_from(config.block_size()).map_err(|_| too_large(TooLarge))?;
        let sizes = Sizes::new(config, t).map_err(too_large)?;
        let room = Room::new(device, config, &plan)?;
        // Whoever rehearses launches what it needs of our products itself.
        ops::load(device, !products.rehearses(), config.dropout() > 0.0)?;
        // What pads the vocabulary is zero and stays so; gaps between tensors are never told apart from them.
        device.zero(room.arena.whole())?;
        products.begin(room.workspace);
        let parameter = |(i, of): (usize, &Parameter)| adamw_update::Parameter {
            weight: of.weight,
            master: Some(of.master),
            m: of.m,
            v: of.v,
            grad: of.grad,
            decayed: layout.entries()[i].parameter.decayed,
        };
        let parameters: Vec<_> = room.parameters.iter().enumerate().map(parameter).collect();
        let table = adamw_update::Table::new(&parameters)?;
        let n = usize::try_from(room.inputs.len()).map_err(|_| too_large(TooLarge))?;
        let tokens = TokenOrder::new(sizes.v as u64)?;
        let (inputs, targets) = (vec![0; n], vec![0; n]);
        let device = device.clone();
        let mut trainer =
            Self { device, layout, sizes, plan, products, attention, room, table, tokens, inputs, targets };
        if let Some(trial) =
            trainer.trial(config.dropout() > 0.0).filter(|_| trainer.attention.attender() != Attender::Own)
        {
            trainer.attention.settle(&trainer.device, trial)?;
            trainer.device.zero(trainer.room.arena.whole())?;
        }
        if trainer.products.rehearses() {
            trainer.run(Some(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE }))?;
            trainer.products.settle();
            trainer.device.zero(trainer.room.arena.whole())?;
        }
        trainer.device.write(trainer.room.table, trainer.table.words())?;
        Ok(trainer)
    }

    /// Who multiplies matrices, and what is to be said of it.
    #[must_use]
    pub fn products(&self) -> &dyn Products {
        self.products.as_ref()
    }

    /// Who computes attention, and what is to be said of it.
    #[must_use]
    pub fn attention(&self) -> &dyn Attention {
        self.attention.as_ref()
    }

    /// The last block's tensors as its backward has them.
    fn trial(&self, drops: bool) -> Option<Trial> {
        let (room, block) = (&self.room, self.room.blocks.last()?);
        let saved = Saved { qkv: block.qkv.backward, out: block.atty.backward, lse: block.lse.backward };
        let Sizes { t, c, nh, .. } = self.sizes;
        let heads = Heads { t, c, nh, dropout: None };
        let (dout, dqkv, rows) = (room.datty, room.dqkv, room.datt_rows);
        Some(Trial { saved, dout, dqkv, rows, heads, drops, rooms: room.attention })
    }

    /// What was to be allocated.
    #[must_use]
    pub fn planned(&self) -> &CudaTraining {
        &self.plan
    }

    /// What was allocated.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.room.arena.bytes()
    }

    /// Where each parameter lies in the flat buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The card.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The batch to be computed next, (B, T) each: inputs and targets, to be written by the caller.
    pub fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.inputs, &mut self.targets)
    }

    /// Gives the parameters a fresh model's values: those that the trainer on CPU threads has for the same seed.
    ///
    /// # Errors
    /// A copy fails.
    pub fn initialize(&mut self, seed: u64) -> Result<(), CudaError> {
        // The host makes the numbers, of one tensor at a time, with what threads it has.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        for (index, (entry, parameter)) in self.layout.entries().iter().zip(&self.room.parameters).enumerate() {
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

    /// Writes the parameters, flat as [`Self::layout`] has them; the kernels' weights are made of them.
    ///
    /// # Errors
    /// [`CudaError::Length`], or a copy fails.
    pub fn write_params(&mut self, params: &[f32]) -> Result<(), CudaError> {
        self.check_length(params)?;
        for (entry, parameter) in self.layout.entries().iter().zip(&self.room.parameters) {
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

    /// The parameters, flat.
    ///
    /// # Errors
    /// A fault of a kernel before.
    pub fn read_params(&self) -> Result<Vec<f32>, CudaError> {
        self.gather(|parameter| parameter.master)
    }

    /// AdamW's first and second moments, flat.
    ///
    /// # Errors
    /// A fault of a kernel before.
    pub fn read_moments(&self) -> Result<(Vec<f32>, Vec<f32>), CudaError> {
        Ok((self.gather(|parameter| parameter.m)?, self.gather(|parameter| parameter.v)?))
    }

    /// The gradients of the last iteration, flat.
    ///
    /// # Errors
    /// A fault of a kernel before.
    pub fn read_grads(&self) -> Result<Vec<f32>, CudaError> {
        self.gather(|parameter| parameter.grad)
    }

    fn scatter(&self, of: fn(&Parameter) -> Slice<f32>, values: &[f32]) -> Result<(), CudaError> {
        self.check_length(values)?;
        for (entry, parameter) in self.layout.entries().iter().zip(&self.room.parameters) {
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
        for (entry, parameter) in self.layout.entries().iter().zip(&self.room.parameters) {
            let values = &mut flat[entry.range.clone()];
            self.device.read(values, of(parameter).part(0, values.len() as u64)?)?;
        }
        Ok(flat)
    }

    /// The mean loss of the batch, without dropout.
    ///
    /// # Errors
    /// A token of the batch is no row of the embedding; a launch or a kernel fails.
    pub fn loss(&mut self) -> Result<f64, CudaError> {
        self.run(None)
    }

    /// Forward and backward of the batch: adds to the gradients, and gives the mean loss.
    ///
    /// # Errors
    /// As [`Self::loss`].
    pub fn micro_step(&mut self, micro: Micro) -> Result<f64, CudaError> {
        self.run(Some(micro))
    }

    fn run(&mut self, micro: Option<Micro>) -> Result<f64, CudaError> {
        let room = &self.room;
        self.tokens.check(&self.targets)?;
        if micro.is_some() {
            self.tokens.sort(&self.inputs)?;
        } else {
            self.tokens.check(&self.inputs)?;
        }
        self.device.write(room.inputs, &self.inputs)?;
        self.device.write(room.targets, &self.targets)?;
        // With the others, as each is waited for: between forward and backward the card would have nothing to do.
        if micro.is_some() {
            self.device.write(room.token_order, self.tokens.words())?;
        }
        let model = Model {
            device: &self.device,
            products: self.products.as_ref(),
            attention: self.attention.as_ref(),
            layout: &self.layout,
            sizes: self.sizes,
            room,
            recompute: &self.plan.recompute,
            dropout: micro.map_or(DropoutPass::NONE, |micro| micro.dropout),
            chunk_rows: self.plan.chunk_rows,
        };
        model.forward()?;
        if let Some(micro) = micro {
            if micro.first {
                self.device.zero(room.grads)?;
            }
            model.classify(Some(micro.loss_scale))?;
            model.backward(&self.tokens)?;
        } else {
            model.classify(None)?;
        }
        let loss = self.device.download(room.loss)?;
        Ok(loss.first().copied().map_or(f64::NAN, f64::from))
    }

    /// The length of all gradients together.
    ///
    /// # Errors
    /// A launch or a kernel fails.
    pub fn gradient_norm(&self) -> Result<f64, CudaError> {
        let (norm, grads) = (self.room.norm, self.room.grads);
        global_norm(&self.device, norm, self.room.parts.part(0, global_norm::N_SUMS)?, grads)?;
        Ok(self.device.download(norm)?.first().copied().map_or(f64::NAN, f64::from))
    }

    /// Updates every parameter from its gradient. `weight_decay` is that of matrices; vectors do not decay.
    ///
    /// # Errors
    /// A launch fails.
    pub fn update(&mut self, adamw: AdamW) -> Result<(), CudaError> {
        adamw_update(&self.device, (&self.table, self.room.table), None, adamw, Rounding::Nearest)
    }
}
