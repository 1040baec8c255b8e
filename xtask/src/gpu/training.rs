//! A run of `headroom train`: its plan, allocation and losses, and its memory by NVML.

use super::{nvml, options::Model, programs::Scratch};
use crate::{
    failure::{Failure, IoContext, Result},
    shell::{Cmd, CommandResult, Shell},
};
use headroom_planner::gpt::{GptConfig, GptShape};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time limit of the longest run: 100 iterations of the main model, with seconds each on the slowest usable GPU.
const TIME_MAX: Duration = Duration::from_secs(580);
/// Time limit of a plan, which only computes and reads the free memory.
const PLAN_TIME_MAX: Duration = Duration::from_secs(60);
/// The interval between memory readings during a run. Each reads all of the driver's figures, which delays launches.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The seed of weights and batches, the same on GPU and CPU.
const SEED: u64 = 1337;
/// The evaluation interval: evaluations are not measured, so there is only one at the start, with one batch per split.
const EVAL_INTERVAL: u64 = 1 << 40;

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct TrainingSettings<'a> {
    /// `cpu` or `cuda`.
    pub device: &'a str,
    pub model: Model,
    /// Sequences per micro-batch.
    pub batch_size: u64,
    pub iterations: u64,
    /// The GPU memory to plan for; `None` for all that is free.
    pub vram: Option<&'a str>,
    /// A recomputation level, or `auto`.
    pub recompute: &'a str,
    /// The attention backend: `own` or `cudnn`.
    pub attention: &'a str,
    /// The directory of the tokens.
    pub data: &'a Path,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct TrainingResult {
    /// Allocated bytes, as the program reports them.
    pub allocated_bytes: Option<u64>,
    /// Losses of all iterations.
    pub losses: Vec<f64>,
    /// Times of all iterations, in milliseconds.
    pub times_ms: Vec<f64>,
    /// The GEMM backend, and why it is not cuBLASLt, if so.
    pub gemm_backend: Option<String>,
    /// The attention backend.
    pub attention_backend: Option<String>,
    /// Further notes about attention, such as measured times.
    pub attention_notes: Vec<String>,
    /// NVML's figures during the run, if it was watched.
    pub seen: nvml::PeakMemory,
    /// Why it failed, if so.
    pub why: Option<String>,
}

/// The plan of a run.
#[derive(Debug, Default)]
pub struct TrainingPlan {
    /// Planned bytes; `None` without a plan.
    pub bytes: Option<u64>,
    /// The recomputation level, or one per block, as the program reports it.
    pub recompute: Value,
    /// Why the run is not possible here, if so.
    pub why: Option<String>,
}

impl TrainingSettings<'_> {
    /// Returns the operations per token by nanoGPT's formula.
    pub fn operations_per_token(&self, vocab_size: u64) -> Result<f64> {
        let Model { n_layer, n_head, n_embd, block_size } = self.model;
        let shape = GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias: false };
        let config = GptConfig::new(shape).doing(|| "count the model's parameters".into())?;
        let weights = config.n_parameters().unwrap_or(u64::MAX).saturating_sub(block_size * n_embd);
        Ok(6.0 * weights as f64 + 12.0 * (n_layer * n_embd * block_size) as f64)
    }

    /// Returns the tokens per iteration.
    pub const fn tokens(&self) -> u64 {
        self.batch_size * self.model.block_size
    }

    fn command(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Cmd {
        let Model { n_layer, n_head, n_embd, block_size } = self.model;
        let settings = [
            format!("--dataset={}", self.data.display()),
            format!("--out_dir={}", scratch.join("out").display()),
            format!("--n_layer={n_layer}"),
            format!("--n_head={n_head}"),
            format!("--n_embd={n_embd}"),
            format!("--block_size={block_size}"),
            format!("--batch_size={}", self.batch_size),
            format!("--max_iters={}", self.iterations.saturating_sub(1)),
            format!("--lr_decay_iters={}", self.iterations),
            format!("--eval_interval={EVAL_INTERVAL}"),
            format!("--seed={SEED}"),
            format!("--device={}", self.device),
        ];
        let fixed = [
            "--gradient_accumulation_steps=1",
            "--dropout=0.0",
            "--bias=False",
            "--dtype=bfloat16",
            "--learning_rate=1e-3",
            "--min_lr=1e-4",
            "--warmup_iters=0",
            "--eval_iters=1",
            "--log_interval=1",
            "--always_save_checkpoint=False",
            "--json",
            // Runs share one directory.
            "--force",
        ];
        let command = shell.cmd(headroom).args(["train"]).args(settings).args(fixed);
        let command = if self.device == "cpu" {
            command
        } else {
            command.args(["--recompute", self.recompute, "--attention", self.attention])
        };
        match self.vram {
            Some(vram) => command.args(["--vram", vram]),
            None => command,
        }
    }

    /// Returns the run's plan.
    pub fn plan(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Result<TrainingPlan> {
        let ended = self.command(shell, headroom, scratch).args(["--plan"]).limited(PLAN_TIME_MAX, |_| {})?;
        let document: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let fits = ended.success && document["fits"] != false;
        let why = ended.why().or_else(|| (!fits).then(|| "it does not fit".to_owned()));
        Ok(TrainingPlan { bytes: document["bytes"].as_u64(), recompute: document["recompute"].clone(), why })
    }

    /// Runs it without telemetry, as the other trainers are timed.
    pub fn run(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Result<TrainingResult> {
        let ended = self.command(shell, headroom, scratch).limited(TIME_MAX, |_| {})?;
        Ok(read(&ended, self.iterations))
    }

    /// Runs it with memory readings.
    pub fn run_watched(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Result<TrainingResult> {
        let mut seen = nvml::PeakMemory::before(shell, headroom);
        let mut looked = Instant::now();
        let ended = self.command(shell, headroom, scratch).limited(TIME_MAX, |pid| {
            if looked.elapsed() >= LOOK_EVERY {
                seen.look(shell, headroom, pid);
                looked = Instant::now();
            }
        })?;
        Ok(TrainingResult { seen, ..read(&ended, self.iterations) })
    }
}

/// Parses the output of a run.
fn read(ended: &CommandResult, iterations: u64) -> TrainingResult {
    let mut trained = TrainingResult { why: ended.why(), ..TrainingResult::default() };
    for line in ended.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let (Some(loss), Some(time_ms)) = (line["loss"].as_f64(), line["time_ms"].as_f64()) {
            trained.losses.push(loss);
            trained.times_ms.push(time_ms);
        }
    }
    let word = ended.err.lines().find_map(|line| line.strip_prefix("Allocated ")?.split(' ').next());
    trained.allocated_bytes = word.and_then(|word| word.parse().ok());
    let who = ended.err.lines().find_map(|line| line.strip_prefix("Matrix multiplication: "));
    trained.gemm_backend = who.map(|who| who.trim_end_matches('.').to_owned());
    // The run first prints the backend that it will try, then the one that it uses.
    let who = |line: &str| Some(line.split_once("ttention is computed by ")?.1.trim_end_matches('.').to_owned());
    trained.attention_backend = ended.err.lines().filter_map(who).next_back();
    let of_attention = ended.err.lines().filter(|line| line.starts_with("attention"));
    trained.attention_notes = of_attention.map(str::to_owned).collect();
    let short = (trained.losses.len() as u64) < iterations;
    trained.why = trained.why.or_else(|| short.then(|| format!("{} iterations of {iterations}", trained.losses.len())));
    trained
}

/// Returns the median of the times after warm-up, in milliseconds.
pub fn median_ms(times: &[f64], warm_up: u64) -> Option<f64> {
    let mut counted: Vec<f64> = times.iter().skip(usize::try_from(warm_up).ok()?).copied().collect();
    counted.sort_by(f64::total_cmp);
    counted.get(counted.len() / 2).copied()
}

/// Tokenises the built-in stories; returns the directory and the vocabulary size.
pub fn data(shell: &Shell, headroom: &Path, scratch: &Scratch, tokenizer: &str) -> Result<(PathBuf, u64)> {
    let folder = scratch.join(&format!("stories-{tokenizer}"));
    let command = shell.cmd(headroom).args(["data", "prepare", "builtin", "--tokenizer", tokenizer, "--json", "--out"]);
    let ended = command.args([folder.display().to_string()]).limited(TIME_MAX, |_| {})?;
    let document: Value = serde_json::from_str(&ended.out).unwrap_or_default();
    match document["vocab_size"].as_u64() {
        Some(vocab_size) if ended.success => Ok((folder, vocab_size)),
        _ => Err(Failure::new(format!("no tokens: {}", ended.why().unwrap_or_default()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::options::FULL;

    #[test]
    fn a_run_is_read_from_what_it_prints() {
        let ended = CommandResult {
            out: "{\"iter\":0,\"train_loss\":4.2}\n{\"iter\":0,\"loss\":4.2,\"time_ms\":9.5}\n{\"iter\":1,\"loss\":4.1,\"time_ms\":2.5}\n".to_owned(),
            err: "Matrix multiplication: own kernels.\nAttention: cuDNN as far as that is faster.\n\
                  Allocated 4096 bytes, as planned.\nattention: 1.00 ms by cuDNN, 2.00 ms by own kernels\n\
                  attention is computed by cuDNN\n"
                .to_owned(),
            success: true,
            ..CommandResult::default()
        };
        let trained = read(&ended, 2);
        assert_eq!((trained.losses, trained.times_ms), (vec![4.2, 4.1], vec![9.5, 2.5]));
        assert_eq!((trained.allocated_bytes, trained.why), (Some(4096), None));
        assert_eq!(trained.gemm_backend.as_deref(), Some("own kernels"));
        assert_eq!(trained.attention_backend.as_deref(), Some("cuDNN"));
        assert_eq!(trained.attention_notes.len(), 2);
        assert_eq!(read(&ended, 3).why.as_deref(), Some("2 iterations of 3"));
    }

    #[test]
    fn the_median_leaves_the_first_out() {
        assert_eq!(median_ms(&[90.0, 3.0, 1.0, 2.0], 1), Some(2.0));
        assert_eq!(median_ms(&[90.0], 1), None);
    }

    #[test]
    fn operations_are_nanogpts() {
        let asked = TrainingSettings {
            device: "cuda",
            model: FULL.model,
            batch_size: 64,
            iterations: 1,
            vram: None,
            recompute: "auto",
            attention: "own",
            data: Path::new("."),
        };
        // nanoGPT's estimate_mfu: 50,304 * 768 + 12 * (12 * 768^2 + 2 * 768) + 768 weights, and 12 * 12 * 12 * 64 *
        // 1024.
        let operations = asked.operations_per_token(50_304).expect("GPT-2");
        assert_eq!(operations, 6.0 * 123_587_328.0 + 113_246_208.0);
    }
}
