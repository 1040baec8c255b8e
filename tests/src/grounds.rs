//! The folder that an owner lets runs be started in, and an end to what was started there.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// How often processes are looked for: one that is being ended may have begun another just before.
const ROUNDS_MAX: usize = 10;

/// Configs and the data set that they name. Whoever is at work there ends with the value: a test that fails midway
/// leaves no process behind. Values are dropped last first, so it stands before the server that starts runs in it.
#[derive(Debug)]
pub struct Grounds(TempDir);

impl Grounds {
    /// With these configs, by their names, and the data set `fox`.
    ///
    /// # Panics
    ///
    /// Where the folder cannot be written, or the program makes no data set.
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

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Processes that have it among their words: watchers and what they watch. Only Linux says so in files.
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

impl Drop for Grounds {
    fn drop(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let pids = self.at_work();
            if pids.is_empty() {
                return;
            }
            let mut kill = Command::new("kill");
            kill.arg("-9").args(pids.iter().map(u32::to_string)).stderr(Stdio::null());
            // One that has gone by itself meanwhile is gone.
            let _ = kill.status();
        }
    }
}
