//! Loss and the logits' gradient.

use headroom_kernels::{
    cuda::{
        Bf16, Device,
        ops::classifier::{IGNORED, classifier},
    },
    reference::crossentropy::{crossentropy_forward, crossentropy_softmax_backward},
};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{CheckFailure, Outcome, catches, holds, inputs, normals},
    numbers::{BF16_ROUNDING, read, repeats, wide},
};

/// Rows, vocabulary size, and the columns to which it is padded.
#[derive(Clone, Copy)]
pub struct Sizes {
    n: usize,
    v: usize,
    padded: usize,
}

const fn sizes(n: usize, v: usize, padded: usize) -> Sizes {
    Sizes { n, v, padded }
}

/// Size 1 of everything, characters, both sides of the limit at which a block processes a row, and GPT-2's sizes.
pub const ALL: [Sizes; 6] = [
    sizes(1, 1, 8),
    sizes(35, 65, 72),
    sizes(17, 2047, 2048),
    sizes(3, 2049, 2056),
    sizes(2, 4104, 4200),
    sizes(2, 50_257, 50_304),
];

const DLOSS: f32 = 1.0 / 24.0;

/// Returns logits in rows of `padded`, with padding larger than every logit.
fn logits(sizes: Sizes, size: f32) -> Vec<Bf16> {
    let Sizes { n, v, padded } = sizes;
    let mut values = normals(v as u64, n * padded);
    for row in values.chunks_exact_mut(padded) {
        let (logits, padding) = row.split_at_mut(v);
        logits.iter_mut().for_each(|x| *x *= size);
        padding.fill(1e4);
    }
    values.into_iter().map(Bf16::from_f32).collect()
}

/// Returns targets: the first is the last column, and with `ignore` every fifth row is ignored.
fn targets(sizes: Sizes, ignore: bool) -> Vec<u32> {
    let mut stream = inputs(3, sizes.v as u64);
    let mut any = || u32::try_from(stream.below(sizes.v as u64)).expect("below V");
    let mut targets: Vec<u32> = (0..sizes.n).map(|_| any()).collect();
    targets[0] = u32::try_from(sizes.v - 1).expect("small");
    if ignore {
        targets.iter_mut().skip(1).step_by(5).for_each(|target| *target = IGNORED);
    }
    targets
}

/// Returns the reference's results for rows that count: losses, and gradients in rows of `padded`.
fn reference(sizes: Sizes, logits: &[Bf16], targets: &[u32]) -> (Vec<f64>, Vec<f64>) {
    let Sizes { n, v, padded } = sizes;
    let (mut losses, mut dlogits) = (vec![0.0; n], vec![0.0; n * padded]);
    for (row, &target) in targets.iter().enumerate().filter(|(_, target)| **target != IGNORED) {
        let logits = wide(&logits[row * padded..][..v]);
        crossentropy_forward(&mut losses[row..=row], &logits, &[target]);
        let dlogits = &mut dlogits[row * padded..][..v];
        crossentropy_softmax_backward(dlogits, &[f64::from(DLOSS)], &logits, &[target]);
    }
    (losses, dlogits)
}

/// Runs the kernel, and returns losses and the updated logits.
fn run(
    device: &Device,
    sizes: Sizes,
    logits: &[Bf16],
    targets: &[u32],
    dloss: Option<f32>,
) -> Result<(Vec<f32>, Vec<f32>), CheckFailure> {
    let (logits, targets) = (device.upload(logits)?, device.upload(targets)?);
    let losses = device.allocate(targets.slice().len())?;
    classifier(device, losses.slice(), logits.slice(), targets.slice(), sizes.v as u64, dloss)?;
    Ok((device.download(losses.slice())?, read(device, logits.slice())?))
}

pub fn check(device: &Device, sizes: Sizes, size: f32, ignore: bool) -> Outcome {
    let (logits, targets) = (logits(sizes, size), targets(sizes, ignore));
    let (expected, dlogits) = reference(sizes, &logits, &targets);
    // Rounding of exponents is relative to them; the largest are some deviations. Exponentials and logarithms have two
    // bits less than float32, and a thread sums a few hundred.
    let exponent = f64::from(size) * 8.0;
    let off = (exponent + 16.0) * 4.0 * F32_ROUNDING;
    let loss = Tolerance { absolute: 4.0 * off, relative: 4.0 * F32_ROUNDING };
    let (losses, kept) = run(device, sizes, &logits, &targets, None)?;
    close("losses alone", &losses, &expected, loss)?;
    let before: Vec<f32> = logits.iter().map(|logit| logit.to_f32()).collect();
    if kept != before {
        return Err(CheckFailure::Numbers("logits changed although no gradient was requested".to_owned()));
    }
    let (losses, given) = run(device, sizes, &logits, &targets, Some(DLOSS))?;
    close("losses", &losses, &expected, loss)?;
    let absolute = 4.0 * off * f64::from(DLOSS);
    close("dlogits", &given, &dlogits, Tolerance { absolute, relative: BF16_ROUNDING })?;
    let padding = given.chunks_exact(sizes.padded).flat_map(|row| &row[sizes.v..]);
    let ignored = given.chunks_exact(sizes.padded).zip(&targets).filter(|(_, target)| **target == IGNORED);
    if padding.chain(ignored.flat_map(|(row, _)| row)).any(|&d| d != 0.0) {
        return Err(CheckFailure::Numbers("what does not count has a gradient".to_owned()));
    }
    Ok(())
}

#[test]
fn losses_and_gradients_are_those_of_the_reference() {
    for (sizes, ignore) in ALL.into_iter().zip([false, true].into_iter().cycle()) {
        for size in [1.0, 30.0] {
            holds(|device| check(device, sizes, size, ignore));
        }
    }
}

#[test]
fn logits_that_are_infinite_or_no_number_show() {
    let sizes = sizes(3, 65, 72);
    let mut logits = logits(sizes, 1.0);
    logits[3] = Bf16::from_f32(f32::NEG_INFINITY);
    logits[sizes.padded + 3] = Bf16::from_f32(f32::NAN);
    logits[2 * sizes.padded + 3] = Bf16::from_f32(f32::INFINITY);
    holds(|device| {
        let (losses, given) = run(device, sizes, &logits, &[0, 0, 0], Some(DLOSS))?;
        assert!(
            losses[0].is_finite() && given[..72].iter().all(|d| d.is_finite()),
            "a logit of -inf gives finite results"
        );
        assert!(losses[1].is_nan() && losses[2].is_nan(), "{losses:?}");
        Ok(())
    });
}

#[test]
fn a_target_that_is_no_column_is_no_number() {
    holds(|device| {
        for sizes in [sizes(2, 65, 72), sizes(2, 2050, 2056)] {
            let v = u32::try_from(sizes.v).expect("small");
            for target in [v, v + 1_000_000] {
                let (losses, _) = run(device, sizes, &logits(sizes, 1.0), &[0, target], Some(DLOSS))?;
                assert!(losses[0].is_finite() && losses[1].is_nan(), "{losses:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn losses_and_gradients_repeat_bit_by_bit() {
    for sizes in [ALL[1], ALL[4]] {
        let (logits, targets) = (logits(sizes, 1.0), targets(sizes, true));
        repeats(|device| {
            let (losses, dlogits) = run(device, sizes, &logits, &targets, Some(DLOSS))?;
            Ok([losses, dlogits].concat())
        });
    }
}

#[test]
fn mistakes_are_noticed() {
    for (kernel, mutation, sizes) in [
        ("classifier_16", "no_barrier", ALL[3]),
        ("classifier_1", "padding_counts", ALL[1]),
        ("classifier_16", "padding_has_a_gradient", ALL[4]),
        ("classifier_1", "a_row_more", ALL[1]),
        ("classifier_1", "not_its_own_logit", ALL[1]),
    ] {
        catches(kernel, mutation, |device| check(device, sizes, 1.0, false));
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    holds(|device| {
        let logits = device.upload(&logits(sizes(2, 70, 72), 1.0))?;
        let (targets, losses) = (device.upload(&[0_u32; 2])?, device.upload(&[0.0_f32; 2])?);
        let error_of = |len, v| {
            let logits = logits.slice().part(0, len).expect("there are as many");
            let error = classifier(device, losses.slice(), logits, targets.slice(), v, None);
            error.expect_err("it does not fit").to_string()
        };
        assert_eq!(error_of(140, 70), "classifier: the padded vocabulary is 70, and has to be a multiple of 8");
        assert_eq!(error_of(143, 71), "classifier: logits has 143 elements instead of 142");
        assert_eq!(error_of(144, 73), "classifier: V is 73, and has to be from 1 to the columns of a row");
        Ok(())
    });
}
