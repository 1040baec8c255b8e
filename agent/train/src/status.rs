//! Status file, by which `headroom train` reports its start, unsaved checkpoints and its end to its watcher.
//!
//! The watcher creates the file and names it in [`VARIABLE`]. Each line is a JSON object. Compared with a file
//! descriptor, a file works through shells and launchers that close descriptors, and on Windows. It also outlives a
//! killed watcher, so a later one can read the end.

use std::{
    env,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    process,
};

use headroom_protocol::message::Message;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGINT;

use super::output;
use headroom_agent_core::{folders::private_file, platform::status_of_signal};

/// Environment variable with the path of the file. Without it nothing is reported.
pub const VARIABLE: &str = "HEADROOM_STATUS_FILE";

/// The exit status of a run that was stopped, whether it could save or not. It is the status that shells give to a
/// program ended by Ctrl-C, so that `train && export` does not continue.
pub const STOPPED_EXIT_STATUS: u8 = status_of_signal(SIGINT);

/// Limit of one read in bytes. A longer line is skipped.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Limit of a message in characters. A longer one is dropped.
const MESSAGE_CHARS_MAX: usize = 1000;

/// One entry of the status file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Status {
    /// The program started. Later entries belong to it until it reports an [`End`], or another program starts.
    Started,
    /// A checkpoint could not be saved; the run continues.
    NotSaved {
        /// Completed iterations.
        iter: u64,
        /// Cause and hint.
        why: Message,
    },
    /// Activation recomputation of a run on a GPU. Not reported without any.
    Recomputes {
        /// Levels and their blocks.
        what: Message,
    },
    Ended(ProgramEnd),
    /// An entry of a later version.
    #[serde(other)]
    Other,
}

/// How the program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// Kind of the end.
    pub end: End,
    /// Exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
    /// Iteration at which the program ended. `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
    /// Iteration of the last checkpoint. `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Message>,
}

/// Kind of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All iterations are complete.
    Finished,
    /// The user asked it to stop, and it completed its iteration.
    Stopped,
    /// The user asked it to stop at once.
    Interrupted,
    /// A value is not finite, or the loss rose and stayed high.
    Diverged,
    /// The GPU is out of memory.
    OutOfMemory,
    /// Any other error.
    Failed,
    /// A kind of a later version.
    #[serde(other)]
    Other,
}

impl ProgramEnd {
    /// Creates an end without details.
    pub const fn new(end: End) -> Self {
        Self { end, status: None, iteration: None, checkpoint: None, reason: None }
    }

    /// Exit status, or the usual one for this kind of end.
    pub fn code(&self) -> i32 {
        let usual = match self.end {
            End::Finished => 0,
            End::Stopped => STOPPED_EXIT_STATUS,
            End::Interrupted | End::Diverged | End::OutOfMemory | End::Failed | End::Other => 1,
        };
        self.status.unwrap_or(usual).into()
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// ID of the reporting process.
    pid: u32,
    #[serde(flatten)]
    status: Status,
}

/// Writer of the status file.
#[derive(Clone, Debug, Default)]
pub struct Reporter(Option<PathBuf>);

impl Reporter {
    /// Creates the reporter for the file that the environment names.
    pub fn from_environment() -> Self {
        Self(env::var_os(VARIABLE).map(PathBuf::from))
    }

    /// Whether the output of this process stays open although a write to it failed, because a relay was killed.
    pub fn has_open_output(&self) -> bool {
        self.0.as_deref().and_then(Path::parent).is_some_and(output::is_kept_open)
    }

    /// Appends an entry. A write error does not end the run.
    pub fn report(&self, status: Status) {
        let Some(path) = &self.0 else { return };
        let Ok(line) = serde_json::to_string(&Line { pid: process::id(), status }) else { return };
        // Only the watcher creates the file: a stale variable must not.
        if let Ok(mut file) = File::options().append(true).open(path) {
            // A single write keeps the lines of concurrent processes intact.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// Creates the file for a run.
///
/// # Errors
/// The file cannot be created.
pub fn create(path: &Path) -> std::io::Result<()> {
    private_file().open(path)?.set_len(0)
}

/// Reads the file as it grows.
#[derive(Debug)]
pub struct StatusReader {
    path: PathBuf,
    offset: u64,
    /// ID of the process that started last. Entries of other processes are ignored.
    trainer: Option<u32>,
}

impl StatusReader {
    /// Creates a follower at the beginning of a file.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, trainer: None }
    }

    /// Reads the entries since the last call. Invalid lines are skipped.
    pub fn poll(&mut self) -> Vec<Status> {
        let Some(bytes) = self.read() else { return vec![] };
        let complete = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if bytes.len() as u64 >= READ_BYTES_MAX => bytes.len(),
            None => 0,
        };
        self.offset += complete as u64;
        let lines = bytes[..complete].split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok()).filter_map(|line| self.take(line)).collect()
    }

    fn read(&self) -> Option<Vec<u8>> {
        let mut file = File::open(&self.path).ok()?;
        if file.metadata().ok()?.len() <= self.offset {
            return None;
        }
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut bytes = vec![];
        file.take(READ_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn take(&mut self, Line { pid, mut status }: Line) -> Option<Status> {
        if status == Status::Started {
            self.trainer = Some(pid);
        }
        match &mut status {
            Status::NotSaved { why: message, .. }
            | Status::Recomputes { what: message }
            | Status::Ended(ProgramEnd { reason: Some(message), .. }) => {
                if let Some((end, _)) = message.en.char_indices().nth(MESSAGE_CHARS_MAX) {
                    *message = Message::plain(&message.en[..end]);
                }
            }
            _ => {}
        }
        (self.trainer == Some(pid)).then_some(status)
    }
}

#[cfg(test)]
mod tests {
    use headroom_text as text;

    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("status.jsonl");
        create(&path).expect("a file");
        (folder, path)
    }

    fn append(path: &Path, text: &str) {
        File::options().append(true).open(path).expect("a file").write_all(text.as_bytes()).expect("it is written");
    }

    #[test]
    fn follower_reads_what_reporter_writes() {
        let (_folder, path) = file();
        let reporter = Reporter(Some(path.clone()));
        let mut follower = StatusReader::new(path);
        assert_eq!(follower.poll(), []);
        let reason = Message::from(text::run_diverged(text::DIVERGED_LOSS, 7_u64, "NaN"));
        let ended = ProgramEnd { iteration: Some(7), reason: Some(reason), ..ProgramEnd::new(End::Diverged) };
        let all = [Status::Started, Status::NotSaved { iter: 3, why: Message::plain("full") }, Status::Ended(ended)];
        for status in &all {
            reporter.report(status.clone());
            assert_eq!(follower.poll().as_slice(), std::slice::from_ref(status));
        }
        assert_eq!(follower.poll(), []);
    }

    #[test]
    fn a_report_has_a_stable_form() {
        let reason = Message::from(text::run_none("a"));
        let mut ended = ProgramEnd::new(End::OutOfMemory);
        (ended.status, ended.iteration, ended.checkpoint, ended.reason) = (Some(1), Some(7), Some(5), Some(reason));
        for (status, json) in [
            (Status::Started, r#"{"pid":1,"event":"started"}"#),
            (Status::Ended(ProgramEnd::new(End::Finished)), r#"{"pid":1,"event":"ended","end":"finished"}"#),
            (
                Status::Ended(ended),
                r#"{"pid":1,"event":"ended","end":"out_of_memory","status":1,"iteration":7,"checkpoint":5,"reason":{"message":"there is no run a","message_text":{"key":"run_none","args":[{"text":"a"}]}}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&Line { pid: 1, status: status.clone() }).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<Line>(json).expect("a line").status, status);
        }
        let later: Line = serde_json::from_str(r#"{"pid":1,"event":"ended","end":"evicted"}"#).expect("a line");
        assert_eq!(later.status, Status::Ended(ProgramEnd::new(End::Other)));
    }

    #[test]
    fn the_trainer_that_began_last_decides() {
        let (_folder, path) = file();
        let mut follower = StatusReader::new(path.clone());
        append(&path, "{\"pid\":7,\"event\":\"started\"}\n{\"pid\":8,\"event\":\"started\"}\n");
        append(&path, "{\"pid\":7,\"event\":\"ended\",\"end\":\"failed\"}\n");
        assert_eq!(follower.poll(), [Status::Started, Status::Started]);
        append(&path, "{\"pid\":8,\"event\":\"ended\",\"end\":\"finished\"}\n");
        assert_eq!(follower.poll(), [Status::Ended(ProgramEnd::new(End::Finished))]);
    }

    #[test]
    fn broken_and_unfinished_lines_are_skipped() {
        let (_folder, path) = file();
        let mut follower = StatusReader::new(path.clone());
        append(&path, "{\"pid\":7,\"event\":\"started\"}\nnot json\n\0\n{}\n{\"pid\":7,\"event\":\"en");
        assert_eq!(follower.poll(), [Status::Started]);
        append(&path, "ded\",\"end\":\"stopped\"}\n");
        assert_eq!(follower.poll(), [Status::Ended(ProgramEnd::new(End::Stopped))]);
        append(&path, &"x".repeat(3 << 20));
        append(&path, "\n{\"pid\":7,\"event\":\"ended\",\"end\":\"failed\"}\n");
        let rest: Vec<Status> = (0..5).flat_map(|_| follower.poll()).collect();
        assert_eq!(rest, [Status::Ended(ProgramEnd::new(End::Failed))]);
    }

    #[test]
    fn a_reporter_creates_no_file() {
        let (folder, _) = file();
        let path = folder.path().join("none");
        Reporter(Some(path.clone())).report(Status::Started);
        assert!(!path.exists());
    }
}
