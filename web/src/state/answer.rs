//! What a session comes to: read, resolved and planned, once for all that is shown.

use std::sync::Arc;

use headroom_shared::{
    memory::timeline::Timeline,
    nanogpt::{PastedKind, Settings, Source, from_pasted_text},
    plan::{Plan, plan},
    session::{Resolved, resolve_settings},
    text::Text,
};
use serde_json::Value as Json;

use super::{
    course::{course, failure_column, largest_column},
    json,
    session::{CONFIG_NAME, Session},
};

/// What is in the text, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nothing, or comments.
    Empty,
    /// A run.
    Run,
    /// Something without a single key of nanoGPT.
    Foreign,
    /// The same, with words of an error for want of memory: another page's question.
    OutOfMemory,
}

impl Reading {
    /// What is in a text.
    pub fn of_text(text: &str) -> Self {
        let pasted = from_pasted_text(CONFIG_NAME, text);
        Self::of(text, pasted.kind, &pasted.read())
    }

    fn of(text: &str, kind: PastedKind, settings: &Settings) -> Self {
        let is_comment = |line: &str| matches!(line.trim_start().as_bytes(), [] | [b'#' | b'`', ..]);
        if text.lines().all(is_comment) {
            return Self::Empty;
        }
        if kind != PastedKind::Config || !settings.unread.is_empty() || !settings.sets_nothing() {
            Self::Run
        } else if text.to_ascii_lowercase().contains("out of memory") {
            Self::OutOfMemory
        } else {
            Self::Foreign
        }
    }
}

/// What is shown.
#[derive(Debug)]
pub struct Answer {
    /// What the text was taken for.
    pub kind: PastedKind,
    /// What is in it.
    pub reading: Reading,
    /// Everything read, with problems and findings.
    pub resolved: Resolved,
    /// The configs that a command or a log names, in its order.
    pub configs: Vec<Source>,
    /// The plan with its timeline, or why there is none.
    pub planned: Result<Arc<Planned>, Option<Text>>,
    /// The last plan there was, which stays drawn, faded, while a half-typed config has none.
    last: Option<Arc<Planned>>,
}

/// A plan and its course.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Memory over the run, without repeats.
    pub timeline: Timeline,
}

impl Planned {
    /// The column that is shown where nobody points: the failure, else the peak.
    pub fn first_shown(&self) -> usize {
        match self.plan.failure {
            Some(failure) => failure_column(&self.timeline, failure),
            None => largest_column(&self.timeline),
        }
    }
}

impl Answer {
    /// Reads, resolves and plans.
    pub fn of(session: &Session) -> Self {
        Self::after(session, None)
    }

    /// The same, after an answer whose plan stays drawn where there is none now.
    pub fn after(session: &Session, before: Option<&Self>) -> Self {
        let pasted = from_pasted_text(CONFIG_NAME, &session.text);
        let mut resolved = resolve_settings(pasted.read(), &session.options);
        let reading = Reading::of(&session.text, pasted.kind, &resolved.settings);
        // Where nothing was set, the plan would be of train.py's defaults, which nobody asked for.
        let is_run = matches!(reading, Reading::Run | Reading::Empty);
        let planned = match resolved.request.take().filter(|_| is_run) {
            Some(request) => plan(request).map_err(|error| Some(error.text())),
            None => Err(None),
        };
        let planned = planned.map(|plan| Arc::new(Planned { timeline: course(&plan), plan }));
        Self {
            last: planned.clone().ok().or_else(|| before?.last.clone()),
            kind: pasted.kind,
            reading,
            configs: match pasted.kind {
                PastedKind::Command | PastedKind::Log => pasted.sources.into_iter().filter(is_config).collect(),
                PastedKind::Config | PastedKind::Words => vec![],
            },
            resolved,
            planned,
        }
    }

    /// The plan, where there is one.
    pub fn plan(&self) -> Option<&Plan> {
        self.planned.as_ref().ok().map(|planned| &planned.plan)
    }

    /// The plan that is drawn: this one, else the last there was.
    pub fn drawn(&self) -> Option<&Planned> {
        self.last.as_deref()
    }

    /// The value of a count as the run would have it.
    pub fn count(&self, key: &str) -> Option<u64> {
        match self.resolved.config.get(key)? {
            Json::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// A number as the run would have it, as a field shows it.
    pub fn number_text(&self, key: &str) -> String {
        match self.resolved.config.get(key) {
            Some(Json::Number(number)) => json::number(number),
            _ => String::new(),
        }
    }

    /// A switch as the run would have it.
    pub fn flag(&self, key: &str) -> bool {
        self.resolved.config.get(key).and_then(Json::as_bool).unwrap_or(false)
    }

    /// A word as the run would have it.
    pub fn word(&self, key: &str) -> String {
        self.resolved.config.get(key).and_then(Json::as_str).unwrap_or_default().to_owned()
    }

    /// Whether OpenAI's weights decide the model's shape, so that keys of the shape do nothing.
    pub fn shape_is_loaded(&self) -> bool {
        self.word("init_from").starts_with("gpt2")
    }

    /// Why there is no plan, in a sentence.
    pub fn obstacle(&self) -> Option<Text> {
        use headroom_shared::nanogpt::Severity;
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

fn is_config(source: &Source) -> bool {
    !matches!(source, Source::Override { .. })
}

/// An answer that is handed around; two are equal if they are the same one.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<Answer>);

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
impl Answer {
    /// What a pasted text comes to.
    pub fn of_text(text: &str) -> Self {
        Self::of(&Session { text: text.into(), ..Session::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_planned() {
        let answer = Answer::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        assert!(plan.fits);
        assert_eq!(answer.count("batch_size"), Some(4));
        assert_eq!(answer.count("n_layer"), Some(12));
        assert!(!answer.flag("compile"));
        assert_eq!(answer.word("dtype"), "bfloat16");
    }

    #[test]
    fn an_impossible_model_has_an_obstacle_and_keeps_its_fields() {
        let answer = Answer::of_text("n_head = 7\n");
        assert!(answer.plan().is_none());
        assert!(answer.obstacle().is_some_and(|why| why.to_string().contains("n_embd")));
        assert_eq!(answer.count("n_head"), Some(7));
    }

    #[test]
    fn a_half_typed_config_keeps_the_last_plan_drawn() {
        let session = |text: &str| Session { text: text.into(), ..Session::default() };
        let first = Answer::after(&session("batch_size = 4"), None);
        let second = Answer::after(&session("n_head = 7"), Some(&first));
        let third = Answer::after(&session("n_head = 0"), Some(&second));
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
            ("<!doctype html><html><body></body></html>", Reading::Foreign),
            ("\u{fffd}\0PNG\u{1}", Reading::Foreign),
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB.", Reading::OutOfMemory),
            ("batch_size = 4  # out of memory at 8", Reading::Run),
        ] {
            assert_eq!(Answer::of_text(text).reading, reading, "{text}");
        }
    }

    #[test]
    fn loaded_weights_decide_the_shape() {
        assert!(Answer::of_text("init_from = 'gpt2-xl'").shape_is_loaded());
        assert!(!Answer::of_text("").shape_is_loaded());
    }
}
