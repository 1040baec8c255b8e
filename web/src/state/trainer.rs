//! The page of runs of other trainers than nanoGPT: the user's input and its plan.

use headroom_planner::{
    link::trainer::{TrainerLink, encode},
    plan::Plan,
    session::Options,
    trainers::{
        Run, TrainerRequest,
        arguments::{ArgumentError, Key},
        fixes::{TrainerAdvice, TrainerFix, advise},
        input::{Input, Trainer},
        plan, presets,
    },
};
use headroom_text::Text;
use leptos::prelude::*;

use super::{
    course::{Drawn, PlanWithTimeline},
    entry::Faults,
    fixes::{Row, in_line},
    format,
    gpu::{GpuDraft, OnGpu},
    memo::memo,
    run_answer::{Obstacle, RunAnswer},
    steps::Steps,
    trainer_form::key,
};
use crate::text::{self, say, t};

/// Options of a fine-tuning that fits on GPUs of 12 GB, for a model without options.
pub const DEFAULT_HF: &str = "--bf16 --per_device_train_batch_size=2 --gradient_checkpointing --lora_r=16";

/// Separator of the texts in the state of a history entry.
const SEPARATOR: &str = "\0";

/// The user's input.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerSession {
    /// The shown trainer.
    pub trainer: Trainer,
    /// The run of each trainer, in the order of [`Trainer::ALL`]. A run that is not shown is kept.
    inputs: [Input; Trainer::ALL.len()],
    /// The GPU and the environment.
    pub options: Options,
}

impl Default for TrainerSession {
    /// A run of each trainer that fits on GPUs of 12 GB.
    fn default() -> Self {
        let run = |trainer, command: &str, config| Input { trainer, command: command.to_owned(), config };
        let nanochat = "--compile=False --depth=8 --device-batch-size=4";
        let model = config_text(&presets::PRESETS[0]);
        Self {
            trainer: Trainer::default(),
            inputs: [run(Trainer::Nanochat, nanochat, String::new()), run(Trainer::Hf, DEFAULT_HF, model)],
            options: Options::default(),
        }
    }
}

/// The `config.json` of a preset.
pub fn config_text(preset: &presets::Preset) -> String {
    serde_json::to_string_pretty(&preset.config()).unwrap_or_default()
}

/// Position of the model of a `config.json` among the presets.
pub fn preset_of(config: &str) -> Option<usize> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    presets::PRESETS.iter().position(|preset| preset.config() == config)
}

impl TrainerSession {
    /// The run of the shown trainer.
    pub fn input(&self) -> &Input {
        &self.inputs[self.trainer as usize]
    }

    /// The run of the shown trainer.
    pub fn input_mut(&mut self) -> &mut Input {
        &mut self.inputs[self.trainer as usize]
    }

    /// The fragment, without `#`, of the run.
    pub fn fragment(&self) -> String {
        encode(self.input(), &self.options)
    }

    /// The texts of all runs, for a history entry.
    pub fn state(&self) -> String {
        let texts: Vec<&str> =
            self.inputs.iter().flat_map(|input| [input.command.as_str(), input.config.as_str()]).collect();
        texts.join(SEPARATOR)
    }

    /// Opens a link. The runs of the history entry replace that of the link, which lacks names and comments, and keep
    /// those of the other trainers.
    pub fn open(&mut self, link: TrainerLink, state: Option<&str>) {
        self.options = link.options_after(&self.options);
        let Input { trainer, command, config } = link.input;
        self.trainer = trainer;
        let before = self.input_mut();
        // A link to the trainer alone keeps its run, and one without a config keeps the model.
        if !command.is_empty() || !config.is_empty() {
            before.command = command;
        }
        if !config.is_empty() {
            before.config = config;
        }
        let texts: Vec<&str> = state.map(|state| state.split(SEPARATOR).collect()).unwrap_or_default();
        if texts.len() == 2 * self.inputs.len() {
            for (input, texts) in self.inputs.iter_mut().zip(texts.chunks(2)) {
                (input.command, input.config) = (texts[0].to_owned(), texts[1].to_owned());
            }
        }
    }

    /// Sets an option of the shown run.
    pub fn set(&mut self, key: &Key, value: &str) {
        self.input_mut().set(key, value);
    }

    /// Applies a fix.
    pub fn apply(&mut self, fix: &TrainerFix) {
        apply(&mut self.inputs[self.trainer as usize], &mut self.options, fix);
    }

    /// The run in one line. Its model is the preset at position `preset`.
    pub fn summary(&self, preset: Option<usize>) -> String {
        summary(self.input(), preset)
    }
}

/// A run in one line. Its model is the preset at position `preset`.
pub fn summary(input: &Input, preset: Option<usize>) -> String {
    let value = |name: &str| key(input.trainer, name).map(|key| input.value(key)).unwrap_or_default();
    let batch = value(batch_key(input.trainer));
    match input.trainer {
        Trainer::Nanochat => format!("nanochat d{} · batch {batch}", value("depth")),
        Trainer::Hf => {
            let model = preset.map_or("Hugging Face", |index| presets::PRESETS[index].name);
            let rank = value("lora_r");
            let lora = if rank == "0" { String::new() } else { format!(" · LoRA {rank}") };
            format!("{model}{lora} · batch {batch}")
        }
    }
}

/// The option with the micro-batch size of a trainer.
pub const fn batch_key(trainer: Trainer) -> &'static str {
    match trainer {
        Trainer::Nanochat => "device-batch-size",
        Trainer::Hf => "per_device_train_batch_size",
    }
}

/// Applies a fix to a run on a GPU.
pub fn apply(input: &mut Input, options: &mut Options, fix: &TrainerFix) {
    for (name, value) in &fix.options {
        if let Some(key) = key(input.trainer, name) {
            input.set(key, value);
        }
    }
    options.expandable_segments |= fix.expandable;
}

/// Advice on a run that does not fit; `None` without a plan.
pub fn advice_on(input: &Input, options: &Options) -> Option<TrainerAdvice> {
    plan_of(input, options).ok().as_ref().map(advise)
}

/// Plans the shown run.
///
/// # Errors
/// The GPU is unknown, or the run has no plan.
pub fn planned(session: &TrainerSession) -> Result<Drawn<TrainerRequest>, Obstacle> {
    let plan = plan_of(session.input(), &session.options)?;
    let eval_batches = plan.request.run().eval_batches();
    Ok(PlanWithTimeline::of(plan, eval_batches).into())
}

/// Plans a run on the GPU of the options.
///
/// # Errors
/// The GPU is unknown, or the run has no plan.
pub fn plan_of(input: &Input, options: &Options) -> Result<Plan<TrainerRequest>, Obstacle> {
    let machine = options.machine().map_err(Obstacle::Machine)?;
    let run = input.read().map_err(|error| Obstacle::Run(error.to_string()))?;
    let request = TrainerRequest::new(run, machine).map_err(|error| Obstacle::Run(words(&error, input.trainer)))?;
    plan(request).map_err(|error| Obstacle::Run(say(&error.text())))
}

/// Why a run has no plan on a GPU, in words.
fn words(error: &ArgumentError, trainer: Trainer) -> String {
    match error {
        ArgumentError::Gpu { gpu, cause, .. } => {
            say(&text::no_plan_on_gpu(display_name(trainer), gpu.as_str(), Text::from(*cause)))
        }
        error => error.to_string(),
    }
}

/// Name of a trainer as its authors write it.
pub const fn display_name(trainer: Trainer) -> &'static str {
    match trainer {
        Trainer::Nanochat => "nanochat",
        Trainer::Hf => "Hugging Face",
    }
}

/// The signals of the page.
#[derive(Clone, Copy)]
pub struct TrainerPage {
    /// The user's input. Only [`TrainerPage::edit`] and [`TrainerPage::commit`] change it.
    pub session: ReadSignal<TrainerSession>,
    write: WriteSignal<TrainerSession>,
    /// The number of completed actions, each of which is a step of the history.
    pub n_steps: RwSignal<u32>,
    /// The steps that can be undone and redone.
    pub steps: RwSignal<Steps>,
    /// The plan.
    pub answer: RunAnswer<TrainerRequest>,
    /// Position of the model among the presets, compared only when the config changes.
    pub preset: Memo<Option<usize>>,
    /// A notice about the parts of an opened link that were ignored.
    pub notice: RwSignal<Option<Text>>,
}

impl TrainerPage {
    /// Creates the signals, starting with a run of nanochat.
    pub fn new() -> Self {
        let (session, write) = signal(TrainerSession::default());
        let answer = RunAnswer::new(move || session.with(planned));
        let config = memo(move || session.with(|session| session.input().config.clone()));
        let preset = memo(move || config.with(|config| preset_of(config)));
        let notice = RwSignal::new(None);
        let (n_steps, steps) = (RwSignal::new(0), RwSignal::new(Steps::default()));
        Self { session, write, n_steps, steps, answer, preset, notice }
    }

    /// Changes the session while the user types or drags.
    pub fn edit(self, change: impl FnOnce(&mut TrainerSession)) {
        self.write.update(change);
    }

    /// Changes the session by a completed action, which Back undoes.
    pub fn commit(self, change: impl FnOnce(&mut TrainerSession)) {
        self.n_steps.update(|n| *n = n.wrapping_add(1));
        self.edit(change);
        self.answer.faults.reset();
    }

    /// Opens the run of a link, with the texts of its history entry.
    pub fn open(self, link: TrainerLink, state: Option<&str>) {
        let notice = (!link.unknown.is_empty()).then(|| text::left_out(&link.unknown, None));
        self.notice.set(notice);
        self.edit(|session| session.open(link, state));
        self.answer.reset();
    }
}

impl OnGpu for TrainerPage {
    fn options(self) -> Options {
        self.session.with(|session| session.options.clone())
    }

    fn edit_options(self, change: impl FnOnce(&mut Options)) {
        self.edit(|session| change(&mut session.options));
    }

    fn commit_options(self, change: impl FnOnce(&mut Options)) {
        self.commit(|session| change(&mut session.options));
    }

    fn draft(self) -> RwSignal<Option<GpuDraft>> {
        self.answer.draft
    }

    fn faults(self) -> Faults {
        self.answer.faults
    }

    fn gpu_bytes(self) -> Option<u64> {
        self.answer.gpu_bytes()
    }

    fn gpu_fault(self) -> Option<Text> {
        self.answer.gpu_fault()
    }
}

/// The changes of a fix, as options of the command and the allocator's setting.
pub fn settings(fix: &TrainerFix) -> String {
    let expandable = fix.expandable.then(|| t(text::SWITCH_EXPANDABLE).to_owned());
    fix.arguments().into_iter().chain(expandable).collect::<Vec<_>>().join("\n")
}

/// The effect of a fix on memory, on training, and on time.
pub fn facts(fix: &TrainerFix) -> String {
    let size = format::size(fix.room.headroom_bytes.unsigned_abs());
    let outcome = say(&if fix.fits() { text::fix_leaves(size) } else { text::fix_lacks(size) });
    let saves = say(&text::fix_saves(format::size(fix.saves_bytes)));
    let slower = fix.is_slower.then(|| t(text::TRAINER_SLOWER).to_owned());
    let facts: Vec<_> = [outcome, t(fix.effect.text()).to_owned(), saves].into_iter().chain(slower).collect();
    in_line(&facts)
}

/// A fix in words.
pub fn fix_row(fix: &TrainerFix) -> Row {
    let notes: Vec<&str> = fix.notes.iter().map(|note| t(*note)).collect();
    Row {
        id: fix.ids.join("+"),
        settings: settings(fix),
        facts: facts(fix),
        reason: notes.join(" "),
        fits: fix.fits(),
        ..Row::default()
    }
}

/// The keys with which each run of the trainer differs from one without effect, for its remark.
pub fn without_effect(run: &Run) -> Option<String> {
    let keys: Vec<String> = run.without_effect().iter().map(|key| format!("--{key}")).collect();
    (!keys.is_empty()).then(|| keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{
        super::run_answer::{PlannedRun, n_parameters, no_plan},
        *,
    };
    use headroom_planner::link::trainer::decode;

    #[test]
    fn both_default_runs_fit_on_12_gb() {
        for trainer in Trainer::ALL {
            let session = TrainerSession { trainer, ..TrainerSession::default() };
            let answer = PlannedRun::after(planned(&session), None);
            let plan = answer.plan().expect("a plan");
            assert!(plan.fits, "{trainer:?}");
            assert!(n_parameters(plan) > 10_000_000, "{trainer:?}");
        }
    }

    #[test]
    fn a_link_opens_the_same_session() {
        let mut session = TrainerSession { trainer: Trainer::Hf, ..TrainerSession::default() };
        session.set(key(Trainer::Hf, "lora_r").expect("a key"), "32");
        let mut opened = TrainerSession::default();
        opened.open(decode(&session.fragment()).expect("a link"), None);
        assert_eq!(opened, session);
        assert!(preset_of(&opened.input().config).is_some());
    }

    #[test]
    fn a_link_without_a_config_keeps_the_model() {
        let mut opened = TrainerSession::default();
        opened.open(decode("1&trainer=hf&options=--bf16").expect("a link"), None);
        assert_eq!((opened.input().command.as_str(), preset_of(&opened.input().config)), ("--bf16", Some(0)));
    }

    #[test]
    fn a_history_entry_keeps_the_runs_of_both_trainers() {
        let mut session = TrainerSession::default();
        session.input_mut().command.push_str(" --run=mine");
        session.trainer = Trainer::Hf;
        session.input_mut().command = "python mine.py --bf16".to_owned();
        let mut opened = TrainerSession::default();
        opened.open(decode(&session.fragment()).expect("a link"), Some(&session.state()));
        assert_eq!(opened, session);
    }

    #[test]
    fn an_error_keeps_the_plan_drawn_and_names_the_option() {
        let mut session = TrainerSession::default();
        let first = PlannedRun::after(planned(&session), None);
        session.input_mut().command = "--depth=many".to_owned();
        let second = PlannedRun::after(planned(&session), Some(&first));
        assert_eq!(second.last, first.planned.ok());
        let words = no_plan(&second.planned.expect_err("an invalid depth"));
        assert!(words.detail.contains("--depth=many"), "{words:?}");
    }

    #[test]
    fn an_applied_fix_fits() {
        let mut session = TrainerSession { trainer: Trainer::Hf, ..TrainerSession::default() };
        session.input_mut().command = "--bf16 --per_device_train_batch_size=16".to_owned();
        let answer = PlannedRun::after(planned(&session), None);
        let plan = answer.plan().expect("a plan");
        assert!(!plan.fits);
        let advice = advise(plan);
        let fix = advice.fixes.first().expect("a fix");
        assert!(fix.fits() && facts(fix).starts_with("fits"), "{}", facts(fix));
        session.apply(fix);
        let after = PlannedRun::after(planned(&session), None);
        let plan = after.plan().expect("a plan");
        assert_eq!((plan.fits, plan.headroom_bytes), (true, fix.room.headroom_bytes), "{}", session.input().command);
    }
}
