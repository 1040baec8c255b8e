//! Directory of a watched run, `watched/ID` in the data directory. It holds the state for another watcher to continue,
//! and is removed when the history of the run is complete.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use headroom_planner::nanogpt::Source;
use headroom_protocol::run::Run;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    spool::{self, is_written},
    tee::Stream,
};
use headroom_agent_core::{
    folders::{self, private_file},
    platform::ProgramEnding,
};
use headroom_train::status;

/// Lock of the process that writes the run's history.
const LOCK: &str = "watcher.lock";
/// Status file of `headroom train`.
const STATUS: &str = "status.jsonl";
/// File of the [`Description`].
const DESCRIPTION: &str = "run.json";
/// File of the [`Position`].
const POSITION: &str = "position.json";
/// File of the [`CommandEnd`].
const COMMAND_END: &str = "end.json";
/// Age after which a directory without a description is removed: its watcher was killed during the start.
const UNDESCRIBED: Duration = Duration::from_secs(10);

/// Directory of a run, locked by this process.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    #[expect(dead_code, reason = "held")]
    lock: File,
}

/// Settings of the watcher, for another watcher to continue.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    /// The run at its start.
    pub run: Run,
    /// Identity of the command's process.
    pub process: Option<String>,
    /// Config named by the user.
    pub given: Vec<SerializedSource>,
    /// GPU named by the user.
    pub gpu: Option<String>,
    /// Pattern for the output of other trainers.
    pub pattern: Option<String>,
    /// Seconds without progress after which the run counts as stalled.
    pub stall_seconds: Option<u64>,
    /// Value of `CUDA_VISIBLE_DEVICES`.
    pub visible: Option<String>,
    /// Checkpoint directory of a run that the agent started.
    pub out: Option<PathBuf>,
}

/// Serialized form of a [`Source`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerializedSource {
    /// A file, as its name and text.
    File(String, String),
    /// A file without its text.
    Named(String),
    /// An argument.
    Override(String),
    /// An argument that the run printed.
    Printed(String),
}

impl From<&Source> for SerializedSource {
    fn from(source: &Source) -> Self {
        match source.clone() {
            Source::File { name, text } => Self::File(name, text),
            Source::Named { name } => Self::Named(name),
            Source::Override { text } => Self::Override(text),
            Source::Printed { text } => Self::Printed(text),
        }
    }
}

impl From<SerializedSource> for Source {
    fn from(given: SerializedSource) -> Self {
        match given {
            SerializedSource::File(name, text) => Self::File { name, text },
            SerializedSource::Named(name) => Self::Named { name },
            SerializedSource::Override(text) => Self::Override { text },
            SerializedSource::Printed(text) => Self::Printed { text },
        }
    }
}

/// Part of the output that the history contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// End offset in each stream, in bytes.
    pub ends: [u64; 2],
    /// Lines of figures in the history up to these offsets.
    pub lines: u64,
}

/// Exit of the command whose output another program still holds open.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CommandEnd {
    /// Exit status.
    pub code: i32,
    /// Energy of the run's GPUs until the exit, in joules.
    pub energy_joules: Option<f64>,
}

impl CommandEnd {
    /// The exit as an [`ProgramEnding`].
    pub const fn ending(self) -> ProgramEnding {
        ProgramEnding::Exited(self.code)
    }
}

impl RunFolder {
    /// Creates and locks the directory of a run, with an empty status file. Removes the files of an earlier part of the
    /// run.
    ///
    /// # Errors
    /// A file cannot be created, or another process watches the run.
    pub fn create(data: &Path, id: &str) -> io::Result<Self> {
        let path = folders::watched(data, id);
        folders::make(&path)?;
        let folder = Self::lock(path)?;
        for entry in fs::read_dir(&folder.path)?.flatten() {
            if entry.file_name() != LOCK {
                fs::remove_file(entry.path())?;
            }
        }
        status::create(&folder.status())?;
        Ok(folder)
    }

    /// Locks the directory of a run without a watcher.
    ///
    /// # Errors
    /// The directory is missing, or another process watches the run.
    pub fn take(data: &Path, id: &str) -> io::Result<Self> {
        let path = folders::watched(data, id);
        // The directory is not created here: the run may be deleted or complete.
        path.symlink_metadata()?;
        Self::lock(path)
    }

    fn lock(path: PathBuf) -> io::Result<Self> {
        let lock = private_file().open(path.join(LOCK))?;
        lock.try_lock()?;
        Ok(Self { path, lock })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the status file.
    pub fn status(&self) -> PathBuf {
        self.path.join(STATUS)
    }

    /// Writes the description.
    pub fn describe(&self, description: &Description) -> io::Result<()> {
        self.write(DESCRIPTION, description)
    }

    /// Reads the description.
    pub fn description(&self) -> Option<Description> {
        self.read(DESCRIPTION)
    }

    /// Writes the position, and trims the spool up to it.
    pub fn keep_position(&self, position: &Position) {
        if self.write(POSITION, position).is_ok() {
            for stream in [Stream::Out, Stream::Err] {
                spool::trim(&self.path, stream, position.ends[stream as usize]);
            }
        }
    }

    /// Reads the position. Default: the start.
    pub fn position(&self) -> Position {
        self.read(POSITION).unwrap_or_default()
    }

    /// Writes how the command ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_end(&self, end: &CommandEnd) -> io::Result<()> {
        self.write(COMMAND_END, end)
    }

    /// Reads how the command ended.
    pub fn end(&self) -> Option<CommandEnd> {
        self.read(COMMAND_END)
    }

    /// Removes the directory with its contents.
    pub fn remove(self) {
        // Remaining files are harmless.
        let _ = fs::remove_dir_all(&self.path);
    }

    /// Whether the previous watcher was killed before it wrote the description.
    fn is_undescribed(&self) -> bool {
        let age = fs::metadata(self.path.join(LOCK)).and_then(|data| data.modified()).ok();
        let age = age.and_then(|began| SystemTime::now().duration_since(began).ok());
        !self.path.join(DESCRIPTION).exists() && age.is_some_and(|age| age > UNDESCRIBED)
    }

    /// Whether a relay still writes the output of the run.
    fn is_written(&self) -> bool {
        [Stream::Out, Stream::Err].into_iter().any(|stream| is_written(&self.path, stream))
    }

    fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = private_file().truncate(true).open(&new)?;
        serde_json::to_writer(&mut file, value)?;
        drop(file);
        fs::rename(new, self.path.join(name))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.path.join(name)).ok()?).ok()
    }
}

/// Removes the directory of a deleted run, unless a process watches it.
pub fn remove(data: &Path, id: &str) {
    if let Ok(folder) = RunFolder::take(data, id) {
        folder.remove();
    }
}

/// A run without a watcher whose history is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedRun {
    /// ID of the run.
    pub id: String,
    /// Whether the output is still open.
    pub is_open: bool,
}

/// Lists the runs without watchers, and removes useless directories.
pub fn orphans(data: &Path) -> Vec<OrphanedRun> {
    let mut orphans = vec![];
    for entry in fs::read_dir(data.join(folders::WATCHED)).into_iter().flatten().flatten() {
        let Ok(id) = entry.file_name().into_string() else { continue };
        let Ok(folder) = RunFolder::take(data, &id) else { continue };
        if folder.description().is_some() {
            orphans.push(OrphanedRun { is_open: folder.is_written(), id });
        } else if folder.is_undescribed() && !folder.is_written() {
            folder.remove();
        }
    }
    orphans
}
