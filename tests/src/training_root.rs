//! A directory in which the agent may start runs, and cleanup of their processes.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// Rounds of the search for processes, because a process may start another one before it is killed.
const ROUNDS_MAX: usize = 10;

/// A directory with configs and their data set. Dropping it kills the processes that work in it, so that a failing test
/// leaves none behind. Variables are dropped in reverse order, so declare it before the server that starts runs in it.
#[derive(Debug)]
pub struct TrainingRoot(TempDir);

impl TrainingRoot {
    /// Creates the directory with these configs, by name, and the data set `fox`.
    ///
    /// # Panics
    ///
    /// If the directory cannot be written, or the program cannot create the data set.
    #[must_use]
    pub fn new(headroom: &Path, configs: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("config")).expect("a folder");
        for (name, text) in configs {
            fs::write(folder.path().join("config").join(name), text).expect("a config");
        }
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
        fs::write(folder.path().join("fox.txt"), text).expect("a text");
        let prepare = ["data", "prepare", "fox.txt", "--out", "data/fox"];
        let prepared = Command::new(headroom).args(prepare).current_dir(folder.path()).output().expect("headroom runs");
        assert!(prepared.status.success(), "{prepared:?}");
        Self(folder)
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the processes whose command line contains the directory: watchers and their children. Linux only.
    #[must_use]
    pub fn at_work(&self) -> Vec<u32> {
        let folder = self.path().display().to_string();
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pids = names.filter_map(|name| name.to_str()?.parse().ok());
        let has_it = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&folder)
        };
        pids.filter(has_it).collect()
    }
}

impl Drop for TrainingRoot {
    fn drop(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let pids = self.at_work();
            if pids.is_empty() {
                return;
            }
            let mut kill = Command::new("kill");
            kill.arg("-9").args(pids.iter().map(u32::to_string)).stderr(Stdio::null());
            // A process may have ended meanwhile.
            let _ = kill.status();
        }
    }
}
