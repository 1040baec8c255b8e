//! Table of the shaders: which file each kernel is, and which parts go before it.

/// How a matrix is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// In f32.
    F32,
    /// In half precision, as words that are taken apart.
    Packed,
    /// In half precision, by a device that knows f16.
    F16,
}

impl Weights {
    /// All.
    pub const ALL: [Self; 3] = [Self::F32, Self::Packed, Self::F16];

    const fn part(self) -> &'static str {
        match self {
            Self::F32 => include_str!("../../wgsl/parts/weights_f32.wgsl"),
            Self::Packed => include_str!("../../wgsl/parts/weights_packed.wgsl"),
            Self::F16 => include_str!("../../wgsl/parts/weights_f16.wgsl"),
        }
    }
}

const PASS: &str = include_str!("../../wgsl/parts/pass.wgsl");
const AFTER: &str = include_str!("../../wgsl/parts/after.wgsl");
const LINEAR: &str = include_str!("../../wgsl/parts/linear.wgsl");

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Token and position embeddings, added.
    Encoder,
    /// Layer normalisation.
    Layernorm,
    /// A linear layer over many rows.
    Matmul,
    /// The same where invocations are a CPU's.
    MatmulDirect,
    /// A linear layer over one row.
    Matvec,
    /// Keys and values into the cache.
    CacheAppend,
    /// Attention over the cache.
    AttentionCached,
    /// The attention weights of one head.
    AttentionWeights,
    /// The next token.
    Sample,
}

impl Kernel {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Encoder,
        Self::Layernorm,
        Self::Matmul,
        Self::MatmulDirect,
        Self::Matvec,
        Self::CacheAppend,
        Self::AttentionCached,
        Self::AttentionWeights,
        Self::Sample,
    ];

    /// Its file's name without the ending.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder_forward",
            Self::Layernorm => "layernorm_forward",
            Self::Matmul => "matmul_forward",
            Self::MatmulDirect => "matmul_direct",
            Self::Matvec => "matvec_forward",
            Self::CacheAppend => "cache_append",
            Self::AttentionCached => "attention_cached",
            Self::AttentionWeights => "attention_weights",
            Self::Sample => "sample",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Encoder => include_str!("../../wgsl/encoder_forward.wgsl"),
            Self::Layernorm => include_str!("../../wgsl/layernorm_forward.wgsl"),
            Self::Matmul => include_str!("../../wgsl/matmul_forward.wgsl"),
            Self::MatmulDirect => include_str!("../../wgsl/matmul_direct.wgsl"),
            Self::Matvec => include_str!("../../wgsl/matvec_forward.wgsl"),
            Self::CacheAppend => include_str!("../../wgsl/cache_append.wgsl"),
            Self::AttentionCached => include_str!("../../wgsl/attention_cached.wgsl"),
            Self::AttentionWeights => include_str!("../../wgsl/attention_weights.wgsl"),
            Self::Sample => include_str!("../../wgsl/sample.wgsl"),
        }
    }

    /// Whether it reads a matrix in blocks.
    #[must_use]
    pub const fn reads_weights(self) -> bool {
        matches!(self, Self::Encoder | Self::Matmul | Self::MatmulDirect | Self::Matvec)
    }

    /// The whole shader.
    #[must_use]
    pub fn source(self, weights: Weights) -> String {
        let mut parts = Vec::new();
        if self.reads_weights() {
            parts.push(weights.part());
        }
        if self != Self::Matvec {
            parts.push(PASS);
        }
        if matches!(self, Self::Matmul | Self::MatmulDirect | Self::Matvec) {
            parts.extend([AFTER, LINEAR]);
        }
        parts.push(self.text());
        parts.join("\n")
    }
}
