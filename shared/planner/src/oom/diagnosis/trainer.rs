//! Diagnosis of a message for a run of another trainer than nanoGPT.

use std::cell::RefCell;

use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::{Explained, Explanation, Message, Report, document, explain, explained, read};
use crate::{
    plan::{Plan, PlanError},
    session::{MachineError, Options},
    trainers::{
        self, Run, TrainerRequest,
        arguments::ArgumentError,
        fixes::{TrainerAdvice, TrainerFix, advise},
    },
};
use headroom_text::{Table, Text};

/// Result of a diagnosis for a known run of a trainer.
#[derive(Clone, Debug)]
pub struct TrainerDiagnosis {
    /// Messages found in the text.
    pub report: Report,
    /// Explanation of the first message, or of the last one if `explains_last`.
    pub explanation: Explanation<TrainerRequest>,
    /// Whether the explanation is of the last message instead of the first.
    pub explains_last: bool,
    /// The run.
    pub run: Run,
    /// GPU and environment as described by the message.
    pub options: Options,
}

/// Why a run cannot be planned on the message's GPU.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DiagnosisError {
    /// The GPU or the environment.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The run.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// A tensor is too large.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Diagnoses a text for a run of a trainer. The GPU is the message's unless `names_gpu`.
///
/// # Errors
/// Headroom does not plan the run on this GPU.
pub fn diagnose_trainer(
    text: &str,
    run: &Run,
    options: &Options,
    names_gpu: bool,
) -> Result<TrainerDiagnosis, DiagnosisError> {
    let report = read(text);
    let error = RefCell::new(None);
    let plan = |options: &Options| -> Result<Plan<TrainerRequest>, DiagnosisError> {
        Ok(trainers::plan(TrainerRequest::new(run.clone(), options.machine()?)?)?)
    };
    let found = explained(&report, options, names_gpu, |message, options| {
        let planned = || plan(options).map_err(|cause| error.replace(Some(cause))).ok();
        (explain(message, planned), ())
    });
    if let Some(error) = error.into_inner() {
        return Err(error);
    }
    let Explained { explanation, options, is_last, .. } = found;
    Ok(TrainerDiagnosis { report, explanation, explains_last: is_last, run: run.clone(), options })
}

impl TrainerDiagnosis {
    /// Returns the message that is explained.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        if self.explains_last { self.report.last.as_ref() } else { self.report.first.as_ref() }
    }

    /// Computes fixes and the largest values that fit; empty without a plan.
    #[must_use]
    pub fn advice(&self) -> TrainerAdvice {
        self.explanation.plan.as_ref().map(advise).unwrap_or_default()
    }

    /// Returns the JSON contract's document, with sentences in the language of `table`.
    #[must_use]
    pub fn json(&self, table: &Table) -> Json {
        let advice = self.advice();
        let mut document = document(self.message(), &self.explanation, Some(self.run.trainer()), table);
        let mut put = |key: &str, value: Json| document.insert(key.to_owned(), value);
        let largest: Map<String, Json> =
            advice.largest.iter().map(|(knob, value)| (knob.key.to_owned(), (*value).into())).collect();
        let obstacle = advice.obstacle.iter().map(|text: &Text| table.say(text)).collect::<Vec<_>>().join(" ");
        put("solutions", Json::Array(vec![]));
        put("config", Json::Object(self.run.config()));
        put("largest", Json::Object(largest));
        put("fixes", Json::Array(advice.fixes.iter().map(TrainerFix::json).collect()));
        put("obstacle", (!obstacle.is_empty()).then_some(obstacle).into());
        Json::Object(document)
    }
}
