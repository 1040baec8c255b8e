//! `headroom train`: nanoGPT's train.py on this machine's card or CPU.
//!
//! [`options`] reads the words, [`start`] puts a run together and [`engine`] is what computes it; [`report`] and [`planned`]
//! word what happens. Here the run runs.

mod engine;
mod error;
mod options;
mod planned;
mod report;
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
use headroom_shared::text;

use super::{
    Exit,
    args::{Parsed, parse_with},
    plan::{options::is_value, sources},
    print,
};
use crate::train::{
    checkpoint::{self, State, Store},
    run::{Ending, Event, Run},
    settings::SEED,
    stop,
};
use engine::Engine;
pub use error::Error;
pub use options::COMMAND;
use options::{FLAGS, Request, take_word};
use start::{Planned, Start};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, the run cannot start, or it ended early.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| is_value(key, word, SEED);
    if parse_with(COMMAND.name, FLAGS, args, &mut request, take_word, takes)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let given = sources(&request.given).map_err(Error::from)?;
    if request.plan {
        let planned = Planned::of(&request, given).map_err(super::Error::from)?;
        let Some(Planned { run, gpt, engine, disk }) = planned else { return Ok(Exit::Usage) };
        print::data(&planned::document(&gpt, &engine, (&run.out_dir, disk), request.json))?;
        // What does not fit is said in the same words as where it is to be trained.
        engine.check(&gpt, &run, &request).map_err(super::Error::from)?;
        return Ok(Exit::Success);
    }
    // Before anything that takes its time.
    let stop = interrupts().map_err(super::Error::from)?;
    let Some(mut start) = Start::of(&request, given).map_err(super::Error::from)? else { return Ok(Exit::Usage) };
    let trained = start.train(&request, &stop);
    trained.map_err(|error| start.engine.explained(error)).map_err(super::Error::from)
}

impl Start {
    fn train(&mut self, request: &Request, stop: &AtomicBool) -> Result<Exit, Error> {
        let is_asked_to_end = || {
            let is_asked = stop.load(Ordering::Relaxed);
            if is_asked {
                print::note(&format!("\n{}\n", text::STOPPED_UNBEGUN));
            }
            is_asked
        };
        print::note(&report::start(self));
        self.engine.check(&self.gpt, &self.run, request)?;
        if is_asked_to_end() {
            return Ok(Exit::Of(stop::EXIT_STATUS));
        }
        // Memory before the folder: where none is left, nothing else was touched.
        let mut ready = self.engine.ready(&self.gpt, &self.run, request)?;
        let trainer = &mut *ready.trainer;
        print::note(&planned::allocated(trainer.allocated_bytes(), self.engine.planned_bytes()));
        let store = Store::open(&self.run.out_dir)?;
        if store.n_removed() > 0 {
            print::note(&format!("Removed {} unfinished files of a run that was killed.\n", store.n_removed()));
        }
        if self.checkpoint.is_none() {
            store.replace_other();
        }
        // An evaluation alone saves nothing.
        if !self.run.eval_only {
            store.check(self.disk, checkpoint::free_bytes(&self.run.out_dir))?;
        }
        let kept = self.checkpoint.as_ref().map(|checkpoint| checkpoint.meta.state.iter_num);
        let state = self.fill(trainer)?;
        if is_asked_to_end() {
            return Ok(Exit::Of(stop::EXIT_STATUS));
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
            peak_flops: ready.peak_flops,
            is_peak_measured: matches!(self.engine, Engine::Cpu { .. }),
            on_save_error: request.on_save_error,
            save_every: request.save_every,
        };
        let mut unread = None;
        let ending = run.run(stop, &mut |event| {
            if let Event::NotSaved { .. } = event {
                print::error(&report::event(&event, &self.run, false));
            }
            let line = report::event(&event, &self.run, request.json);
            if let Err(error) = print::data(&line) {
                // Whoever read has gone; what was learnt is kept.
                stop.store(true, Ordering::Relaxed);
                unread = Some(error);
            }
        })?;
        let best = store.best();
        match ending {
            Ending::Done { kept: Some(_) } => {
                print::note(&report::done(&self.run, &self.dataset, best.as_deref()));
                return Ok(Exit::Success);
            }
            Ending::Done { kept: None } => {
                print::note(report::DONE_UNSAVED);
                return Ok(Exit::Success);
            }
            Ending::Saved => {
                let command = report::resume_command(request, &self.run, self.is_moved);
                let best = best.as_deref().map(report::best).unwrap_or_default();
                print::note(&format!("\n{}\n  {command}\n{best}", text::STOPPED_SAVED));
            }
            Ending::NotSaved { kept } => print::error(&format!("\n{}\n", report::not_saved(kept))),
        }
        Ok(match unread {
            // The reader had seen enough, as with `head`.
            Some(error) if error.is_closed_pipe() => Exit::Success,
            Some(_) => Exit::InputOutput,
            None => Exit::Of(stop::EXIT_STATUS),
        })
    }

    /// Gives the model its weights, and the run its place.
    fn fill(&mut self, trainer: &mut dyn Training) -> Result<State, TrainingError> {
        if let Some(checkpoint) = self.checkpoint.take() {
            trainer.set_params(&checkpoint.params)?;
            trainer.set_moments(&checkpoint.exp_avg, &checkpoint.exp_avg_sq)?;
            return Ok(checkpoint.meta.state);
        }
        match self.weights.take() {
            Some(weights) => trainer.set_params(&weights)?,
            None => trainer.initialize(self.run.seed)?,
        }
        Ok(State::default())
    }
}

/// What the interrupt key sets, and the file that asks for the end; pressed again it ends the program, as it does
/// otherwise.
fn interrupts() -> Result<Arc<AtomicBool>, Error> {
    use signal_hook::{consts::TERM_SIGNALS, flag};
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_default(signal, Arc::clone(&stop)).map_err(Error::Signal)?;
        flag::register(signal, Arc::clone(&stop)).map_err(Error::Signal)?;
    }
    if let Some(file) = env::var_os(stop::VARIABLE) {
        stop::follow(file.into(), Arc::clone(&stop)).map_err(Error::Signal)?;
    }
    Ok(stop)
}
