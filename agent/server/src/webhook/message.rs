//! The JSON body of an alert: a text for people, and its parts for programs.

use headroom_protocol::{
    alert::Alert,
    event::EventKind,
    run::{Cause, RunStatus},
};
use serde::Serialize;

/// An alert that fired or is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message {
    /// The text, in the field that Slack, Mattermost and ntfy's template use.
    text: String,
    /// The same text, in the field that Discord uses.
    content: String,
    rig: String,
    kind: Kind,
    alert: Alert,
    #[serde(rename = "card")]
    gpu: Option<MessageGpu>,
    run: Option<Run>,
    value: Option<f64>,
    /// How the run ended, with its cause.
    status: Option<RunStatus>,
    time_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Alert,
    AlertOver,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MessageGpu {
    uuid: String,
    name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Run {
    id: String,
    name: Option<String>,
}

/// Names of the objects that an alert is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// The machine's name.
    pub rig: &'a str,
    /// The GPU's name.
    pub gpu: Option<&'a str>,
    /// The run's name.
    pub run: Option<&'a str>,
}

impl Message {
    /// Creates the message for an event; `None` if the event is not about an alert.
    pub fn new(names: Names<'_>, run: Option<&str>, what: &EventKind, time_ms: u64) -> Option<Self> {
        let (kind, alert, gpu, value, status) = match what {
            EventKind::Alert { alert, gpu, value, status } => (Kind::Alert, *alert, gpu, *value, *status),
            EventKind::AlertOver { alert, gpu } => (Kind::AlertOver, *alert, gpu, None, None),
            _ => return None,
        };
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let gpu = gpu.as_ref().map(|uuid| MessageGpu { uuid: uuid.clone(), name: owned(names.gpu) });
        let run = run.map(|id| Run { id: id.to_owned(), name: owned(names.run) });
        let of_gpu = gpu.as_ref().map(|gpu| gpu.name.as_ref().unwrap_or(&gpu.uuid));
        let of_run = run.as_ref().map(|run| run.name.as_ref().unwrap_or(&run.id));
        let whose = of_gpu.or(of_run).map_or("it", |name| name);
        let text = format!("{}: {}", names.rig, said(kind, alert, whose, value, status.and_then(RunStatus::cause)));
        Some(Self {
            content: text.clone(),
            text,
            rig: names.rig.to_owned(),
            kind,
            alert,
            gpu,
            run,
            value,
            status,
            time_ms,
        })
    }

    /// Returns the text.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn said(kind: Kind, alert: Alert, whose: &str, value: Option<f64>, cause: Option<Cause>) -> String {
    let number = |otherwise: u64| value.map_or_else(|| otherwise.to_string(), |value| format!("{value:.0}"));
    match (kind, alert) {
        (Kind::Alert, Alert::TemperatureAbove { celsius }) => {
            format!("{whose} is at {} °C, above {celsius} °C", number(celsius))
        }
        (Kind::AlertOver, Alert::TemperatureAbove { celsius }) => format!("{whose} is below {celsius} °C again"),
        (Kind::Alert, Alert::MemoryAbove { percent }) => {
            format!("{whose} has {} % of its memory in use, above {percent} %", number(percent))
        }
        (Kind::AlertOver, Alert::MemoryAbove { percent }) => {
            format!("{whose} has less than {percent} % of its memory in use again")
        }
        (Kind::Alert, Alert::NoProgress { minutes }) => {
            format!("{whose} made no progress for {} min", number(minutes))
        }
        (Kind::AlertOver, Alert::NoProgress { .. }) => format!("{whose} made progress again, or ended"),
        (Kind::Alert, Alert::GpuLost) => format!("{whose} stopped responding"),
        (Kind::AlertOver, Alert::GpuLost) => format!("{whose} responds again"),
        (Kind::Alert, Alert::RunFailed) => {
            let status = value.map_or_else(String::new, |code| format!(" with status {code:.0}"));
            match cause {
                Some(Cause::OutOfGpuMemory) => format!("{whose} ran out of GPU memory"),
                Some(Cause::OutOfHostMemory) => format!("{whose} was killed: the machine ran out of memory"),
                Some(Cause::GpuError) => format!("{whose} failed{status} after a GPU error"),
                Some(Cause::Diverged) => format!("{whose} diverged"),
                Some(Cause::Stopped | Cause::Unqueued | Cause::Other) | None => format!("{whose} failed{status}"),
            }
        }
        (Kind::AlertOver, Alert::RunFailed) => format!("{whose} does not fail any more"),
    }
}
