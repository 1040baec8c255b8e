//! nanochat's gpt.py, line by line, with `scaled_dot_product_attention`.
//!
//! Source: karpathy/nanochat at commit 92d63d4.

mod optim;
mod train;

pub use train::{Lengths, run};

use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    torch::{Tensor, Torch},
};

/// Arguments of `scripts.base_train` that determine memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// `--depth`: number of layers.
    pub depth: u64,
    /// `--aspect-ratio`: channels per layer, rounded up to whole heads.
    pub aspect_ratio: u64,
    /// `--head-dim`.
    pub head_dim: u64,
    /// `--max-seq-len`.
    pub max_seq_len: u64,
    /// `--device-batch-size`.
    pub device_batch_size: u64,
    /// Vocabulary of the tokenizer.
    pub vocab_size: u64,
    /// `--window-pattern`: whether each layer of a period has a window; the last layer of the model has none.
    pub window_pattern: Vec<bool>,
}

impl Args {
    /// Channels of the model.
    #[must_use]
    pub fn n_embd(&self) -> u64 {
        (self.depth * self.aspect_ratio).next_multiple_of(self.head_dim)
    }

    fn n_head(&self) -> u64 {
        self.n_embd() / self.head_dim
    }

    /// Parameters of the blocks and of the head, by which the script scales the batch.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the script computes with floats too")]
    pub fn n_scaling_parameters(&self) -> f64 {
        let c = self.n_embd() as f64;
        let gates =
            (0..self.depth).filter(|&layer| self.has_ve(layer)).count() as u64 * VE_GATE_CHANNELS * self.n_head();
        12.0 * self.depth as f64 * c * c + gates as f64 + self.padded_vocab_size() as f64 * c
    }

    fn padded_vocab_size(&self) -> u64 {
        self.vocab_size.next_multiple_of(64)
    }

    /// Whether a layer attends to fewer tokens than the sequence has: a quarter of it, in whole tiles of 128.
    fn has_window(&self, layer: u64) -> bool {
        let in_pattern = layer.checked_rem(self.window_pattern.len() as u64);
        let is_short = in_pattern.is_some_and(|at| self.window_pattern[usize::try_from(at).unwrap_or(0)]);
        is_short && layer + 1 < self.depth && self.max_seq_len.div_ceil(4).next_multiple_of(128) < self.max_seq_len
    }

    /// Whether a layer has a value embedding: alternate layers, with the last one.
    fn has_ve(&self, layer: u64) -> bool {
        layer % 2 == (self.depth - 1) % 2
    }
}

/// Dtype of activations, `COMPUTE_DTYPE`.
const COMPUTE: Dtype = Dtype::Bfloat16;

/// Channels that the smear gate and the value embedding's gate read.
const SMEAR_CHANNELS: u64 = 24;
const VE_GATE_CHANNELS: u64 = 12;

/// A linear layer without bias that casts its float32 weight to the input's dtype.
struct Linear {
    name: &'static str,
    weight: Tensor,
}

impl Linear {
    fn new(torch: &Torch, name: &'static str, [input, output]: [u64; 2]) -> Self {
        let _scope = torch.enter(name);
        Self { name, weight: torch.parameter("weight", &[output, input], Dtype::Float32) }
    }

    fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let _scope = torch.enter(self.name);
        torch.linear(x, &torch.cast(&self.weight, x.dtype()), None)
    }
}

/// A table of embeddings, which `init_weights` casts to the compute dtype.
struct Embedding {
    weight: Tensor,
}

impl Embedding {
    fn new(torch: &Torch, args: &Args) -> Self {
        Self { weight: torch.parameter("weight", &[args.padded_vocab_size(), args.n_embd()], Dtype::Float32) }
    }

    fn cast(&mut self, torch: &Torch) {
        self.weight = torch.parameter_like("weight", &self.weight, COMPUTE);
    }
}

fn apply_rotary_emb(torch: &Torch, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let d = x.layout().from_last(0) / 2;
    let (x1, x2) = (torch.slice(x, 0, d), torch.slice(x, 0, d));
    let y1 = torch.add(&torch.mul(&x1, cos), &torch.mul(&x2, sin));
    let y2 = torch.add(&torch.mul_by_negative(&x1, sin), &torch.mul(&x2, cos));
    torch.cat(&y1, &y2, 0)
}

/// The mask of a window, with the indices from which `_sdpa_attention` computes it.
struct WindowMask {
    mask: Tensor,
    _indices: [Tensor; 2],
}

fn window_mask(torch: &Torch, t: u64) -> WindowMask {
    let indices = || torch.empty("token indices", &[t], Dtype::Int64);
    let square = |dtype| torch.empty("window mask", &[t, t], dtype);
    let range = indices();
    let rows = indices();
    drop(range);
    let columns = indices();
    let causal = square(Dtype::Bool);
    let distance = square(Dtype::Int64);
    let near = square(Dtype::Bool);
    drop(distance);
    let mask = square(Dtype::Bool);
    drop((near, causal));
    WindowMask { mask, _indices: [rows, columns] }
}

struct CausalSelfAttention {
    c_q: Linear,
    c_k: Linear,
    c_v: Linear,
    c_proj: Linear,
    ve_gate: Option<Linear>,
    n_head: u64,
    has_window: bool,
}

impl CausalSelfAttention {
    fn new(torch: &Torch, args: &Args, layer: u64) -> Self {
        let _scope = torch.enter("attn");
        let c = args.n_embd();
        let [c_q, c_k, c_v, c_proj] = ["c_q", "c_k", "c_v", "c_proj"].map(|name| Linear::new(torch, name, [c, c]));
        let ve_gate = args.has_ve(layer).then(|| Linear::new(torch, "ve_gate", [VE_GATE_CHANNELS, args.n_head()]));
        Self { c_q, c_k, c_v, c_proj, ve_gate, n_head: args.n_head(), has_window: args.has_window(layer) }
    }

    fn forward(&self, torch: &Torch, x: &Tensor, ve: Option<&Tensor>, [cos, sin]: &[Tensor; 2]) -> Tensor {
        let _scope = torch.enter("attn");
        let &[b, t, c] = x.sizes() else { return x.clone() };
        let heads = |x: &Tensor| torch.reshape(x, &[b, t, self.n_head, c / self.n_head]);
        let mut q = heads(&self.c_q.forward(torch, x));
        let mut k = heads(&self.c_k.forward(torch, x));
        let mut v = heads(&self.c_v.forward(torch, x));
        let gate;
        if let (Some(ve), Some(ve_gate)) = (ve, &self.ve_gate) {
            let ve = heads(ve);
            gate =
                torch.scale(&torch.function("sigmoid", &ve_gate.forward(torch, &torch.slice(x, 0, VE_GATE_CHANNELS))));
            v = torch.add(&v, &torch.mul(&torch.reshape(&gate, &[b, t, self.n_head, 1]), &ve));
        }
        (q, k) = (apply_rotary_emb(torch, &q, cos, sin), apply_rotary_emb(torch, &k, cos, sin));
        (q, k) = (torch.rms_norm(&q), torch.rms_norm(&k));
        q = torch.scale(&q);
        k = torch.scale(&k);
        let [query, key, value] = [&q, &k, &v].map(|x| torch.transpose(x, [1, 2]));
        let mut y = if self.has_window {
            torch.masked_attention(&query, &key, &value, &window_mask(torch, t).mask, false)
        } else {
            torch.scaled_dot_product_attention(&query, &key, &value, false)
        };
        drop([query, key, value]);
        y = torch.transpose(&y, [1, 2]);
        y = torch.reshape(&torch.contiguous(&y), &[b, t, c]);
        self.c_proj.forward(torch, &y)
    }

    fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        [&self.c_q, &self.c_k, &self.c_v, &self.c_proj].into_iter().chain(&self.ve_gate).map(|linear| &linear.weight)
    }
}

struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
}

impl Mlp {
    fn new(torch: &Torch, args: &Args) -> Self {
        let _scope = torch.enter("mlp");
        let c = args.n_embd();
        Self { c_fc: Linear::new(torch, "c_fc", [c, 4 * c]), c_proj: Linear::new(torch, "c_proj", [4 * c, c]) }
    }

    fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let _scope = torch.enter("mlp");
        let mut x = self.c_fc.forward(torch, x);
        x = torch.square(&torch.function("relu", &x));
        self.c_proj.forward(torch, &x)
    }
}

struct Block {
    attn: CausalSelfAttention,
    mlp: Mlp,
}

impl Block {
    fn new(torch: &Torch, args: &Args, layer: u64) -> Self {
        let _scope = torch.enter_block("h", layer);
        Self { attn: CausalSelfAttention::new(torch, args, layer), mlp: Mlp::new(torch, args) }
    }

    fn forward(&self, torch: &Torch, mut x: Tensor, ve: Option<&Tensor>, cos_sin: &[Tensor; 2]) -> Tensor {
        let attended = self.attn.forward(torch, &torch.rms_norm(&x), ve, cos_sin);
        x = torch.add(&x, &attended);
        drop(attended);
        let computed = self.mlp.forward(torch, &torch.rms_norm(&x));
        torch.add(&x, &computed)
    }

    fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        self.attn.parameters().chain([&self.mlp.c_fc.weight, &self.mlp.c_proj.weight])
    }
}

/// A model after `init_weights`.
struct Gpt {
    wte: Embedding,
    h: Vec<Block>,
    lm_head: Linear,
    smear_gate: Linear,
    /// By layer.
    value_embeds: Vec<Option<Embedding>>,
    resid_lambdas: Tensor,
    x0_lambdas: Tensor,
    smear_lambda: Tensor,
    backout_lambda: Tensor,
    /// For ten times as many positions as the run has.
    cos_sin: [Tensor; 2],
    vocab_size: u64,
}

impl Gpt {
    /// `model.to_empty(device)`, then `init_weights()`.
    fn new(torch: &Torch, args: &Args) -> Self {
        let scalars = |name, n| torch.parameter(name, &[n], Dtype::Float32);
        let transformer = torch.enter("transformer");
        let wte = {
            let _scope = torch.enter("wte");
            Embedding::new(torch, args)
        };
        let h = (0..args.depth).map(|layer| Block::new(torch, args, layer)).collect();
        drop(transformer);
        let lm_head = Linear::new(torch, "lm_head", [args.n_embd(), args.padded_vocab_size()]);
        let smear_gate = Linear::new(torch, "smear_gate", [SMEAR_CHANNELS, 1]);
        let value_embedding = |layer| {
            let _scope = torch.enter_block("value_embeds", layer);
            Embedding::new(torch, args)
        };
        let value_embeds = (0..args.depth).map(|layer| args.has_ve(layer).then(|| value_embedding(layer))).collect();
        let [resid_lambdas, x0_lambdas] = ["resid_lambdas", "x0_lambdas"].map(|name| scalars(name, args.depth));
        let [smear_lambda, backout_lambda] = ["smear_lambda", "backout_lambda"].map(|name| scalars(name, 1));
        let rotary = [10 * args.max_seq_len, 1, args.head_dim / 2];
        let cos_sin = ["cos", "sin"].map(|name| torch.buffer(name, &rotary, COMPUTE));
        let vocab_size = args.vocab_size;
        let mut model = Self {
            wte,
            h,
            lm_head,
            smear_gate,
            value_embeds,
            resid_lambdas,
            x0_lambdas,
            smear_lambda,
            backout_lambda,
            cos_sin,
            vocab_size,
        };
        model.cos_sin = rotary_embeddings(torch, &rotary);
        model.cast_embeddings(torch);
        model
    }

    fn cast_embeddings(&mut self, torch: &Torch) {
        let scope = torch.enter("transformer.wte");
        self.wte.cast(torch);
        drop(scope);
        for (layer, embedding) in self.value_embeds.iter_mut().enumerate() {
            let _scope = torch.enter_block("value_embeds", layer as u64);
            embedding.iter_mut().for_each(|embedding| embedding.cast(torch));
        }
    }

    /// The loss: the mean, or that of each token.
    fn forward(&self, torch: &Torch, idx: &Tensor, targets: &Tensor, is_mean: bool) -> Tensor {
        let t = idx.layout().from_last(0);
        let cos_sin = self.cos_sin.clone().map(|x| torch.slice(&x, 2, t));
        let mut x = {
            let _scope = torch.enter("transformer.wte");
            torch.embedding(idx, &self.wte.weight)
        };
        x = torch.rms_norm(&x);
        let later = |x: &Tensor| torch.slice(x, 1, t - 1);
        let gate = torch.mul(
            &torch.cast(&self.smear_lambda, x.dtype()),
            &torch.function("sigmoid", &self.smear_gate.forward(torch, &torch.slice(&later(&x), 0, SMEAR_CHANNELS))),
        );
        x = torch.cat(&torch.slice(&x, 1, 1), &torch.add(&later(&x), &torch.mul(&gate, &later(&x))), 1);
        let x0 = x.clone();
        let mut x_backout = None;
        let mut ve = None;
        for (i, block) in self.h.iter().enumerate() {
            x = torch.add(
                &torch.mul(&torch.element(&self.resid_lambdas), &x),
                &torch.mul(&torch.element(&self.x0_lambdas), &x0),
            );
            ve = self.value_embeds[i].as_ref().map(|embedding| {
                let _scope = torch.enter_block("value_embeds", i as u64);
                torch.embedding(idx, &embedding.weight)
            });
            x = {
                let _scope = torch.enter_block("transformer.h", i as u64);
                block.forward(torch, x.clone(), ve.as_ref(), &cos_sin)
            };
            if i == self.h.len() / 2 {
                x_backout = Some(x.clone());
            }
        }
        if let Some(x_backout) = &x_backout {
            x = torch.sub(&x, &torch.mul(&torch.cast(&self.backout_lambda, x.dtype()), x_backout));
        }
        x = torch.rms_norm(&x);
        let _scope = torch.enter_category(Category::LogitsAndLoss);
        let mut logits = self.lm_head.forward(torch, &x);
        logits = torch.slice(&logits, 0, self.vocab_size);
        logits = torch.cast(&logits, Dtype::Float32);
        let mut capped = torch.scale(&logits);
        capped = torch.function("tanh", &capped);
        logits = torch.scale(&capped);
        drop(capped);
        let loss = torch.cross_entropy_with(&logits, targets, is_mean);
        drop(ve);
        loss
    }

    /// Parameters of the blocks, which Muon updates.
    fn matrices(&self) -> impl Iterator<Item = &Tensor> {
        self.h.iter().flat_map(Block::parameters)
    }

    /// Parameters that AdamW updates, in the order of its groups.
    fn others(&self) -> impl Iterator<Item = &Tensor> {
        let embeddings = self.value_embeds.iter().flatten().map(|embedding| &embedding.weight);
        [&self.lm_head.weight, &self.wte.weight].into_iter().chain(embeddings).chain([
            &self.resid_lambdas,
            &self.x0_lambdas,
            &self.smear_gate.weight,
            &self.smear_lambda,
            &self.backout_lambda,
        ])
    }
}

/// `_precompute_rotary_embeddings`.
fn rotary_embeddings(torch: &Torch, sizes: &[u64; 3]) -> [Tensor; 2] {
    let [positions, _, channels] = *sizes;
    let vector = |n| torch.empty("rotary embedding", &[n], Dtype::Float32);
    let _channel_range = vector(channels);
    let _inv_freq = {
        let quotient = vector(channels);
        let power = vector(channels);
        drop(quotient);
        let _power = power;
        vector(channels)
    };
    let _t = vector(positions);
    let table = || torch.empty("rotary embedding", sizes, Dtype::Float32);
    let _freqs = table();
    let wide = [(); 2].map(|()| table());
    let narrow = ["cos", "sin"].map(|name| torch.buffer(name, sizes, COMPUTE));
    drop(wide);
    narrow
}
