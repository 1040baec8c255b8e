//! Outcome of a run and its cause, from the status file, last words, driver and kernel.

use std::{ffi::OsString, path::Path, sync::PoisonError, time::Duration};

use headroom_planner::oom;
use headroom_protocol::{
    event::EventKind,
    run::{Cause, RunStatus},
};
use headroom_text::{self as text, Separator, Text};

use super::{Config, Journal, PlannedGpu, Record, Stream, last_words::Kind, xid};
use headroom_agent_core::platform::ProgramEnding;
use headroom_train::status::{End, ProgramEnd};

/// SIGKILL, which the kernel's OOM killer sends.
const SIGKILL: i32 = 9;
/// SIGTERM, which requests an end.
const SIGTERM: i32 = 15;

/// Result of a run that has ended.
#[derive(Debug)]
pub struct RunEnd {
    /// How the run ended.
    pub ending: ProgramEnding,
    /// End of the output, if the run died of an out-of-memory error.
    pub out_of_memory: Option<String>,
    /// Config of the run.
    pub config: Option<Config>,
    /// GPU that the run was planned for.
    pub gpu: Option<PlannedGpu>,
    /// Whether the run saved a checkpoint.
    pub saved: bool,
    /// Whether the output contradicts the config.
    pub is_contradicted: bool,
}

impl Journal {
    /// Records the end of a run after all its output was read.
    pub fn end(mut self, ending: ProgramEnding, now: Duration) -> (RunEnd, Box<dyn Record>) {
        self.finish_lines(now);
        let (out_of_memory, status) = self.fate(ending, now);
        self.status(status);
        let ended = RunEnd {
            ending,
            out_of_memory,
            config: self.config,
            gpu: self.planned_for.flatten().or(self.settings.gpu),
            saved: self.saved,
            is_contradicted: self.contradiction.is_some(),
        };
        (ended, self.record)
    }

    /// Parses incomplete lines, and sends pending events.
    fn finish_lines(&mut self, now: Duration) {
        for stream in [Stream::Out, Stream::Err] {
            let (mut lines, mut reader) = std::mem::take(&mut self.streams[stream as usize]);
            lines.finish(|line| self.line(stream, &mut reader, line, now));
            let mut said = vec![];
            reader.finish(&mut |printed| said.push(printed));
            said.into_iter().for_each(|printed| self.printed(printed, now));
        }
        self.read_status(now);
        self.report_pending(now);
        self.plan();
        self.memory();
    }

    /// Returns the record without an end, for another watcher to continue.
    pub fn hand_over(mut self, now: Duration) -> Box<dyn Record> {
        self.tick(now);
        self.report_pending(now);
        self.record
    }

    /// Records the end of a run with an unknown exit status. Only `headroom train` reports its own end.
    pub fn end_unseen(mut self, now: Duration) -> Box<dyn Record> {
        self.read_status(now);
        if let Some(code) = self.builtin.ended.as_ref().map(ProgramEnd::code) {
            return self.end(ProgramEnding::Exited(code), now).1;
        }
        self.finish_lines(now);
        let oom = (!self.is_simulated()).then(|| oom::read(&self.tail.take()).first).flatten();
        if let Some(message) = oom.filter(|message| message.kind != oom::Kind::NotOom) {
            self.append(EventKind::RunOom { message: message.text });
        } else if let Some((kind, words)) = self.any_words()
            && kind > Kind::Other
        {
            // The run may have succeeded, so lines without an error are not its last words.
            self.append(EventKind::RunExplained { message: text::as_is(words).into(), xid: None });
        }
        self.status(RunStatus::Lost);
        self.record
    }

    /// Outcome of the run, and the end of its output if that has the out-of-memory message.
    pub(super) fn fate(&mut self, ending: ProgramEnding, now: Duration) -> (Option<String>, RunStatus) {
        let text = self.tail.take();
        let status = match ending {
            ProgramEnding::Exited(code) if self.was_stopped() => {
                return (None, RunStatus::Exited { code, cause: Some(Cause::Stopped) });
            }
            ProgramEnding::Exited(0) => return (None, RunStatus::exited(0)),
            ProgramEnding::Exited(code) => RunStatus::exited(code),
            ProgramEnding::Killed(signal) => RunStatus::killed(signal),
        };
        let oom = (!self.is_simulated()).then(|| oom::read(&text).first).flatten();
        let oom = oom.filter(|message| message.kind != oom::Kind::NotOom);
        let cause = self.explain(oom.is_some(), ending, now);
        match oom {
            Some(message) => {
                self.append(EventKind::RunOom { message: message.text });
                (Some(text), status.because(Some(Cause::OutOfGpuMemory)))
            }
            None => (None, status.because(cause)),
        }
    }

    /// Determines and records the cause of a failure from the last words, the driver and the kernel. An out-of-memory
    /// message has its own event.
    fn explain(&mut self, is_oom: bool, ending: ProgramEnding, now: Duration) -> Option<Cause> {
        let is_on_gpu = self.builtin.is && !self.builtin.is_on_cpu;
        let visible = is_on_gpu.then(|| self.settings.visible.as_deref().unwrap_or("0"));
        let xid = self.gpus.lock().unwrap_or_else(PoisonError::into_inner).fault(visible);
        let (cause, words) = self.builtin.ended.take().map_or((None, None), |ProgramEnd { end, reason, .. }| {
            let cause = match end {
                End::Diverged => Some(Cause::Diverged),
                End::OutOfMemory => Some(Cause::OutOfGpuMemory),
                End::Finished | End::Stopped | End::Interrupted | End::Failed | End::Other => None,
            };
            (cause, reason.map(|reason| reason.text()))
        });
        // A killed run prints no last words.
        let speaks = !is_oom && !matches!(ending, ProgramEnding::Killed(SIGKILL | SIGTERM));
        let words = words.or_else(|| speaks.then(|| self.any_words()).flatten().map(|(_, words)| text::as_is(words)));
        let is_out_of_memory = ending == ProgramEnding::Killed(SIGKILL) && self.kills.is_one(now);
        let killed = is_out_of_memory.then(|| text::RUN_KILLED.into());
        let said: Vec<Text> = words.into_iter().chain(xid.map(xid::sentence)).chain(killed).collect();
        if !said.is_empty() {
            let message = text::as_is(text::list(Separator::Paragraph, said)).into();
            self.append(EventKind::RunExplained { message, xid });
        }
        if cause.is_some() {
            return cause;
        }
        // `headroom train` ends by this signal if it arrives before the handler is set up, or a second time during a
        // save.
        if self.builtin.is && ending == ProgramEnding::Killed(SIGTERM) {
            return Some(Cause::Stopped);
        }
        xid.map(|_| Cause::GpuError).or(is_out_of_memory.then_some(Cause::OutOfHostMemory))
    }

    /// Whether PyTorch's messages in the output are not the run's own. The built-in trainer does not use PyTorch's
    /// allocator, and a plan runs nothing.
    fn is_simulated(&self) -> bool {
        self.builtin.is || is_own_plan(&self.settings.command)
    }

    /// Whether the run reported that its user stopped it.
    fn was_stopped(&self) -> bool {
        let ended = self.builtin.ended.as_ref();
        ended.is_some_and(|ended| matches!(ended.end, End::Stopped | End::Interrupted))
    }

    /// The most helpful last words, from standard error if both streams have some of a kind.
    fn any_words(&mut self) -> Option<(Kind, String)> {
        let [out, err] = &mut self.last_words;
        let (err, out) = (err.take(), out.take());
        let kind = |words: &Option<(Kind, String)>| words.as_ref().map(|(kind, _)| *kind);
        // Text without an error, such as a warning, does not outweigh an error message on the other stream.
        let is_out = kind(&err) < kind(&out);
        if is_out { out } else { err }
    }
}

/// Whether a command is Headroom's plan or diagnosis, whose output has PyTorch's message although nothing ran.
fn is_own_plan(command: &[OsString]) -> bool {
    let [program, subcommand, ..] = command else { return false };
    let name = Path::new(program).file_stem();
    name.is_some_and(|name| name == "headroom") && (subcommand == "plan" || subcommand == "diagnose")
}
