//! What became of a run: how it ended, and why, as far as its last words, the driver and the kernel say.

use std::{sync::PoisonError, time::Duration};

use headroom_shared::{
    oom,
    protocol::{
        event::What,
        run::{Cause, RunStatus},
    },
    text,
};

use super::{Journal, builtin, xid};
use crate::platform::Ending;

/// The signal by which the kernel kills.
const SIGKILL: i32 = 9;
/// What asks for an end.
const SIGTERM: i32 = 15;
/// The statuses of `headroom train` where it was stopped and saved: that of earlier versions, and those by which a shell
/// names an end by Ctrl-C and by a request to end.
const STOPPED: [i32; 3] = [0, 130, 143];

impl Journal {
    /// How the run ended, and the end of what was printed where that has the out-of-memory message that it died of.
    pub(super) fn fate(&mut self, ending: Ending, now: Duration) -> (Option<String>, RunStatus) {
        let text = self.tail.take();
        let status = match ending {
            Ending::Exited(code) if self.builtin.is && STOPPED.contains(&code) && builtin::says_stopped(&text) => {
                return (None, RunStatus::Exited { code, cause: Some(Cause::Stopped) });
            }
            Ending::Exited(0) => return (None, RunStatus::exited(0)),
            Ending::Exited(code) => RunStatus::exited(code),
            Ending::Killed(signal) => RunStatus::killed(signal),
        };
        // The allocations of a run of ours are none of PyTorch's.
        let oom = (!self.builtin.is).then(|| oom::read(&text).first).flatten();
        let oom = oom.filter(|message| message.kind != oom::Kind::NotOom);
        let cause = self.explain(&text, oom.is_some(), ending, now);
        match oom {
            Some(message) => {
                self.append(What::RunOom { message: message.text });
                (Some(text), status.because(Some(Cause::OutOfGpuMemory)))
            }
            None => (None, status.because(cause)),
        }
    }

    /// Says why a run failed, as far as its last words, the driver and the kernel do; gives what it died of. An
    /// out-of-memory message is told by itself.
    fn explain(&mut self, tail: &str, is_oom: bool, ending: Ending, now: Duration) -> Option<Cause> {
        let is_on_card = self.builtin.is && !self.builtin.is_on_cpu;
        let visible = is_on_card.then(|| self.settings.visible.as_deref().unwrap_or("0"));
        let xid = self.cards.lock().unwrap_or_else(PoisonError::into_inner).fault(visible);
        let words = self.builtin.is.then(|| builtin::last_words(tail)).flatten();
        let cause = words.as_deref().and_then(builtin::cause);
        // Whoever is killed, or told to end, says nothing of it.
        let speaks = !is_oom && !matches!(ending, Ending::Killed(SIGKILL | SIGTERM));
        let words = words.or_else(|| speaks.then(|| self.any_words()).flatten());
        let is_out_of_memory = ending == Ending::Killed(SIGKILL) && self.kills.is_one(now);
        let killed = is_out_of_memory.then(|| text::RUN_KILLED.to_string());
        let said: Vec<String> = words.into_iter().chain(xid.map(xid::sentence)).chain(killed).collect();
        if !said.is_empty() {
            self.append(What::RunExplained { message: said.join("\n\n"), xid });
        }
        if cause.is_some() {
            return cause;
        }
        // Ours ends by that signal where somebody asks for its end before it listens, or does not wait for it to save.
        if self.builtin.is && ending == Ending::Killed(SIGTERM) {
            return Some(Cause::Stopped);
        }
        xid.map(|_| Cause::CardError).or(is_out_of_memory.then_some(Cause::OutOfHostMemory))
    }

    /// What it printed last to standard error, or without that to standard output.
    fn any_words(&mut self) -> Option<String> {
        let [out, err] = &mut self.last_words;
        err.take().or_else(|| out.take())
    }
}
