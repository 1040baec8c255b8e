//! The CUDA driver's view of the GPUs that NVML reports: which ones can train.
//!
//! A separate process queries the driver and creates no context. The agent holds no GPU resources, and a driver that
//! hangs or fails does not affect the agent.

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
use headroom_protocol::{gpu::Gpu, message::Message, run::Device};
use headroom_text as text;
use serde::{Deserialize, Serialize};

use super::start;
use headroom_train::device::DeviceSpec;

/// Internal subcommand that prints the answer; hidden from the help.
pub const COMMAND: &str = "cuda-cards";
/// Time limit for an answer. It covers loading a driver that no other program uses.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Size limit of an answer: more than a thousand GPUs.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Delay before a driver that failed is queried again.
const AGAIN: Duration = Duration::from_secs(30);

/// A GPU that the driver lists. Its index in the list is its CUDA ordinal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedGpu {
    /// UUID, as in NVML.
    uuid: String,
    /// Why the kernels cannot run on this GPU.
    unusable: Option<Message>,
}

/// The GPUs, or the reason why none is usable.
pub type ProbeResult = Result<Vec<ProbedGpu>, Message>;

/// Queries the driver, in the separate process.
pub fn answer() -> ProbeResult {
    let gpus = cuda::gpus().map_err(|error| error.text())?;
    let shown = gpus.into_iter().map(|probed| {
        let unusable = probed.check().err().map(|error| error.text().into());
        ProbedGpu { uuid: probed.uuid, unusable }
    });
    Ok(shown.collect())
}

/// Cache of the last answer.
#[derive(Debug, Default)]
pub struct CudaProbe(Mutex<Option<CachedProbe>>);

#[derive(Debug)]
struct CachedProbe {
    /// UUIDs of the GPUs present at the time of the query.
    of: BTreeSet<String>,
    at: Instant,
    answer: ProbeResult,
}

impl CudaProbe {
    /// Devices that can train, the CPU, and the GPUs that cannot train with the reasons, in this order. Blocks while a
    /// new set of GPUs is queried.
    pub fn devices(&self, program: &Path, gpus: &[&Gpu]) -> Vec<Device> {
        let of: BTreeSet<String> = gpus.iter().filter(|gpu| gpu.present).map(|gpu| gpu.uuid.clone()).collect();
        if of.is_empty() {
            return devices(&[], &Ok(vec![]));
        }
        // The lock makes concurrent callers wait for the same answer.
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |asked: &CachedProbe| asked.of == of && (asked.answer.is_ok() || asked.at.elapsed() < AGAIN);
        if !asked.as_ref().is_some_and(is_good) {
            *asked = None;
        }
        let asked = asked.get_or_insert_with(|| CachedProbe { answer: ask(program), at: Instant::now(), of });
        devices(gpus, &asked.answer)
    }
}

fn devices(gpus: &[&Gpu], answer: &ProbeResult) -> Vec<Device> {
    let gpus = gpus.iter().enumerate().filter(|(_, gpu)| gpu.present).map(|(place, gpu)| {
        let (number, unavailable) = match answer {
            Ok(shown) => match number(gpus, place, shown) {
                Some(number) => (number, shown.get(number).and_then(|probed| probed.unusable.clone())),
                None => (place, Some(text::card_not_there(place, shown.len()).into())),
            },
            Err(why) => (place, Some(why.clone())),
        };
        let name = DeviceSpec::Cuda(u32::try_from(number).ok()).to_string();
        Device { name, label: gpu.name.clone(), unavailable }
    });
    let (able, unable): (Vec<Device>, Vec<Device>) = gpus.partition(|device| device.unavailable.is_none());
    let cpu = Device { name: DeviceSpec::Cpu.to_string(), label: "CPU".to_owned(), unavailable: None };
    able.into_iter().chain([cpu]).chain(unable).collect()
}

/// Ordinal of a GPU by its UUID. An unknown UUID, as of a MIG instance, is matched by position.
fn number(gpus: &[&Gpu], place: usize, shown: &[ProbedGpu]) -> Option<usize> {
    let by_uuid = shown.iter().position(|probed| gpus.get(place).is_some_and(|gpu| gpu.uuid == probed.uuid));
    let is_nobody_s = |probed: &ProbedGpu| gpus.iter().all(|gpu| gpu.uuid != probed.uuid);
    by_uuid.or_else(|| shown.get(place).is_some_and(is_nobody_s).then_some(place))
}

fn ask(program: &Path) -> ProbeResult {
    let failed = |why: String| Message::from(text::card_driver_unasked(why));
    let mut command = Command::new(program);
    command.arg(COMMAND).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    start::as_runs_are(&mut command);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (sender, receiver) = channel();
    let out = child.stdout.take();
    let reading = thread::Builder::new().name("driver".to_owned()).spawn(move || {
        let mut text = String::new();
        // A truncated answer is invalid.
        let _ = out.map(|out| out.take(ANSWER_BYTES_MAX).read_to_string(&mut text));
        let _ = sender.send(text);
        let _ = child.kill();
        let _ = child.wait();
    });
    reading.map_err(|error| failed(error.to_string()))?;
    let Ok(text) = receiver.recv_timeout(ANSWER_TIME) else {
        return Err(text::card_driver_silent(ANSWER_TIME.as_secs()).into());
    };
    serde_json::from_str(&text).unwrap_or_else(|_| Err(failed("it gave no answer".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes;

    fn shown(place: u32, unusable: Option<&str>) -> ProbedGpu {
        ProbedGpu { uuid: fakes::gpu(place).uuid, unusable: unusable.map(Message::plain) }
    }

    /// Expects the names of usable devices, then unusable ones with their reasons.
    #[track_caller]
    fn check(answer: &ProbeResult, able: &[&str], unable: &[(&str, &str)]) {
        let gpus: Vec<Gpu> = (0..3).map(fakes::gpu).collect();
        let devices = devices(&gpus.iter().collect::<Vec<_>>(), answer);
        let (can, cannot): (Vec<_>, Vec<_>) = devices.iter().partition(|device| device.unavailable.is_none());
        assert_eq!(can.iter().map(|device| &*device.name).collect::<Vec<_>>(), able);
        let why = |device: &Device| (device.name.clone(), device.unavailable.clone().unwrap_or_default().en);
        let unable: Vec<_> = unable.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
        assert_eq!(cannot.into_iter().map(why).collect::<Vec<_>>(), unable);
        assert!(
            devices[..can.len()].iter().all(|device| device.unavailable.is_none()),
            "without a name, the first device is used"
        );
    }

    #[test]
    fn a_gpu_that_cannot_train_is_there_with_the_reason() {
        check(&Ok((0..3).map(|i| shown(i, None)).collect()), &["cuda:0", "cuda:1", "cuda:2", "cpu"], &[]);
        let old = Ok(vec![shown(0, Some("it is old")), shown(1, None), shown(2, None)]);
        check(&old, &["cuda:1", "cuda:2", "cpu"], &[("cuda:0", "it is old")]);
        let none = Err(Message::plain("no driver"));
        check(&none, &["cpu"], &[("cuda:0", "no driver"), ("cuda:1", "no driver"), ("cuda:2", "no driver")]);
    }

    #[test]
    fn a_gpu_has_the_number_that_the_driver_gives_it() {
        let gone = "GPU 2 does not exist: the driver lists 2, numbered from 0";
        check(&Ok(vec![shown(1, None), shown(0, None)]), &["cuda:1", "cuda:0", "cpu"], &[("cuda:2", gone)]);
        // A MIG instance has another UUID than its GPU.
        let part = ProbedGpu { uuid: "MIG-7".to_owned(), unusable: None };
        check(&Ok(vec![part, shown(1, None), shown(2, None)]), &["cuda:0", "cuda:1", "cuda:2", "cpu"], &[]);
    }

    #[test]
    fn a_program_that_does_not_answer_is_said() {
        let why = ask(Path::new("no such program")).expect_err("it is not there");
        assert!(why.en.starts_with("cannot query the CUDA driver: "), "{why}");
        let gpu = fakes::gpu(0);
        let driver = CudaProbe::default();
        let devices = driver.devices(Path::new("no such program"), &[&gpu]);
        assert_eq!((&*devices[0].name, devices[1].unavailable.as_ref()), ("cpu", Some(&why)));
        assert_eq!(driver.devices(Path::new("no such program"), &[]).len(), 1, "without a GPU, no probe runs");
    }
}
