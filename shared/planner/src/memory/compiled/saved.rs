//! Conversions from the forward graph's buffers to slots, and from slots to the backward graph's inputs.

use super::{
    SavedBlock, attention,
    block::Block,
    wrapper::{Buf, Graph, Slots},
};
use crate::{gpt::tensors::Tensor, memory::program::Slot};

/// The slots of several returned buffers.
pub(super) fn slots_of(slots: &Slots, bufs: &[(Tensor, Buf)]) -> Option<Vec<(Tensor, Slot)>> {
    bufs.iter().map(|&(tensor, buf)| Some((tensor, slots.of(buf)?))).collect()
}

/// Adds several saved tensors as inputs of a graph.
pub(super) fn inputs(g: &mut Graph, saved: &[(Tensor, Slot)]) -> Vec<(Tensor, Buf)> {
    saved.iter().map(|&(tensor, slot)| (tensor, g.input(tensor, slot))).collect()
}

impl SavedBlock {
    /// The slots of a block after its graph was written.
    pub(super) fn of(block: &Block, slots: &Slots) -> Option<Self> {
        let optional = |buf: Option<Buf>| buf.and_then(|buf| slots.of(buf));
        Some(Self {
            ln1: match &block.ln1 {
                Some(saved) => Some(slots_of(slots, saved)?),
                None => None,
            },
            ln1_out: slots.of(block.ln1_out)?,
            qkv_weight: optional(block.qkv_weight),
            attention: (block.attention.out.0, slots.of(block.attention.out.1)?),
            attention_saved: slots_of(slots, &block.attention.saved)?,
            att_proj_weight: optional(block.att_proj_weight),
            attproj_mask: optional(block.attproj_mask),
            ln2: slots_of(slots, &block.ln2)?,
            ln2_out: slots.of(block.ln2_out)?,
            fc_weight: optional(block.fc_weight),
            fch: slots.of(block.fch)?,
            fch_gelu: slots.of(block.fch_gelu)?,
            fc_proj_weight: optional(block.fc_proj_weight),
            fcproj_mask: optional(block.fcproj_mask),
        })
    }

    /// Adds the block's tensors as inputs of another graph.
    pub(super) fn enter(&self, g: &mut Graph) -> Block {
        let optional = |g: &mut Graph, tensor, slot: Option<Slot>| slot.map(|slot| g.input(tensor, slot));
        Block {
            ln1: self.ln1.as_ref().map(|saved| inputs(g, saved)),
            ln1_out: g.input(Tensor::Ln1Out, self.ln1_out),
            qkv_weight: optional(g, Tensor::QkvWCast, self.qkv_weight),
            attention: attention::Attention {
                out: (self.attention.0, g.input(self.attention.0, self.attention.1)),
                saved: inputs(g, &self.attention_saved),
            },
            att_proj_weight: optional(g, Tensor::AttProjWCast, self.att_proj_weight),
            attproj_mask: optional(g, Tensor::AttprojMask, self.attproj_mask),
            ln2: inputs(g, &self.ln2),
            ln2_out: g.input(Tensor::Ln2Out, self.ln2_out),
            fc_weight: optional(g, Tensor::FcWCast, self.fc_weight),
            fch: g.input(Tensor::Fch, self.fch),
            fch_gelu: g.input(Tensor::FchGelu, self.fch_gelu),
            fc_proj_weight: optional(g, Tensor::FcProjWCast, self.fc_proj_weight),
            fcproj_mask: optional(g, Tensor::FcprojMask, self.fcproj_mask),
        }
    }
}
