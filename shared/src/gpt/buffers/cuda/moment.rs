//! When a buffer is needed: the moments of a micro-step, of which a block's come again for every block.

/// A moment, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Moment {
    /// The embeddings.
    Encode,
    /// A block's first layer norm.
    Norm1,
    /// Its queries, keys and values.
    Qkv,
    /// Its attention.
    Attention,
    /// The layer behind that.
    AttProj,
    /// The second layer norm.
    Norm2,
    /// The layer of four times as many channels, and GELU.
    Fc,
    /// The layer back, and the next block's first layer norm where that is fused with it.
    FcProj,
    /// The last layer norm, the logits and their gradients, a chunk after the other.
    Head,
    /// A block's backward begins: what of it is computed again whole.
    Again,
    /// Gradients through the layer back.
    DFcProj,
    /// Through the layer of four times as many channels.
    DFc,
    /// Through the second layer norm.
    DNorm2,
    /// Through the layer behind attention.
    DAttProj,
    /// Through attention.
    DAttention,
    /// Through the layer of queries, keys and values.
    DQkv,
    /// Through the first layer norm.
    DNorm1,
    /// The embeddings' gradients.
    DEncode,
    /// The gradients' norm, and AdamW.
    Update,
}

impl Moment {
    /// The first of a micro-step.
    pub const FIRST: Self = Self::Encode;
    /// The last of an iteration.
    pub const LAST: Self = Self::Update;
}
