//! Attention as cuDNN is told of it: a graph of operations on tensors of four axes, which the library knows again and has
//! kernels for. Nothing here calls it.
//!
//! The graphs are those that NVIDIA's own cudnn-frontend writes for `sdpa` and `sdpa_backward` with a causal mask and
//! deterministic sums (its 1.22, `scaled_dot_product_flash_attention.h`); the engines of cuDNN 9 match them by form, so
//! that a node more or less, or another order of a mask, is a graph that none takes.

/// cudnnDataType_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DataType {
    F32 = 0,
    I32 = 4,
    Bf16 = 9,
    Bool = 11,
}

/// cudnnPointwiseMode_t, as far as it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    Add = 0,
    Mul = 1,
    Div = 6,
    Sub = 9,
    Exp = 13,
    Log = 15,
    GreaterOrEqual = 303,
    /// A position along an axis.
    Index = 501,
    /// X where T is true, else B.
    Select = 601,
}

/// cudnnReduceTensorOp_t, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Reduce {
    Sum = 0,
    Max = 3,
}

/// What comes from outside of a graph, or is left there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Queries,
    Keys,
    Values,
    Out,
    Lse,
    DOut,
    /// A row's product of its result and the gradient of that.
    Rows,
    DQueries,
    DKeys,
    DValues,
    /// A number, the same for all.
    Number(f32),
}

/// A tensor, by its place in the graph's list.
pub type Id = usize;

/// A tensor of (B, NH, rows, columns).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    pub dims: [i64; 4],
    pub strides: [i64; 4],
    pub of: DataType,
    /// None where it is between two operations alone.
    pub role: Option<Role>,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// `c` = `a` x `b`, by the last two axes.
    Matmul { a: Id, b: Id, c: Id },
    /// Element by element, where an axis of 1 goes with any.
    Pointwise { mode: Mode, x: Id, b: Option<Id>, t: Option<Id>, y: Id, axis: Option<i64>, math: DataType },
    /// Over the last axis.
    Reduction { op: Reduce, x: Id, y: Id },
    /// The same elements under other strides.
    Reshape { x: Id, y: Id },
}

/// The sizes of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Sequences.
    pub b: i64,
    /// Heads.
    pub nh: i64,
    /// Tokens a sequence.
    pub t: i64,
    /// Channels a head.
    pub hs: i64,
    /// What scores are multiplied with.
    pub scale: f32,
}

/// What takes a score out: its exponential is 0. Engines before 9.10 wanted the lowest number instead.
const MASKED: f32 = f32::NEG_INFINITY;

/// A graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub tensors: Vec<Tensor>,
    pub nodes: Vec<Node>,
    sizes: Sizes,
}

impl Graph {
    /// Causal attention: `qkv` (B, T, 3, NH, HS) → `out` (B, T, NH, HS), `lse` (B, NH, T).
    pub fn forward(sizes: Sizes) -> Self {
        let mut graph = Self { tensors: vec![], nodes: vec![], sizes };
        let (queries, keys) = (graph.part(Role::Queries, false), graph.part(Role::Keys, true));
        let values = graph.part(Role::Values, false);
        let scores = graph.scores(queries, keys);
        let scores = graph.masked(scores);
        let max = graph.reduced(Reduce::Max, scores);
        let less = graph.pointwise(Mode::Sub, scores, Some(max), DataType::F32);
        let exponentials = graph.pointwise(Mode::Exp, less, None, DataType::F32);
        let sum = graph.reduced(Reduce::Sum, exponentials);
        let log = graph.pointwise(Mode::Log, sum, None, DataType::F32);
        let lse = graph.rows(Some(Role::Lse));
        graph.pointwise_into(Mode::Add, max, Some(log), lse);
        let weights = graph.pointwise(Mode::Div, exponentials, Some(sum), DataType::Bf16);
        let out = graph.of_heads(Role::Out);
        graph.nodes.push(Node::Matmul { a: weights, b: values, c: out });
        graph
    }

    /// Its gradient: `dout`, `out` and `lse` → `dqkv`, with `rows` (B, NH, T) in between.
    pub fn backward(sizes: Sizes) -> Self {
        let mut graph = Self { tensors: vec![], nodes: vec![], sizes };
        let (queries, keys) = (graph.part(Role::Queries, false), graph.part(Role::Keys, true));
        let values = graph.part(Role::Values, true);
        let (out, dout) = (graph.of_heads(Role::Out), graph.of_heads(Role::DOut));
        let lse = graph.rows(Some(Role::Lse));

        // A row's product of its result and the gradient of that.
        let Sizes { b, nh, t, hs, scale } = sizes;
        let products = graph.tensor([b, nh, t, hs], [nh * t * hs, t * hs, nh * hs, 1], DataType::F32, None);
        graph.pointwise_into(Mode::Mul, dout, Some(out), products);
        let sums = graph.reduced(Reduce::Sum, products);
        // With dropout its share would stand there.
        let one = graph.number(1.0);
        let rows = graph.rows(Some(Role::Rows));
        graph.pointwise_into(Mode::Mul, sums, Some(one), rows);

        // Weights, and the gradient of values.
        let factor = graph.number(scale);
        let scores = graph.product_of_rows(queries, keys);
        let scores = graph.pointwise(Mode::Mul, scores, Some(factor), DataType::F32);
        let less = graph.pointwise(Mode::Sub, scores, Some(lse), DataType::F32);
        let less = graph.masked(less);
        let weights = graph.pointwise(Mode::Exp, less, None, DataType::F32);
        let turned = graph.turned(weights);
        let dvalues = graph.part(Role::DValues, false);
        graph.nodes.push(Node::Matmul { a: turned, b: dout, c: dvalues });

        // The gradient of scores, then of keys and of queries.
        let dweights = graph.product_of_rows(dout, values);
        let less = graph.pointwise(Mode::Sub, dweights, Some(rows), DataType::F32);
        let dscores = graph.pointwise(Mode::Mul, less, Some(weights), DataType::F32);
        let dscores = graph.pointwise(Mode::Mul, dscores, Some(factor), DataType::F32);
        let turned = graph.turned(dscores);
        let dkeys = graph.part(Role::DKeys, false);
        graph.nodes.push(Node::Matmul { a: turned, b: queries, c: dkeys });
        let keys_again = graph.tensor([b, nh, t, hs], [t * 3 * nh * hs, hs, 3 * nh * hs, 1], DataType::F32, None);
        graph.nodes.push(Node::Reshape { x: keys, y: keys_again });
        let dqueries = graph.part(Role::DQueries, false);
        graph.nodes.push(Node::Matmul { a: dscores, b: keys_again, c: dqueries });
        graph
    }

    fn tensor(&mut self, dims: [i64; 4], strides: [i64; 4], of: DataType, role: Option<Role>) -> Id {
        self.tensors.push(Tensor { dims, strides, of, role });
        self.tensors.len() - 1
    }

    fn number(&mut self, value: f32) -> Id {
        self.tensor([1; 4], [1; 4], DataType::F32, Some(Role::Number(value)))
    }

    /// Queries, keys or values among all three, or their gradients; turned, its last two axes have changed places.
    fn part(&mut self, role: Role, is_turned: bool) -> Id {
        let Sizes { b, nh, t, hs, .. } = self.sizes;
        let token = 3 * nh * hs;
        let (dims, strides) = ([b, nh, t, hs], [t * token, hs, token, 1]);
        let turned = |[b, nh, rows, columns]: [i64; 4]| [b, nh, columns, rows];
        let (dims, strides) = if is_turned { (turned(dims), turned(strides)) } else { (dims, strides) };
        self.tensor(dims, strides, DataType::Bf16, Some(role))
    }

    /// (B, T, NH, HS), as it lies in memory.
    fn of_heads(&mut self, role: Role) -> Id {
        let Sizes { b, nh, t, hs, .. } = self.sizes;
        self.tensor([b, nh, t, hs], [t * nh * hs, hs, nh * hs, 1], DataType::Bf16, Some(role))
    }

    /// A number for each row.
    fn rows(&mut self, role: Option<Role>) -> Id {
        let Sizes { b, nh, t, .. } = self.sizes;
        self.tensor([b, nh, t, 1], [nh * t, t, 1, 1], DataType::F32, role)
    }

    /// A number for each query and key.
    fn square(&mut self, of: DataType) -> Id {
        let Sizes { b, nh, t, .. } = self.sizes;
        self.tensor([b, nh, t, t], [nh * t * t, t * t, t, 1], of, None)
    }

    fn product_of_rows(&mut self, a: Id, b: Id) -> Id {
        let c = self.square(DataType::F32);
        self.nodes.push(Node::Matmul { a, b, c });
        c
    }

    fn scores(&mut self, queries: Id, keys: Id) -> Id {
        let products = self.product_of_rows(queries, keys);
        let factor = self.number(self.sizes.scale);
        self.pointwise(Mode::Mul, products, Some(factor), DataType::F32)
    }

    fn pointwise_into(&mut self, mode: Mode, x: Id, b: Option<Id>, y: Id) {
        self.nodes.push(Node::Pointwise { mode, x, b, t: None, y, axis: None, math: DataType::F32 });
    }

    /// Into a tensor of the first one's form.
    fn pointwise(&mut self, mode: Mode, x: Id, b: Option<Id>, of: DataType) -> Id {
        let Tensor { dims, strides, .. } = self.tensors[x];
        let y = self.tensor(dims, strides, of, None);
        self.pointwise_into(mode, x, b, y);
        y
    }

    fn reduced(&mut self, op: Reduce, x: Id) -> Id {
        let y = self.rows(None);
        self.nodes.push(Node::Reduction { op, x, y });
        y
    }

    fn turned(&mut self, x: Id) -> Id {
        let Sizes { b, nh, t, .. } = self.sizes;
        let y = self.tensor([b, nh, t, t], [nh * t * t, t * t, 1, t], DataType::Bf16, None);
        self.nodes.push(Node::Reshape { x, y });
        y
    }

    /// Keeps what a query may look at: keys up to its own place.
    fn masked(&mut self, x: Id) -> Id {
        let [row, column] = [2, 3].map(|axis| {
            let y = self.square(DataType::I32);
            let (mode, axis) = (Mode::Index, Some(axis));
            self.nodes.push(Node::Pointwise { mode, x, b: None, t: None, y, axis, math: DataType::F32 });
            y
        });
        let seen = self.square(DataType::Bool);
        let (mode, b) = (Mode::GreaterOrEqual, Some(column));
        self.nodes.push(Node::Pointwise { mode, x: row, b, t: None, y: seen, axis: None, math: DataType::Bool });
        let masked = self.number(MASKED);
        let y = self.square(DataType::F32);
        let (mode, b, t) = (Mode::Select, Some(masked), Some(seen));
        self.nodes.push(Node::Pointwise { mode, x, b, t, y, axis: None, math: DataType::F32 });
        y
    }
}
