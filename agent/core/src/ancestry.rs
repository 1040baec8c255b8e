//! The ancestors of a process, found by querying single processes upwards instead of listing all.

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// The maximum number of ancestors; a typical process tree has five levels.
const ANCESTORS_MAX: usize = 64;

/// The system's process information; `None` if sysinfo does not support the system.
#[derive(Debug)]
pub struct Ancestry(Option<System>);

impl Default for Ancestry {
    fn default() -> Self {
        Self(System::new().ok())
    }
}

impl Ancestry {
    /// Returns a process and its ancestors, starting with the process itself.
    pub fn of(&mut self, pid: u32) -> Vec<u32> {
        let mut line = vec![pid];
        while line.len() < ANCESTORS_MAX
            && let Some(parent) = line.last().and_then(|last| self.parent(*last))
            && !line.contains(&parent)
        {
            line.push(parent);
        }
        line
    }

    fn parent(&mut self, pid: u32) -> Option<u32> {
        let system = self.0.as_mut()?;
        let pid = Pid::from_u32(pid);
        let kind = ProcessRefreshKind::nothing().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, kind);
        Some(system.process(pid)?.parent()?.as_u32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_descends_from_its_parent() {
        let line = Ancestry::default().of(std::process::id());
        assert_eq!(line[0], std::process::id());
        #[cfg(unix)]
        assert_eq!(line[1], std::os::unix::process::parent_id());
        assert_eq!(Ancestry::default().of(1 << 30), [1 << 30], "no process has this number");
    }
}
