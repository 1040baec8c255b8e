//! Readings of the machine: its processors, its memory, and the disk that holds the history.

use std::path::PathBuf;

use headroom_protocol::{
    metric::HostSample,
    reading::{MissingReason, Reading},
};
use sysinfo::System;

use crate::platform::disk;

/// Reads the machine.
#[derive(Debug)]
pub struct Host {
    /// `None` if sysinfo does not support the system.
    system: Option<System>,
    disk_folder: PathBuf,
    n_read: u64,
}

impl Host {
    /// Creates a reader of this machine and of the directory's disk.
    pub fn new(disk_folder: PathBuf) -> Self {
        Self { system: System::new().ok(), disk_folder, n_read: 0 }
    }

    /// Reads the machine now. Processor utilisation is the mean since the last call.
    pub fn read(&mut self) -> HostSample {
        let reading = |bytes: Option<u64>| bytes.map_or(Reading::missing(MissingReason::Failed), Reading::Is);
        self.n_read += 1;
        let system = self.system.as_mut().map(|system| {
            system.refresh_cpu_usage();
            system.refresh_memory();
            &*system
        });
        // Zero total memory means that the reading failed.
        let system = system.filter(|system| system.total_memory() > 0);
        let cpu_percent = match system {
            None => Reading::missing(MissingReason::Failed),
            Some(_) if self.n_read < 2 => Reading::missing(MissingReason::NotYet),
            Some(system) => Reading::Is(f64::from(system.global_cpu_usage())),
        };
        let disk = disk(&self.disk_folder);
        HostSample {
            cpu_percent,
            memory_used_bytes: reading(system.map(System::used_memory)),
            memory_total_bytes: reading(system.map(System::total_memory)),
            disk_free_bytes: reading(disk.map(|disk| disk.free_bytes)),
            disk_total_bytes: reading(disk.map(|disk| disk.total_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_disk_and_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut host = Host::new(folder.path().to_owned());
        let first = host.read();
        assert_eq!(first.cpu_percent.why(), Some(MissingReason::NotYet));
        assert!(first.memory_used_bytes.get() < first.memory_total_bytes.get(), "{first:?}");
        assert!(first.disk_free_bytes.get() <= first.disk_total_bytes.get(), "{first:?}");
        assert!(first.disk_free_bytes.get().is_some(), "{first:?}");
        assert!(host.read().cpu_percent.get().is_some_and(|percent| (0.0..=100.0).contains(percent)));
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_disk() {
        let mut host = Host::new(PathBuf::from("/there/is/none"));
        assert_eq!(host.read().disk_free_bytes.why(), Some(MissingReason::Failed));
    }
}
