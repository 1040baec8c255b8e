//! Table of the shaders: the file of each kernel, and the parts that precede it.

/// Storage format of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// Float32.
    F32,
    /// Half precision, unpacked from 32-bit words.
    Packed,
    /// Half precision, for devices with the f16 feature.
    F16,
}

impl Weights {
    /// All formats.
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

/// A compute kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Sum of token and position embeddings.
    Encoder,
    /// Layer normalization.
    Layernorm,
    /// Linear layer over many rows.
    Matmul,
    /// Linear layer over many rows, for adapters that compute on a CPU.
    MatmulDirect,
    /// Linear layer over one row.
    Matvec,
    /// Writes keys and values to the cache.
    CacheAppend,
    /// Attention over the cache.
    AttentionCached,
    /// Attention weights of one head.
    AttentionWeights,
    /// Selection of the next token.
    Sample,
}

impl Kernel {
    /// All kernels.
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

    /// Name of the kernel's file without its extension.
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

    /// Whether the kernel reads a matrix in blocks.
    #[must_use]
    pub const fn reads_weights(self) -> bool {
        matches!(self, Self::Encoder | Self::Matmul | Self::MatmulDirect | Self::Matvec)
    }

    /// The complete shader source for a weight format.
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
