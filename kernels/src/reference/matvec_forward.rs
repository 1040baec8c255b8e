//! A linear layer fused with the following operation, as one GPU kernel.

use super::{
    RealNumber,
    gelu::{gelu_forward, gelu_tanh_forward},
    matmul::matmul_forward,
};

/// The operation fused with a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Epilogue {
    /// No operation.
    #[default]
    Nothing,
    /// The exact [`gelu_forward`].
    Gelu,
    /// The approximate [`gelu_tanh_forward`].
    GeluTanh,
    /// Addition of the result to the output, the residual stream.
    Residual,
}

/// Computes a linear layer over rows and the fused operation.
///
/// Shapes: `inp` (N, C), `weight` (OC, C), optional `bias` (OC) → `out` (N, OC).
/// WGSL kernels: `wgsl/matvec_forward.wgsl` for one row, `wgsl/matmul_forward.wgsl` for many.
///
/// # Panics
/// As for [`matmul_forward`].
pub fn matvec_forward<F: RealNumber>(
    out: &mut [F],
    inp: &[F],
    weight: &[F],
    bias: Option<&[F]>,
    after: Epilogue,
    c: usize,
) {
    let mut linear = vec![F::zero(); out.len()];
    matmul_forward(&mut linear, inp, weight, bias, c);
    match after {
        Epilogue::Nothing => out.copy_from_slice(&linear),
        Epilogue::Gelu => gelu_forward(out, &linear),
        Epilogue::GeluTanh => gelu_tanh_forward(out, &linear),
        Epilogue::Residual => super::residual_forward::residual_forward(out, &linear),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_residual_stream_is_added_to() {
        let mut out = [10.0_f64, 20.0];
        matvec_forward(&mut out, &[1.0, 2.0], &[1.0, 0.0, 0.0, 1.0], Some(&[0.5, 0.5]), Epilogue::Residual, 2);
        assert_eq!(out, [11.5, 22.5]);
        matvec_forward(&mut out, &[1.0, 2.0], &[1.0, 0.0, 0.0, 1.0], None, Epilogue::Nothing, 2);
        assert_eq!(out, [1.0, 2.0]);
    }
}
