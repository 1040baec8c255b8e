//! What a training run prints, read while it prints: bytes in, what they say out.
//!
//! [`Lines`] makes lines of bytes that come cut anywhere; [`Reader`] knows the lines of nanoGPT's `train.py`, and of
//! `headroom train`, which prints the same. What belongs to no such line is passed over. Memory is bounded whatever
//! comes, and nothing here fails.

mod figures;
mod lines;
#[cfg(test)]
mod tests;

pub use lines::{Lines, MAX_LINE_BYTES};

use super::pasted::AFTER_CONFIG;
use crate::protocol::run::{Evaluation, Iteration};

/// Longest text that is kept of a printed configuration: a hundred times what configs have.
pub const MAX_CONFIG_BYTES: usize = 256 << 10;

/// What a line, or several, say.
#[derive(Clone, Debug, PartialEq)]
pub enum Printed {
    /// The whole configuration, as printed: a text that [`super::from_pasted_text`] reads. Told once.
    Config(String),
    /// `tokens per iteration will be:`, over all processes.
    TokensPerIteration(u64),
    /// `number of parameters:`.
    Parameters {
        /// In millions.
        millions: f64,
        /// Digits behind the point that were printed: two by nanoGPT.
        decimals: u32,
    },
    /// `step N: train loss …, val loss …`.
    Evaluation(Evaluation),
    /// `evaluating: N of M batches`, as `headroom train` prints in an evaluation that takes its time.
    Evaluating {
        /// Batches that are evaluated.
        done: u64,
        /// Of so many.
        of: u64,
    },
    /// `iter N: loss …, time …ms, mfu …%`. What `headroom train` prints besides is there where it is printed, and its
    /// utilisation is of the true card; nanoGPT's is of an A100.
    Iteration(Iteration),
    /// `A GPT of N parameters: …`: it is `headroom train`, and so many parameters are trained.
    Builtin(u64),
    /// `On the CPU, …`: that is where it trains.
    OnCpu,
    /// `Allocated N bytes`: all that `headroom train` takes. What it only will allocate may be refused yet.
    Allocation(u64),
    /// `Computed again in backward: …`: what `headroom train` does not keep on a card; none where it keeps everything.
    Recompute(Option<String>),
    /// `saving checkpoint to …`: the folder.
    Checkpoint(String),
}

/// Reads the lines of one stream.
///
/// The configuration is collected until the line that every run prints behind it (`number of parameters`, an iteration,
/// an evaluation, a traceback) and then told. With torchrun each process prints its own; the first suffices, and what
/// comes behind it is passed over.
#[derive(Debug, Default)]
pub struct Reader {
    /// What was printed of the configuration so far.
    config: String,
    /// Lines now are of a config file.
    in_file: bool,
    /// The configuration was told.
    told: bool,
}

/// The lines that end the configuration.
const BEHIND_CONFIG: [&str; 4] = ["number of parameters:", "step ", "iter ", "Traceback (most recent call last)"];

/// Begins each line of an override, and each line that names a file.
const OVERRIDING: &str = "Overriding";

impl Reader {
    /// Takes a line as [`Lines`] gives it.
    pub fn line(&mut self, line: &str, tell: &mut impl FnMut(Printed)) {
        let line = without_prefix(line);
        // Unbuffered, Python writes a line and its end apart, and two processes may come between.
        let glued = line.match_indices(OVERRIDING).map(|(at, _)| at).find(|at| *at > 0);
        if let Some(at) = glued.filter(|_| line.starts_with(OVERRIDING)) {
            let (first, rest) = line.split_at(at);
            self.plain_line(first, tell);
            // However often it is glued, once suffices: the rest is of the same line in another process.
            let rest = rest.match_indices(OVERRIDING).nth(1).map_or(rest, |(at, _)| &rest[..at]);
            self.plain_line(rest, tell);
            return;
        }
        self.plain_line(line, tell);
    }

    /// The stream ended: what was collected is told, complete or not.
    pub fn finish(&mut self, tell: &mut impl FnMut(Printed)) {
        self.tell_config(tell);
    }

    fn plain_line(&mut self, line: &str, tell: &mut impl FnMut(Printed)) {
        let said = figures::said(line);
        let ends_config = BEHIND_CONFIG.iter().any(|start| line.starts_with(start));
        if ends_config && (said.is_some() || line.starts_with("Traceback")) {
            self.tell_config(tell);
        } else if !self.told {
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

    fn tell_config(&mut self, tell: &mut impl FnMut(Printed)) {
        if !self.told && !self.config.is_empty() {
            tell(Printed::Config(std::mem::take(&mut self.config)));
        }
        self.told = true;
        self.in_file = false;
    }
}

/// Longest name of a process before a line, as in `[default0]:`.
const MAX_PREFIX_BYTES: usize = 24;

/// The line behind what torchrun and PyTorch put before it: `[rank0]:`, `[default1]:`.
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
