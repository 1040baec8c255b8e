//! The result of a session: parsed, resolved and planned once for all views.

use std::sync::Arc;

use headroom_planner::{
    nanogpt::{Format, PastedKind, Settings, Severity, Source, Value, recognize},
    plan::{Plan, plan},
    session::{Finding, ResolvedSession, resolve_settings},
};
use headroom_text::{Text, decimal};

use super::{
    course::{Drawn, PlanWithTimeline},
    parse,
    session::{ConfigFile, Session},
};

/// Classification of the text's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Empty, or comments only.
    Empty,
    /// A training run.
    Run,
    /// Text without any nanoGPT key.
    Foreign,
    /// Text without any nanoGPT key that contains an out-of-memory error; the Diagnose page handles it.
    OutOfMemory,
}

/// Words of PyTorch's and CUDA's out-of-memory messages.
const MESSAGES: [&str; 2] = ["CUDA out of memory", "CUDA error: out of memory"];

impl Reading {
    /// Classifies a text.
    pub fn of_text(text: &str) -> Self {
        let pasted = parse(text);
        Self::of(text, pasted.kind, &pasted.read())
    }

    /// Classifies a text of a kind, from its settings.
    pub fn of(text: &str, kind: PastedKind, settings: &Settings) -> Self {
        let is_comment = |line: &str| matches!(line.trim_start().as_bytes(), [] | [b'#' | b'`', ..]);
        if text.lines().all(is_comment) {
            return Self::Empty;
        }
        if kind == PastedKind::Unsupported {
            return Self::Foreign;
        }
        // A config or a log without any setting is of an unknown run.
        let needs_settings = matches!(kind, PastedKind::Config | PastedKind::Log);
        if !needs_settings || !settings.unread.is_empty() || !settings.sets_nothing() {
            Self::Run
        } else if text.to_ascii_lowercase().contains("out of memory") {
            Self::OutOfMemory
        } else {
            Self::Foreign
        }
    }
}

impl Reading {
    /// Whether the text describes a run. If it sets nothing, a plan would describe train.py's defaults, which the user
    /// did not request.
    pub const fn is_run(self) -> bool {
        matches!(self, Self::Run | Self::Empty)
    }
}

/// Reports whether a text describes a whole run, so that inserting it into another text makes no sense.
pub fn describes_run(text: &str) -> bool {
    matches!(recognize(text), Some(Format::Link(_) | Format::Plan { .. } | Format::Settings(_)))
}

/// The parsed, resolved and planned session.
#[derive(Debug)]
pub struct PlannedSession {
    /// The detected kind of the text.
    pub kind: PastedKind,
    /// The classification of the text's content.
    pub reading: Reading,
    /// Whether the text contains an out-of-memory message, alone or in the output of a run.
    pub has_message: bool,
    /// The parsed settings, with problems and findings.
    pub resolved: ResolvedSession,
    /// The configs that a command or a log names, in its order, or the opened file. Those of a command include the
    /// arguments before the last one, which the configs override.
    pub configs: Vec<Source>,
    /// The words of a command up to its script, and the number of processes that they start.
    pub launch: (Vec<String>, u64),
    /// The plan with its timeline, or the reason for its absence.
    pub planned: Result<Drawn, Option<Text>>,
    /// The most recent plan, which stays drawn, faded, while a half-typed config has none.
    last: Option<Drawn>,
}

impl PlannedSession {
    /// Reads, resolves and plans a session.
    pub fn of(session: &Session) -> Self {
        Self::after(session, None)
    }

    /// Does the same as [`PlannedSession::of`], but keeps the plan drawn by `before` if the session has no plan.
    pub fn after(session: &Session, before: Option<&Self>) -> Self {
        let mut pasted = parse(&session.text);
        let mut resolved = resolve_settings(pasted.read(), &session.options);
        let reading = Reading::of(&session.text, pasted.kind, &resolved.settings);
        let planned = match resolved.request.take().filter(|_| reading.is_run()) {
            Some(request) => plan(request).map_err(|error| Some(error.text())),
            None => Err(None),
        };
        let planned = planned.map(|plan| {
            // Each evaluation has as many batches of the training data as of the validation data.
            let eval_batches = plan.request.train.eval_iters.saturating_mul(2);
            Drawn::from(PlanWithTimeline::of(plan, eval_batches))
        });
        let launch = (std::mem::take(&mut pasted.launch), pasted.world_size.unwrap_or(1));
        Self {
            last: planned.clone().ok().or_else(|| before?.last.clone()),
            kind: pasted.kind,
            has_message: reading == Reading::OutOfMemory || MESSAGES.iter().any(|words| session.text.contains(words)),
            reading,
            configs: match pasted.kind {
                PastedKind::Command => {
                    let end = pasted.sources.iter().rposition(is_config).map_or(0, |last| last + 1);
                    pasted.sources.truncate(end);
                    pasted.sources
                }
                PastedKind::Log => pasted.sources.into_iter().filter(is_config).collect(),
                PastedKind::Config => {
                    let file = |file: &ConfigFile| Source::File { name: file.name.clone(), text: file.text.clone() };
                    session.file.iter().map(file).collect()
                }
                _ => vec![],
            },
            launch,
            resolved,
            planned,
        }
    }

    /// The plan, if there is one.
    pub fn plan(&self) -> Option<&Plan> {
        self.planned.as_ref().ok().map(|planned| &planned.plan)
    }

    /// The drawn plan: this answer's plan, else the most recent one.
    pub fn drawn(&self) -> Option<&Drawn> {
        self.last.as_ref()
    }

    /// The resolved value of an integer key.
    pub fn count(&self, key: &str) -> Option<u64> {
        match self.resolved.config.get(key)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The resolved value of a numeric key, as a field shows it.
    pub fn number_text(&self, key: &str) -> String {
        match self.resolved.config.get(key) {
            Some(Value::Int(number)) => number.to_string(),
            Some(Value::Float(number)) if number.is_finite() => decimal::shortest(*number),
            _ => String::new(),
        }
    }

    /// The resolved value of a boolean key.
    pub fn flag(&self, key: &str) -> bool {
        self.resolved.config.get(key) == Some(&Value::Bool(true))
    }

    /// The resolved value of a string key.
    pub fn word(&self, key: &str) -> String {
        self.resolved.config.get_str(key).unwrap_or_default().to_owned()
    }

    /// Returns whether OpenAI's weights decide the model's shape, so that the shape keys have no effect.
    pub fn shape_is_loaded(&self) -> bool {
        self.word("init_from").starts_with("gpt2")
    }

    /// The error of the GPU's name or memory. The GPU field shows it.
    pub fn gpu_fault(&self) -> Option<Text> {
        let fault = self.resolved.findings.iter().find(|finding| is_gpu_fault(finding));
        fault.map(|finding| finding.message.clone())
    }

    /// The reason for the absence of a plan, in a sentence.
    pub fn obstacle(&self) -> Option<Text> {
        match &self.planned {
            Ok(_) => None,
            Err(Some(error)) => Some(error.clone()),
            Err(None) => {
                let errors = self.resolved.findings.iter().filter(|finding| finding.severity == Severity::Error);
                let of_run = errors.map(|finding| finding.message.clone()).next();
                let problems = self.resolved.settings.problems.as_slice().iter();
                let mut of_text = problems.filter(|problem| problem.severity == Severity::Error);
                of_run.or_else(|| of_text.next().map(|problem| problem.message.clone()))
            }
        }
    }
}

/// Returns whether a finding is an error of the GPU's name or memory.
pub fn is_gpu_fault(finding: &Finding) -> bool {
    finding.severity == Severity::Error && ["gpu", "vram"].contains(&finding.key)
}

fn is_config(source: &Source) -> bool {
    matches!(source, Source::File { .. } | Source::Named { .. })
}

/// A shared answer. Two are equal if they are the same allocation.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<PlannedSession>);

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
impl PlannedSession {
    /// Reads, resolves and plans a pasted text.
    pub fn of_text(text: &str) -> Self {
        Self::of(&Session { text: text.into(), ..Session::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_planned() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        assert!(plan.fits);
        assert_eq!(answer.count("batch_size"), Some(4));
        assert_eq!(answer.count("n_layer"), Some(12));
        assert!(!answer.flag("compile"));
        assert_eq!(answer.word("dtype"), "bfloat16");
    }

    #[test]
    fn an_impossible_model_has_an_obstacle_and_keeps_its_fields() {
        let answer = PlannedSession::of_text("n_head = 7\n");
        assert!(answer.plan().is_none());
        assert!(answer.obstacle().is_some_and(|why| why.to_string().contains("n_embd")));
        assert_eq!(answer.count("n_head"), Some(7));
    }

    #[test]
    fn a_half_typed_config_keeps_the_last_plan_drawn() {
        let session = |text: &str| Session { text: text.into(), ..Session::default() };
        let first = PlannedSession::after(&session("batch_size = 4"), None);
        let second = PlannedSession::after(&session("n_head = 7"), Some(&first));
        let third = PlannedSession::after(&session("n_head = 0"), Some(&second));
        assert!(third.plan().is_none());
        assert_eq!(third.drawn().map(|planned| planned.plan.peak.live_bytes), first.plan().map(|p| p.peak.live_bytes));
    }

    #[test]
    fn a_text_without_a_key_of_nanogpt_is_foreign() {
        for (text, reading) in [
            ("", Reading::Empty),
            ("\n# only\n  # comments\n```\n", Reading::Empty),
            ("batch_size = 4", Reading::Run),
            ("batch_size = open('b').read()", Reading::Run),
            ("python train.py", Reading::Run),
            ("Overriding: batch_size = 4", Reading::Run),
            ("mine = 3", Reading::Foreign),
            ("number of parameters: 353.77M", Reading::Foreign),
            ("<!doctype html><html><body></body></html>", Reading::Foreign),
            ("\u{fffd}\0PNG\u{1}", Reading::Foreign),
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB.", Reading::OutOfMemory),
            ("batch_size = 4  # out of memory at 8", Reading::Run),
        ] {
            assert_eq!(PlannedSession::of_text(text).reading, reading, "{text}");
        }
    }

    #[test]
    fn loaded_weights_decide_the_shape() {
        assert!(PlannedSession::of_text("init_from = 'gpt2-xl'").shape_is_loaded());
        assert!(!PlannedSession::of_text("").shape_is_loaded());
    }
}
