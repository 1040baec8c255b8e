//! A linear layer over one row, with what follows it in the same kernel on a GPU.

use super::{
    Real,
    gelu::{gelu_forward, gelu_tanh_forward},
    matmul::matmul_forward,
};

/// What follows a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    #[default]
    Nothing,
    /// [`gelu_forward`].
    Gelu,
    /// [`gelu_tanh_forward`].
    GeluTanh,
    /// The result is added to what is there, the residual stream.
    Residual,
}

/// A linear layer over rows, and what follows.
///
/// Shapes: `inp` (N, C), `weight` (OC, C), `bias` (OC) or none → `out` (N, OC).
/// Twins: `wgsl/matvec_forward.wgsl` for one row, `wgsl/matmul_forward.wgsl` for many.
///
/// # Panics
/// As [`matmul_forward`].
pub fn matvec_forward<F: Real>(out: &mut [F], inp: &[F], weight: &[F], bias: Option<&[F]>, after: After, c: usize) {
    let mut linear = vec![F::zero(); out.len()];
    matmul_forward(&mut linear, inp, weight, bias, c);
    match after {
        After::Nothing => out.copy_from_slice(&linear),
        After::Gelu => gelu_forward(out, &linear),
        After::GeluTanh => gelu_tanh_forward(out, &linear),
        After::Residual => super::residual_forward::residual_forward(out, &linear),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_residual_stream_is_added_to() {
        let mut out = [10.0_f64, 20.0];
        matvec_forward(&mut out, &[1.0, 2.0], &[1.0, 0.0, 0.0, 1.0], Some(&[0.5, 0.5]), After::Residual, 2);
        assert_eq!(out, [11.5, 22.5]);
        matvec_forward(&mut out, &[1.0, 2.0], &[1.0, 0.0, 0.0, 1.0], None, After::Nothing, 2);
        assert_eq!(out, [1.0, 2.0]);
    }
}
