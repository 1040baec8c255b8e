//! Runs as text: a table with one line per run, or a sheet for one run.

use headroom_protocol::{
    alert::Settings,
    run::{Cause, Run, RunRequest, RunStatus},
};
use headroom_text::units::human_size;

use crate::cli::style::{Ink, Style};
use headroom_agent_core::store::calendar;

/// Displayed digits of a run's ID; the sheet has all of them.
const ID_DIGITS: usize = 8;
/// Width of the name column; the maximum applies without a terminal.
const NAME_COLUMNS: std::ops::RangeInclusive<usize> = 12..=40;
const JOULES_PER_KWH: f64 = 3_600_000.0;

/// Usual delay between a run's start and its first use of the GPU: Python, data and the CUDA context load meanwhile.
const LATE_MS: u64 = 60_000;

/// Placeholder for an unknown value.
const NONE: &str = "-";

/// Formats a table with one line per run, under a heading.
pub fn table(runs: &[Run], now_ms: u64, style: &Style) -> String {
    let cells: Vec<[String; 9]> = runs.iter().map(|run| line(run, now_ms)).collect();
    let heading = ["id", "name", "status", "begun", "took", "iter", "loss", "memory", "energy"].map(str::to_owned);
    let mut widths = [0; 9];
    for row in cells.iter().chain([&heading]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let others: usize = widths.iter().sum::<usize>() - widths[1] + 2 * (widths.len() - 1);
    let room = style.columns.map_or(*NAME_COLUMNS.end(), |columns| columns.saturating_sub(others));
    widths[1] = widths[1].min(room.clamp(*NAME_COLUMNS.start(), *NAME_COLUMNS.end()));
    let drawn = |row: &[String; 9]| {
        let mut line = String::new();
        for (idx, (cell, width)) in row.iter().zip(widths).enumerate() {
            let cell = style.shortened(cell, width);
            // Text is left-aligned and figures are right-aligned.
            let padded = if idx < 4 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
            line.push_str(&padded);
            line.push_str("  ");
        }
        line.trim_end().to_owned()
    };
    let mut text = style.paint(Ink::Heading, &drawn(&heading)) + "\n";
    for row in &cells {
        text.push_str(&drawn(row));
        text.push('\n');
    }
    text
}

fn line(run: &Run, now_ms: u64) -> [String; 9] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    [
        run.id.chars().take(ID_DIGITS).collect(),
        printable(&run.name),
        if run.order.is_some() { format!("{}, agent's", status(run)) } else { status(run) },
        or_none(calendar::local(run.started_ms)).chars().take("2026-11-22 02:55".len()).collect(),
        took(run, now_ms),
        iter(run),
        or_none(run.last.and_then(|last| last.loss).map(|loss| format!("{loss:.4}"))),
        or_none(run.gpu_memory_peak_bytes.map(human_size)),
        or_none(run.energy_joules.map(kwh)),
    ]
}

/// Formats all facts of a run, one per line.
pub fn sheet(run: &Run, settings: &Settings, now_ms: u64, style: &Style) -> String {
    let mut facts: Vec<(&str, String)> = vec![
        ("id", run.id.clone()),
        ("status", status(run)),
        ("begun", calendar::local(run.started_ms).unwrap_or_else(|| NONE.to_owned())),
        ("took", took(run, now_ms)),
    ];
    let mut fact = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    fact("order", run.order.as_ref().map(order));
    fact(
        "checkpoint",
        run.checkpoint.map(|saved| format!("after {} iterations, {}", saved.iter, human_size(saved.bytes))),
    );
    fact("command", (!run.command.is_empty()).then(|| printable(&run.command.join(" "))));
    fact("GPUs", (!run.gpus.is_empty()).then(|| printable(&run.gpus.join(", "))));
    fact("parameters", run.parameters_millions.map(|millions| format!("{millions:.2} M")));
    fact("iteration", run.last.map(|_| iter(run)));
    if let Some(last) = run.last {
        fact("loss", last.loss.map(|loss| format!("{loss:.4}")));
        fact("time", Some(format!("{:.2} ms an iteration", last.time_ms)));
        fact("speed", last.tokens_per_second.map(|speed| format!("{speed:.0} tokens/s")));
        fact("MFU", last.mfu_percent.map(|mfu| format!("{mfu:.2} %")));
    }
    if let Some(evaluation) = run.last_evaluation {
        let loss = |loss: Option<f64>| loss.map_or_else(|| NONE.to_owned(), |loss| format!("{loss:.4}"));
        let (train, val) = (loss(evaluation.train_loss), loss(evaluation.val_loss));
        fact("evaluation", Some(format!("train {train}, val {val}, before iteration {}", evaluation.iter)));
    }
    fact(
        "memory",
        run.gpu_memory_peak_bytes.map(|bytes| format!("at most {} on one GPU{}", human_size(bytes), late(run))),
    );
    let verdict = |fits| if fits { "fits" } else { "does not fit" };
    fact(
        "planned",
        run.plan.as_ref().map(|plan| {
            format!("{} at most on {}: {}", human_size(plan.peak_bytes), printable(&plan.gpu), verdict(plan.fits))
        }),
    );
    fact("energy", run.energy_joules.map(|joules| format!("{} ({joules:.0} J)", kwh(joules))));
    let cost = run.energy_joules.zip(settings.price_per_kwh).map(|(joules, price)| joules / JOULES_PER_KWH * price);
    fact("cost", cost.map(|cost| format!("{cost:.2} {}", printable(&settings.currency)).trim_end().to_owned()));
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = style.paint(Ink::Heading, &printable(&run.name)) + "\n";
    for (name, value) in facts {
        text.push_str(&format!("{name:width$}  {value}\n"));
    }
    let notes: Vec<&str> = run.config_notes.iter().map(|note| note.en.as_str()).collect();
    let notes = (!notes.is_empty()).then(|| notes.join("\n"));
    let explanation = run.explanation.as_ref().map(|message| message.en.clone());
    let diagnosis = run.diagnosis.as_ref().map(|diagnosis| {
        let fix = diagnosis.change.iter().chain(&diagnosis.command);
        fix.fold(diagnosis.sentence.clone(), |text, line| text + "\n" + line)
    });
    let has_fix = run.diagnosis.as_ref().is_some_and(|diagnosis| diagnosis.change.is_some());
    let blocks = [
        ("out of memory", &run.oom),
        (if has_fix { "diagnosis and best fix" } else { "diagnosis" }, &diagnosis),
        ("why it ended", &explanation),
        ("config, as it was read", &notes),
        ("config", &run.config),
    ];
    for (heading, block) in blocks {
        if let Some(block) = block {
            text.push_str(&format!("\n{}\n", style.paint(Ink::Heading, heading)));
            for line in block.lines() {
                text.push_str(&printable(line));
                text.push('\n');
            }
        }
    }
    text
}

/// Start of the memory readings, if long after the run's start: the run used its GPU late, or telemetry started late.
fn late(run: &Run) -> String {
    let since_ms = run.gpu_since_ms.filter(|since_ms| since_ms.saturating_sub(run.started_ms) > LATE_MS);
    since_ms.and_then(calendar::local).map_or_else(String::new, |since| format!(", seen there since {since}"))
}

/// Describes the order of a run that the agent started.
fn order(order: &RunRequest) -> String {
    let of = |name: &Option<String>| name.as_deref().map_or_else(|| NONE.to_owned(), printable);
    format!("of the agent: {} on {}, data {}", printable(&order.config), of(&order.device), of(&order.dataset))
}

fn status(run: &Run) -> String {
    match run.status.cause() {
        Some(Cause::OutOfGpuMemory) => return "ran out of GPU memory".to_owned(),
        Some(Cause::OutOfHostMemory) => return "killed, host memory".to_owned(),
        Some(Cause::GpuError) => return "failed, GPU error".to_owned(),
        Some(Cause::Diverged) => return "diverged".to_owned(),
        Some(Cause::Stopped) => return "stopped".to_owned(),
        Some(Cause::Unqueued) => return "canceled before it started".to_owned(),
        Some(Cause::Other) | None => {}
    }
    match run.status {
        RunStatus::Running => "running".to_owned(),
        RunStatus::Queued => "queued".to_owned(),
        RunStatus::Stalled { .. } => "stalled".to_owned(),
        RunStatus::Exited { code: 0, .. } => "done".to_owned(),
        RunStatus::Exited { code, .. } => format!("failed ({code})"),
        RunStatus::Killed { signal, .. } => format!("killed ({signal})"),
        RunStatus::Lost => "lost".to_owned(),
    }
}

fn iter(run: &Run) -> String {
    match (run.last, run.max_iters) {
        (None, _) => NONE.to_owned(),
        (Some(last), None) => last.iter.to_string(),
        (Some(last), Some(max)) => format!("{}/{max}", last.iter),
    }
}

fn took(run: &Run, now_ms: u64) -> String {
    // A queued run has no duration yet.
    let Some(took_ms) = run.took_ms(now_ms) else { return NONE.to_owned() };
    let seconds = took_ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {:02} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes:02} min"),
        _ => format!("{days} d {hours:02} h"),
    }
}

fn kwh(joules: f64) -> String {
    let kwh = joules / JOULES_PER_KWH;
    if kwh < 0.1 { format!("{:.1} Wh", 1000.0 * kwh) } else { format!("{kwh:.2} kWh") }
}

/// Replaces control and bidirectional characters, as names and messages come from other programs.
pub fn printable(text: &str) -> String {
    let is_obeyed = |char: char| char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|char| if is_obeyed(char) { '\u{FFFD}' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use headroom_protocol::run::{Diagnosis, EarlierParts};

    use super::*;

    #[test]
    fn memory_that_was_seen_late_says_since_when() {
        let of = |gpu_since_ms| {
            let run = Run { gpu_memory_peak_bytes: Some(1 << 30), gpu_since_ms, ..run() };
            let style = Style { colour: false, unicode: true, columns: Some(80) };
            sheet(&run, &Settings::default(), 0, &style)
        };
        assert!(of(None).contains("on one GPU\n") && of(Some(LATE_MS)).contains("on one GPU\n"));
        assert!(of(Some(LATE_MS + 1)).contains("on one GPU, seen there since 1970-01-0"));
    }

    #[test]
    fn sheet_of_a_run_out_of_memory_has_its_diagnosis_and_fix() {
        let diagnosis = Diagnosis {
            sentence: "The logits need 6.14 GiB.".to_owned(),
            change: Some("batch_size 12 fits.".to_owned()),
            command: Some("python train.py --batch_size=12".to_owned()),
            others: vec![],
        };
        let without_fix = Diagnosis { change: None, command: None, ..diagnosis.clone() };
        let style = Style { colour: false, unicode: true, columns: Some(80) };
        for (diagnosis, block) in [
            (
                diagnosis,
                "\ndiagnosis and best fix\nThe logits need 6.14 GiB.\nbatch_size 12 fits.\n\
                 python train.py --batch_size=12\n",
            ),
            (without_fix, "\ndiagnosis\nThe logits need 6.14 GiB.\n"),
        ] {
            let run = Run { oom: Some("CUDA out of memory.".to_owned()), diagnosis: Some(diagnosis), ..run() };
            let text = sheet(&run, &Settings::default(), 0, &style);
            assert!(text.contains(block), "{text}");
        }
    }

    fn run() -> Run {
        let json = r#"{"id":"0123456789abcdef","name":"a","started_ms":0,"ended_ms":null,"pid":null,
                       "status":{"state":"running"}}"#;
        serde_json::from_str(json).expect("a run")
    }

    #[test]
    fn times_have_two_units() {
        for (ms, text) in [
            (0, "0 s"),
            (59_999, "59 s"),
            (61_000, "1 min 01 s"),
            (3_600_000, "1 h 00 min"),
            (90_000_000, "1 d 01 h"),
            (u64::MAX, "213503982334 d 14 h"),
        ] {
            assert_eq!(took(&Run { ended_ms: Some(ms), ..run() }, 5), text);
        }
        assert_eq!(took(&run(), 61_000), "1 min 01 s");
        let earlier = Some(EarlierParts { took_ms: 50_000, energy_joules: None, since_ms: 90_000 });
        assert_eq!(took(&Run { earlier, ..run() }, 101_000), "1 min 01 s", "the pause is no part of it");
        assert_eq!(took(&Run { status: RunStatus::Queued, ..run() }, 61_000), NONE);
        assert_eq!(took(&Run { started_ms: 9, ..run() }, 0), "0 s", "the clock was set back");
    }

    #[test]
    fn energy_is_in_what_one_pays_for() {
        assert_eq!([0.0, 3600.0, 36e4, 36e5].map(kwh), ["0.0 Wh", "1.0 Wh", "0.10 kWh", "1.00 kWh"]);
    }

    #[test]
    fn a_name_is_cut_to_its_place_and_commands_nothing() {
        let style = Style { colour: false, unicode: true, columns: Some(80) };
        let name = format!("\x1b[2J\u{202e}{}", "x".repeat(100));
        let text = table(&[Run { name, ..run() }], 0, &style);
        assert!(text.lines().all(|line| line.chars().count() <= 84), "{text}");
        assert!(!text.contains(['\x1b', '\u{202e}']) && text.contains('…'), "{text}");
    }
}
