//! `…ForCausalLM`: a body with a head and a loss.

use super::{
    Config, Family,
    body::{Body, Inputs, Settings},
    decoder::Decoder,
    gpt2::Gpt2,
    modules::{Linear, Lora},
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
    ties_embeddings: bool,
    /// Whether the config has `final_logit_softcapping`.
    softcaps_logits: bool,
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
            ties_embeddings: config.ties_embeddings,
            softcaps_logits: config.softcaps_logits,
            settings: Settings::default(),
        }
    }

    /// `get_peft_model(model, LoraConfig(...))`: freezes the model and adds adapters.
    pub fn adapt(&mut self, torch: &Torch, lora: &Lora) {
        self.lm_head.freeze();
        self.body.adapt(torch, lora);
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
        let mut logits = self.lm_head.forward(torch, &hidden_states);
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
        let head = if self.ties_embeddings { Vec::new() } else { self.lm_head.parameters() };
        self.body.parameters().into_iter().chain(head).filter(|parameter| parameter.requires_grad()).collect()
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
