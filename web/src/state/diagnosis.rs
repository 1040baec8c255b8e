//! The diagnosis of a pasted message, in words.

use headroom_planner::{
    nanogpt::{Severity, Source},
    oom::{
        Agreement, Cause, Diagnosis, Explanation, Kind, Match, MatchingRun, Message, Report, diagnose,
        diagnosis::{agreement, diagnose_trainer},
        shape,
    },
    session::Options,
    trainers::{input::Input, launch::input_in},
};

use super::{
    answer::Reading,
    excerpt,
    fixes::{Rows, rows_of},
    format, parse,
    session::Session,
    solving::OpenQuestion,
};
use crate::text::{self, say, t};

/// A part of the GPU's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The CSS class of its colour.
    pub band: &'static str,
    /// The holder of the memory.
    pub label: &'static str,
    /// The size, in bytes.
    pub bytes: u64,
}

/// A tensor that may be the failed allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name, shape and dtype.
    pub tensor: String,
    /// The phase of the run.
    pub phase: &'static str,
    /// Whether the figures agree to the digit.
    pub exact: bool,
    /// The runs that contain it and agree with the message: a description and a config each.
    pub runs: Vec<(String, String)>,
}

/// The diagnosis as shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownDiagnosis {
    /// The meaning of the message, in one or two sentences.
    pub sentence: String,
    /// How well the run agrees, in a word; empty without a config.
    pub agreement: &'static str,
    /// The parsed message.
    pub message: Option<Message>,
    /// The number of messages and the position of this one; empty for a single message.
    pub several: String,
    /// Why the text in the config's field was not used; empty if it was.
    pub config_fault: &'static str,
    /// Errors in the config.
    pub problems: Vec<String>,
    /// The figures in which the message and the config disagree.
    pub differences: Vec<String>,
    /// The parts of the GPU's memory, from left to right.
    pub parts: Vec<Part>,
    /// The GPU's memory, in bytes.
    pub gpu_bytes: u64,
    /// The bytes requested beyond the free memory.
    pub missing_bytes: u64,
    /// The tensors, the most probable first.
    pub candidates: Vec<Candidate>,
    /// The fixes, if the run is known.
    pub fixes: Option<Rows>,
    /// The name of the config file that has to be opened.
    pub unread: Option<String>,
    /// The bytes that the run needs beyond the GPU's memory, if known.
    pub run_missing_bytes: Option<u64>,
    /// The causes of the failure, most important first.
    pub causes: Vec<Cause>,
    /// The message, if no known run agrees with it.
    pub unsolved: Option<OpenQuestion>,
    /// The run of another trainer, and the message's GPU.
    pub trainer: Option<(Input, Options)>,
    /// The run on the message's GPU, for the calculator; `None` without a config.
    pub session: Option<Session>,
}

/// Diagnoses a message; `None` for an empty text. `options` belong to the run from the calculator; the message's GPU
/// overrides theirs.
pub fn shown(pasted: &str, config: &str, options: &Options) -> Option<ShownDiagnosis> {
    if pasted.trim().is_empty() {
        return None;
    }
    let of_trainer = shown_for_trainer(pasted, config, options);
    let trainer_fault = match of_trainer {
        Some(Ok(shown)) => return Some(shown),
        Some(Err(error)) => error,
        None => String::new(),
    };
    // A text without a setting would be train.py's default run, which the user did not request.
    let is_run = Reading::of_text(config) == Reading::Run;
    let given: Vec<Source> = if is_run { parse(config).sources } else { vec![] };
    let is_refused = !is_run && !config.trim().is_empty();
    let diagnosis = diagnose(pasted, &given, options, false);
    let message = diagnosis.message();
    let explanation = &diagnosis.explanation;
    let session = session(&diagnosis, if is_run { config } else { "" });
    let fixes = match (&explanation.plan, &diagnosis.resolved) {
        (Some(plan), Some(_)) if !diagnosis.contradicts_fitting_run() => {
            let mut rows = rows_of(plan, &diagnosis.advice);
            if diagnosis.advises_another_run() {
                rows.lead = format!("{} {}", t(text::FIXES_OF_THE_PLAN), rows.lead);
            }
            Some(rows)
        }
        _ => None,
    };
    let mut shown = explained(&diagnosis.report, explanation, diagnosis.explains_last);
    if let Some(message) = message {
        keep_agreeing(&mut shown.candidates, message, &diagnosis.options);
    }
    Some(ShownDiagnosis {
        config_fault: if is_refused { t(text::CONFIG_WITHOUT_SETTINGS) } else { "" },
        problems: problems(&diagnosis)
            .into_iter()
            .chain((!trainer_fault.is_empty()).then_some(trainer_fault))
            .collect(),
        fixes,
        run_missing_bytes: explanation
            .plan
            .as_ref()
            .filter(|plan| !plan.fits)
            .and_then(|plan| plan.headroom_bytes.is_negative().then(|| plan.headroom_bytes.unsigned_abs())),
        unsolved: message.filter(|message| message.kind == Kind::Pytorch && diagnosis.is_unsolved()).map(|message| {
            OpenQuestion {
                message: message.clone(),
                hint: diagnosis.report.phase_hint,
                options: diagnosis.options.clone(),
                has_config: explanation.agreement.is_some(),
            }
        }),
        unread: diagnosis
            .resolved
            .as_ref()
            .and_then(|resolved| resolved.settings.unread.first().map(|file| file.name.clone())),
        session,
        ..shown
    })
}

/// Removes the runs that have a tensor of the requested size and do not agree with the message's other figures.
fn keep_agreeing(candidates: &mut [Candidate], message: &Message, options: &Options) {
    let agrees = |config: &str| {
        let found = agreement(message, &parse(config).sources, options);
        matches!(found, Some(Agreement::Exact | Agreement::Close))
    };
    for candidate in candidates {
        candidate.runs.retain(|(_, config)| agrees(config));
    }
}

/// Diagnoses a message for the run of another trainer in the text or in the config's field. `None` without one.
fn shown_for_trainer(pasted: &str, config: &str, options: &Options) -> Option<Result<ShownDiagnosis, String>> {
    let input = [config, pasted].into_iter().find_map(input_in)?;
    Some(input.map_err(|error| error.to_string()).and_then(|input| {
        let run = input.read().map_err(|error| error.to_string())?;
        let diagnosis = diagnose_trainer(pasted, &run, options, false).map_err(|error| error.to_string())?;
        Ok(ShownDiagnosis {
            trainer: Some((input, diagnosis.options.clone())),
            ..explained(&diagnosis.report, &diagnosis.explanation, diagnosis.explains_last)
        })
    }))
}

/// The explanation of a report's message.
fn explained<R>(report: &Report, explanation: &Explanation<R>, explains_last: bool) -> ShownDiagnosis {
    let message = if explains_last { report.last.as_ref() } else { report.first.as_ref() };
    ShownDiagnosis {
        sentence: say(&explanation.text),
        agreement: match explanation.agreement {
            Some(Agreement::Exact) if explanation.reserved_agrees => t(text::AGREES_EXACTLY),
            Some(Agreement::Exact) => t(text::REQUESTED_AND_ALLOCATED_MATCH),
            Some(Agreement::Close) => t(text::AGREES_CLOSELY),
            Some(Agreement::None) => t(text::AGREES_NOT),
            None => "",
        },
        message: message.cloned(),
        several: match report.n_messages {
            0 | 1 => String::new(),
            n if explains_last => say(&text::several_messages_last(n)),
            n => say(&text::several_messages(n)),
        },
        differences: explanation.differences.iter().map(|difference| say(&difference.text())).collect(),
        parts: parts(explanation, message),
        gpu_bytes: explanation.arithmetic.total.unwrap_or(0),
        missing_bytes: explanation.arithmetic.missing.unwrap_or(0),
        candidates: explanation.matches.iter().map(candidate).collect(),
        causes: explanation.causes.clone(),
        ..ShownDiagnosis::default()
    }
}

/// Errors in the config.
fn problems(diagnosis: &Diagnosis) -> Vec<String> {
    let Some(resolved) = &diagnosis.resolved else { return vec![] };
    let of_text = resolved.settings.problems.as_slice().iter();
    let of_text = of_text.filter(|problem| problem.severity == Severity::Error).map(|problem| {
        let place =
            if problem.line > 0 { format!("{}:{}", problem.line, problem.column) } else { problem.source.clone() };
        format!("{place}: {}", say(&problem.message))
    });
    let of_run = resolved.findings.iter().filter(|finding| finding.severity == Severity::Error);
    of_text
        .chain(of_run.map(|finding| format!("{}: {}", finding.key, say(&finding.message))))
        .take(MAX_PROBLEMS)
        .collect()
}

/// The most problems listed at once.
const MAX_PROBLEMS: usize = 5;

fn candidate(found: &Match) -> Candidate {
    Candidate {
        tensor: say(&text::tensor(found.tensor.clone(), shape(&found.shape), found.dtype.name())),
        phase: found.phase.map_or("", |phase| t(phase.text_in())),
        exact: found.exact,
        runs: found.runs.iter().map(|run| (run_words(run), run.config())).collect(),
    }
}

fn run_words(run: &MatchingRun) -> String {
    match (run.batch, run.n_embd) {
        (Some((batch_size, block_size)), _) => format!("{batch_size} × {block_size}"),
        (None, Some(n_embd)) => format!("n_embd {n_embd}"),
        (None, None) => String::new(),
    }
}

fn parts<R>(explanation: &Explanation<R>, message: Option<&Message>) -> Vec<Part> {
    let sums = &explanation.arithmetic;
    if sums.total.is_none() || message.is_none_or(|message| message.kind != Kind::Pytorch) {
        return vec![];
    }
    let others = if sums.context.is_some() { t(text::OTHERS_BAND) } else { t(text::OTHERS_AND_CONTEXT) };
    let all = [
        ("band-0", others, sums.others),
        ("band-1", t(text::CONTEXT_BAND), sums.context),
        ("band-7", t(text::ALLOCATED), sums.allocated),
        ("band-8", t(text::UNALLOCATED), sums.unallocated),
        ("band-free", t(text::FREE), sums.free),
    ];
    let part = |(band, label, bytes): (&'static str, &'static str, Option<u64>)| {
        bytes.filter(|bytes| *bytes > 0).map(|bytes| Part { band, label, bytes })
    };
    all.into_iter().filter_map(part).collect()
}

/// The run as the calculator opens it.
fn session(diagnosis: &Diagnosis, config: &str) -> Option<Session> {
    let resolved = diagnosis.resolved.as_ref()?;
    // Links to the calculator parse the text several times: a long text is replaced by its settings.
    let by_settings = config.trim().is_empty() || excerpt::is_long(config);
    let text = if by_settings { resolved.settings.to_config() } else { config.to_owned() };
    Some(Session::new(text, diagnosis.options.clone()))
}

/// A part in words, for the bar's legend.
pub fn part_words(part: &Part) -> String {
    format!("{} {}", part.label, format::size(part.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        solving::{Found, solved},
        trainer::advice_on,
    };
    use headroom_planner::trainers::{TrainerRequest, fixes::TrainerFix, plan};

    const MESSAGE: &str = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
        capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in \
        use. Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";

    #[test]
    fn a_message_alone_has_candidates_and_asks_for_the_config() {
        let shown = shown(MESSAGE, "", &Options::default()).expect("an answer");
        assert!(shown.unsolved.is_some() && shown.fixes.is_none() && shown.session.is_none());
        assert_eq!(shown.candidates[0].tensor, "logits (65536, 50304) bfloat16");
        // A run of the list agrees with the message, and a batch size that only has the requested size is left out.
        let runs: Vec<_> = shown.candidates.iter().flat_map(|candidate| &candidate.runs).collect();
        assert!(runs.iter().any(|(label, _)| label == "64 × 1024"), "{runs:?}");
        for (label, config) in &runs {
            let explained = super::shown(MESSAGE, config, &Options::default()).expect("an answer");
            assert_ne!(explained.agreement, t(text::AGREES_NOT), "{label}");
        }
        assert_eq!(shown.parts.iter().map(|part| part.bytes).sum::<u64>(), shown.gpu_bytes);
    }

    #[test]
    fn with_its_config_it_is_explained_to_the_digit() {
        let shown = shown(MESSAGE, "batch_size = 64\ngradient_accumulation_steps = 1\n", &Options::default())
            .expect("an answer");
        assert_eq!(shown.agreement, t(text::REQUESTED_AND_ALLOCATED_MATCH));
        let session = shown.session.expect("a run");
        assert_eq!(session.options.gpu, "GeForce RTX 4070");
        assert!(shown.fixes.is_some_and(|fixes| fixes.fixes[0].fits));
    }

    #[test]
    fn example_agrees_with_its_config() {
        let example = shown(text::EXAMPLE_MESSAGE, text::EXAMPLE_CONFIG, &Options::default()).expect("an answer");
        assert_eq!(example.agreement, t(text::AGREES_EXACTLY));
    }

    #[test]
    fn a_description_is_understood_or_refused() {
        let understood = shown(MESSAGE, "124M, batch 64", &Options::default()).expect("an answer");
        assert_eq!(understood.agreement, t(text::REQUESTED_AND_ALLOCATED_MATCH), "{}", understood.sentence);
        let refused = shown(MESSAGE, "my run on a toaster", &Options::default()).expect("an answer");
        assert_eq!(refused.config_fault, t(text::CONFIG_WITHOUT_SETTINGS));
        assert_eq!(refused.unsolved, shown(MESSAGE, "", &Options::default()).expect("an answer").unsolved);
        assert!(refused.fixes.is_none() && refused.agreement.is_empty() && refused.session.is_none());
    }

    #[test]
    fn a_config_that_was_not_read_is_judged_by_no_defaults() {
        let shown =
            shown(MESSAGE, "python train.py config/mine.py --batch_size=64", &Options::default()).expect("an answer");
        assert_eq!(shown.unread.as_deref(), Some("config/mine.py"));
        assert!(shown.fixes.is_none() && shown.agreement.is_empty());
        assert!(shown.problems[0].contains("config/mine.py"), "{:?}", shown.problems);
    }

    #[test]
    fn config_that_fits_is_compared_with_the_message() {
        let shown = shown(MESSAGE, "batch_size = 8\n", &Options::default()).expect("an answer");
        assert_eq!(shown.agreement, t(text::AGREES_NOT));
        assert!(shown.differences[0].contains("6.14 GiB in your message"), "{:?}", shown.differences);
        assert!(shown.fixes.is_none());
        // The text does not request the config again.
        let searched = solved(&Found::default(), &shown.unsolved.expect("a search for another run"), false);
        assert_eq!(searched.headline, t(text::NO_COMMON_RUN_EITHER));
    }

    /// A command of a trainer with the message that its plan predicts on an RTX 3060.
    fn log_of(command: &str) -> String {
        let options = Options { gpu: "RTX 3060".into(), ..Options::default() };
        let run = input_in(command).expect("a command").expect("a run").read().expect("a run");
        let request = TrainerRequest::new(run, options.machine().expect("a GPU")).expect("a request");
        let oom = plan(request).expect("a plan").oom.expect("a failure");
        format!("$ {command}\n{}\n", oom.message)
    }

    #[test]
    fn a_message_of_another_trainer_is_explained_with_its_run() {
        for command in [
            "accelerate launch sft.py --model_name_or_path Qwen/Qwen3-0.6B --bf16 --per_device_train_batch_size=16",
            "python -m scripts.base_train --compile=False --depth=12 --device-batch-size=16",
        ] {
            let shown = shown(&log_of(command), "", &Options::default()).expect("an answer");
            assert_eq!(shown.agreement, t(text::AGREES_EXACTLY), "{}", shown.sentence);
            let (input, options) = shown.trainer.expect("a run of a trainer");
            assert_eq!(options.gpu, "GeForce RTX 3060 12GB");
            let advice = advice_on(&input, &options).expect("a plan");
            assert!(advice.fixes.first().is_some_and(TrainerFix::fits), "{command}");
            assert!(shown.session.is_none() && shown.fixes.is_none() && shown.unsolved.is_none());
        }
    }

    #[test]
    fn an_option_that_is_not_planned_is_named() {
        let text = format!("$ python -m scripts.base_train --depth=many\n{MESSAGE}\n");
        let shown = shown(&text, "", &Options::default()).expect("an answer");
        assert!(shown.problems.iter().any(|problem| problem.contains("depth")), "{:?}", shown.problems);
        assert!(shown.trainer.is_none());
    }

    #[test]
    fn nothing_pasted_is_nothing_shown() {
        assert_eq!(shown(" \n", "", &Options::default()), None);
    }
}
