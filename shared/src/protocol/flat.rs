//! Tagged values as they are read: all fields of all kinds in one struct, and the kind decides which of them count.
//!
//! What serde makes of a tagged enum by itself is a reader for each kind, which on a page is more code than anything else
//! that it does. So a field's name has one type over all kinds; a later kind may have fields of other names besides.

use serde::Deserialize;

use super::{
    ServerMessage,
    alert::Alert,
    event::What,
    gpu::Gpu,
    run::{Cause, Checkpoint, Contradiction, Diagnosis, Evaluation, Iteration, PlanSummary, Run, RunStatus},
    state::{DriverState, HistoryState},
};

/// A field that the kind needs is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the field {0} is missing")]
pub struct Missing(&'static str);

fn needed<T>(field: Option<T>, name: &'static str) -> Result<T, Missing> {
    field.ok_or(Missing(name))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    RunStarted,
    RunConfig,
    RunParameters,
    RunPlanned,
    RunUnplanned,
    RunIteration,
    RunEvaluation,
    RunEvaluating,
    RunCheckpoint,
    RunSaved,
    RunNotSaved,
    RunCommand,
    RunResumed,
    RunStopping,
    RunMemory,
    RunOom,
    RunDiagnosed,
    RunExplained,
    RunRetried,
    RunStatus,
    RunDeleted,
    Alert,
    AlertOver,
    AlertDismissed,
    SettingsChanged,
    CardLost,
    CardBack,
    CardFault,
    HistoryPaused,
    HistoryResumed,
    HistorySetAside,
    ClockSet,
    AgentStarted,
    #[serde(other)]
    Unknown,
}

/// [`What`], flat.
#[derive(Deserialize)]
pub struct FlatWhat {
    kind: Kind,
    run: Option<Box<Run>>,
    config: Option<String>,
    max_iters: Option<u64>,
    parameters_millions: Option<f64>,
    plan: Option<PlanSummary>,
    contradiction: Option<Contradiction>,
    iter: Option<u64>,
    loss: Option<f64>,
    time_ms: Option<f64>,
    tokens_per_second: Option<f64>,
    mfu_printed_percent: Option<f64>,
    mfu_percent: Option<f64>,
    learning_rate: Option<f64>,
    gradient_norm: Option<f64>,
    train_loss: Option<f64>,
    val_loss: Option<f64>,
    done: Option<u64>,
    of: Option<u64>,
    folder: Option<String>,
    name: Option<String>,
    checkpoint: Option<Checkpoint>,
    pid: Option<u32>,
    command: Option<Vec<String>>,
    gpu: Option<String>,
    bytes: Option<u64>,
    message: Option<String>,
    diagnosis: Option<Diagnosis>,
    xid: Option<u64>,
    next: Option<String>,
    changes: Option<Vec<(String, String)>>,
    status: Option<RunStatus>,
    energy_joules: Option<f64>,
    alert: Option<Alert>,
    value: Option<f64>,
    reason: Option<String>,
    file: Option<String>,
    runs: Option<u64>,
    settings: Option<bool>,
    version: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
}

impl TryFrom<FlatWhat> for What {
    type Error = Missing;

    fn try_from(flat: FlatWhat) -> Result<Self, Missing> {
        let FlatWhat { max_iters, energy_joules, value, gpu, .. } = flat;
        Ok(match flat.kind {
            Kind::RunStarted => Self::RunStarted { run: needed(flat.run, "run")? },
            Kind::RunConfig => Self::RunConfig { config: needed(flat.config, "config")?, max_iters },
            Kind::RunParameters => {
                Self::RunParameters { parameters_millions: needed(flat.parameters_millions, "parameters_millions")? }
            }
            Kind::RunPlanned => Self::RunPlanned { plan: needed(flat.plan, "plan")? },
            Kind::RunUnplanned => {
                Self::RunUnplanned { contradiction: needed(flat.contradiction, "contradiction")?, max_iters }
            }
            Kind::RunIteration => Self::RunIteration(Iteration {
                iter: needed(flat.iter, "iter")?,
                loss: flat.loss,
                time_ms: needed(flat.time_ms, "time_ms")?,
                tokens_per_second: flat.tokens_per_second,
                mfu_printed_percent: flat.mfu_printed_percent,
                mfu_percent: flat.mfu_percent,
                learning_rate: flat.learning_rate,
                gradient_norm: flat.gradient_norm,
            }),
            Kind::RunEvaluation => Self::RunEvaluation(Evaluation {
                iter: needed(flat.iter, "iter")?,
                train_loss: flat.train_loss,
                val_loss: flat.val_loss,
            }),
            Kind::RunEvaluating => Self::RunEvaluating { done: needed(flat.done, "done")?, of: needed(flat.of, "of")? },
            Kind::RunCheckpoint => Self::RunCheckpoint { folder: needed(flat.folder, "folder")? },
            Kind::RunSaved => Self::RunSaved { checkpoint: needed(flat.checkpoint, "checkpoint")? },
            Kind::RunNotSaved => {
                Self::RunNotSaved { iter: needed(flat.iter, "iter")?, message: needed(flat.message, "message")? }
            }
            Kind::RunCommand => Self::RunCommand { command: needed(flat.command, "command")? },
            Kind::RunResumed => Self::RunResumed { pid: flat.pid, command: flat.command.unwrap_or_default() },
            Kind::RunStopping => Self::RunStopping,
            Kind::RunMemory => Self::RunMemory { gpu: needed(gpu, "gpu")?, bytes: needed(flat.bytes, "bytes")? },
            Kind::RunOom => Self::RunOom { message: needed(flat.message, "message")? },
            Kind::RunDiagnosed => Self::RunDiagnosed { diagnosis: needed(flat.diagnosis, "diagnosis")? },
            Kind::RunExplained => Self::RunExplained { message: needed(flat.message, "message")?, xid: flat.xid },
            Kind::RunRetried => {
                Self::RunRetried { next: needed(flat.next, "next")?, changes: needed(flat.changes, "changes")? }
            }
            Kind::RunStatus => Self::RunStatus { status: needed(flat.status, "status")?, energy_joules },
            Kind::RunDeleted => Self::RunDeleted { name: flat.name },
            Kind::Alert => Self::Alert { alert: needed(flat.alert, "alert")?, gpu, value, status: flat.status },
            Kind::AlertOver => Self::AlertOver { alert: needed(flat.alert, "alert")?, gpu },
            Kind::AlertDismissed => Self::AlertDismissed { alert: needed(flat.alert, "alert")?, gpu },
            Kind::SettingsChanged => Self::SettingsChanged,
            Kind::CardLost => Self::CardLost { gpu: needed(gpu, "gpu")? },
            Kind::CardBack => Self::CardBack { gpu: needed(gpu, "gpu")? },
            Kind::CardFault => Self::CardFault { gpu: needed(gpu, "gpu")?, xid: needed(flat.xid, "xid")? },
            Kind::HistoryPaused => Self::HistoryPaused { reason: needed(flat.reason, "reason")? },
            Kind::HistoryResumed => Self::HistoryResumed,
            Kind::HistorySetAside => Self::HistorySetAside {
                file: needed(flat.file, "file")?,
                runs: needed(flat.runs, "runs")?,
                settings: needed(flat.settings, "settings")?,
            },
            Kind::ClockSet => {
                Self::ClockSet { from_ms: needed(flat.from_ms, "from_ms")?, to_ms: needed(flat.to_ms, "to_ms")? }
            }
            Kind::AgentStarted => Self::AgentStarted { version: needed(flat.version, "version")? },
            Kind::Unknown => Self::Unknown,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rule {
    TemperatureAbove,
    MemoryAbove,
    NoProgress,
    CardLost,
    RunFailed,
}

/// [`Alert`], flat.
#[derive(Deserialize)]
pub struct FlatAlert {
    on: Rule,
    celsius: Option<u64>,
    percent: Option<u64>,
    minutes: Option<u64>,
}

impl TryFrom<FlatAlert> for Alert {
    type Error = Missing;

    fn try_from(flat: FlatAlert) -> Result<Self, Missing> {
        Ok(match flat.on {
            Rule::TemperatureAbove => Self::TemperatureAbove { celsius: needed(flat.celsius, "celsius")? },
            Rule::MemoryAbove => Self::MemoryAbove { percent: needed(flat.percent, "percent")? },
            Rule::NoProgress => Self::NoProgress { minutes: needed(flat.minutes, "minutes")? },
            Rule::CardLost => Self::CardLost,
            Rule::RunFailed => Self::RunFailed,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Running,
    Queued,
    Stalled,
    Exited,
    Killed,
    Lost,
}

/// [`RunStatus`], flat.
#[derive(Deserialize)]
pub struct FlatStatus {
    state: Status,
    since_ms: Option<u64>,
    code: Option<i32>,
    signal: Option<i32>,
    cause: Option<Cause>,
}

impl TryFrom<FlatStatus> for RunStatus {
    type Error = Missing;

    fn try_from(flat: FlatStatus) -> Result<Self, Missing> {
        Ok(match flat.state {
            Status::Running => Self::Running,
            Status::Queued => Self::Queued,
            Status::Stalled => Self::Stalled { since_ms: needed(flat.since_ms, "since_ms")? },
            Status::Exited => Self::Exited { code: needed(flat.code, "code")?, cause: flat.cause },
            Status::Killed => Self::Killed { signal: needed(flat.signal, "signal")?, cause: flat.cause },
            Status::Lost => Self::Lost,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    Starting,
    NoLibrary,
    NoDriver,
    Gone,
    Ready,
    Kept,
    Paused,
}

/// [`DriverState`] and [`HistoryState`], flat.
#[derive(Deserialize)]
pub struct FlatState {
    state: Source,
    reason: Option<String>,
    driver_version: Option<String>,
    cuda_version: Option<(u32, u32)>,
    windows: Option<bool>,
    bytes: Option<u64>,
    set_aside: Option<String>,
    since_ms: Option<u64>,
}

impl TryFrom<FlatState> for DriverState {
    type Error = Missing;

    fn try_from(flat: FlatState) -> Result<Self, Missing> {
        Ok(match flat.state {
            Source::Starting => Self::Starting,
            Source::NoLibrary => Self::NoLibrary,
            Source::NoDriver => Self::NoDriver { reason: needed(flat.reason, "reason")? },
            Source::Gone => Self::Gone { reason: needed(flat.reason, "reason")? },
            Source::Ready => Self::Ready {
                driver_version: needed(flat.driver_version, "driver_version")?,
                cuda_version: flat.cuda_version,
                windows: needed(flat.windows, "windows")?,
            },
            Source::Kept | Source::Paused => return Err(Missing("state, of a driver")),
        })
    }
}

impl TryFrom<FlatState> for HistoryState {
    type Error = Missing;

    fn try_from(flat: FlatState) -> Result<Self, Missing> {
        Ok(match flat.state {
            Source::Kept => Self::Kept { bytes: needed(flat.bytes, "bytes")?, set_aside: flat.set_aside },
            Source::Paused => {
                Self::Paused { reason: needed(flat.reason, "reason")?, since_ms: needed(flat.since_ms, "since_ms")? }
            }
            _ => return Err(Missing("state, of history")),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Type {
    Hello,
    Refused,
    Inventory,
    State,
    Telemetry,
    Slow,
    Event,
    Lost,
    Past,
}

#[derive(Deserialize)]
struct OfType {
    r#type: Type,
}

#[derive(Deserialize)]
struct Inventory {
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
struct Lost {
    n_messages: u64,
}

/// Reads what the agent says: first of what type it is, then what that has. It is what serde makes of the text, with half
/// of the code.
///
/// # Errors
/// It is none of the messages, or lacks something.
pub fn read_server_message(text: &str) -> serde_json::Result<ServerMessage> {
    let OfType { r#type } = serde_json::from_str(text)?;
    Ok(match r#type {
        Type::Hello => ServerMessage::Hello(serde_json::from_str(text)?),
        Type::Refused => ServerMessage::Refused(serde_json::from_str(text)?),
        Type::Inventory => {
            let Inventory { gpus } = serde_json::from_str(text)?;
            ServerMessage::Inventory { gpus }
        }
        Type::State => ServerMessage::State(serde_json::from_str(text)?),
        Type::Telemetry => ServerMessage::Telemetry(serde_json::from_str(text)?),
        Type::Slow => ServerMessage::Slow(serde_json::from_str(text)?),
        Type::Event => ServerMessage::Event(serde_json::from_str(text)?),
        Type::Lost => {
            let Lost { n_messages } = serde_json::from_str(text)?;
            ServerMessage::Lost { n_messages }
        }
        Type::Past => ServerMessage::Past(serde_json::from_str(text)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_missing_is_told_by_its_name() {
        for (text, field) in [
            (r#"{"kind":"run_memory","bytes":1}"#, "gpu"),
            (r#"{"kind":"run_iteration","iter":3}"#, "time_ms"),
            (r#"{"kind":"alert"}"#, "alert"),
        ] {
            let error = serde_json::from_str::<What>(text).expect_err(text).to_string();
            assert!(error.contains(&format!("the field {field} is missing")), "{text}: {error}");
        }
        assert!(serde_json::from_str::<RunStatus>(r#"{"state":"exited"}"#).is_err());
        assert!(serde_json::from_str::<DriverState>(r#"{"state":"kept","bytes":1}"#).is_err());
        assert!(serde_json::from_str::<HistoryState>(r#"{"state":"starting"}"#).is_err());
    }

    #[test]
    fn a_kind_of_a_later_version_is_unknown() {
        let text = r#"{"kind":"card_melted","at":{"celsius":4000}}"#;
        assert_eq!(serde_json::from_str::<What>(text).expect("something"), What::Unknown);
    }
}
