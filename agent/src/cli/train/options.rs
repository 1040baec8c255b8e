//! The words of `headroom train`: its options as one table, and the rest as nanoGPT's own command line.

use std::time::Duration;

use headroom_shared::gpt::buffers::cuda::{Attender, Recompute};

use crate::{
    cli::{
        args::{Flag, UsageError, Word, shown, threads},
        command::{Command, Words},
        plan::options::{Given, bytes, nanogpt_word},
    },
    train::{run::OnSaveError, settings::SEED, stop::EXIT_STATUS},
};

/// What the words come to.
#[derive(Debug, Default)]
pub struct Request {
    /// Threads that compute; as many as the machine has where none are named.
    pub threads: Option<usize>,
    /// The card's memory, where it is to be planned as though there were no more.
    pub vram_bytes: Option<u64>,
    /// What is computed again, in every block; as little as fits where nothing is said.
    pub recompute: Option<Recompute>,
    /// Who is to compute attention on a card.
    pub attender: Option<Attender>,
    /// The longest time from one checkpoint to the next; none where evaluations alone save.
    pub save_every: Option<Duration>,
    /// What to do where a checkpoint cannot be written.
    pub on_save_error: OnSaveError,
    /// Whether a new run may replace the checkpoint in its folder.
    pub force: bool,
    /// Whether to print the plan and train nothing.
    pub plan: bool,
    /// Whether to print JSON.
    pub json: bool,
    /// nanoGPT's own command line, in its order.
    pub given: Vec<Given>,
}

/// The table of this command's options, in the order of the help.
pub const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "threads",
        value: Some("N"),
        doc: "Threads that compute [default: one a core]",
        set: |request, n| {
            request.threads = Some(threads(n)?);
            Ok(())
        },
    },
    Flag {
        name: "vram",
        value: Some("SIZE"),
        doc: "Plan as though the card had so much memory, as in\n11.69GiB [default: all that it has]",
        set: |request, size| {
            request.vram_bytes = Some(bytes(size, "GiB")?);
            Ok(())
        },
    },
    Flag {
        name: "recompute",
        value: Some("LEVEL"),
        doc: "On a card, what backward computes again to save memory:\nnone, gelu (and layer norms), attention or block, in all\nblocks; or auto, as little as fits [default: auto]",
        set: |request, word| {
            request.recompute = match (word, Recompute::named(word)) {
                ("auto", _) => None,
                (_, Some(level)) => Some(level),
                _ => return Err(format!("{word:?} is none of auto, none, gelu, attention, block").into()),
            };
            Ok(())
        },
    },
    Flag {
        name: "attention",
        value: Some("own|cudnn"),
        doc: "On a card, who computes attention: our kernels, or NVIDIA's\ncuDNN as far as it gives the same and is faster, as timed\nbefore the run begins [default: own]",
        set: |request, word| {
            let attender = Attender::named(word).ok_or_else(|| format!("{word:?} is neither own nor cudnn"))?;
            request.attender = Some(attender);
            Ok(())
        },
    },
    Flag {
        name: "save-every",
        value: Some("TIME"),
        doc: "Save between evaluations too, after at most so long, as in\n90s, 10m or 2h [default: evaluations alone save]",
        set: |request, word| {
            request.save_every = Some(time(word).ok_or_else(|| format!("{word:?} is no time, as in 90s, 10m or 2h"))?);
            Ok(())
        },
    },
    Flag {
        name: "on-save-error",
        value: Some("continue|stop"),
        doc: "Where a checkpoint cannot be written, as on a full disk:\ngo on and try again, or stop [default: continue]",
        set: |request, word| {
            request.on_save_error = match word {
                "continue" => OnSaveError::Continue,
                "stop" => OnSaveError::Stop,
                _ => return Err(format!("{word:?} is neither continue nor stop").into()),
            };
            Ok(())
        },
    },
    Flag {
        name: "force",
        value: None,
        doc: "Replace the checkpoint of another run in out_dir",
        set: |request, _| {
            request.force = true;
            Ok(())
        },
    },
    Flag {
        name: "plan",
        value: None,
        doc: "Print what the run would allocate, and train nothing",
        set: |request, _| {
            request.plan = true;
            Ok(())
        },
    },
    Flag {
        name: "json",
        value: None,
        doc: "Print an object for each logged iteration and evaluation",
        set: |request, _| {
            request.json = true;
            Ok(())
        },
    },
];

/// A time above zero, in seconds, minutes or hours.
fn time(word: &str) -> Option<Duration> {
    let (number, unit_seconds) = [("s", 1), ("m", 60), ("h", 3600)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((word.strip_suffix(unit)?, seconds)))?;
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    Some(Duration::from_secs(u64::from(number) * unit_seconds))
}

/// Takes what is none of our options.
///
/// # Errors
/// It was meant for us.
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
A GPU needs its driver only.",
    usage: &["headroom train [CONFIG.py …] [--key=value …] [OPTIONS]"],
    arguments: "\
Takes what `python train.py` of nanoGPT takes, in any order; later ones win:
  CONFIG.py                a config file
  --key=value              a setting, as in --batch_size=32; --seed= as well; --key value
                           works too
With no config, no --dataset= and no --init_from= it trains a small model on the
built-in stories, for which nothing is needed.

  --dataset=NAME|FOLDER    data/NAME, or a folder, as `headroom data prepare` or
                           nanoGPT's prepare.py writes it
  --init_from=scratch|resume|NAME|PATH
                           a new model; the checkpoint in out_dir, whose keys apply
                           unless others are given; or weights on this machine:
                           a safetensors file or its folder, or gpt2 … gpt2-xl
                           if Hugging Face's tools have downloaded them
  --device=auto|cpu|cuda|cuda:N
                           the first supported GPU, else the CPU [default: auto];
                           compute capability 8.0 (Ampere) and newer is supported,
                           in bfloat16 with weights and moments in float32",
    options: || shown(FLAGS),
    takes_settings: true,
    words: Words::Files,
    notes: "\
Ctrl-C finishes the iteration, saves, and prints the command to resume; twice ends at once.
Before it starts it prints an exact plan of the memory that it then allocates.
A checkpoint resumes on any device; bit-identically on the same one. A new run replaces
no checkpoint: it refuses an out_dir that has one, and if none is named it takes a new
folder, as in out-stories-2. The last checkpoint (ckpt.safetensors) is the one to resume
from; the one with the lowest validation loss stays beside it.",
    exits: &[
        (0, "the run is complete"),
        (1, "the run failed, or does not fit"),
        (EXIT_STATUS, "stopped by Ctrl-C or SIGTERM"),
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
