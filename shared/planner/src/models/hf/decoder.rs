//! The decoder: modeling_llama.py, and the families that differ from it in a few lines.

use std::rc::Rc;

use super::{
    Activation, Config, Family, LayerKind,
    attention::Attention,
    body::{Body, Inputs, Settings},
    masks::Pattern,
    modules::{Linear, Lora, RmsNorm, RotaryEmbedding},
    quantized::Checkpoint,
};
use crate::{
    dtype::Dtype,
    torch::{Function, Tensor, Torch},
};

#[derive(Clone, Debug)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    activation: Activation,
}

impl Mlp {
    fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let [c, i] = [config.hidden_size, config.intermediate_size];
        let linear = |name, sizes| Linear::new(torch, name, sizes, config.has_mlp_bias, dtype);
        Self {
            gate_proj: linear("mlp.gate_proj", [c, i]),
            up_proj: linear("mlp.up_proj", [c, i]),
            down_proj: linear("mlp.down_proj", [i, c]),
            activation: config.activation,
        }
    }

    fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let gate = self.activation.forward(torch, &self.gate_proj.forward(torch, x));
        let up = self.up_proj.forward(torch, x);
        let product = torch.mul(&gate, &up);
        drop(gate);
        drop(up);
        self.down_proj.forward(torch, &product)
    }

    fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let linears = [&mut self.down_proj, &mut self.gate_proj, &mut self.up_proj];
        linears.into_iter().for_each(|linear| linear.load_quantized(checkpoint));
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
    /// `pre_feedforward_layernorm` and `post_feedforward_layernorm` of Gemma.
    feedforward_layernorms: Option<[RmsNorm; 2]>,
}

impl Layer {
    fn new(torch: &Torch, index: u64, kind: LayerKind, config: &Rc<Config>, dtype: Dtype) -> Self {
        let _scope = torch.enter_block("model.layers", index);
        let norm = |name| RmsNorm::new(torch, name, config.hidden_size, config.family, dtype);
        Self {
            index,
            self_attn: Attention::new(torch, config, kind.has_rope, dtype),
            mlp: Mlp::new(torch, config, dtype),
            input_layernorm: norm("input_layernorm"),
            post_attention_layernorm: norm("post_attention_layernorm"),
            feedforward_layernorms: config
                .family
                .is_gemma()
                .then(|| ["pre_feedforward_layernorm", "post_feedforward_layernorm"].map(norm)),
        }
    }

    fn forward(&self, torch: &Torch, hidden_states: Tensor, arguments: &Arguments) -> Tensor {
        let _scope = torch.enter_block("model.layers", self.index);
        let Arguments { position_embeddings, mask, .. } = arguments;
        let residual = hidden_states;
        let mut hidden_states = self.input_layernorm.forward(torch, &residual);
        let (output, _attn_weights) = self.self_attn.forward(torch, &hidden_states, position_embeddings, mask.as_ref());
        hidden_states = output;
        match &self.feedforward_layernorms {
            None => self.feedforward(torch, residual, hidden_states),
            Some(norms) => self.normalized_feedforward(torch, residual, hidden_states, norms),
        }
    }

    fn feedforward(&self, torch: &Torch, residual: Tensor, mut hidden_states: Tensor) -> Tensor {
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

    /// Gemma's layers normalize the outputs of attention and MLP too.
    fn normalized_feedforward(
        &self,
        torch: &Torch,
        residual: Tensor,
        mut hidden_states: Tensor,
        [before, after]: &[RmsNorm; 2],
    ) -> Tensor {
        hidden_states = self.post_attention_layernorm.forward(torch, &hidden_states);
        hidden_states = torch.add(&residual, &hidden_states);
        let residual = {
            let _before = residual;
            hidden_states
        };
        let mut hidden_states = before.forward(torch, &residual);
        hidden_states = self.mlp.forward(torch, &hidden_states);
        hidden_states = after.forward(torch, &hidden_states);
        hidden_states = torch.add(&residual, &hidden_states);
        hidden_states
    }

    fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let _scope = checkpoint.torch.enter_block("model.layers", self.index);
        self.input_layernorm.load(checkpoint);
        self.mlp.load(checkpoint);
        self.post_attention_layernorm.load(checkpoint);
        if let Some([before, after]) = &mut self.feedforward_layernorms {
            after.load(checkpoint);
            before.load(checkpoint);
        }
        self.self_attn.load(checkpoint);
    }

    fn full_parameters(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let norms = [&mut self.input_layernorm, &mut self.post_attention_layernorm].into_iter();
        let norms = norms.chain(self.feedforward_layernorms.iter_mut().flatten());
        let mlp = self.mlp.linears().into_iter().flat_map(Linear::full_parameters);
        self.self_attn.full_parameters().chain(mlp).chain(norms.map(RmsNorm::full_parameter))
    }

    fn linears(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.self_attn.linears().into_iter().chain(self.mlp.linears())
    }

    /// In the order of `named_parameters()`.
    fn parameters(&self) -> Vec<&Tensor> {
        let Mlp { gate_proj, up_proj, down_proj, .. } = &self.mlp;
        let norms = [&self.input_layernorm, &self.post_attention_layernorm];
        let norms = norms.into_iter().chain(self.feedforward_layernorms.iter().flatten());
        let linears = [gate_proj, up_proj, down_proj].into_iter().flat_map(Linear::parameters);
        self.self_attn.parameters().into_iter().chain(linears).chain(norms.flat_map(RmsNorm::parameters)).collect()
    }

    fn freeze_norms(&mut self) {
        let norms = [&mut self.input_layernorm, &mut self.post_attention_layernorm].into_iter();
        let norms = norms.chain(self.feedforward_layernorms.iter_mut().flatten()).chain(self.self_attn.norms());
        norms.for_each(RmsNorm::freeze);
    }
}

/// Arguments of a layer besides the hidden states. A checkpoint holds them.
#[derive(Clone, Debug)]
struct Arguments {
    position_embeddings: [Tensor; 2],
    mask: Option<Tensor>,
    _position_ids: Tensor,
}

/// `LlamaModel`, and those of the families like it.
#[derive(Debug)]
pub struct Decoder {
    embed_tokens: Tensor,
    /// The trainable copy of `modules_to_save`, with its `embed_scale`.
    saved_embed_tokens: Option<(Tensor, Option<Tensor>)>,
    /// `embed_scale` of Gemma, in the default dtype, which `from_config` sets to that of the weights.
    embed_scale: Option<Tensor>,
    layers: Vec<Rc<Layer>>,
    norm: RmsNorm,
    /// Rotary embeddings: of all layers, or of full and of sliding attention.
    rotary_embs: Vec<(Option<bool>, RotaryEmbedding)>,
    config: Rc<Config>,
}

impl Decoder {
    pub fn new(torch: &Torch, config: &Config, dtype: Dtype) -> Self {
        let config = Rc::new(config.clone());
        let (embed_tokens, embed_scale) = {
            let _scope = torch.enter("model.embed_tokens");
            let weight = torch.parameter("weight", &[config.vocab_size, config.hidden_size], dtype);
            (weight, config.family.is_gemma().then(|| torch.buffer("embed_scale", &[], dtype)))
        };
        let layers = (0..).zip(&config.layer_kinds);
        let layers = layers.map(|(index, &kind)| Rc::new(Layer::new(torch, index, kind, &config, dtype))).collect();
        let norm = RmsNorm::new(torch, "model.norm", config.hidden_size, config.family, dtype);
        let rotary = |of| (of, RotaryEmbedding::new(torch, &config));
        let rotary_embs: Vec<_> = match config.family {
            Family::Gemma3 => {
                let exists = |is_sliding: &bool| config.layer_kinds.iter().any(|kind| kind.is_sliding == *is_sliding);
                [false, true].into_iter().filter(exists).map(|is_sliding| rotary(Some(is_sliding))).collect()
            }
            _ => vec![rotary(None)],
        };
        rotary_embs.iter().for_each(|(_, rotary_emb)| rotary_emb.init_weights(torch));
        Self { embed_tokens, saved_embed_tokens: None, embed_scale, layers, norm, rotary_embs, config }
    }

    fn embed(&self, torch: &Torch, input_ids: &Tensor) -> Tensor {
        let _scope = torch.enter("model.embed_tokens");
        let (weight, scale) = match &self.saved_embed_tokens {
            Some((weight, scale)) => (weight, scale),
            None => (&self.embed_tokens, &self.embed_scale),
        };
        let embedded = torch.embedding(input_ids, weight);
        let Some(scale) = scale else { return embedded };
        torch.mul(&embedded, scale)
    }

    /// The masks of full and of sliding attention, if the model creates them.
    fn masks(&self, torch: &Torch, inputs: Inputs<'_>, dtype: Dtype) -> [Option<Tensor>; 2] {
        let has_sliding = self.config.layer_kinds.iter().any(|kind| kind.is_sliding);
        let [creates_full, creates_sliding] = match self.config.family {
            Family::Mistral => [!has_sliding, has_sliding],
            Family::Gemma2 | Family::Gemma3 => [true; 2],
            _ => [true, has_sliding],
        };
        let create = |pattern| inputs.mask(torch, self.config.attention, pattern, dtype);
        let full = if creates_full { create(Pattern::Causal) } else { None };
        let window = Pattern::Sliding(self.config.sliding_window.unwrap_or(u64::MAX));
        [full, if creates_sliding { create(window) } else { None }]
    }
}

impl Body for Decoder {
    fn adapt(&mut self, torch: &Torch, lora: &Lora) {
        self.embed_tokens = self.embed_tokens.detached();
        self.norm.freeze();
        let mut layers: Vec<_> = self.layers.iter_mut().filter_map(Rc::get_mut).collect();
        for layer in &mut layers {
            let _scope = torch.enter_block("model.layers", layer.index);
            layer.freeze_norms();
            layer.linears().for_each(|linear| linear.adapt(torch, lora));
        }
    }

    fn forward(&self, torch: &Torch, inputs: Inputs<'_>, settings: &Settings) -> Tensor {
        let inputs_embeds = settings.hook(torch, self.embed(torch, inputs.ids));
        let position_ids = inputs.positions(torch);
        let masks = self.masks(torch, inputs, inputs_embeds.dtype());
        let mut hidden_states = inputs_embeds.clone();
        let rotary = |(of, rotary_emb): &(Option<bool>, RotaryEmbedding)| {
            (*of, rotary_emb.forward(torch, inputs.sizes()[0], inputs_embeds.dtype()))
        };
        let position_embeddings: Vec<_> = self.rotary_embs.iter().map(rotary).collect();
        for (layer, kind) in self.layers.iter().zip(&self.config.layer_kinds) {
            let is_of_layer = |(of, _): &&(Option<bool>, [Tensor; 2])| of.is_none_or(|of| of == kind.is_sliding);
            let Some((_, position_embeddings)) = position_embeddings.iter().find(is_of_layer) else { continue };
            let arguments = Arguments {
                position_embeddings: position_embeddings.clone(),
                mask: masks[usize::from(kind.is_sliding)].clone(),
                _position_ids: position_ids.clone(),
            };
            let layer = Rc::clone(layer);
            let function: Rc<Function> = Rc::new(move |torch, x| layer.forward(torch, x, &arguments));
            hidden_states = settings.call(torch, &function, hidden_states.clone());
        }
        hidden_states = self.norm.forward(torch, &hidden_states);
        drop(position_ids);
        drop(inputs_embeds);
        hidden_states
    }

    fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let torch = checkpoint.torch;
        {
            let _scope = torch.enter("model.embed_tokens");
            checkpoint.load("weight", &mut self.embed_tokens);
        }
        self.layers.iter_mut().filter_map(Rc::get_mut).for_each(|layer| layer.load(checkpoint));
        self.norm.load(checkpoint);
        if let Some(scale) = &mut self.embed_scale {
            let _scope = torch.enter("model.embed_tokens");
            *scale = torch.buffer("embed_scale", &[], scale.dtype());
        }
        self.rotary_embs.iter_mut().for_each(|(_, rotary_emb)| rotary_emb.load(torch));
    }

    fn linears(&mut self) -> Vec<&mut Linear> {
        self.layers.iter_mut().filter_map(Rc::get_mut).flat_map(Layer::linears).collect()
    }

    fn full_parameters(&mut self) -> Vec<&mut Tensor> {
        let layers = self.layers.iter_mut().filter_map(Rc::get_mut).flat_map(Layer::full_parameters);
        [&mut self.embed_tokens].into_iter().chain(layers).chain([self.norm.full_parameter()]).collect()
    }

    fn save_embeddings(&mut self, torch: &Torch) {
        let _scope = torch.enter("model.embed_tokens");
        let weight = torch.parameter("weight", self.embed_tokens.sizes(), self.embed_tokens.dtype());
        let scale = self.embed_scale.as_ref().map(|scale| torch.buffer("embed_scale", &[], scale.dtype()));
        self.saved_embed_tokens = Some((weight, scale));
    }

    fn all_embeddings(&self) -> Vec<&Tensor> {
        let saved = self.saved_embed_tokens.iter().map(|(weight, _)| weight);
        [&self.embed_tokens].into_iter().chain(saved).collect()
    }

    fn embeddings(&self) -> &Tensor {
        &self.embed_tokens
    }

    fn parameters(&self) -> Vec<&Tensor> {
        let layers = self.layers.iter().flat_map(|layer| layer.parameters());
        self.all_embeddings().into_iter().chain(layers).chain(self.norm.parameters()).collect()
    }
}
