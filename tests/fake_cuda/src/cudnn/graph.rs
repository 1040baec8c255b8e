//! Graphs: tensors, operations on them, and checks of both.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    table::{Elements, Fold, Mode},
    unknown, wrong,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its unique id.
    pub uid: i64,
    /// Its dimensions, slowest first.
    pub dims: Vec<usize>,
    /// Its strides in elements. Those of a virtual tensor matter only for a reshape.
    pub strides: Vec<usize>,
    /// Its element type.
    pub elements: Elements,
    /// The alignment of its address, in bytes.
    pub alignment: u64,
    /// Whether it is virtual, so that it has no memory.
    pub is_virtual: bool,
    /// Whether its pointer refers to the host's memory.
    pub is_by_value: bool,
}

impl Tensor {
    /// Returns the tensor if it is valid.
    pub fn checked(self) -> Result<Self, u32> {
        let Self { uid, dims, strides, .. } = &self;
        let n = dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim)).filter(|&n| n > 0 && n < 1 << 32);
        if n.is_none() || dims.len() != strides.len() || strides.contains(&0) {
            return Err(wrong(format_args!("tensor {uid} is of {dims:?}, {strides:?} apart")));
        }
        if self.alignment == 0 || !self.alignment.is_multiple_of(self.element_bytes()) {
            return Err(wrong(format_args!("tensor {uid} has an invalid alignment of {} bytes", self.alignment)));
        }
        if self.is_by_value && (self.is_virtual || n != Some(1)) {
            return Err(wrong(format_args!("tensor {uid} is by value, but virtual or of dimensions {dims:?}")));
        }
        if !self.is_virtual && !matches!(self.elements, Elements::Float | Elements::Bfloat16) {
            return Err(unknown(format_args!("tensor {uid} of {:?} in memory", self.elements)));
        }
        Ok(self)
    }

    /// Returns the size of one element in bytes.
    pub fn element_bytes(&self) -> u64 {
        match self.elements {
            Elements::Float | Elements::Int32 => 4,
            Elements::Bfloat16 => 2,
            Elements::Boolean => 1,
        }
    }

    /// Returns the offset of each element in row-major order, in elements.
    pub fn places(&self) -> Vec<usize> {
        places(&self.dims, &self.strides)
    }
}

/// Returns the offsets of elements with these dimensions and strides, in row-major order.
pub fn places(dims: &[usize], strides: &[usize]) -> Vec<usize> {
    dims.iter().zip(strides).fold(vec![0], |places, (&dim, &stride)| {
        places.iter().flat_map(|place| (0..dim).map(move |index| place + index * stride)).collect()
    })
}

/// The work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// An elementwise function.
    Pointwise {
        /// The function.
        mode: Mode,
        /// The dimension of the index, for `GenIndex`.
        axis: usize,
    },
    /// Matrix multiplication of the last two dimensions.
    Matmul,
    /// A reduction along the dimensions whose size becomes 1.
    Reduction(Fold),
    /// A reshape: the same memory is read with other strides.
    Reshape,
}

/// An operation with its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub work: Work,
    /// The inputs: X, then B, then T.
    pub inputs: Vec<Tensor>,
    /// The result.
    pub output: Tensor,
}

impl Operation {
    /// Returns the operation if its tensors match.
    pub fn checked(self) -> Result<Self, u32> {
        let Self { work, inputs, output } = &self;
        let to = &output.dims;
        let fits = match work {
            Work::Pointwise { mode, axis } => {
                let n = match mode {
                    Mode::Exp | Mode::Log | Mode::Identity | Mode::GenIndex => 1,
                    Mode::Add | Mode::Mul | Mode::Div | Mode::Sub | Mode::CmpGe => 2,
                    Mode::BinarySelect => 3,
                };
                let condition = inputs.get(2).is_none_or(|input| input.elements == Elements::Boolean);
                inputs.len() == n
                    && *axis < to.len()
                    && condition
                    && inputs.iter().all(|input| spreads(&input.dims, to))
            }
            Work::Matmul => products(&inputs[0].dims, &inputs[1].dims, to),
            Work::Reduction(_) => spreads(to, &inputs[0].dims),
            Work::Reshape => {
                let [mut from, mut into] = [inputs[0].places(), output.places()];
                from.sort_unstable();
                into.sort_unstable();
                if from.len() == into.len() && (from != into || from.windows(2).any(|two| two[0] == two[1])) {
                    return Err(unknown(format_args!("a reshape to other places: {self:?}")));
                }
                from == into
            }
        };
        if fits { Ok(self) } else { Err(wrong(format_args!("the shapes of tensors do not match: {self:?}"))) }
    }
}

/// Returns whether dimensions are equal, or 1 for broadcasting.
fn spreads(from: &[usize], to: &[usize]) -> bool {
    from.len() == to.len() && from.iter().zip(to).all(|(&from, &to)| from == to || from == 1)
}

/// Returns whether matrices (.., M, K) and (.., K, N) multiply to (.., M, N).
fn products(a: &[usize], b: &[usize], c: &[usize]) -> bool {
    let n = c.len();
    n > 2
        && [a.len(), b.len()] == [n; 2]
        && [a[n - 2], a[n - 1], b[n - 1]] == [c[n - 2], b[n - 2], c[n - 1]]
        && spreads(&a[..n - 2], &c[..n - 2])
        && spreads(&b[..n - 2], &c[..n - 2])
}

/// A graph of operations in topological order.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The operations in that order.
    pub operations: Vec<Operation>,
    /// The tensors by unique id.
    pub tensors: BTreeMap<i64, Tensor>,
    /// The unique ids of the operations' results.
    pub given: BTreeSet<i64>,
}

impl Graph {
    /// Creates a graph from operations in any order.
    pub fn new(operations: Vec<Operation>) -> Result<Self, u32> {
        let mut tensors = BTreeMap::new();
        for tensor in operations.iter().flat_map(|operation| operation.inputs.iter().chain([&operation.output])) {
            if tensors.insert(tensor.uid, tensor.clone()).is_some_and(|other| other != *tensor) {
                return Err(wrong(format_args!("two tensors are known by {}", tensor.uid)));
            }
        }
        let mut given = BTreeSet::new();
        for Operation { output, .. } in &operations {
            if !given.insert(output.uid) || output.is_by_value {
                return Err(wrong(format_args!("tensor {} is given twice, or by value", output.uid)));
            }
        }
        let taken: BTreeSet<i64> = operations.iter().flat_map(|operation| &operation.inputs).map(|it| it.uid).collect();
        for tensor in tensors.values().filter(|tensor| tensor.is_virtual) {
            if !given.contains(&tensor.uid) || !taken.contains(&tensor.uid) {
                return Err(wrong(format_args!("virtual tensor {} comes from nowhere, or goes nowhere", tensor.uid)));
            }
        }
        Ok(Self { operations: sorted(operations, &given)?, tensors, given })
    }
}

fn sorted(mut rest: Vec<Operation>, given: &BTreeSet<i64>) -> Result<Vec<Operation>, u32> {
    let (mut sorted, mut missing) = (vec![], given.clone());
    while !rest.is_empty() {
        let can = |operation: &Operation| operation.inputs.iter().all(|input| !missing.contains(&input.uid));
        let (now, later): (Vec<_>, Vec<_>) = rest.into_iter().partition(can);
        if now.is_empty() {
            return Err(wrong("a graph goes in a circle"));
        }
        for operation in &now {
            missing.remove(&operation.output.uid);
        }
        sorted.extend(now);
        rest = later;
    }
    Ok(sorted)
}
