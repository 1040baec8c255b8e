//! Rules about runs: those that make no progress, and those that fail.

use std::collections::BTreeMap;

use headroom_shared::protocol::{
    alert::Alert,
    event::{Event, What},
    run::RunStatus,
};

use super::Raised;

/// Runs that are looked after at once; of more, those that were quiet for longest are forgotten.
const RUNS_MAX: usize = 256;
const MINUTE_MS: u64 = 60_000;

/// Runs that have not ended.
#[derive(Debug, Default)]
pub struct Runs(BTreeMap<String, Course>);

#[derive(Debug)]
struct Course {
    progress_ms: u64,
    /// Rules that went off for it.
    on: Vec<Alert>,
}

impl Runs {
    /// A run went on, or began.
    pub fn progress(&mut self, run: &str, time_ms: u64) {
        if !self.0.contains_key(run) && self.0.len() >= RUNS_MAX {
            let quietest = self.0.iter().min_by_key(|(_, course)| course.progress_ms).map(|(run, _)| run.clone());
            quietest.and_then(|run| self.0.remove(&run));
        }
        let course = self.0.entry(run.to_owned()).or_insert(Course { progress_ms: time_ms, on: vec![] });
        course.progress_ms = course.progress_ms.max(time_ms);
    }

    /// Takes what happened to a run.
    pub fn event(&mut self, rules: &[Alert], run: &str, event: &Event) -> Vec<Raised> {
        match &event.what {
            What::RunStarted { .. }
            | What::RunConfig { .. }
            | What::RunParameters { .. }
            | What::RunIteration(_)
            | What::RunEvaluation(_)
            | What::RunCheckpoint { .. }
            | What::RunStatus { status: RunStatus::Running, .. } => {
                self.progress(run, event.time_ms);
                let on = self.0.get_mut(run).map(|course| std::mem::take(&mut course.on)).unwrap_or_default();
                over(run, on)
            }
            What::RunStatus { status, .. } if status.has_ended() => {
                let on = self.0.remove(run).map(|course| course.on).unwrap_or_default();
                let mut raised = over(run, on);
                if has_failed(*status) && rules.contains(&Alert::RunFailed) {
                    let value = if let RunStatus::Exited { code } = status { Some(f64::from(*code)) } else { None };
                    let what = What::Alert { alert: Alert::RunFailed, gpu: None, value };
                    raised.push(Raised { run: Some(run.to_owned()), what });
                }
                raised
            }
            What::RunDeleted => over(run, self.0.remove(run).map(|course| course.on).unwrap_or_default()),
            _ => vec![],
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, rules: &[Alert], now_ms: u64) -> Vec<Raised> {
        let mut raised = Vec::new();
        for (run, course) in &mut self.0 {
            let quiet_ms = now_ms.saturating_sub(course.progress_ms);
            for &alert in rules {
                let Alert::NoProgress { minutes } = alert else { continue };
                // No minute at all would go off between any two lines.
                if quiet_ms >= minutes.max(1).saturating_mul(MINUTE_MS) && !course.on.contains(&alert) {
                    course.on.push(alert);
                    let value = Some((quiet_ms / MINUTE_MS) as f64);
                    raised.push(Raised { run: Some(run.clone()), what: What::Alert { alert, gpu: None, value } });
                }
            }
        }
        raised
    }

    /// A rule is no more.
    pub fn forget(&mut self, alert: Alert) -> Vec<Raised> {
        let mut raised = Vec::new();
        for (run, course) in &mut self.0 {
            let n_before = course.on.len();
            course.on.retain(|on| *on != alert);
            if course.on.len() < n_before {
                raised.extend(over(run, vec![alert]));
            }
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
    match status {
        RunStatus::Exited { code } => code != 0 && !ASKED.contains(&(code - 128)),
        RunStatus::Killed { signal } => !ASKED.contains(&signal),
        // Its watcher was killed, as by the kernel where memory is short, or the machine went down.
        RunStatus::Lost => true,
        RunStatus::Running | RunStatus::Stalled { .. } => false,
    }
}
