//! Moments of a micro-step, which delimit buffer lifetimes; a block's moments repeat for every block.

/// A moment; the order is chronological.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PlanTime {
    /// The embeddings.
    Encode,
    /// A block's first layer norm.
    Norm1,
    /// Queries, keys and values.
    Qkv,
    /// Attention.
    Attention,
    /// The output projection of attention.
    AttProj,
    /// The second layer norm.
    Norm2,
    /// The first layer of the MLP (four times as many channels), and GELU.
    Fc,
    /// The second layer of the MLP, and the next block's first layer norm if the two are fused.
    FcProj,
    /// The last layer norm, the logits and their gradients, chunk by chunk.
    Head,
    /// Start of a block's backward: recomputation of the whole block.
    Again,
    /// Gradients of the second layer of the MLP.
    DFcProj,
    /// Gradients of the first layer of the MLP.
    DFc,
    /// Gradients of the second layer norm.
    DNorm2,
    /// Gradients of attention's output projection.
    DAttProj,
    /// Gradients of attention.
    DAttention,
    /// Gradients of the projection to queries, keys and values.
    DQkv,
    /// Gradients of the first layer norm.
    DNorm1,
    /// Gradients of the embeddings.
    DEncode,
    /// The gradient norm, and AdamW.
    Update,
}

impl PlanTime {
    /// First moment of a micro-step.
    pub const FIRST: Self = Self::Encode;
    /// Last moment of an iteration.
    pub const LAST: Self = Self::Update;
}
