//! The same run under Headroom's built-in trainer (`headroom train` on a CUDA GPU): whether it fits, and which
//! activations it recomputes to fit.
//!
//! The built-in trainer allocates one arena. This module uses the trainer's own planner, so the figures are exact to
//! the byte.

use super::signed_difference;
use crate::{
    dtype::Dtype,
    gpt::buffers::cuda::{
        ArenaSize, RESERVE_BYTES, Recompute, size,
        workspace::{HEAD_SIZE_MAX, NORM_COLUMNS_MAX, norm_kernel, takes_heads_of},
    },
    request::Request,
};
use headroom_text::{self as text, Text, size as size_text};

/// Memory of a run under the built-in trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltinMemory {
    /// Whether the run fits, with the trainer's reserve left free.
    pub fits: bool,
    /// Bytes of the arena; if the run does not fit, of the smallest possible arena.
    pub allocated_bytes: u64,
    /// Memory in use on the whole GPU, in bytes: other processes, CUDA context and arena.
    pub device_used_bytes: u64,
    /// Memory left beyond the reserve, in bytes; negative if the run does not fit.
    pub headroom_bytes: i64,
    /// Activation recomputation of each block.
    pub recompute: Vec<Recompute>,
    /// Element type of the config, if the trainer replaces it with bfloat16.
    pub instead_of: Option<Dtype>,
}

/// Plans the run for the built-in trainer, on the request's GPU.
///
/// # Errors
/// The reason why the built-in trainer cannot train the run at all.
pub fn builtin(request: &Request) -> Result<BuiltinMemory, Text> {
    let (gpt, train, device) = (&request.gpt, &request.train, &request.machine.device);
    // GPUs with bfloat16 also have the other instructions that the kernels use.
    if !device.supports_bfloat16() {
        return Err(text::builtin_old_card(&*device.name, device.compute_capability.to_string()));
    }
    // bfloat16 has the same size and a larger range, so the trainer uses it instead of float16 and reports that.
    let instead_of = (train.dtype == Dtype::Float16).then_some(train.dtype);
    if train.dtype != Dtype::Bfloat16 && instead_of.is_none() {
        return Err(text::builtin_dtype(train.dtype.name()));
    }
    if train.world_size > 1 {
        return Err(text::BUILTIN_ONE_GPU.into());
    }
    // If the channels per head are a multiple of 8, so are all channels.
    if !takes_heads_of(gpt.head_size()) {
        return Err(text::builtin_width("n_embd / n_head", gpt.head_size(), HEAD_SIZE_MAX));
    }
    if norm_kernel(gpt.n_embd()).is_none() {
        return Err(text::builtin_width("n_embd", gpt.n_embd(), NORM_COLUMNS_MAX));
    }
    let outside_bytes = request.machine.outside_bytes();
    let free_bytes = request.machine.capacity_bytes().saturating_sub(RESERVE_BYTES);
    let ArenaSize { bytes, recompute } = size(gpt, train.batch_size, free_bytes).map_err(|error| error.text())?;
    let device_used_bytes = outside_bytes.saturating_add(bytes);
    Ok(BuiltinMemory {
        fits: bytes <= free_bytes,
        allocated_bytes: bytes,
        device_used_bytes,
        headroom_bytes: signed_difference(device.total_bytes, device_used_bytes.saturating_add(RESERVE_BYTES)),
        recompute,
        instead_of,
    })
}

impl BuiltinMemory {
    /// Summary for the user, on a GPU with `total_bytes`.
    #[must_use]
    pub fn text(&self, total_bytes: u64) -> Text {
        let answer = match self.fits {
            true => {
                text::builtin_fits(size_text(self.device_used_bytes), size_text(total_bytes), again(&self.recompute))
            }
            false => text::builtin_fails(size_text(self.headroom_bytes.unsigned_abs())),
        };
        match self.instead_of {
            Some(dtype) => text::builtin_bfloat16(answer, dtype.name()),
            None => answer,
        }
    }
}

/// Description of the activation recomputation.
fn again(recompute: &[Recompute]) -> Text {
    let n_blocks = recompute.len();
    // With two levels, the first block has the higher one.
    let (Some(&first), Some(&last)) = (recompute.first(), recompute.last()) else { return text::AGAIN_NONE.into() };
    let n = |level| recompute.iter().filter(|&&other| other == level).count();
    let of = |level| match level {
        Recompute::None => text::AGAIN_NONE.into(),
        Recompute::GeluAndLayernorm => text::again_gelu(n(level), n_blocks),
        Recompute::Attention => text::again_attention(n(level), n_blocks),
        Recompute::Block => text::again_block(n(level), n_blocks),
    };
    if first == last || last == Recompute::None { of(first) } else { text::again_less(of(first)) }
}

#[cfg(test)]
mod tests;
