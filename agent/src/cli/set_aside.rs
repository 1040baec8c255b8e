//! Message about a damaged history file: its new path, and what was recovered.

use headroom_protocol::event::EventKind;

/// Formats the message. `None` for other events.
pub fn said(what: &EventKind) -> Option<String> {
    let EventKind::HistorySetAside { file, runs, settings } = what else { return None };
    let runs = match runs {
        0 => "no runs".to_owned(),
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    };
    let (kept, lost) = if *settings {
        (format!("{runs}, the alert settings and the price per kWh"), "its telemetry")
    } else {
        (runs, "its telemetry, the alert settings and the price per kWh")
    };
    Some(format!(
        "headroom: the history file was damaged; it lies in the data folder as {file}\n  taken over from it: {kept}; \
         lost with it: {lost}, and what of runs could not be read\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_kept_parts_of_history_are_named() {
        let said = |runs, settings| {
            said(&EventKind::HistorySetAside { file: "history.damaged-1.sqlite".to_owned(), runs, settings })
                .expect("words")
        };
        let kept = said(7, true);
        assert!(kept.contains("history.damaged-1.sqlite") && kept.contains("over from it: 7 runs, the alert settings"));
        let lost = said(0, false);
        assert!(lost.contains("over from it: no runs;") && lost.contains("lost with it: its telemetry, the alert"));
        assert_eq!(super::said(&EventKind::HistoryResumed), None);
    }
}
