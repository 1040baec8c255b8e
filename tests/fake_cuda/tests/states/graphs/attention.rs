//! Causal attention as graphs in the form of NVIDIA's own frontend, with test data.

use headroom_kernels::{
    cuda::Bf16,
    reference::{
        attention_backward::{SavedAttention, attention_backward},
        attention_forward::{Heads, attention_forward},
    },
};

use super::library::{BFLOAT16, BOOLEAN, FLOAT, INT32, LoadedLibraries, RawHandle, TensorLocation};

const ADD: i32 = 0;
const MUL: i32 = 1;
const MAX: i32 = 3;
const DIV: i32 = 6;
const SUB: i32 = 9;
const EXP: i32 = 13;
const LOG: i32 = 15;
const CMP_GE: i32 = 303;
const GEN_INDEX: i32 = 501;
const BINARY_SELECT: i32 = 601;

pub const B: i64 = 2;
pub const NH: i64 = 2;
pub const T: i64 = 9;
pub const HS: i64 = 8;
const C: i64 = NH * HS;

/// Unique ids of the tensors.
pub mod uid {
    pub const Q: i64 = 1;
    pub const K: i64 = 2;
    pub const V: i64 = 3;
    pub const OUT: i64 = 4;
    pub const LSE: i64 = 5;
    pub const DOUT: i64 = 6;
    pub const DQ: i64 = 7;
    pub const DK: i64 = 8;
    pub const DV: i64 = 9;
    pub const D: i64 = 10;
    pub const SCALE: i64 = 11;
    pub const MASKED: i64 = 12;
    pub const UNIT: i64 = 13;
}

/// The scale of scores, the value of masked scores, and a neutral factor.
static VALUES: [f32; 3] = [0.353_553_4, f32::MIN, 1.0];

/// The tensors in memory, of forward and of backward.
pub const OF_FORWARD: &[i64] = &[uid::Q, uid::K, uid::V, uid::OUT, uid::LSE, uid::SCALE, uid::MASKED];
pub const OF_BACKWARD: &[i64] = &[
    uid::Q,
    uid::K,
    uid::V,
    uid::OUT,
    uid::LSE,
    uid::DOUT,
    uid::DQ,
    uid::DK,
    uid::DV,
    uid::D,
    uid::SCALE,
    uid::MASKED,
    uid::UNIT,
];

/// Strides of (B, NH, T, HS) in qkv of (B, T, 3, NH, HS), and in out of (B, T, NH, HS).
const IN_QKV: [i64; 4] = [T * 3 * C, HS, 3 * C, 1];
const IN_OUT: [i64; 4] = [T * C, HS, C, 1];
const HEAD: [i64; 4] = [B, NH, T, HS];
const SCORES: [i64; 4] = [B, NH, T, T];
const SCORES_APART: [i64; 4] = [NH * T * T, T * T, T, 1];
const ROWS: [i64; 4] = [B, NH, T, 1];
const ROWS_APART: [i64; 4] = [NH * T, T, 1, 1];

/// A graph under construction.
struct Graph<'a> {
    library: &'a LoadedLibraries,
    operations: Vec<RawHandle>,
    n: i64,
}

impl Graph<'_> {
    /// Creates a virtual tensor.
    fn passing(&mut self, dims: [i64; 4], strides: [i64; 4], elements: i32) -> RawHandle {
        self.n += 1;
        self.library.tensor(100 + self.n, dims, strides, elements, TensorLocation::Nowhere)
    }

    fn scores(&mut self, elements: i32) -> RawHandle {
        self.passing(SCORES, SCORES_APART, elements)
    }

    fn known(&self, uid: i64, dims: [i64; 4], strides: [i64; 4], elements: i32) -> RawHandle {
        self.library.tensor(uid, dims, strides, elements, TensorLocation::Memory)
    }

    fn by_value(&self, uid: i64) -> RawHandle {
        self.library.tensor(uid, [1; 4], [1; 4], FLOAT, TensorLocation::Host)
    }

    fn of(&mut self, mode: i32, inputs: &[RawHandle], output: RawHandle) -> RawHandle {
        self.operations.push(self.library.pointwise(mode, None, inputs, output));
        output
    }

    fn scores_of(&mut self, mode: i32, inputs: &[RawHandle]) -> RawHandle {
        let output = self.scores(FLOAT);
        self.of(mode, inputs, output)
    }

    fn matmul(&mut self, a: RawHandle, b: RawHandle, c: RawHandle) -> RawHandle {
        self.operations.push(self.library.matmul(a, b, c));
        c
    }

    fn reduce(&mut self, operator: i32, x: RawHandle) -> RawHandle {
        let y = self.passing(ROWS, ROWS_APART, FLOAT);
        self.operations.push(self.library.reduce(operator, x, y));
        y
    }

    /// Replaces the scores of keys after the query.
    fn masked(&mut self, scores: RawHandle) -> RawHandle {
        let [rows, columns] = [2, 3].map(|axis| {
            let index = self.scores(INT32);
            self.operations.push(self.library.pointwise(GEN_INDEX, Some(axis), &[scores], index));
            index
        });
        let seen = self.scores(BOOLEAN);
        self.of(CMP_GE, &[rows, columns], seen);
        let masked = self.by_value(uid::MASKED);
        self.scores_of(BINARY_SELECT, &[scores, masked, seen])
    }

    fn transposed(&mut self, scores: RawHandle) -> RawHandle {
        let output = self.passing(SCORES, [NH * T * T, T * T, 1, T], BFLOAT16);
        self.operations.push(self.library.reshape(scores, output));
        output
    }

    /// Returns the scaled scores before the mask.
    fn scaled(&mut self) -> RawHandle {
        let q = self.known(uid::Q, HEAD, IN_QKV, BFLOAT16);
        let k = self.known(uid::K, [B, NH, HS, T], [T * 3 * C, HS, 1, 3 * C], BFLOAT16);
        let scores = self.scores(FLOAT);
        self.matmul(q, k, scores);
        let scale = self.by_value(uid::SCALE);
        self.scores_of(MUL, &[scores, scale])
    }
}

/// Returns the operations of forward, in arbitrary order.
pub fn forward(library: &LoadedLibraries) -> Vec<RawHandle> {
    let mut graph = Graph { library, operations: vec![], n: 0 };
    let scaled = graph.scaled();
    let scores = graph.masked(scaled);
    let max = graph.reduce(MAX, scores);
    let less = graph.scores_of(SUB, &[scores, max]);
    let exp = graph.scores_of(EXP, &[less]);
    let sum = graph.reduce(ADD, exp);
    let log = graph.passing(ROWS, ROWS_APART, FLOAT);
    graph.of(LOG, &[sum], log);
    let lse = graph.known(uid::LSE, ROWS, ROWS_APART, FLOAT);
    graph.of(ADD, &[max, log], lse);
    let weights = graph.scores(BFLOAT16);
    graph.of(DIV, &[exp, sum], weights);
    let v = graph.known(uid::V, HEAD, IN_QKV, BFLOAT16);
    let out = graph.known(uid::OUT, HEAD, IN_OUT, BFLOAT16);
    graph.matmul(weights, v, out);
    graph.operations.reverse();
    graph.operations
}

/// Returns the operations of backward, in order.
pub fn backward(library: &LoadedLibraries) -> Vec<RawHandle> {
    let mut graph = Graph { library, operations: vec![], n: 0 };
    let dout = graph.known(uid::DOUT, HEAD, IN_OUT, BFLOAT16);
    let out = graph.known(uid::OUT, HEAD, IN_OUT, BFLOAT16);
    // The frontend gives this tensor overlapping strides, which the library accepts.
    let both = graph.passing(HEAD, [T * C, T * HS, C, 1], FLOAT);
    graph.of(MUL, &[dout, out], both);
    let sum = graph.reduce(ADD, both);
    let d = graph.known(uid::D, ROWS, ROWS_APART, FLOAT);
    // The factor of dropout; 1 here.
    let unit = graph.by_value(uid::UNIT);
    graph.of(MUL, &[sum, unit], d);
    let scaled = graph.scaled();
    let lse = graph.known(uid::LSE, ROWS, ROWS_APART, FLOAT);
    let less = graph.scores_of(SUB, &[scaled, lse]);
    let masked = graph.masked(less);
    let weights = graph.scores_of(EXP, &[masked]);
    let of_keys = graph.transposed(weights);
    let dv = graph.known(uid::DV, HEAD, IN_QKV, BFLOAT16);
    graph.matmul(of_keys, dout, dv);
    let v = graph.known(uid::V, [B, NH, HS, T], [T * 3 * C, HS, 1, 3 * C], BFLOAT16);
    let dweights = graph.scores(FLOAT);
    graph.matmul(dout, v, dweights);
    let less = graph.scores_of(SUB, &[dweights, d]);
    let times = graph.scores_of(MUL, &[less, weights]);
    let scale = graph.by_value(uid::SCALE);
    let dscores = graph.scores_of(MUL, &[times, scale]);
    let of_keys = graph.transposed(dscores);
    let q = graph.known(uid::Q, HEAD, IN_QKV, BFLOAT16);
    let dk = graph.known(uid::DK, HEAD, IN_QKV, BFLOAT16);
    graph.matmul(of_keys, q, dk);
    let k = graph.known(uid::K, [B, NH, HS, T], [T * 3 * C, HS, 1, 3 * C], BFLOAT16);
    let keys = graph.passing(HEAD, IN_QKV, FLOAT);
    graph.operations.push(library.reshape(k, keys));
    let dq = graph.known(uid::DQ, HEAD, IN_QKV, BFLOAT16);
    graph.matmul(dscores, keys, dq);
    graph.operations
}

/// Inputs, and the addresses of inputs and results.
pub struct Case {
    qkv: Vec<Bf16>,
    dout: Vec<Bf16>,
    qkv_at: u64,
    dout_at: u64,
    pub out_at: u64,
    pub lse_at: u64,
    d_at: u64,
    dqkv_at: u64,
}

/// Results of attention.
#[derive(Debug)]
pub struct Results {
    pub out: Vec<f64>,
    pub lse: Vec<f64>,
    pub dqkv: Vec<f64>,
}

const TOKENS: usize = 18;
const HEADS: Heads = Heads { t: 9, c: 16, nh: 2, dropout: None };

fn wide(values: &[Bf16]) -> Vec<f64> {
    values.iter().map(|value| f64::from(value.to_f32())).collect()
}

impl Case {
    pub fn new(library: &LoadedLibraries) -> Self {
        // Pseudorandom numbers from -2 to 2.
        let of = |index: u32| (index.wrapping_mul(2_654_435_761) >> 22) as f32 / 256.0 - 2.0;
        let numbers =
            |n: usize, seed| -> Vec<Bf16> { (seed..).take(n).map(|index| Bf16::from_f32(of(index))).collect() };
        let (qkv, dout) = (numbers(TOKENS * 3 * HEADS.c, 1), numbers(TOKENS * HEADS.c, 10_000));
        // Filled with NaN, so that missing results are found.
        let room = |bytes: usize| library.upload(&vec![0xff_u8; bytes]);
        Self {
            qkv_at: library.upload(&qkv),
            dout_at: library.upload(&dout),
            out_at: room(2 * dout.len()),
            lse_at: room(4 * TOKENS * HEADS.nh),
            d_at: room(4 * TOKENS * HEADS.nh),
            dqkv_at: room(2 * qkv.len()),
            qkv,
            dout,
        }
    }

    /// Returns the addresses of tensors by unique id.
    pub fn tensors(&self, uids: &[i64]) -> Vec<(i64, u64)> {
        let part = |start: u64, index: u64| start + index * 2 * HEADS.c as u64;
        let value = |index: usize| (&raw const VALUES[index]).expose_provenance() as u64;
        let at = |uid| match uid {
            uid::Q => self.qkv_at,
            uid::K => part(self.qkv_at, 1),
            uid::V => part(self.qkv_at, 2),
            uid::OUT => self.out_at,
            uid::LSE => self.lse_at,
            uid::DOUT => self.dout_at,
            uid::DQ => self.dqkv_at,
            uid::DK => part(self.dqkv_at, 1),
            uid::DV => part(self.dqkv_at, 2),
            uid::D => self.d_at,
            uid::SCALE => value(0),
            uid::MASKED => value(1),
            _ => value(2),
        };
        uids.iter().map(|&uid| (uid, at(uid))).collect()
    }

    pub fn out(&self, library: &LoadedLibraries) -> Vec<f64> {
        wide(&library.download::<Bf16>(self.out_at, self.dout.len()))
    }

    pub fn results(&self, library: &LoadedLibraries) -> Results {
        let lse = library.download::<f32>(self.lse_at, TOKENS * HEADS.nh).into_iter().map(f64::from).collect();
        let dqkv = wide(&library.download::<Bf16>(self.dqkv_at, self.qkv.len()));
        Results { out: self.out(library), lse, dqkv }
    }

    /// Returns the results of the reference.
    pub fn expected(&self) -> Results {
        let (qkv, dout) = (wide(&self.qkv), wide(&self.dout));
        let (mut out, mut lse) = (vec![0.0; dout.len()], vec![0.0; TOKENS * HEADS.nh]);
        let mut dqkv = vec![0.0; qkv.len()];
        attention_forward(&mut out, &mut lse, &qkv, HEADS);
        attention_backward(&mut dqkv, &dout, SavedAttention { qkv: &qkv, out: &out, lse: &lse }, HEADS);
        Results { out, lse, dqkv }
    }
}
