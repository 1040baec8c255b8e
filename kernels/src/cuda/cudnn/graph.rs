//! Attention as a cuDNN graph: operations on tensors of four axes, which the library matches to its kernels. Nothing
//! here calls the library.
//!
//! The graphs are those that NVIDIA's cudnn-frontend builds for `sdpa` and `sdpa_backward` with a causal mask and
//! deterministic sums (version 1.22, `scaled_dot_product_flash_attention.h`). The engines of cuDNN 9 match graphs by
//! form: an additional node, a missing node or a mask at another position makes a graph unsupported.

/// cudnnDataType_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DataType {
    F32 = 0,
    I32 = 4,
    Bf16 = 9,
    Bool = 11,
}

/// cudnnPointwiseMode_t, limited to the values in use.
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
    /// Index of an element along an axis.
    Index = 501,
    /// X if T is true, else B.
    Select = 601,
}

/// cudnnReduceTensorOp_t, limited to the values in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Reduce {
    Sum = 0,
    Max = 3,
}

/// Meaning of a graph's input or output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Queries,
    Keys,
    Values,
    Out,
    Lse,
    DOut,
    /// Dot product of each row of `Out` with its gradient.
    Rows,
    DQueries,
    DKeys,
    DValues,
    /// A scalar constant.
    Number(f32),
}

/// Index of a tensor in the graph.
pub type Id = usize;

/// A tensor (B, NH, rows, columns).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor {
    pub dims: [i64; 4],
    pub strides: [i64; 4],
    pub of: DataType,
    /// `None` for an intermediate tensor.
    pub role: Option<Role>,
}

/// An operation of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// `c` = `a` x `b`, over the last two axes.
    Matmul { a: Id, b: Id, c: Id },
    /// Elementwise operation; axes of length 1 are broadcast.
    Pointwise { mode: Mode, x: Id, b: Option<Id>, t: Option<Id>, y: Id, axis: Option<i64>, math: DataType },
    /// Reduction over the last axis.
    Reduction { op: Reduce, x: Id, y: Id },
    /// The same elements with other strides.
    Reshape { x: Id, y: Id },
}

/// Sizes of attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Number of sequences.
    pub b: i64,
    /// Number of heads.
    pub nh: i64,
    /// Tokens per sequence.
    pub t: i64,
    /// Channels per head.
    pub hs: i64,
    /// Factor of the scores.
    pub scale: f32,
}

/// Value of masked scores, whose exponential is 0. Engines before 9.10 required the lowest finite number instead.
const MASKED: f32 = f32::NEG_INFINITY;

/// A graph of operations for cuDNN.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub tensors: Vec<Tensor>,
    pub nodes: Vec<Node>,
    sizes: Sizes,
}

impl Graph {
    /// Builds causal attention: `qkv` (B, T, 3, NH, HS) → `out` (B, T, NH, HS), `lse` (B, NH, T).
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

    /// Builds the gradient of [`Self::forward`]: `dout`, `out` and `lse` → `dqkv`, with the intermediate `rows` (B, NH,
    /// T).
    pub fn backward(sizes: Sizes) -> Self {
        let mut graph = Self { tensors: vec![], nodes: vec![], sizes };
        let (queries, keys) = (graph.part(Role::Queries, false), graph.part(Role::Keys, true));
        let values = graph.part(Role::Values, true);
        let (out, dout) = (graph.of_heads(Role::Out), graph.of_heads(Role::DOut));
        let lse = graph.rows(Some(Role::Lse));

        // Dot product of each row of `out` with its gradient.
        let Sizes { b, nh, t, hs, scale } = sizes;
        let gemm = graph.tensor([b, nh, t, hs], [nh * t * hs, t * hs, nh * hs, 1], DataType::F32, None);
        graph.pointwise_into(Mode::Mul, dout, Some(out), gemm);
        let sums = graph.reduced(Reduce::Sum, gemm);
        // With dropout this factor would be the kept share.
        let one = graph.number(1.0);
        let rows = graph.rows(Some(Role::Rows));
        graph.pointwise_into(Mode::Mul, sums, Some(one), rows);

        // Attention weights, and the gradient of the values.
        let factor = graph.number(scale);
        let scores = graph.product_of_rows(queries, keys);
        let scores = graph.pointwise(Mode::Mul, scores, Some(factor), DataType::F32);
        let less = graph.pointwise(Mode::Sub, scores, Some(lse), DataType::F32);
        let less = graph.masked(less);
        let weights = graph.pointwise(Mode::Exp, less, None, DataType::F32);
        let turned = graph.turned(weights);
        let dvalues = graph.part(Role::DValues, false);
        graph.nodes.push(Node::Matmul { a: turned, b: dout, c: dvalues });

        // Gradients of the scores, the keys and the queries.
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

    /// Queries, keys or values within QKV, or their gradients. `is_turned` swaps the last two axes.
    fn part(&mut self, role: Role, is_turned: bool) -> Id {
        let Sizes { b, nh, t, hs, .. } = self.sizes;
        let token = 3 * nh * hs;
        let (dims, strides) = ([b, nh, t, hs], [t * token, hs, token, 1]);
        let turned = |[b, nh, rows, columns]: [i64; 4]| [b, nh, columns, rows];
        let (dims, strides) = if is_turned { (turned(dims), turned(strides)) } else { (dims, strides) };
        self.tensor(dims, strides, DataType::Bf16, Some(role))
    }

    /// A tensor stored as (B, T, NH, HS).
    fn of_heads(&mut self, role: Role) -> Id {
        let Sizes { b, nh, t, hs, .. } = self.sizes;
        self.tensor([b, nh, t, hs], [t * nh * hs, hs, nh * hs, 1], DataType::Bf16, Some(role))
    }

    /// A float32 number per row.
    fn rows(&mut self, role: Option<Role>) -> Id {
        let Sizes { b, nh, t, .. } = self.sizes;
        self.tensor([b, nh, t, 1], [nh * t, t, 1, 1], DataType::F32, role)
    }

    /// A number per pair of query and key.
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
        let gemm = self.product_of_rows(queries, keys);
        let factor = self.number(self.sizes.scale);
        self.pointwise(Mode::Mul, gemm, Some(factor), DataType::F32)
    }

    fn pointwise_into(&mut self, mode: Mode, x: Id, b: Option<Id>, y: Id) {
        self.nodes.push(Node::Pointwise { mode, x, b, t: None, y, axis: None, math: DataType::F32 });
    }

    /// Adds an operation into a new tensor with the form of `x`.
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

    /// Applies the causal mask: keeps keys up to the query's own position.
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
