//! The machine around the cards: its processors, its memory, and the disk that history lies on.

use std::path::PathBuf;

use headroom_shared::protocol::{
    host::HostSample,
    reading::{Reading, Why},
};
use sysinfo::System;

use crate::platform::disk;

/// Reads the machine.
#[derive(Debug)]
pub struct Host {
    /// None where sysinfo does not know the system.
    system: Option<System>,
    disk_folder: PathBuf,
    n_read: u64,
}

impl Host {
    /// Reads this machine, and the disk of a folder.
    pub fn new(disk_folder: PathBuf) -> Self {
        Self { system: System::new().ok(), disk_folder, n_read: 0 }
    }

    /// The machine now; how busy it was is of the time since the last call.
    pub fn read(&mut self) -> HostSample {
        let reading = |bytes: Option<u64>| bytes.map_or(Reading::missing(Why::Failed), Reading::Is);
        self.n_read += 1;
        let system = self.system.as_mut().map(|system| {
            system.refresh_cpu_usage();
            system.refresh_memory();
            &*system
        });
        // A machine without memory is one that was not read.
        let system = system.filter(|system| system.total_memory() > 0);
        let cpu_percent = match system {
            None => Reading::missing(Why::Failed),
            Some(_) if self.n_read < 2 => Reading::missing(Why::NotYet),
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
        assert_eq!(first.cpu_percent.why(), Some(Why::NotYet));
        assert!(first.memory_used_bytes.get() < first.memory_total_bytes.get(), "{first:?}");
        assert!(first.disk_free_bytes.get() <= first.disk_total_bytes.get(), "{first:?}");
        assert!(first.disk_free_bytes.get().is_some(), "{first:?}");
        assert!(host.read().cpu_percent.get().is_some_and(|percent| (0.0..=100.0).contains(percent)));
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_disk() {
        let mut host = Host::new(PathBuf::from("/there/is/none"));
        assert_eq!(host.read().disk_free_bytes.why(), Some(Why::Failed));
    }
}
