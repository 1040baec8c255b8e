//! The processes on the GPUs, by memory.

use headroom_protocol::{
    gpu::Process,
    reading::{MissingReason, Reading},
    run::Run,
};

use super::{Rig, gpu::MonitoredGpu, is_at_work, names, values};
use crate::state::format;

/// The most rows.
const ROWS_MAX: usize = 100;

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The process id on the host.
    pub pid: u32,
    /// The name.
    pub name: String,
    /// The user.
    pub user: String,
    /// The GPU, if there are several.
    pub gpu: String,
    /// The memory that it uses, or the reason why it is unknown.
    pub memory: String,
    /// Whether the memory is known.
    pub is_known: bool,
    /// The share of the GPU's memory, in percent.
    pub percent: f64,
    /// The name of its run.
    pub run: Option<String>,
}

/// All known processes, the largest memory first.
pub fn rows(rig: &Rig) -> Vec<Row> {
    let mut all: Vec<(u64, Row)> = Vec::new();
    // The processes of a lost GPU are unknown.
    for gpu in rig.gpus.iter().filter(|gpu| gpu.info.present) {
        for process in processes(gpu) {
            let bytes = process.memory_used_bytes.get().copied();
            let row = Row {
                pid: process.pid,
                name: values::reading(Some(&process.name), Clone::clone),
                user: values::reading(Some(&process.user), Clone::clone),
                gpu: if rig.gpus.len() > 1 { names::gpu_name(rig, &gpu.info.uuid) } else { String::new() },
                memory: values::reading(Some(&process.memory_used_bytes), |bytes| format::size(*bytes)),
                is_known: bytes.is_some(),
                percent: share(bytes.unwrap_or(0), gpu) * 100.0,
                run: process.run.as_ref().map(|run| names::run_name(rig, run)),
            };
            all.push((bytes.unwrap_or(0), row));
        }
    }
    all.sort_by_key(|(bytes, row)| (std::cmp::Reverse(*bytes), row.pid));
    all.truncate(ROWS_MAX);
    all.into_iter().map(|(_, row)| row).collect()
}

/// The reason why no process is known on any GPU; `None` if some GPU reports its processes.
pub fn why_none(rig: &Rig) -> Option<MissingReason> {
    let of = |gpu: &MonitoredGpu| gpu.slow.as_ref().map_or(Some(MissingReason::NotYet), |slow| slow.processes.why());
    let first = rig.gpus.first().and_then(of);
    if rig.gpus.iter().any(|gpu| of(gpu).is_none()) { None } else { first }
}

fn processes(gpu: &MonitoredGpu) -> &[Process] {
    gpu.slow.as_ref().and_then(|slow| slow.processes.get()).map_or(&[], Vec::as_slice)
}

fn share(bytes: u64, gpu: &MonitoredGpu) -> f64 {
    gpu.total_bytes().map_or(0.0, |total| (bytes as f64 / total as f64).min(1.0))
}

/// The memory of a run's processes on a GPU in bytes; `None` if unknown.
pub fn bytes_of_run(gpu: &MonitoredGpu, run: &str) -> Option<u64> {
    let own = processes(gpu).iter().filter(|process| process.run.as_deref() == Some(run));
    let known = own.filter_map(|process| match &process.memory_used_bytes {
        Reading::Is(bytes) => Some(*bytes),
        Reading::Missing { .. } => None,
    });
    known.fold(None, |sum: Option<u64>, bytes| Some(sum.unwrap_or(0).saturating_add(bytes)))
}

/// The reason why the memory of a run's processes on a GPU is unknown; `None` if it is known or the run has no process
/// there.
pub fn why_no_bytes(gpu: &MonitoredGpu, run: &str) -> Option<MissingReason> {
    match &gpu.slow.as_ref()?.processes {
        Reading::Missing { missing } => Some(*missing),
        Reading::Is(all) => {
            all.iter().find(|process| process.run.as_deref() == Some(run)).and_then(|own| own.memory_used_bytes.why())
        }
    }
}

/// The run that currently uses a GPU.
pub fn run_on<'a>(rig: &'a Rig, gpu: &MonitoredGpu) -> Option<&'a Run> {
    let runs = rig.runs.iter().map(|watched| &watched.run);
    runs.into_iter().find(|run| is_at_work(run) && run.gpus.contains(&gpu.info.uuid))
}

/// The used memory of a GPU without its run's, in bytes; `None` if the processes' memory is unknown.
pub fn bytes_of_others(gpu: &MonitoredGpu, own: Option<&Run>) -> Option<u64> {
    let used = gpu.sample.as_ref()?.memory_used_bytes.get().copied()?;
    let own = own.map_or(Some(0), |run| bytes_of_run(gpu, &run.id))?;
    Some(used.saturating_sub(own))
}

/// The mark on the bar of a GPU's memory: other processes' memory plus the predicted peak of its run, in bytes.
pub fn predicted_bytes(rig: &Rig, gpu: &MonitoredGpu) -> Option<u64> {
    let run = run_on(rig, gpu)?;
    let peak = run.plan.as_ref()?.peak_bytes;
    Some(peak.saturating_add(bytes_of_others(gpu, Some(run)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rig::sample::{gpu, run, sample, slow};
    use headroom_protocol::ServerMessage;

    fn rig() -> Rig {
        let mut rig = Rig::default();
        let hello = crate::state::rig::sample::hello(2, vec![run("a")], 0);
        rig.hear(ServerMessage::Hello(Box::new(hello)), false);
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(1 << 30), None), (1, 11, Some(3 << 30), None)])), false);
        rig
    }

    #[test]
    fn the_greatest_comes_first_whatever_its_gpu() {
        let rows = rows(&rig());
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [11, 10]);
        assert!(rows[0].gpu.starts_with("1: ") && rows[0].percent > 20.0);
    }

    #[test]
    fn memory_that_windows_hides_is_said_to_be_hidden() {
        let mut rig = rig();
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, None, None)])), false);
        let row = rows(&rig).into_iter().find(|row| row.pid == 10).expect("a row");
        assert!(!row.is_known && row.memory.contains("Windows"), "{row:?}");
        assert_eq!(bytes_of_run(&rig.gpus[0], "a"), None);
    }

    #[test]
    fn the_mark_is_the_prediction_above_what_others_have() {
        let mut rig = rig();
        rig.gpus[0].sample = Some(sample(0, 1));
        let used = 7_u64 << 30;
        let peak = rig.runs[0].run.plan.clone().expect("a plan").peak_bytes;
        assert_eq!(predicted_bytes(&rig, &rig.gpus[0]), Some(peak), "the process that holds the memory is unknown");
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(6 << 30), Some("a"))])), false);
        assert_eq!(predicted_bytes(&rig, &rig.gpus[0]), Some(peak + used - (6 << 30)));
        assert_eq!(predicted_bytes(&rig, &MonitoredGpu::new(gpu(1))), None, "no run is on that one");
    }
}
