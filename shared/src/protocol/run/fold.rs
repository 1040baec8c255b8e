//! A run is what its events made of it: the one place that says how, for history and for a page that sees them live.

use super::{Batches, Cause, Earlier, Run, RunStatus};
use crate::protocol::event::What;

/// Cards of one run at most: more than a machine holds.
const GPUS_MAX: usize = 64;

impl Run {
    /// Takes in what happened to this run at a time. What says nothing of it changes nothing.
    ///
    /// How a run ended by itself is final, unless the agent goes on with it; that it was lost is not, for a watcher whose
    /// machine slept comes back.
    pub fn apply(&mut self, time_ms: u64, what: &What) {
        match what {
            What::RunStarted { run } => self.clone_from(run),
            What::RunConfig { config, max_iters } => {
                self.config = Some(config.clone());
                self.max_iters = max_iters.or(self.max_iters);
                // Of the config before.
                (self.plan, self.contradiction) = (None, None);
            }
            What::RunParameters { parameters_millions } => self.parameters_millions = Some(*parameters_millions),
            What::RunPlanned { plan } => self.plan = Some(plan.clone()),
            What::RunUnplanned { contradiction, max_iters } => {
                (self.plan, self.contradiction) = (None, Some(*contradiction));
                self.max_iters = *max_iters;
            }
            What::RunIteration(iteration) => self.last = Some(*iteration),
            What::RunEvaluating { done, of } => self.evaluating = Some(Batches { done: *done, of: *of }),
            What::RunEvaluation(evaluation) => {
                self.last_evaluation = Some(*evaluation);
                self.evaluating = None;
            }
            What::RunMemory { gpu, bytes } => {
                if !self.gpus.contains(gpu) && self.gpus.len() < GPUS_MAX {
                    self.gpus.push(gpu.clone());
                }
                self.gpu_memory_peak_bytes = self.gpu_memory_peak_bytes.max(Some(*bytes));
                self.gpu_since_ms = self.gpu_since_ms.or(Some(time_ms));
            }
            What::RunOom { message } => self.oom = Some(message.clone()),
            What::RunDiagnosed { diagnosis } => self.diagnosis = Some(diagnosis.clone()),
            What::RunExplained { message, .. } | What::RunNotSaved { message, .. } => {
                self.explanation = Some(message.clone());
            }
            What::RunStatus { status, energy_joules } => {
                // Whoever counts it knows of one part alone, and says it more than once.
                let before = self.earlier.and_then(|earlier| earlier.energy_joules).unwrap_or(0.0);
                self.energy_joules = energy_joules.map(|joules| before + joules).or(self.energy_joules);
                self.stand(time_ms, *status);
            }
            What::RunSaved { checkpoint } => {
                self.checkpoint = Some(*checkpoint);
                // What could not be saved before is in this one.
                self.explanation = None;
            }
            What::RunCommand { command } => self.command.clone_from(command),
            // The way back from an end, by the queue or at once: the same run, by another process.
            What::RunResumed { pid, command } => {
                if !command.is_empty() {
                    self.command.clone_from(command);
                }
                self.end_part(time_ms);
                if let Some(earlier) = self.earlier.as_mut().filter(|_| self.status == RunStatus::Queued) {
                    earlier.since_ms = time_ms;
                }
                // What waited has not begun before.
                let is_first = self.status == RunStatus::Queued && self.last.is_none() && self.checkpoint.is_none();
                self.started_ms = if is_first { time_ms } else { self.started_ms };
                (self.status, self.ended_ms, self.pid) = (RunStatus::Running, None, *pid);
                (self.oom, self.diagnosis, self.explanation) = (None, None, None);
            }
            What::RunCheckpoint { .. }
            | What::RunStopping
            | What::RunRetried { .. }
            | What::RunDeleted { .. }
            | What::Alert { .. }
            | What::AlertOver { .. }
            | What::AlertDismissed { .. }
            | What::SettingsChanged
            | What::CardLost { .. }
            | What::CardBack { .. }
            | What::CardFault { .. }
            | What::HistoryPaused { .. }
            | What::HistoryResumed
            | What::HistorySetAside { .. }
            | What::ClockSet { .. }
            | What::AgentStarted { .. }
            | What::Unknown => {}
        }
    }

    /// Counts a part that has ended among those that are over: another follows, or waits from now on.
    fn end_part(&mut self, time_ms: u64) {
        let Some(took_ms) = self.ended_ms.and_then(|ended_ms| self.took_ms(ended_ms)) else { return };
        self.earlier = Some(Earlier { took_ms, energy_joules: self.energy_joules, since_ms: time_ms });
    }

    fn stand(&mut self, time_ms: u64, status: RunStatus) {
        let is_final = matches!(self.status, RunStatus::Exited { .. } | RunStatus::Killed { .. });
        if is_final && status != RunStatus::Queued {
            return;
        }
        if status == RunStatus::Queued {
            self.end_part(time_ms);
        }
        // A watcher of an earlier version says it by the message alone.
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
    use crate::protocol::run::{Checkpoint, Contradiction, Evaluation, Figure, Iteration, PlanSummary};

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
    fn check(all: &[(u64, What)], change: impl FnOnce(&mut Run)) {
        let (mut run, mut expected) = (begun(), begun());
        for (time_ms, what) in all {
            run.apply(*time_ms, what);
        }
        change(&mut expected);
        assert_eq!(run, expected);
    }

    fn status(status: RunStatus, energy_joules: Option<f64>) -> What {
        What::RunStatus { status, energy_joules }
    }

    fn plan() -> PlanSummary {
        PlanSummary {
            card: "L4".to_owned(),
            fits: true,
            peak_bytes: 1,
            max_memory_allocated: 1,
            max_memory_reserved: 1,
            phases: vec![],
            is_builtin: false,
            recompute: None,
        }
    }

    fn config(max_iters: Option<u64>) -> What {
        What::RunConfig { config: "x = 1\n".to_owned(), max_iters }
    }

    #[test]
    fn a_plan_that_is_contradicted_is_taken_back_until_there_is_another_config() {
        let contradiction = Contradiction { figure: Figure::ParametersMillions, printed: 7.23, planned: 10.65 };
        let planned = (2000, What::RunPlanned { plan: plan() });
        let unplanned = (2000, What::RunUnplanned { contradiction, max_iters: None });
        let all = [(2000, config(Some(5000))), planned, unplanned, (2000, config(None))];
        check(&all[..3], |run| {
            run.config = Some("x = 1\n".to_owned());
            run.contradiction = Some(contradiction);
        });
        check(&all, |run| run.config = Some("x = 1\n".to_owned()));
        // Nor is a plan of the config before.
        check(&[all[1].clone(), all[3].clone()], |run| run.config = Some("x = 1\n".to_owned()));
    }

    #[test]
    fn what_is_printed_is_kept_of_the_newest() {
        let plan = plan();
        let evaluation = Evaluation { iter: 0, train_loss: Some(4.0), val_loss: None };
        let all = [
            What::RunConfig { config: "x = 1\n".to_owned(), max_iters: Some(50) },
            What::RunConfig { config: "x = 2\n".to_owned(), max_iters: None },
            What::RunParameters { parameters_millions: 10.65 },
            What::RunPlanned { plan: plan.clone() },
            What::RunEvaluation(evaluation),
            What::RunIteration(iteration(0)),
            What::RunIteration(iteration(10)),
            What::RunOom { message: "CUDA out of memory.".to_owned() },
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
        let evaluating = (2000, What::RunEvaluating { done: 37, of: 400 });
        let evaluation = Evaluation { iter: 0, train_loss: Some(4.0), val_loss: None };
        check(std::slice::from_ref(&evaluating), |run| run.evaluating = Some(Batches { done: 37, of: 400 }));
        check(&[evaluating.clone(), (3000, What::RunEvaluation(evaluation))], |run| {
            run.last_evaluation = Some(evaluation);
        });
        check(&[evaluating, (3000, status(RunStatus::exited(1), None))], |run| {
            run.status = RunStatus::exited(1);
            run.ended_ms = Some(3000);
        });
    }

    #[test]
    fn memory_is_the_most_on_any_card() {
        let seen = |gpu: &str, bytes| (START_MS, What::RunMemory { gpu: gpu.to_owned(), bytes });
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
            let earlier = Some(Earlier { took_ms: 1000, energy_joules: None, since_ms: 3000 });
            check(&[(2000, status(end, None)), (3000, status(RunStatus::Queued, None))], |run| {
                (run.status, run.earlier) = (RunStatus::Queued, earlier);
            });
            check(&[(2000, status(end, None)), (3000, What::RunResumed { pid: Some(7), command: vec![] })], |run| {
                run.earlier = earlier;
            });
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
    fn a_run_that_waits_begins_when_it_is_started_and_goes_on_as_it_was() {
        let mut run = Run { status: RunStatus::Queued, pid: None, ..begun() };
        run.apply(5000, &What::RunResumed { pid: Some(9), command: vec![] });
        assert_eq!(run, Run { started_ms: 5000, pid: Some(9), ..begun() });
        let saved = Checkpoint { iter: 20, bytes: 7 };
        run.apply(6000, &What::RunSaved { checkpoint: saved });
        run.apply(7000, &What::RunExplained { message: "why".to_owned(), xid: None });
        run.apply(7000, &status(RunStatus::exited(1), None));
        assert_eq!((run.ended_ms, run.explanation.as_deref()), (Some(7000), Some("why")));
        run.apply(8000, &status(RunStatus::Queued, None));
        assert_eq!((run.status, run.ended_ms), (RunStatus::Queued, None));
        run.apply(9000, &What::RunResumed { pid: Some(10), command: vec![] });
        let command = vec!["headroom".to_owned(), "train".to_owned(), "--init_from=resume".to_owned()];
        run.apply(9000, &What::RunResumed { pid: Some(10), command: command.clone() });
        assert_eq!(std::mem::take(&mut run.command), command, "what it is computed with now");
        let earlier = Some(Earlier { took_ms: 2000, energy_joules: None, since_ms: 9000 });
        let expected = Run { started_ms: 5000, pid: Some(10), checkpoint: Some(saved), earlier, ..begun() };
        assert_eq!(run, expected, "the same run");
    }

    #[test]
    fn a_run_took_what_its_parts_did_and_no_pause() {
        let mut run = begun();
        let resumed = What::RunResumed { pid: Some(8), command: vec![] };
        let stopped = |joules| status(RunStatus::stopped(), Some(joules));
        let mut happens = |time_ms, what: &What| {
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
    fn what_never_ran_took_no_time() {
        let mut run = Run { status: RunStatus::Queued, ..begun() };
        assert_eq!((run.part(9000), run.took_ms(9000), run.since_ms()), (None, None, START_MS));
        run.apply(8000, &status(RunStatus::unqueued(), None));
        assert_eq!((run.part(9000), run.took_ms(9000)), (None, None));
    }

    #[test]
    fn that_a_checkpoint_was_not_saved_is_said_until_one_is() {
        let lost = What::RunNotSaved { iter: 100, message: "The disk is full.".to_owned() };
        check(&[(2000, lost.clone())], |run| run.explanation = Some("The disk is full.".to_owned()));
        let saved = Checkpoint { iter: 200, bytes: 7 };
        check(&[(2000, lost), (3000, What::RunSaved { checkpoint: saved })], |run| run.checkpoint = Some(saved));
    }

    #[test]
    fn a_beginning_is_the_whole_run() {
        let other = Run { name: "other".to_owned(), max_iters: Some(3), ..begun() };
        check(&[(START_MS, What::RunStarted { run: Box::new(other.clone()) })], |run| *run = other);
    }

    #[test]
    fn what_says_nothing_of_a_run_changes_nothing() {
        let gpu = || "a".to_owned();
        let all = [
            What::RunCheckpoint { folder: "out".to_owned() },
            What::RunRetried { next: "1".to_owned(), changes: vec![] },
            What::RunDeleted { name: None },
            What::CardLost { gpu: gpu() },
            What::CardBack { gpu: gpu() },
            What::HistoryPaused { reason: "full".to_owned() },
            What::HistoryResumed,
            What::AgentStarted { version: "1".to_owned() },
            What::Unknown,
        ];
        check(&all.map(|what| (5000, what)), |_| {});
    }
}
