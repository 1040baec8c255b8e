//! A run of a trainer that a search found.

use serde_json::{Map, Value as Json};

use super::{Candidate, Figures, FoundRun};
use crate::{
    memory::program::Phase,
    plan::Plan,
    session::Options,
    trainers::{self, Run, TrainerRequest, fixes::TrainerAdvice, input::Input},
};
use headroom_text::{self as text, Table, Text};

/// A run whose simulated failure matches the figures of the message.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerSolution {
    /// The run as a user enters it.
    pub input: Input,
    /// Name of the published model.
    pub model: Option<&'static str>,
    /// Options that the message does not show, with the values of the simulated run.
    pub assumed: Vec<(&'static str, String)>,
    /// GPU as described by the message, with the allocator of the run.
    pub options: Options,
    /// Figures of the message that the run reproduces.
    pub figures: Figures,
    /// Phase in which the run allocates the tensor.
    pub phase: Phase,
    /// Name of the tensor of the requested size, with its module.
    pub tensor: String,
    /// Short description of the run.
    pub text: Text,
    config: Map<String, Json>,
}

/// Runs of other trainers than nanoGPT that reproduce a message.
#[derive(Clone, Debug, Default)]
pub struct OfTrainers {
    /// The runs, most common first.
    pub solutions: Vec<TrainerSolution>,
    /// Plan of the first exact one, with its fixes.
    pub advice: Option<(Plan<TrainerRequest>, TrainerAdvice)>,
}

impl FoundRun for TrainerSolution {
    fn figures(&self) -> Figures {
        self.figures
    }

    fn text(&self) -> &Text {
        &self.text
    }

    fn assumed(&self) -> Vec<&'static str> {
        self.assumed.iter().map(|(name, _)| *name).collect()
    }
}

impl OfTrainers {
    /// Returns the first run that reproduces every figure.
    #[must_use]
    pub fn exact(&self) -> Option<&TrainerSolution> {
        self.solutions.first().filter(|first| first.is_exact())
    }
}

impl TrainerSolution {
    pub(super) fn new(
        candidate: &Candidate,
        run: &Run,
        options: Options,
        figures: Figures,
        (phase, tensor): (Phase, String),
    ) -> Self {
        Self {
            input: candidate.input(),
            model: candidate.model_name(),
            assumed: vec![],
            options,
            figures,
            phase,
            tensor,
            text: text::verbatim(candidate.text()),
            config: run.config(),
        }
    }

    /// Returns the plan of the run on the message's GPU.
    #[must_use]
    pub fn plan(&self) -> Option<Plan<TrainerRequest>> {
        let machine = self.options.machine().ok()?;
        trainers::plan(TrainerRequest::new(self.input.read().ok()?, machine).ok()?).ok()
    }

    /// Returns the row of the JSON contract.
    #[must_use]
    pub fn json(&self, table: &Table) -> Json {
        let mut row = Map::new();
        let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
        put("run", Json::from(table.say(&self.text)));
        put("model", Json::from(self.model));
        put("config", Json::Object(self.config.clone()));
        put("arguments", self.input.command.split(' ').collect());
        put(
            "assumed",
            self.assumed.iter().map(|(key, value)| ((*key).to_owned(), Json::from(value.as_str()))).collect(),
        );
        put("expandable_segments", Json::from(self.options.expandable_segments));
        put("math_attention", Json::from(false));
        put("trainer", Json::from(self.input.trainer.name()));
        put("exact", Json::from(self.is_exact()));
        put("figures", Json::from(self.figures.name()));
        put("phase", Json::from(self.phase.name()));
        put("tensor", Json::from(self.tensor.as_str()));
        Json::Object(row)
    }
}
