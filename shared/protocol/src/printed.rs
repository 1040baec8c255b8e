//! Incremental parser of a training run's output.
//!
//! [`Lines`] splits bytes that arrive in arbitrary chunks into lines. [`Reader`] parses the lines of nanoGPT's
//! `train.py` and of `headroom train`, which prints the same ones. Other lines are ignored. Memory is bounded for any
//! input, and nothing fails.

mod figures;
mod lines;
#[cfg(test)]
mod tests;

pub use lines::{Lines, MAX_LINE_BYTES};

use crate::run::{Evaluation, Iteration};
use headroom_planner::nanogpt::AFTER_CONFIG;

/// Maximum size of a printed configuration in bytes: a hundred times that of real configs.
pub const MAX_CONFIG_BYTES: usize = 256 << 10;

/// Information from one or more lines.
#[derive(Clone, Debug, PartialEq)]
pub enum PrintedInfo {
    /// The complete configuration as printed, readable by [`headroom_planner::nanogpt::from_pasted_text`]. Reported once.
    Config(String),
    /// `tokens per iteration will be:`, over all processes.
    TokensPerIteration(u64),
    /// `number of parameters:`.
    Parameters {
        /// Number of parameters in millions.
        millions: f64,
        /// Number of printed decimals; nanoGPT prints two.
        decimals: u32,
    },
    /// `step N: train loss …, val loss …`. A loss may be infinite; NaN is `None`.
    Evaluation(Evaluation),
    /// `evaluating: N of M batches`, which `headroom train` prints during a long evaluation.
    Evaluating {
        /// Number of evaluated batches.
        done: u64,
        /// Total number of batches.
        of: u64,
    },
    /// `iter N: loss …, time …ms, mfu …%`, with the additional fields of `headroom train` if printed. The MFU of
    /// `headroom train` is relative to the actual GPU, that of nanoGPT to an A100. The loss may be infinite; NaN is `None`.
    Iteration(Iteration),
    /// `A GPT of N parameters: …`: the run is by `headroom train`, with this number of trained parameters.
    Builtin(u64),
    /// `On the CPU, …`: the run trains on the CPU.
    OnCpu,
    /// `Allocated N bytes`: the total GPU memory that `headroom train` has allocated. Announced allocations are
    /// ignored, because they may still fail.
    Allocation(u64),
    /// `saving checkpoint to …`: the directory.
    Checkpoint(String),
}

/// Parser of the lines of one stream.
///
/// The configuration is collected until the line that every run prints after it: `number of parameters`, an iteration,
/// an evaluation or a traceback. It is then reported. With torchrun each process prints its own; only the first one is
/// used.
#[derive(Debug, Default)]
pub struct Reader {
    /// The configuration printed so far.
    config: String,
    /// Whether the current lines are part of a config file.
    in_file: bool,
    /// Whether the configuration has been reported.
    has_reported: bool,
}

/// Lines that end the configuration.
const BEHIND_CONFIG: [&str; 4] = ["number of parameters:", "step ", "iter ", "Traceback (most recent call last)"];

/// Start of each override line, and of each line that names a config file.
const OVERRIDING: &str = "Overriding";

impl Reader {
    /// Parses a line from [`Lines`].
    pub fn line(&mut self, line: &str, tell: &mut impl FnMut(PrintedInfo)) {
        let line = without_prefix(line);
        // Unbuffered Python writes a line and its end separately, so the output of two processes may interleave.
        let glued = line.match_indices(OVERRIDING).map(|(at, _)| at).find(|at| *at > 0);
        if let Some(at) = glued.filter(|_| line.starts_with(OVERRIDING)) {
            let (first, rest) = line.split_at(at);
            self.plain_line(first, tell);
            // One copy suffices: further ones are the same line from other processes.
            let rest = rest.match_indices(OVERRIDING).nth(1).map_or(rest, |(at, _)| &rest[..at]);
            self.plain_line(rest, tell);
            return;
        }
        self.plain_line(line, tell);
    }

    /// Handles the end of the stream: reports the collected configuration, complete or not.
    pub fn finish(&mut self, tell: &mut impl FnMut(PrintedInfo)) {
        self.tell_config(tell);
    }

    fn plain_line(&mut self, line: &str, tell: &mut impl FnMut(PrintedInfo)) {
        let said = figures::said(line);
        let ends_config = BEHIND_CONFIG.iter().any(|start| line.starts_with(start));
        if ends_config && (said.is_some() || line.starts_with("Traceback")) {
            self.tell_config(tell);
        } else if !self.has_reported {
            self.collect(line);
        }
        if let Some(said) = said {
            tell(said);
        }
    }

    fn collect(&mut self, line: &str) {
        let begins_file = line.starts_with("Overriding config with ");
        let ends_file = AFTER_CONFIG.iter().any(|start| line.starts_with(start));
        let belongs = begins_file
            || (self.in_file && !ends_file)
            || ["Overriding: ", "tokens per iteration will be:", "found vocab_size = ", "defaulting to vocab_size"]
                .iter()
                .any(|start| line.starts_with(start));
        self.in_file = begins_file || (self.in_file && !ends_file);
        if belongs && self.config.len() + line.len() < MAX_CONFIG_BYTES {
            self.config.push_str(line);
            self.config.push('\n');
        }
    }

    fn tell_config(&mut self, tell: &mut impl FnMut(PrintedInfo)) {
        if !self.has_reported && !self.config.is_empty() {
            tell(PrintedInfo::Config(std::mem::take(&mut self.config)));
        }
        self.has_reported = true;
        self.in_file = false;
    }
}

/// Maximum length of a process prefix such as `[default0]:`.
const MAX_PREFIX_BYTES: usize = 24;

/// Returns the line without the prefix of torchrun or PyTorch: `[rank0]:`, `[default1]:`.
fn without_prefix(line: &str) -> &str {
    let Some(rest) = line.strip_prefix('[') else { return line };
    let Some((name, rest)) = rest.split_once("]:") else { return line };
    let digits = name.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
    let is_process = name.len() <= MAX_PREFIX_BYTES
        && digits.len() < name.len()
        && !digits.is_empty()
        && digits.bytes().all(|c| c.is_ascii_digit());
    if is_process { rest.strip_prefix(' ').unwrap_or(rest) } else { line }
}
