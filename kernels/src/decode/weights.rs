//! A model's weights as the decoder keeps them, and the products with them.

use headroom_shared::gpt::{
    GptConfig,
    tensors::{Role, Stored, Tensor},
};

use super::{
    DecodeError, int16,
    linear::{Deinterleave, F32, Int16, Linear},
    memory::Supply,
    simd::Level,
};

/// A matrix (OC, C).
#[derive(Debug)]
pub(super) enum Matrix {
    F32(Vec<f32>),
    Int16 { ints: Vec<i16>, scales: Vec<f32> },
}

impl Matrix {
    fn take(supply: &mut Supply, tensor: Tensor, layer: Option<usize>) -> Self {
        if let Some(weights) = supply.f32(tensor, layer) {
            return Self::F32(weights);
        }
        let ints = supply.int16(Stored { tensor, role: Role::Int16 }, layer);
        let scales = supply.f32(Stored { tensor, role: Role::RowScale }, layer);
        Self::Int16 { ints: ints.expect("planned in one way or the other"), scales: scales.expect("planned with them") }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(weights) => weights.len(),
            Self::Int16 { ints, .. } => ints.len(),
        }
    }

    fn load(&mut self, from: &[f32]) -> Result<(), int16::NotFinite> {
        match self {
            Self::F32(weights) => weights.copy_from_slice(from),
            Self::Int16 { ints, scales } => {
                let c = from.len() / scales.len();
                for ((ints, row), scale) in ints.chunks_mut(c).zip(from.chunks(c)).zip(scales) {
                    *scale = int16::encode(ints, row)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a row, of `out.len()` elements, to `out`.
    pub(super) fn add_row(&self, out: &mut [f32], row: usize) {
        let c = out.len();
        match self {
            Self::F32(weights) => out.iter_mut().zip(&weights[row * c..][..c]).for_each(|(out, weight)| *out += weight),
            Self::Int16 { ints, scales } => {
                let ints = &ints[row * c..][..c];
                out.iter_mut().enumerate().for_each(|(i, out)| *out += int16::weight(ints, i) * scales[row]);
            }
        }
    }
}

/// What a layer of the model does with rows of C channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    /// Channels in, C.
    pub(super) c: usize,
    /// Whether the result is added to what is there.
    pub(super) adds: bool,
}

/// A linear layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) weight: Matrix,
    pub(super) bias: Option<Vec<f32>>,
}

impl Layer {
    fn take(supply: &mut Supply, weight: Tensor, bias: Option<Tensor>, layer: Option<usize>) -> Self {
        let bias = bias.and_then(|bias| supply.f32(bias, layer));
        Self { weight: Matrix::take(supply, weight, layer), bias }
    }

    /// Shapes: `inp` (N, C), which is left in another order → `out` (N, OC).
    pub(super) fn forward(&self, level: Level, out: &mut [f32], inp: &mut [f32], product: Product) {
        let Product { c, adds } = product;
        let bias = self.bias.as_deref();
        match &self.weight {
            Matrix::F32(weights) => level.run(Linear { out, inp, matrix: F32(weights), bias, c, adds }),
            Matrix::Int16 { ints, scales } => {
                level.run(Deinterleave { inout: inp, c });
                level.run(Linear { out, inp, matrix: Int16 { ints, scales }, bias, c, adds });
            }
        }
    }
}

/// A layer norm.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
}

impl Norm {
    fn take(supply: &mut Supply, (weight, bias): (Tensor, Tensor), layer: Option<usize>) -> Self {
        let weight = supply.f32(weight, layer).expect("every model has this tensor");
        Self { weight, bias: supply.f32(bias, layer) }
    }

    /// Shapes: `inp` (N, C) → `out` (N, C).
    pub(super) fn forward(&self, level: Level, out: &mut [f32], inp: &[f32]) {
        level.run(super::math::Norm { out, inp, weight: &self.weight, bias: self.bias.as_deref() });
    }
}

/// A block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) ln_1: Norm,
    pub(super) c_attn: Layer,
    pub(super) att_proj: Layer,
    pub(super) ln_2: Norm,
    pub(super) c_fc: Layer,
    pub(super) fc_proj: Layer,
}

/// All of a model's.
#[derive(Debug)]
pub(super) struct Weights {
    /// The embedding, which is the last layer's matrix as well.
    pub(super) wte: Layer,
    pub(super) wpe: Vec<f32>,
    pub(super) blocks: Vec<Block>,
    pub(super) ln_f: Norm,
}

impl Weights {
    /// Takes what was planned for them, zeros as yet.
    pub(super) fn take(supply: &mut Supply, config: &GptConfig) -> Self {
        let n_layer = usize::try_from(config.n_layer()).unwrap_or(0);
        let block = |layer| {
            let layer = Some(layer);
            Block {
                ln_1: Norm::take(supply, (Tensor::Ln1W, Tensor::Ln1B), layer),
                c_attn: Layer::take(supply, Tensor::QkvW, Some(Tensor::QkvB), layer),
                att_proj: Layer::take(supply, Tensor::AttProjW, Some(Tensor::AttProjB), layer),
                ln_2: Norm::take(supply, (Tensor::Ln2W, Tensor::Ln2B), layer),
                c_fc: Layer::take(supply, Tensor::FcW, Some(Tensor::FcB), layer),
                fc_proj: Layer::take(supply, Tensor::FcProjW, Some(Tensor::FcProjB), layer),
            }
        };
        let blocks = (0..n_layer).map(block).collect();
        Self {
            wte: Layer::take(supply, Tensor::Wte, None, None),
            wpe: supply.f32(Tensor::Wpe, None).expect("every model has this tensor"),
            blocks,
            ln_f: Norm::take(supply, (Tensor::LnfW, Tensor::LnfB), None),
        }
    }

    /// Copies a parameter in.
    pub(super) fn load(&mut self, tensor: Tensor, layer: Option<usize>, from: &[f32]) -> Result<(), DecodeError> {
        let name = || tensor.full_name(layer.map(|layer| layer as u64));
        let to = self.place(tensor, layer).ok_or_else(|| DecodeError::NoSuchTensor { tensor: name() })?;
        let elements = match &to {
            Place::Matrix(matrix) => matrix.len(),
            Place::Vector(vector) => vector.len(),
        };
        if from.len() != elements {
            return Err(DecodeError::WrongLength { tensor: name(), elements: from.len(), expected: elements });
        }
        match to {
            Place::Matrix(matrix) => {
                matrix.load(from).map_err(|int16::NotFinite| DecodeError::NotFinite { tensor: name() })?;
            }
            Place::Vector(vector) => vector.copy_from_slice(from),
        }
        Ok(())
    }

    fn place(&mut self, tensor: Tensor, layer: Option<usize>) -> Option<Place<'_>> {
        let Some(layer) = layer else {
            return match tensor {
                Tensor::Wte => Some(Place::Matrix(&mut self.wte.weight)),
                Tensor::Wpe => Some(Place::Vector(&mut self.wpe)),
                Tensor::LnfW => Some(Place::Vector(&mut self.ln_f.weight)),
                Tensor::LnfB => self.ln_f.bias.as_mut().map(|bias| Place::Vector(bias)),
                _ => None,
            };
        };
        let block = self.blocks.get_mut(layer)?;
        match tensor {
            Tensor::Ln1W => Some(Place::Vector(&mut block.ln_1.weight)),
            Tensor::Ln1B => block.ln_1.bias.as_mut().map(|bias| Place::Vector(bias)),
            Tensor::QkvW => Some(Place::Matrix(&mut block.c_attn.weight)),
            Tensor::QkvB => block.c_attn.bias.as_mut().map(|bias| Place::Vector(bias)),
            Tensor::AttProjW => Some(Place::Matrix(&mut block.att_proj.weight)),
            Tensor::AttProjB => block.att_proj.bias.as_mut().map(|bias| Place::Vector(bias)),
            Tensor::Ln2W => Some(Place::Vector(&mut block.ln_2.weight)),
            Tensor::Ln2B => block.ln_2.bias.as_mut().map(|bias| Place::Vector(bias)),
            Tensor::FcW => Some(Place::Matrix(&mut block.c_fc.weight)),
            Tensor::FcB => block.c_fc.bias.as_mut().map(|bias| Place::Vector(bias)),
            Tensor::FcProjW => Some(Place::Matrix(&mut block.fc_proj.weight)),
            Tensor::FcProjB => block.fc_proj.bias.as_mut().map(|bias| Place::Vector(bias)),
            _ => None,
        }
    }
}

/// Where a parameter goes.
enum Place<'a> {
    Matrix(&'a mut Matrix),
    Vector(&'a mut [f32]),
}
