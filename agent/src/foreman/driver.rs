//! What the CUDA driver says of the machine's cards, which NVML shows whether they can train or not.
//!
//! It is asked in a process of its own that makes no context: nothing of a card is held by the agent, and a driver that
//! hangs or fails takes nobody along.

use std::{
    collections::BTreeSet,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use headroom_kernels::cuda;
use headroom_shared::{
    protocol::{gpu::Gpu, run::Device},
    text,
};
use serde::{Deserialize, Serialize};

use super::start;
use crate::train::device::Wanted;

/// The command that answers; for the agent alone, and in no help.
pub const COMMAND: &str = "cuda-cards";
/// How long an answer is waited for: a driver that no program uses is loaded within it.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Longest answer: a thousand cards and more.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// A driver that failed is asked again after so long.
const AGAIN: Duration = Duration::from_secs(30);

/// A card that the driver shows; its place among them is its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// As NVML has it.
    uuid: String,
    /// Why the kernels cannot run on it.
    unusable: Option<String>,
}

/// The cards, or why there are none.
pub type Answer = Result<Vec<Shown>, String>;

/// The answer, as the process gives it that is asked.
pub fn answer() -> Answer {
    let cards = cuda::cards().map_err(|error| error.to_string())?;
    let shown = cards.into_iter().map(|card| {
        let unusable = card.check().err().map(|error| error.to_string());
        Shown { uuid: card.uuid, unusable }
    });
    Ok(shown.collect())
}

/// What was answered last.
#[derive(Debug, Default)]
pub struct Driver(Mutex<Option<Asked>>);

#[derive(Debug)]
struct Asked {
    /// UUIDs of the cards that there were.
    of: BTreeSet<String>,
    at: Instant,
    answer: Answer,
}

impl Driver {
    /// Which of the cards that CUDA would show can train, and why the others cannot; those that can are first, and the CPU
    /// before those that cannot. Waits for an answer where these cards were not asked for yet.
    pub fn devices(&self, program: &Path, cards: &[&Gpu]) -> Vec<Device> {
        let of: BTreeSet<String> = cards.iter().filter(|gpu| gpu.present).map(|gpu| gpu.uuid.clone()).collect();
        if of.is_empty() {
            return devices(&[], &Ok(vec![]));
        }
        // Whoever comes meanwhile waits for the same answer.
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |asked: &Asked| asked.of == of && (asked.answer.is_ok() || asked.at.elapsed() < AGAIN);
        if !asked.as_ref().is_some_and(is_good) {
            *asked = None;
        }
        let asked = asked.get_or_insert_with(|| Asked { answer: ask(program), at: Instant::now(), of });
        devices(cards, &asked.answer)
    }
}

fn devices(cards: &[&Gpu], answer: &Answer) -> Vec<Device> {
    let cards = cards.iter().enumerate().filter(|(_, gpu)| gpu.present).map(|(place, gpu)| {
        let (number, unavailable) = match answer {
            Ok(shown) => match number(cards, place, shown) {
                Some(number) => (number, shown.get(number).and_then(|card| card.unusable.clone())),
                None => (place, Some(text::card_not_there(place, shown.len()).to_string())),
            },
            Err(why) => (place, Some(why.clone())),
        };
        let name = Wanted::Cuda(u32::try_from(number).ok()).to_string();
        Device { name, label: gpu.name.clone(), unavailable }
    });
    let (able, unable): (Vec<Device>, Vec<Device>) = cards.partition(|device| device.unavailable.is_none());
    let cpu = Device { name: Wanted::Cpu.to_string(), label: "CPU".to_owned(), unavailable: None };
    able.into_iter().chain([cpu]).chain(unable).collect()
}

/// The number of a card by its UUID, or by its place where the driver calls it otherwise, as a part of a card that is cut
/// into instances.
fn number(cards: &[&Gpu], place: usize, shown: &[Shown]) -> Option<usize> {
    let by_uuid = shown.iter().position(|card| cards.get(place).is_some_and(|gpu| gpu.uuid == card.uuid));
    let is_nobody_s = |card: &Shown| cards.iter().all(|gpu| gpu.uuid != card.uuid);
    by_uuid.or_else(|| shown.get(place).is_some_and(is_nobody_s).then_some(place))
}

fn ask(program: &Path) -> Answer {
    let failed = |why: String| text::card_driver_unasked(why).to_string();
    let mut command = Command::new(program);
    command.arg(COMMAND).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    start::as_runs_are(&mut command);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (tell, told) = channel();
    let out = child.stdout.take();
    let reading = thread::Builder::new().name("driver".to_owned()).spawn(move || {
        let mut text = String::new();
        // What is cut short is no answer.
        let _ = out.map(|out| out.take(ANSWER_BYTES_MAX).read_to_string(&mut text));
        let _ = tell.send(text);
        let _ = child.kill();
        let _ = child.wait();
    });
    reading.map_err(|error| failed(error.to_string()))?;
    let Ok(text) = told.recv_timeout(ANSWER_TIME) else {
        return Err(text::card_driver_silent(ANSWER_TIME.as_secs()).to_string());
    };
    serde_json::from_str(&text).unwrap_or_else(|_| Err(failed("it gave no answer".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::made;

    fn shown(place: u32, unusable: Option<&str>) -> Shown {
        Shown { uuid: made::gpu(place).uuid, unusable: unusable.map(str::to_owned) }
    }

    /// Names of what can train, then of what cannot with why.
    #[track_caller]
    fn check(answer: &Answer, able: &[&str], unable: &[(&str, &str)]) {
        let gpus: Vec<Gpu> = (0..3).map(made::gpu).collect();
        let devices = devices(&gpus.iter().collect::<Vec<_>>(), answer);
        let (can, cannot): (Vec<_>, Vec<_>) = devices.iter().partition(|device| device.unavailable.is_none());
        assert_eq!(can.iter().map(|device| &*device.name).collect::<Vec<_>>(), able);
        let why = |device: &Device| (device.name.clone(), device.unavailable.clone().unwrap_or_default());
        let unable: Vec<_> = unable.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
        assert_eq!(cannot.into_iter().map(why).collect::<Vec<_>>(), unable);
        assert!(
            devices[..can.len()].iter().all(|device| device.unavailable.is_none()),
            "who names none gets the first"
        );
    }

    #[test]
    fn a_card_that_cannot_train_is_there_with_the_reason() {
        check(&Ok((0..3).map(|i| shown(i, None)).collect()), &["cuda:0", "cuda:1", "cuda:2", "cpu"], &[]);
        let old = Ok(vec![shown(0, Some("it is old")), shown(1, None), shown(2, None)]);
        check(&old, &["cuda:1", "cuda:2", "cpu"], &[("cuda:0", "it is old")]);
        let none = Err("no driver".to_owned());
        check(&none, &["cpu"], &[("cuda:0", "no driver"), ("cuda:1", "no driver"), ("cuda:2", "no driver")]);
    }

    #[test]
    fn a_card_has_the_number_that_the_driver_gives_it() {
        let gone = "there is no card 2: the driver shows 2, counted from 0";
        check(&Ok(vec![shown(1, None), shown(0, None)]), &["cuda:1", "cuda:0", "cpu"], &[("cuda:2", gone)]);
        // An instance of a card has another UUID than its card.
        let part = Shown { uuid: "MIG-7".to_owned(), unusable: None };
        check(&Ok(vec![part, shown(1, None), shown(2, None)]), &["cuda:0", "cuda:1", "cuda:2", "cpu"], &[]);
    }

    #[test]
    fn a_program_that_does_not_answer_is_said() {
        let why = ask(Path::new("no such program")).expect_err("it is not there");
        assert!(why.starts_with("the CUDA driver could not be asked: "), "{why}");
        let card = made::gpu(0);
        let driver = Driver::default();
        let devices = driver.devices(Path::new("no such program"), &[&card]);
        assert_eq!((&*devices[0].name, devices[1].unavailable.as_ref()), ("cpu", Some(&why)));
        assert_eq!(driver.devices(Path::new("no such program"), &[]).len(), 1, "without a card nobody is asked");
    }
}
