//! The main training run: a config that needs more memory in PyTorch than the GPU has, within the memory of a 12 GB
//! GPU. Its bytes are recorded as planned, as allocated and as NVML reports them. A small model is also compared with
//! the CPU.

use super::{
    options::{Model, Size},
    programs::Scratch,
    results::LineWriter,
    training::{self, TrainingResult, TrainingSettings},
};
use crate::{
    failure::Result,
    shell::{Shell, note},
};
use headroom_planner::hardware::{
    self,
    context::{ModuleLoading, context_bytes},
};
use serde_json::{Value, json};
use std::path::Path;

/// The memory that CUDA reports for a 12 GB GPU, as in the error message that motivated this project.
const VRAM: &str = "11.69GiB";
/// Losses at each end that are averaged: a single one depends on its batch.
const ENDS: usize = 5;

/// Adds a line for the main run, and one for the two small runs.
pub fn measure(shell: &Shell, headroom: &Path, size: &Size, doctor: &Value, found: &mut LineWriter<'_>) -> Result<()> {
    let scratch = Scratch::new()?;
    let (data, _) = training::data(shell, headroom, &scratch, size.tokenizer)?;
    let asked = TrainingSettings {
        device: "cuda",
        model: size.model,
        batch_size: size.batch_size,
        iterations: size.iterations,
        vram: Some(VRAM),
        recompute: "auto",
        attention: "own",
        data: &data,
    };
    let planned = asked.plan(shell, headroom, &scratch)?;
    let trained = match &planned.why {
        Some(why) => TrainingResult { why: Some(format!("not started: {why}")), ..TrainingResult::default() },
        None => asked.run_watched(shell, headroom, &scratch)?,
    };
    let Model { n_layer, n_embd, block_size, .. } = size.model;
    let (nvml_bytes, nvml_by) = trained.seen.of_process().unzip();
    let beyond = nvml_bytes.zip(trained.allocated_bytes).map(|(all, own)| i128::from(all) - i128::from(own));
    let median_ms = training::median_ms(&trained.times_ms, size.warm_up);
    let [first, last] = ends(&trained.losses);
    let line = json!({
        "kind": "training", "name": "headline", "available": true, "n_layer": n_layer, "n_embd": n_embd,
        "block_size": block_size, "batch_size": size.batch_size, "vram": VRAM, "recompute": planned.recompute,
        "gemm_backend": trained.gemm_backend,
        "planned_bytes": planned.bytes, "allocated_bytes": trained.allocated_bytes, "nvml_bytes": nvml_bytes,
        "nvml_by": nvml_by, "nvml_beyond_bytes": beyond.and_then(|beyond| i64::try_from(beyond).ok()),
        "context_band_bytes": context_band(doctor), "loss_first": first, "loss_last": last, "losses": trained.losses,
        "tokens_per_second": median_ms.map(|ms| asked.tokens() as f64 / ms * 1e3), "why": trained.why,
    });
    if let Some(why) = &trained.why {
        note(&format!("the headline: {why}"));
    }
    found.add(line)?;
    found.add(beside_cpu(shell, headroom, size, &scratch)?)
}

/// Returns the mean losses at the start and the end.
fn ends(losses: &[f64]) -> [Option<f64>; 2] {
    // At most half of a short run, so that the two do not overlap.
    let n = ENDS.min(losses.len() / 2);
    let mean = |losses: &[f64]| (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64);
    [mean(&losses[..n]), mean(&losses[losses.len() - n..])]
}

/// Returns the range of a CUDA context's memory; `None` for an unknown GPU.
fn context_band(doctor: &Value) -> Option<[u64; 2]> {
    let gpu = &doctor["gpus"][0];
    let known = hardware::reported(gpu["name"].as_str()?, gpu["memory_total_bytes"].as_u64())?;
    let context = context_bytes(known.compute_capability, known.sm_count, ModuleLoading::Lazy);
    Some([context.band_low, context.band_high])
}

/// Trains the same small model on both devices, from the same weights with the same batches.
fn beside_cpu(shell: &Shell, headroom: &Path, size: &Size, scratch: &Scratch) -> Result<Value> {
    let (data, _) = training::data(shell, headroom, scratch, "char")?;
    let asked = |device| TrainingSettings {
        device,
        model: size.small,
        batch_size: size.small_batch_size,
        iterations: size.small_iterations,
        vram: None,
        recompute: "none",
        attention: "own",
        data: &data,
    };
    let [cpu, cuda] = [asked("cpu").run(shell, headroom, scratch)?, asked("cuda").run(shell, headroom, scratch)?];
    let why = cpu.why.or(cuda.why);
    if let Some(why) = &why {
        note(&format!("beside the CPU: {why}"));
    }
    let off = off_max(&cpu.losses, &cuda.losses);
    Ok(json!({
        "kind": "agreement_of_losses", "available": true, "off_max": off, "cpu": cpu.losses, "cuda": cuda.losses, "why": why,
    }))
}

/// Returns the largest relative difference of two runs' losses; `None` if their iterations differ.
fn off_max(cpu: &[f64], cuda: &[f64]) -> Option<f64> {
    if cpu.len() != cuda.len() || cpu.is_empty() {
        return None;
    }
    let off = cpu.iter().zip(cuda).map(|(cpu, cuda)| (cpu - cuda).abs() / cpu.abs());
    // A NaN counts as an infinite difference.
    Some(off.map(|off| if off.is_nan() { f64::INFINITY } else { off }).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_means_of_their_own_losses() {
        assert_eq!(ends(&[4.0, 2.0, 1.0]), [Some(4.0), Some(1.0)]);
        assert_eq!(ends(&[9.0; 100]), [Some(9.0); 2]);
        assert_eq!(ends(&[4.0]), [None; 2]);
    }

    #[test]
    fn runs_are_compared_iteration_by_iteration() {
        assert_eq!(off_max(&[4.0, 2.0], &[4.0, 1.0]), Some(0.5));
        assert_eq!(off_max(&[4.0, 2.0], &[4.0]), None, "one ended early");
        assert_eq!(off_max(&[4.0], &[f64::NAN]), Some(f64::INFINITY));
    }

    #[test]
    fn gpus_of_the_table_have_a_band() {
        let of = |name: &str| context_band(&json!({ "gpus": [{ "name": name }] }));
        let [low, high] = of("NVIDIA H200").expect("it is in the table");
        assert!(low < high && low > 100 << 20, "{low} {high}");
        assert_eq!(of("A GPU of no table"), None);
    }
}
