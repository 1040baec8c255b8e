//! Determines the run of each process on a GPU. A run owns its process and all descendants of it.

use std::collections::HashMap;

use headroom_protocol::{SlowReadings, event::EventKind, reading::Reading, run::Run};

use headroom_agent_core::ancestry::Ancestry;

/// Runs that have not ended, and the known owners of processes.
#[derive(Debug, Default)]
pub struct ProcessRuns {
    /// Process ID and ID of each run.
    runs: Vec<(u32, String)>,
    /// Cached runs of processes. A process's ancestors do not change while it and they live.
    known: HashMap<u32, Option<String>>,
    ancestry: Ancestry,
}

impl ProcessRuns {
    /// Creates the state from the runs in history. Ended runs have no processes.
    pub fn new(runs: &[Run]) -> Self {
        let mut owners = Self::default();
        runs.iter().for_each(|run| owners.add(run));
        owners
    }

    fn add(&mut self, run: &Run) {
        if let Some(pid) = run.pid.filter(|_| !run.status.has_ended()) {
            self.runs.retain(|(_, id)| *id != run.id);
            self.runs.push((pid, run.id.clone()));
            self.known.clear();
        }
    }

    /// Applies an event of a run.
    pub fn event(&mut self, run: Option<&str>, what: &EventKind) {
        match (run, what) {
            (Some(id), EventKind::RunStarted { run }) => self.add(&Run { id: id.to_owned(), ..(**run).clone() }),
            (Some(id), EventKind::RunResumed { pid, .. }) => {
                self.add(&Run { id: id.to_owned(), pid: *pid, ..Run::default() });
            }
            (Some(id), EventKind::RunStatus { status, .. }) if status.has_ended() => self.end(id),
            (Some(id), EventKind::RunDeleted { .. }) => self.end(id),
            _ => {}
        }
    }

    fn end(&mut self, id: &str) {
        self.runs.retain(|(_, run)| run != id);
        self.known.clear();
    }

    /// Sets the runs of the processes on GPUs.
    pub fn mark(&mut self, slow: &mut SlowReadings) {
        if self.runs.is_empty() {
            return;
        }
        let mut still = HashMap::new();
        for gpu in &mut slow.gpus {
            let Reading::Is(processes) = &mut gpu.processes else { continue };
            for process in processes {
                let run = self.known.get(&process.pid).cloned().unwrap_or_else(|| {
                    let line = self.ancestry.of(process.pid);
                    // The nearest ancestor counts: a run that another run started owns its processes.
                    let mut runs = line.iter().filter_map(|pid| self.runs.iter().find(|(of, _)| of == pid));
                    runs.next().map(|(_, id)| id.clone())
                });
                still.insert(process.pid, run.clone());
                process.run = run;
            }
        }
        // The system may reuse the ID of a process that has ended.
        self.known = still;
    }
}

#[cfg(test)]
mod tests {
    use headroom_protocol::{
        gpu::Process,
        metric::{HostSample, SlowSample},
        reading::MissingReason,
        run::RunStatus,
    };

    use super::*;

    fn run(id: &str, pid: u32) -> Run {
        Run { id: id.to_owned(), pid: Some(pid), ..Run::default() }
    }

    fn slow(pid: u32) -> SlowReadings {
        fn missing<T>() -> Reading<T> {
            Reading::missing(MissingReason::NotSupported)
        }
        let process = Process { pid, name: missing(), user: missing(), memory_used_bytes: missing(), run: None };
        let why = MissingReason::NotSupported;
        let gpu = SlowSample { processes: Reading::Is(vec![process]), ..SlowSample::missing(0, why) };
        SlowReadings { time_ms: 0, gpus: vec![gpu], host: HostSample::missing(why) }
    }

    fn marked(owners: &mut ProcessRuns, pid: u32) -> Option<String> {
        let mut slow = slow(pid);
        owners.mark(&mut slow);
        slow.gpus[0].processes.get().expect("processes")[0].run.clone()
    }

    #[cfg(unix)]
    #[test]
    fn a_process_is_its_own_runs_and_its_parents() {
        let (this, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let mut owners = ProcessRuns::new(&[run("of-parent", parent)]);
        assert_eq!(marked(&mut owners, this).as_deref(), Some("of-parent"));
        owners.event(Some("own"), &EventKind::RunStarted { run: Box::new(run("own", this)) });
        assert_eq!(marked(&mut owners, this).as_deref(), Some("own"), "the nearest");
        let ended = EventKind::RunStatus { status: RunStatus::exited(0), energy_joules: None };
        owners.event(Some("own"), &ended);
        assert_eq!(marked(&mut owners, this).as_deref(), Some("of-parent"));
        owners.event(Some("of-parent"), &EventKind::RunDeleted { name: None });
        assert_eq!(marked(&mut owners, this), None);
    }
}
