//! Compute-bound ops: products and attention, with their operation counts.

use headroom_kernels::{
    cuda::{
        Bf16, CudaError,
        ops::{
            attention_backward::{SavedAttention, attention_backward},
            attention_forward::attention_forward,
            bias_backward::{self, bias_backward},
            matmul::{
                self, matmul_backward_inp, matmul_backward_weight, matmul_forward, matmul_gelu_backward_inp,
                matmul_gelu_forward, matmul_residual_forward,
            },
        },
    },
    reference::attention_forward::Heads,
};

use crate::{Bench, CHUNK_ROWS, Sizes};

impl Bench {
    /// Measures every linear layer of a block, and the last one over a chunk's rows.
    pub fn gemm(&self) -> Result<(), CudaError> {
        let Sizes { c, rows, padded_v, .. } = self.sizes;
        self.layer("qkv", [rows, c, 3 * c])?;
        self.layer("attention_out", [rows, c, c])?;
        self.layer("mlp_in", [rows, c, 4 * c])?;
        self.layer("mlp_out", [rows, 4 * c, c])?;
        self.layer("logits", [rows.min(CHUNK_ROWS), c, padded_v])?;
        self.epilogues([rows, c, 4 * c])
    }

    /// Measures forward and both gradients of a layer of N rows from C to OC channels.
    fn layer(&self, name: &str, [n, c, oc]: [u64; 3]) -> Result<(), CudaError> {
        let device = &self.device;
        let (inp, weight, out) = (self.random(n * c)?, self.random(oc * c)?, self.random(n * oc)?);
        let (inp, weight, out) = (inp.slice(), weight.slice(), out.slice());
        let operations = Some(2 * n * c * oc);
        let halves = 2 * (n * c + oc * c + n * oc);
        self.tell_work(&format!("matmul_forward_{name}"), halves, operations, || {
            matmul_forward(device, out, inp, weight, None, c)
        })?;
        self.tell_work(&format!("matmul_backward_inp_{name}"), halves, operations, || {
            matmul_backward_inp(device, inp, out, weight, c)
        })?;
        let (dweight, planes) = (self.zeros::<f32>(oc * c)?, device.allocate(matmul::planes_elements(n, c, oc))?);
        let bytes = 2 * (n * c + n * oc) + 4 * oc * c;
        self.tell_work(&format!("matmul_backward_weight_{name}"), bytes, operations, || {
            matmul_backward_weight(device, dweight.slice(), planes.slice(), out, inp, c, false)
        })?;
        let (dbias, planes) = (self.zeros::<f32>(oc)?, device.allocate(bias_backward::planes_elements(n, oc))?);
        self.tell(&format!("bias_backward_{name}"), 2 * n * oc, || {
            bias_backward(device, dbias.slice(), planes.slice(), out, false)
        })
    }

    /// Measures products with a fused epilogue.
    fn epilogues(&self, [n, c, oc]: [u64; 3]) -> Result<(), CudaError> {
        let device = &self.device;
        let (inp, weight, bias) = (self.random(n * c)?, self.random(oc * c)?, self.random(oc)?);
        let (out, gelu_out) = (self.random(n * oc)?, self.zeros::<Bf16>(n * oc)?);
        let (inp, weight, bias) = (inp.slice(), weight.slice(), Some(bias.slice()));
        let (out, gelu_out) = (out.slice(), gelu_out.slice());
        let (operations, halves) = (Some(2 * n * c * oc), 2 * (n * c + oc * c));
        self.tell_work("matmul_gelu_forward", halves + 4 * n * oc, operations, || {
            matmul_gelu_forward(device, gelu_out, out, inp, weight, bias, c)
        })?;
        self.tell_work("matmul_residual_forward", halves + 4 * n * oc, operations, || {
            matmul_residual_forward(device, gelu_out, inp, weight, bias, out, c)
        })?;
        // The gradient of OC channels from C, with the sizes of the layer swapped.
        let back = self.random(c * oc)?;
        self.tell_work("matmul_gelu_backward_inp", halves + 4 * n * oc, operations, || {
            matmul_gelu_backward_inp(device, gelu_out, inp, back.slice(), out, oc)
        })
    }

    /// Measures causal attention, whose operations count half of the scores.
    pub fn attention(&self) -> Result<(), CudaError> {
        let (device, Sizes { c, t, rows, heads: nh, .. }) = (&self.device, self.sizes);
        let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let heads = Heads { t: index(t), c: index(c), nh: index(nh), dropout: None };
        let (qkv, dout, out) = (self.random(rows * 3 * c)?, self.stream()?, self.stream()?);
        let (lse, sums) = (self.zeros(rows * nh)?, self.zeros(rows * nh)?);
        let dqkv = self.zeros(rows * 3 * c)?;
        let (qkv, out, lse) = (qkv.slice(), out.slice(), lse.slice());
        let of_product = rows * t * c;
        self.tell_work("attention_forward", 8 * rows * c + 4 * rows * nh, Some(2 * of_product), || {
            attention_forward(device, out, lse, qkv, heads)
        })?;
        // Five products, compared to two in forward. The kernels' recomputation of scores is not counted.
        let saved = SavedAttention { qkv, out, lse };
        self.tell_work("attention_backward", 16 * rows * c + 8 * rows * nh, Some(5 * of_product), || {
            attention_backward(device, dqkv.slice(), sums.slice(), dout.slice(), saved, heads)
        })
    }
}
