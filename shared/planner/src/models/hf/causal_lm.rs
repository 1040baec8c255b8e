//! `…ForCausalLM`: a body with a head and a loss.

use super::{
    Config, Family,
    body::{Body, Inputs, Settings},
    decoder::Decoder,
    gpt2::Gpt2,
    modules::{Linear, Lora},
    quantized::{Checkpoint, Quantization},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    torch::{Tensor, Torch},
};

/// A causal language model.
#[derive(Debug)]
pub struct CausalLm {
    body: Box<dyn Body>,
    lm_head: Linear,
    /// The trainable copy of `modules_to_save`.
    saved_lm_head: Option<Linear>,
    ties_embeddings: bool,
    /// Whether the config has `final_logit_softcapping`.
    softcaps_logits: bool,
    /// The code of bitsandbytes' scales.
    _code_of_scales: Option<Tensor>,
    /// Settings that the trainer changes.
    pub settings: Settings,
}

impl CausalLm {
    /// `AutoModelForCausalLM.from_config(config, dtype)`.
    pub fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let body: Box<dyn Body> = match config.family {
            Family::Gpt2 => Box::new(Gpt2::new(torch, config, dtype)),
            _ => Box::new(Decoder::new(torch, config, dtype)),
        };
        let lm_head = if config.ties_embeddings {
            drop(torch.empty("weight", &[config.vocab_size, config.hidden_size], dtype));
            Linear::tied("lm_head", body.embeddings())
        } else {
            Linear::new(torch, "lm_head", [config.hidden_size, config.vocab_size], false, dtype)
        };
        Self {
            body,
            lm_head,
            saved_lm_head: None,
            ties_embeddings: config.ties_embeddings,
            softcaps_logits: config.softcaps_logits,
            _code_of_scales: None,
            settings: Settings::default(),
        }
    }

    /// `AutoModelForCausalLM.from_pretrained(path, dtype=dtype, quantization_config=...)`. The head is not quantized.
    pub fn load(torch: &Torch, config: &Config, dtype: Dtype, quantization: Quantization) -> Self {
        let mut model = torch.on_meta(|| Self::new(torch, config, dtype));
        let checkpoint = Checkpoint::new(torch, quantization, dtype);
        let quantized = model.body.linears().iter().map(|linear| linear.weight_elements()).sum();
        let parameters = model.all_parameters();
        let elements: u64 = parameters.iter().map(|parameter| parameter.layout().elements()).sum();
        checkpoint.warm_up(quantized, elements - quantized);
        if model.ties_embeddings {
            model.body.load(&checkpoint);
            model.lm_head = Linear::tied("lm_head", model.body.embeddings());
        } else {
            model.lm_head.load(&checkpoint);
            model.body.load(&checkpoint);
        }
        model._code_of_scales = checkpoint.into_code();
        model
    }

    /// `prepare_model_for_kbit_training(model)`: casts what is not quantized to float32.
    pub fn prepare(&mut self, torch: &Torch) {
        let cast = |parameter: &mut Tensor| torch.cast_parameter(parameter, Dtype::Float32);
        let mut parameters = self.body.full_parameters().into_iter();
        if let Some(embeddings) = parameters.next() {
            cast(embeddings);
            if self.ties_embeddings {
                self.lm_head = Linear::tied("lm_head", embeddings);
            }
        }
        parameters.for_each(cast);
        self.lm_head.full_parameters().for_each(cast);
    }

    /// `get_peft_model(model, LoraConfig(...))`: freezes the model and adds adapters.
    pub fn adapt(&mut self, torch: &Torch, lora: &Lora) {
        self.lm_head.freeze();
        self.body.adapt(torch, lora);
        if lora.saved.embeddings {
            self.body.save_embeddings(torch);
        }
        if lora.saved.head {
            self.saved_lm_head = Some(self.lm_head.trainable_copy(torch));
        }
        self.body.linears().into_iter().for_each(|linear| linear.widen(torch));
    }

    /// Logits, and the loss divided by the number of targets.
    pub fn forward(
        &self,
        torch: &Torch,
        inputs: Inputs<'_>,
        labels: &Tensor,
        num_items: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        let hidden_states = self.body.forward(torch, inputs, &self.settings);
        let _scope = torch.enter_category(Category::LogitsAndLoss);
        let mut logits = self.saved_lm_head.as_ref().unwrap_or(&self.lm_head).forward(torch, &hidden_states);
        if self.softcaps_logits {
            logits = torch.scale(&logits);
            logits = torch.function("tanh", &logits);
            logits = torch.scale(&logits);
        }
        let loss = causal_lm_loss(torch, &logits, labels, num_items);
        (logits, loss)
    }

    /// Parameters that require gradients, in the order of `named_parameters()`.
    pub fn parameters(&self) -> Vec<&Tensor> {
        self.all_parameters().into_iter().filter(|parameter| parameter.requires_grad()).collect()
    }

    /// The weights of embeddings.
    pub fn embeddings(&self) -> Vec<&Tensor> {
        self.body.all_embeddings()
    }

    fn all_parameters(&self) -> Vec<&Tensor> {
        let head = if self.ties_embeddings { Vec::new() } else { self.lm_head.parameters() };
        let saved = self.saved_lm_head.iter().flat_map(Linear::parameters);
        self.body.parameters().into_iter().chain(head).chain(saved).collect()
    }
}

/// `ForCausalLMLoss`.
fn causal_lm_loss(torch: &Torch, logits: &Tensor, labels: &Tensor, num_items: Option<&Tensor>) -> Tensor {
    let mut logits = torch.cast(logits, Dtype::Float32);
    let &[b, t, vocab_size] = logits.sizes() else { return logits };
    let padded = torch.empty("padded labels", &[b, t + 1], labels.dtype());
    // `labels[..., 1:].contiguous()`: the rows of one sequence are contiguous.
    let shift_labels = match b {
        1 => padded.clone(),
        _ => torch.empty("shifted labels", &[b * t], labels.dtype()),
    };
    logits = torch.reshape(&logits, &[b * t, vocab_size]);
    let mut loss = torch.cross_entropy(&logits, &shift_labels);
    if let Some(num_items) = num_items {
        loss = torch.div(&loss, num_items);
    }
    drop(logits);
    drop(padded);
    loss
}
