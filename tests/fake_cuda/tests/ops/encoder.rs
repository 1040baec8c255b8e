//! Embeddings and their gradients.

use headroom_kernels::{
    cuda::{
        Bf16, Device,
        ops::{
            encoder_backward::{Gradients, TokenOrder, encoder_backward},
            encoder_forward::encoder_forward,
        },
    },
    reference::{
        dropout::{self, Dropout},
        encoder::{self, Positions},
    },
};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{CheckFailure, Outcome, catches, holds, inputs, normals, normals_bf16},
    numbers::{BF16_ROUNDING, read, repeats, wide, wide_f32},
};

/// The sizes of a batch and a table.
#[derive(Clone, Copy)]
pub struct Sizes {
    b: usize,
    positions: Positions,
    c: usize,
    v: usize,
}

const fn sizes(b: usize, t: usize, first: usize, c: usize, v: usize) -> Sizes {
    Sizes { b, positions: Positions { t, first }, c, v }
}

/// Size 1 of everything; a character vocabulary with many rows each; words, mostly with one row. Then more columns than
/// a warp; a single token in many rows; and more rows than a block reads at once.
pub const ALL: [Sizes; 7] = [
    sizes(1, 1, 0, 8, 1),
    sizes(2, 67, 0, 72, 3),
    sizes(3, 65, 3, 24, 2000),
    sizes(2, 40, 0, 264, 40),
    sizes(1, 97, 0, 320, 1),
    sizes(5, 33, 0, 64, 2),
    sizes(1, 66, 1, 136, 2),
];

impl Sizes {
    fn rows(self) -> usize {
        self.b * self.positions.t
    }

    fn tokens(self) -> Vec<u32> {
        let mut stream = inputs(7, self.v as u64);
        (0..self.rows()).map(|_| u32::try_from(stream.below(self.v as u64)).expect("below V")).collect()
    }

    fn positions_max(self) -> usize {
        self.positions.first + self.positions.t + 2
    }
}

pub fn masks() -> [Option<Dropout>; 2] {
    [None, Dropout::new(0.3, 99)]
}

pub fn forward(device: &Device, sizes: Sizes, mask: Option<Dropout>) -> Outcome {
    let Sizes { positions, c, v, .. } = sizes;
    let tokens = sizes.tokens();
    let (wte, wpe) = (normals_bf16(1, v * c), normals_bf16(2, sizes.positions_max() * c));
    let mut expected = vec![0.0; tokens.len() * c];
    encoder::encoder_forward(&mut expected, &tokens, &wide(&wte), &wide(&wpe), positions, c);
    if let Some(mask) = mask {
        dropout::dropout(&mut expected, mask);
    }
    // Two terms may nearly cancel. The error is still relative to the sum, because sums of near 8-bit numbers are exact
    // in float32.
    let tolerance = Tolerance { absolute: 1e-40, relative: BF16_ROUNDING + 3.0 * F32_ROUNDING };
    let (inp, wte, wpe) = (device.upload(&tokens)?, device.upload(&wte)?, device.upload(&wpe)?);
    let out = device.allocate((tokens.len() * c) as u64)?;
    let operands = (inp.slice(), wte.slice(), wpe.slice());
    encoder_forward(device, out.slice(), operands.0, operands.1, operands.2, positions, c as u64, mask)?;
    close("out", &read(device, out.slice())?, &expected, tolerance)
}

/// Returns the gradients of tokens, then of positions.
fn backward(
    device: &Device,
    sizes: Sizes,
    (dout, dwte, dwpe): (&[Bf16], &[f32], &[f32]),
    mask: Option<Dropout>,
) -> Result<[Vec<f32>; 2], CheckFailure> {
    let mut order = TokenOrder::new(sizes.v as u64)?;
    order.sort(&sizes.tokens())?;
    let (dout, words) = (device.upload(dout)?, device.upload(order.words())?);
    let (dwte, dwpe) = (device.upload(dwte)?, device.upload(dwpe)?);
    let gradients = Gradients { dwte: dwte.slice(), dwpe: dwpe.slice() };
    let tokens = (&order, words.slice());
    encoder_backward(device, gradients, dout.slice(), tokens, sizes.positions, sizes.c as u64, mask)?;
    Ok([device.download(dwte.slice())?, device.download(dwpe.slice())?])
}

fn gradients_of(sizes: Sizes) -> (Vec<Bf16>, Vec<f32>, Vec<f32>) {
    let Sizes { c, v, .. } = sizes;
    (normals_bf16(1, sizes.rows() * c), normals(2, v * c), normals(3, sizes.positions_max() * c))
}

pub fn backward_is_right(device: &Device, sizes: Sizes, mask: Option<Dropout>) -> Outcome {
    let (dout, dwte, dwpe) = gradients_of(sizes);
    let given = backward(device, sizes, (&dout, &dwte, &dwpe), mask)?;
    let (mut dout, mut dwte, mut dwpe) = (wide(&dout), wide_f32(&dwte), wide_f32(&dwpe));
    if let Some(mask) = mask {
        dropout::dropout(&mut dout, mask);
    }
    encoder::encoder_backward(&mut dwte, &mut dwpe, &dout, &sizes.tokens(), sizes.positions, sizes.c);
    // Each of K roundings is at most of a sum of K numbers, most of them below 3 with a mask's factor of 1 / 0.7.
    let k = sizes.rows() as f64 + 1.0;
    let tolerance = Tolerance { absolute: k * F32_ROUNDING * k * 3.0, relative: 2.0 * F32_ROUNDING };
    close("dwte", &given[0], &dwte, tolerance)?;
    close("dwpe", &given[1], &dwpe, tolerance)
}

#[test]
fn embeddings_are_those_of_the_reference() {
    for sizes in ALL {
        for mask in masks() {
            holds(|device| forward(device, sizes, mask));
        }
    }
}

#[test]
fn a_token_without_a_row_is_no_number() {
    holds(|device| {
        let (inp, table) = (device.upload(&[1_u32, 2])?, device.upload(&normals_bf16(0, 16))?);
        let out = device.allocate(16)?;
        let (positions, table) = (Positions { t: 2, first: 0 }, table.slice());
        encoder_forward(device, out.slice(), inp.slice(), table, table, positions, 8, None)?;
        let out = read(device, out.slice())?;
        assert!(out[..8].iter().all(|x| x.is_finite()) && out[8..].iter().all(|x| x.is_nan()), "{out:?}");
        Ok(())
    });
}

#[test]
fn gradients_are_those_of_the_reference() {
    for sizes in ALL {
        for mask in masks() {
            holds(|device| backward_is_right(device, sizes, mask));
        }
    }
}

#[test]
fn gradients_repeat_bit_by_bit() {
    let sizes = ALL[1];
    let (dout, dwte, dwpe) = gradients_of(sizes);
    repeats(|device| Ok(backward(device, sizes, (&dout, &dwte, &dwpe), None)?.concat()));
}

#[test]
fn mistakes_in_the_gradients_are_noticed() {
    for (kernel, mutation, sizes) in [
        ("encoder_backward_wte_many", "no_barrier", ALL[1]),
        ("encoder_backward_wte_many", "a_row_less", ALL[5]),
        ("encoder_backward_wte_few", "a_row_more", ALL[3]),
        ("encoder_backward_wpe", "a_position_further", ALL[2]),
        ("encoder_backward_wte_few", "no_columns_end", ALL[2]),
    ] {
        catches(kernel, mutation, |device| backward_is_right(device, sizes, None));
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    holds(|device| {
        let (inp, table) = (device.upload(&[0_u32; 4])?, device.upload(&normals_bf16(0, 48))?);
        let (inp, table) = (inp.slice(), table.slice());
        let error_of = |t, c, first| {
            let error = encoder_forward(device, table, inp, table, table, Positions { t, first }, c, None);
            error.expect_err("it does not fit").to_string()
        };
        assert_eq!(error_of(4, 12, 0), "encoder_forward: C is 12, and has to be a multiple of 8");
        assert_eq!(error_of(4, 0, 0), "encoder_forward: C is 0, and has to be at least 1");
        assert_eq!(error_of(4, 8, 0), "encoder_forward: out has 48 elements instead of 32");
        let out = table.part(0, 32)?;
        let error_of = |t, first| {
            let error = encoder_forward(device, out, inp, table, table, Positions { t, first }, 8, None);
            error.expect_err("it does not fit").to_string()
        };
        assert_eq!(error_of(3, 0), "encoder_forward: the number of tokens is 4, and has to be a multiple of T");
        assert_eq!(error_of(4, 3), "encoder_forward: wpe has 48 elements instead of 56");
        Ok(())
    });
}
