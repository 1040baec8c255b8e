//! The calculators whose runs can be compared: that of nanoGPT, and that of the other trainers.

use headroom_planner::{
    advice::Change,
    link::is_private,
    nanogpt::{Value, defaults},
    session::Options,
    survey::Summary,
    train_config::{Attention, CrossEntropy},
    trainers::{TrainerRequest, arguments::Kind, input::Trainer, presets::PRESETS},
};
use leptos::prelude::*;

use super::{
    super::{
        answer::PlannedSession,
        budget::Budget,
        course::Drawn,
        entry::Faults,
        fixes::{self, Row, applied, with_batch_size},
        gpu::GpuDraft,
        needs::Needs,
        no_plan::NoPlan,
        run_answer::{Obstacle, no_plan},
        session::Session,
        trainer::{TrainerPage, TrainerSession, advice_on, batch_key, display_name, fix_row, planned, preset_of},
        trainer_form::key,
        verdict::Verdict,
    },
    run::{ComparedPlan, ComparedRun, Setting, Times},
};
use crate::text::{self, say, t};

/// The id of the largest micro-batch size in a list of fixes.
pub const LARGER: &str = "larger";

/// A fix, with the run that it makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal<S> {
    /// The fix in words.
    pub row: Row,
    /// The run with the fix.
    pub session: S,
}

/// The fixes of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FixList<S> {
    /// The text above or instead of the fixes.
    pub lead: String,
    /// The largest micro-batch size, if a larger one than the run's fits, with the label of its button.
    pub larger: Option<(String, Proposal<S>)>,
    /// The fixes, best first.
    pub fixes: Vec<Proposal<S>>,
}

impl<S> FixList<S> {
    /// The fix of an id.
    pub fn find(&self, id: &str) -> Option<&Proposal<S>> {
        let larger = self.larger.iter().map(|(_, proposal)| proposal);
        larger.chain(&self.fixes).find(|proposal| proposal.row.id == id)
    }
}

/// The state of a calculator.
pub trait Calculator: Copy + Send + Sync + 'static {
    /// The user's input.
    type Session: Clone + PartialEq + Send + Sync + 'static;

    /// The user's input.
    fn session(self) -> ReadSignal<Self::Session>;

    /// Changes the input by a completed action, which Back undoes.
    fn commit(self, change: impl FnOnce(&mut Self::Session));

    /// The run of the fields, tracked. It has no plan while a field is invalid.
    fn compared(self) -> ComparedRun;

    /// The fragment of the run, tracked.
    fn link(self) -> String;

    /// Plans an input.
    fn compared_of(session: &Self::Session) -> ComparedRun;

    /// The fragment of an input.
    fn link_of(session: &Self::Session) -> String;

    /// The fixes of an input; `None` without a plan.
    fn fixes_of(session: &Self::Session) -> Option<FixList<Self::Session>>;
}

impl Calculator for Budget {
    type Session = Session;

    fn session(self) -> ReadSignal<Self::Session> {
        self.session
    }

    fn commit(self, change: impl FnOnce(&mut Self::Session)) {
        Self::commit(self, change);
    }

    fn compared(self) -> ComparedRun {
        let options = self.session.with(|session| session.options.clone());
        let invalid = invalid_field(self.draft, self.faults);
        self.answer.with(|answer| nanogpt_run(&answer.0, &options, invalid))
    }

    fn link(self) -> String {
        self.run()
    }

    fn compared_of(session: &Self::Session) -> ComparedRun {
        nanogpt_run(&PlannedSession::of(session), &session.options, None)
    }

    fn link_of(session: &Self::Session) -> String {
        session.fragment()
    }

    fn fixes_of(session: &Self::Session) -> Option<FixList<Self::Session>> {
        let answer = PlannedSession::of(session);
        let gpu = answer.plan()?.request.machine.device.name.to_string();
        let rows = fixes::rows(&answer, session)?;
        let proposal = |row: Row, changes: &[Change]| Proposal { row, session: applied(session, changes, &gpu) };
        let larger = rows.larger.map(|larger| {
            let settings = format!("batch_size = {larger}");
            let row = Row { id: LARGER.to_owned(), settings, fits: true, ..Row::default() };
            (say(&text::set_batch(larger)), proposal(row, &[with_batch_size(larger)]))
        });
        let fixes = rows.fixes.into_iter().map(|row| {
            let changes = row.changes.clone();
            proposal(row, &changes)
        });
        Some(FixList { lead: rows.lead, larger, fixes: fixes.collect() })
    }
}

/// The reason why the fields are not a run, tracked; `None` if each is valid.
fn invalid_field(draft: RwSignal<Option<GpuDraft>>, faults: Faults) -> Option<NoPlan> {
    match draft.get() {
        Some(draft) => Some(NoPlan::of_draft(&draft)),
        None => faults.first().map(|(field, expected)| NoPlan::of_fault(field, expected)),
    }
}

fn without_reason() -> NoPlan {
    NoPlan { headline: t(text::NO_PLAN).to_owned(), detail: String::new(), unread: None }
}

/// A run of nanoGPT. `invalid` is the reason why its fields are not a run.
fn nanogpt_run(answer: &PlannedSession, options: &Options, invalid: Option<NoPlan>) -> ComparedRun {
    let plan = match (invalid, answer.planned.as_ref()) {
        (None, Ok(drawn)) => Ok(nanogpt_plan(answer, drawn)),
        (invalid, _) => Err(invalid.or_else(|| NoPlan::of(answer)).unwrap_or_else(without_reason)),
    };
    let config = &answer.resolved.config;
    let is_shown = |key: &str, value: &Value| {
        !is_private(key) && (defaults::find(key).is_some() || !matches!(value, Value::Str(_) | Value::Opaque(_)))
    };
    let keys = config.iter().filter(|(key, value)| is_shown(key, value)).map(|(key, value)| {
        let value = if *value == Value::None { String::new() } else { value.to_string() };
        Setting { name: key.to_owned(), value }
    });
    let mut run = ComparedRun::new(keys.collect(), options, plan);
    run.options.splice(1..1, code(options));
    run
}

fn nanogpt_plan(answer: &PlannedSession, drawn: &Drawn) -> ComparedPlan {
    let (plan, train) = (&drawn.plan, &drawn.plan.request.train);
    let summary = Summary::of_plan(plan);
    let verdict = Verdict::of_answer(answer).map(|verdict| verdict.headline).unwrap_or_default();
    let tokens = [train.batch_size, train.gradient_accumulation_steps, plan.request.gpt.block_size()];
    let times = Times {
        iteration: summary.iteration_seconds,
        per_token: summary.seconds_per_token,
        n_tokens: tokens.map(u128::from).iter().product(),
    };
    let mut compared = ComparedPlan::new(drawn.clone(), verdict, train.gradient_accumulation_steps);
    compared.times = Some(times);
    compared
}

/// Settings of nanoGPT that are not keys: its code, and the number of processes.
fn code(options: &Options) -> [Setting; 7] {
    let attention = match options.attention {
        Attention::Flash => "flash",
        Attention::Math => "math",
    };
    let cross_entropy = match options.cross_entropy {
        CrossEntropy::Whole => text::CROSS_ENTROPY_WHOLE,
        CrossEntropy::Chunked => text::CROSS_ENTROPY_CHUNKED,
        CrossEntropy::Fused => text::CROSS_ENTROPY_FUSED,
    };
    [
        Setting::of(text::ATTENTION, attention.to_owned()),
        Setting::of(text::OPTIMIZER, t(options.optimizer.spec().label).to_owned()),
        Setting::of(text::CROSS_ENTROPY, t(cross_entropy).to_owned()),
        Setting::flag(text::CHECKPOINTING, options.activation_checkpointing),
        Setting::flag(text::DEL_EVAL_LOGITS, options.del_eval_logits),
        Setting::flag(text::DEL_TRAIN_LOGITS, options.del_train_logits),
        Setting::of(text::PROCESSES, options.world_size.to_string()),
    ]
}

impl Calculator for TrainerPage {
    type Session = TrainerSession;

    fn session(self) -> ReadSignal<TrainerSession> {
        self.session
    }

    fn commit(self, change: impl FnOnce(&mut TrainerSession)) {
        Self::commit(self, change);
    }

    fn compared(self) -> ComparedRun {
        let invalid = invalid_field(self.answer.draft, self.answer.faults);
        let planned = self.answer.planned();
        self.session.with(|session| trainer_run(session, planned, invalid))
    }

    fn link(self) -> String {
        self.session.with(TrainerSession::fragment)
    }

    fn compared_of(session: &TrainerSession) -> ComparedRun {
        trainer_run(session, planned(session), None)
    }

    fn link_of(session: &TrainerSession) -> String {
        session.fragment()
    }

    fn fixes_of(session: &TrainerSession) -> Option<FixList<TrainerSession>> {
        let advice = advice_on(session.input(), &session.options)?;
        let fixes = advice.fixes.iter().map(|fix| {
            let mut fixed = session.clone();
            fixed.apply(fix);
            Proposal { row: fix_row(fix), session: fixed }
        });
        let name = batch_key(session.trainer);
        let larger = advice.largest.iter().find(|(knob, _)| knob.key == name).and_then(|(knob, largest)| {
            let larger = largest.filter(|largest| *largest > knob.value)?;
            let mut fixed = session.clone();
            fixed.set(key(session.trainer, name)?, &larger.to_string());
            let settings = format!("--{name}={larger}");
            let row = Row { id: LARGER.to_owned(), settings: settings.clone(), fits: true, ..Row::default() };
            Some((settings, Proposal { row, session: fixed }))
        });
        let lead = match &larger {
            Some(_) => format!("{}:", t(text::TRAINER_LARGEST)),
            None => advice.obstacle.iter().map(say).collect::<Vec<_>>().join(" "),
        };
        Some(FixList { lead, larger, fixes: fixes.collect() })
    }
}

/// A run of another trainer. `invalid` is the reason why its fields are not a run.
fn trainer_run(
    session: &TrainerSession,
    planned: Result<Drawn<TrainerRequest>, Obstacle>,
    invalid: Option<NoPlan>,
) -> ComparedRun {
    let plan = match (invalid, planned) {
        (Some(invalid), _) => Err(invalid),
        (None, Ok(drawn)) => {
            let verdict = Verdict::of(&drawn.plan, &Needs::default()).headline;
            let n_micro_steps = drawn.plan.request.run().n_micro_steps();
            Ok(ComparedPlan::new(drawn, verdict, n_micro_steps))
        }
        (None, Err(obstacle)) => Err(no_plan(&obstacle)),
    };
    let input = session.input();
    let model = (session.trainer == Trainer::Hf).then(|| Setting::of(text::MODEL, model(&input.config)));
    let trainer = Setting::of(text::TRAINER, display_name(session.trainer).to_owned());
    // Links contain neither names nor paths.
    let is_shown = |kind: Kind, affects_memory: bool| kind != Kind::Text || affects_memory;
    let keys = session.trainer.keys().iter().filter(|key| is_shown(key.kind, key.affects_memory));
    let keys = keys.map(|key| Setting { name: key.name.to_owned(), value: input.value(key) });
    let mut run = ComparedRun::new(keys.collect(), &session.options, plan);
    run.options.splice(0..0, [trainer, model.unwrap_or_else(|| Setting::of(text::MODEL, String::new()))]);
    run
}

/// The model of a config: its name in the list, else its type and size.
fn model(config: &str) -> String {
    if let Some(preset) = preset_of(config) {
        return PRESETS[preset].name.to_owned();
    }
    let config: serde_json::Value = serde_json::from_str(config).unwrap_or_default();
    let text = |key: &str| config.get(key).map(|value| value.to_string().replace('"', "")).unwrap_or_default();
    format!("{} {} × {}", text("model_type"), text("num_hidden_layers"), text("hidden_size")).trim().to_owned()
}
