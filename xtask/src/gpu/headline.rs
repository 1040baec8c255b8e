//! Training as the issue has it: the config that needs more than the card for PyTorch, in the memory of a 12 GB card,
//! with its bytes as planned, as allocated and as NVML sees them; and a small model beside the CPU.

use super::{
    book::Found,
    options::{Model, Size},
    programs::Scratch,
    training::{self, Asked, Trained},
};
use crate::{
    failure::Result,
    shell::{Shell, note},
};
use headroom_shared::hardware::{
    self,
    context::{ModuleLoading, context_bytes},
};
use serde_json::{Value, json};
use std::path::Path;

/// The memory that CUDA reports of a 12 GB card, in the words of the message that this project began with.
const VRAM: &str = "11.69GiB";
/// Losses at each end whose mean is told: one alone is a batch's luck.
const ENDS: usize = 5;

/// A line of the headline's run, and one of the two small ones.
pub fn measure(shell: &Shell, headroom: &Path, size: &Size, doctor: &Value, found: &mut Found<'_>) -> Result<()> {
    let scratch = Scratch::new()?;
    let (data, _) = training::data(shell, headroom, &scratch, size.tokenizer)?;
    let asked = Asked {
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
        Some(why) => Trained { why: Some(format!("not started: {why}")), ..Trained::default() },
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
        "multiplied_by": trained.multiplied_by,
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

/// The means of the losses at each end.
fn ends(losses: &[f64]) -> [Option<f64>; 2] {
    // Of a short run halves, so that the two have nothing in common.
    let n = ENDS.min(losses.len() / 2);
    let mean = |losses: &[f64]| (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64);
    [mean(&losses[..n]), mean(&losses[losses.len() - n..])]
}

/// What a context takes on the card, from and to; none for a card that is in no table.
fn context_band(doctor: &Value) -> Option<[u64; 2]> {
    let gpu = &doctor["gpus"][0];
    let known = hardware::reported(gpu["name"].as_str()?, gpu["memory_total_bytes"].as_u64())?;
    let context = context_bytes(known.compute_capability, known.sm_count, ModuleLoading::Lazy);
    Some([context.band_low, context.band_high])
}

/// The same small model, from the same weights and with the same batches, on both.
fn beside_cpu(shell: &Shell, headroom: &Path, size: &Size, scratch: &Scratch) -> Result<Value> {
    let (data, _) = training::data(shell, headroom, scratch, "char")?;
    let asked = |device| Asked {
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

/// How far two runs lie apart at most, relative; none where they are not the same iterations.
fn off_max(cpu: &[f64], cuda: &[f64]) -> Option<f64> {
    if cpu.len() != cuda.len() || cpu.is_empty() {
        return None;
    }
    let off = cpu.iter().zip(cuda).map(|(cpu, cuda)| (cpu - cuda).abs() / cpu.abs());
    // A loss that is no number is as far off as can be.
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
    fn cards_of_the_table_have_a_band() {
        let of = |name: &str| context_band(&json!({ "gpus": [{ "name": name }] }));
        let [low, high] = of("NVIDIA H200").expect("it is in the table");
        assert!(low < high && low > 100 << 20, "{low} {high}");
        assert_eq!(of("A card of no table"), None);
    }
}
