//! The attention of the decoder: projections, rotation, and the implementations of `attn_implementation`.

use std::rc::Rc;

use super::{
    AttentionKind, Config, Family,
    modules::{Linear, RmsNorm, rotate},
    quantized::Checkpoint,
};
use crate::{
    dtype::Dtype,
    torch::{Tensor, Torch},
};

/// `flash_attention_forward`, by token: q, k and v in half precision, without padding.
pub fn flash_attention(torch: &Torch, states: [&Tensor; 3], drops: bool) -> Tensor {
    // `fa_peft_integration_check`
    let is_float32 = states[0].dtype() == Dtype::Float32;
    let [q, k, v] = states.map(|x| if is_float32 { torch.lower(x) } else { x.clone() });
    let _is_packed = is_packed_sequence(torch, &q);
    torch.transpose(&torch.flash_attn_func(&q, &k, &v, drops), [1, 2])
}

/// `_is_packed_sequence`, of positions that are not: the variable that it leaves for a single sequence.
fn is_packed_sequence(torch: &Torch, q: &Tensor) -> Option<Tensor> {
    let [t, b] = [1, 3].map(|n| q.layout().from_last(n));
    let integers = |sizes: &[u64]| torch.empty("search for packed sequences", sizes, Dtype::Int64);
    let [range, min, _increasing] = [&[t][..], &[], &[t]].map(integers);
    drop(range);
    drop(min);
    (b == 1).then(|| {
        let sum = {
            let absolute = {
                let _difference = integers(&[1, t]);
                integers(&[1, t])
            };
            let sum = integers(&[]);
            drop(absolute);
            sum
        };
        let is_packed = torch.empty("search for packed sequences", &[], Dtype::Bool);
        drop(sum);
        is_packed
    })
}

/// `LlamaAttention`, and those of the families like it.
#[derive(Clone, Debug)]
pub struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    /// `q_norm` and `k_norm` of Qwen3 and Gemma 3.
    norms: Option<[RmsNorm; 2]>,
    config: Rc<Config>,
    has_rope: bool,
}

impl Attention {
    pub fn new(torch: &Torch, config: &Rc<Config>, has_rope: bool, dtype: Dtype) -> Self {
        let [q, kv] = [config.heads, config.key_value_heads].map(|heads| heads * config.head_dim);
        let linear = |name, sizes, has_bias| Linear::new(torch, name, sizes, has_bias, dtype);
        let norm = |name| RmsNorm::new(torch, name, config.head_dim, config.family, dtype);
        Self {
            q_proj: linear("self_attn.q_proj", [config.hidden_size, q], config.has_attention_bias),
            k_proj: linear("self_attn.k_proj", [config.hidden_size, kv], config.has_attention_bias),
            v_proj: linear("self_attn.v_proj", [config.hidden_size, kv], config.has_attention_bias),
            o_proj: linear("self_attn.o_proj", [q, config.hidden_size], config.has_output_bias),
            norms: config.family.has_head_norms().then(|| ["self_attn.q_norm", "self_attn.k_norm"].map(norm)),
            config: Rc::clone(config),
            has_rope,
        }
    }

    /// The output, and the weights if the implementation returns them.
    pub fn forward(
        &self,
        torch: &Torch,
        hidden_states: &Tensor,
        position_embeddings: &[Tensor; 2],
        mask: Option<&Tensor>,
    ) -> (Tensor, Option<Tensor>) {
        let &[b, t, _] = hidden_states.sizes() else { return (hidden_states.clone(), None) };
        let [mut query_states, mut key_states, value_states] = self.project(torch, hidden_states);
        if self.has_rope {
            let embedded = [&query_states, &key_states].map(|x| rotate(torch, x, position_embeddings));
            [query_states, key_states] = embedded;
        }
        let scope = torch.enter("self_attn");
        let (mut attn_output, attn_weights) = match self.config.attention {
            AttentionKind::Sdpa => (self.sdpa(torch, [&query_states, &key_states, &value_states], mask), None),
            AttentionKind::Eager => {
                let (output, weights) = self.eager(torch, [&query_states, &key_states, &value_states], mask);
                (output, Some(weights))
            }
            AttentionKind::FlashAttention2 => {
                let drops = self.config.drops_attention && torch.is_training();
                (flash_attention(torch, [&query_states, &key_states, &value_states], drops), None)
            }
        };
        attn_output = torch.reshape(&attn_output, &[b, t, self.config.heads * self.config.head_dim]);
        drop(scope);
        attn_output = self.o_proj.forward(torch, &attn_output);
        drop(query_states);
        drop(key_states);
        drop(value_states);
        (attn_output, attn_weights)
    }

    /// Queries, keys and values by head. Gemma 3 normalizes after the transposition, Qwen3 before it.
    fn project(&self, torch: &Torch, hidden_states: &Tensor) -> [Tensor; 3] {
        let normalizes_first = self.config.family != Family::Gemma3;
        let heads = |linear: &Linear, norm: Option<&RmsNorm>| {
            let x = linear.forward(torch, hidden_states);
            let &[b, t, channels] = x.sizes() else { return x };
            let x = torch.reshape(&x, &[b, t, channels / self.config.head_dim, self.config.head_dim]);
            let x = norm.filter(|_| normalizes_first).map_or_else(|| x.clone(), |norm| norm.forward(torch, &x));
            torch.transpose(&x, [1, 2])
        };
        let norms = self.norms.as_ref();
        let [q_norm, k_norm] = [0, 1].map(|at| norms.map(|norms| &norms[at]));
        let mut query_states = heads(&self.q_proj, q_norm);
        let mut key_states = heads(&self.k_proj, k_norm);
        let value_states = heads(&self.v_proj, None);
        if let (false, Some([q_norm, k_norm])) = (normalizes_first, norms) {
            query_states = q_norm.forward(torch, &query_states);
            key_states = k_norm.forward(torch, &key_states);
        }
        [query_states, key_states, value_states]
    }

    /// `sdpa_attention_forward`: with a mask, the keys and values are copied for each head of queries.
    fn sdpa(&self, torch: &Torch, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> Tensor {
        let drops = self.config.drops_attention && torch.is_training();
        match mask {
            Some(mask) => {
                let [k, v] = [k, v].map(|x| torch.expand_heads(x, self.groups()));
                let out = torch.masked_attention(q, &k, &v, mask, drops);
                torch.contiguous(&torch.transpose(&out, [1, 2]))
            }
            None => {
                let out = torch.scaled_dot_product_attention(q, k, v, drops);
                torch.contiguous(&torch.transpose(&out, [1, 2]))
            }
        }
    }

    /// `eager_attention_forward`: the output and the weights.
    fn eager(&self, torch: &Torch, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> (Tensor, Tensor) {
        let [key_states, value_states] = [k, v].map(|x| torch.expand_heads(x, self.groups()));
        let mut attn_weights = torch.scale(&torch.matmul(q, &torch.transpose(&key_states, [0, 1])));
        if self.config.softcaps_attention {
            attn_weights = torch.scale(&attn_weights);
            attn_weights = torch.function("tanh", &attn_weights);
            attn_weights = torch.scale(&attn_weights);
        }
        if let Some(mask) = mask {
            attn_weights = torch.add(&attn_weights, mask);
        }
        attn_weights = torch.cast(&torch.softmax_float32(&attn_weights), q.dtype());
        attn_weights = torch.dropout(&attn_weights, self.config.drops_attention && torch.is_training());
        let mut attn_output = torch.matmul(&attn_weights, &value_states);
        attn_output = torch.contiguous(&torch.transpose(&attn_output, [1, 2]));
        (attn_output, attn_weights)
    }

    /// `num_key_value_groups`.
    fn groups(&self) -> u64 {
        self.config.heads / self.config.key_value_heads.max(1)
    }

    pub fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let Self { q_proj, k_proj, v_proj, o_proj, norms, .. } = self;
        let [mut q_norm, mut k_norm] = [None, None];
        if let Some([q, k]) = norms {
            [q_norm, k_norm] = [Some(q), Some(k)];
        }
        k_norm.into_iter().for_each(|norm| norm.load(checkpoint));
        k_proj.load_quantized(checkpoint);
        o_proj.load_quantized(checkpoint);
        q_norm.into_iter().for_each(|norm| norm.load(checkpoint));
        q_proj.load_quantized(checkpoint);
        v_proj.load_quantized(checkpoint);
    }

    pub fn full_parameters(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let Self { q_proj, k_proj, v_proj, o_proj, norms, .. } = self;
        let norms = norms.iter_mut().flatten().map(RmsNorm::full_parameter);
        [q_proj, k_proj, v_proj, o_proj].into_iter().flat_map(Linear::full_parameters).chain(norms)
    }

    pub fn linears(&mut self) -> [&mut Linear; 4] {
        [&mut self.q_proj, &mut self.k_proj, &mut self.v_proj, &mut self.o_proj]
    }

    pub fn norms(&mut self) -> impl Iterator<Item = &mut RmsNorm> {
        self.norms.iter_mut().flatten()
    }

    /// In the order of `named_parameters()`.
    pub fn parameters(&self) -> Vec<&Tensor> {
        let Self { q_proj, k_proj, v_proj, o_proj, norms, .. } = self;
        let norms = norms.iter().flatten().flat_map(RmsNorm::parameters);
        [q_proj, k_proj, v_proj, o_proj].into_iter().flat_map(Linear::parameters).chain(norms).collect()
    }
}
