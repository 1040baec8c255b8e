//! Parameter offsets in one flat buffer: PyTorch's order without gaps. Gradients and moments have the same layout.

use std::ops::Range;

use headroom_planner::gpt::{
    GptConfig,
    tensors::{Dims, Parameter, Tensor, parameters},
};
use headroom_text::{self as text, Text};
use thiserror::Error;

/// A parameter and its range in the flat buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The parameter's tensor, layer and weight decay.
    pub parameter: Parameter,
    /// The full name, as in nanoGPT's `state_dict`.
    pub name: String,
    /// The shape, slowest axis first.
    pub shape: Vec<usize>,
    /// The range of elements in the flat buffer.
    pub range: Range<usize>,
}

/// The error for a model that exceeds the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", self.text())]
pub struct TooLarge;

impl TooLarge {
    /// The error message.
    #[must_use]
    pub fn text(self) -> Text {
        text::WEIGHTS_TOO_LARGE.into()
    }
}

/// Every parameter of a model, in PyTorch's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    entries: Vec<Entry>,
    len: usize,
}

impl Layout {
    /// Computes the layout of a model's parameters.
    ///
    /// # Errors
    /// The number of elements exceeds `usize`. A single buffer for all may still be too large, which its allocator must
    /// check: a page loads the parameters one by one.
    pub fn new(config: &GptConfig) -> Result<Self, TooLarge> {
        let dims = Dims::without_gpu(config, 1);
        let mut end = 0_usize;
        let mut entries = Vec::new();
        for parameter in parameters(config) {
            let shape = parameter.tensor.shape(&dims);
            let shape: Vec<usize> =
                shape.as_slice().iter().map(|&n| usize::try_from(n)).collect::<Result<_, _>>().map_err(|_| TooLarge)?;
            let len = shape.iter().try_fold(1_usize, |n, &axis| n.checked_mul(axis)).ok_or(TooLarge)?;
            let start = end;
            end = start.checked_add(len).ok_or(TooLarge)?;
            let name = parameter.tensor.full_name(parameter.layer);
            entries.push(Entry { parameter, name, shape, range: start..end });
        }
        Ok(Self { entries, len: end })
    }

    /// The number of elements of all parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of elements of the largest parameter: the size of the staging buffer while parameters are loaded one
    /// by one.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.entries.iter().map(|entry| entry.range.len()).max().unwrap_or(0)
    }

    /// Whether the layout has no elements; false for every model.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The range of a parameter; `None` if the model does not have it, as for optional biases.
    #[must_use]
    pub fn range(&self, tensor: Tensor, layer: Option<usize>) -> Option<Range<usize>> {
        let layer = layer.map(|layer| layer as u64);
        let found =
            self.entries.iter().find(|entry| entry.parameter.tensor == tensor && entry.parameter.layer == layer)?;
        Some(found.range.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_planner::gpt::GptShape;

    #[test]
    fn entries_follow_one_another_and_count_what_the_config_counts() {
        for bias in [false, true] {
            let shape =
                GptShape { n_layer: 3, n_head: 2, n_embd: 8, block_size: 16, vocab_size: 11, dropout: 0.0, bias };
            let config = GptConfig::new(shape).expect("valid");
            let layout = Layout::new(&config).expect("small");
            let mut end = 0;
            for entry in layout.entries() {
                assert_eq!(entry.range.start, end, "{}", entry.name);
                assert_eq!(entry.shape.iter().product::<usize>(), entry.range.len(), "{}", entry.name);
                end = entry.range.end;
            }
            assert_eq!(Some(end as u64), config.n_parameters());
            assert_eq!(layout.range(Tensor::LnfB, None).is_some(), bias);
        }
    }

    #[test]
    fn names_are_those_of_a_state_dict() {
        let shape =
            GptShape { n_layer: 1, n_head: 1, n_embd: 4, block_size: 4, vocab_size: 4, dropout: 0.0, bias: true };
        let layout = Layout::new(&GptConfig::new(shape).expect("valid")).expect("small");
        let names: Vec<_> = layout.entries().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(
            names[..4],
            [
                "transformer.wte.weight",
                "transformer.wpe.weight",
                "transformer.h.0.ln_1.weight",
                "transformer.h.0.ln_1.bias"
            ]
        );
        assert_eq!(names.last(), Some(&"transformer.ln_f.bias"));
    }
}
