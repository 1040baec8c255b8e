//! Where each parameter lies in one flat buffer of all: in PyTorch's order, without gaps. Gradients and moments lie the
//! same way in theirs.

use std::ops::Range;

use headroom_shared::{
    gpt::{
        GptConfig,
        tensors::{Dims, Parameter, Tensor, parameters},
    },
    text::{self, Text},
};
use thiserror::Error;

/// A parameter and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its row of the table, its gradient's, its block, and whether it decays.
    pub parameter: Parameter,
    /// Its full name, as in nanoGPT's `state_dict`.
    pub name: String,
    /// Its axes, slowest first.
    pub shape: Vec<usize>,
    /// Its elements in the flat buffer.
    pub range: Range<usize>,
}

/// A model is larger than this machine can address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", self.text())]
pub struct TooLarge;

impl TooLarge {
    /// What is wrong.
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
    /// Lays a model's parameters out.
    ///
    /// # Errors
    /// They are more than `usize` counts. Whether one buffer can hold all of them is for whoever makes it to ask: a page
    /// reads them one by one.
    pub fn new(config: &GptConfig) -> Result<Self, TooLarge> {
        let dims = Dims::without_card(config, 1);
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

    /// Elements of all parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Elements of the largest parameter: what lies there besides while parameters come in one by one.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.entries.iter().map(|entry| entry.range.len()).max().unwrap_or(0)
    }

    /// Whether there are none, which no model has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where a parameter lies; none for one that the model does not have, as biases may be.
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
    use headroom_shared::gpt::GptShape;

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
