//! Modules that all families have: linear layers with LoRA, normalization, and rotary embeddings.

use super::{
    Config, Family,
    quantized::{Checkpoint, QuantizedLinear},
};
use crate::{
    dtype::Dtype,
    torch::{Tensor, Torch},
};

/// `a + b` of two temporaries, which end in this order.
pub fn add(torch: &Torch, a: Tensor, b: Tensor) -> Tensor {
    let sum = torch.add(&a, &b);
    drop(a);
    drop(b);
    sum
}

/// PEFT's `LoraConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lora {
    /// `r`.
    pub rank: u64,
    /// Whether `lora_dropout` is above 0.
    pub drops: bool,
    /// `target_modules`: names of linear layers; `None` for `all-linear`, all but the head.
    pub targets: Option<Vec<String>>,
    /// `modules_to_save`: modules that are copied and trained as a whole.
    pub saved: SavedModules,
}

/// Modules of `modules_to_save`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedModules {
    /// The embeddings of tokens.
    pub embeddings: bool,
    /// The head.
    pub head: bool,
}

/// An adapter of a linear layer.
#[derive(Clone, Debug)]
struct Adapter {
    a: Tensor,
    b: Tensor,
    drops: bool,
}

impl Adapter {
    /// `lora_B(lora_A(dropout(x))) * scaling`.
    fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let mut low = torch.dropout(x, self.drops && torch.is_training());
        low = torch.linear(&low, &self.a, None);
        low = torch.linear(&low, &self.b, None);
        torch.scale(&low)
    }

    /// `forward` of PEFT's quantized layers after the base layer: casts without autocast only.
    fn add_to_quantized(&self, torch: &Torch, x: &Tensor, result: Tensor) -> Tensor {
        let expected_dtype = result.dtype();
        let converts = !torch.is_autocast_enabled();
        let x = if converts { torch.cast(x, self.a.dtype()) } else { x.clone() };
        let mut output = self.forward(torch, &x);
        if converts {
            output = torch.cast(&output, expected_dtype);
        }
        let sum = torch.add(&result, &output);
        drop(result);
        drop(output);
        sum
    }
}

/// `nn.Linear` or `Conv1D`, with PEFT's `lora.Linear` around it if it has an adapter.
#[derive(Clone, Debug)]
pub struct Linear {
    name: &'static str,
    weight: Tensor,
    bias: Option<Tensor>,
    adapter: Option<Adapter>,
    /// Whether the inputs are the first axis of the weight.
    is_conv1d: bool,
    /// The weight and the bias, if they are quantized.
    quantized: Option<QuantizedLinear>,
}

impl Linear {
    pub fn new(torch: &Torch, name: &'static str, [input, output]: [u64; 2], has_bias: bool, dtype: Dtype) -> Self {
        let _scope = torch.enter(name);
        let weight = torch.parameter("weight", &[output, input], dtype);
        let bias = has_bias.then(|| torch.parameter("bias", &[output], dtype));
        Self { name, weight, bias, adapter: None, is_conv1d: false, quantized: None }
    }

    /// `Conv1D(output, input)`.
    pub fn conv1d(torch: &Torch, name: &'static str, [input, output]: [u64; 2], dtype: Dtype) -> Self {
        let _scope = torch.enter(name);
        let weight = torch.parameter("weight", &[input, output], dtype);
        let bias = Some(torch.parameter("bias", &[output], dtype));
        Self { name, weight, bias, adapter: None, is_conv1d: true, quantized: None }
    }

    /// A layer with the weight of another module.
    pub fn tied(name: &'static str, weight: &Tensor) -> Self {
        Self { name, weight: weight.clone(), bias: None, adapter: None, is_conv1d: false, quantized: None }
    }

    /// Loads the parameters of a layer that is not quantized.
    pub fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let _scope = checkpoint.torch.enter(self.name);
        if let Some(bias) = &mut self.bias {
            checkpoint.load("bias", bias);
        }
        checkpoint.load("weight", &mut self.weight);
    }

    /// Loads the parameters of a layer whose weight is quantized. The weight stays on the meta device.
    pub fn load_quantized(&mut self, checkpoint: &Checkpoint<'_>) {
        let _scope = checkpoint.torch.enter(self.name);
        let mut bias = self.bias.take();
        if let Some(bias) = &mut bias {
            checkpoint.load("bias", bias);
        }
        self.weight = self.weight.detached();
        self.quantized = Some(checkpoint.load_quantized(&self.weight, self.is_conv1d, bias));
    }

    /// Elements of the weight.
    pub fn weight_elements(&self) -> u64 {
        self.weight.layout().elements()
    }

    /// The parameters that are not quantized, in the order of `named_parameters()`.
    pub fn full_parameters(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let (weight, bias) = match &mut self.quantized {
            Some(quantized) => (None, quantized.bias()),
            None => (Some(&mut self.weight), self.bias.as_mut()),
        };
        weight.into_iter().chain(bias)
    }

    pub fn freeze(&mut self) {
        self.weight = self.weight.detached();
        self.bias = self.bias.take().map(|bias| bias.detached());
    }

    /// `update_layer`: adds an adapter in the dtype of the weight, if the layer is a target.
    pub fn adapt(&mut self, torch: &Torch, lora: &Lora) {
        self.freeze();
        let name = self.name.rsplit('.').next().unwrap_or(self.name);
        if lora.targets.as_ref().is_some_and(|targets| !targets.iter().any(|target| target == name)) {
            return;
        }
        let _scope = torch.enter(self.name);
        let axes = if self.is_conv1d { [1, 0] } else { [0, 1] };
        let [input, output] = axes.map(|n| self.weight.layout().from_last(n));
        let dtype = self.quantized.as_ref().map_or(self.weight.dtype(), QuantizedLinear::adapter_dtype);
        let a = torch.parameter("lora_A.weight", &[lora.rank, input], dtype);
        let b = torch.parameter("lora_B.weight", &[output, lora.rank], dtype);
        self.adapter = Some(Adapter { a, b, drops: lora.drops });
    }

    /// `cast_adapter_dtype`: an adapter in half precision becomes float32.
    pub fn widen(&mut self, torch: &Torch) {
        let Some(adapter) = &mut self.adapter else { return };
        for weight in [&mut adapter.a, &mut adapter.b] {
            torch.cast_parameter(weight, Dtype::Float32);
        }
    }

    pub fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let _scope = torch.enter(self.name);
        if let Some(quantized) = &self.quantized {
            let mut result = quantized.forward(torch, x);
            let Some(adapter) = &self.adapter else { return result };
            if quantized.copies_output() {
                result = torch.copied(&result);
            }
            return adapter.add_to_quantized(torch, x, result);
        }
        let mut result = match &self.bias {
            Some(bias) if self.is_conv1d => self.conv1d_forward(torch, x, bias),
            bias => torch.linear(x, &self.weight, bias.as_ref()),
        };
        let Some(adapter) = &self.adapter else { return result };
        let dtype = result.dtype();
        let x = torch.cast(x, adapter.a.dtype());
        let low = adapter.forward(torch, &x);
        result = torch.add(&result, &low);
        drop(low);
        torch.cast(&result, dtype)
    }

    /// `Conv1D.forward`.
    fn conv1d_forward(&self, torch: &Torch, x: &Tensor, bias: &Tensor) -> Tensor {
        let &[b, t, input] = x.sizes() else { return x.clone() };
        let rows = torch.addmm(bias, &torch.reshape(x, &[b * t, input]), &self.weight);
        torch.reshape(&rows, &[b, t, rows.layout().from_last(0)])
    }

    /// A trainable copy of a layer without bias.
    pub fn trainable_copy(&self, torch: &Torch) -> Self {
        let _scope = torch.enter(self.name);
        let weight = torch.parameter("weight", self.weight.sizes(), self.weight.dtype());
        Self { weight, ..self.clone() }
    }

    /// Parameters that require gradients, in the order of `named_parameters()`.
    pub fn parameters(&self) -> Vec<&Tensor> {
        let adapter = self.adapter.iter().flat_map(|adapter| [&adapter.a, &adapter.b]);
        [&self.weight].into_iter().chain(&self.bias).chain(adapter).collect()
    }
}

/// `nn.LayerNorm`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    name: &'static str,
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    pub fn new(torch: &Torch, name: &'static str, channels: u64, dtype: Dtype) -> Self {
        let _scope = torch.enter(name);
        let [weight, bias] = ["weight", "bias"].map(|name| torch.parameter(name, &[channels], dtype));
        Self { name, weight, bias }
    }

    pub fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let _scope = checkpoint.torch.enter(self.name);
        checkpoint.load("bias", &mut self.bias);
        checkpoint.load("weight", &mut self.weight);
    }

    pub fn full_parameters(&mut self) -> [&mut Tensor; 2] {
        [&mut self.weight, &mut self.bias]
    }

    pub fn freeze(&mut self) {
        self.weight = self.weight.detached();
        self.bias = self.bias.detached();
    }

    pub fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let _scope = torch.enter(self.name);
        torch.layer_norm(x, &self.weight, Some(&self.bias))
    }

    pub fn parameters(&self) -> Vec<&Tensor> {
        vec![&self.weight, &self.bias]
    }
}

/// `LlamaRMSNorm`, or `Gemma2RMSNorm`, which Gemma 3 has too.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    name: &'static str,
    weight: Tensor,
    /// Whether the weight is centered at 0, and multiplied in float32.
    is_centered: bool,
}

impl RmsNorm {
    pub fn new(torch: &Torch, name: &'static str, channels: u64, family: Family, dtype: Dtype) -> Self {
        let _scope = torch.enter(name);
        let weight = torch.parameter("weight", &[channels], dtype);
        Self { name, weight, is_centered: family.is_gemma() }
    }

    pub fn load(&mut self, checkpoint: &Checkpoint<'_>) {
        let _scope = checkpoint.torch.enter(self.name);
        checkpoint.load("weight", &mut self.weight);
    }

    pub fn full_parameter(&mut self) -> &mut Tensor {
        &mut self.weight
    }

    pub fn freeze(&mut self) {
        self.weight = self.weight.detached();
    }

    pub fn forward(&self, torch: &Torch, hidden_states: &Tensor) -> Tensor {
        let _scope = torch.enter(self.name);
        if self.is_centered { self.centered(torch, hidden_states) } else { self.plain(torch, hidden_states) }
    }

    /// `Gemma2RMSNorm.forward`.
    fn centered(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let mut output = {
            let x = torch.cast(x, Dtype::Float32);
            let mean = torch.mean(&torch.square(&x));
            let sum = torch.offset(&mean);
            drop(mean);
            let root = torch.rsqrt(&sum);
            drop(sum);
            torch.mul(&x, &root)
        };
        let weight = torch.offset(&torch.cast(&self.weight, Dtype::Float32));
        output = torch.mul(&output, &weight);
        drop(weight);
        torch.cast(&output, x.dtype())
    }

    /// `LlamaRMSNorm.forward`.
    fn plain(&self, torch: &Torch, hidden_states: &Tensor) -> Tensor {
        let input_dtype = hidden_states.dtype();
        let mut hidden_states = torch.cast(hidden_states, Dtype::Float32);
        let variance = torch.mean(&torch.square(&hidden_states));
        let root = torch.rsqrt(&torch.offset(&variance));
        let product = torch.mul(&hidden_states, &root);
        drop(root);
        hidden_states = product;
        let out = torch.mul(&self.weight, &torch.cast(&hidden_states, input_dtype));
        drop(hidden_states);
        drop(variance);
        out
    }

    pub fn parameters(&self) -> Vec<&Tensor> {
        vec![&self.weight]
    }
}

/// `LlamaRotaryEmbedding`: its buffers `inv_freq` and `original_inv_freq`.
#[derive(Clone, Debug)]
pub struct RotaryEmbedding {
    _inv_freq: [Tensor; 2],
    head_dim: u64,
}

/// `compute_default_rope_parameters`.
fn inverse_frequencies(torch: &Torch, head_dim: u64) -> Tensor {
    let vector = || torch.empty("rotary frequencies", &[head_dim / 2], Dtype::Float32);
    let range = vector();
    let quotient = vector();
    drop(range);
    let power = vector();
    drop(quotient);
    let reciprocal = vector();
    let product = vector();
    drop(reciprocal);
    drop(power);
    product
}

impl RotaryEmbedding {
    pub fn new(torch: &Torch, config: &Config) -> Self {
        let head_dim = config.head_dim;
        let inv_freq = inverse_frequencies(torch, head_dim);
        let original = torch.empty("rotary frequencies", &[head_dim / 2], Dtype::Float32);
        Self { _inv_freq: [inv_freq, original], head_dim }
    }

    /// Moves the buffers to the GPU.
    pub fn load(&mut self, torch: &Torch) {
        let buffer = |_| torch.buffer("rotary frequencies", &[self.head_dim / 2], Dtype::Float32);
        self._inv_freq = [0, 1].map(buffer);
    }

    /// `_init_weights`: computes the frequencies again.
    pub fn init_weights(&self, torch: &Torch) {
        drop(inverse_frequencies(torch, self.head_dim));
    }

    /// Cosines and sines of `t` positions.
    pub fn forward(&self, torch: &Torch, t: u64, dtype: Dtype) -> [Tensor; 2] {
        let half = self.head_dim / 2;
        let table = || torch.empty("rotary embedding", &[1, t, self.head_dim], Dtype::Float32);
        let positions = torch.empty("positions in float32", &[1, 1, t], Dtype::Float32);
        let freqs = torch.empty("rotary angles", &[1, half, t], Dtype::Float32);
        torch.cublas_workspace();
        let emb = table();
        let scaled = || {
            let _function = table();
            table()
        };
        let [cos, sin] = [scaled(), scaled()];
        let narrow = [&cos, &sin].map(|x| torch.cast(x, dtype));
        // In the order of Python's frame.
        [positions, freqs, emb, cos, sin].into_iter().for_each(drop);
        narrow
    }
}

fn rotate_half(torch: &Torch, x: &Tensor) -> Tensor {
    let half = x.layout().from_last(0) / 2;
    let (x1, x2) = (torch.slice(x, 0, half), torch.slice(x, 0, half));
    torch.cat(&torch.negate(&x2), &x1, 0)
}

/// `apply_rotary_pos_emb` of one tensor.
pub fn rotate(torch: &Torch, x: &Tensor, [cos, sin]: &[Tensor; 2]) -> Tensor {
    let straight = torch.mul(x, cos);
    let turned = torch.mul(&rotate_half(torch, x), sin);
    add(torch, straight, turned)
}
