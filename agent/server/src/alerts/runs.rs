//! Rules about runs: no progress, and failure.

use std::collections::{BTreeMap, VecDeque};

use headroom_protocol::{
    alert::Alert,
    event::{Event, EventKind},
    run::RunStatus,
};

use super::AlertEvent;

/// Maximum number of observed runs; beyond it, the run without progress for longest is dropped.
const RUNS_MAX: usize = 256;
const MINUTE_MS: u64 = 60_000;

/// Maximum number of active alerts about failed runs, as in history. Beyond it, the oldest remain active in history
/// only.
const FAILED_MAX: usize = 1000;

/// Runs that have not ended, and runs that failed.
#[derive(Debug, Default)]
pub struct Runs {
    courses: BTreeMap<String, Course>,
    /// Runs with an active alert about their failure, oldest first.
    failed: VecDeque<String>,
}

#[derive(Debug)]
struct Course {
    progress_ms: u64,
    /// Rules with an active alert about the run.
    on: Vec<Alert>,
}

impl Runs {
    /// Records that a run started or made progress.
    pub fn progress(&mut self, run: &str, time_ms: u64) {
        if !self.courses.contains_key(run) && self.courses.len() >= RUNS_MAX {
            let quietest = self.courses.iter().min_by_key(|(_, course)| course.progress_ms).map(|(run, _)| run.clone());
            quietest.and_then(|run| self.courses.remove(&run));
        }
        let course = self.courses.entry(run.to_owned()).or_insert(Course { progress_ms: time_ms, on: vec![] });
        course.progress_ms = course.progress_ms.max(time_ms);
    }

    /// Restores an alert from before the agent started. Returns whether it may still hold.
    pub fn restore(&mut self, alert: Alert, run: &str) -> bool {
        let course = self.courses.get_mut(run);
        match (alert, course) {
            (Alert::RunFailed, None) => {
                self.has_failed(run);
                true
            }
            (Alert::NoProgress { .. }, Some(course)) => {
                course.on.push(alert);
                true
            }
            _ => false,
        }
    }

    fn has_failed(&mut self, run: &str) {
        self.failed.retain(|failed| failed != run);
        if self.failed.len() >= FAILED_MAX {
            self.failed.pop_front();
        }
        self.failed.push_back(run.to_owned());
    }

    /// Removes a run from the failed runs. Returns whether it was one of them.
    fn is_failed_no_more(&mut self, run: &str) -> bool {
        let n_before = self.failed.len();
        self.failed.retain(|failed| failed != run);
        self.failed.len() < n_before
    }

    /// Applies an event of a run.
    pub fn event(&mut self, rules: &[Alert], run: &str, event: &Event) -> Vec<AlertEvent> {
        match &event.what {
            what if what.is_progress() => {
                self.progress(run, event.time_ms);
                let mut on = self.courses.get_mut(run).map(|course| std::mem::take(&mut course.on)).unwrap_or_default();
                // The run was considered lost, and has returned.
                if self.is_failed_no_more(run) {
                    on.push(Alert::RunFailed);
                }
                over(run, on)
            }
            EventKind::RunStatus { status, .. } if status.has_ended() => {
                let on = self.courses.remove(run).map(|course| course.on).unwrap_or_default();
                let mut raised = over(run, on);
                if has_failed(*status) && rules.contains(&Alert::RunFailed) {
                    let value = if let RunStatus::Exited { code, .. } = status { Some(f64::from(*code)) } else { None };
                    let what = EventKind::Alert { alert: Alert::RunFailed, gpu: None, value, status: Some(*status) };
                    raised.push(AlertEvent { run: Some(run.to_owned()), what });
                    self.has_failed(run);
                }
                raised
            }
            // History ends the alerts of a deleted run.
            EventKind::RunDeleted { .. } => {
                self.courses.remove(run);
                self.is_failed_no_more(run);
                vec![]
            }
            EventKind::AlertDismissed { alert: Alert::RunFailed, .. } => {
                self.is_failed_no_more(run);
                vec![]
            }
            _ => vec![],
        }
    }

    /// Compensates for a clock that was set forward, because no run was idle in the skipped time.
    pub fn clock_set_forward(&mut self, by_ms: u64) {
        for course in self.courses.values_mut() {
            course.progress_ms = course.progress_ms.saturating_add(by_ms);
        }
    }

    /// Checks for runs without progress.
    pub fn tick(&mut self, rules: &[Alert], now_ms: u64) -> Vec<AlertEvent> {
        let mut raised = Vec::new();
        for (run, course) in &mut self.courses {
            // Progress in the future was recorded before the clock was set back.
            course.progress_ms = course.progress_ms.min(now_ms);
            let quiet_ms = now_ms.saturating_sub(course.progress_ms);
            for &alert in rules {
                let Alert::NoProgress { minutes } = alert else { continue };
                // With zero minutes, the alert would fire between any two lines.
                if quiet_ms >= minutes.max(1).saturating_mul(MINUTE_MS) && !course.on.contains(&alert) {
                    course.on.push(alert);
                    let value = Some((quiet_ms / MINUTE_MS) as f64);
                    raised.push(AlertEvent {
                        run: Some(run.clone()),
                        what: EventKind::Alert { alert, gpu: None, value, status: None },
                    });
                }
            }
        }
        raised
    }

    /// Ends the alerts of a removed rule.
    pub fn forget(&mut self, alert: Alert) -> Vec<AlertEvent> {
        let mut raised = Vec::new();
        for (run, course) in &mut self.courses {
            let n_before = course.on.len();
            course.on.retain(|on| *on != alert);
            if course.on.len() < n_before {
                raised.extend(over(run, vec![alert]));
            }
        }
        if alert == Alert::RunFailed {
            raised.extend(self.failed.drain(..).flat_map(|run| over(&run, vec![alert])));
        }
        raised
    }
}

fn over(run: &str, on: Vec<Alert>) -> Vec<AlertEvent> {
    let over = |alert| AlertEvent { run: Some(run.to_owned()), what: EventKind::AlertOver { alert, gpu: None } };
    on.into_iter().map(over).collect()
}

/// Whether a run failed without a request to end. Hang-up, Ctrl-C and a termination signal are such requests; a shell
/// and Python return their statuses as 128 plus the signal. A run whose watcher is gone counts as failed.
fn has_failed(status: RunStatus) -> bool {
    const ASKED: [i32; 3] = [1, 2, 15];
    // A stop request to a run that ran out of memory ends a run that had already failed.
    if let Some(cause) = status.cause() {
        return !cause.is_wish();
    }
    match status {
        RunStatus::Exited { code, .. } => code != 0 && !ASKED.contains(&(code - 128)),
        RunStatus::Killed { signal, .. } => !ASKED.contains(&signal),
        // The watcher was killed, such as by the kernel if memory is short, or the machine went down.
        RunStatus::Lost => true,
        RunStatus::Running | RunStatus::Queued | RunStatus::Stalled { .. } => false,
    }
}
