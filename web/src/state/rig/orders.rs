//! Runs that the agent starts for the page: the possible orders, the actions on a run, and the state of each button
//! press.

use headroom_protocol::run::{Cause, Device, Run, RunRequest, RunStatus, STOP_MS, Training};

use super::{
    Rig, ShownRun,
    names::called,
    values::{Fact, duration},
};
use crate::{
    state::{format, rig_charts::zone::UtcOffset},
    text::{self, Key, say, t},
};

/// The most remembered presses: one per run, and the start button's.
const PRESSES_MAX: usize = 32;
/// The name of the device that is not a GPU.
const CPU: &str = "cpu";
/// The name of the start button's press; a run's press has its id.
pub const START: &str = "";

/// The configs, data sets and devices that can be ordered.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LaunchOptions {
    /// Not loaded yet.
    #[default]
    Unknown,
    /// Loaded.
    Is(Training),
    /// Failed to load, with the error in words.
    Failed(String),
}

/// Makes an order valid: replaces names that no longer exist by the first available ones.
pub fn fit(order: &mut RunRequest, training: &Training) {
    if training.configs.iter().all(|config| config.name != order.config) {
        let first = training.configs.first().map(|config| config.name.clone()).unwrap_or_default();
        choose_config(order, training, first);
    }
    if !order.dataset.as_ref().is_some_and(|name| training.datasets.contains(name)) {
        order.dataset = dataset_of(&order.config, training);
    }
    let can = |device: &&Device| device.unavailable.is_none();
    if !training.devices.iter().filter(can).any(|device| order.device.as_ref() == Some(&device.name)) {
        order.device = device_of(&order.config, training);
    }
}

fn dataset_of(config: &str, training: &Training) -> Option<String> {
    let own = training.configs.iter().find(|own| own.name == config).and_then(|own| own.dataset.clone());
    own.or_else(|| training.datasets.first().cloned())
}

fn device_of(config: &str, training: &Training) -> Option<String> {
    let own = training.configs.iter().find(|own| own.name == config).and_then(|own| own.device.clone());
    own.or_else(|| training.devices.first().map(|device| device.name.clone()))
}

/// The listed devices: by the GPU's name, and also by its index if there are several, which may have the same name.
pub fn listed(devices: &[Device]) -> Vec<Device> {
    let n_gpus = devices.iter().filter(|device| device.name != CPU).count();
    let listed = |device: &Device| match n_gpus > 1 && device.name != CPU {
        true => Device { label: format!("{} · {}", device.name, device.label), ..device.clone() },
        false => device.clone(),
    };
    devices.iter().map(listed).collect()
}

/// Selects another config, with the data set and the device that it names.
pub fn choose_config(order: &mut RunRequest, training: &Training, name: String) {
    (order.dataset, order.device) = (dataset_of(&name, training), device_of(&name, training));
    order.config = name;
}

/// The order as sent: a blank name is omitted.
pub fn made(order: &RunRequest) -> RunRequest {
    let name = order.name.as_ref().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    RunRequest { name, ..order.clone() }
}

/// An action on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAction {
    /// Finish the iteration, save, and end.
    Stop,
    /// End immediately, for a stopping run that has not ended.
    StopNow,
    /// Leave the queue.
    Remove,
    /// Resume from the checkpoint.
    GoOn,
    /// Start another run with the same order, after a failure without a checkpoint.
    StartAgain,
    /// Delete the run.
    Delete,
}

impl RunAction {
    /// The request's method and the address suffix after the run; `None` for an action that is a new order.
    pub const fn request(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Stop | Self::StopNow | Self::Remove => Some(("POST", "/stop")),
            Self::GoOn => Some(("POST", "/resume")),
            Self::StartAgain => None,
            Self::Delete => Some(("DELETE", "")),
        }
    }

    /// The label of its button.
    pub const fn name(self) -> Key {
        match self {
            Self::Stop => text::RIG_STOP,
            Self::StopNow => text::RIG_STOP_NOW,
            Self::Remove => text::RIG_RULE_REMOVE,
            Self::GoOn => text::RIG_GO_ON,
            Self::StartAgain => text::RIG_START_AGAIN,
            Self::Delete => text::RIG_DELETE,
        }
    }
}

/// The possible actions on a run. Only the agent's own runs can be stopped and resumed; any ended run can be deleted.
pub fn acts(watched: &ShownRun, now_ms: u64) -> Vec<RunAction> {
    let run = &watched.run;
    let is_ours = run.order.is_some();
    match run.status {
        RunStatus::Queued if is_ours => vec![RunAction::Remove],
        RunStatus::Running | RunStatus::Stalled { .. } if is_ours => match watched.stopping_ms {
            None => vec![RunAction::Stop],
            Some(asked_ms) if now_ms.saturating_sub(asked_ms) >= STOP_MS => vec![RunAction::StopNow],
            Some(_) => vec![],
        },
        status if status.has_ended() => {
            // A run that completed all its iterations cannot be resumed.
            let is_over = |iter| run.max_iters.is_some_and(|max| iter >= max);
            let is_done = status == RunStatus::exited(0);
            let once_more = match run.checkpoint {
                _ if !is_ours => None,
                Some(checkpoint) => (!is_over(checkpoint.iter)).then_some(RunAction::GoOn),
                None if status.cause() == Some(Cause::Unqueued) => Some(RunAction::GoOn),
                None => (!is_done).then_some(RunAction::StartAgain),
            };
            once_more.into_iter().chain([RunAction::Delete]).collect()
        }
        _ => vec![],
    }
}

/// The data that is deleted with a run.
pub fn goes_too(run: &Run) -> String {
    match run.checkpoint.filter(|_| run.order.is_some()) {
        Some(checkpoint) => say(&text::rig_delete_saved(format::size(checkpoint.bytes))),
        None => t(text::RIG_DELETE_LOSSES).to_owned(),
    }
}

/// A queued run.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedRun {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its config, data set and device.
    pub with: String,
}

/// Queued runs, the next one first. A resumed run is the last, regardless of its start.
fn queued(rig: &Rig) -> Vec<&Run> {
    // The known runs are sorted newest first.
    let runs = rig.runs.iter().rev().map(|watched| &watched.run);
    let mut queued: Vec<&Run> = runs.filter(|run| run.status == RunStatus::Queued).collect();
    queued.sort_by_key(|run| run.since_ms());
    queued
}

/// The time that a run has been queued, and its position in the queue; `None` if it is not queued.
pub fn waits(rig: &Rig, run: &Run, now_ms: u64) -> Option<Fact> {
    let queued = queued(rig);
    let place = queued.iter().position(|other| other.id == run.id)? + 1;
    let note = say(&text::rig_place(place, queued.len()));
    Some(Fact { name: text::RIG_WAITS, value: duration(now_ms.saturating_sub(run.since_ms())), note })
}

/// The queued runs, the next one first.
pub fn queue(rig: &Rig, zone: UtcOffset) -> Vec<QueuedRun> {
    let queued = queued(rig);
    let waiting = |run: &Run| {
        let order = run.order.clone().unwrap_or_default();
        let with: Vec<String> = [Some(order.config), order.dataset, order.device].into_iter().flatten().collect();
        let name = called(rig, run, queued.iter().map(|other| &other.id), zone);
        QueuedRun { id: run.id.clone(), name, with: with.join(" · ") }
    };
    queued.iter().copied().map(waiting).collect()
}

/// The state of a press.
#[derive(Clone, Debug, PartialEq)]
enum ActionState {
    UnderWay,
    Done(String),
    Refused(String),
}

/// The presses and their results by name, the newest last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingActions(Vec<(String, ActionState)>);

impl PendingActions {
    /// Begins a press; false if it is already in progress.
    pub fn begin(&mut self, name: &str) -> bool {
        if self.is_under_way(name) {
            return false;
        }
        self.put(name, ActionState::UnderWay);
        true
    }

    /// Ends a press: success with a message, or a refusal with the reason.
    pub fn end(&mut self, name: &str, how: Result<String, String>) {
        self.put(name, how.map_or_else(ActionState::Refused, ActionState::Done));
    }

    fn put(&mut self, name: &str, press: ActionState) {
        self.0.retain(|(of, _)| of != name);
        if self.0.len() >= PRESSES_MAX {
            self.0.remove(0);
        }
        self.0.push((name.to_owned(), press));
    }

    /// Returns whether it is in progress.
    pub fn is_under_way(&self, name: &str) -> bool {
        self.0.iter().any(|(of, press)| of == name && *press == ActionState::UnderWay)
    }

    /// The message of its result, and whether it is a refusal.
    pub fn said(&self, name: &str) -> Option<(String, bool)> {
        self.0.iter().find(|(of, _)| of == name).and_then(|(_, press)| match press {
            ActionState::UnderWay => None,
            ActionState::Done(words) => (!words.is_empty()).then(|| (words.clone(), false)),
            ActionState::Refused(words) => Some((words.clone(), true)),
        })
    }
}

#[cfg(test)]
mod tests {
    use headroom_protocol::run::{AllowedConfig, Checkpoint, EarlierParts};

    use super::*;
    use crate::state::rig::sample::{T, run};

    fn training() -> Training {
        let config = |name: &str, dataset: Option<&str>| AllowedConfig {
            name: name.to_owned(),
            dataset: dataset.map(str::to_owned),
            device: (name == "slow").then(|| "cpu".to_owned()),
            max_iters: None,
        };
        let device = |name: &str| Device { name: name.to_owned(), label: name.to_owned(), unavailable: None };
        Training {
            unavailable: None,
            configs: vec![config("tiny", None), config("gpt2", Some("owt")), config("slow", None)],
            datasets: vec!["builtin".to_owned(), "owt".to_owned()],
            devices: vec![device("cuda:0"), device("cpu")],
        }
    }

    fn acts(watched: &ShownRun) -> Vec<RunAction> {
        super::acts(watched, T)
    }

    fn watched(status: RunStatus, change: impl FnOnce(&mut Run)) -> ShownRun {
        let mut run = Run { status, order: Some(RunRequest::default()), ..run("a") };
        change(&mut run);
        ShownRun { run, losses: crate::state::rig_charts::losses::Losses::default(), is_whole: true, stopping_ms: None }
    }

    #[test]
    fn an_order_names_what_is_allowed_and_a_config_brings_its_data() {
        let training = training();
        let mut order = RunRequest::default();
        fit(&mut order, &training);
        assert_eq!(
            (order.config.as_str(), order.dataset.as_deref(), order.device.as_deref()),
            ("tiny", Some("builtin"), Some("cuda:0"))
        );
        choose_config(&mut order, &training, "slow".to_owned());
        assert_eq!(order.device.as_deref(), Some("cpu"));
        choose_config(&mut order, &training, "gpt2".to_owned());
        assert_eq!((order.dataset.as_deref(), order.device.as_deref()), (Some("owt"), Some("cuda:0")));
        (order.device, order.name) = (Some("cpu".to_owned()), Some("  mine ".to_owned()));
        let before = order.clone();
        fit(&mut order, &training);
        assert_eq!(order, before, "a usable device stays selected");
        assert_eq!(made(&order).name.as_deref(), Some("mine"));
        order.device = Some("cuda:0".to_owned());
        let mut without = training.clone();
        without.devices.rotate_left(1);
        without.devices[1].unavailable = Some(headroom_protocol::message::Message::plain("there is no driver"));
        fit(&mut order, &without);
        assert_eq!(order.device.as_deref(), Some("cpu"), "an unusable device is not preselected");
        order.name = Some("  ".to_owned());
        assert_eq!(made(&order).name, None);
        fit(&mut order, &Training { datasets: vec!["builtin".to_owned()], ..training });
        assert_eq!(order.dataset.as_deref(), Some("owt"), "the config's value: the agent reports the error");
    }

    #[test]
    fn gpus_have_their_numbers_where_there_are_more_than_one() {
        let device = |name: &str, label: &str| Device { name: name.into(), label: label.into(), unavailable: None };
        let labels = |devices: &[Device]| listed(devices).into_iter().map(|device| device.label).collect::<Vec<_>>();
        let devices = [device("cuda:1", "RTX 4070"), device("cpu", "CPU"), device("cuda:0", "RTX 4070")];
        assert_eq!(labels(&devices), ["cuda:1 · RTX 4070", "CPU", "cuda:0 · RTX 4070"]);
        assert_eq!(labels(&devices[..2]), ["RTX 4070", "CPU"]);
    }

    #[test]
    fn run_status_decides_offered_actions() {
        let saved = |run: &mut Run| run.checkpoint = Some(Checkpoint { iter: 10, bytes: 3 << 20 });
        let ended = RunStatus::killed(15);
        assert_eq!(acts(&watched(RunStatus::Queued, |_| {})), [RunAction::Remove]);
        assert_eq!(acts(&watched(RunStatus::Running, saved)), [RunAction::Stop]);
        let asked = ShownRun { stopping_ms: Some(T), ..watched(RunStatus::Running, saved) };
        assert_eq!(super::acts(&asked, T + STOP_MS - 1), [], "it finishes and saves");
        assert_eq!(super::acts(&asked, T + STOP_MS), [RunAction::StopNow]);
        assert_eq!(acts(&watched(RunStatus::Running, |run| run.order = None)), [], "not started by the agent");
        assert_eq!(acts(&watched(ended, |_| {})), [RunAction::StartAgain, RunAction::Delete]);
        assert_eq!(
            acts(&watched(RunStatus::unqueued(), |_| {})),
            [RunAction::GoOn, RunAction::Delete],
            "it is queued again"
        );
        assert_eq!(acts(&watched(RunStatus::exited(0), |_| {})), [RunAction::Delete], "all its iterations are done");
        assert_eq!(acts(&watched(ended, |run| run.order = None)), [RunAction::Delete], "not started by the agent");
        assert_eq!(acts(&watched(ended, saved)), [RunAction::GoOn, RunAction::Delete]);
        assert_eq!(acts(&watched(ended, |run| (run.max_iters, run.order) = (None, None))), [RunAction::Delete]);
        let all = |run: &mut Run| run.checkpoint = Some(Checkpoint { iter: 1000, bytes: 1 });
        assert_eq!(acts(&watched(RunStatus::exited(0), all)), [RunAction::Delete], "all iterations are done");
        assert!(goes_too(&watched(ended, saved).run).contains("3.0 MiB"));
    }

    #[test]
    fn the_next_one_of_the_queue_is_first() {
        let mut rig = Rig::default();
        for (id, at, status) in [("c", 3, RunStatus::Queued), ("b", 2, RunStatus::Queued), ("a", 1, RunStatus::Running)]
        {
            rig.runs.push(watched(status, |run| (run.id, run.started_ms) = (id.to_owned(), T + at)));
        }
        let order = |rig: &Rig| queue(rig, UtcOffset(|_| 0)).into_iter().map(|waiting| waiting.id).collect::<Vec<_>>();
        assert_eq!(order(&rig), ["b", "c"]);
        let wait_of = |rig: &Rig, at: usize| {
            let fact = waits(rig, &rig.runs[at].run, T + 5003)?;
            Some((fact.value.replace('\u{a0}', " "), fact.note))
        };
        assert_eq!(wait_of(&rig, 0), Some(("5 s".to_owned(), "position 2 of 2 in the queue".to_owned())));
        assert_eq!(wait_of(&rig, 2), None, "it does not wait");
        rig.runs[1].run.earlier = Some(EarlierParts { took_ms: 7, energy_joules: None, since_ms: T + 4 });
        assert_eq!(order(&rig), ["c", "b"], "a resumed run is last");
    }

    #[test]
    fn a_press_while_another_is_on_its_way_does_nothing() {
        let mut presses = PendingActions::default();
        assert!(presses.begin(START) && presses.begin("a"));
        assert!(!presses.begin(START) && presses.is_under_way(START) && presses.said(START).is_none());
        presses.end(START, Err("full".to_owned()));
        assert_eq!(presses.said(START), Some(("full".to_owned(), true)));
        assert!(presses.begin(START), "again");
        presses.end("a", Ok(String::new()));
        assert_eq!(presses.said("a"), None);
        (0..100).for_each(|n| presses.end(&n.to_string(), Ok("x".to_owned())));
        assert_eq!(presses.0.len(), PRESSES_MAX);
    }
}
