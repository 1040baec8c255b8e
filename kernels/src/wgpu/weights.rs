//! Upload of parameters: padded, in blocks, and in half precision if configured.

use headroom_planner::gpt::{
    GptConfig,
    buffers::inference::Inference,
    tensors::{Role, Tensor},
};

use super::{Gpu, GpuError, memory::Memory};
use crate::reference::pack::{BLOCK_ROWS, pack_f32, pack_half};

/// Numbers converted at a time: enough for speed, and small compared to the model.
const NUMBERS_A_WRITE: usize = 1 << 18;

/// An axis of a parameter, which maps padded indices to the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Channels,
    /// Channels by head, with each head padded.
    Heads,
    /// `Heads` three times: queries, keys and values.
    Qkv,
    /// Four times the channels.
    Wide,
    Vocabulary,
    Positions,
}

/// Axis lengths of the model and of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axes {
    /// Channels of the model.
    pub(super) channels: usize,
    /// Padded channels, C.
    pub(super) c: usize,
    /// Channels per head of the model.
    pub(super) head_size: usize,
    /// Padded channels per head, HS.
    pub(super) hs: usize,
    /// Number of heads, NH.
    pub(super) nh: usize,
    /// Padded rows of the embedding, V.
    pub(super) v: usize,
    vocab_size: usize,
    block_size: usize,
}

impl Axes {
    pub(super) fn new(config: &GptConfig, inference: Inference) -> Result<Self, GpuError> {
        let dims = inference.dims(config);
        let size = |n: u64| usize::try_from(n).map_err(|_| GpuError::TooLarge(crate::layout::TooLarge));
        Ok(Self {
            channels: size(config.n_embd())?,
            c: size(dims.c)?,
            head_size: size(config.head_size())?,
            hs: size(dims.c / dims.h)?,
            nh: size(dims.h)?,
            v: size(dims.v)?,
            vocab_size: size(config.vocab_size())?,
            block_size: size(config.block_size())?,
        })
    }

    /// The model's index for each padded index of an axis; `None` in the padding.
    fn map(&self, axis: Axis) -> Vec<Option<usize>> {
        let first = |n: usize, padded: usize| (0..padded).map(|place| (place < n).then_some(place)).collect();
        let head = |place: usize| {
            let (h, channel) = (place / self.hs, place % self.hs);
            (channel < self.head_size).then_some(h * self.head_size + channel)
        };
        match axis {
            Axis::Channels => first(self.channels, self.c),
            Axis::Wide => first(4 * self.channels, 4 * self.c),
            Axis::Vocabulary => first(self.vocab_size, self.v),
            Axis::Positions => first(self.block_size, self.block_size),
            Axis::Heads => (0..self.c).map(head).collect(),
            Axis::Qkv => {
                (0..3 * self.c).map(|place| Some(place / self.c * self.channels + head(place % self.c)?)).collect()
            }
        }
    }
}

/// Axes of a parameter's rows and columns; a vector has no rows.
fn axes_of(tensor: Tensor) -> (Option<Axis>, Axis) {
    match tensor {
        Tensor::Wte => (Some(Axis::Vocabulary), Axis::Channels),
        Tensor::Wpe => (Some(Axis::Positions), Axis::Channels),
        Tensor::QkvW => (Some(Axis::Qkv), Axis::Channels),
        Tensor::QkvB => (None, Axis::Qkv),
        Tensor::AttProjW => (Some(Axis::Channels), Axis::Heads),
        Tensor::FcW => (Some(Axis::Wide), Axis::Channels),
        Tensor::FcB => (None, Axis::Wide),
        Tensor::FcProjW => (Some(Axis::Channels), Axis::Wide),
        _ => (None, Axis::Channels),
    }
}

/// Writes one parameter of the model in the layout that the kernels read.
pub(super) fn write(
    gpu: &Gpu,
    memory: &Memory,
    axes: &Axes,
    inference: Inference,
    (tensor, layer): (Tensor, Option<u64>),
    values: &[f32],
) -> Result<(), GpuError> {
    let name = || tensor.full_name(layer);
    let stored = inference.stored(tensor);
    let pieces = memory.pieces(stored, layer, 0).ok_or_else(|| GpuError::NoSuchParameter { name: name() })?;
    let (rows, columns) = axes_of(tensor);
    let columns = axes.map(columns);
    let n_columns = columns.iter().flatten().count();
    let rows = rows.map_or_else(|| vec![Some(0)], |rows| axes.map(rows));
    let expected = rows.iter().flatten().count() * n_columns;
    if values.len() != expected {
        return Err(GpuError::WrongLength { name: Some(name()), expected, given: values.len() });
    }
    let element = |row: usize, column: usize| match (rows[row], columns[column]) {
        (Some(row), Some(column)) => values[row * n_columns + column],
        _ => 0.0,
    };
    let c = columns.len();
    if pieces[0].rows == 0 {
        let flat: Vec<f32> =
            (0..rows.len()).flat_map(|row| (0..c).map(move |i| (row, i))).map(|(row, i)| element(row, i)).collect();
        write_words(gpu, &pieces[0].buffer, 0, flat.iter().map(|x| x.to_bits()));
        return Ok(());
    }
    let rows_a_write = (NUMBERS_A_WRITE / c).next_multiple_of(BLOCK_ROWS);
    for piece in pieces {
        let (first, n) = (piece.first as usize, piece.rows as usize);
        for start in (0..n).step_by(rows_a_write) {
            let len = rows_a_write.min(n - start) * c;
            let element = |row: usize, column: usize| element(first + start + row, column);
            if stored.role == Role::Half {
                let mut words = vec![0_u32; len / 2];
                pack_half(&mut words, c, element);
                write_words(gpu, &piece.buffer, start * c / 2, words.into_iter());
            } else {
                let mut numbers = vec![0.0_f32; len];
                pack_f32(&mut numbers, c, element);
                write_words(gpu, &piece.buffer, start * c, numbers.into_iter().map(f32::to_bits));
            }
        }
    }
    gpu.check()
}

fn write_words(gpu: &Gpu, buffer: &wgpu::Buffer, at: usize, words: impl Iterator<Item = u32>) {
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    gpu.queue.write_buffer(buffer, 4 * at as u64, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_planner::gpt::GptShape;

    #[test]
    fn padding_follows_each_head_and_the_channels() {
        let shape =
            GptShape { n_layer: 1, n_head: 2, n_embd: 6, block_size: 5, vocab_size: 7, dropout: 0.0, bias: true };
        let axes = Axes::new(&GptConfig::new(shape).expect("valid"), Inference::default()).expect("small");
        assert_eq!((axes.c, axes.hs, axes.v), (16, 8, 8));
        let filled = |axis| {
            axes.map(axis)
                .iter()
                .map(|place| place.map_or(-1, |place| i32::try_from(place).expect("small")))
                .collect::<Vec<_>>()
        };
        assert_eq!(filled(Axis::Heads), [0, 1, 2, -1, -1, -1, -1, -1, 3, 4, 5, -1, -1, -1, -1, -1]);
        assert_eq!(filled(Axis::Channels)[..8], [0, 1, 2, 3, 4, 5, -1, -1]);
        assert_eq!(filled(Axis::Qkv)[16..20], [6, 7, 8, -1]);
        assert_eq!(filled(Axis::Vocabulary), [0, 1, 2, 3, 4, 5, 6, -1]);
    }
}
