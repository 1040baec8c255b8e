//! The options of `scripts.base_train` from the command that starts it, a shell script with that command, or the log of
//! a run.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use thiserror::Error;

use crate::nanogpt::{commands, n_processes, names_launcher};

/// Module of the script.
const MODULE: &str = "scripts.base_train";
/// File of the script.
const FILE: &str = "base_train.py";

/// A run that a text describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Options of the script.
    pub options: Vec<String>,
    /// Name of the GPU that a log prints.
    pub gpu: Option<String>,
}

/// Why a text describes no run that Headroom plans.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LaunchError {
    /// The text has neither the command nor a log.
    #[error(
        "cannot find a run of nanochat: there is no command that starts scripts.base_train, and no log of it\n\
         hint: such a command is `python -m scripts.base_train --depth=12`; a log begins with the model's config"
    )]
    NoRun,
    /// The run has several processes.
    #[error(
        "cannot plan {processes} processes: an optimizer that is sharded over GPUs is not derived yet\n\
         hint: --nproc_per_node=1 is a run on one GPU"
    )]
    Processes {
        /// Their number.
        processes: u64,
    },
    /// The number of processes depends on the machine.
    #[error(
        "cannot read the number of processes of the command: it depends on the machine\n\
         hint: --nproc_per_node=1 is a run on one GPU"
    )]
    UnknownProcesses,
    /// A line of the log is missing.
    #[error("cannot plan the run of the log: its line \"{line}\" is missing")]
    MissingLine {
        /// Start of the line.
        line: &'static str,
    },
    /// The log has a model of another version of nanochat.
    #[error("cannot plan the run of the log: its model config is not that of a run of scripts.base_train: {cause}")]
    Model {
        /// What is different.
        cause: String,
    },
}

/// Reads the words of a command, such as `torchrun --nproc_per_node=1 -m scripts.base_train -- --depth=12`. A single word
/// may be a whole command in quotes.
///
/// # Errors
/// The command does not start the script, or starts several processes.
pub fn of_command(words: &[String]) -> Result<Launch, LaunchError> {
    match words {
        [text] if text.contains(char::is_whitespace) => of_text(text),
        words => Ok(Launch { options: options(words)?.ok_or(LaunchError::NoRun)?, gpu: None }),
    }
}

/// Reads a shell script or the log of a run. The first command that starts the script counts.
///
/// # Errors
/// The text has no run, or one with several processes.
pub fn of_text(text: &str) -> Result<Launch, LaunchError> {
    match command_in(text)? {
        Some(options) => Ok(Launch { options, gpu: gpu(text) }),
        None => of_log(text),
    }
}

/// The options of a command after the script. `None` if it does not start the script.
///
/// # Errors
/// The command starts several processes.
pub fn options(words: &[String]) -> Result<Option<Vec<String>>, LaunchError> {
    let is_script = |word: &String| word == MODULE || word.rsplit(['/', '\\']).next() == Some(FILE);
    let Some(at) = words.iter().position(is_script) else { return Ok(None) };
    // Another program, such as an editor, may have the file's name as its argument.
    let starts =
        |word: &String| word.contains("python") || matches!(word.as_str(), "-m" | "run") || names_launcher(word);
    if at > 0 && !words[..at].iter().any(starts) {
        return Ok(None);
    }
    match n_processes(&words[..at]) {
        Some(1) => {}
        Some(processes) => return Err(LaunchError::Processes { processes }),
        None => return Err(LaunchError::UnknownProcesses),
    }
    let arguments = &words[at + 1..];
    Ok(Some(arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments).to_vec()))
}

/// The options of the first command of a text that starts the script.
fn command_in(text: &str) -> Result<Option<Vec<String>>, LaunchError> {
    let mut start = 0;
    let mut continues = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if !continues {
            start = at;
        }
        continues = line.trim_end().ends_with('\\');
        at += line.len();
        let is_comment = line.trim_start().starts_with('#');
        if is_comment || !(line.contains(MODULE) || line.contains(FILE)) {
            continue;
        }
        // The trace of `set -x` begins with a plus sign.
        let command = text[start..].trim_start_matches(['+', ' ']);
        for words in commands(command).0 {
            if let Some(options) = options(&words)? {
                return Ok(Some(options));
            }
        }
    }
    Ok(None)
}

/// The model's config in a log.
#[derive(Debug, Deserialize)]
struct ModelConfig {
    sequence_len: u64,
    vocab_size: u64,
    n_layer: u64,
    n_head: u64,
    n_kv_head: u64,
    n_embd: u64,
    window_pattern: String,
}

/// Reads the log of a run.
fn of_log(text: &str) -> Result<Launch, LaunchError> {
    const MODEL: &str = "Model config:";
    const TOKENS: &str = "Tokens / micro-batch / rank:";
    const ALL_TOKENS: &str = "Tokens / micro-batch:";
    const TOTAL: &str = "Total batch size";
    let (_, config) = text.split_once(MODEL).ok_or(LaunchError::NoRun)?;
    let mut config = serde_json::Deserializer::from_str(config).into_iter::<ModelConfig>();
    let config = match config.next() {
        Some(Ok(config)) => config,
        Some(Err(error)) => return Err(LaunchError::Model { cause: error.to_string() }),
        None => return Err(LaunchError::MissingLine { line: MODEL }),
    };
    let line = |line: &'static str| after(text, line).ok_or(LaunchError::MissingLine { line });
    let missing = |line| move || LaunchError::MissingLine { line };
    // "32 x 2048 = 65,536"
    let tokens = line(TOKENS)?;
    let batch = first_number(tokens).ok_or_else(missing(TOKENS))?;
    let of_rank = tokens.rsplit('=').next().and_then(first_number).ok_or_else(missing(TOKENS))?;
    let of_all = first_number(line(ALL_TOKENS)?).ok_or_else(missing(ALL_TOKENS))?;
    if of_all != of_rank {
        return Err(LaunchError::Processes { processes: of_all / of_rank.max(1) });
    }
    let total = first_number(line(TOTAL)?).ok_or_else(missing(TOTAL))?;
    let ModelConfig { sequence_len, vocab_size, n_layer, n_head, n_kv_head, n_embd, window_pattern } = config;
    if n_head != n_kv_head || n_head == 0 || n_layer == 0 || !n_embd.is_multiple_of(n_head) {
        let cause = format!("n_layer is {n_layer}, n_head {n_head}, n_kv_head {n_kv_head}, n_embd {n_embd}");
        return Err(LaunchError::Model { cause });
    }
    let options = [
        ("depth", n_layer.to_string()),
        ("aspect-ratio", (n_embd / n_layer).to_string()),
        ("head-dim", (n_embd / n_head).to_string()),
        ("max-seq-len", sequence_len.to_string()),
        ("vocab-size", vocab_size.to_string()),
        ("window-pattern", window_pattern),
        ("device-batch-size", batch.to_string()),
        ("total-batch-size", total.to_string()),
    ];
    Ok(Launch { options: options.map(|(key, value)| format!("--{key}={value}")).into(), gpu: gpu(text) })
}

/// The rest of the first line that starts with `start`.
fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(start))
}

/// The first number of a line; its digits may be grouped by commas.
fn first_number(line: &str) -> Option<u64> {
    let line = line.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = line.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(line.len());
    line[..end].replace(',', "").parse().ok()
}

/// The GPU that a log prints, as in "GPU: NVIDIA H100 80GB HBM3 | Peak FLOPS (BF16): 9.89e+14".
fn gpu(text: &str) -> Option<String> {
    let name = after(text, "GPU:")?.split('|').next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}
