//! What is read and what happened, in words.

use headroom_shared::{
    decimal,
    protocol::{
        PROTOCOL_VERSION,
        alert::{Alert, Fired},
        event::{Event, What},
        gpu::Throttle,
        reading::{Reading, Why},
        run::RunStatus,
        state::{DriverState, HistoryState},
    },
};

use super::{
    Rig,
    connection::{Connection, Fault, Stage},
    run,
};
use crate::text::{self, Key, Text, say, t};

/// A blank that no line is broken at, between a number and its unit.
pub const BLANK: char = '\u{a0}';

/// A number with its unit.
pub fn with_unit(number: &str, unit: &str) -> String {
    format!("{}{BLANK}{unit}", text::table().number(number))
}

/// A value with so many decimals and its unit.
pub fn value(value: f64, decimals: u32, unit: &str) -> String {
    with_unit(&decimal::fixed(value, decimals), unit)
}

/// Why a reading is missing.
pub fn why(why: Why) -> &'static str {
    t(match why {
        Why::NotSupported => text::RIG_NOT_SUPPORTED,
        Why::NoPermission => text::RIG_NO_PERMISSION,
        Why::HiddenByWindows => text::RIG_HIDDEN_BY_WINDOWS,
        Why::CardLost => text::RIG_CARD_LOST,
        Why::OldDriver => text::RIG_OLD_DRIVER,
        Why::NotVisible => text::RIG_NOT_VISIBLE,
        Why::Implausible => text::RIG_IMPLAUSIBLE,
        Why::NotYet => text::RIG_NOT_YET,
        Why::Failed => text::RIG_FAILED,
    })
}

/// A reading, or why there is none.
pub fn reading<T>(reading: Option<&Reading<T>>, words: impl FnOnce(&T) -> String) -> String {
    match reading {
        Some(Reading::Is(value)) => words(value),
        Some(Reading::Missing { missing }) => why(*missing).to_owned(),
        None => why(Why::NotYet).to_owned(),
    }
}

/// Why a card is slower than it could be; empty where it is not.
pub fn throttled(bits: u64) -> String {
    let reasons: Vec<&str> =
        Throttle::of(bits).filter(|reason| reason.slows()).map(|reason| t(throttle(reason))).collect();
    if reasons.is_empty() { String::new() } else { say(&text::rig_throttled(text::names(reasons))) }
}

const fn throttle(reason: Throttle) -> Key {
    match reason {
        Throttle::Idle => text::RIG_THROTTLE_IDLE,
        Throttle::ApplicationClocks => text::RIG_THROTTLE_OWNER,
        Throttle::PowerCap => text::RIG_THROTTLE_POWER,
        Throttle::HardwareSlowdown => text::RIG_THROTTLE_HARDWARE,
        Throttle::SyncBoost => text::RIG_THROTTLE_SYNC,
        Throttle::SoftwareThermal => text::RIG_THROTTLE_HEAT,
        Throttle::HardwareThermal => text::RIG_THROTTLE_HARDWARE_HEAT,
        Throttle::HardwarePowerBrake => text::RIG_THROTTLE_BRAKE,
        Throttle::DisplayClocks => text::RIG_THROTTLE_DISPLAY,
    }
}

/// A length of time, in its two greatest units.
pub fn duration(ms: u64) -> String {
    let (seconds, minutes, hours) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match hours {
        0 if minutes == 0 => say(&text::rig_seconds(seconds)),
        0 => say(&text::rig_minutes(minutes, seconds % 60)),
        1..48 => say(&text::rig_hours(hours, minutes % 60)),
        _ => say(&text::rig_days(hours / 24, hours % 24)),
    }
}

/// How the connection stands: a name for its look, and the words.
pub fn connection(connection: &Connection, now_ms: u64) -> (&'static str, String) {
    // Whole seconds, rounded up: a wait of none is over.
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

/// What was wrong with a token or a code.
pub fn fault(fault: &Fault) -> String {
    match fault {
        Fault::Token => t(text::RIG_FAULT_TOKEN).to_owned(),
        Fault::Code(message) => say(&text::rig_fault_code(message.as_str())),
    }
}

/// What is the matter with the driver, and what would help; nothing where it is well.
pub fn driver(state: &DriverState) -> Option<String> {
    Some(match state {
        DriverState::Ready { .. } => return None,
        DriverState::Starting => t(text::RIG_DRIVER_STARTING).to_owned(),
        DriverState::NoLibrary => t(text::RIG_NO_LIBRARY).to_owned(),
        DriverState::NoDriver { reason } => say(&text::rig_no_driver(reason.as_str())),
        DriverState::Gone { reason } => say(&text::rig_driver_gone(reason.as_str())),
    })
}

/// What is the matter with the history.
pub fn history(state: &HistoryState) -> Option<String> {
    match state {
        HistoryState::Kept { set_aside, .. } => {
            set_aside.as_ref().map(|name| say(&text::rig_history_set_aside(name.as_str())))
        }
        HistoryState::Paused { reason, .. } => Some(say(&text::rig_history_paused(reason.as_str()))),
    }
}

/// What an alert says of a card or a run.
pub fn alert(alert: &Alert) -> Text {
    match alert {
        Alert::TemperatureAbove { celsius } => text::rig_alert_temperature(*celsius),
        Alert::MemoryAbove { percent } => text::rig_alert_memory(*percent),
        Alert::NoProgress { minutes } => text::rig_alert_progress(*minutes),
        Alert::CardLost => text::RIG_FIRED_LOST.into(),
        Alert::RunFailed => text::RIG_FIRED_FAILED.into(),
    }
}

/// What an alert that is on says: of a run that failed, how it ended.
pub fn fired(rig: &Rig, fired: &Fired) -> String {
    let failed =
        rig.runs.iter().map(|watched| &watched.run).find(|run| {
            fired.alert == Alert::RunFailed && Some(&run.id) == fired.run.as_ref() && run.status.has_ended()
        });
    failed.map_or_else(|| say(&alert(&fired.alert)), |failed| run::status(failed.status))
}

/// What a card is called: its name, with its place where there are several.
pub fn card_name(rig: &Rig, uuid: &str) -> String {
    let name = |name: &str| name.trim_start_matches("NVIDIA ").to_owned();
    match rig.card(uuid) {
        Some(card) if rig.cards.len() > 1 => format!("{}: {}", card.gpu.index, name(&card.gpu.name)),
        Some(card) => name(&card.gpu.name),
        // One that was lost before the agent started is known by its alert alone.
        None => {
            let named = rig.fired.iter().find(|fired| fired.gpu.as_deref() == Some(uuid));
            named.and_then(|fired| fired.gpu_name.as_deref()).map_or_else(|| uuid.to_owned(), name)
        }
    }
}

/// What a run is called; of one that was deleted the line that says so has its name.
pub fn run_name(rig: &Rig, id: &str) -> String {
    let known = rig.runs.iter().find(|watched| watched.run.id == id).map(|watched| &watched.run.name);
    let deleted = || {
        rig.log.iter().find_map(|event| match &event.what {
            What::RunDeleted { name } if event.run.as_deref() == Some(id) => name.as_ref(),
            _ => None,
        })
    };
    known.or_else(deleted).map_or_else(|| id.to_owned(), Clone::clone)
}

/// A line of what happened; nothing for what has none.
pub fn event(rig: &Rig, event: &Event) -> Option<String> {
    let run = event.run.as_deref().map(|id| run_name(rig, id)).unwrap_or_default();
    let of_card = |rule: &Alert, gpu: &Option<String>| match gpu {
        Some(gpu) => format!("{}: {}", card_name(rig, gpu), say(&alert(rule))),
        None if run.is_empty() => say(&alert(rule)),
        None => format!("{run}: {}", say(&alert(rule))),
    };
    Some(match &event.what {
        What::RunStarted { run } if run.status == RunStatus::Queued => {
            format!("{}: {}", run.name, t(text::RIG_QUEUED))
        }
        What::RunStarted { run } => say(&text::rig_run_started(run.name.as_str())),
        // It is told that a run runs where it had made no progress.
        What::RunStatus { status: RunStatus::Running, .. } => say(&text::rig_run_goes_on(run)),
        What::RunStatus { status, .. } => format!("{run}: {}", run::status(*status)),
        What::RunOom { .. } => format!("{run}: {}", t(text::RIG_OOM)),
        What::RunRetried { changes, .. } => {
            let changes = changes.iter().map(|(key, value)| format!("{key}={value}"));
            say(&text::rig_run_retried(run, text::names(changes)))
        }
        // For the first time, or again.
        What::RunResumed { .. } => format!("{run}: {}", t(text::RIG_RUNNING)),
        What::RunStopping => say(&text::rig_run_stopping(run)),
        What::RunDeleted { .. } => say(&text::rig_run_deleted(run)),
        What::RunNotSaved { iter, .. } => say(&text::rig_run_not_saved(run, iter.to_string())),
        What::RunCheckpoint { folder } => say(&text::rig_run_checkpoint(run, folder.as_str())),
        What::Alert { status: Some(status), .. } => format!("{run}: {}", run::status(*status)),
        What::Alert { alert, gpu, .. } => of_card(alert, gpu),
        What::AlertOver { alert, gpu } => say(&text::rig_alert_over(of_card(alert, gpu))),
        What::AlertDismissed { alert, gpu } => say(&text::rig_alert_dismissed(of_card(alert, gpu))),
        What::SettingsChanged => t(text::RIG_SETTINGS_CHANGED).to_owned(),
        What::CardLost { gpu } => say(&text::rig_card_gone(card_name(rig, gpu))),
        What::CardBack { gpu } => say(&text::rig_card_back(card_name(rig, gpu))),
        What::CardFault { gpu, xid } => say(&text::rig_card_fault(card_name(rig, gpu), xid.to_string())),
        What::HistoryPaused { reason } => say(&text::rig_history_paused(reason.as_str())),
        What::HistorySetAside { file, runs, settings } => {
            let kept = if *settings { text::rig_history_saved(*runs) } else { text::rig_history_lost(*runs) };
            format!("{} {}", say(&text::rig_history_set_aside(file.as_str())), say(&kept))
        }
        What::HistoryResumed => t(text::RIG_HISTORY_RESUMED).to_owned(),
        What::ClockSet { from_ms, to_ms } if to_ms < from_ms => say(&text::rig_clock_back(duration(from_ms - to_ms))),
        What::ClockSet { from_ms, to_ms } => say(&text::rig_clock_forward(duration(to_ms - from_ms))),
        What::AgentStarted { version } => say(&text::rig_agent_started(version.as_str())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rig::sample::T;

    #[test]
    fn lengths_of_time_have_two_units() {
        for (ms, words) in
            [(900, "0 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min"), (2 * 86_400_000 + 3_600_000, "2 d 1 h")]
        {
            assert_eq!(duration(ms).replace(BLANK, " "), words);
        }
    }

    #[test]
    fn a_missing_reading_says_why() {
        let missing: Reading<u64> = Reading::missing(Why::HiddenByWindows);
        assert!(reading(Some(&missing), |_| unreachable!("there is none")).contains("Windows"));
        assert_eq!(reading(Some(&Reading::Is(3_u64)), |n| value(*n as f64, 0, "W")), "3\u{a0}W");
    }

    #[test]
    fn only_what_slows_a_card_is_told() {
        assert_eq!(throttled(Throttle::Idle.bit() | Throttle::ApplicationClocks.bit()), "");
        let both = throttled(Throttle::PowerCap.bit() | Throttle::HardwareThermal.bit() | 1 << 60);
        assert!(both.contains("power") && both.contains("heat"), "{both}");
    }

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
