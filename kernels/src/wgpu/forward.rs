//! The forward pass as lists of dispatches: for a prompt, for a single token, and for sampling after both.

use headroom_planner::gpt::{
    GptConfig,
    buffers::inference::{Inference, PREFILL_TOKENS},
    tensors::Tensor,
};

use super::{
    Gpu,
    memory::{Memory, Piece},
    pipelines::{Constants, Dispatch, Extent, Pipelines},
    shader::{Kernel, Weights},
    weights::Axes,
};
use crate::reference::matvec_forward::Epilogue;

/// Maximum number of workgroups along an axis in WebGPU's default limits.
const GROUPS_MAX: u32 = 65535;

/// Distribution of the work among invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuning {
    /// Invocations of a matrix-vector product, and the number of invocations that share a row.
    matvec: (u32, u32),
    /// Invocations of kernels in which each processes a part of a row.
    elementwise: u32,
    layernorm: u32,
    attention: u32,
    /// Keys that attention processes at a time.
    attention_tile: u32,
    sample: u32,
    /// Whether prompts use `matmul_direct.wgsl`.
    direct: bool,
}

impl Tuning {
    /// Selects the tuning. A GPU needs many invocations on adjacent bytes; a CPU's vectors need long rows and few
    /// barriers.
    pub(super) fn of(gpu: &Gpu, hs: usize) -> Self {
        let head_groups = u32::try_from(hs / 4).unwrap_or(u32::MAX);
        if gpu.wants_long_rows() {
            let attention = 16.max(head_groups.next_power_of_two());
            Self {
                matvec: (16, 1),
                elementwise: 16,
                layernorm: 16,
                attention,
                attention_tile: 256,
                sample: 64,
                direct: true,
            }
        } else {
            let attention = 128.max(head_groups.next_power_of_two());
            Self {
                matvec: (64, 16),
                elementwise: 64,
                layernorm: 64,
                attention,
                attention_tile: 1024,
                sample: 256,
                direct: false,
            }
        }
    }

    /// Invocations per workgroup of the attention kernel.
    pub(super) const fn attention(&self) -> u32 {
        self.attention
    }
}

/// The dispatch lists of an engine.
#[derive(Debug)]
pub(super) struct Forward {
    /// Forward pass of up to 256 tokens, without logits.
    pub(super) prefill: Vec<Dispatch>,
    /// Logits of the prompt's last token.
    pub(super) prompt_logits: Vec<Dispatch>,
    /// Forward pass of one token, with its logits.
    pub(super) decode: Vec<Dispatch>,
    /// Selection of the next token.
    pub(super) sample: Dispatch,
    /// Attention weights of one head, by layer; empty if queries are not stored.
    pub(super) attention_weights: Vec<Dispatch>,
}

/// Inputs from which the dispatch lists are built.
pub(super) struct DispatchBuilder<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) memory: &'a Memory,
    pub(super) config: &'a GptConfig,
    pub(super) axes: Axes,
    pub(super) inference: Inference,
    pub(super) weights: Weights,
    pub(super) gelu: Epilogue,
    pub(super) tuning: Tuning,
    pub(super) pipelines: Pipelines,
}

/// A linear layer: parameters, input, output, and epilogue.
struct Linear<'a> {
    weight: (Tensor, Option<Tensor>),
    layer: Option<u64>,
    out: &'a wgpu::Buffer,
    inp: &'a wgpu::Buffer,
    c: usize,
    oc: usize,
    after: Epilogue,
}

/// Kind of a list: for a prompt or for one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardKind {
    Prompt,
    Token,
}

impl<'a> DispatchBuilder<'a> {
    pub(super) fn forward(mut self) -> Forward {
        let prefill = self.blocks(ForwardKind::Prompt);
        let prompt_logits = self.logits(true);
        let mut decode = self.blocks(ForwardKind::Token);
        decode.extend(self.logits(false));
        let sample = self.sample();
        let layers = if self.inference.attention { self.config.n_layer() } else { 0 };
        let attention_weights = (0..layers).map(|layer| self.attention_weights(layer)).collect();
        Forward { prefill, prompt_logits, decode, sample, attention_weights }
    }

    fn dispatch(
        &mut self,
        kernel: Kernel,
        constants: &Constants,
        buffers: &[(u32, &wgpu::Buffer)],
        extents: (Extent, Extent),
    ) -> Dispatch {
        let pipeline = self.pipelines.get(self.gpu, kernel, self.weights, constants);
        Dispatch::new(self.gpu, pipeline, buffers, extents)
    }

    fn blocks(&mut self, way: ForwardKind) -> Vec<Dispatch> {
        let memory = self.memory;
        let c = self.axes.c;
        let [stream, ln, qkv, atty, fch] =
            [Tensor::Encoded, Tensor::Ln1, Tensor::Qkv, Tensor::AttyRows, Tensor::FchGelu]
                .map(|tensor| memory.whole(tensor, None, 0));
        let mut list = self.encoder(stream);
        for layer in (0..self.config.n_layer()).map(Some) {
            list.push(self.layernorm((ln, stream), (Tensor::Ln1W, Tensor::Ln1B), layer, false));
            let linear = |weight, bias, out, inp, c, oc, after| Linear {
                weight: (weight, Some(bias)),
                layer,
                out,
                inp,
                c,
                oc,
                after,
            };
            let attention = linear(Tensor::QkvW, Tensor::QkvB, qkv, ln, c, 3 * c, Epilogue::Nothing);
            list.extend(self.linear(&attention, way));
            list.extend(self.attention(atty, qkv, layer));
            let projection = linear(Tensor::AttProjW, Tensor::AttProjB, stream, atty, c, c, Epilogue::Residual);
            list.extend(self.linear(&projection, way));
            list.push(self.layernorm((ln, stream), (Tensor::Ln2W, Tensor::Ln2B), layer, false));
            let wide = linear(Tensor::FcW, Tensor::FcB, fch, ln, c, 4 * c, self.gelu);
            list.extend(self.linear(&wide, way));
            let narrow = linear(Tensor::FcProjW, Tensor::FcProjB, stream, fch, 4 * c, c, Epilogue::Residual);
            list.extend(self.linear(&narrow, way));
        }
        list
    }

    fn encoder(&mut self, out: &wgpu::Buffer) -> Vec<Dispatch> {
        let memory = self.memory;
        let lanes = self.tuning.elementwise;
        let buffers = [
            memory.whole(Tensor::Tokens, None, 0),
            memory.whole(Tensor::Wpe, None, 0),
            memory.whole(Tensor::Exchange, None, 0),
        ];
        let mut list = Vec::new();
        let pieces = memory.pieces(self.inference.stored(Tensor::Wte), None, 0);
        for piece in pieces.expect("every model has an embedding") {
            let constants = vec![
                ("LANES", f64::from(lanes)),
                ("C", self.axes.c as f64),
                ("FIRST", f64::from(piece.first)),
                ("ROWS", f64::from(piece.rows)),
            ];
            let bound = [(0, out), (1, buffers[0]), (2, &piece.buffer), (3, buffers[1]), (4, buffers[2])];
            let extents = (Extent::Fixed(groups(self.axes.c / 8, lanes)), Extent::Tokens(1));
            list.push(self.dispatch(Kernel::Encoder, &constants, &bound, extents));
        }
        list
    }

    fn layernorm(
        &mut self,
        (out, inp): (&wgpu::Buffer, &wgpu::Buffer),
        (weight, bias): (Tensor, Tensor),
        layer: Option<u64>,
        last: bool,
    ) -> Dispatch {
        let memory = self.memory;
        let weight = memory.whole(weight, layer, 0);
        let biased = memory.pieces(bias.into(), layer, 0);
        let bias = biased.map_or(weight, |pieces| &pieces[0].buffer);
        let constants = vec![
            ("LANES", f64::from(self.tuning.layernorm)),
            ("C", self.axes.c as f64),
            ("CHANNELS", self.axes.channels as f64),
            ("BIAS", flag(biased.is_some())),
            ("LAST", flag(last)),
        ];
        let bound = [(0, out), (1, inp), (2, weight), (3, bias), (4, memory.whole(Tensor::Exchange, None, 0))];
        let rows = if last { Extent::Fixed(1) } else { Extent::Tokens(1) };
        self.dispatch(Kernel::Layernorm, &constants, &bound, (rows, Extent::Fixed(1)))
    }

    fn linear(&mut self, linear: &Linear<'_>, way: ForwardKind) -> Vec<Dispatch> {
        let memory = self.memory;
        let pieces = memory.pieces(self.inference.stored(linear.weight.0), linear.layer, 0);
        let mut list = Vec::new();
        for piece in pieces.expect("every model has this matrix") {
            list.push(match way {
                ForwardKind::Prompt => self.matmul(linear, piece),
                ForwardKind::Token => self.matvec(linear, piece),
            });
        }
        list
    }

    /// A layer's bias and whether it has one; without one, some buffer is bound in its place.
    fn bias(&self, linear: &Linear<'_>) -> (&'a wgpu::Buffer, bool) {
        match linear.weight.1.and_then(|bias| self.memory.pieces(bias.into(), linear.layer, 0)) {
            Some(pieces) => (&pieces[0].buffer, true),
            None => (self.memory.whole(Tensor::LnfW, None, 0), false),
        }
    }

    fn matmul(&mut self, linear: &Linear<'_>, piece: &Piece) -> Dispatch {
        let memory = self.memory;
        let (bias, is_biased) = self.bias(linear);
        let mut constants = vec![
            ("C", linear.c as f64),
            ("OC", linear.oc as f64),
            ("FIRST", f64::from(piece.first)),
            ("ROWS", f64::from(piece.rows)),
            ("BIAS", flag(is_biased)),
            ("AFTER", after(linear.after)),
        ];
        let bound = [
            (0, linear.out),
            (1, linear.inp),
            (2, &piece.buffer),
            (3, bias),
            (4, memory.whole(Tensor::Exchange, None, 0)),
        ];
        if self.tuning.direct {
            let lanes = self.tuning.matvec.0;
            constants.push(("LANES", f64::from(lanes)));
            let extents = (Extent::Fixed(piece.rows.div_ceil(4 * lanes)), Extent::Tokens(4));
            return self.dispatch(Kernel::MatmulDirect, &constants, &bound, extents);
        }
        let extents = (Extent::Fixed(piece.rows.div_ceil(64)), Extent::Tokens(32));
        self.dispatch(Kernel::Matmul, &constants, &bound, extents)
    }

    fn matvec(&mut self, linear: &Linear<'_>, piece: &Piece) -> Dispatch {
        let (bias, is_biased) = self.bias(linear);
        let (lanes, splits) = self.tuning.matvec;
        let constants = vec![
            ("LANES", f64::from(lanes)),
            ("SPLITS", f64::from(splits)),
            ("C", linear.c as f64),
            ("FIRST", f64::from(piece.first)),
            ("ROWS", f64::from(piece.rows)),
            ("BIAS", flag(is_biased)),
            ("AFTER", after(linear.after)),
        ];
        // An invocation computes one row of each of four blocks.
        let rows_a_group = 16 * lanes / (4 * splits);
        let all = piece.rows.div_ceil(rows_a_group);
        let y = all.div_ceil(GROUPS_MAX);
        let extents = (Extent::Fixed(all.div_ceil(y)), Extent::Fixed(y));
        let bound = [(0, linear.out), (1, linear.inp), (2, &piece.buffer), (3, bias)];
        self.dispatch(Kernel::Matvec, &constants, &bound, extents)
    }

    fn cache_constants(&self) -> Constants {
        let t = self.inference.cache_dims(self.config).t;
        vec![("C", self.axes.c as f64), ("HS", self.axes.hs as f64), ("T", t as f64)]
    }

    fn scale(&self) -> (&'static str, f64) {
        ("SCALE", 1.0 / (self.axes.head_size as f64).sqrt())
    }

    fn attention(&mut self, out: &wgpu::Buffer, qkv: &wgpu::Buffer, layer: Option<u64>) -> [Dispatch; 2] {
        let memory = self.memory;
        let (cache, pass) = (memory.whole(Tensor::KvCache, layer, 0), memory.whole(Tensor::Exchange, None, 0));
        let lanes = self.tuning.elementwise;
        let mut constants = self.cache_constants();
        constants.extend([("LANES", f64::from(lanes)), ("QUERIES", flag(self.inference.attention))]);
        let extents = (Extent::Fixed(groups(self.axes.c / 4, lanes)), Extent::Tokens(1));
        let append = self.dispatch(Kernel::CacheAppend, &constants, &[(0, cache), (1, qkv), (4, pass)], extents);
        let mut constants = self.cache_constants();
        let tile = ("TILE", f64::from(self.tuning.attention_tile));
        constants.extend([("LANES", f64::from(self.tuning.attention)), tile, self.scale()]);
        let extents = (Extent::Fixed(groups(self.axes.nh, 1)), Extent::Tokens(1));
        let bound = [(0, out), (1, qkv), (2, cache), (4, pass)];
        [append, self.dispatch(Kernel::AttentionCached, &constants, &bound, extents)]
    }

    fn attention_weights(&mut self, layer: u64) -> Dispatch {
        let memory = self.memory;
        let mut constants = self.cache_constants();
        let columns = ("COLUMNS", self.config.block_size() as f64);
        constants.extend([("LANES", f64::from(self.tuning.attention)), self.scale(), columns]);
        let cache = memory.whole(Tensor::KvCache, Some(layer), 0);
        let bound = [(0, memory.whole(Tensor::Att, None, 0)), (1, cache), (4, memory.whole(Tensor::Exchange, None, 0))];
        self.dispatch(Kernel::AttentionWeights, &constants, &bound, (Extent::Tokens(1), Extent::Fixed(1)))
    }

    fn logits(&mut self, last: bool) -> Vec<Dispatch> {
        let memory = self.memory;
        let [stream, ln, logits] =
            [Tensor::Encoded, Tensor::Ln1, Tensor::Logits].map(|tensor| memory.whole(tensor, None, 0));
        let mut list = vec![self.layernorm((ln, stream), (Tensor::LnfW, Tensor::LnfB), None, last)];
        let (c, oc) = (self.axes.c, self.axes.v);
        let head =
            Linear { weight: (Tensor::Wte, None), layer: None, out: logits, inp: ln, c, oc, after: Epilogue::Nothing };
        list.extend(self.linear(&head, ForwardKind::Token));
        list
    }

    fn sample(&mut self) -> Dispatch {
        let memory = self.memory;
        let constants = vec![
            ("LANES", f64::from(self.tuning.sample)),
            ("V", self.config.vocab_size() as f64),
            ("T", self.config.block_size() as f64),
        ];
        let [exchange, pass] = [1, 0].map(|place| memory.whole(Tensor::Exchange, None, place));
        let bound = [
            (0, exchange),
            (1, memory.whole(Tensor::Tokens, None, 0)),
            (2, memory.whole(Tensor::Logits, None, 0)),
            (4, pass),
        ];
        self.dispatch(Kernel::Sample, &constants, &bound, (Extent::Fixed(1), Extent::Fixed(1)))
    }
}

/// Maximum number of tokens per pass.
pub(super) fn pass_tokens_max(config: &GptConfig) -> u64 {
    config.block_size().min(PREFILL_TOKENS)
}

fn groups(n: usize, lanes: u32) -> u32 {
    u32::try_from(n.div_ceil(lanes as usize)).unwrap_or(u32::MAX)
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

/// Value of `AFTER` in `wgsl/parts/after.wgsl`.
fn after(after: Epilogue) -> f64 {
    match after {
        Epilogue::Nothing => 0.0,
        Epilogue::Gelu => 1.0,
        Epilogue::GeluTanh => 2.0,
        Epilogue::Residual => 3.0,
    }
}
