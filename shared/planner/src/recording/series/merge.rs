//! Combines recordings at several sizes into a series.

use rustc_hash::FxHashMap;

use super::{MAX_DEGREE, MAX_SIZE, MAX_SIZES, Quantity, Series, Variable, described};
use crate::recording::{Event, Label, Recording, Scratch};

/// Why recordings are not combined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Too few sizes, too many, or a size that occurs twice.
    #[error("cannot combine the recordings: a series has 3 to {MAX_SIZES} different sizes from 1 to {MAX_SIZE}")]
    Sizes,
    /// The runs have other events.
    #[error("cannot combine the recordings: {variable} {size} has {other} where {variable} {first} has {of_first}")]
    Events {
        /// Variable of the series.
        variable: Variable,
        /// First size.
        first: u64,
        /// The size whose run differs.
        size: u64,
        /// Event of the first size, with the tensor and its source line.
        of_first: String,
        /// Event of the other size.
        other: String,
    },
    /// A size of a tensor is no polynomial.
    #[error("cannot combine the recordings: {tensor} has {values}, which is no polynomial of the {variable}")]
    NoPolynomial {
        /// Variable of the series.
        variable: Variable,
        /// Name and source line of the tensor.
        tensor: String,
        /// Its values at the sizes.
        values: String,
    },
}

/// Combines the recordings of a run at different values of a variable.
///
/// All runs must have the same events, up to the order of frees without another event in between. Each number is a polynomial of the lowest degree that a further recording confirms, so
/// three sizes determine and check linear sizes.
///
/// # Errors
/// There are less than three sizes, the runs differ in more than the sizes of tensors, or a size is no polynomial.
pub fn merge(variable: Variable, mut runs: Vec<(u64, Recording)>) -> Result<Recording, MergeError> {
    runs.sort_by_key(|(size, _)| *size);
    runs.iter_mut().for_each(|(_, run)| run.sort_frees());
    let sizes: Vec<u64> = runs.iter().map(|(size, _)| *size).collect();
    let are_different = sizes.windows(2).all(|pair| pair[0] < pair[1]);
    let are_in_range =
        sizes.first().is_some_and(|size| *size > 0) && sizes.last().is_some_and(|size| *size <= MAX_SIZE);
    if !(3..=MAX_SIZES).contains(&sizes.len()) || !are_different || !are_in_range {
        return Err(MergeError::Sizes);
    }
    let mut merger = Merger {
        runs: &runs,
        series: Series { variable, sizes, labels: Vec::new(), scratch: Vec::new() },
        labels: Vec::new(),
        scratch: Vec::new(),
        known_labels: FxHashMap::default(),
        known_scratch: FxHashMap::default(),
    };
    let events = merger.events()?;
    let Merger { series, labels, scratch, .. } = merger;
    let (size, first) = &runs[0];
    let mut notes = first.notes.clone();
    for note in runs[1..].iter().flat_map(|(_, run)| &run.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    Ok(Recording { origin: first.origin.clone(), notes, labels, scratch, events, series: Some(series), size: *size })
}

struct Merger<'a> {
    runs: &'a [(u64, Recording)],
    series: Series,
    labels: Vec<Label>,
    scratch: Vec<Scratch>,
    /// Index of a label by those of all runs.
    known_labels: FxHashMap<Vec<u32>, u32>,
    known_scratch: FxHashMap<Vec<u32>, u32>,
}

impl Merger<'_> {
    fn events(&mut self) -> Result<Vec<Event>, MergeError> {
        let n_events = self.runs.iter().map(|(_, run)| run.events.len()).max().unwrap_or_default();
        let mut events = Vec::with_capacity(n_events);
        for at in 0..n_events {
            events.push(self.event(at)?);
        }
        Ok(events)
    }

    /// The event of all runs at an index.
    fn event(&mut self, at: usize) -> Result<Event, MergeError> {
        let of_runs: Vec<Option<Event>> = self.runs.iter().map(|(_, run)| run.events.get(at).copied()).collect();
        let first = of_runs[0];
        if let Some(other) = of_runs.iter().position(|event| !self.is_same(first, *event)) {
            // The run itself was found to differ if its tensor does.
            return Err(self.differs(at, other));
        }
        let indices = |index: fn(Event) -> Option<u32>| -> Vec<u32> {
            of_runs.iter().filter_map(|event| event.and_then(index)).collect()
        };
        match first {
            Some(Event::Alloc(_)) => {
                let labels = indices(|event| if let Event::Alloc(label) = event { Some(label) } else { None });
                self.label(at, labels).map(Event::Alloc)
            }
            Some(Event::Scratch(_)) => {
                let scratch = indices(|event| if let Event::Scratch(index) = event { Some(index) } else { None });
                self.scratch(at, scratch).map(Event::Scratch)
            }
            Some(other) => Ok(other),
            None => Err(self.differs(at, 0)),
        }
    }

    /// Whether two events are equal, or both allocate.
    fn is_same(&self, a: Option<Event>, b: Option<Event>) -> bool {
        match (a, b) {
            (Some(Event::Alloc(_)), Some(Event::Alloc(_))) | (Some(Event::Scratch(_)), Some(Event::Scratch(_))) => true,
            _ => a == b,
        }
    }

    fn differs(&self, at: usize, other: usize) -> MergeError {
        let of = |index: usize| self.runs[index].1.described(at);
        MergeError::Events {
            variable: self.series.variable,
            first: self.runs[0].0,
            size: self.runs[other].0,
            of_first: of(0),
            other: of(other),
        }
    }

    /// The label of a tensor with these labels in the runs.
    fn label(&mut self, at: usize, indices: Vec<u32>) -> Result<u32, MergeError> {
        if let Some(known) = self.known_labels.get(&indices) {
            return Ok(*known);
        }
        let labels: Vec<&Label> =
            indices.iter().zip(self.runs).map(|(index, (_, run))| &run.labels[*index as usize]).collect();
        let first = labels[0];
        let is_other = |label: &&Label| {
            (&label.name, &label.module, &label.source, label.role, label.dtype, label.shape.len())
                != (&first.name, &first.module, &first.source, first.role, first.dtype, first.shape.len())
        };
        if let Some(other) = labels.iter().position(is_other) {
            return Err(self.differs(at, other));
        }
        let numbers = |label: &&Label| std::iter::once(label.bytes).chain(label.shape.iter().copied()).collect();
        let values: Vec<Vec<u64>> = labels.iter().map(numbers).collect();
        let quantities = self.quantities(&values, || described(first))?;
        let number = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
        self.labels.push(first.clone());
        if let Some(quantities) = quantities {
            self.series.labels.push((number, quantities));
        }
        self.known_labels.insert(indices, number);
        Ok(number)
    }

    fn scratch(&mut self, at: usize, indices: Vec<u32>) -> Result<u32, MergeError> {
        if let Some(known) = self.known_scratch.get(&indices) {
            return Ok(*known);
        }
        let of_runs: Vec<Scratch> =
            indices.iter().zip(self.runs).map(|(index, (_, run))| run.scratch[*index as usize]).collect();
        let first = of_runs[0];
        if let Some(other) = of_runs.iter().position(|scratch| scratch.kind() != first.kind()) {
            return Err(self.differs(at, other));
        }
        let values: Vec<Vec<u64>> = of_runs.iter().map(|scratch| scratch.arguments().to_vec()).collect();
        let quantities = self.quantities(&values, || first.name().to_owned())?;
        let number = u32::try_from(self.scratch.len()).unwrap_or(u32::MAX);
        self.scratch.push(first);
        if let Some(quantities) = quantities {
            self.series.scratch.push((number, quantities));
        }
        self.known_scratch.insert(indices, number);
        Ok(number)
    }

    /// The polynomials of the numbers of a tensor in the runs; `None` if all are constant.
    fn quantities(
        &self,
        of_runs: &[Vec<u64>],
        tensor: impl Fn() -> String,
    ) -> Result<Option<Vec<Quantity>>, MergeError> {
        let mut quantities = Vec::new();
        for at in 0..of_runs[0].len() {
            let values: Vec<u64> = of_runs.iter().map(|numbers| numbers[at]).collect();
            quantities.push(polynomial(&self.series.sizes, &values).ok_or_else(|| MergeError::NoPolynomial {
                variable: self.series.variable,
                tensor: tensor(),
                values: listed(&self.series.sizes, &values, if at == 0 { "bytes" } else { "elements" }),
            })?);
        }
        let is_constant = quantities.iter().all(|Quantity(values)| values.len() == 1);
        Ok((!is_constant).then_some(quantities))
    }
}

/// The polynomial of the lowest degree that the rest of the values confirms.
fn polynomial(sizes: &[u64], values: &[u64]) -> Option<Quantity> {
    (1..=(MAX_DEGREE + 1).min(sizes.len() - 1))
        .map(|n| Quantity(values[..n].to_vec()))
        .find(|quantity| sizes.iter().zip(values).all(|(size, value)| quantity.at(sizes, *size) == Some(*value)))
}

fn listed(sizes: &[u64], values: &[u64], unit: &str) -> String {
    let parts: Vec<String> = sizes.iter().zip(values).map(|(size, value)| format!("{value} at {size}")).collect();
    format!("{unit} {}", parts.join(", "))
}

impl Recording {
    /// Sorts frees that follow one another. Their order does not change the allocator's blocks, and it differs from run to
    /// run where PyTorch clears a hash table of pointers: the cache of autocast.
    fn sort_frees(&mut self) {
        let block = |event: &Event| if let Event::Free(block) = event { Some(*block) } else { None };
        let groups = self.events.chunk_by_mut(|a, b| block(a).is_some() && block(b).is_some());
        groups.for_each(|group| group.sort_by_key(block));
    }

    /// An event for the user.
    fn described(&self, at: usize) -> String {
        match self.events.get(at) {
            Some(Event::Alloc(label)) => format!("`{}`", described(&self.labels[*label as usize])),
            Some(Event::Free(block)) => {
                let is_alloc = |event: &&Event| matches!(event, Event::Alloc(_));
                let alloc = self.events.iter().filter(is_alloc).nth(*block as usize);
                match alloc {
                    Some(Event::Alloc(label)) => format!("the free of `{}`", described(&self.labels[*label as usize])),
                    _ => "a free".to_owned(),
                }
            }
            Some(Event::Scratch(index)) => self.scratch[*index as usize].name().to_owned(),
            Some(Event::EndOfOperation) => "the end of an operation".to_owned(),
            Some(Event::Mark(mark)) => format!("the start of {}", mark.name()),
            Some(Event::EmptyCache) => "`torch.cuda.empty_cache()`".to_owned(),
            None => "the end of the run".to_owned(),
        }
    }
}
