//! Layer normalisation, forward and backward.

use headroom_kernels::{
    cuda::{
        Allocation, Bf16, Device, Slice,
        ops::{
            layernorm_backward::{Gradients, SavedNorm, layernorm_backward, sums_elements},
            layernorm_forward::{Output, Residual, layernorm_forward, residual_layernorm_forward},
        },
    },
    reference::{
        dropout::{self, Dropout},
        layernorm_backward as cpu_backward, layernorm_forward as cpu_forward,
        residual_forward::residual_forward,
    },
};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{CheckFailure, Outcome, catches, holds, normals, normals_bf16},
    numbers::{BF16_ROUNDING, read, repeats, wide, wide_f32},
};

/// Rows and channels: each kind of kernel with its narrowest, its widest and one in between. Some rows fill no block,
/// others more than one.
const ALL: [(usize, usize); 9] =
    [(1, 8), (13, 72), (25, 264), (5, 768), (7, 776), (4, 2056), (2, 3072), (2, 3080), (1, 9216)];

/// The largest number of blocks.
const FULL: u64 = 512;

/// Returns random rows with this mean and deviation.
fn rows(name: u64, n: usize, mean: f32, deviation: f32) -> Vec<Bf16> {
    normals(name, n).into_iter().map(|x| Bf16::from_f32(mean + deviation * x)).collect()
}

/// Returns the reference's results: the output, the means, and the inverse deviations.
fn reference(inp: &[f64], weight: &[Bf16], bias: Option<&[Bf16]>) -> [Vec<f64>; 3] {
    let n = inp.len() / weight.len();
    let (mut out, mut mean, mut rstd) = (vec![0.0; inp.len()], vec![0.0; n], vec![0.0; n]);
    let output = cpu_forward::Output { out: &mut out, mean: &mut mean, rstd: &mut rstd };
    cpu_forward::layernorm_forward(output, inp, &wide(weight), bias.map(wide).as_deref());
    [out, mean, rstd]
}

/// Compares a kernel's results with the reference for rows of this mean and deviation.
fn normalised(
    device: &Device,
    output: Output,
    expected: &[Vec<f64>; 3],
    c: usize,
    (mean, deviation): (f32, f32),
) -> Outcome {
    // A mean of C numbers has an error of log2(C) roundings of their size, plus a few of a lane's own eights. The error
    // of xhat is the same in deviations, and that of a variance is relative to itself.
    let depth = f64::from(c.ilog2()) + 24.0;
    let size = f64::from(mean.abs() + 4.0 * deviation);
    let off = depth * F32_ROUNDING * size;
    let xhat = off / f64::from(deviation);
    close("mean", &device.download(output.mean)?, &expected[1], Tolerance { absolute: off, relative: 0.0 })?;
    let relative = 2.0 * depth * F32_ROUNDING;
    close(
        "rstd",
        &device.download(output.rstd)?,
        &expected[2],
        Tolerance { absolute: 1e-6, relative: relative + xhat },
    )?;
    let tolerance = Tolerance { absolute: 4.0 * (xhat + relative), relative: BF16_ROUNDING + xhat + relative };
    close("out", &read(device, output.out)?, &expected[0], tolerance)
}

/// Allocates the results of forward.
fn output(device: &Device, n: usize, c: usize) -> Result<(Output, impl Sized + use<>), CheckFailure> {
    let (out, mean) = (device.allocate((n * c) as u64)?, device.allocate(n as u64)?);
    let rstd = device.allocate(n as u64)?;
    Ok((Output { out: out.slice(), mean: mean.slice(), rstd: rstd.slice() }, (out, mean, rstd)))
}

pub fn forward(device: &Device, (n, c): (usize, usize), with_bias: bool, (mean, deviation): (f32, f32)) -> Outcome {
    let inp = rows(1, n * c, mean, deviation);
    let (weight, bias) = (rows(2, c, 1.0, 0.2), with_bias.then(|| rows(3, c, 0.0, 0.5)));
    let expected = reference(&wide(&inp), &weight, bias.as_deref());
    let (inp, weight) = (device.upload(&inp)?, device.upload(&weight)?);
    let bias = bias.map(|bias| device.upload(&bias)).transpose()?;
    let (output, _room) = output(device, n, c)?;
    layernorm_forward(device, output, inp.slice(), weight.slice(), bias.as_ref().map(Allocation::slice))?;
    normalised(device, output, &expected, c, (mean, deviation))
}

pub fn residual(device: &Device, (n, c): (usize, usize), mask: Option<Dropout>, in_place: bool) -> Outcome {
    let (inp, branch) = (rows(1, n * c, 0.5, 2.0), rows(4, n * c, 0.0, 1.0));
    let (weight, bias) = (rows(2, c, 1.0, 0.2), rows(3, c, 0.0, 0.5));
    let (mut sum, mut dropped) = (wide(&inp), wide(&branch));
    if let Some(mask) = mask {
        dropout::dropout(&mut dropped, mask);
    }
    residual_forward(&mut sum, &dropped);
    let (inp, branch) = (device.upload(&inp)?, device.upload(&branch)?);
    let (weight_there, bias_there) = (device.upload(&weight)?, device.upload(&bias)?);
    let residual = device.allocate((n * c) as u64)?;
    let residual = if in_place { inp.slice() } else { residual.slice() };
    let (output, _room) = output(device, n, c)?;
    let stream = Residual { residual, inp: inp.slice(), branch: branch.slice(), dropout: mask };
    residual_layernorm_forward(device, stream, output, weight_there.slice(), Some(bias_there.slice()))?;
    let tolerance = Tolerance { absolute: 1e-6, relative: BF16_ROUNDING };
    let stored = device.download(residual)?;
    close("residual", &read(device, residual)?, &sum, tolerance)?;
    // Normalisation reads the stored sum.
    let expected = reference(&wide(&stored), &weight, Some(&bias));
    normalised(device, output, &expected, c, (0.5, 2.5))
}

struct BackwardInputs {
    dout: Vec<Bf16>,
    inp: Vec<Bf16>,
    mean: Vec<f32>,
    rstd: Vec<f32>,
    weight: Vec<Bf16>,
    dinp: Vec<Bf16>,
    dweight: Vec<f32>,
    dbias: Vec<f32>,
}

fn given((n, c): (usize, usize)) -> BackwardInputs {
    let (inp, weight) = (rows(1, n * c, 0.5, 2.0), rows(2, c, 1.0, 0.2));
    let [_, mean, rstd] = reference(&wide(&inp), &weight, None);
    #[expect(clippy::cast_possible_truncation, reason = "statistics are f32")]
    let [mean, rstd] = [mean, rstd].map(|values| values.into_iter().map(|x| x as f32).collect());
    let (dout, dinp) = (normals_bf16(5, n * c), normals_bf16(6, n * c));
    BackwardInputs { dout, inp, mean, rstd, weight, dinp, dweight: normals(7, c), dbias: normals(8, c) }
}

/// Runs backward and returns dinp, dweight and dbias. Without `accumulate` dinp is uninitialised before.
fn run_backward(
    device: &Device,
    given: &BackwardInputs,
    (with_bias, accumulate): (bool, bool),
    blocks_max: u64,
) -> Result<[Vec<f32>; 3], CheckFailure> {
    let (n, c) = (given.mean.len() as u64, given.weight.len() as u64);
    let [dout, inp, weight] = [&given.dout, &given.inp, &given.weight].map(|values| device.upload(values));
    let [mean, rstd, dweight, dbias] =
        [&given.mean, &given.rstd, &given.dweight, &given.dbias].map(|values| device.upload(values));
    let (dout, inp, weight, mean, rstd, dweight, dbias) = (dout?, inp?, weight?, mean?, rstd?, dweight?, dbias?);
    let dinp = if accumulate { device.upload(&given.dinp)? } else { device.allocate(n * c)? };
    let sums = device.allocate(sums_elements(n, c)?.min(2 * c * blocks_max))?;
    let gradients = Gradients {
        dinp: dinp.slice(),
        dweight: dweight.slice(),
        dbias: with_bias.then_some(dbias.slice()),
        accumulate,
    };
    let saved = SavedNorm { inp: inp.slice(), mean: mean.slice(), rstd: rstd.slice() };
    layernorm_backward(device, gradients, sums.slice(), dout.slice(), saved, weight.slice())?;
    Ok([read(device, dinp.slice())?, device.download(dweight.slice())?, device.download(dbias.slice())?])
}

pub fn backward(device: &Device, sizes: (usize, usize), with_bias: bool, accumulate: bool, blocks_max: u64) -> Outcome {
    let given = given(sizes);
    let (n, c) = sizes;
    let [dinp, dweight, dbias] = run_backward(device, &given, (with_bias, accumulate), blocks_max)?;
    let mut expected_dinp = if accumulate { wide(&given.dinp) } else { vec![0.0; n * c] };
    let (mut expected_dweight, mut expected_dbias) = (wide_f32(&given.dweight), wide_f32(&given.dbias));
    let gradients = cpu_backward::Gradients {
        dinp: &mut expected_dinp,
        dweight: &mut expected_dweight,
        dbias: with_bias.then_some(&mut expected_dbias[..]),
    };
    let (inp, mean, rstd) = (wide(&given.inp), wide_f32(&given.mean), wide_f32(&given.rstd));
    let saved = cpu_backward::SavedNorm { inp: &inp, mean: &mean, rstd: &rstd };
    cpu_backward::layernorm_backward(gradients, &wide(&given.dout), saved, &wide(&given.weight));
    // Both means of a row have forward's error, in units of dout times xhat, up to about 16. They are multiplied by
    // rstd, which is below 1 for rows of deviation 2 unless they have few channels.
    let depth = f64::from(c.ilog2()) + 24.0;
    let tolerance = Tolerance { absolute: 16.0 * depth * F32_ROUNDING, relative: BF16_ROUNDING + 1e-6 };
    close("dinp", &dinp, &expected_dinp, tolerance)?;
    // An element passes few sums: over a thread's rows, a block's threads, a share of the blocks, and all shares. Each
    // is of numbers below 16 and grows with the root of N.
    let sum = n as f64 + 1.0;
    let tolerance = Tolerance { absolute: 16.0 * sum.min(80.0) * sum.sqrt() * F32_ROUNDING, relative: 1e-6 };
    close("dweight", &dweight, &expected_dweight, tolerance)?;
    close("dbias", &dbias, &expected_dbias, tolerance)
}

#[test]
fn rows_are_normalised_as_the_reference_does() {
    for (sizes, with_bias) in ALL.into_iter().zip([true, false].into_iter().cycle()) {
        holds(|device| forward(device, sizes, with_bias, (0.5, 2.0)));
    }
}

#[test]
fn a_mean_far_from_0_costs_no_precision() {
    holds(|device| forward(device, (13, 72), true, (100.0, 4.0)));
    holds(|device| forward(device, (2, 2056), true, (-100.0, 4.0)));
}

#[test]
fn a_constant_row_becomes_the_bias() {
    holds(|device| {
        let (inp, weight) = (device.upload(&[Bf16::from_f32(7.0); 72])?, device.upload(&normals_bf16(1, 72))?);
        let bias = normals_bf16(2, 72);
        let bias_there = device.upload(&bias)?;
        let (output, _room) = output(device, 1, 72)?;
        layernorm_forward(device, output, inp.slice(), weight.slice(), Some(bias_there.slice()))?;
        // The mean of 72 sevens may have an error of a rounding or two, and rstd is 316.
        let tolerance = Tolerance { absolute: 316.0 * 4.0 * 4.0 * 7.0 * F32_ROUNDING, relative: BF16_ROUNDING };
        close("out", &read(device, output.out)?, &wide(&bias), tolerance)
    });
}

#[test]
fn a_branch_is_added_and_the_sum_normalised() {
    let masks = [None, Dropout::new(0.25, 5)];
    for ((sizes, mask), in_place) in
        ALL.into_iter().zip(masks.into_iter().cycle()).zip([true, true, false].into_iter().cycle())
    {
        holds(|device| residual(device, sizes, mask, in_place));
    }
}

#[test]
fn gradients_are_those_of_the_reference() {
    for (sizes, with_bias) in ALL.into_iter().zip([true, true, false].into_iter().cycle()) {
        for accumulate in [false, true] {
            holds(|device| backward(device, sizes, with_bias, accumulate, FULL));
        }
    }
}

#[test]
fn a_block_goes_through_many_rows() {
    for (sizes, blocks) in [((61, 72), 1), ((30, 776), 2), ((9, 3080), 2), ((512 * 12 + 30, 8), FULL)] {
        holds(|device| backward(device, sizes, true, true, blocks));
    }
}

#[test]
fn gradients_repeat_bit_by_bit() {
    for sizes in [(61, 264), (40, 776), (30, 3080)] {
        let given = given(sizes);
        repeats(|device| Ok(run_backward(device, &given, (true, true), 2)?.concat()));
    }
}

#[test]
fn mistakes_forward_are_noticed() {
    for (kernel, mutation, sizes) in [
        ("layernorm_forward_1", "padding_counts", (3, 72)),
        ("layernorm_forward_4", "one_place_for_both_sums", (3, 2056)),
        ("layernorm_forward_12", "one_place_for_both_sums", (1, 3080)),
        ("layernorm_forward_1", "a_column_more", (3, 72)),
        ("layernorm_forward_4", "a_row_more", (4, 776)),
    ] {
        catches(kernel, mutation, |device| forward(device, sizes, true, (100.0, 4.0)));
    }
    catches("residual_layernorm_forward_1", "of_the_unrounded", |device| residual(device, (13, 72), None, true));
}

#[test]
fn mistakes_backward_are_noticed() {
    for (kernel, mutation, sizes) in [
        ("layernorm_backward_4", "one_place_for_all_passes", (13, 776)),
        ("layernorm_backward_1", "not_all_read", (13, 264)),
        ("layernorm_backward_1", "not_all_written", (13, 72)),
        ("layernorm_backward_1", "a_row_more", (13, 72)),
        ("layernorm_backward_sum", "no_barrier", (13, 72)),
        ("layernorm_backward_sum", "a_block_less", (30, 72)),
    ] {
        catches(kernel, mutation, |device| backward(device, sizes, true, true, 2));
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    holds(|device| {
        let (rows, ones) = (device.upload(&normals_bf16(0, 9224))?, device.upload(&[1.0_f32])?);
        let (rows, one) = (rows.slice(), ones.slice());
        let error_of = |weight: Slice<Bf16>, out: Slice<Bf16>| {
            let output = Output { out, mean: one, rstd: one };
            layernorm_forward(device, output, out, weight, None).expect_err("it does not fit").to_string()
        };
        assert_eq!(error_of(rows, rows), "layernorm_forward: C is 9224, and has to be from 8 to 9216");
        assert_eq!(error_of(rows.part(0, 12)?, rows), "layernorm_forward: C is 12, and has to be a multiple of 8");
        assert_eq!(error_of(rows.part(0, 8)?, rows), "layernorm_forward: out has 9224 elements instead of 8");
        assert_eq!((sums_elements(100_000, 768)?, sums_elements(13, 768)?), (2 * 512 * 768, 2 * 2 * 768));
        Ok(())
    });
}
