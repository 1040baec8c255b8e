//! The decoder: modeling_llama.py, and the families that differ from it in a few lines.

use std::{cell::Cell, rc::Rc};

use super::{
    Config, Family,
    modules::{Linear, Lora, RmsNorm, RotaryEmbedding, rotate},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    torch::{Function, Tensor, Torch},
};

#[derive(Clone, Debug)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    /// `q_norm` and `k_norm` of Qwen3.
    norms: Option<[RmsNorm; 2]>,
    config: Config,
}

impl Attention {
    fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let [q, kv] = [config.heads, config.key_value_heads].map(|heads| heads * config.head_dim);
        let linear = |name, sizes, has_bias| Linear::new(torch, name, sizes, has_bias, dtype);
        Self {
            q_proj: linear("self_attn.q_proj", [config.hidden_size, q], config.has_attention_bias),
            k_proj: linear("self_attn.k_proj", [config.hidden_size, kv], config.has_attention_bias),
            v_proj: linear("self_attn.v_proj", [config.hidden_size, kv], config.has_attention_bias),
            o_proj: linear("self_attn.o_proj", [q, config.hidden_size], config.has_output_bias),
            norms: (config.family == Family::Qwen3).then(|| {
                ["self_attn.q_norm", "self_attn.k_norm"].map(|name| RmsNorm::new(torch, name, config.head_dim, dtype))
            }),
            config: *config,
        }
    }

    fn forward(&self, torch: &Torch, hidden_states: &Tensor, position_embeddings: &[Tensor; 2]) -> Tensor {
        let &[b, t, _] = hidden_states.sizes() else { return hidden_states.clone() };
        let heads = |x: Tensor, norm: Option<&RmsNorm>| {
            let x = torch.reshape(&x, &[b, t, x.layout().from_last(0) / self.config.head_dim, self.config.head_dim]);
            let x = norm.map_or_else(|| x.clone(), |norm| norm.forward(torch, &x));
            torch.transpose(&x, [1, 2])
        };
        let [q_norm, k_norm] = [0, 1].map(|at| self.norms.as_ref().map(|norms| &norms[at]));
        let mut query_states = heads(self.q_proj.forward(torch, hidden_states), q_norm);
        let mut key_states = heads(self.k_proj.forward(torch, hidden_states), k_norm);
        let value_states = heads(self.v_proj.forward(torch, hidden_states), None);
        let embedded = [&query_states, &key_states].map(|x| rotate(torch, x, position_embeddings));
        [query_states, key_states] = embedded;
        let drops = self.config.drops_attention;
        let scope = torch.enter("self_attn");
        let mut attn_output = torch.scaled_dot_product_attention(&query_states, &key_states, &value_states, drops);
        attn_output = torch.contiguous(&torch.transpose(&attn_output, [1, 2]));
        attn_output = torch.reshape(&attn_output, &[b, t, self.config.heads * self.config.head_dim]);
        drop(scope);
        attn_output = self.o_proj.forward(torch, &attn_output);
        drop(query_states);
        drop(key_states);
        drop(value_states);
        attn_output
    }

    fn linears(&mut self) -> [&mut Linear; 4] {
        [&mut self.q_proj, &mut self.k_proj, &mut self.v_proj, &mut self.o_proj]
    }
}

#[derive(Clone, Debug)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let [c, i] = [config.hidden_size, config.intermediate_size];
        let linear = |name, sizes| Linear::new(torch, name, sizes, config.has_mlp_bias, dtype);
        Self {
            gate_proj: linear("mlp.gate_proj", [c, i]),
            up_proj: linear("mlp.up_proj", [c, i]),
            down_proj: linear("mlp.down_proj", [i, c]),
        }
    }

    fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let gate = torch.silu(&self.gate_proj.forward(torch, x));
        let up = self.up_proj.forward(torch, x);
        let product = torch.mul(&gate, &up);
        drop(gate);
        drop(up);
        self.down_proj.forward(torch, &product)
    }

    fn linears(&mut self) -> [&mut Linear; 3] {
        [&mut self.gate_proj, &mut self.up_proj, &mut self.down_proj]
    }
}

/// `LlamaDecoderLayer`.
#[derive(Clone, Debug)]
struct Layer {
    index: u64,
    self_attn: Attention,
    mlp: Mlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl Layer {
    fn new(torch: &Torch, index: u64, config: &Config, dtype: Dtype) -> Self {
        let _scope = torch.enter_block("model.layers", index);
        let norm = |name| RmsNorm::new(torch, name, config.hidden_size, dtype);
        Self {
            index,
            self_attn: Attention::new(torch, config, dtype),
            mlp: Mlp::new(torch, config, dtype),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
        }
    }

    fn forward(&self, torch: &Torch, hidden_states: Tensor, position_embeddings: &[Tensor; 2]) -> Tensor {
        let _scope = torch.enter_block("model.layers", self.index);
        let residual = hidden_states;
        let mut hidden_states = self.input_layernorm.forward(torch, &residual);
        hidden_states = self.self_attn.forward(torch, &hidden_states, position_embeddings);
        hidden_states = torch.add(&residual, &hidden_states);
        let residual = {
            let _before = residual;
            hidden_states
        };
        let mut hidden_states = self.post_attention_layernorm.forward(torch, &residual);
        hidden_states = self.mlp.forward(torch, &hidden_states);
        hidden_states = torch.add(&residual, &hidden_states);
        hidden_states
    }

    fn linears(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.self_attn.linears().into_iter().chain(self.mlp.linears())
    }

    /// In the order of `named_parameters()`.
    fn parameters(&self) -> Vec<&Tensor> {
        let Attention { q_proj, k_proj, v_proj, o_proj, norms, .. } = &self.self_attn;
        let Mlp { gate_proj, up_proj, down_proj } = &self.mlp;
        [
            [q_proj, k_proj, v_proj, o_proj].map(Linear::parameters).concat(),
            norms.iter().flatten().flat_map(RmsNorm::parameters).collect(),
            [gate_proj, up_proj, down_proj].map(Linear::parameters).concat(),
            self.input_layernorm.parameters(),
            self.post_attention_layernorm.parameters(),
        ]
        .concat()
    }

    fn freeze_norms(&mut self) {
        let of_heads = self.self_attn.norms.iter_mut().flatten();
        let norms = [&mut self.input_layernorm, &mut self.post_attention_layernorm].into_iter().chain(of_heads);
        norms.for_each(RmsNorm::freeze);
    }
}

/// How the layers are checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpointing {
    /// `use_reentrant=False`.
    NonReentrant,
    /// `use_reentrant=True`.
    Reentrant,
}

/// A causal language model.
#[derive(Debug)]
pub struct CausalLm {
    embed_tokens: Tensor,
    layers: Vec<Rc<Layer>>,
    norm: RmsNorm,
    rotary_emb: RotaryEmbedding,
    lm_head: Linear,
    ties_embeddings: bool,
    /// `gradient_checkpointing_enable`.
    pub checkpointing: Option<Checkpointing>,
    /// `enable_input_require_grads`.
    pub inputs_require_grads: bool,
    /// Number of the embeddings' gradient.
    input_leaf: Cell<Option<usize>>,
}

impl CausalLm {
    /// `AutoModelForCausalLM.from_config(config, dtype)`.
    pub fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let embed_tokens = {
            let _scope = torch.enter("model.embed_tokens");
            torch.parameter("weight", &[config.vocab_size, config.hidden_size], dtype)
        };
        let layers = (0..config.layers).map(|index| Rc::new(Layer::new(torch, index, config, dtype))).collect();
        let norm = RmsNorm::new(torch, "model.norm", config.hidden_size, dtype);
        let rotary_emb = RotaryEmbedding::new(torch, config);
        rotary_emb.init_weights(torch);
        let lm_head = if config.ties_embeddings {
            drop(torch.empty("weight", &[config.vocab_size, config.hidden_size], dtype));
            Linear::tied("lm_head", &embed_tokens)
        } else {
            Linear::new(torch, "lm_head", [config.hidden_size, config.vocab_size], false, dtype)
        };
        let (checkpointing, inputs_require_grads, input_leaf) = (None, false, Cell::new(None));
        Self {
            embed_tokens,
            layers,
            norm,
            rotary_emb,
            lm_head,
            ties_embeddings: config.ties_embeddings,
            checkpointing,
            inputs_require_grads,
            input_leaf,
        }
    }

    /// `get_peft_model(model, LoraConfig(...))`: freezes the model and adds adapters.
    pub fn adapt(&mut self, torch: &Torch, lora: &Lora) {
        self.embed_tokens = self.embed_tokens.detached();
        self.norm.freeze();
        self.lm_head.freeze();
        let mut layers: Vec<_> = self.layers.iter_mut().filter_map(Rc::get_mut).collect();
        for layer in &mut layers {
            let _scope = torch.enter_block("model.layers", layer.index);
            layer.freeze_norms();
            layer.linears().for_each(|linear| linear.adapt(torch, lora));
        }
        for layer in &mut layers {
            let _scope = torch.enter_block("model.layers", layer.index);
            layer.linears().for_each(|linear| linear.widen(torch));
        }
    }

    /// The last hidden states, of `LlamaModel.forward`.
    fn hidden_states(&self, torch: &Torch, input_ids: &Tensor, attention_mask: Option<&Tensor>) -> Tensor {
        let mut inputs_embeds = {
            let _scope = torch.enter("model.embed_tokens");
            torch.embedding(input_ids, &self.embed_tokens)
        };
        if self.inputs_require_grads {
            self.input_leaf.set(Some(torch.require_grad(&mut inputs_embeds)));
        }
        let [t, b] = [0, 1].map(|n| input_ids.layout().from_last(n));
        let position_ids = {
            let _range = torch.empty("positions", &[t], Dtype::Int64);
            torch.empty("positions", &[t], Dtype::Int64)
        };
        match attention_mask {
            // `_preprocess_mask_arguments`: a mask of ones is no mask.
            Some(mask) => {
                let _mask = torch.empty("attention mask", mask.sizes(), Dtype::Bool);
                drop(torch.empty("whether all tokens are attended to", &[], Dtype::Bool));
            }
            None => find_packed_sequence_indices(torch, [b, t]),
        }
        let mut hidden_states = inputs_embeds.clone();
        let position_embeddings = self.rotary_emb.forward(torch, t, hidden_states.dtype());
        for layer in &self.layers {
            let held = (position_embeddings.clone(), position_ids.clone());
            hidden_states = self.call(torch, layer, hidden_states.clone(), held);
        }
        hidden_states = self.norm.forward(torch, &hidden_states);
        drop(position_ids);
        drop(inputs_embeds);
        hidden_states
    }

    /// `GradientCheckpointingLayer.__call__`. A checkpoint holds all arguments: rotary embeddings and positions.
    fn call(&self, torch: &Torch, layer: &Rc<Layer>, hidden_states: Tensor, held: ([Tensor; 2], Tensor)) -> Tensor {
        let Some(checkpointing) = self.checkpointing else {
            return layer.forward(torch, hidden_states, &held.0);
        };
        let layer = Rc::clone(layer);
        let function: Rc<Function> = Rc::new(move |torch, x| {
            let (position_embeddings, _position_ids) = &held;
            layer.forward(torch, x, position_embeddings)
        });
        match checkpointing {
            Checkpointing::NonReentrant => torch.checkpoint(&function, hidden_states),
            Checkpointing::Reentrant => torch.checkpoint_reentrant(&function, &hidden_states),
        }
    }

    /// Logits, and the loss divided by the number of targets.
    pub fn forward(
        &self,
        torch: &Torch,
        input_ids: &Tensor,
        labels: &Tensor,
        attention_mask: Option<&Tensor>,
        num_items: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        let hidden_states = self.hidden_states(torch, input_ids, attention_mask);
        let _scope = torch.enter_category(Category::LogitsAndLoss);
        let logits = self.lm_head.forward(torch, &hidden_states);
        let loss = causal_lm_loss(torch, &logits, labels, num_items);
        (logits, loss)
    }

    /// Frees the gradient of the embeddings, which ends with the graph.
    pub fn free_input_gradient(&self, torch: &Torch) {
        if let Some(leaf) = self.input_leaf.take() {
            drop(torch.remove_leaf(leaf));
        }
    }

    /// Parameters that require gradients, in the order of `named_parameters()`.
    pub fn parameters(&self) -> Vec<&Tensor> {
        let layers = self.layers.iter().flat_map(|layer| layer.parameters());
        let all = [&self.embed_tokens].into_iter().chain(layers).chain(self.norm.parameters());
        let head = if self.ties_embeddings { Vec::new() } else { self.lm_head.parameters() };
        all.chain(head).filter(|parameter| parameter.requires_grad()).collect()
    }
}

/// `find_packed_sequence_indices`, which does not find any.
fn find_packed_sequence_indices(torch: &Torch, [b, t]: [u64; 2]) {
    let empty = |sizes: &[u64], dtype| torch.empty("search for packed sequences", sizes, dtype);
    let first_dummy_value = empty(&[b, 1], Dtype::Int64);
    let position_diff = {
        let _positions = empty(&[b, t + 1], Dtype::Int64);
        empty(&[b, t], Dtype::Int64)
    };
    let packed_sequence_mask = {
        let _starts = empty(&[b, t], Dtype::Bool);
        let sums = empty(&[b, t], Dtype::Int64);
        drop(empty(&[b, t], Dtype::Int64));
        sums
    };
    let last = empty(&[b], Dtype::Bool);
    let all = empty(&[], Dtype::Bool);
    // Temporaries, then variables in the order of Python's frame.
    [last, all, first_dummy_value, position_diff, packed_sequence_mask].into_iter().for_each(drop);
}

/// `ForCausalLMLoss`.
fn causal_lm_loss(torch: &Torch, logits: &Tensor, labels: &Tensor, num_items: Option<&Tensor>) -> Tensor {
    let mut logits = torch.cast(logits, Dtype::Float32);
    let &[b, t, vocab_size] = logits.sizes() else { return logits };
    let padded = torch.empty("padded labels", &[b, t + 1], labels.dtype());
    let shift_labels = torch.empty("shifted labels", &[b * t], labels.dtype());
    logits = torch.reshape(&logits, &[b * t, vocab_size]);
    let mut loss = torch.cross_entropy(&logits, &shift_labels);
    if let Some(num_items) = num_items {
        loss = torch.div(&loss, num_items);
    }
    drop(logits);
    drop(padded);
    loss
}
