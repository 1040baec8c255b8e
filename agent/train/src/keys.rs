//! A run's settings and their problems. The command line and the agent's run API both use them, so that both accept the
//! same runs.

use headroom_planner::nanogpt::{Problem, Settings, Severity, Source, defaults, read};
use headroom_text as text;

use super::settings::{RunSettings, SEED, SettingsError};

/// nanoGPT's keys after parsing.
#[derive(Debug)]
pub struct Keys {
    /// The settings, each with its source.
    pub settings: Settings,
    /// The run that they describe.
    pub run: Result<RunSettings, SettingsError>,
}

impl Keys {
    /// Reads sources in the order of a command line.
    #[must_use]
    pub fn read(given: &[Source]) -> Self {
        Self::of(read(given))
    }

    /// Creates the keys from settings that were already read.
    #[must_use]
    pub fn of(mut settings: Settings) -> Self {
        let run = RunSettings::read(&mut settings);
        if let Err(error) = &run {
            report(&mut settings, error);
        }
        Self { settings, run }
    }

    /// Returns the problems of the settings, in the order in which they were found.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.settings.problems.as_slice().to_vec();
        problems.retain(|problem| !is_of_seed(problem));
        problems
    }

    /// Returns whether the run must be refused: Python or nanoGPT would stop, or a value that the run needs cannot be
    /// read.
    #[must_use]
    pub fn stops(&self) -> bool {
        let stops = |problem: &Problem| (stops_nanogpt(problem) || problem.stops_run()) && !is_of_seed(problem);
        !self.settings.is_complete()
            || self.settings.problems.as_slice().iter().any(stops)
            || self.unread_keys().next().is_some()
    }

    /// Iterates over nanoGPT's keys that change the training and whose last value cannot be read.
    pub fn unread_keys(&self) -> impl Iterator<Item = &str> {
        let is_used = |key: &str| !UNUSED.contains(&key) && !key.starts_with("wandb_");
        self.settings
            .unevaluated
            .iter()
            .map(|(key, _)| key.as_str())
            .filter(move |key| *key == SEED || (defaults::find(key).is_some() && is_used(key)))
    }
}

/// nanoGPT's keys that change nothing in a run of Headroom's trainer, or whose default depends on the machine.
const UNUSED: [&str; 2] = ["device", "backend"];

/// Adds an invalid value to the problems of the settings, at its position.
fn report(settings: &mut Settings, error: &SettingsError) {
    let Some(setting) = settings.values.get(error.key()) else { return };
    let origin = setting.origin;
    let (line, column) = if settings.is_argument(error.key()) { (0, 0) } else { (origin.line, origin.column) };
    let source = settings.source_name(&origin).to_owned();
    let problem =
        Problem { severity: Severity::Error, source, line, column, message: error.text(), hint: error.hint() };
    settings.problems.push_once(problem);
}

/// Returns whether a problem is an error in an argument, at which nanoGPT stops.
#[must_use]
pub fn stops_nanogpt(problem: &Problem) -> bool {
    problem.severity == Severity::Error && problem.line == 0
}

/// Returns whether a problem is about `seed`, which is Headroom's key and unknown to nanoGPT.
fn is_of_seed(problem: &Problem) -> bool {
    [text::unknown_key(SEED), text::not_a_setting(SEED)].contains(&problem.message)
}
