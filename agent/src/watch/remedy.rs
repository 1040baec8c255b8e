//! What to do about a run that died of an out-of-memory error: the diagnosis, the best fix, and whether a program may
//! apply it.

use std::{env, ffi::OsString};

use headroom_shared::{
    advice::{Change, Effect, Fix},
    memory::message::TorchVersion,
    nanogpt::Source,
    oom::{Agreement, diagnose, diagnose_run},
    session::Options,
    text::{self, Text},
};

use super::{
    journal::Ended,
    planned::{Config, line},
};
use crate::platform::Ending;

/// What is made of the message.
#[derive(Debug)]
pub struct Remedy {
    /// What happened.
    pub explanation: Text,
    /// What to change, where the configuration is known and something helps.
    pub fix: Option<Fix>,
    /// The command with that fix, where a program can apply it: as one types it.
    pub command: Option<String>,
    /// How to start it again, or why that is left to a person.
    pub retry: Result<Retry, NoRetry>,
}

/// How to start a run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Its words.
    pub command: Vec<OsString>,
    /// Variables beside those of this program.
    pub variables: Vec<(String, String)>,
    /// What is changed, for history: keys as nanoGPT takes them, and what it has no key for by its name in the fixes of
    /// `headroom plan --json`.
    pub changes: Vec<(String, String)>,
}

/// Why a run is not started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRetry {
    /// Somebody or something ended it by a signal.
    #[error("a signal ended it")]
    Signal,
    /// It is no run of nanoGPT's, or not known to be.
    #[error("only a run that prints nanoGPT's configuration can be started with another")]
    NotNanogpt,
    /// What it printed before is not what its configuration comes to.
    #[error("it prints other figures than its configuration comes to: its model or its training is not nanoGPT's")]
    Contradicted,
    /// The message is of no allocation at which the run is planned to fail.
    #[error("the message is not what its configuration would fail with, so no change is known to help")]
    OtherMessage,
    /// Its command is a shell's, or ends in no script.
    #[error(
        "nanoGPT's keys cannot be added to this command; it has to be `python train.py …` or `torchrun … train.py …`"
    )]
    Command,
    /// It would begin anew, and write over what it has.
    #[error("it had saved a checkpoint, and would begin from scratch; with --init_from=resume it goes on from there")]
    Saved,
    /// Nothing that leaves training as it is suffices.
    #[error("no change is known that leaves the training as it is and makes it fit")]
    NoFix,
    /// Something does, by hand.
    #[error("the change has to be made by hand")]
    ByHand,
    /// It was started with it already.
    #[error("it was started with this change already")]
    Tried,
}

/// What to do about a run; `None` where it did not die of memory.
pub fn remedy(
    ended: &Ended,
    command: &[OsString],
    variables: &[(String, String)],
    asked_to_end: bool,
) -> Option<Remedy> {
    let text = ended.out_of_memory.as_deref()?;
    let options = match (&ended.card, &ended.config) {
        (Some(card), config) => card.options(config.as_ref().map_or(1, |config| config.world_size)),
        (None, Some(config)) => Options { world_size: config.world_size, ..Options::default() },
        (None, None) => Options::default(),
    };
    let options = Options { expandable_segments: is_expandable(variables), ..options };
    // A run whose every setting is nanoGPT's own has a configuration too.
    let default = [Source::File { name: "config".to_owned(), text: String::new() }];
    let sources = match &ended.config {
        Some(config) if config.sources.is_empty() => &default[..],
        Some(config) => &config.sources,
        None => &[],
    };
    let names_gpu = ended.card.is_some() && !options.gpu.is_empty();
    let diagnosis = if ended.is_contradicted {
        diagnose_run(text, &[], &options, names_gpu)
    } else {
        diagnose(text, sources, &options, names_gpu)
    };
    // Where the simulated run does not fail as this one did, what it says of a change is of another run.
    let is_this_run = matches!(diagnosis.explanation.agreement, Some(Agreement::Exact | Agreement::Close));
    let torch = diagnosis.explanation.plan.as_ref().map_or(TorchVersion::RECORDED, |plan| plan.request.torch);
    let enough = || diagnosis.advice.fixes.iter().filter(|fix| fix.fits);
    let same_training = || enough().filter(|fix| fix.effect() == Effect::None);
    let by_program = || same_training().find(|fix| can_be_set(fix, torch));
    let best = by_program().or_else(|| same_training().next()).or_else(|| enough().next());
    // A plan that does not fit either is worth changing, and a program is not to do so for another failure.
    let best = best.filter(|_| is_this_run || diagnosis.advises_another_run());
    let changed = best.filter(|fix| can_be_set(fix, torch)).map(|fix| with(fix, torch, command, variables));
    let takes_keys = takes_keys(command);
    let retry = match (by_program(), ended.config.as_ref().is_some_and(|config: &Config| config.is_printed)) {
        _ if asked_to_end || matches!(ended.ending, Ending::Killed(_)) => Err(NoRetry::Signal),
        (_, false) => Err(NoRetry::NotNanogpt),
        _ if ended.is_contradicted => Err(NoRetry::Contradicted),
        _ if !is_this_run => Err(NoRetry::OtherMessage),
        _ if !takes_keys => Err(NoRetry::Command),
        _ if ended.saved => Err(NoRetry::Saved),
        (None, _) => Err(if same_training().next().is_some() { NoRetry::ByHand } else { NoRetry::NoFix }),
        (Some(fix), _) => {
            let retry = with(fix, torch, command, variables);
            if retry.command == command && retry.variables == variables { Err(NoRetry::Tried) } else { Ok(retry) }
        }
    };
    Some(Remedy {
        explanation: match &best {
            Some(_) if !is_this_run => text::two_sentences(diagnosis.explanation.text.clone(), text::FIXES_OF_THE_PLAN),
            _ => diagnosis.explanation.text.clone(),
        },
        command: changed.filter(|_| takes_keys).map(|changed| typed(&changed)),
        fix: best.cloned(),
        retry,
    })
}

/// Whether each change is a key of nanoGPT's command line or a variable.
fn can_be_set(fix: &Fix, torch: TorchVersion) -> bool {
    fix.changes.iter().all(|change| change.is_in_config() || change.environment(torch).is_some())
}

/// The command and its variables with a fix.
fn with(fix: &Fix, torch: TorchVersion, command: &[OsString], variables: &[(String, String)]) -> Retry {
    let mut retry = Retry { command: command.to_vec(), variables: variables.to_vec(), changes: vec![] };
    for change in &fix.changes {
        // As it is given to train.py: JSON's true is Python's True.
        let argument = change.argument();
        let value = argument.split_once('=').map_or("True", |(_, value)| value);
        retry.changes.push((change.name().to_owned(), value.to_owned()));
        match change.environment(torch) {
            Some(_) => set_expandable(&mut retry.variables, torch.allocator_variable()),
            None => add_key(&mut retry.command, change),
        }
    }
    retry
}

/// Adds a key, in the place of the same one where it is there: of two train.py takes the last.
fn add_key(command: &mut Vec<OsString>, change: &Change) {
    let same = format!("--{}=", change.name());
    command.retain(|word| !word.to_string_lossy().starts_with(&same));
    command.push(OsString::from(change.argument()));
}

const EXPANDABLE: &str = "expandable_segments:True";

/// The allocator's variable has other settings too, which stay.
fn set_expandable(variables: &mut Vec<(String, String)>, name: &str) {
    let before = variables.iter().position(|(other, _)| other == name).map(|at| variables.remove(at).1);
    let before = before.or_else(|| env::var(name).ok()).filter(|before| !before.is_empty());
    let others =
        before.iter().flat_map(|before| before.split(',')).filter(|part| !part.starts_with("expandable_segments"));
    let value: Vec<&str> = others.chain([EXPANDABLE]).collect();
    variables.push((name.to_owned(), value.join(",")));
}

/// Whether the run had the variable set already.
fn is_expandable(variables: &[(String, String)]) -> bool {
    let names = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
    let inherited = names.iter().filter_map(|name| env::var(name).ok());
    let ours = variables.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.clone());
    inherited.chain(ours).any(|value| value.contains(EXPANDABLE))
}

/// Whether what is added to a command's end reaches `train.py` as its arguments: a script is a word of it, and no shell
/// takes the command as a text.
fn takes_keys(command: &[OsString]) -> bool {
    let words = || command.iter().map(|word| word.to_string_lossy());
    let script = words().position(|word| word.ends_with(".py") && !word.starts_with('-'));
    script.is_some_and(|script| !words().take(script).any(|word| word == "-c"))
}

/// A command with its variables, as one types it.
fn typed(retry: &Retry) -> String {
    let variables = retry.variables.iter().map(|(name, value)| format!("{name}={value} "));
    variables.chain([line(&retry.command)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::planned::Card;

    /// As PyTorch prints it on that card for nanoGPT's GPT-2 at batch_size 64 without torch.compile.
    const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
        capacity of 11.69 GiB of which 3.99 GiB is free. Including non-PyTorch memory, this process has 7.70 GiB memory \
        in use. Of the allocated memory 7.23 GiB is allocated by PyTorch, and 298.86 MiB is reserved by PyTorch but \
        unallocated.";

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn ended(command: &str, printed: &str) -> Ended {
        Ended {
            ending: Ending::Exited(1),
            out_of_memory: Some(MESSAGE.to_owned()),
            config: (!printed.is_empty()).then(|| Config::printed(&words(command), printed)),
            card: Some(Card::Named("RTX 4070".to_owned())),
            saved: false,
            is_contradicted: false,
        }
    }

    const COMMAND: &str = "python train.py --batch_size=64 --compile=False";
    const PRINTED: &str = "Overriding: batch_size = 64\nOverriding: compile = False\n";

    #[test]
    fn the_best_fix_that_changes_nothing_is_added_to_the_command() {
        let remedy = remedy(&ended(COMMAND, PRINTED), &words(COMMAND), &[], false).expect("a message");
        let retry = remedy.retry.expect("it can be started again");
        let fix = remedy.fix.expect("there is one");
        assert!(fix.fits && fix.effect() == Effect::None);
        let typed = remedy.command.expect("it is a command");
        assert!(typed.contains("python train.py --"), "{typed}");
        assert_eq!(retry.changes.len(), fix.changes.len());
        assert!(retry.command != words(COMMAND) || !retry.variables.is_empty());
        let is_set = |key: &str| retry.command.iter().filter(|word| word.to_string_lossy().starts_with(key)).count();
        assert!(is_set("--batch_size=") <= 1 && is_set("--compile=") <= 1, "{typed}");
        // With the change it fits: planned as a config of its own.
        let arguments = retry.command[2..].iter().map(|word| Source::Override { text: word.to_string_lossy().into() });
        let options = Options { expandable_segments: is_expandable(&retry.variables), ..Options::default() };
        let request = headroom_shared::session::resolve(&arguments.collect::<Vec<_>>(), &options).request;
        assert!(headroom_shared::plan::fits(&request.expect("a run")), "{retry:?}");
    }

    #[test]
    fn what_a_program_may_not_do_is_said() {
        let refused = |ended: &Ended, command: &str, asked| {
            remedy(ended, &words(command), &[], asked).expect("a message").retry.expect_err("it is refused")
        };
        let run = || ended(COMMAND, PRINTED);
        assert_eq!(refused(&run(), COMMAND, true), NoRetry::Signal);
        assert_eq!(refused(&Ended { ending: Ending::Killed(9), ..run() }, COMMAND, false), NoRetry::Signal);
        assert_eq!(refused(&ended(COMMAND, ""), COMMAND, false), NoRetry::NotNanogpt);
        assert_eq!(refused(&run(), "sh -c train.py", false), NoRetry::Command);
        assert_eq!(refused(&run(), "./run_training", false), NoRetry::Command);
        assert_eq!(refused(&Ended { saved: true, ..run() }, COMMAND, false), NoRetry::Saved);
        assert_eq!(refused(&Ended { is_contradicted: true, ..run() }, COMMAND, false), NoRetry::Contradicted);
        assert!(remedy(&Ended { out_of_memory: None, ..run() }, &words(COMMAND), &[], false).is_none());
    }

    #[test]
    fn a_run_that_fails_otherwise_than_its_plan_is_not_started_again() {
        let refused = |printed: &str, message: &str| {
            let ended = Ended { out_of_memory: Some(message.to_owned()), ..ended(COMMAND, printed) };
            let remedy = remedy(&ended, &words(COMMAND), &[], false).expect("a message");
            // A fix is then one for the plan, and the explanation names the mismatch.
            let names_mismatch = remedy.explanation.to_string().contains(&text::FIXES_OF_THE_PLAN.to_string());
            assert_eq!(remedy.fix.is_some(), names_mismatch, "{remedy:?}");
            remedy.retry.expect_err("it is refused")
        };
        // It would fit; it would fail on another tensor; it asks for what no tensor of it has; it had allocated more.
        let small = "Overriding: batch_size = 1\nOverriding: compile = False\n";
        let giant = "Overriding: n_layer = 200\nOverriding: n_embd = 12288\nOverriding: n_head = 96\n";
        let other = MESSAGE.replace("6.14 GiB", "11.11 GiB");
        let fuller = MESSAGE.replace("7.23 GiB", "4.93 GiB");
        for (printed, message) in [(small, MESSAGE), (giant, MESSAGE), (PRINTED, &other), (PRINTED, &fuller)] {
            assert_eq!(refused(printed, message), NoRetry::OtherMessage, "{printed}: {message}");
        }
        // A message without its figures matches nothing.
        let cut = "torch.OutOfMemoryError: CUDA out of memory.";
        assert_eq!(refused(PRINTED, cut), NoRetry::OtherMessage);
    }

    #[test]
    fn a_contradicted_config_explains_nothing() {
        let run = Ended { is_contradicted: true, ..ended(COMMAND, PRINTED) };
        // Nor does what the text has of it.
        let text = format!("{PRINTED}{MESSAGE}");
        let run = Ended { out_of_memory: Some(text), ..run };
        let remedy = remedy(&run, &words(COMMAND), &[], false).expect("a message");
        assert!(remedy.fix.is_none() && remedy.command.is_none(), "{remedy:?}");
        assert!(remedy.explanation.to_string().contains("6.14 GiB"), "{}", remedy.explanation);
    }

    #[test]
    fn other_settings_of_the_allocator_stay() {
        let mut variables = vec![("PYTORCH_X".to_owned(), "a:1,expandable_segments:False".to_owned())];
        set_expandable(&mut variables, "PYTORCH_X");
        assert_eq!(variables, [("PYTORCH_X".to_owned(), "a:1,expandable_segments:True".to_owned())]);
        assert!(!is_expandable(&[]));
    }

    #[test]
    fn keys_reach_a_script_alone() {
        for (command, takes) in [
            ("python train.py", true),
            ("python3 -u /x/train.py config/a.py", true),
            ("torchrun --nproc_per_node=2 train.py", true),
            ("./train.py", true),
            ("sh -c train.py", false),
            ("make train", false),
        ] {
            assert_eq!(takes_keys(&words(command)), takes, "{command}");
        }
    }
}
