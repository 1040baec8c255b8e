//! Which run a process on a card belongs to: its own process, or one that it started.

use std::collections::HashMap;

use headroom_shared::protocol::{Slow, event::What, reading::Reading, run::Run};

use crate::ancestry::Ancestry;

/// Runs that have not ended, and the processes that are known to be theirs.
#[derive(Debug, Default)]
pub struct Owners {
    /// A run's process, and its number.
    runs: Vec<(u32, String)>,
    /// What was found of a process. Who its parents are does not change while it and they live.
    known: HashMap<u32, Option<String>>,
    ancestry: Ancestry,
}

impl Owners {
    /// With the runs of history; those that have ended have no processes.
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

    /// Takes what happened to a run.
    pub fn event(&mut self, run: Option<&str>, what: &What) {
        match (run, what) {
            (Some(id), What::RunStarted { run }) => self.add(&Run { id: id.to_owned(), ..(**run).clone() }),
            (Some(id), What::RunResumed { pid, .. }) => {
                self.add(&Run { id: id.to_owned(), pid: *pid, ..Run::default() });
            }
            (Some(id), What::RunStatus { status, .. }) if status.has_ended() => self.end(id),
            (Some(id), What::RunDeleted { .. }) => self.end(id),
            _ => {}
        }
    }

    fn end(&mut self, id: &str) {
        self.runs.retain(|(_, run)| run != id);
        self.known.clear();
    }

    /// Gives the processes of cards their runs.
    pub fn mark(&mut self, slow: &mut Slow) {
        if self.runs.is_empty() {
            return;
        }
        let mut still = HashMap::new();
        for card in &mut slow.gpus {
            let Reading::Is(processes) = &mut card.processes else { continue };
            for process in processes {
                let run = self.known.get(&process.pid).cloned().unwrap_or_else(|| {
                    let line = self.ancestry.of(process.pid);
                    // The nearest: a run that another one started is its own.
                    let mut runs = line.iter().filter_map(|pid| self.runs.iter().find(|(of, _)| of == pid));
                    runs.next().map(|(_, id)| id.clone())
                });
                still.insert(process.pid, run.clone());
                process.run = run;
            }
        }
        // A number whose process is gone may be given to another.
        self.known = still;
    }
}

#[cfg(test)]
mod tests {
    use headroom_shared::protocol::{
        gpu::{Process, SlowSample},
        host::HostSample,
        reading::Why,
        run::RunStatus,
    };

    use super::*;

    fn run(id: &str, pid: u32) -> Run {
        Run { id: id.to_owned(), pid: Some(pid), ..Run::default() }
    }

    fn slow(pid: u32) -> Slow {
        fn missing<T>() -> Reading<T> {
            Reading::missing(Why::NotSupported)
        }
        let process = Process { pid, name: missing(), user: missing(), memory_used_bytes: missing(), run: None };
        let gpu = SlowSample {
            gpu: 0,
            fan_percent: missing(),
            energy_joules: missing(),
            pcie_receive_bytes_per_second: missing(),
            pcie_send_bytes_per_second: missing(),
            pcie_link: missing(),
            ecc_corrected: missing(),
            ecc_uncorrected: missing(),
            processes: Reading::Is(vec![process]),
        };
        let host = HostSample {
            cpu_percent: missing(),
            memory_used_bytes: missing(),
            memory_total_bytes: missing(),
            disk_free_bytes: missing(),
            disk_total_bytes: missing(),
        };
        Slow { time_ms: 0, gpus: vec![gpu], host }
    }

    fn marked(owners: &mut Owners, pid: u32) -> Option<String> {
        let mut slow = slow(pid);
        owners.mark(&mut slow);
        slow.gpus[0].processes.get().expect("processes")[0].run.clone()
    }

    #[cfg(unix)]
    #[test]
    fn a_process_is_its_own_runs_and_its_parents() {
        let (this, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let mut owners = Owners::new(&[run("of-parent", parent)]);
        assert_eq!(marked(&mut owners, this).as_deref(), Some("of-parent"));
        owners.event(Some("own"), &What::RunStarted { run: Box::new(run("own", this)) });
        assert_eq!(marked(&mut owners, this).as_deref(), Some("own"), "the nearest");
        let ended = What::RunStatus { status: RunStatus::exited(0), energy_joules: None };
        owners.event(Some("own"), &ended);
        assert_eq!(marked(&mut owners, this).as_deref(), Some("of-parent"));
        owners.event(Some("of-parent"), &What::RunDeleted { name: None });
        assert_eq!(marked(&mut owners, this), None);
    }
}
