//! The state of the connection and the driver, alerts and events as text.

use headroom_protocol::{
    PROTOCOL_VERSION,
    alert::{Alert, FiredAlert},
    event::{Event, EventKind},
    run::RunStatus,
    state::{DriverState, HistoryState},
};

use super::{
    Rig,
    connection::{Connection, Fault, Stage},
    names::{gpu_name, run_name},
    run,
    values::duration,
};
use crate::text::{self, Text, say, t};

/// The state of the connection: a style name, and the words.
pub fn connection(connection: &Connection, now_ms: u64) -> (&'static str, String) {
    // Whole seconds, rounded up: a wait of zero is over.
    let until = |until_ms: u64| duration(until_ms.saturating_sub(now_ms).saturating_add(999).max(1000));
    match &connection.stage {
        Stage::Connecting => ("waiting", t(text::RIG_CONNECTING).to_owned()),
        Stage::Pairing => ("waiting", t(text::RIG_PAIRING).to_owned()),
        Stage::Unpaired(_) => ("closed", t(text::RIG_UNPAIRED).to_owned()),
        Stage::Live if connection.is_stale(now_ms) => {
            ("stale", say(&text::rig_stale(duration(now_ms.saturating_sub(connection.heard_ms)))))
        }
        Stage::Live => ("live", t(text::RIG_LIVE).to_owned()),
        Stage::Waiting { until_ms, .. } if connection.was_live => {
            ("waiting", say(&text::rig_waiting(until(*until_ms))))
        }
        Stage::Waiting { until_ms, agent_answers: true } => ("waiting", say(&text::rig_no_socket(until(*until_ms)))),
        Stage::Waiting { until_ms, .. } => ("waiting", say(&text::rig_unreachable(until(*until_ms)))),
        Stage::Refused { until_ms, .. } => ("closed", say(&text::rig_refused(until(*until_ms)))),
        Stage::Mismatch(versions) => {
            let versions: Vec<String> = versions.iter().map(u32::to_string).collect();
            let ours = u64::from(PROTOCOL_VERSION);
            ("closed", say(&text::rig_mismatch(ours, text::names(versions))))
        }
        Stage::NoAgent => ("closed", t(text::RIG_NO_AGENT).to_owned()),
    }
}

/// The fault of a token or a code.
pub fn fault(fault: &Fault) -> String {
    match fault {
        Fault::Token => t(text::RIG_FAULT_TOKEN).to_owned(),
        Fault::Code(message) => say(&text::rig_fault_code(message.as_str())),
    }
}

/// The problem of the driver, with a remedy; `None` if it works.
pub fn driver(state: &DriverState) -> Option<String> {
    Some(match state {
        DriverState::Ready { .. } => return None,
        DriverState::Starting => t(text::RIG_DRIVER_STARTING).to_owned(),
        DriverState::NoLibrary => t(text::RIG_NO_LIBRARY).to_owned(),
        DriverState::NoDriver { reason } => say(&text::rig_no_driver(text::message(reason))),
        DriverState::Gone { reason } => say(&text::rig_driver_gone(text::message(reason))),
    })
}

/// The problem of the history; `None` if it works.
pub fn history(state: &HistoryState) -> Option<String> {
    match state {
        HistoryState::Kept { set_aside, .. } => {
            set_aside.as_ref().map(|name| say(&text::rig_history_set_aside(name.as_str())))
        }
        HistoryState::Paused { reason, .. } => Some(say(&text::rig_history_paused(text::message(reason)))),
    }
}

/// The text of an alert about a GPU or a run.
pub fn alert(alert: &Alert) -> Text {
    match alert {
        Alert::TemperatureAbove { celsius } => text::rig_alert_temperature(*celsius),
        Alert::MemoryAbove { percent } => text::rig_alert_memory(*percent),
        Alert::NoProgress { minutes } => text::rig_alert_progress(*minutes),
        Alert::GpuLost => text::RIG_FIRED_LOST.into(),
        Alert::RunFailed => text::RIG_FIRED_FAILED.into(),
    }
}

/// The text of an active alert; for a failed run, the way it ended.
pub fn fired(rig: &Rig, fired: &FiredAlert) -> String {
    let failed =
        rig.runs.iter().map(|watched| &watched.run).find(|run| {
            fired.alert == Alert::RunFailed && Some(&run.id) == fired.run.as_ref() && run.status.has_ended()
        });
    failed.map_or_else(|| say(&alert(&fired.alert)), |failed| run::status(failed.status))
}

/// A line of the event log; `None` for an event without a line.
pub fn event(rig: &Rig, event: &Event) -> Option<String> {
    let run = event.run.as_deref().map(|id| run_name(rig, id)).unwrap_or_default();
    let of_gpu = |rule: &Alert, gpu: &Option<String>| match gpu {
        Some(gpu) => format!("{}: {}", gpu_name(rig, gpu), say(&alert(rule))),
        None if run.is_empty() => say(&alert(rule)),
        None => format!("{run}: {}", say(&alert(rule))),
    };
    Some(match &event.what {
        EventKind::RunStarted { run } if run.status == RunStatus::Queued => {
            format!("{}: {}", run.name, t(text::RIG_QUEUED))
        }
        EventKind::RunStarted { run } => say(&text::rig_run_started(run.name.as_str())),
        // The event is sent when a run without progress continues.
        EventKind::RunStatus { status: RunStatus::Running, .. } => say(&text::rig_run_goes_on(run)),
        EventKind::RunStatus { status, .. } => format!("{run}: {}", run::status(*status)),
        EventKind::RunOom { .. } => format!("{run}: {}", t(text::RIG_OOM)),
        EventKind::RunRetried { changes, .. } => {
            let changes = changes.iter().map(|(key, value)| format!("{key}={value}"));
            say(&text::rig_run_retried(run, text::names(changes)))
        }
        // For the first time, or again.
        EventKind::RunResumed { .. } => format!("{run}: {}", t(text::RIG_RUNNING)),
        EventKind::RunStopping => say(&text::rig_run_stopping(run)),
        EventKind::RunDeleted { .. } => say(&text::rig_run_deleted(run)),
        EventKind::RunNotSaved { iter, .. } => say(&text::rig_run_not_saved(run, iter.to_string())),
        EventKind::RunCheckpoint { folder } => say(&text::rig_run_checkpoint(run, folder.as_str())),
        EventKind::Alert { status: Some(status), .. } => format!("{run}: {}", run::status(*status)),
        EventKind::Alert { alert, gpu, .. } => of_gpu(alert, gpu),
        EventKind::AlertOver { alert, gpu } => say(&text::rig_alert_over(of_gpu(alert, gpu))),
        EventKind::AlertDismissed { alert, gpu } => say(&text::rig_alert_dismissed(of_gpu(alert, gpu))),
        EventKind::SettingsChanged => t(text::RIG_SETTINGS_CHANGED).to_owned(),
        EventKind::GpuLost { gpu } => say(&text::rig_card_gone(gpu_name(rig, gpu))),
        EventKind::GpuRecovered { gpu } => say(&text::rig_card_back(gpu_name(rig, gpu))),
        EventKind::GpuXid { gpu, xid } => say(&text::rig_card_fault(gpu_name(rig, gpu), xid.to_string())),
        EventKind::HistoryPaused { reason } => say(&text::rig_history_paused(text::message(reason))),
        EventKind::HistorySetAside { file, runs, settings } => {
            let kept = if *settings { text::rig_history_saved(*runs) } else { text::rig_history_lost(*runs) };
            format!("{} {}", say(&text::rig_history_set_aside(file.as_str())), say(&kept))
        }
        EventKind::HistoryResumed => t(text::RIG_HISTORY_RESUMED).to_owned(),
        EventKind::ClockSet { from_ms, to_ms } if to_ms < from_ms => {
            say(&text::rig_clock_back(duration(from_ms - to_ms)))
        }
        EventKind::ClockSet { from_ms, to_ms } => say(&text::rig_clock_forward(duration(to_ms - from_ms))),
        EventKind::AgentStarted { version } => say(&text::rig_agent_started(version.as_str())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rig::{sample::T, values::BLANK};

    #[test]
    fn the_connection_is_always_in_words() {
        let (mut connection, _) = Connection::begin(T, Some("t".to_owned()), None);
        assert_eq!(super::connection(&connection, T).1, t(text::RIG_CONNECTING));
        connection.hello(T, PROTOCOL_VERSION);
        connection.heard(T, true);
        assert_eq!(super::connection(&connection, T), ("live", t(text::RIG_LIVE).to_owned()));
        let (look, words) = super::connection(&connection, T + 8000);
        assert!(look == "stale" && words.replace(BLANK, " ").contains("8 s"), "{words}");
        connection.closed(T, 1.0);
        let (_, words) = super::connection(&connection, T);
        assert!(words.replace(BLANK, " ").contains("1 s"), "{words}");
    }
}
