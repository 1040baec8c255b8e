//! Graphs: tensors, operations on them, and what has to fit of both.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    table::{Elements, Fold, Mode},
    unknown, wrong,
};

/// A tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What it is known by.
    pub uid: i64,
    /// Its sizes, the slowest first.
    pub dims: Vec<usize>,
    /// Elements from one to the next, in each of them; of a virtual one they count where it is reshaped alone.
    pub strides: Vec<usize>,
    /// What it is made of.
    pub elements: Elements,
    /// Bytes that its address is a multiple of.
    pub alignment: u64,
    /// Whether it lies nowhere.
    pub is_virtual: bool,
    /// Whether its pointer is to the host's memory.
    pub is_by_value: bool,
}

impl Tensor {
    /// Itself, where there can be such a tensor.
    pub fn checked(self) -> Result<Self, u32> {
        let Self { uid, dims, strides, .. } = &self;
        let n = dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim)).filter(|&n| n > 0 && n < 1 << 32);
        if n.is_none() || dims.len() != strides.len() || strides.contains(&0) {
            return Err(wrong(format_args!("tensor {uid} is of {dims:?}, {strides:?} apart")));
        }
        if self.alignment == 0 || !self.alignment.is_multiple_of(self.element_bytes()) {
            return Err(wrong(format_args!("tensor {uid} is to lie at multiples of {} bytes", self.alignment)));
        }
        if self.is_by_value && (self.is_virtual || n != Some(1)) {
            return Err(wrong(format_args!("tensor {uid} is by value, and virtual or of {dims:?}")));
        }
        if !self.is_virtual && !matches!(self.elements, Elements::Float | Elements::Bfloat16) {
            return Err(unknown(format_args!("tensor {uid} of {:?} in memory", self.elements)));
        }
        Ok(self)
    }

    /// What one element takes.
    pub fn element_bytes(&self) -> u64 {
        match self.elements {
            Elements::Float | Elements::Int32 => 4,
            Elements::Bfloat16 => 2,
            Elements::Boolean => 1,
        }
    }

    /// Where each element lies, the last dimension's next to each other, in elements from the first.
    pub fn places(&self) -> Vec<usize> {
        places(&self.dims, &self.strides)
    }
}

/// Where the elements of sizes lie that are that far apart, the last dimension's next to each other.
pub fn places(dims: &[usize], strides: &[usize]) -> Vec<usize> {
    dims.iter().zip(strides).fold(vec![0], |places, (&dim, &stride)| {
        places.iter().flat_map(|place| (0..dim).map(move |index| place + index * stride)).collect()
    })
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// With each element by itself.
    Pointwise {
        /// What.
        mode: Mode,
        /// Of which dimension the index is.
        axis: usize,
    },
    /// Products of the last two dimensions.
    Matmul,
    /// All elements along those dimensions whose size becomes 1.
    Reduction(Fold),
    /// Nothing: what lies in memory is read with other strides.
    Reshape,
}

/// What is done with which tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What is done.
    pub work: Work,
    /// With what: X, then B, then T.
    pub inputs: Vec<Tensor>,
    /// What it gives.
    pub output: Tensor,
}

impl Operation {
    /// Itself, where its tensors fit each other.
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
        if fits { Ok(self) } else { Err(wrong(format_args!("tensors do not fit: {self:?}"))) }
    }
}

/// Whether sizes are these, or 1 where one is taken again and again.
fn spreads(from: &[usize], to: &[usize]) -> bool {
    from.len() == to.len() && from.iter().zip(to).all(|(&from, &to)| from == to || from == 1)
}

/// Whether matrices of (.., M, K) and (.., K, N) are multiplied to (.., M, N).
fn products(a: &[usize], b: &[usize], c: &[usize]) -> bool {
    let n = c.len();
    n > 2
        && [a.len(), b.len()] == [n; 2]
        && [a[n - 2], a[n - 1], b[n - 1]] == [c[n - 2], b[n - 2], c[n - 1]]
        && spreads(&a[..n - 2], &c[..n - 2])
        && spreads(&b[..n - 2], &c[..n - 2])
}

/// Operations, each after those whose results it takes.
#[derive(Clone, Debug)]
pub struct Graph {
    /// In that order.
    pub operations: Vec<Operation>,
    /// By what they are known by.
    pub tensors: BTreeMap<i64, Tensor>,
    /// Those that an operation gives.
    pub given: BTreeSet<i64>,
}

impl Graph {
    /// A graph of operations in any order.
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
