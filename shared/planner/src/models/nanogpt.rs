//! nanoGPT's model.py, line by line.

mod train;

use std::rc::Rc;

pub use train::{Rounds, run};

use crate::{
    dtype::Dtype,
    gpt::GptConfig,
    torch::{CrossEntropyInput, Function, Tensor, Torch},
    train_config::{Attention, CrossEntropy, TrainConfig},
};

/// The parameters of `nn.Linear` or `LayerNorm`.
struct Parameters {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Parameters {
    /// A weight of these sizes. A bias has the size of its first axis.
    fn new(torch: &Torch, sizes: &[u64], bias: bool) -> Self {
        let weight = torch.parameter("weight", sizes, Dtype::Float32);
        Self { weight, bias: bias.then(|| torch.parameter("bias", &sizes[..1], Dtype::Float32)) }
    }

    fn linear(&self, torch: &Torch, x: &Tensor) -> Tensor {
        torch.linear(x, &self.weight, self.bias.as_ref())
    }

    fn layer_norm(&self, torch: &Torch, x: &Tensor) -> Tensor {
        torch.layer_norm(x, &self.weight, self.bias.as_ref())
    }

    fn iter(&self) -> impl Iterator<Item = &Tensor> {
        std::iter::once(&self.weight).chain(&self.bias)
    }
}

struct CausalSelfAttention {
    c_attn: Parameters,
    c_proj: Parameters,
    /// The causal mask, if the fused kernels are not used.
    mask: Option<Tensor>,
    n_head: u64,
    dropout: bool,
}

impl CausalSelfAttention {
    fn new(torch: &Torch, config: &GptConfig, attention: Attention) -> Self {
        let c = config.n_embd();
        let c_attn = Parameters::new(torch, &[3 * c, c], config.bias());
        let c_proj = Parameters::new(torch, &[c, c], config.bias());
        let t = config.block_size();
        let mask = (attention == Attention::Math).then(|| torch.empty("mask", &[1, 1, t, t], Dtype::Float32));
        Self { c_attn, c_proj, mask, n_head: config.n_head(), dropout: config.dropout() > 0.0 }
    }

    fn forward(&self, torch: &Torch, x: &Tensor, training: bool) -> Tensor {
        let (&[b, t, c], drops) = (x.sizes(), self.dropout && training) else { return x.clone() };
        let heads = |x: &Tensor| torch.transpose(&torch.reshape(x, &[b, t, self.n_head, c / self.n_head]), [1, 2]);
        let [mut q, mut k, mut v] = torch.split3(&self.c_attn.linear(torch, x));
        k = heads(&k);
        q = heads(&q);
        v = heads(&v);
        let _att;
        let mut y;
        if self.mask.is_none() {
            y = torch.scaled_dot_product_attention(&q, &k, &v, drops);
        } else {
            let mut att = torch.scale(&torch.matmul(&q, &torch.transpose(&k, [0, 1])));
            att = torch.masked_fill_where_zero(&att, &[1, 1, t, t]);
            att = torch.softmax(&att);
            att = torch.dropout(&att, drops);
            y = torch.matmul(&att, &v);
            _att = att;
        }
        y = torch.reshape(&torch.contiguous(&torch.transpose(&y, [1, 2])), &[b, t, c]);
        y = torch.dropout(&self.c_proj.linear(torch, &y), drops);
        y
    }
}

struct Mlp {
    c_fc: Parameters,
    c_proj: Parameters,
    dropout: bool,
}

impl Mlp {
    fn new(torch: &Torch, config: &GptConfig) -> Self {
        let c = config.n_embd();
        Self {
            c_fc: Parameters::new(torch, &[4 * c, c], config.bias()),
            c_proj: Parameters::new(torch, &[c, 4 * c], config.bias()),
            dropout: config.dropout() > 0.0,
        }
    }

    fn forward(&self, torch: &Torch, x: &Tensor, training: bool) -> Tensor {
        let mut x = self.c_fc.linear(torch, x);
        x = torch.gelu(&x);
        x = self.c_proj.linear(torch, &x);
        x = torch.dropout(&x, self.dropout && training);
        x
    }
}

struct Block {
    ln_1: Parameters,
    attn: CausalSelfAttention,
    ln_2: Parameters,
    mlp: Mlp,
}

impl Block {
    fn new(torch: &Torch, config: &GptConfig, attention: Attention) -> Self {
        let norm = || Parameters::new(torch, &[config.n_embd()], config.bias());
        let ln_1 = norm();
        let attn = CausalSelfAttention::new(torch, config, attention);
        let ln_2 = norm();
        Self { ln_1, attn, ln_2, mlp: Mlp::new(torch, config) }
    }

    fn forward(&self, torch: &Torch, mut x: Tensor, training: bool) -> Tensor {
        let attended = self.attn.forward(torch, &self.ln_1.layer_norm(torch, &x), training);
        x = torch.add(&x, &attended);
        drop(attended);
        let computed = self.mlp.forward(torch, &self.ln_2.layer_norm(torch, &x), training);
        torch.add(&x, &computed)
    }

    fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        let attention = self.ln_1.iter().chain(self.attn.c_attn.iter()).chain(self.attn.c_proj.iter());
        let mlp = self.ln_2.iter().chain(self.mlp.c_fc.iter()).chain(self.mlp.c_proj.iter());
        attention.chain(mlp)
    }
}

/// A GPT, with the options of common patches.
struct Gpt {
    wte: Tensor,
    wpe: Tensor,
    h: Vec<Rc<Block>>,
    ln_f: Parameters,
    dropout: bool,
    cross_entropy: CrossEntropy,
    checkpoints: bool,
}

impl Gpt {
    fn new(torch: &Torch, config: &GptConfig, attention: Attention, train: &TrainConfig) -> Self {
        let c = config.n_embd();
        Self {
            wte: torch.parameter("transformer.wte.weight", &[config.vocab_size(), c], Dtype::Float32),
            wpe: torch.parameter("transformer.wpe.weight", &[config.block_size(), c], Dtype::Float32),
            h: (0..config.n_layer()).map(|_| Rc::new(Block::new(torch, config, attention))).collect(),
            ln_f: Parameters::new(torch, &[c], config.bias()),
            dropout: config.dropout() > 0.0,
            cross_entropy: train.cross_entropy,
            checkpoints: train.activation_checkpointing,
        }
    }

    /// Logits, if the loss has them, and loss.
    fn forward(&self, torch: &Torch, idx: &Tensor, targets: &Tensor, training: bool) -> (Option<Tensor>, Tensor) {
        let pos = torch.empty("pos", &[idx.layout().from_last(0)], Dtype::Int64);
        let tok_emb = torch.embedding(idx, &self.wte);
        let pos_emb = torch.embedding(&pos, &self.wpe);
        let mut x = torch.dropout(&torch.add(&tok_emb, &pos_emb), self.dropout && training);
        for block in &self.h {
            let block = Rc::clone(block);
            x = if self.checkpoints && training {
                let function: Rc<Function> = Rc::new(move |torch, x| block.forward(torch, x, true));
                torch.checkpoint(&function, x.clone())
            } else {
                block.forward(torch, x.clone(), training)
            };
        }
        x = self.ln_f.layer_norm(torch, &x);
        let kind = match self.cross_entropy {
            CrossEntropy::Whole => {
                let logits = torch.linear(&x, &self.wte, None);
                let loss = torch.cross_entropy(&logits, targets);
                return (Some(logits), loss);
            }
            CrossEntropy::Chunked => CrossEntropyInput::Chunks,
            CrossEntropy::Fused => CrossEntropyInput::Fused,
        };
        (None, torch.linear_cross_entropy(kind, &x, &self.wte, targets))
    }

    /// `named_parameters()` in order; `lm_head.weight` is `wte`.
    fn parameters(&self) -> Vec<&Tensor> {
        let embeddings = [&self.wte, &self.wpe].into_iter();
        embeddings.chain(self.h.iter().flat_map(|block| block.parameters())).chain(self.ln_f.iter()).collect()
    }
}
