//! GPT-2: modeling_gpt2.py.

use std::rc::Rc;

use super::{
    AttentionKind, Config,
    attention::flash_attention,
    body::{Body, Inputs, Settings},
    masks::Pattern,
    modules::{LayerNorm, Linear, Lora},
    quantized::Checkpoint,
};
use crate::{
    dtype::Dtype,
    torch::{Function, Tensor, Torch},
};

#[derive(Clone, Debug)]
struct Attention {
    c_attn: Linear,
    c_proj: Linear,
    heads: u64,
    kind: AttentionKind,
    drops: bool,
    drops_output: bool,
}

impl Attention {
    fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let c = config.hidden_size;
        Self {
            c_attn: Linear::conv1d(torch, "attn.c_attn", [c, 3 * c], dtype),
            c_proj: Linear::conv1d(torch, "attn.c_proj", [c, c], dtype),
            heads: config.heads,
            kind: config.attention,
            drops: config.drops_attention,
            drops_output: config.drops_residual,
        }
    }

    /// The output, and the weights if the implementation returns them.
    fn forward(&self, torch: &Torch, hidden_states: &Tensor, mask: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let &[b, t, c] = hidden_states.sizes() else { return (hidden_states.clone(), None) };
        let heads = |x: &Tensor| torch.transpose(&torch.reshape(x, &[b, t, self.heads, c / self.heads]), [1, 2]);
        let c_attn = self.c_attn.forward(torch, hidden_states);
        let scope = torch.enter("attn");
        let [mut query_states, mut key_states, mut value_states] = torch.split3(&c_attn);
        drop(c_attn);
        key_states = heads(&key_states);
        value_states = heads(&value_states);
        query_states = heads(&query_states);
        let drops = self.drops && torch.is_training();
        let (mut attn_output, attn_weights) = match mask {
            None if self.kind == AttentionKind::FlashAttention2 => {
                let output = flash_attention(torch, [&query_states, &key_states, &value_states], drops);
                (torch.transpose(&output, [1, 2]), None)
            }
            None => (torch.scaled_dot_product_attention(&query_states, &key_states, &value_states, drops), None),
            Some(mask) => {
                let (output, weights) = eager(torch, [&query_states, &key_states, &value_states], mask, drops);
                (output, Some(weights))
            }
        };
        attn_output = torch.contiguous(&torch.transpose(&attn_output, [1, 2]));
        attn_output = torch.reshape(&attn_output, &[b, t, c]);
        drop(scope);
        attn_output = self.c_proj.forward(torch, &attn_output);
        attn_output = torch.dropout(&attn_output, self.drops_output && torch.is_training());
        (attn_output, attn_weights)
    }
}

/// `eager_attention_forward`: the output by head, and the weights.
fn eager(torch: &Torch, [q, k, v]: [&Tensor; 3], mask: &Tensor, drops: bool) -> (Tensor, Tensor) {
    let mut attn_weights = torch.scale(&torch.matmul(q, &torch.transpose(k, [0, 1])));
    attn_weights = torch.add(&attn_weights, mask);
    attn_weights = torch.softmax(&attn_weights);
    attn_weights = torch.cast(&attn_weights, v.dtype());
    attn_weights = torch.dropout(&attn_weights, drops);
    (torch.matmul(&attn_weights, v), attn_weights)
}

#[derive(Clone, Debug)]
struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
    config: Rc<Config>,
}

impl Mlp {
    fn new(torch: &Torch, config: &Rc<Config>, dtype: Dtype) -> Self {
        let [c, i] = [config.hidden_size, config.intermediate_size];
        Self {
            c_fc: Linear::conv1d(torch, "mlp.c_fc", [c, i], dtype),
            c_proj: Linear::conv1d(torch, "mlp.c_proj", [i, c], dtype),
            config: Rc::clone(config),
        }
    }

    fn forward(&self, torch: &Torch, hidden_states: &Tensor) -> Tensor {
        let mut hidden_states = self.c_fc.forward(torch, hidden_states);
        hidden_states = {
            let _scope = torch.enter("mlp.act");
            self.config.activation.forward(torch, &hidden_states)
        };
        hidden_states = self.c_proj.forward(torch, &hidden_states);
        torch.dropout(&hidden_states, self.config.drops_residual && torch.is_training())
    }
}

/// `GPT2Block`.
#[derive(Clone, Debug)]
struct Block {
    index: u64,
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

impl Block {
    fn new(torch: &Torch, index: u64, config: &Rc<Config>, dtype: Dtype) -> Self {
        let _scope = torch.enter_block("transformer.h", index);
        let norm = |name| LayerNorm::new(torch, name, config.hidden_size, dtype);
        let ln_1 = norm("ln_1");
        let attn = Attention::new(torch, config, dtype);
        let ln_2 = norm("ln_2");
        Self { index, ln_1, attn, ln_2, mlp: Mlp::new(torch, config, dtype) }
    }

    fn forward(&self, torch: &Torch, hidden_states: Tensor, mask: Option<&Tensor>) -> Tensor {
        let _scope = torch.enter_block("transformer.h", self.index);
        let residual = hidden_states;
        let mut hidden_states = self.ln_1.forward(torch, &residual);
        let (attn_output, attn_weights) = self.attn.forward(torch, &hidden_states, mask);
        hidden_states = torch.add(&attn_output, &residual);
        let residual = {
            let _before = residual;
            hidden_states
        };
        let mut hidden_states = self.ln_2.forward(torch, &residual);
        let feed_forward_hidden_states = self.mlp.forward(torch, &hidden_states);
        hidden_states = torch.add(&residual, &feed_forward_hidden_states);
        // Variables of the frame, in order.
        [residual, attn_output].into_iter().chain(attn_weights).chain([feed_forward_hidden_states]).for_each(drop);
        hidden_states
    }

    fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let _scope = checkpoint.torch.enter_block("transformer.h", self.index);
        self.attn.c_attn.load_quantized(checkpoint);
        self.attn.c_proj.load_quantized(checkpoint);
        self.ln_1.load(checkpoint);
        self.ln_2.load(checkpoint);
        self.mlp.c_fc.load_quantized(checkpoint);
        self.mlp.c_proj.load_quantized(checkpoint);
    }

    fn full_parameters(&mut self) -> Vec<&mut Tensor> {
        let Self { ln_1, attn, ln_2, mlp, .. } = self;
        let of_attention = [&mut attn.c_attn, &mut attn.c_proj].into_iter().flat_map(Linear::full_parameters);
        let of_mlp = [&mut mlp.c_fc, &mut mlp.c_proj].into_iter().flat_map(Linear::full_parameters);
        let first = ln_1.full_parameters().into_iter().chain(of_attention);
        first.chain(ln_2.full_parameters()).chain(of_mlp).collect()
    }

    fn linears(&mut self) -> [&mut Linear; 4] {
        [&mut self.attn.c_attn, &mut self.attn.c_proj, &mut self.mlp.c_fc, &mut self.mlp.c_proj]
    }

    /// In the order of `named_parameters()`.
    fn parameters(&self) -> Vec<&Tensor> {
        [
            self.ln_1.parameters(),
            self.attn.c_attn.parameters(),
            self.attn.c_proj.parameters(),
            self.ln_2.parameters(),
            self.mlp.c_fc.parameters(),
            self.mlp.c_proj.parameters(),
        ]
        .concat()
    }
}

/// `GPT2Model`.
#[derive(Debug)]
pub struct Gpt2 {
    wte: Tensor,
    /// The trainable copy of `modules_to_save`.
    saved_wte: Option<Tensor>,
    wpe: Tensor,
    h: Vec<Rc<Block>>,
    ln_f: LayerNorm,
    drops: bool,
    attention: AttentionKind,
}

impl Gpt2 {
    pub fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let embedding = |name, rows| {
            let _scope = torch.enter(name);
            torch.parameter("weight", &[rows, config.hidden_size], dtype)
        };
        let shared = Rc::new(config.clone());
        Self {
            wte: embedding("transformer.wte", config.vocab_size),
            saved_wte: None,
            wpe: embedding("transformer.wpe", config.positions.unwrap_or(0)),
            h: (0..config.layers).map(|index| Rc::new(Block::new(torch, index, &shared, dtype))).collect(),
            ln_f: LayerNorm::new(torch, "transformer.ln_f", config.hidden_size, dtype),
            drops: config.drops_embeddings,
            attention: config.attention,
        }
    }
}

impl Body for Gpt2 {
    fn forward(&self, torch: &Torch, inputs: Inputs<'_>, settings: &Settings) -> Tensor {
        let inputs_embeds = {
            let _scope = torch.enter("transformer.wte");
            settings.hook(torch, torch.embedding(inputs.ids, self.saved_wte.as_ref().unwrap_or(&self.wte)))
        };
        let position_ids = inputs.positions(torch);
        let position_embeds = {
            let _scope = torch.enter("transformer.wpe");
            torch.embedding(&position_ids, &self.wpe)
        };
        let mut hidden_states = torch.add(&inputs_embeds, &position_embeds);
        let mask = inputs.mask(torch, self.attention, Pattern::Causal, inputs_embeds.dtype());
        hidden_states = torch.dropout(&hidden_states, self.drops && torch.is_training());
        for block in &self.h {
            let (block, held) = (Rc::clone(block), (position_ids.clone(), mask.clone()));
            let function: Rc<Function> = Rc::new(move |torch, x| {
                let (_position_ids, mask) = &held;
                block.forward(torch, x, mask.as_ref())
            });
            hidden_states = settings.call(torch, &function, hidden_states.clone());
        }
        hidden_states = self.ln_f.forward(torch, &hidden_states);
        [position_ids, inputs_embeds, position_embeds].into_iter().chain(mask).for_each(drop);
        hidden_states
    }

    fn adapt(&mut self, torch: &Torch, lora: &Lora) {
        self.wte = self.wte.detached();
        self.wpe = self.wpe.detached();
        self.ln_f.freeze();
        let mut blocks: Vec<_> = self.h.iter_mut().filter_map(Rc::get_mut).collect();
        for block in &mut blocks {
            let _scope = torch.enter_block("transformer.h", block.index);
            block.ln_1.freeze();
            block.ln_2.freeze();
            block.linears().into_iter().for_each(|linear| linear.adapt(torch, lora));
        }
    }

    fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        self.h.iter_mut().filter_map(Rc::get_mut).for_each(|block| block.load(checkpoint));
        self.ln_f.load(checkpoint);
        for (name, weight) in [("transformer.wpe", &mut self.wpe), ("transformer.wte", &mut self.wte)] {
            let _scope = checkpoint.torch.enter(name);
            checkpoint.load("weight", weight);
        }
    }

    fn linears(&mut self) -> Vec<&mut Linear> {
        self.h.iter_mut().filter_map(Rc::get_mut).flat_map(Block::linears).collect()
    }

    fn full_parameters(&mut self) -> Vec<&mut Tensor> {
        let blocks = self.h.iter_mut().filter_map(Rc::get_mut).flat_map(Block::full_parameters);
        [&mut self.wte, &mut self.wpe].into_iter().chain(blocks).chain(self.ln_f.full_parameters()).collect()
    }

    fn embeddings(&self) -> &Tensor {
        &self.wte
    }

    fn all_embeddings(&self) -> Vec<&Tensor> {
        [&self.wte].into_iter().chain(&self.saved_wte).chain([&self.wpe]).collect()
    }

    fn save_embeddings(&mut self, torch: &Torch) {
        let _scope = torch.enter("transformer.wte");
        self.saved_wte = Some(torch.parameter("weight", self.wte.sizes(), self.wte.dtype()));
    }

    fn parameters(&self) -> Vec<&Tensor> {
        let blocks = self.h.iter().flat_map(|block| block.parameters());
        self.all_embeddings().into_iter().chain(blocks).chain(self.ln_f.parameters()).collect()
    }
}
