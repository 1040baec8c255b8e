//! What a run's configs and words come to, with everything that is said of them: asked by the command line and by the
//! agent, which takes orders, so that neither takes what the other would refuse.

use headroom_shared::{
    nanogpt::{Problem, Settings, Severity, Source, read},
    text,
};

use super::settings::{RunSettings, SEED, SettingsError};

/// nanoGPT's keys, read.
#[derive(Debug)]
pub struct Keys {
    /// Each with where it was written.
    pub settings: Settings,
    /// What they come to.
    pub run: Result<RunSettings, SettingsError>,
}

impl Keys {
    /// Reads sources in the order of a command line.
    #[must_use]
    pub fn read(given: &[Source]) -> Self {
        Self::of(read(given))
    }

    /// Of settings that were read.
    #[must_use]
    pub fn of(mut settings: Settings) -> Self {
        let run = RunSettings::read(&mut settings);
        Self { settings, run }
    }

    /// What is said of them, in the order in which it was found.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.settings.problems.as_slice().to_vec();
        problems.retain(|problem| !is_of_seed(problem));
        problems
    }

    /// Whether the command line cannot be meant, or a value that decides memory cannot be read: the run would be another. In
    /// a file the rest is still of use there.
    #[must_use]
    pub fn stops(&self) -> bool {
        !self.settings.is_complete()
            || self.settings.problems.as_slice().iter().any(|problem| stops_nanogpt(problem) && !is_of_seed(problem))
    }
}

/// Whether nanoGPT would stop at an argument. In a file the rest is still of use, and what was used instead is said.
#[must_use]
pub fn stops_nanogpt(problem: &Problem) -> bool {
    problem.severity == Severity::Error && problem.line == 0
}

/// The seed is a key of ours, though no setting of nanoGPT.
fn is_of_seed(problem: &Problem) -> bool {
    [text::unknown_key(SEED), text::not_a_setting(SEED)].contains(&problem.message)
}
