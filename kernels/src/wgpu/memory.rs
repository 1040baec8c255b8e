//! The engine's buffers: those of the planned list, allocated at the start.

use headroom_planner::gpt::{
    buffers::{Buffer, Buffers, inference::ROW_BLOCK},
    tensors::{Role, Tensor, TensorId},
};
use headroom_text as text;

use super::{Gpu, GpuError};

/// A planned buffer and its allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// Buffer in the plan.
    pub planned: Buffer,
    /// Allocated bytes.
    pub bytes: u64,
    /// Number of device buffers that hold it: more than one if it exceeds the limit of a binding.
    pub n_pieces: usize,
}

/// A device buffer with some rows of a matrix, or with a whole tensor.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) buffer: wgpu::Buffer,
    /// Index of the first row.
    pub(super) first: u32,
    pub(super) rows: u32,
}

#[derive(Debug)]
struct Slot {
    planned: Buffer,
    pieces: Vec<Piece>,
}

/// All buffers of an engine.
#[derive(Debug)]
pub(super) struct Memory(Vec<Slot>);

/// Usage flags of a buffer.
fn usage(stored: TensorId, place: usize) -> wgpu::BufferUsages {
    use wgpu::BufferUsages as Usage;
    match (stored.tensor, place) {
        (Tensor::Exchange, 0) => Usage::UNIFORM | Usage::COPY_DST,
        (Tensor::Exchange, 2) | (Tensor::Logits | Tensor::Att, 1) => Usage::MAP_READ | Usage::COPY_DST,
        _ => Usage::STORAGE | Usage::COPY_DST | Usage::COPY_SRC,
    }
}

/// Rows and bytes per row of a matrix stored in blocks; `None` for other tensors, which are not split.
fn rows_in_blocks(stored: TensorId, c: u64, elements: u64) -> Option<(u64, u64)> {
    let columns = match stored.tensor {
        Tensor::Wte | Tensor::QkvW | Tensor::AttProjW | Tensor::FcW => c,
        Tensor::FcProjW => 4 * c,
        _ => return None,
    };
    let bytes = if stored.role == Role::Half { 2 } else { 4 };
    Some((elements / columns, columns * bytes))
}

impl Memory {
    /// Allocates all buffers. No binding exceeds `binding_bytes_max`.
    pub(super) async fn allocate(gpu: &Gpu, list: &Buffers, c: u64, binding_bytes_max: u64) -> Result<Self, GpuError> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut scopes = Vec::new();
        let mut allocated_bytes = 0;
        for &planned in list.all() {
            let place = slots.iter().filter(|slot| slot.planned.stored == planned.stored).count();
            let place = if planned.layer.is_some() { 0 } else { place };
            let pieces = cut(&planned, c, binding_bytes_max)?;
            let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let pieces = pieces.into_iter().map(|(first, rows, size)| {
                let descriptor = wgpu::BufferDescriptor {
                    label: Some(planned.stored.tensor.name()),
                    size,
                    usage: usage(planned.stored, place),
                    mapped_at_creation: false,
                };
                Piece { buffer: gpu.device.create_buffer(&descriptor), first, rows }
            });
            slots.push(Slot { planned, pieces: pieces.collect() });
            scopes.push((scope.pop(), planned, allocated_bytes));
            allocated_bytes += planned.bytes;
        }
        for (error, planned, allocated_bytes) in scopes {
            if error.await.is_some() {
                let (tensor, requested_bytes) = (planned.name(), planned.bytes);
                return Err(GpuError::OutOfMemory { tensor, requested_bytes, allocated_bytes });
            }
        }
        gpu.check()?;
        Ok(Self(slots))
    }

    /// The pieces of a tensor, from the `place`-th buffer of that name.
    pub(super) fn pieces(&self, stored: TensorId, layer: Option<u64>, place: usize) -> Option<&[Piece]> {
        let mut found = self.0.iter().filter(|slot| slot.planned.stored == stored && slot.planned.layer == layer);
        Some(&found.nth(place)?.pieces)
    }

    /// The buffer of a tensor that is not split.
    pub(super) fn whole(&self, tensor: Tensor, layer: Option<u64>, place: usize) -> &wgpu::Buffer {
        let pieces = self.pieces(TensorId::from(tensor), layer, place);
        &pieces.and_then(<[Piece]>::first).expect("the plan has every tensor that the engine names").buffer
    }

    pub(super) fn allocated(&self) -> Vec<PlannedBuffer> {
        let bytes = |slot: &Slot| slot.pieces.iter().map(|piece| piece.buffer.size()).sum();
        let allocated =
            |slot: &Slot| PlannedBuffer { planned: slot.planned, bytes: bytes(slot), n_pieces: slot.pieces.len() };
        self.0.iter().map(allocated).collect()
    }
}

/// Splits a buffer: first row, number of rows and bytes of each piece.
fn cut(planned: &Buffer, c: u64, binding_bytes_max: u64) -> Result<Vec<(u32, u32, u64)>, GpuError> {
    let too_small = |needed| GpuError::LimitTooSmall {
        what: text::verbatim(planned.name()),
        limit: "maxStorageBufferBindingSize".into(),
        needed,
        available: binding_bytes_max,
    };
    let narrow = |rows: u64| u32::try_from(rows).map_err(|_| too_small(planned.bytes));
    if planned.bytes <= binding_bytes_max {
        let rows = rows_in_blocks(planned.stored, c, planned.elements).map_or(0, |(rows, _)| rows);
        return Ok(vec![(0, narrow(rows)?, planned.bytes)]);
    }
    let (rows, row_bytes) =
        rows_in_blocks(planned.stored, c, planned.elements).ok_or_else(|| too_small(planned.bytes))?;
    let each = binding_bytes_max / row_bytes / ROW_BLOCK * ROW_BLOCK;
    if each == 0 {
        return Err(too_small(row_bytes * ROW_BLOCK));
    }
    let starts = (0..rows.div_ceil(each)).map(|piece| piece * each);
    starts
        .map(|first| (first, each.min(rows - first)))
        .map(|(first, n)| Ok((narrow(first)?, narrow(n)?, n * row_bytes)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_planner::gpt::{GptConfig, buffers::inference::Inference, presets::Preset};

    #[test]
    fn the_embedding_of_gpt2_takes_two_bindings_and_loses_no_byte() {
        let config = GptConfig::new(Preset::named("gpt2").expect("a preset").shape(1024, 0.0)).expect("valid");
        for (half, n_pieces) in [(false, 2), (true, 1)] {
            let list = Inference { half, attention: false }.buffers(&config).expect("small");
            let wte = list.all().iter().find(|buffer| buffer.stored.tensor == Tensor::Wte).expect("an embedding");
            let pieces = cut(wte, 768, 128 << 20).expect("fits");
            assert_eq!(pieces.len(), n_pieces);
            assert_eq!(pieces.iter().map(|&(_, _, bytes)| bytes).sum::<u64>(), wte.bytes);
            assert_eq!(pieces.iter().map(|&(_, rows, _)| rows).sum::<u32>(), 50260);
            assert!(pieces.iter().all(|&(first, rows, bytes)| bytes <= 128 << 20 && (first | rows) % 4 == 0));
        }
    }

    #[test]
    fn indivisible_size_is_refused_with_limit() {
        let config = GptConfig::new(Preset::named("gpt2").expect("a preset").shape(1024, 0.0)).expect("valid");
        let list = Inference::default().buffers(&config).expect("small");
        let cache = list.all().iter().find(|buffer| buffer.stored.tensor == Tensor::KvCache).expect("a cache");
        let error = cut(cache, 768, 1 << 20).expect_err("a cache is whole");
        let error = error.to_string();
        let limit = "needs maxStorageBufferBindingSize of 6,291,456, but the GPU has 1,048,576. ";
        assert!(error.starts_with(&format!("transformer.h.0.k and v cache {limit}")), "{error}");
    }
}
