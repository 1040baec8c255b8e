//! Computes a run from its events. History and pages that receive live events share this code.

use super::{
    event::EventKind,
    run::{Batches, Cause, EarlierParts, Run, RunStatus},
};

/// Maximum number of GPUs per run, more than a machine has.
const GPUS_MAX: usize = 64;

impl Run {
    /// Applies an event of this run at a time. Events without information about the run have no effect.
    ///
    /// An ended status is final unless the agent resumes the run. The status `Lost` is not final, because a watcher can
    /// return after its machine slept.
    pub fn apply(&mut self, time_ms: u64, what: &EventKind) {
        match what {
            EventKind::RunStarted { run } => self.clone_from(run),
            EventKind::RunConfig { config, max_iters } => {
                self.config = Some(config.clone());
                self.max_iters = max_iters.or(self.max_iters);
                // They belong to the previous config.
                (self.plan, self.contradiction) = (None, None);
            }
            EventKind::RunParameters { parameters_millions } => self.parameters_millions = Some(*parameters_millions),
            EventKind::RunPlanned { plan } => self.plan = Some(plan.clone()),
            EventKind::RunUnplanned { contradiction, max_iters } => {
                (self.plan, self.contradiction) = (None, Some(*contradiction));
                self.max_iters = *max_iters;
            }
            EventKind::RunIteration(iteration) => self.last = Some(*iteration),
            EventKind::RunEvaluating { done, of } => self.evaluating = Some(Batches { done: *done, of: *of }),
            EventKind::RunEvaluation(evaluation) => {
                self.last_evaluation = Some(*evaluation);
                self.evaluating = None;
            }
            EventKind::RunMemory { gpu, bytes } => {
                if !self.gpus.contains(gpu) && self.gpus.len() < GPUS_MAX {
                    self.gpus.push(gpu.clone());
                }
                self.gpu_memory_peak_bytes = self.gpu_memory_peak_bytes.max(Some(*bytes));
                self.gpu_since_ms = self.gpu_since_ms.or(Some(time_ms));
            }
            EventKind::RunOom { message } => self.oom = Some(message.clone()),
            EventKind::RunDiagnosed { diagnosis } => self.diagnosis = Some(diagnosis.clone()),
            EventKind::RunExplained { message, .. } | EventKind::RunNotSaved { message, .. } => {
                self.explanation = Some(message.clone());
            }
            EventKind::RunStatus { status, energy_joules } => {
                // The counter covers only the current part, and reports it more than once.
                let before = self.earlier.and_then(|earlier| earlier.energy_joules).unwrap_or(0.0);
                self.energy_joules = energy_joules.map(|joules| before + joules).or(self.energy_joules);
                self.stand(time_ms, *status);
            }
            EventKind::RunSaved { checkpoint } => {
                self.checkpoint = Some(*checkpoint);
                // The new checkpoint contains the progress that could not be saved before.
                self.explanation = None;
            }
            EventKind::RunCommand { command } => self.command.clone_from(command),
            // A resume, through the queue or directly: the same run in another process.
            EventKind::RunResumed { pid, command } => {
                if !command.is_empty() {
                    self.command.clone_from(command);
                }
                self.end_part(time_ms);
                if let Some(earlier) = self.earlier.as_mut().filter(|_| self.status == RunStatus::Queued) {
                    earlier.since_ms = time_ms;
                }
                // A queued run has not started before.
                let is_first = self.status == RunStatus::Queued && self.last.is_none() && self.checkpoint.is_none();
                self.started_ms = if is_first { time_ms } else { self.started_ms };
                (self.status, self.ended_ms, self.pid) = (RunStatus::Running, None, *pid);
                (self.oom, self.diagnosis, self.explanation) = (None, None, None);
            }
            EventKind::RunCheckpoint { .. }
            | EventKind::RunStopping
            | EventKind::RunRetried { .. }
            | EventKind::RunDeleted { .. }
            | EventKind::Alert { .. }
            | EventKind::AlertOver { .. }
            | EventKind::AlertDismissed { .. }
            | EventKind::SettingsChanged
            | EventKind::GpuLost { .. }
            | EventKind::GpuRecovered { .. }
            | EventKind::GpuXid { .. }
            | EventKind::HistoryPaused { .. }
            | EventKind::HistoryResumed
            | EventKind::HistorySetAside { .. }
            | EventKind::ClockSet { .. }
            | EventKind::AgentStarted { .. }
            | EventKind::Unknown => {}
        }
    }

    /// Adds a part that has ended to the earlier parts, because another part follows or is queued.
    fn end_part(&mut self, time_ms: u64) {
        let Some(took_ms) = self.ended_ms.and_then(|ended_ms| self.took_ms(ended_ms)) else { return };
        self.earlier = Some(EarlierParts { took_ms, energy_joules: self.energy_joules, since_ms: time_ms });
    }

    fn stand(&mut self, time_ms: u64, status: RunStatus) {
        let is_final = matches!(self.status, RunStatus::Exited { .. } | RunStatus::Killed { .. });
        if is_final && status != RunStatus::Queued {
            return;
        }
        if status == RunStatus::Queued {
            self.end_part(time_ms);
        }
        // A watcher of an earlier version reports the cause only through the out-of-memory message.
        self.status = status.because(self.oom.as_ref().map(|_| Cause::OutOfGpuMemory));
        self.ended_ms = status.has_ended().then_some(time_ms);
        if status.has_ended() {
            self.evaluating = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::run::{Checkpoint, Contradiction, Evaluation, Figure, Iteration, PlanSummary};

    const START_MS: u64 = 1000;

    fn begun() -> Run {
        Run { id: "a1".to_owned(), name: "a run".to_owned(), started_ms: START_MS, pid: Some(7), ..Run::default() }
    }

    fn iteration(iter: u64) -> Iteration {
        Iteration {
            iter,
            loss: Some(2.5),
            time_ms: 10.0,
            tokens_per_second: None,
            mfu_printed_percent: None,
            mfu_percent: None,
            ..Iteration::default()
        }
    }

    #[track_caller]
    fn check(all: &[(u64, EventKind)], change: impl FnOnce(&mut Run)) {
        let (mut run, mut expected) = (begun(), begun());
        for (time_ms, what) in all {
            run.apply(*time_ms, what);
        }
        change(&mut expected);
        assert_eq!(run, expected);
    }

    fn status(status: RunStatus, energy_joules: Option<f64>) -> EventKind {
        EventKind::RunStatus { status, energy_joules }
    }

    fn plan() -> PlanSummary {
        PlanSummary {
            gpu: "L4".to_owned(),
            fits: true,
            peak_bytes: 1,
            max_memory_allocated: 1,
            max_memory_reserved: 1,
            phases: vec![],
            is_builtin: false,
            recompute: None,
        }
    }

    fn config(max_iters: Option<u64>) -> EventKind {
        EventKind::RunConfig { config: "x = 1\n".to_owned(), max_iters }
    }

    #[test]
    fn contradicted_plan_is_withdrawn_until_next_config() {
        let contradiction = Contradiction { figure: Figure::ParametersMillions, printed: 7.23, planned: 10.65 };
        let planned = (2000, EventKind::RunPlanned { plan: plan() });
        let unplanned = (2000, EventKind::RunUnplanned { contradiction, max_iters: None });
        let all = [(2000, config(Some(5000))), planned, unplanned, (2000, config(None))];
        check(&all[..3], |run| {
            run.config = Some("x = 1\n".to_owned());
            run.contradiction = Some(contradiction);
        });
        check(&all, |run| run.config = Some("x = 1\n".to_owned()));
        // A plan of the previous config is also dropped.
        check(&[all[1].clone(), all[3].clone()], |run| run.config = Some("x = 1\n".to_owned()));
    }

    #[test]
    fn newest_output_is_kept() {
        let plan = plan();
        let evaluation = Evaluation { iter: 0, train_loss: Some(4.0), val_loss: None };
        let all = [
            EventKind::RunConfig { config: "x = 1\n".to_owned(), max_iters: Some(50) },
            EventKind::RunConfig { config: "x = 2\n".to_owned(), max_iters: None },
            EventKind::RunParameters { parameters_millions: 10.65 },
            EventKind::RunPlanned { plan: plan.clone() },
            EventKind::RunEvaluation(evaluation),
            EventKind::RunIteration(iteration(0)),
            EventKind::RunIteration(iteration(10)),
            EventKind::RunOom { message: "CUDA out of memory.".to_owned() },
        ];
        check(&all.map(|what| (START_MS + 1, what)), |run| {
            run.config = Some("x = 2\n".to_owned());
            run.max_iters = Some(50);
            run.parameters_millions = Some(10.65);
            run.plan = Some(plan);
            run.last_evaluation = Some(evaluation);
            run.last = Some(iteration(10));
            run.oom = Some("CUDA out of memory.".to_owned());
        });
    }

    #[test]
    fn an_evaluation_is_under_way_until_it_is_printed_or_the_run_ends() {
        let evaluating = (2000, EventKind::RunEvaluating { done: 37, of: 400 });
        let evaluation = Evaluation { iter: 0, train_loss: Some(4.0), val_loss: None };
        check(std::slice::from_ref(&evaluating), |run| run.evaluating = Some(Batches { done: 37, of: 400 }));
        check(&[evaluating.clone(), (3000, EventKind::RunEvaluation(evaluation))], |run| {
            run.last_evaluation = Some(evaluation);
        });
        check(&[evaluating, (3000, status(RunStatus::exited(1), None))], |run| {
            run.status = RunStatus::exited(1);
            run.ended_ms = Some(3000);
        });
    }

    #[test]
    fn memory_is_the_most_on_any_gpu() {
        let seen = |gpu: &str, bytes| (START_MS, EventKind::RunMemory { gpu: gpu.to_owned(), bytes });
        check(&[seen("b", 5), seen("a", 9), seen("b", 7)], |run| {
            run.gpus = vec!["b".to_owned(), "a".to_owned()];
            run.gpu_memory_peak_bytes = Some(9);
            run.gpu_since_ms = Some(START_MS);
        });
    }

    #[test]
    fn a_run_that_stalls_or_is_lost_may_go_on() {
        let stalled = RunStatus::Stalled { since_ms: START_MS };
        check(&[(2000, status(stalled, None))], |run| run.status = stalled);
        check(&[(2000, status(stalled, None)), (3000, status(RunStatus::Running, None))], |_| {});
        check(&[(2000, status(RunStatus::Lost, None))], |run| {
            run.status = RunStatus::Lost;
            run.ended_ms = Some(2000);
        });
        check(&[(2000, status(RunStatus::Lost, None)), (3000, status(RunStatus::Running, None))], |_| {});
    }

    #[test]
    fn how_a_run_ended_is_final_unless_the_agent_goes_on_with_it() {
        for end in [RunStatus::exited(1), RunStatus::killed(9)] {
            let earlier = Some(EarlierParts { took_ms: 1000, energy_joules: None, since_ms: 3000 });
            check(&[(2000, status(end, None)), (3000, status(RunStatus::Queued, None))], |run| {
                (run.status, run.earlier) = (RunStatus::Queued, earlier);
            });
            check(
                &[(2000, status(end, None)), (3000, EventKind::RunResumed { pid: Some(7), command: vec![] })],
                |run| {
                    run.earlier = earlier;
                },
            );
            let late = [RunStatus::Lost, RunStatus::Running, RunStatus::Stalled { since_ms: 1 }];
            let all: Vec<_> = [(2000, status(end, Some(50.0)))]
                .into_iter()
                .chain(late.map(|late| (3000, status(late, None))))
                .collect();
            check(&all, |run| {
                run.status = end;
                run.ended_ms = Some(2000);
                run.energy_joules = Some(50.0);
            });
        }
    }

    #[test]
    fn queued_run_starts_when_started_and_keeps_its_data() {
        let mut run = Run { status: RunStatus::Queued, pid: None, ..begun() };
        run.apply(5000, &EventKind::RunResumed { pid: Some(9), command: vec![] });
        assert_eq!(run, Run { started_ms: 5000, pid: Some(9), ..begun() });
        let saved = Checkpoint { iter: 20, bytes: 7 };
        run.apply(6000, &EventKind::RunSaved { checkpoint: saved });
        run.apply(7000, &EventKind::RunExplained { message: Message::plain("why"), xid: None });
        run.apply(7000, &status(RunStatus::exited(1), None));
        assert_eq!((run.ended_ms, run.explanation.take()), (Some(7000), Some(Message::plain("why"))));
        run.apply(8000, &status(RunStatus::Queued, None));
        assert_eq!((run.status, run.ended_ms), (RunStatus::Queued, None));
        run.apply(9000, &EventKind::RunResumed { pid: Some(10), command: vec![] });
        let command = vec!["headroom".to_owned(), "train".to_owned(), "--init_from=resume".to_owned()];
        run.apply(9000, &EventKind::RunResumed { pid: Some(10), command: command.clone() });
        assert_eq!(std::mem::take(&mut run.command), command, "what it is computed with now");
        let earlier = Some(EarlierParts { took_ms: 2000, energy_joules: None, since_ms: 9000 });
        let expected = Run { started_ms: 5000, pid: Some(10), checkpoint: Some(saved), earlier, ..begun() };
        assert_eq!(run, expected, "the same run");
    }

    #[test]
    fn a_run_took_what_its_parts_did_and_no_pause() {
        let mut run = begun();
        let resumed = EventKind::RunResumed { pid: Some(8), command: vec![] };
        let stopped = |joules| status(RunStatus::stopped(), Some(joules));
        let mut happens = |time_ms, what: &EventKind| {
            run.apply(time_ms, what);
            (run.took_ms(time_ms + 100), run.energy_joules, run.since_ms())
        };
        assert_eq!(happens(3000, &stopped(2400.0)), (Some(2000), Some(2400.0), START_MS));
        let queued = status(RunStatus::Queued, None);
        assert_eq!(happens(50_000, &queued), (Some(2000), Some(2400.0), 50_000), "it waits");
        assert_eq!(happens(60_000, &status(RunStatus::unqueued(), None)), (Some(2000), Some(2400.0), 50_000));
        assert_eq!(happens(70_000, &queued), (Some(2000), Some(2400.0), 70_000));
        assert_eq!(happens(80_000, &resumed), (Some(2100), Some(2400.0), 80_000));
        let stalled = status(RunStatus::Stalled { since_ms: 80_500 }, Some(300.0));
        assert_eq!(happens(81_000, &stalled), (Some(3100), Some(2700.0), 80_000));
        assert_eq!(happens(84_000, &stopped(800.0)), (Some(6000), Some(3200.0), 80_000));
        assert_eq!(happens(99_000, &resumed), (Some(6100), Some(3200.0), 99_000), "at once");
        assert_eq!(happens(99_500, &status(RunStatus::exited(0), None)), (Some(6500), Some(3200.0), 99_000));
    }

    #[test]
    fn unstarted_run_took_no_time() {
        let mut run = Run { status: RunStatus::Queued, ..begun() };
        assert_eq!((run.part(9000), run.took_ms(9000), run.since_ms()), (None, None, START_MS));
        run.apply(8000, &status(RunStatus::unqueued(), None));
        assert_eq!((run.part(9000), run.took_ms(9000)), (None, None));
    }

    #[test]
    fn that_a_checkpoint_was_not_saved_is_said_until_one_is() {
        let lost = EventKind::RunNotSaved { iter: 100, message: Message::plain("The disk is full.") };
        check(&[(2000, lost.clone())], |run| run.explanation = Some(Message::plain("The disk is full.")));
        let saved = Checkpoint { iter: 200, bytes: 7 };
        check(&[(2000, lost), (3000, EventKind::RunSaved { checkpoint: saved })], |run| run.checkpoint = Some(saved));
    }

    #[test]
    fn a_beginning_is_the_whole_run() {
        let other = Run { name: "other".to_owned(), max_iters: Some(3), ..begun() };
        check(&[(START_MS, EventKind::RunStarted { run: Box::new(other.clone()) })], |run| *run = other);
    }

    #[test]
    fn unrelated_event_changes_nothing() {
        let gpu = || "a".to_owned();
        let all = [
            EventKind::RunCheckpoint { folder: "out".to_owned() },
            EventKind::RunRetried { next: "1".to_owned(), changes: vec![] },
            EventKind::RunDeleted { name: None },
            EventKind::GpuLost { gpu: gpu() },
            EventKind::GpuRecovered { gpu: gpu() },
            EventKind::HistoryPaused { reason: Message::plain("full") },
            EventKind::HistoryResumed,
            EventKind::AgentStarted { version: "1".to_owned() },
            EventKind::Unknown,
        ];
        check(&all.map(|what| (5000, what)), |_| {});
    }
}
