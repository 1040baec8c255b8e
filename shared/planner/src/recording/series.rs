//! A run that was recorded at several batch sizes or sequence lengths: every size of a tensor is a polynomial of them.
//!
//! [`merge`] combines recordings, and [`Recording::at`] computes the run at any other size.

use std::fmt;

use headroom_text::{self as text, Text, decimal};
use num_rational::Ratio;
use num_traits::{CheckedAdd, CheckedMul, ToPrimitive};

use super::{Event, Label, MAX_LIVE_BYTES, Recording, Scratch};
use crate::{
    advice::largest,
    gpt::tensors::{MAX_TENSOR_BYTES, round_up},
    plan::Machine,
};

mod merge;
#[cfg(test)]
mod tests;

pub use merge::{MergeError, merge};

/// Maximum number of sizes of a series.
pub(super) const MAX_SIZES: usize = 16;
/// Maximum size of a series: no batch and no sequence is longer.
pub(super) const MAX_SIZE: u64 = 1 << 24;
/// Maximum degree of a polynomial. Attention without a fused kernel has degree 2 in the sequence length.
pub(super) const MAX_DEGREE: usize = 3;

/// What differs between the recordings of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// Number of sequences or samples of a forward.
    BatchSize,
    /// Number of tokens of a sequence.
    SequenceLength,
}

impl Variable {
    /// All variables by their number in a file.
    pub const ALL: [Self; 2] = [Self::BatchSize, Self::SequenceLength];

    /// Name in JSON and in placeholders of commands.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::BatchSize => "batch_size",
            Self::SequenceLength => "sequence_length",
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BatchSize => "batch size",
            Self::SequenceLength => "sequence length",
        })
    }
}

/// A number that depends on the variable: its values at the first sizes of the series, one more than the degree of its
/// polynomial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Quantity(pub Vec<u64>);

impl Quantity {
    /// Value at the first size of the series.
    pub fn first(&self) -> u64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// Value of the polynomial at a size, in lowest terms. `None` beyond 128 bits.
    fn ratio(&self, sizes: &[u64], at: u64) -> Option<Ratio<i128>> {
        let Self(values) = self;
        let difference = |a: u64, b: u64| i128::from(a) - i128::from(b);
        let mut sum = Ratio::from_integer(0);
        for (i, (&value, &size)) in values.iter().zip(sizes).enumerate() {
            let mut term = Ratio::from_integer(i128::from(value));
            for (_, &other) in sizes.iter().enumerate().take(values.len()).filter(|(j, _)| *j != i) {
                term = term.checked_mul(&Ratio::new(difference(at, other), difference(size, other)))?;
            }
            sum = sum.checked_add(&term)?;
        }
        Some(sum)
    }

    /// Value at a size. `None` if it is not a whole number, negative, or beyond 64 bits.
    pub fn at(&self, sizes: &[u64], at: u64) -> Option<u64> {
        self.ratio(sizes, at).filter(Ratio::is_integer)?.to_integer().to_u64()
    }
}

/// The sizes of a series, and the quantities that depend on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// What differs.
    pub variable: Variable,
    /// Recorded sizes, in ascending order.
    pub sizes: Vec<u64>,
    /// Labels that depend on the size: index, and their bytes and axes.
    pub(super) labels: Vec<(u32, Vec<Quantity>)>,
    /// Scratch memory that depends on the size: index, and its arguments.
    pub(super) scratch: Vec<(u32, Vec<Quantity>)>,
}

impl Series {
    /// Greatest common divisor of the distances of the recorded sizes.
    fn step(&self) -> u64 {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        self.sizes.windows(2).fold(0, |step, pair| gcd(step, pair[1] - pair[0])).max(1)
    }
}

/// Size of a run in its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeOfRun {
    /// Variable of the series.
    pub variable: Variable,
    /// Size of this run.
    pub size: u64,
    /// Recorded sizes, in ascending order.
    pub recorded: Vec<u64>,
    /// Step of the recorded sizes if the size is beside it.
    beside_step: Option<u64>,
}

impl SizeOfRun {
    /// Remarks on the figures of this size.
    pub(super) fn remarks(&self) -> Vec<Text> {
        let Self { variable, size, recorded, beside_step } = self;
        let sizes = decimal::list(recorded);
        let mut remarks = vec![match variable {
            Variable::BatchSize => text::remark_recorded_batch_sizes(sizes),
            Variable::SequenceLength => text::remark_recorded_lengths(sizes),
        }];
        if !recorded.contains(size) {
            remarks.push(text::remark_sizes_computed(*size));
            remarks.extend(beside_step.map(|step| text::remark_beside_step(*size, step)));
        }
        remarks
    }
}

/// Error: a series has no run at this size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The recording is not a series.
    #[error("cannot change the {0}: the run was recorded at one size only")]
    OneSize(Variable),
    /// The series has another variable.
    #[error("cannot change the {asked}: the run was recorded at several values of its {varies}")]
    OtherVariable {
        /// The variable that was asked for.
        asked: Variable,
        /// The variable of the series.
        varies: Variable,
    },
    /// A tensor has no whole number of bytes or elements.
    #[error("cannot compute the run at {variable} {size}: {tensor} has no whole size there")]
    NotWhole {
        /// Variable of the series.
        variable: Variable,
        /// The size.
        size: u64,
        /// Name and source line of the tensor.
        tensor: String,
    },
    /// Tensors exceed every GPU.
    #[error("cannot compute the run at {variable} {size}: its tensors exceed every GPU")]
    TooLarge {
        /// Variable of the series.
        variable: Variable,
        /// The size.
        size: u64,
    },
}

/// A tensor for the user, as `mm (h.0.mlp), model.py:12 forward`.
fn described(label: &Label) -> String {
    let name = label.role.name(&label.name, &label.module);
    if label.source.is_empty() { name } else { format!("{name}, {}", label.source) }
}

impl Recording {
    /// The sizes at which the run was recorded, if these are several.
    #[must_use]
    pub const fn series(&self) -> Option<&Series> {
        self.series.as_ref()
    }

    /// Size of this run in its series; `None` without a series.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.series.as_ref().map(|_| self.size)
    }

    /// Size of this run and the recorded ones; `None` without a series.
    pub(super) fn size_of_run(&self) -> Option<SizeOfRun> {
        let series = self.series.as_ref()?;
        let step = series.step();
        let is_beside = !self.size.abs_diff(series.sizes[0]).is_multiple_of(step);
        Some(SizeOfRun {
            variable: series.variable,
            size: self.size,
            recorded: series.sizes.clone(),
            beside_step: is_beside.then_some(step),
        })
    }

    /// The run at another size of its series.
    ///
    /// # Errors
    /// The recording has no series of this variable, or no run at this size.
    pub fn at(&self, variable: Variable, size: u64) -> Result<Self, SizeError> {
        let series = self.series.as_ref().ok_or(SizeError::OneSize(variable))?;
        if series.variable != variable {
            return Err(SizeError::OtherVariable { asked: variable, varies: series.variable });
        }
        let too_large = || SizeError::TooLarge { variable, size };
        if size == 0 || size > MAX_SIZE {
            return Err(too_large());
        }
        let mut run = self.clone();
        run.size = size;
        let not_whole = |tensor: String| SizeError::NotWhole { variable, size, tensor };
        let values = |quantities: &[Quantity]| -> Option<Vec<u64>> {
            quantities.iter().map(|quantity| quantity.at(&series.sizes, size)).collect()
        };
        for (index, quantities) in &series.labels {
            let label = &mut run.labels[*index as usize];
            let of_label =
                values(quantities).filter(|values| values[0] > 0).ok_or_else(|| not_whole(described(label)))?;
            if of_label[0] > MAX_TENSOR_BYTES {
                return Err(too_large());
            }
            label.bytes = of_label[0];
            label.shape = of_label[1..].to_vec();
        }
        for (index, quantities) in &series.scratch {
            let scratch = &mut run.scratch[*index as usize];
            let values = values(quantities).ok_or_else(|| not_whole(scratch.name().to_owned()))?;
            let mut arguments = [0; 5];
            arguments[..values.len()].copy_from_slice(&values);
            *scratch = Scratch::new(scratch.kind(), arguments).ok_or_else(too_large)?;
        }
        if run.exceeds_every_gpu() {
            return Err(too_large());
        }
        Ok(run)
    }

    /// Whether more bytes are live than a recording may have.
    fn exceeds_every_gpu(&self) -> bool {
        let mut blocks = Vec::new();
        let mut live_bytes = 0;
        for event in &self.events {
            match *event {
                Event::Alloc(label) => {
                    let bytes = round_up(self.labels[label as usize].bytes);
                    blocks.push(bytes);
                    live_bytes += bytes;
                }
                Event::Free(block) => live_bytes -= blocks[block as usize],
                _ => {}
            }
            if live_bytes > MAX_LIVE_BYTES {
                return true;
            }
        }
        false
    }

    /// The largest size of the series with which the run fits on a machine. `None` without a series, or if not even size 1
    /// fits. Sizes without a run in whole numbers are skipped.
    #[must_use]
    pub fn largest_that_fits(&self, machine: &Machine) -> Option<u64> {
        let series = self.series.as_ref()?;
        // The step is 1 where every size has a run, so that no size in between is missed.
        let step = if self.at(series.variable, series.sizes[0] + 1).is_ok() { 1 } else { series.step() };
        let first = series.sizes[0] % step;
        let first = if first == 0 { step } else { first };
        let fits = |n: u64| {
            let run = self.at(series.variable, first + n * step);
            let program = run.ok().and_then(|run| run.program(machine.gpu()).ok());
            program.is_some_and(|program| machine.simulate(&program).failure.is_none())
        };
        if !fits(0) {
            return None;
        }
        let (mut fitting, mut beyond) = (0, 1);
        while fits(beyond) {
            (fitting, beyond) = (beyond, beyond * 2 + 1);
        }
        Some(first + largest(fitting, beyond, fits) * step)
    }
}
