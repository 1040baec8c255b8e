//! The same run by the trainer that is built in, `headroom train` on a CUDA card: whether it fits, and what it computes
//! again so that it does.
//!
//! It allocates one arena, and the plan of it is the trainer's own: what stands here is what it takes, to the byte.

use super::{
    Request,
    json::{Node, number, words},
    signed_difference,
};
use crate::{
    dtype::Dtype,
    gpt::buffers::cuda::{
        RESERVE_BYTES, Recompute, Sized, size,
        workspace::{HEAD_SIZE_MAX, NORM_COLUMNS_MAX, norm_kernel, takes_heads_of},
    },
    text::{self, Table, Text, size as size_text},
};

/// What it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// Whether it fits, with its reserve left.
    pub fits: bool,
    /// The arena; where none fits, the least there is.
    pub allocated_bytes: u64,
    /// The whole card: other processes, context and arena.
    pub device_used_bytes: u64,
    /// What the card has left beyond the reserve; negative by what is missing.
    pub headroom_bytes: i64,
    /// What each block computes again.
    pub recompute: Vec<Recompute>,
    /// What the config asks for, where bfloat16 takes its place.
    pub instead_of: Option<Dtype>,
}

/// Plans the run for it, on the card as it is asked about.
///
/// # Errors
/// Why it cannot train that run at all.
pub fn builtin(request: &Request) -> Result<Builtin, Text> {
    let (gpt, train, device) = (&request.gpt, &request.train, &request.device);
    // The cards with bfloat16 are those that have the other instructions which its kernels are made of.
    if !device.supports_bfloat16() {
        return Err(text::builtin_old_card(&*device.name, device.compute_capability.to_string()));
    }
    // As small, and it overflows less: the trainer takes one for the other, and says so.
    let instead_of = (train.dtype == Dtype::Float16).then_some(train.dtype);
    if train.dtype != Dtype::Bfloat16 && instead_of.is_none() {
        return Err(text::builtin_dtype(train.dtype.name()));
    }
    if train.world_size > 1 {
        return Err(text::BUILTIN_ONE_GPU.into());
    }
    // Channels are in steps of 8 where those of a head are.
    if !takes_heads_of(gpt.head_size()) {
        return Err(text::builtin_width("n_embd / n_head", gpt.head_size(), HEAD_SIZE_MAX));
    }
    if norm_kernel(gpt.n_embd()).is_none() {
        return Err(text::builtin_width("n_embd", gpt.n_embd(), NORM_COLUMNS_MAX));
    }
    let outside_bytes = request.outside_bytes();
    let free_bytes = request.capacity_bytes().saturating_sub(RESERVE_BYTES);
    let Sized { bytes, recompute } = size(gpt, train.batch_size, free_bytes).map_err(|error| error.text())?;
    let device_used_bytes = outside_bytes.saturating_add(bytes);
    Ok(Builtin {
        fits: bytes <= free_bytes,
        allocated_bytes: bytes,
        device_used_bytes,
        headroom_bytes: signed_difference(device.total_bytes, device_used_bytes.saturating_add(RESERVE_BYTES)),
        recompute,
        instead_of,
    })
}

impl Builtin {
    /// The answer, on a card of `total_bytes`.
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

/// What is computed again, in words.
fn again(recompute: &[Recompute]) -> Text {
    let n_blocks = recompute.len();
    // The first has the higher level of two.
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

/// As `headroom plan --json` has it; where the run is not supported, figures are null. `table` says the reason.
#[must_use]
pub fn node(request: &Request, table: &Table) -> Node {
    let (builtin, reason) = match builtin(request) {
        Ok(builtin) => (Some(builtin), None),
        Err(reason) => (None, Some(table.say(&reason))),
    };
    let known = builtin.as_ref();
    let levels = known.map_or(&[][..], |known| &known.recompute);
    Node::Object(vec![
        ("supported", number(known.is_some())),
        ("reason", words(reason.as_deref())),
        ("fits", number(known.is_some_and(|known| known.fits))),
        ("allocated_bytes", number(known.map(|known| known.allocated_bytes))),
        ("device_used_bytes", number(known.map(|known| known.device_used_bytes))),
        ("recompute", Node::List(levels.iter().map(|level| words(Some(level.name()))).collect())),
        ("headroom_bytes", number(known.map(|known| known.headroom_bytes))),
        ("reserve_bytes", number(RESERVE_BYTES)),
    ])
}

#[cfg(test)]
mod tests;
