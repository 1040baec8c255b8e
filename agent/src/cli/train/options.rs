//! Arguments of `headroom train`: an option table, and the rest as nanoGPT's command line.

use std::time::Duration;

use headroom_planner::gpt::buffers::cuda::{AttentionBackend, Recompute};

use crate::cli::{
    args::{Flag, InvalidValue, UsageError, Word, shown, threads},
    command::{Command, Words},
    plan::options::{NanogptArgument, bytes, nanogpt_word},
};
use headroom_train::{run::OnSaveError, settings::SEED, status::STOPPED_EXIT_STATUS};

/// Parsed arguments.
#[derive(Debug, Default)]
pub struct Request {
    /// Number of compute threads. Default: all of the machine.
    pub threads: Option<usize>,
    /// GPU memory to plan for, if less than the GPU has.
    pub vram_bytes: Option<u64>,
    /// Recomputation level of every block. Default: as little as fits.
    pub recompute: Option<Recompute>,
    /// Attention backend on a GPU.
    pub attention_backend: Option<AttentionBackend>,
    /// Longest time between two checkpoints. `None` if only evaluations save.
    pub save_every: Option<Duration>,
    /// Reaction to a checkpoint that cannot be written.
    pub on_save_error: OnSaveError,
    /// Whether a new run may replace the checkpoint in its directory.
    pub force: bool,
    /// Whether to print the plan without training.
    pub plan: bool,
    /// Whether to print JSON.
    pub json: bool,
    /// nanoGPT's command line, in order.
    pub given: Vec<NanogptArgument>,
}

/// Option table, in the order of the help.
pub const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "threads",
        value: Some("N"),
        doc: "Compute threads [default: one per core]",
        set: |request, n| {
            request.threads = Some(threads(n)?);
            Ok(())
        },
    },
    Flag {
        name: "vram",
        value: Some("SIZE"),
        doc: "Plan for this much GPU memory, such as 11.69GiB\n[default: all of it]",
        set: |request, size| {
            request.vram_bytes = Some(bytes(size, "GiB")?);
            Ok(())
        },
    },
    Flag {
        name: "recompute",
        value: Some("LEVEL"),
        doc: "Activations that backward recomputes on a GPU: none, gelu\n(and layer norms), attention or block, in all blocks; or\nauto, as few as fit [default: auto]",
        set: |request, word| {
            request.recompute = match (word, Recompute::named(word)) {
                ("auto", _) => None,
                (_, Some(level)) => Some(level),
                _ => return Err(InvalidValue::not_one_of(word, &["auto", "none", "gelu", "attention", "block"])),
            };
            Ok(())
        },
    },
    Flag {
        name: "attention",
        value: Some("own|cudnn"),
        doc: "Attention backend on a GPU: the built-in kernels, or cuDNN\nwhere a check before the run finds equal results and a\nhigher speed [default: own]",
        set: |request, word| {
            let attention_backend =
                AttentionBackend::named(word).ok_or_else(|| InvalidValue::not_one_of(word, &["own", "cudnn"]))?;
            request.attention_backend = Some(attention_backend);
            Ok(())
        },
    },
    Flag {
        name: "save-every",
        value: Some("TIME"),
        doc: "Also save between evaluations, at least this often: 90s,\n10m or 2h [default: save after evaluations only]",
        set: |request, word| {
            request.save_every =
                Some(time(word).ok_or_else(|| format!("{word:?} is not a duration such as 90s, 10m or 2h"))?);
            Ok(())
        },
    },
    Flag {
        name: "on-save-error",
        value: Some("continue|stop"),
        doc: "If a checkpoint cannot be written: continue and retry at\nthe next save, or stop [default: continue]",
        set: |request, word| {
            request.on_save_error = match word {
                "continue" => OnSaveError::Continue,
                "stop" => OnSaveError::Stop,
                _ => return Err(InvalidValue::not_one_of(word, &["continue", "stop"])),
            };
            Ok(())
        },
    },
    Flag {
        name: "force",
        value: None,
        doc: "Overwrite the checkpoint of another run in out_dir",
        set: |request, _| {
            request.force = true;
            Ok(())
        },
    },
    Flag {
        name: "plan",
        value: None,
        doc: "Print the planned allocations and do not train",
        set: |request, _| {
            request.plan = true;
            Ok(())
        },
    },
    Flag {
        name: "json",
        value: None,
        doc: "Print a JSON object per logged iteration and evaluation",
        set: |request, _| {
            request.json = true;
            Ok(())
        },
    },
];

/// Parses a positive duration in seconds, minutes or hours.
fn time(word: &str) -> Option<Duration> {
    let (number, unit_seconds) = [("s", 1), ("m", 60), ("h", 3600)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((word.strip_suffix(unit)?, seconds)))?;
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    Some(Duration::from_secs(u64::from(number) * unit_seconds))
}

/// Takes a word that is not an option of this command.
///
/// # Errors
/// The word looks like a mistyped option.
pub fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    request.given.push(nanogpt_word("train", FLAGS, SEED, word)?);
    Ok(())
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "train",
    summary: "Train a GPT on this machine's GPU or CPU, as nanoGPT does",
    about: "\
Trains a GPT as nanoGPT does, on an NVIDIA GPU or the CPU, and saves checkpoints.
A GPU needs only the NVIDIA driver.",
    usage: &["headroom train [CONFIG.py …] [--key=value …] [OPTIONS]"],
    arguments: "\
Accepts the arguments of nanoGPT's `python train.py` in any order; later ones override:
  CONFIG.py                a config file
  --key=value              a setting, such as --batch_size=32 or --seed=1; or --key value
Without a config, --dataset= and --init_from=, it trains a small model on built-in
stories.

  --dataset=NAME|FOLDER    data/NAME, or a folder written by `headroom data prepare` or
                           nanoGPT's prepare.py
  --init_from=scratch|resume|NAME|PATH
                           scratch: a new model
                           resume: the checkpoint in out_dir with its shape, and its
                           other settings unless given; without --out_dir= the newest
                           run of the data set
                           otherwise weights on this machine: a safetensors file or its
                           folder, or gpt2 … gpt2-xl in Hugging Face's cache
  --device=auto|cpu|cuda|cuda:N
                           auto: the first supported GPU, else the CPU [default: auto].
                           GPUs need compute capability 8.0 (Ampere) and train in
                           bfloat16, with weights and moments in float32",
    options: || shown(FLAGS),
    takes_settings: true,
    words: Words::Files,
    notes: "\
Ctrl-C finishes the iteration, saves, and prints the command to resume. A second Ctrl-C
ends the program immediately. Before training it prints the exact memory plan.

A checkpoint resumes on any device, and bit-identically on the same one. A new run never
replaces a checkpoint: it refuses an out_dir that has one. The default folder gets a number
instead, as in out-stories-2. A run resumes from its last checkpoint, ckpt.safetensors;
ckpt.best.safetensors has the lowest validation loss.",
    exits: &[
        (0, "the run is complete"),
        (1, "the run failed, or does not fit"),
        (STOPPED_EXIT_STATUS, "stopped by Ctrl-C, SIGTERM or SIGHUP"),
    ],
    examples: &[
        "headroom train",
        "headroom train config/train_shakespeare_char.py --device=cpu --max_iters=2000",
        "headroom train config/train_gpt2.py --batch_size=64 --vram 11.69GiB --plan",
    ],
    run: super::run,
    ..Command::EMPTY
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_completed_value_is_taken() {
        for (option, values) in crate::cli::completions::VALUES {
            for flag in FLAGS.iter().filter(|flag| flag.name == *option) {
                assert!(values.iter().all(|value| (flag.set)(&mut Request::default(), value).is_ok()), "{option}");
            }
        }
    }
}
