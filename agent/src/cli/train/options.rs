//! The words of `headroom train`: its options as one table, and the rest as nanoGPT's own command line.

use crate::{
    cli::{
        args::{Flag, UsageError, Word, options_help, threads},
        plan::options::{Given, nanogpt_word},
    },
    train::{run::OnSaveError, settings::SEED},
};

/// What the words come to.
#[derive(Debug, Default)]
pub struct Request {
    /// Threads that compute; as many as the machine has where none are named.
    pub threads: Option<usize>,
    /// What to do where a checkpoint cannot be written.
    pub on_save_error: OnSaveError,
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

/// Takes what is none of our options.
///
/// # Errors
/// It was meant for us.
pub fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    request.given.push(nanogpt_word("train", FLAGS, SEED, word)?);
    Ok(())
}

/// The help of this command.
pub fn help() -> String {
    format!(
        "\
Trains a GPT on this machine's CPU, as nanoGPT would, and saves what it learns.

Usage: headroom train [CONFIG.py …] [--key=value …] [OPTIONS]

Takes what `python train.py` of nanoGPT takes, in any order; later ones win:
  CONFIG.py                a config file
  --key=value              a setting, as in --batch_size=32; --seed= as well
With no config, no --dataset= and no --init_from= it trains a small model on the
built-in stories, for which nothing is needed.

  --dataset=NAME|FOLDER    data/NAME, or a folder, as `headroom data prepare` or
                           nanoGPT's prepare.py writes it
  --init_from=scratch|resume|NAME|PATH
                           a fresh model; the checkpoint in out_dir, whose keys
                           count where none are given; or weights on this machine:
                           a safetensors file or its folder, or gpt2 … gpt2-xl
                           where Hugging Face's tools have downloaded them

Options:
{}
Ctrl-C finishes the iteration, saves, and says how to go on; twice ends at once.
Before it starts it prints what it will allocate: to the byte what it then does.

Exit status: 0 done or stopped, 1 failed or does not fit, 2 cannot be meant.
",
        options_help(FLAGS)
    )
}
