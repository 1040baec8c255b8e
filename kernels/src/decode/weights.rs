//! The decoder's weights and their products.

use headroom_planner::gpt::{
    GptConfig,
    tensors::{Role, Tensor, TensorId},
};

use super::{
    DecodeError, int16,
    linear::{Deinterleave, F32, Int16, Linear, Packing},
    memory::BufferPool,
};
use crate::simd::Level;

/// The elements of a matrix.
#[derive(Debug)]
enum Elements {
    F32(Vec<f32>),
    Int16 { ints: Vec<i16>, scales: Vec<f32> },
}

/// A linear layer.
#[derive(Debug)]
pub(super) struct Layer {
    /// The matrix, packed.
    elements: Elements,
    packing: Packing,
    bias: Option<Vec<f32>>,
}

impl Layer {
    fn take(
        supply: &mut BufferPool,
        (weight, bias): (Tensor, Option<Tensor>),
        layer: Option<usize>,
        level: Level,
        c: usize,
    ) -> Self {
        let elements = supply.f32(weight, layer).map(Elements::F32).unwrap_or_else(|| {
            let ints = supply.int16(TensorId { tensor: weight, role: Role::Int16 }, layer);
            let scales = supply.f32(TensorId { tensor: weight, role: Role::RowScale }, layer);
            Elements::Int16 { ints: ints.expect("planned in one way or the other"), scales: scales.expect("with them") }
        });
        let n = match &elements {
            Elements::F32(weights) => weights.len(),
            Elements::Int16 { ints, .. } => ints.len(),
        };
        let packing = Packing { c, oc: n / c, chunk: 2 * level.lanes() };
        Self { elements, packing, bias: bias.and_then(|bias| supply.f32(bias, layer)) }
    }

    fn load(&mut self, from: &[f32]) -> Result<(), int16::NotFinite> {
        let packing = self.packing;
        let mut row_ints = vec![0; packing.c];
        for (row, from) in from.chunks_exact(packing.c).enumerate() {
            match &mut self.elements {
                Elements::F32(weights) => scatter(weights, from, packing.pieces(row)),
                Elements::Int16 { ints, scales } => {
                    scales[row] = int16::encode(&mut row_ints, from)?;
                    scatter(ints, &row_ints, packing.pieces(row));
                }
            }
        }
        Ok(())
    }

    /// Adds row `row` of the matrix, of C elements, to `out`.
    pub(super) fn add_row(&self, out: &mut [f32], row: usize) {
        let mut rest = out;
        for piece in self.packing.pieces(row) {
            let (out, after) = rest.split_at_mut(piece.len());
            match &self.elements {
                Elements::F32(weights) => out.iter_mut().zip(&weights[piece]).for_each(|(out, weight)| *out += weight),
                Elements::Int16 { ints, scales } => {
                    let (ints, scale) = (&ints[piece], scales[row]);
                    out.iter_mut().enumerate().for_each(|(i, out)| *out += int16::weight(ints, i) * scale);
                }
            }
            rest = after;
        }
    }

    /// Computes the layer's output, and adds it to `out` if `adds`.
    ///
    /// Shapes: `inp` (N, C), which may be reordered → `out` (N, OC).
    pub(super) fn forward(&self, level: Level, out: &mut [f32], inp: &mut [f32], adds: bool) {
        let (bias, packing) = (self.bias.as_deref(), self.packing);
        match &self.elements {
            Elements::F32(weights) => level.run(Linear { out, inp, matrix: F32(weights), bias, packing, adds }),
            Elements::Int16 { ints, scales } => {
                level.run(Deinterleave { inout: inp, c: packing.c });
                level.run(Linear { out, inp, matrix: Int16 { ints, scales }, bias, packing, adds });
            }
        }
    }
}

fn scatter<T: Copy>(to: &mut [T], from: &[T], pieces: impl Iterator<Item = std::ops::Range<usize>>) {
    let mut rest = from;
    for piece in pieces {
        let (from, after) = rest.split_at(piece.len());
        to[piece].copy_from_slice(from);
        rest = after;
    }
}

/// A layer norm.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
}

impl Norm {
    fn take(supply: &mut BufferPool, (weight, bias): (Tensor, Tensor), layer: Option<usize>) -> Self {
        let weight = supply.f32(weight, layer).expect("every model has this tensor");
        Self { weight, bias: supply.f32(bias, layer) }
    }

    /// Computes the layer norm. Shapes: `inp` (N, C) → `out` (N, C).
    pub(super) fn forward(&self, level: Level, out: &mut [f32], inp: &[f32]) {
        level.run(super::math::Norm { out, inp, weight: &self.weight, bias: self.bias.as_deref() });
    }
}

/// The weights of a block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) ln_1: Norm,
    pub(super) c_attn: Layer,
    pub(super) att_proj: Layer,
    pub(super) ln_2: Norm,
    pub(super) c_fc: Layer,
    pub(super) fc_proj: Layer,
}

/// All weights of a model.
#[derive(Debug)]
pub(super) struct Weights {
    /// The token embedding, also used as the output layer.
    pub(super) wte: Layer,
    pub(super) wpe: Vec<f32>,
    pub(super) blocks: Vec<Block>,
    pub(super) ln_f: Norm,
}

impl Weights {
    /// Takes the planned buffers, still zero, from the supply.
    pub(super) fn take(supply: &mut BufferPool, config: &GptConfig, level: Level, c: usize) -> Self {
        let n_layer = usize::try_from(config.n_layer()).unwrap_or(0);
        let linear = |supply: &mut BufferPool, tensors, layer, c| Layer::take(supply, tensors, layer, level, c);
        let block = |layer| {
            let layer = Some(layer);
            Block {
                ln_1: Norm::take(supply, (Tensor::Ln1W, Tensor::Ln1B), layer),
                c_attn: linear(supply, (Tensor::QkvW, Some(Tensor::QkvB)), layer, c),
                att_proj: linear(supply, (Tensor::AttProjW, Some(Tensor::AttProjB)), layer, c),
                ln_2: Norm::take(supply, (Tensor::Ln2W, Tensor::Ln2B), layer),
                c_fc: linear(supply, (Tensor::FcW, Some(Tensor::FcB)), layer, c),
                fc_proj: linear(supply, (Tensor::FcProjW, Some(Tensor::FcProjB)), layer, 4 * c),
            }
        };
        let blocks = (0..n_layer).map(block).collect();
        Self {
            wte: linear(supply, (Tensor::Wte, None), None, c),
            wpe: supply.f32(Tensor::Wpe, None).expect("every model has this tensor"),
            blocks,
            ln_f: Norm::take(supply, (Tensor::LnfW, Tensor::LnfB), None),
        }
    }

    /// Copies a parameter into its buffer.
    pub(super) fn load(&mut self, tensor: Tensor, layer: Option<usize>, from: &[f32]) -> Result<(), DecodeError> {
        let name = || tensor.full_name(layer.map(|layer| layer as u64));
        let to = self.place(tensor, layer).ok_or_else(|| DecodeError::NoSuchTensor { tensor: name() })?;
        let elements = match &to {
            ParameterTarget::Matrix(matrix) => matrix.packing.oc * matrix.packing.c,
            ParameterTarget::Vector(vector) => vector.len(),
        };
        if from.len() != elements {
            return Err(DecodeError::WrongLength { tensor: Some(name()), elements: from.len(), expected: elements });
        }
        match to {
            ParameterTarget::Matrix(matrix) => {
                matrix.load(from).map_err(|int16::NotFinite| DecodeError::NotFinite { tensor: name() })?;
            }
            ParameterTarget::Vector(vector) => vector.copy_from_slice(from),
        }
        Ok(())
    }

    fn place(&mut self, tensor: Tensor, layer: Option<usize>) -> Option<ParameterTarget<'_>> {
        let Some(layer) = layer else {
            return match tensor {
                Tensor::Wte => Some(ParameterTarget::Matrix(&mut self.wte)),
                Tensor::Wpe => Some(ParameterTarget::Vector(&mut self.wpe)),
                Tensor::LnfW => Some(ParameterTarget::Vector(&mut self.ln_f.weight)),
                Tensor::LnfB => self.ln_f.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
                _ => None,
            };
        };
        let block = self.blocks.get_mut(layer)?;
        match tensor {
            Tensor::Ln1W => Some(ParameterTarget::Vector(&mut block.ln_1.weight)),
            Tensor::Ln1B => block.ln_1.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
            Tensor::QkvW => Some(ParameterTarget::Matrix(&mut block.c_attn)),
            Tensor::QkvB => block.c_attn.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
            Tensor::AttProjW => Some(ParameterTarget::Matrix(&mut block.att_proj)),
            Tensor::AttProjB => block.att_proj.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
            Tensor::Ln2W => Some(ParameterTarget::Vector(&mut block.ln_2.weight)),
            Tensor::Ln2B => block.ln_2.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
            Tensor::FcW => Some(ParameterTarget::Matrix(&mut block.c_fc)),
            Tensor::FcB => block.c_fc.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
            Tensor::FcProjW => Some(ParameterTarget::Matrix(&mut block.fc_proj)),
            Tensor::FcProjB => block.fc_proj.bias.as_mut().map(|bias| ParameterTarget::Vector(bias)),
            _ => None,
        }
    }
}

/// The destination of a parameter.
enum ParameterTarget<'a> {
    Matrix(&'a mut Layer),
    Vector(&'a mut [f32]),
}
