//! Linear layers, their gradients and fused epilogues.

use headroom_kernels::{
    cuda::{
        Bf16, BuiltinKernels, Device, Gemm,
        ops::{
            bias_backward::bias_backward,
            gelu::gelu_forward,
            matmul::{matmul_backward_weight, matmul_forward},
        },
    },
    reference::{self, gelu},
};

use headroom_planner::gpt::buffers::cuda::workspace::{bias_parts_elements, weight_parts_elements};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close, close_each},
    gpu::{CheckFailure, Outcome, catches, holds, normals, normals_bf16, ways},
    numbers::{BF16_ROUNDING, read, repeats, wide, wide_f32},
};

/// N, C and OC: one row; odd sizes; more than a tile of each; a padded vocabulary of 65; more rows of tiles than are
/// processed together.
pub const SIZES: [[usize; 3]; 6] =
    [[1, 8, 8], [7, 40, 136], [129, 72, 264], [200, 264, 24], [31, 384, 72], [1160, 16, 264]];

/// Error of GELU, forward and backward.
const GELU: f64 = 1e-4;

/// A layer with the reference's results.
struct Layer {
    n: usize,
    c: usize,
    oc: usize,
    inp: Vec<Bf16>,
    weight: Vec<Bf16>,
    bias: Vec<Bf16>,
    dout: Vec<Bf16>,
}

/// Results, and the same sums over absolute values.
struct Sums {
    expected: Vec<f64>,
    sizes: Vec<f64>,
}

impl Sums {
    fn of(compute: impl Fn(&dyn Fn(&[Bf16]) -> Vec<f64>) -> Vec<f64>) -> Self {
        let sizes = |values: &[Bf16]| wide(values).into_iter().map(f64::abs).collect();
        Self { expected: compute(&wide), sizes: compute(&sizes) }
    }

    /// Returns the error bounds of sums of `k` products: a float32 rounding per product, doubled for the truncation by
    /// tensor cores, and a final rounding to bfloat16.
    fn bounds(&self, k: usize, rounding: f64) -> Vec<f64> {
        let of_sum = 2.0 * (k + 2) as f64 * F32_ROUNDING;
        self.expected.iter().zip(&self.sizes).map(|(x, size)| x.abs() * rounding * 1.001 + size * of_sum).collect()
    }
}

impl Layer {
    fn new([n, c, oc]: [usize; 3]) -> Self {
        let [inp, weight, bias, dout] =
            [(1, n * c), (2, oc * c), (3, oc), (4, n * oc)].map(|(name, n)| normals_bf16(name, n));
        Self { n, c, oc, inp, weight, bias, dout }
    }

    fn forward(&self, bias: Option<&[Bf16]>, residual: Option<&[Bf16]>) -> Sums {
        Sums::of(|view| {
            let mut out = vec![0.0; self.n * self.oc];
            let bias = bias.map(view);
            reference::matmul::matmul_forward(&mut out, &view(&self.inp), &view(&self.weight), bias.as_deref(), self.c);
            if let Some(residual) = residual {
                reference::residual_forward::residual_forward(&mut out, &view(residual));
            }
            out
        })
    }

    /// Returns the gradients of the input, the weight and the bias.
    fn backward(&self) -> [Sums; 3] {
        let which = |i: usize| {
            Sums::of(|view| {
                let (mut dinp, mut dweight) = (vec![0.0; self.n * self.c], vec![0.0; self.oc * self.c]);
                let mut dbias = vec![0.0; self.oc];
                let gradients =
                    reference::matmul::Gradients { dinp: &mut dinp, dweight: &mut dweight, dbias: Some(&mut dbias) };
                let [dout, inp, weight] = [&self.dout, &self.inp, &self.weight].map(|values| view(values));
                reference::matmul::matmul_backward(gradients, &dout, &inp, &weight, self.c);
                [dinp, dweight, dbias].into_iter().nth(i).unwrap_or_default()
            })
        };
        [0, 1, 2].map(which)
    }
}

pub fn forward_is_right(device: &Device, gemm: &dyn Gemm, sizes: [usize; 3]) -> Outcome {
    let layer = Layer::new(sizes);
    let (inp, weight, bias) = (device.upload(&layer.inp)?, device.upload(&layer.weight)?, device.upload(&layer.bias)?);
    let (inp, weight, bias) = (inp.slice(), weight.slice(), bias.slice());
    let out = device.allocate((layer.n * layer.oc) as u64)?;
    let (out, c) = (out.slice(), layer.c as u64);
    for with in [false, true] {
        let sums = layer.forward(with.then_some(&layer.bias), None);
        gemm.forward(device, out, inp, weight, with.then_some(bias), c)?;
        close_each("out", &read(device, out)?, &sums.expected, &sums.bounds(layer.c, BF16_ROUNDING))?;
    }
    Ok(())
}

pub fn epilogues_are_right(device: &Device, gemm: &dyn Gemm, sizes: [usize; 3]) -> Outcome {
    let layer = Layer::new(sizes);
    let (inp, weight, bias) = (device.upload(&layer.inp)?, device.upload(&layer.weight)?, device.upload(&layer.bias)?);
    let (inp, weight, bias, c) = (inp.slice(), weight.slice(), bias.slice(), layer.c as u64);
    let [out, gelu_out] =
        [device.allocate((layer.n * layer.oc) as u64)?, device.allocate((layer.n * layer.oc) as u64)?];
    let (out, gelu_out) = (out.slice(), gelu_out.slice());

    let sums = layer.forward(Some(&layer.bias), None);
    gemm.gelu_forward(device, gelu_out, out, inp, weight, Some(bias), c)?;
    close_each("out", &read(device, out)?, &sums.expected, &sums.bounds(layer.c, BF16_ROUNDING))?;
    let mut active = vec![0.0; layer.n * layer.oc];
    gelu::gelu_forward(&mut active, &wide_f32(&read(device, out)?));
    // Below -8 the reference's 1 + erf cancels to 0.
    let tolerance = Tolerance { absolute: 1e-14, relative: BF16_ROUNDING + GELU };
    close("gelu_out", &read(device, gelu_out)?, &active, tolerance)?;
    // Recomputation must reproduce forward's bits.
    let again = device.allocate(gelu_out.len())?;
    gelu_forward(device, again.slice(), out)?;
    if device.download(again.slice())? != device.download(gelu_out)? {
        return Err(CheckFailure::Numbers("recomputed GELU has other bits".to_owned()));
    }

    // In place, as in the residual stream.
    let residual = normals_bf16(5, layer.n * layer.oc);
    let sums = layer.forward(Some(&layer.bias), Some(&residual));
    device.write(out, &residual)?;
    gemm.residual_forward(device, out, inp, weight, Some(bias), out, c)?;
    let mut bounds = sums.bounds(layer.c, BF16_ROUNDING);
    if gemm.rehearses() {
        // A library may round the product to bfloat16 before it adds the residual: cuBLASLt 13.1 does for one row on an
        // H200.
        let product = layer.forward(Some(&layer.bias), None);
        bounds.iter_mut().zip(&product.expected).for_each(|(bound, x)| *bound += x.abs() * BF16_ROUNDING * 1.001);
    }
    close_each("residual", &read(device, out)?, &sums.expected, &bounds)
}

pub fn backward_inp_is_right(device: &Device, gemm: &dyn Gemm, sizes: [usize; 3]) -> Outcome {
    let layer = Layer::new(sizes);
    let [sums, ..] = layer.backward();
    let pre = normals_bf16(6, layer.n * layer.c);
    let (dout, weight, x) = (device.upload(&layer.dout)?, device.upload(&layer.weight)?, device.upload(&pre)?);
    let dinp = device.allocate((layer.n * layer.c) as u64)?;
    let (dinp, dout, weight, c) = (dinp.slice(), dout.slice(), weight.slice(), layer.c as u64);
    gemm.backward_inp(device, dinp, dout, weight, c)?;
    close_each("dinp", &read(device, dinp)?, &sums.expected, &sums.bounds(layer.oc, BF16_ROUNDING))?;

    // GELU's derivative is below 1.13, with at most GELU's error.
    let mut expected = vec![0.0; layer.n * layer.c];
    gelu::gelu_backward(&mut expected, &sums.expected, &wide(&pre));
    let of_sums = sums.bounds(layer.oc, 0.0);
    // A library's product is rounded before and after the derivative.
    let before = if gemm.rehearses() { BF16_ROUNDING * 1.001 } else { 0.0 };
    let bounds: Vec<f64> = (expected.iter().zip(&of_sums).zip(&sums.expected))
        .map(|((x, of_sum), sum)| x.abs() * (BF16_ROUNDING * 1.001 + before * 1.01) + 1.13 * of_sum + GELU * sum.abs())
        .collect();
    let scratch = device.allocate(dinp.len())?;
    gemm.gelu_backward_inp(device, dinp, dout, weight, x.slice(), scratch.slice(), c)?;
    close_each("dinp through GELU", &read(device, dinp)?, &expected, &bounds)?;
    // In place of GELU's input, as in a block's backward.
    gemm.gelu_backward_inp(device, x.slice(), dout, weight, x.slice(), scratch.slice(), c)?;
    if device.download(x.slice())? != device.download(dinp)? {
        return Err(CheckFailure::Numbers("in place it has other bits".to_owned()));
    }
    Ok(())
}

/// Checks the gradients of weight and bias; `accumulate` adds them to the previous values.
pub fn parameters_are_right(device: &Device, gemm: &dyn Gemm, sizes: [usize; 3], accumulate: bool) -> Outcome {
    let layer = Layer::new(sizes);
    let [_, weight, bias] = layer.backward();
    let (n, c, oc) = (layer.n as u64, layer.c as u64, layer.oc as u64);
    let (dout, inp) = (device.upload(&layer.dout)?, device.upload(&layer.inp)?);
    let (dout, inp) = (dout.slice(), inp.slice());
    let before = normals(7, layer.oc * layer.c);
    let (dweight, dbias) = (device.upload(&before)?, device.upload(&before[..layer.oc])?);
    let (dweight, dbias) = (dweight.slice(), dbias.slice());
    let planes = device.allocate(weight_parts_elements(n, c, oc))?;
    gemm.backward_weight(device, dweight, planes.slice(), dout, inp, c, accumulate)?;
    let planes = device.allocate(bias_parts_elements(n, oc))?;
    bias_backward(device, dbias, planes.slice(), dout, accumulate)?;
    for (name, out, mut sums) in [("dweight", dweight, weight), ("dbias", dbias, bias)] {
        if accumulate {
            for (i, before) in before.iter().copied().map(f64::from).take(sums.expected.len()).enumerate() {
                sums.expected[i] += before;
                sums.sizes[i] += before.abs();
            }
        }
        close_each(name, &device.download(out)?, &sums.expected, &sums.bounds(layer.n, F32_ROUNDING))?;
    }
    Ok(())
}

/// Asserts that a check passes for the built-in kernels and for the library.
#[track_caller]
fn either_holds(check: impl Fn(&Device, &dyn Gemm) -> Outcome) {
    holds(|device| {
        for way in ways(device)? {
            let error_of = |wrong| match wrong {
                CheckFailure::Numbers(what) => CheckFailure::Numbers(format!("{}: {what}", way.gemm.name())),
                gpu => gpu,
            };
            check(device, way.gemm.as_ref()).map_err(error_of)?;
            // The library did not fall back to the built-in kernels.
            assert_eq!(way.gemm.notes(), [""; 0]);
        }
        Ok(())
    });
}

#[test]
fn forward_is_that_of_the_reference() {
    for sizes in SIZES {
        either_holds(|device, gemm| forward_is_right(device, gemm, sizes));
    }
}

#[test]
fn gelu_and_the_residual_stream_follow_a_product() {
    for sizes in &SIZES[..5] {
        either_holds(|device, gemm| epilogues_are_right(device, gemm, *sizes));
    }
}

#[test]
fn the_rows_gradient_is_that_of_the_reference() {
    for sizes in &SIZES[..5] {
        either_holds(|device, gemm| backward_inp_is_right(device, gemm, *sizes));
    }
}

#[test]
fn the_parameters_gradients_are_those_of_the_reference() {
    // 1160 rows with few tiles are split among planes.
    assert!(weight_parts_elements(1160, 16, 264) > 0 && weight_parts_elements(200, 264, 24) == 0);
    for sizes in SIZES {
        either_holds(|device, gemm| parameters_are_right(device, gemm, sizes, false));
    }
    for sizes in [SIZES[1], SIZES[5]] {
        either_holds(|device, gemm| parameters_are_right(device, gemm, sizes, true));
    }
}

#[test]
fn products_give_the_same_bits_each_time() {
    let [n, c, oc] = [1160, 16, 136];
    let layer = Layer::new([n, c, oc]);
    for which in 0..2 {
        repeats(|device| {
            let way = ways(device)?.into_iter().nth(which);
            let Some(way) = way else { return Ok(vec![]) };
            let (dout, inp) = (device.upload(&layer.dout)?, device.upload(&layer.inp)?);
            let weight = device.upload(&layer.weight)?;
            let (dweight, out) = (device.allocate((oc * c) as u64)?, device.allocate((n * oc) as u64)?);
            let planes = device.allocate(weight_parts_elements(n as u64, c as u64, oc as u64))?;
            let (dweight, out, inp) = (dweight.slice(), out.slice(), inp.slice());
            let (gemm, c) = (way.gemm.as_ref(), c as u64);
            gemm.backward_weight(device, dweight, planes.slice(), dout.slice(), inp, c, false)?;
            gemm.forward(device, out, inp, weight.slice(), None, c)?;
            let mut all = device.download(dweight)?;
            all.extend(read(device, out)?);
            Ok(all)
        });
    }
}

#[test]
fn misaligned_operands_fall_back_to_own_kernels() {
    holds(|device| {
        let layer = Layer::new([7, 40, 136]);
        let sums = layer.forward(None, None);
        let mut shifted = normals_bf16(8, 8);
        shifted.extend(&layer.inp);
        let (inp, weight) = (device.upload(&shifted)?, device.upload(&layer.weight)?);
        let inp = inp.slice().part(8, layer.inp.len() as u64)?;
        let out = device.allocate(7 * 136)?;
        for way in ways(device)? {
            way.gemm.forward(device, out.slice(), inp, weight.slice(), None, 40)?;
            close_each("out", &read(device, out.slice())?, &sums.expected, &sums.bounds(layer.c, BF16_ROUNDING))?;
            assert_eq!(way.gemm.notes().len(), usize::from(way.gemm.rehearses()));
        }
        Ok(())
    });
}

#[test]
fn no_rows_leave_nothing() -> Result<(), CheckFailure> {
    holds(|device| {
        let (weight, none) = (device.upload(&normals_bf16(0, 64))?, device.upload(&[] as &[Bf16])?);
        matmul_forward(device, none.slice(), none.slice(), weight.slice(), None, 8)?;
        let (dweight, planes) = (device.upload(&normals(1, 64))?, device.allocate(0)?);
        matmul_backward_weight(device, dweight.slice(), planes.slice(), none.slice(), none.slice(), 8, true)?;
        assert_eq!(device.download(dweight.slice())?, normals(1, 64));
        matmul_backward_weight(device, dweight.slice(), planes.slice(), none.slice(), none.slice(), 8, false)?;
        assert_eq!(device.download(dweight.slice())?, [0.0; 64]);
        Ok(())
    });
    Ok(())
}

#[test]
fn mistakes_in_a_product_are_noticed() {
    // A missing barrier or wait makes a race; others read or write past an end, or change sums.
    for (kernel, mutation) in [
        ("matmul_forward", "no_barrier"),
        ("matmul_forward", "waits_too_little"),
        ("matmul_forward", "into_a_stage_in_use"),
        ("matmul_forward", "no_last_step"),
        ("matmul_backward_inp", "no_barrier"),
    ] {
        catches(kernel, mutation, |device| {
            if kernel == "matmul_forward" {
                forward_is_right(device, &BuiltinKernels, [129, 136, 264])
            } else {
                backward_inp_is_right(device, &BuiltinKernels, [129, 136, 264])
            }
        });
    }
    catches("matmul_forward", "a_row_more", |device| forward_is_right(device, &BuiltinKernels, [7, 40, 136]));
    catches("bias_backward", "no_barrier", |device| parameters_are_right(device, &BuiltinKernels, SIZES[1], false));
    catches("sum_planes", "a_plane_less", |device| parameters_are_right(device, &BuiltinKernels, SIZES[5], false));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    holds(|device| {
        let values = device.upload(&normals_bf16(0, 96))?;
        let part = |n| values.slice().part(0, n);
        let error_of = |out, inp, weight, c| {
            let (out, inp, weight) = (part(out), part(inp), part(weight));
            let error = matmul_forward(device, out?, inp?, weight?, None, c).expect_err("it does not fit");
            Ok::<_, CheckFailure>(error.to_string())
        };
        assert_eq!(error_of(64, 64, 64, 0)?, "matmul_forward: C is 0, and has to be at least 1");
        assert_eq!(error_of(64, 60, 60, 12)?, "matmul_forward: C is 12, and has to be a multiple of 8");
        assert_eq!(error_of(5, 8, 40, 8)?, "matmul_forward: OC is 5, and has to be a multiple of 8");
        assert_eq!(error_of(64, 64, 66, 8)?, "matmul_forward: weight has 66 elements instead of 64");
        assert_eq!(error_of(63, 64, 64, 8)?, "matmul_forward: out has 63 elements instead of 64");
        assert_eq!(error_of(64, 66, 64, 8)?, "matmul_forward: inp has 66 elements instead of 64");
        Ok(())
    });
}
