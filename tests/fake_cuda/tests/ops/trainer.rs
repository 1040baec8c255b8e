//! The whole model: losses and gradients at every recomputation level compared with the reference in f64, and
//! bit-identical runs at all levels.

use headroom_kernels::{
    cuda::{Attention, BuiltinKernels, Device, Gemm, Trainer},
    reference::{
        adamw_update::AdamW,
        gpt::{DropoutPass, Gpt, Micro},
    },
};
use headroom_planner::gpt::{
    GptConfig, GptShape,
    buffers::cuda::{Backends, CudaTraining, Recompute},
};

use crate::gpu::{CheckFailure, Outcome, cublaslt, cudnn, holds_in_an_order, inputs, normals};

const BATCH_SIZE: u64 = 2;
const T: usize = 24;

fn config(dropout: f64, bias: bool) -> GptConfig {
    // A vocabulary and a length that are not multiples of a tile.
    let shape = GptShape { n_layer: 2, n_head: 2, n_embd: 64, block_size: T as u64, vocab_size: 67, dropout, bias };
    GptConfig::new(shape).expect("valid")
}

type BackendPair = (Box<dyn Gemm>, Box<dyn Attention>);

fn own() -> BackendPair {
    (Box::new(BuiltinKernels), Box::new(BuiltinKernels))
}

fn trainer(device: &Device, config: &GptConfig, recompute: [Recompute; 2]) -> Result<Trainer, CheckFailure> {
    trainer_with(device, (Box::new(BuiltinKernels), Box::new(BuiltinKernels)), config, recompute)
}

fn trainer_with(
    device: &Device,
    (gemm, attention): BackendPair,
    config: &GptConfig,
    recompute: [Recompute; 2],
) -> Result<Trainer, CheckFailure> {
    let libraries = Backends { gemm_backend: gemm.gemm_backend(), attention_backend: attention.attention_backend() };
    let plan = CudaTraining::with_libraries(config, BATCH_SIZE, recompute.to_vec(), libraries).expect("small");
    let planned_bytes = plan.bytes;
    let mut trainer = Trainer::with(device, config, plan, gemm, attention)?;
    assert_eq!(trainer.allocated_bytes(), planned_bytes);
    trainer.write_params(&params(&trainer))?;
    Ok(trainer)
}

/// Returns weights of deviation 0.1 and scales near 1, rounded to bfloat16 so that the reference has the same.
fn params(trainer: &Trainer) -> Vec<f32> {
    let mut params = normals(1, trainer.layout().len());
    for entry in trainer.layout().entries() {
        let is_scale = entry.name.contains("ln_") && entry.name.ends_with("weight");
        for x in &mut params[entry.range.clone()] {
            *x = headroom_kernels::cuda::Bf16::from_f32(*x * 0.1 + f32::from(u8::from(is_scale))).to_f32();
        }
    }
    params
}

fn batch(trainer: &mut Trainer, number: u64) {
    let mut stream = inputs(7, number);
    let (x, y) = trainer.batch_mut();
    x.iter_mut().chain(y).for_each(|token| *token = u32::try_from(stream.below(67)).expect("below 67"));
}

/// Returns the loss and the gradients of the reference, in f64.
fn reference(config: &GptConfig, params: &[f32], x: &[u32], y: &[u32], dropout: DropoutPass) -> (f64, Vec<f64>) {
    let gpt = Gpt::new(config, T).expect("small");
    let params: Vec<f64> = params.iter().map(|&x| f64::from(x)).collect();
    let pass = gpt.forward(&params, x, y, dropout);
    let mut grads = vec![0.0; params.len()];
    gpt.backward(&mut grads, &params, &pass, x, y, 1.0);
    (pass.loss(), grads)
}

/// Checks a loss and its gradients. The error of a gradient, from bfloat16 roundings, is relative to its tensor's norm.
fn check(device: &Device, ways: BackendPair, dropout: f64, bias: bool, recompute: [Recompute; 2]) -> Outcome {
    let config = config(dropout, bias);
    let mut trainer = trainer_with(device, ways, &config, recompute)?;
    batch(&mut trainer, 1);
    let (x, y) = trainer.batch_mut();
    let (x, y) = (x.to_vec(), y.to_vec());
    let pass = DropoutPass { p: dropout, key: 5 };
    let (want_loss, want) = reference(&config, &params(&trainer), &x, &y, pass);
    let loss = trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: pass })?;
    if (loss - want_loss).abs() > 4e-3 * want_loss {
        return Err(CheckFailure::Numbers(format!("the loss is {loss}, and {want_loss} by the reference")));
    }
    let got = trainer.read_grads()?;
    for entry in trainer.layout().entries() {
        let (got, want) = (&got[entry.range.clone()], &want[entry.range.clone()]);
        let length = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let off = length(&mut got.iter().zip(want).map(|(&got, want)| f64::from(got) - want));
        let whole = length(&mut want.iter().copied());
        if off.is_nan() || off > 0.02 * whole + 1e-6 {
            return Err(CheckFailure::Numbers(format!("{}: off by {off} of {whole}", entry.name)));
        }
    }
    Ok(())
}

#[test]
fn losses_and_gradients_are_those_of_the_reference() {
    for level in Recompute::ALL {
        for (dropout, bias) in [(0.0, true), (0.2, false)] {
            holds_in_an_order(|device| check(device, own(), dropout, bias, [level; 2]));
        }
    }
    let mixed = [Recompute::Block, Recompute::GeluAndLayernorm];
    holds_in_an_order(|device| check(device, own(), 0.2, true, mixed));
}

#[test]
fn with_the_librarys_products_they_are_too() {
    for (level, dropout, bias) in [(Recompute::None, 0.0, true), (Recompute::Attention, 0.2, false)] {
        holds_in_an_order(|device| match cublaslt(device) {
            Some(library) => check(device, (Box::new(library), Box::new(BuiltinKernels)), dropout, bias, [level; 2]),
            None => Ok(()),
        });
    }
}

/// On the emulated GPU attention runs in the library, because nothing is timed; with dropout the built-in kernels run.
#[test]
fn with_the_librarys_attention_they_are_too() {
    for (level, dropout) in [(Recompute::None, 0.0), (Recompute::Attention, 0.0), (Recompute::Block, 0.2)] {
        holds_in_an_order(|device| match cudnn(device) {
            Some(library) => check(device, (Box::new(BuiltinKernels), Box::new(library)), dropout, true, [level; 2]),
            None => Ok(()),
        });
    }
}

#[test]
fn a_plan_without_room_for_the_library_is_refused() {
    holds_in_an_order(|device| {
        let Some(library) = cublaslt(device) else { return Ok(()) };
        let config = config(0.0, true);
        let plan = CudaTraining::new(&config, BATCH_SIZE, vec![Recompute::None; 2]).expect("small");
        let error = Trainer::with(device, &config, plan, Box::new(library), Box::new(BuiltinKernels))
            .expect_err("it has no room");
        let message = error.to_string();
        assert!(message.contains("bytes of workspace for cuBLASLt") && message.ends_with("has 0 bytes"), "{message}");
        let Some(library) = cudnn(device) else { return Ok(()) };
        let plan = CudaTraining::new(&config, BATCH_SIZE, vec![Recompute::None; 2]).expect("small");
        let error = Trainer::with(device, &config, plan, Box::new(BuiltinKernels), Box::new(library))
            .expect_err("it has no room");
        assert!(error.to_string().contains("room for attention by cuDNN"), "{error}");
        Ok(())
    });
}

/// Returns the bits of losses, parameters and moments after a few iterations of two micro-steps.
fn run(device: &Device, ways: BackendPair, dropout: f64, recompute: [Recompute; 2]) -> Result<Vec<u64>, CheckFailure> {
    let config = config(dropout, true);
    let mut trainer = trainer_with(device, ways, &config, recompute)?;
    let mut bits = vec![];
    for step in 1..=3_u64 {
        for micro in 0..2 {
            batch(&mut trainer, step * 2 + micro);
            let dropout = DropoutPass { p: dropout, key: step * 2 + micro };
            let loss = trainer.micro_step(Micro { first: micro == 0, loss_scale: 0.5, dropout })?;
            bits.push(loss.to_bits());
        }
        let norm = trainer.gradient_norm()?;
        let (adamw, gradient_scale) = (AdamW::EPS, 1.0_f64.min(1.0 / norm));
        trainer.update(AdamW {
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            eps: adamw,
            weight_decay: 0.1,
            step,
            gradient_scale,
        })?;
    }
    bits.extend(trainer.read_params()?.into_iter().map(|x| u64::from(x.to_bits())));
    let (m, v) = trainer.read_moments()?;
    bits.extend(m.into_iter().chain(v).map(|x| u64::from(x.to_bits())));
    // Evaluation changes nothing.
    batch(&mut trainer, 100);
    bits.push(trainer.loss()?.to_bits());
    Ok(bits)
}

fn no_level_changes_a_bit(dropouts: &[f64], ways: impl Fn(&Device) -> Option<BackendPair>) {
    for &dropout in dropouts {
        holds_in_an_order(|device| {
            let run = |level| ways(device).map(|ways| run(device, ways, dropout, [level; 2])).transpose();
            let want = run(Recompute::None)?;
            for level in Recompute::ALL {
                if run(level)? != want {
                    return Err(CheckFailure::Numbers(format!("{level:?} with dropout {dropout}")));
                }
            }
            Ok(())
        });
    }
}

#[test]
fn recompute_is_bit_exact() {
    no_level_changes_a_bit(&[0.0, 0.2], |_| Some(own()));
}

#[test]
fn nor_does_it_with_the_librarys_products() {
    no_level_changes_a_bit(&[0.0], |device| Some((Box::new(cublaslt(device)?), Box::new(BuiltinKernels))));
}

#[test]
fn nor_does_it_with_the_librarys_attention() {
    no_level_changes_a_bit(&[0.0], |device| Some((Box::new(BuiltinKernels), Box::new(cudnn(device)?))));
}

#[test]
fn a_loss_falls_on_a_batch_that_is_seen_again_and_again() {
    holds_in_an_order(|device| {
        let config = config(0.0, true);
        let mut trainer = trainer(device, &config, [Recompute::GeluAndLayernorm, Recompute::Block])?;
        batch(&mut trainer, 3);
        let mut losses = vec![];
        for step in 1..=12 {
            let micro = Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE };
            losses.push(trainer.micro_step(micro)?);
            trainer.update(AdamW {
                learning_rate: 3e-3,
                beta1: 0.9,
                beta2: 0.95,
                eps: AdamW::EPS,
                weight_decay: 0.1,
                step,
                gradient_scale: 1.0,
            })?;
        }
        let (first, last) = (losses[0], losses[11]);
        if last < 0.7 * first { Ok(()) } else { Err(CheckFailure::Numbers(format!("{losses:?}"))) }
    });
}
