//! AdamW over several tensors.

use headroom_kernels::{
    cuda::{
        Allocation, Bf16, Device,
        ops::adamw_update::{Clip, Parameter, Rounding, Table, adamw_update},
    },
    reference::{
        adamw_update::{self, AdamW},
        global_norm::clip_scale,
    },
    rng::hash,
};

use headroom_planner::gpt::buffers::cuda::workspace;

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{CheckFailure, Outcome, catches, holds, normals},
    numbers::wide_f32,
};

/// Elements of each tensor and whether it decays: less than a block's work, exactly that, more, and a size that ends
/// within a block.
const TENSORS: [(usize, bool); 5] = [(8, true), (8192, false), (24, false), (3 * 8192 + 40, true), (4, false)];

/// The initial state of a tensor's update.
struct State {
    master: Vec<f32>,
    m: Vec<f32>,
    v: Vec<f32>,
    grad: Vec<f32>,
}

fn states() -> Vec<State> {
    let state = |(name, &(n, _)): (u64, &(usize, bool))| State {
        master: normals(4 * name, n).into_iter().map(|x| 0.02 * x).collect(),
        m: normals(4 * name + 1, n).into_iter().map(|x| 1e-3 * x).collect(),
        v: normals(4 * name + 2, n).into_iter().map(|x| 1e-6 * x * x).collect(),
        grad: normals(4 * name + 3, n).into_iter().map(|x| 1e-3 * x).collect(),
    };
    (0..).zip(&TENSORS).map(state).collect()
}

/// A tensor in the emulated GPU's memory.
struct DeviceTensor {
    weight: Allocation<Bf16>,
    master: Allocation<f32>,
    m: Allocation<f32>,
    v: Allocation<f32>,
    grad: Allocation<f32>,
}

impl DeviceTensor {
    /// Uploads a state. With a master copy the weight stays uninitialised.
    fn new(device: &Device, state: &State, with_master: bool) -> Result<Self, CheckFailure> {
        let rounded: Vec<Bf16> = state.master.iter().copied().map(Bf16::from_f32).collect();
        Ok(Self {
            weight: if with_master { device.allocate(rounded.len() as u64)? } else { device.upload(&rounded)? },
            master: device.upload(&state.master)?,
            m: device.upload(&state.m)?,
            v: device.upload(&state.v)?,
            grad: device.upload(&state.grad)?,
        })
    }

    fn parameter(&self, with_master: bool, decayed: bool) -> Parameter {
        let [m, v, grad] = [&self.m, &self.v, &self.grad].map(Allocation::slice);
        let master = with_master.then_some(self.master.slice());
        Parameter { weight: self.weight.slice(), master, m, v, grad, decayed }
    }
}

#[derive(Clone, Copy)]
pub struct UpdateOptions {
    step: u64,
    /// The gradients' norm and its limit.
    clip: Option<(f32, f32)>,
    rounding: Rounding,
    with_master: bool,
}

const USUAL: UpdateOptions = UpdateOptions { step: 1, clip: None, rounding: Rounding::Nearest, with_master: true };

/// Steps, clipping, rounding, and weights without a master copy in float32.
pub const ALL: [UpdateOptions; 6] = [
    USUAL,
    UpdateOptions { step: 100, ..USUAL },
    UpdateOptions { clip: Some((4.0, 1.0)), ..USUAL },
    UpdateOptions { clip: Some((0.5, 1.0)), step: 7, ..USUAL },
    UpdateOptions { rounding: Rounding::Stochastic { key: 77 }, ..USUAL },
    UpdateOptions { rounding: Rounding::Stochastic { key: 78 }, with_master: false, ..USUAL },
];

fn adamw(step: u64) -> AdamW {
    AdamW {
        learning_rate: 6e-4,
        beta1: 0.9,
        beta2: 0.95,
        eps: AdamW::EPS,
        weight_decay: 0.1,
        step,
        gradient_scale: 1.0,
    }
}

/// Updates the first tensors of `TENSORS`.
fn run(device: &Device, states: &[State], how: UpdateOptions) -> Result<Vec<DeviceTensor>, CheckFailure> {
    let there =
        states.iter().map(|state| DeviceTensor::new(device, state, how.with_master)).collect::<Result<Vec<_>, _>>()?;
    let parameters = there.iter().zip(TENSORS).map(|(there, (_, decayed))| there.parameter(how.with_master, decayed));
    let table = Table::new(&parameters.collect::<Vec<_>>())?;
    assert_eq!(table.words().len() as u64, there.len() as u64 * workspace::TENSOR_WORDS);
    let words = device.upload(table.words())?;
    let norm = device.upload(&[how.clip.map_or(f32::NAN, |(norm, _)| norm)])?;
    let clip = how.clip.map(|(_, grad_clip)| Clip { norm: norm.slice(), grad_clip });
    adamw_update(device, (&table, words.slice()), clip, adamw(how.step), how.rounding)?;
    Ok(there)
}

pub fn check(device: &Device, how: UpdateOptions) -> Outcome {
    let states = states();
    let there = run(device, &states, how)?;
    let gradient_scale = how.clip.map_or(1.0, |(norm, grad_clip)| clip_scale(f64::from(norm), f64::from(grad_clip)));
    let mut first_element = 0_u32;
    for ((state, there), (n, decayed)) in states.iter().zip(&there).zip(TENSORS) {
        let weight_decay = if decayed { 0.1 } else { 0.0 };
        let [mut m, mut v] = [&state.m, &state.v].map(|values| wide_f32(values));
        let mut param = wide_f32(&state.master);
        if !how.with_master {
            param.iter_mut().zip(&state.master).for_each(|(p, &m)| *p = f64::from(Bf16::from_f32(m).to_f32()));
        }
        let by = AdamW { weight_decay, gradient_scale, ..adamw(how.step) };
        adamw_update::adamw_update(&mut param, &mut m, &mut v, &wide_f32(&state.grad), by);
        // Two terms that may cancel, each with a few roundings: moments near 1e-3 and their squares.
        let rounding = 8.0 * F32_ROUNDING;
        let tolerance = |size: f64| Tolerance { absolute: size * rounding, relative: rounding };
        close("m", &device.download(there.m.slice())?, &m, tolerance(5e-3))?;
        close("v", &device.download(there.v.slice())?, &v, tolerance(0.0_f64.max(1e-30)))?;
        let weight = device.download(there.weight.slice())?;
        if how.with_master {
            let master = device.download(there.master.slice())?;
            // A first step has length 6e-4, and m over the root of v is at most a few times as much.
            close("master", &master, &param, tolerance(0.1))?;
            for (i, (&weight, &master)) in weight.iter().zip(&master).enumerate() {
                let element = first_element + u32::try_from(i).expect("small");
                if weight != rounded(master, how.rounding, element) {
                    return Err(CheckFailure::Numbers(format!("weight {i} of {n} is {weight:?} of {master}")));
                }
            }
        } else {
            let weight: Vec<f32> = weight.into_iter().map(Bf16::to_f32).collect();
            // Stochastic rounding may go to either neighbour.
            close("weight", &weight, &param, Tolerance { absolute: 1e-7, relative: 2.0 / 256.0 })?;
        }
        first_element += u32::try_from(n).expect("small");
    }
    Ok(())
}

/// Rounds a master copy exactly as the kernel does.
fn rounded(master: f32, rounding: Rounding, element: u32) -> Bf16 {
    match rounding {
        Rounding::Nearest => Bf16::from_f32(master),
        Rounding::Stochastic { key } => {
            let bits = master.to_bits() + (hash(key, element) & 0xffff);
            Bf16::from_f32(f32::from_bits(bits & 0xffff_0000))
        }
    }
}

#[test]
fn updates_are_those_of_the_reference() {
    for how in ALL {
        holds(|device| check(device, how));
    }
}

#[test]
fn rounding_by_random_bits_keeps_the_mean() {
    holds(|device| {
        let states = &states()[..1];
        let mut sums = [0.0; 8];
        let (mut master, n_keys) = (vec![], 64_u32);
        for key in 0..n_keys {
            let there = run(device, states, UpdateOptions { rounding: Rounding::Stochastic { key }, ..USUAL })?;
            let weight = device.download(there[0].weight.slice())?;
            sums.iter_mut().zip(weight).for_each(|(sum, weight)| *sum += f64::from(weight.to_f32()));
            master = device.download(there[0].master.slice())?;
        }
        // A step between neighbours is at most 2^-7 of a number. The deviation is at most half a step, and that of the
        // mean an eighth of it. With rounding to the nearest, a mean would be off by a quarter of a step on average.
        let mut off = 0.0;
        for (sum, &master) in sums.iter().zip(&master) {
            let share = (sum / f64::from(n_keys) - f64::from(master)).abs() / f64::from(master.abs()) * 128.0;
            assert!(share < 0.3, "{sum} of {master}");
            off += share / 8.0;
        }
        assert!(off < 0.1, "{off} of a step on average");
        Ok(())
    });
}

#[test]
fn non_finite_value_stays_non_finite() {
    holds(|device| {
        let mut states = states();
        (states[0].master[1], states[0].master[2]) = (f32::NAN, f32::INFINITY);
        let there = run(device, &states, UpdateOptions { rounding: Rounding::Stochastic { key: 5 }, ..USUAL })?;
        let weight = device.download(there[0].weight.slice())?;
        assert!(weight[1].to_f32().is_nan() && weight[2].to_f32() == f32::INFINITY, "{weight:?}");
        assert!(weight[0].to_f32().is_finite() && weight[3].to_f32().is_finite(), "{weight:?}");
        Ok(())
    });
}

#[test]
fn mistakes_are_noticed() {
    let stochastic = UpdateOptions { rounding: Rounding::Stochastic { key: 1 }, ..USUAL };
    for (mutation, how) in [
        ("a_block_late", USUAL),
        ("past_the_tensor", USUAL),
        ("everything_decays", USUAL),
        ("others_random_bits", stochastic),
    ] {
        catches("adamw_update", mutation, |device| check(device, how));
    }
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    holds(|device| {
        let (weight, floats) = (device.upload(&[Bf16::default(); 16])?, device.upload(&[0.0_f32; 16])?);
        let (weight, floats) = (weight.slice(), floats.slice());
        let (n, m) = (weight.part(0, 8)?, floats.part(0, 8)?);
        let good = Parameter { weight: n, master: Some(m), m, v: m, grad: m, decayed: true };
        let error_of = |parameter| Table::new(&[good, parameter]).expect_err("it does not fit").to_string();
        assert_eq!(error_of(Parameter { v: floats, ..good }), "adamw_update: v has 16 elements instead of 8");
        let odd = Parameter { m: floats.part(2, 8)?, ..good };
        assert!(error_of(odd).ends_with("and has to be a multiple of 16"), "{}", error_of(odd));
        let (weight, six) = (weight.part(0, 6)?, floats.part(0, 6)?);
        let parameter = Parameter { weight, master: None, m: six, v: six, grad: six, decayed: true };
        assert_eq!(
            error_of(parameter),
            "adamw_update: a tensor's number of elements is 6, and has to be a multiple of 4"
        );
        Ok(())
    });
}
