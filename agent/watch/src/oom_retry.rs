//! Remedy for a run that died of an out-of-memory error: the diagnosis, the best fix, and whether it can be applied
//! automatically.

use std::{env, ffi::OsString};

use headroom_planner::{
    advice::{Change, Effect, Fix},
    memory::message::TorchVersion,
    nanogpt::Source,
    oom::{Agreement, diagnose, diagnose_run},
    session::Options,
};
use headroom_text::{self as text, Text};

use super::{
    journal::RunEnd,
    prediction::{Config, line},
};
use headroom_agent_core::platform::ProgramEnding;

/// Diagnosis and remedy of a failed run.
#[derive(Debug)]
pub struct RetryAdvice {
    /// Explanation of the error.
    pub explanation: Text,
    /// Fix, if the config is known and a change helps.
    pub fix: Option<Fix>,
    /// Shell command with the fix applied, if that is possible automatically.
    pub command: Option<String>,
    /// How to restart the run, or why that is left to the user.
    pub retry: Result<Retry, NoRetry>,
}

/// Restart of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Words of the command.
    pub command: Vec<OsString>,
    /// Additional environment variables.
    pub variables: Vec<(String, String)>,
    /// Changes for the history: nanoGPT's keys, and other changes by their names in the fixes of `headroom plan
    /// --json`.
    pub changes: Vec<(String, String)>,
}

/// Why a run is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRetry {
    /// A signal ended the run.
    #[error("a signal ended it")]
    Signal,
    /// The run is not known to be nanoGPT's.
    #[error("only a run that prints nanoGPT's configuration can be started with another")]
    NotNanogpt,
    /// The printed figures contradict the config.
    #[error("it prints other figures than its configuration comes to: its model or its training is not nanoGPT's")]
    Contradicted,
    /// The message does not match an allocation at which the run is predicted to fail.
    #[error("the message is not what its configuration would fail with, so no change is known to help")]
    OtherMessage,
    /// The command is a shell's, or does not end in a script.
    #[error(
        "nanoGPT's keys cannot be added to this command; it has to be `python train.py …` or `torchrun … train.py …`"
    )]
    Command,
    /// A restart would begin from scratch and overwrite the saved checkpoint.
    #[error("it had saved a checkpoint, and would begin from scratch; with --init_from=resume it goes on from there")]
    Saved,
    /// No fix that leaves the training unchanged is sufficient.
    #[error("no change is known that leaves the training as it is and makes it fit")]
    NoFix,
    /// A sufficient fix must be applied by hand.
    #[error("the change has to be made by hand")]
    ByHand,
    /// The run already had the fix.
    #[error("it was started with this change already")]
    Tried,
}

/// Remedy for a run. `None` if the run did not die of an out-of-memory error.
pub fn remedy(
    ended: &RunEnd,
    command: &[OsString],
    variables: &[(String, String)],
    asked_to_end: bool,
) -> Option<RetryAdvice> {
    let text = ended.out_of_memory.as_deref()?;
    let options = match (&ended.gpu, &ended.config) {
        (Some(gpu), config) => gpu.options(config.as_ref().map_or(1, |config| config.world_size)),
        (None, Some(config)) => Options { world_size: config.world_size, ..Options::default() },
        (None, None) => Options::default(),
    };
    let options = Options { expandable_segments: is_expandable(variables), ..options };
    // A run with only default settings has a config too.
    let default = [Source::File { name: "config".to_owned(), text: String::new() }];
    let sources = match &ended.config {
        Some(config) if config.sources.is_empty() => &default[..],
        Some(config) => &config.sources,
        None => &[],
    };
    let names_gpu = ended.gpu.is_some() && !options.gpu.is_empty();
    let diagnosis = if ended.is_contradicted {
        diagnose_run(text, &[], &options, names_gpu)
    } else {
        diagnose(text, sources, &options, names_gpu)
    };
    // If the simulated run fails differently, its fixes do not apply to this run.
    let is_this_run = matches!(diagnosis.explanation.agreement, Some(Agreement::Exact | Agreement::Close));
    let torch = diagnosis.explanation.plan.as_ref().map_or(TorchVersion::RECORDED, |plan| plan.request.machine.torch);
    let enough = || diagnosis.advice.fixes.iter().filter(|fix| fix.fits);
    let same_training = || enough().filter(|fix| fix.effect() == Effect::None);
    let by_program = || same_training().find(|fix| can_be_set(fix, torch));
    let best = by_program().or_else(|| same_training().next()).or_else(|| enough().next());
    // A plan that does not fit is worth fixing, but another failure must not be fixed automatically.
    let best = best.filter(|_| is_this_run || diagnosis.advises_another_run());
    let changed = best.filter(|fix| can_be_set(fix, torch)).map(|fix| with(fix, torch, command, variables));
    let takes_keys = takes_keys(command);
    let retry = match (by_program(), ended.config.as_ref().is_some_and(|config: &Config| config.is_printed)) {
        _ if asked_to_end || matches!(ended.ending, ProgramEnding::Killed(_)) => Err(NoRetry::Signal),
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
    Some(RetryAdvice {
        explanation: match &best {
            Some(_) if !is_this_run => text::two_sentences(diagnosis.explanation.text.clone(), text::FIXES_OF_THE_PLAN),
            _ => diagnosis.explanation.text.clone(),
        },
        command: changed.filter(|_| takes_keys).map(|changed| typed(&changed)),
        fix: best.cloned(),
        retry,
    })
}

/// Whether each change is a key of nanoGPT's command line or an environment variable.
fn can_be_set(fix: &Fix, torch: TorchVersion) -> bool {
    fix.changes.iter().all(|change| change.is_in_config() || change.environment(torch).is_some())
}

/// Applies a fix to the command and its variables.
fn with(fix: &Fix, torch: TorchVersion, command: &[OsString], variables: &[(String, String)]) -> Retry {
    let mut retry = Retry { command: command.to_vec(), variables: variables.to_vec(), changes: vec![] };
    for change in &fix.changes {
        // As an argument of train.py: JSON's true is Python's True.
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

/// Sets a key, and removes an earlier occurrence. train.py uses the last one.
fn add_key(command: &mut Vec<OsString>, change: &Change) {
    let same = format!("--{}=", change.name());
    command.retain(|word| !word.to_string_lossy().starts_with(&same));
    command.push(OsString::from(change.argument()));
}

const EXPANDABLE: &str = "expandable_segments:True";

/// Sets expandable segments in the allocator's variable and keeps its other settings.
fn set_expandable(variables: &mut Vec<(String, String)>, name: &str) {
    let before = variables.iter().position(|(other, _)| other == name).map(|at| variables.remove(at).1);
    let before = before.or_else(|| env::var(name).ok()).filter(|before| !before.is_empty());
    let others =
        before.iter().flat_map(|before| before.split(',')).filter(|part| !part.starts_with("expandable_segments"));
    let value: Vec<&str> = others.chain([EXPANDABLE]).collect();
    variables.push((name.to_owned(), value.join(",")));
}

/// Whether the run already had the setting.
fn is_expandable(variables: &[(String, String)]) -> bool {
    let names = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
    let inherited = names.iter().filter_map(|name| env::var(name).ok());
    let ours = variables.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.clone());
    inherited.chain(ours).any(|value| value.contains(EXPANDABLE))
}

/// Whether arguments appended to a command reach `train.py`: the command contains a script, and no `-c` precedes it.
fn takes_keys(command: &[OsString]) -> bool {
    let words = || command.iter().map(|word| word.to_string_lossy());
    let script = words().position(|word| word.ends_with(".py") && !word.starts_with('-'));
    script.is_some_and(|script| !words().take(script).any(|word| word == "-c"))
}

/// A command with its variables, as typed in a shell.
fn typed(retry: &Retry) -> String {
    let variables = retry.variables.iter().map(|(name, value)| format!("{name}={value} "));
    variables.chain([line(&retry.command)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::PlannedGpu;

    /// PyTorch's message on that GPU for nanoGPT's GPT-2 at batch_size 64 without torch.compile.
    const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
        capacity of 11.69 GiB of which 3.99 GiB is free. Including non-PyTorch memory, this process has 7.70 GiB memory \
        in use. Of the allocated memory 7.23 GiB is allocated by PyTorch, and 298.86 MiB is reserved by PyTorch but \
        unallocated.";

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn ended(command: &str, printed: &str) -> RunEnd {
        RunEnd {
            ending: ProgramEnding::Exited(1),
            out_of_memory: Some(MESSAGE.to_owned()),
            config: (!printed.is_empty()).then(|| Config::printed(&words(command), printed)),
            gpu: Some(PlannedGpu::Named("RTX 4070".to_owned())),
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
        // The changed run fits, planned as a config of its own.
        let arguments = retry.command[2..].iter().map(|word| Source::Override { text: word.to_string_lossy().into() });
        let options = Options { expandable_segments: is_expandable(&retry.variables), ..Options::default() };
        let request = headroom_planner::session::resolve(&arguments.collect::<Vec<_>>(), &options).request;
        assert!(headroom_planner::plan::fits(&request.expect("a run")), "{retry:?}");
    }

    #[test]
    fn refused_retries_have_reasons() {
        let refused = |ended: &RunEnd, command: &str, asked| {
            remedy(ended, &words(command), &[], asked).expect("a message").retry.expect_err("it is refused")
        };
        let run = || ended(COMMAND, PRINTED);
        assert_eq!(refused(&run(), COMMAND, true), NoRetry::Signal);
        assert_eq!(refused(&RunEnd { ending: ProgramEnding::Killed(9), ..run() }, COMMAND, false), NoRetry::Signal);
        assert_eq!(refused(&ended(COMMAND, ""), COMMAND, false), NoRetry::NotNanogpt);
        assert_eq!(refused(&run(), "sh -c train.py", false), NoRetry::Command);
        assert_eq!(refused(&run(), "./run_training", false), NoRetry::Command);
        assert_eq!(refused(&RunEnd { saved: true, ..run() }, COMMAND, false), NoRetry::Saved);
        assert_eq!(refused(&RunEnd { is_contradicted: true, ..run() }, COMMAND, false), NoRetry::Contradicted);
        assert!(remedy(&RunEnd { out_of_memory: None, ..run() }, &words(COMMAND), &[], false).is_none());
    }

    #[test]
    fn a_run_that_fails_otherwise_than_its_plan_is_not_started_again() {
        let refused = |printed: &str, message: &str| {
            let ended = RunEnd { out_of_memory: Some(message.to_owned()), ..ended(COMMAND, printed) };
            let remedy = remedy(&ended, &words(COMMAND), &[], false).expect("a message");
            // Fixes then apply to the plan, and the explanation names the mismatch.
            let names_mismatch = remedy.explanation.to_string().contains(&text::FIXES_OF_THE_PLAN.to_string());
            assert_eq!(remedy.fix.is_some(), names_mismatch, "{remedy:?}");
            remedy.retry.expect_err("it is refused")
        };
        // In order: the run would fit; it would fail on another tensor; no tensor has this size; more was allocated.
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
        let run = RunEnd { is_contradicted: true, ..ended(COMMAND, PRINTED) };
        // Nor does the rest of the text.
        let text = format!("{PRINTED}{MESSAGE}");
        let run = RunEnd { out_of_memory: Some(text), ..run };
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
