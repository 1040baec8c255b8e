//! Rules about runs: those that make no progress, and those that fail.

use std::collections::{BTreeMap, VecDeque};

use headroom_shared::protocol::{
    alert::Alert,
    event::{Event, What},
    run::RunStatus,
};

use super::Raised;

/// Runs that are looked after at once; of more, those that were quiet for longest are forgotten.
const RUNS_MAX: usize = 256;
const MINUTE_MS: u64 = 60_000;

/// Failed runs that are on as alerts at most; history keeps as many alerts. Of more, the oldest stay on there.
const FAILED_MAX: usize = 1000;

/// Runs that have not ended, and those that failed.
#[derive(Debug, Default)]
pub struct Runs {
    courses: BTreeMap<String, Course>,
    /// Runs whose failure is on, oldest first.
    failed: VecDeque<String>,
}

#[derive(Debug)]
struct Course {
    progress_ms: u64,
    /// Rules that went off for it.
    on: Vec<Alert>,
}

impl Runs {
    /// A run went on, or began.
    pub fn progress(&mut self, run: &str, time_ms: u64) {
        if !self.courses.contains_key(run) && self.courses.len() >= RUNS_MAX {
            let quietest = self.courses.iter().min_by_key(|(_, course)| course.progress_ms).map(|(run, _)| run.clone());
            quietest.and_then(|run| self.courses.remove(&run));
        }
        let course = self.courses.entry(run.to_owned()).or_insert(Course { progress_ms: time_ms, on: vec![] });
        course.progress_ms = course.progress_ms.max(time_ms);
    }

    /// An alert that went off before the agent started; gives whether it may still hold.
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

    /// Takes a run from those whose failure is on; gives whether it was there.
    fn is_failed_no_more(&mut self, run: &str) -> bool {
        let n_before = self.failed.len();
        self.failed.retain(|failed| failed != run);
        self.failed.len() < n_before
    }

    /// Takes what happened to a run.
    pub fn event(&mut self, rules: &[Alert], run: &str, event: &Event) -> Vec<Raised> {
        match &event.what {
            what if what.is_progress() => {
                self.progress(run, event.time_ms);
                let mut on = self.courses.get_mut(run).map(|course| std::mem::take(&mut course.on)).unwrap_or_default();
                // It was taken for lost, and is there.
                if self.is_failed_no_more(run) {
                    on.push(Alert::RunFailed);
                }
                over(run, on)
            }
            What::RunStatus { status, .. } if status.has_ended() => {
                let on = self.courses.remove(run).map(|course| course.on).unwrap_or_default();
                let mut raised = over(run, on);
                if has_failed(*status) && rules.contains(&Alert::RunFailed) {
                    let value = if let RunStatus::Exited { code, .. } = status { Some(f64::from(*code)) } else { None };
                    let what = What::Alert { alert: Alert::RunFailed, gpu: None, value, status: Some(*status) };
                    raised.push(Raised { run: Some(run.to_owned()), what });
                    self.has_failed(run);
                }
                raised
            }
            // History ends its alerts with it.
            What::RunDeleted { .. } => {
                self.courses.remove(run);
                self.is_failed_no_more(run);
                vec![]
            }
            What::AlertDismissed { alert: Alert::RunFailed, .. } => {
                self.is_failed_no_more(run);
                vec![]
            }
            _ => vec![],
        }
    }

    /// The clock was set forward: nobody was quiet for so long.
    pub fn clock_set_forward(&mut self, by_ms: u64) {
        for course in self.courses.values_mut() {
            course.progress_ms = course.progress_ms.saturating_add(by_ms);
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, rules: &[Alert], now_ms: u64) -> Vec<Raised> {
        let mut raised = Vec::new();
        for (run, course) in &mut self.courses {
            // Progress that is yet to come was told by a clock that was set back since.
            course.progress_ms = course.progress_ms.min(now_ms);
            let quiet_ms = now_ms.saturating_sub(course.progress_ms);
            for &alert in rules {
                let Alert::NoProgress { minutes } = alert else { continue };
                // No minute at all would go off between any two lines.
                if quiet_ms >= minutes.max(1).saturating_mul(MINUTE_MS) && !course.on.contains(&alert) {
                    course.on.push(alert);
                    let value = Some((quiet_ms / MINUTE_MS) as f64);
                    raised.push(Raised {
                        run: Some(run.clone()),
                        what: What::Alert { alert, gpu: None, value, status: None },
                    });
                }
            }
        }
        raised
    }

    /// A rule is no more.
    pub fn forget(&mut self, alert: Alert) -> Vec<Raised> {
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

fn over(run: &str, on: Vec<Alert>) -> Vec<Raised> {
    let over = |alert| Raised { run: Some(run.to_owned()), what: What::AlertOver { alert, gpu: None } };
    on.into_iter().map(over).collect()
}

/// Whether nobody asked for that end. By a hang-up, Ctrl-C or a request to terminate somebody did; a shell and Python
/// give their statuses as 128 and the signal. Of a run whose watcher is gone nothing is known.
fn has_failed(status: RunStatus) -> bool {
    const ASKED: [i32; 3] = [1, 2, 15];
    // Whoever ends what is left of a run that ran out of memory ends one that had failed.
    if let Some(cause) = status.cause() {
        return !cause.is_wish();
    }
    match status {
        RunStatus::Exited { code, .. } => code != 0 && !ASKED.contains(&(code - 128)),
        RunStatus::Killed { signal, .. } => !ASKED.contains(&signal),
        // Its watcher was killed, as by the kernel where memory is short, or the machine went down.
        RunStatus::Lost => true,
        RunStatus::Running | RunStatus::Queued | RunStatus::Stalled { .. } => false,
    }
}
