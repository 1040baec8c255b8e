//! Runs that the agent starts for the page: what may be ordered, what can be asked of a run, and how each press stands.

use headroom_shared::protocol::run::{Cause, Device, Order, Run, RunStatus, Training};

use super::{Rig, Watched, names::called, run::Fact, words::duration};
use crate::{
    state::{format, rig_charts::zone::Zone},
    text::{self, Key, say, t},
};

/// Presses that are remembered: one a run that somebody pressed something of, and the start's.
const PRESSES_MAX: usize = 32;
/// The agent lets a run that was asked to end finish its iteration and save for so long; who asks again after it ends it
/// at once.
const STOP_MS: u64 = 30_000;
/// The device that is no card.
const CPU: &str = "cpu";
/// The start's press has this name; a run's has its number.
pub const START: &str = "";

/// What is known of what can be started.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Allowed {
    /// It is on its way.
    #[default]
    Unknown,
    /// This.
    Is(Training),
    /// It did not arrive; in words.
    Failed(String),
}

/// Makes an order one that can be taken: of what is named no more, the first takes the place.
pub fn fit(order: &mut Order, training: &Training) {
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

/// Devices as they are listed: by the card's name, and by its number too where there is more than one card, for they may
/// be of one name.
pub fn listed(devices: &[Device]) -> Vec<Device> {
    let n_cards = devices.iter().filter(|device| device.name != CPU).count();
    let listed = |device: &Device| match n_cards > 1 && device.name != CPU {
        true => Device { label: format!("{} · {}", device.name, device.label), ..device.clone() },
        false => device.clone(),
    };
    devices.iter().map(listed).collect()
}

/// Another config, with the data set and the device that it names.
pub fn choose_config(order: &mut Order, training: &Training, name: String) {
    (order.dataset, order.device) = (dataset_of(&name, training), device_of(&name, training));
    order.config = name;
}

/// The order as it is sent: a name of blanks is none.
pub fn made(order: &Order) -> Order {
    let name = order.name.as_ref().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    Order { name, ..order.clone() }
}

/// What can be asked of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To finish its iteration, save, and end.
    Stop,
    /// To end at once, of a run that was asked to stop and still goes on.
    StopNow,
    /// To leave the queue.
    Remove,
    /// To go on from its checkpoint.
    GoOn,
    /// Another by the same order, of a run that failed and left nothing to go on from.
    StartAgain,
    /// To be no more.
    Delete,
}

impl Act {
    /// The request's method, and what stands behind the run in its address; nothing of what is an order.
    pub const fn request(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Stop | Self::StopNow | Self::Remove => Some(("POST", "/stop")),
            Self::GoOn => Some(("POST", "/resume")),
            Self::StartAgain => None,
            Self::Delete => Some(("DELETE", "")),
        }
    }

    /// What stands on its button.
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

/// What can be asked of a run as it stands. Only the agent's own are stopped and gone on with; any that ended is deleted.
pub fn acts(watched: &Watched, now_ms: u64) -> Vec<Act> {
    let run = &watched.run;
    let is_ours = run.order.is_some();
    match run.status {
        RunStatus::Queued if is_ours => vec![Act::Remove],
        RunStatus::Running | RunStatus::Stalled { .. } if is_ours => match watched.stopping_ms {
            None => vec![Act::Stop],
            Some(asked_ms) if now_ms.saturating_sub(asked_ms) >= STOP_MS => vec![Act::StopNow],
            Some(_) => vec![],
        },
        status if status.has_ended() => {
            // One that did all its iterations has nowhere to go on to.
            let is_over = |iter| run.max_iters.is_some_and(|max| iter >= max);
            let is_done = status == RunStatus::exited(0);
            let once_more = match run.checkpoint {
                _ if !is_ours => None,
                Some(checkpoint) => (!is_over(checkpoint.iter)).then_some(Act::GoOn),
                None if status.cause() == Some(Cause::Unqueued) => Some(Act::GoOn),
                None => (!is_done).then_some(Act::StartAgain),
            };
            once_more.into_iter().chain([Act::Delete]).collect()
        }
        _ => vec![],
    }
}

/// What goes with a run that is deleted.
pub fn goes_too(run: &Run) -> String {
    match run.checkpoint.filter(|_| run.order.is_some()) {
        Some(checkpoint) => say(&text::rig_delete_saved(format::size(checkpoint.bytes))),
        None => t(text::RIG_DELETE_LOSSES).to_owned(),
    }
}

/// A run that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Its number.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What it was ordered with.
    pub with: String,
}

/// Runs that wait, the next one first: who is gone on with is the last, however long ago it began.
fn queued(rig: &Rig) -> Vec<&Run> {
    // Newest first is how they are known.
    let runs = rig.runs.iter().rev().map(|watched| &watched.run);
    let mut queued: Vec<&Run> = runs.filter(|run| run.status == RunStatus::Queued).collect();
    queued.sort_by_key(|run| run.since_ms());
    queued
}

/// How long a run has waited for its card, and its place in the queue; nothing of one that does not wait.
pub fn waits(rig: &Rig, run: &Run, now_ms: u64) -> Option<Fact> {
    let queued = queued(rig);
    let place = queued.iter().position(|other| other.id == run.id)? + 1;
    let note = say(&text::rig_place(place, queued.len()));
    Some(Fact { name: text::RIG_WAITS, value: duration(now_ms.saturating_sub(run.since_ms())), note })
}

/// Those that wait for their cards, the next one first.
pub fn queue(rig: &Rig, zone: Zone) -> Vec<Waiting> {
    let queued = queued(rig);
    let waiting = |run: &Run| {
        let order = run.order.clone().unwrap_or_default();
        let with: Vec<String> = [Some(order.config), order.dataset, order.device].into_iter().flatten().collect();
        let name = called(rig, run, queued.iter().map(|other| &other.id), zone);
        Waiting { id: run.id.clone(), name, with: with.join(" · ") }
    };
    queued.iter().copied().map(waiting).collect()
}

/// How a press stands.
#[derive(Clone, Debug, PartialEq)]
enum Press {
    UnderWay,
    Done(String),
    Refused(String),
}

/// What was pressed, and what came of it: each by its name, the newest last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Presses(Vec<(String, Press)>);

impl Presses {
    /// Begins what a press asks for; false where it is on its way already.
    pub fn begin(&mut self, name: &str) -> bool {
        if self.is_under_way(name) {
            return false;
        }
        self.put(name, Press::UnderWay);
        true
    }

    /// It was done, with what is to be said of that; or refused, with why.
    pub fn end(&mut self, name: &str, how: Result<String, String>) {
        self.put(name, how.map_or_else(Press::Refused, Press::Done));
    }

    fn put(&mut self, name: &str, press: Press) {
        self.0.retain(|(of, _)| of != name);
        if self.0.len() >= PRESSES_MAX {
            self.0.remove(0);
        }
        self.0.push((name.to_owned(), press));
    }

    /// Whether it is on its way.
    pub fn is_under_way(&self, name: &str) -> bool {
        self.0.iter().any(|(of, press)| of == name && *press == Press::UnderWay)
    }

    /// What came of it, and whether that is a refusal.
    pub fn said(&self, name: &str) -> Option<(String, bool)> {
        self.0.iter().find(|(of, _)| of == name).and_then(|(_, press)| match press {
            Press::UnderWay => None,
            Press::Done(words) => (!words.is_empty()).then(|| (words.clone(), false)),
            Press::Refused(words) => Some((words.clone(), true)),
        })
    }
}

#[cfg(test)]
mod tests {
    use headroom_shared::protocol::run::{AllowedConfig, Checkpoint, Earlier};

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

    fn acts(watched: &Watched) -> Vec<Act> {
        super::acts(watched, T)
    }

    fn watched(status: RunStatus, change: impl FnOnce(&mut Run)) -> Watched {
        let mut run = Run { status, order: Some(Order::default()), ..run("a") };
        change(&mut run);
        Watched { run, losses: crate::state::rig_charts::losses::Losses::default(), is_whole: true, stopping_ms: None }
    }

    #[test]
    fn an_order_names_what_is_allowed_and_a_config_brings_its_data() {
        let training = training();
        let mut order = Order::default();
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
        assert_eq!(order, before, "what can be taken stays");
        assert_eq!(made(&order).name.as_deref(), Some("mine"));
        order.device = Some("cuda:0".to_owned());
        let mut without = training.clone();
        without.devices.rotate_left(1);
        without.devices[1].unavailable = Some("there is no driver".to_owned());
        fit(&mut order, &without);
        assert_eq!(order.device.as_deref(), Some("cpu"), "what cannot train is not preselected");
        order.name = Some("  ".to_owned());
        assert_eq!(made(&order).name, None);
        fit(&mut order, &Training { datasets: vec!["builtin".to_owned()], ..training });
        assert_eq!(order.dataset.as_deref(), Some("owt"), "as the config has it: the agent says what is wrong");
    }

    #[test]
    fn cards_have_their_numbers_where_there_are_more_than_one() {
        let device = |name: &str, label: &str| Device { name: name.into(), label: label.into(), unavailable: None };
        let labels = |devices: &[Device]| listed(devices).into_iter().map(|device| device.label).collect::<Vec<_>>();
        let devices = [device("cuda:1", "RTX 4070"), device("cpu", "CPU"), device("cuda:0", "RTX 4070")];
        assert_eq!(labels(&devices), ["cuda:1 · RTX 4070", "CPU", "cuda:0 · RTX 4070"]);
        assert_eq!(labels(&devices[..2]), ["RTX 4070", "CPU"]);
    }

    #[test]
    fn what_can_be_asked_is_what_the_run_allows() {
        let saved = |run: &mut Run| run.checkpoint = Some(Checkpoint { iter: 10, bytes: 3 << 20 });
        let ended = RunStatus::killed(15);
        assert_eq!(acts(&watched(RunStatus::Queued, |_| {})), [Act::Remove]);
        assert_eq!(acts(&watched(RunStatus::Running, saved)), [Act::Stop]);
        let asked = Watched { stopping_ms: Some(T), ..watched(RunStatus::Running, saved) };
        assert_eq!(super::acts(&asked, T + STOP_MS - 1), [], "it finishes and saves");
        assert_eq!(super::acts(&asked, T + STOP_MS), [Act::StopNow]);
        assert_eq!(acts(&watched(RunStatus::Running, |run| run.order = None)), [], "somebody else's");
        assert_eq!(acts(&watched(ended, |_| {})), [Act::StartAgain, Act::Delete]);
        assert_eq!(acts(&watched(RunStatus::unqueued(), |_| {})), [Act::GoOn, Act::Delete], "it is queued again");
        assert_eq!(acts(&watched(RunStatus::exited(0), |_| {})), [Act::Delete], "it did what it was to do");
        assert_eq!(acts(&watched(ended, |run| run.order = None)), [Act::Delete], "somebody else's");
        assert_eq!(acts(&watched(ended, saved)), [Act::GoOn, Act::Delete]);
        assert_eq!(acts(&watched(ended, |run| (run.max_iters, run.order) = (None, None))), [Act::Delete]);
        let all = |run: &mut Run| run.checkpoint = Some(Checkpoint { iter: 1000, bytes: 1 });
        assert_eq!(acts(&watched(RunStatus::exited(0), all)), [Act::Delete], "it did all");
        assert!(goes_too(&watched(ended, saved).run).contains("3.0 MiB"));
    }

    #[test]
    fn the_next_one_of_the_queue_is_first() {
        let mut rig = Rig::default();
        for (id, at, status) in [("c", 3, RunStatus::Queued), ("b", 2, RunStatus::Queued), ("a", 1, RunStatus::Running)]
        {
            rig.runs.push(watched(status, |run| (run.id, run.started_ms) = (id.to_owned(), T + at)));
        }
        let order = |rig: &Rig| queue(rig, Zone(|_| 0)).into_iter().map(|waiting| waiting.id).collect::<Vec<_>>();
        assert_eq!(order(&rig), ["b", "c"]);
        let told = |rig: &Rig, at: usize| {
            let fact = waits(rig, &rig.runs[at].run, T + 5003)?;
            Some((fact.value.replace('\u{a0}', " "), fact.note))
        };
        assert_eq!(told(&rig, 0), Some(("5 s".to_owned(), "place 2 of 2 in the queue".to_owned())));
        assert_eq!(told(&rig, 2), None, "it does not wait");
        rig.runs[1].run.earlier = Some(Earlier { took_ms: 7, energy_joules: None, since_ms: T + 4 });
        assert_eq!(order(&rig), ["c", "b"], "what is gone on with is the last");
    }

    #[test]
    fn a_press_while_another_is_on_its_way_does_nothing() {
        let mut presses = Presses::default();
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
