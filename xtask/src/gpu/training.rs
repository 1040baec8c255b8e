//! A run of `headroom train`: what it planned, allocated and lost, and what NVML saw of it meanwhile.

use super::{nvml, options::Model, programs::Scratch};
use crate::{
    failure::{Doing, Failure, Result},
    shell::{Cmd, Ended, Shell},
};
use headroom_shared::gpt::{GptConfig, GptShape};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The longest of all runs is 100 iterations of the headline's, seconds each on the slowest card that can.
const TIME_MAX: Duration = Duration::from_secs(580);
/// A plan is arithmetic, and asks the card what is free.
const PLAN_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a run is left alone between two looks: each asks the driver for all that it tells of the card, which keeps
/// launches waiting.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Weights and batches are of it, on the card as on the CPU.
const SEED: u64 = 1337;
/// Evaluations are not what is measured: at the start alone, and a batch each.
const EVAL_INTERVAL: u64 = 1 << 40;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// `cpu` or `cuda`.
    pub device: &'a str,
    /// The model.
    pub model: Model,
    /// Sequences of a micro-batch.
    pub batch_size: u64,
    /// How long.
    pub iterations: u64,
    /// What the card is to be planned for; none for all that is free.
    pub vram: Option<&'a str>,
    /// A level, or `auto`.
    pub recompute: &'a str,
    /// `own` or `cudnn`.
    pub attention: &'a str,
    /// The folder of tokens.
    pub data: &'a Path,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Trained {
    /// By the program's own word, once it has them.
    pub allocated_bytes: Option<u64>,
    /// Of every iteration, from the first.
    pub losses: Vec<f64>,
    /// Its time.
    pub times_ms: Vec<f64>,
    /// Who multiplied matrices, and why it was not cuBLASLt, where it was not.
    pub multiplied_by: Option<String>,
    /// Who computed attention.
    pub attention_by: Option<String>,
    /// What else was said of attention, as how long each took.
    pub attention_notes: Vec<String>,
    /// What NVML says while it runs, where it is watched.
    pub seen: nvml::Seen,
    /// Why it failed, where it did.
    pub why: Option<String>,
}

/// What a run would take.
#[derive(Debug, Default)]
pub struct Planned {
    /// None where no plan came.
    pub bytes: Option<u64>,
    /// As the program tells it: a level, or one for each block.
    pub recompute: Value,
    /// Why it cannot be run here, where it cannot.
    pub why: Option<String>,
}

impl Asked<'_> {
    /// What nanoGPT's formula has of operations, a token.
    pub fn operations_per_token(&self, vocab_size: u64) -> Result<f64> {
        let Model { n_layer, n_head, n_embd, block_size } = self.model;
        let shape = GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias: false };
        let config = GptConfig::new(shape).doing(|| "count the model's parameters".into())?;
        let weights = config.n_parameters().unwrap_or(u64::MAX).saturating_sub(block_size * n_embd);
        Ok(6.0 * weights as f64 + 12.0 * (n_layer * n_embd * block_size) as f64)
    }

    /// Tokens of an iteration.
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
            // Runs follow one another in one folder.
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

    /// Asks what it would take.
    pub fn plan(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Result<Planned> {
        let ended = self.command(shell, headroom, scratch).args(["--plan"]).limited(PLAN_TIME_MAX, |_| {})?;
        let document: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let fits = ended.success && document["fits"] != false;
        let why = ended.why().or_else(|| (!fits).then(|| "it does not fit".to_owned()));
        Ok(Planned { bytes: document["bytes"].as_u64(), recompute: document["recompute"].clone(), why })
    }

    /// Runs it, with nobody looking on, as others are timed too.
    pub fn run(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Result<Trained> {
        let ended = self.command(shell, headroom, scratch).limited(TIME_MAX, |_| {})?;
        Ok(read(&ended, self.iterations))
    }

    /// Runs it, and asks NVML meanwhile.
    pub fn run_watched(&self, shell: &Shell, headroom: &Path, scratch: &Scratch) -> Result<Trained> {
        let mut seen = nvml::Seen::before(shell, headroom);
        let mut looked = Instant::now();
        let ended = self.command(shell, headroom, scratch).limited(TIME_MAX, |pid| {
            if looked.elapsed() >= LOOK_EVERY {
                seen.look(shell, headroom, pid);
                looked = Instant::now();
            }
        })?;
        Ok(Trained { seen, ..read(&ended, self.iterations) })
    }
}

/// What a run printed.
fn read(ended: &Ended, iterations: u64) -> Trained {
    let mut trained = Trained { why: ended.why(), ..Trained::default() };
    for line in ended.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let (Some(loss), Some(time_ms)) = (line["loss"].as_f64(), line["time_ms"].as_f64()) {
            trained.losses.push(loss);
            trained.times_ms.push(time_ms);
        }
    }
    let word = ended.err.lines().find_map(|line| line.strip_prefix("Allocated ")?.split(' ').next());
    trained.allocated_bytes = word.and_then(|word| word.parse().ok());
    let who = ended.err.lines().find_map(|line| line.strip_prefix("Matrices are multiplied by "));
    trained.multiplied_by = who.map(|who| who.trim_end_matches('.').to_owned());
    // Before it begins the run says who may, and after that who does.
    let who = |line: &str| Some(line.split_once("ttention is computed by ")?.1.trim_end_matches('.').to_owned());
    trained.attention_by = ended.err.lines().filter_map(who).next_back();
    let of_attention = ended.err.lines().filter(|line| line.starts_with("attention"));
    trained.attention_notes = of_attention.map(str::to_owned).collect();
    let short = (trained.losses.len() as u64) < iterations;
    trained.why = trained.why.or_else(|| short.then(|| format!("{} iterations of {iterations}", trained.losses.len())));
    trained
}

/// The median of the times after some that are not counted, in milliseconds.
pub fn median_ms(times: &[f64], warm_up: u64) -> Option<f64> {
    let mut counted: Vec<f64> = times.iter().skip(usize::try_from(warm_up).ok()?).copied().collect();
    counted.sort_by(f64::total_cmp);
    counted.get(counted.len() / 2).copied()
}

/// Makes a folder of tokens of the built-in stories; gives it with its vocabulary's size.
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
        let ended = Ended {
            out: "{\"iter\":0,\"train_loss\":4.2}\n{\"iter\":0,\"loss\":4.2,\"time_ms\":9.5}\n{\"iter\":1,\"loss\":4.1,\"time_ms\":2.5}\n".to_owned(),
            err: "Matrices are multiplied by own kernels.\nAttention is computed by cuDNN as far as that is faster.\n\
                  Allocated 4096 bytes, as planned.\nattention: 1.00 ms by cuDNN, 2.00 ms by own kernels\n\
                  attention is computed by cuDNN\n"
                .to_owned(),
            success: true,
            ..Ended::default()
        };
        let trained = read(&ended, 2);
        assert_eq!((trained.losses, trained.times_ms), (vec![4.2, 4.1], vec![9.5, 2.5]));
        assert_eq!((trained.allocated_bytes, trained.why), (Some(4096), None));
        assert_eq!(trained.multiplied_by.as_deref(), Some("own kernels"));
        assert_eq!(trained.attention_by.as_deref(), Some("cuDNN"));
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
        let asked = Asked {
            device: "cuda",
            model: FULL.model,
            batch_size: 64,
            iterations: 1,
            vram: None,
            recompute: "auto",
            attention: "own",
            data: Path::new("."),
        };
        // nanoGPT's estimate_mfu: 50,304 * 768 + 12 * (12 * 768^2 + 2 * 768) + 768 weights, and 12 * 12 * 12 * 64 * 1024.
        let operations = asked.operations_per_token(50_304).expect("GPT-2");
        assert_eq!(operations, 6.0 * 123_587_328.0 + 113_246_208.0);
    }
}
