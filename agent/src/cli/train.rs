//! `headroom train`: nanoGPT's train.py on this machine's GPU or CPU.
//!
//! [`options`] parses the arguments, [`start`] prepares a run and [`engine`] provides its compute device. [`report`]
//! and [`planned`] format messages. This module executes the run.

mod engine;
mod error;
mod folder;
mod options;
mod plan_output;
mod report;
mod resumed;
mod start;

use std::{
    env,
    ffi::{OsStr, OsString},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use headroom_kernels::training::{Training, TrainingError};
use headroom_text as text;

use super::{
    Exit,
    args::{ParsedArgs, parse_with},
    plan::{options::is_value, sources, stock_configs},
    print,
};
pub use error::Error;
use headroom_agent_core::platform::{self, file_bytes_max};
use headroom_train::{
    checkpoint::{self, CheckpointError, State},
    run::{Event, Run, RunOutcome},
    settings::SEED,
    status::{self, End, ProgramEnd, Reporter, Status},
    stop,
    throughput::PeakRate,
};
pub use options::COMMAND;
use options::{FLAGS, Request, take_word};
use start::{PlannedRun, StartableRun};

/// Name of the built-in default config in messages.
const STORIES_NAME: &str = "config/stories.py (built in)";
/// Number of runs listed in a message.
const LISTED_MAX: usize = 8;

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, the run cannot start, or it ended early.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| is_value(key, word, SEED);
    if parse_with(COMMAND.name, FLAGS, args, &mut request, take_word, takes)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    if request.plan {
        let given = sources(&request.given).map_err(Error::from)?;
        let stock_configs: Vec<String> = stock_configs(&given).into_iter().map(str::to_owned).collect();
        let planned = PlannedRun::of(&request, given).map_err(super::Error::from)?;
        let Some(PlannedRun { run, gpt, engine, disk }) = planned else { return Ok(Exit::Usage) };
        print::data(&plan_output::document(&stock_configs, &gpt, &engine, (&run.out_dir, disk), request.json))?;
        // A plan that does not fit fails with the same message as a run.
        engine.check(&gpt, &run, &request).map_err(super::Error::from)?;
        if let Some(disk) = disk {
            let checked = plan_output::check_disk(&engine, &run.out_dir, disk);
            let checked = checked.map_err(|error| match error {
                error @ CheckpointError::Folder { .. } => Error::Checkpoint(error),
                error => Error::PlannedDisk(error),
            });
            checked.map_err(super::Error::from)?;
        }
        return Ok(Exit::Success);
    }
    let reporter = Reporter::from_environment();
    reporter.report(Status::Started);
    let trained = train(&request, &reporter);
    let ended = trained.as_ref().map_or_else(Error::ended, |(_, ended)| ended.clone());
    let trained = trained.map(|(exit, _)| exit).map_err(super::Error::from);
    let exit = trained.as_ref().map_or_else(super::Error::exit, |exit| *exit);
    reporter.report(Status::Ended(ProgramEnd { status: Some(exit.code()), ..ended }));
    trained
}

fn train(request: &Request, reporter: &Reporter) -> Result<(Exit, ProgramEnd), Error> {
    let given = sources(&request.given)?;
    // Before any long operation.
    let stop = interrupts(reporter)?;
    let Some(mut start) = StartableRun::of(request, given)? else {
        return Ok((Exit::Usage, ProgramEnd::new(End::Failed)));
    };
    let trained = start.train(request, &stop, reporter);
    trained.map_err(|error| start.engine.explained(error))
}

impl StartableRun {
    fn train(
        &mut self,
        request: &Request,
        stop: &AtomicBool,
        reporter: &Reporter,
    ) -> Result<(Exit, ProgramEnd), Error> {
        let unbegun = (Exit::Of(status::STOPPED_EXIT_STATUS), ProgramEnd::new(End::Stopped));
        let is_asked_to_end = || {
            let is_asked = stop.load(Ordering::Relaxed);
            if is_asked {
                print::note(&format!("\n{}\n", text::STOPPED_UNBEGUN));
            }
            is_asked
        };
        if let Some(what) = plan_output::recomputed(&self.engine) {
            reporter.report(Status::Recomputes { what: what.into() });
        }
        print::note(&self.summary());
        self.engine.check(&self.gpt, &self.run, request)?;
        if is_asked_to_end() {
            return Ok(unbegun);
        }
        // Memory is allocated before the directory is created, so a failure leaves no files.
        let mut ready = self.engine.ready(&self.gpt, &self.run, request)?;
        let trainer = &mut *ready.trainer;
        print::note(&plan_output::allocated(trainer.allocated_bytes(), self.engine.planned_bytes()));
        let store = self.folder.open(&mut self.run)?;
        if store.n_removed() > 0 {
            print::note(&format!("Removed {} unfinished files of a run that was killed.\n", store.n_removed()));
        }
        if self.checkpoint.is_none() || self.is_other_data {
            store.replace_other();
        }
        if let Some(disk) = self.disk {
            disk.check(&self.run.out_dir, checkpoint::free_bytes(&self.run.out_dir), file_bytes_max())?;
            store.check()?;
        }
        let kept = self.checkpoint.as_ref().map(|checkpoint| checkpoint.meta.state.iter_num);
        let state = self.fill(trainer)?;
        if is_asked_to_end() {
            return Ok(unbegun);
        }
        let run = Run {
            config: self.run.config(&self.settings, &self.engine.device_name()),
            settings: &self.run,
            gpt: self.gpt,
            trainer,
            tokenizer: self.dataset.tokenizer().ok().and_then(|tokenizer| tokenizer.kept()),
            dataset: &self.dataset,
            store: &store,
            state,
            kept,
            peak: PeakRate { flops: ready.peak_flops, is_measured: self.engine.measures_peak() },
            on_save_error: request.on_save_error,
            save_every: request.save_every,
        };
        let mut unread = None;
        let (mut iteration, mut checkpoint) = (None, kept);
        let ending = run.run(stop, &mut |event| {
            match &event {
                Event::Stepped(step) => iteration = Some(step.iter),
                Event::Saved { iter, .. } => checkpoint = Some(*iter),
                Event::NotSaved { iter, why } => {
                    reporter.report(Status::NotSaved { iter: *iter, why: why.clone().into() });
                }
                Event::Evaluating { .. } | Event::Evaluated { .. } => {}
            }
            if let Event::NotSaved { .. } = event {
                print::error(&report::event(&event, &self.run, false));
                if !request.json {
                    return;
                }
            }
            let line = report::event(&event, &self.run, request.json);
            // A watched run outlives the processes that pass its output on.
            if let Err(error) = print::data(&line)
                && !reporter.has_open_output()
            {
                // The reader of the output is gone; the progress is saved.
                stop.store(true, Ordering::Relaxed);
                unread = Some(error);
            }
        })?;
        let best = store.best();
        let ended = |end| ProgramEnd { iteration, checkpoint, ..ProgramEnd::new(end) };
        match ending {
            RunOutcome::Done { kept: Some(_) } => {
                print::note(&report::done(&self.run, &self.dataset, best.as_deref()));
                return Ok((Exit::Success, ended(End::Finished)));
            }
            RunOutcome::Done { kept: None } => {
                print::note(report::DONE_UNSAVED);
                return Ok((Exit::Success, ended(End::Finished)));
            }
            RunOutcome::Saved => {
                let command = report::resume_command(request, &self.run, self.folder.is_moved);
                let best = best.as_deref().map(report::best).unwrap_or_default();
                print::note(&format!("\n{}\n  {command}\n{best}", text::STOPPED_SAVED));
            }
            RunOutcome::NotSaved { kept } => print::error(&format!("\n{}\n", report::not_saved(kept))),
        }
        let exit = match unread {
            // The reader had read enough, as with `head`.
            Some(error) if error.is_closed_pipe() => Exit::Success,
            Some(_) => Exit::InputOutput,
            None => Exit::Of(status::STOPPED_EXIT_STATUS),
        };
        Ok((exit, ended(End::Stopped)))
    }

    /// Copies the weights to the trainer and returns the run's state.
    fn fill(&mut self, trainer: &mut dyn Training) -> Result<State, TrainingError> {
        if let Some(checkpoint) = self.checkpoint.take() {
            trainer.set_params(&checkpoint.params)?;
            trainer.set_moments(&checkpoint.exp_avg, &checkpoint.exp_avg_sq)?;
            let state = checkpoint.meta.state;
            // Losses of two data sets cannot be compared.
            let is_other = self.is_other_data;
            return Ok(if is_other { State { best_val_loss: None, val_loss: None, ..state } } else { state });
        }
        match self.weights.take() {
            Some(weights) => trainer.set_params(&weights)?,
            None => trainer.initialize(self.run.seed)?,
        }
        Ok(State::default())
    }
}

/// Flag set by an interrupt, a hang-up or the stop file. A second interrupt ends the program immediately. A hang-up that
/// is ignored from the start, as with `nohup`, stays ignored.
fn interrupts(reporter: &Reporter) -> Result<Arc<AtomicBool>, Error> {
    use signal_hook::{consts::TERM_SIGNALS, flag};
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // The order matters: the first signal must find the flag unset.
        flag::register_conditional_default(signal, Arc::clone(&stop)).map_err(Error::Signal)?;
        flag::register(signal, Arc::clone(&stop)).map_err(Error::Signal)?;
    }
    if let Some(hang_up) = platform::hang_up() {
        // A closed terminal sends several, so a second one does not end the program.
        flag::register(hang_up, Arc::clone(&stop)).map_err(Error::Signal)?;
    }
    if let Some(file) = env::var_os(stop::VARIABLE) {
        stop::follow(file.into(), Arc::clone(&stop), reporter.clone()).map_err(Error::Signal)?;
    }
    Ok(stop)
}
