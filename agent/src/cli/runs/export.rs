//! `headroom runs export`: a run's iterations and evaluations, or a card's telemetry, for other programs.

use std::{fmt::Write as _, io::Write as _, path::Path};

use headroom_shared::protocol::{
    event::What,
    history::{Group, History, Metric},
    run::{Evaluation, Iteration, Run},
};
use serde::Serialize;

use super::{DATA_DIR, Error, Exit, Flag, Request, SCHEMA, UsageError, found, json, print};
use crate::{
    cli::{
        self,
        args::{Refusal, shown},
        command::{Command, Words},
    },
    clock::now_ms,
    store::{Archive, Card, Subject, calendar},
    train::files::{self, Disk},
};

/// Events that are read in one go.
const EVENTS_AT_ONCE: usize = 10_000;

const FORMAT: Flag<Request> = Flag {
    name: "format",
    value: Some("csv|json"),
    doc: "How it is written [default: csv]",
    set: |request, format| {
        request.csv = format == "csv";
        request.json = format == "json";
        if request.csv || request.json { Ok(()) } else { Err(format!("{format:?} is none of csv, json").into()) }
    },
};
const OUT: Flag<Request> = Flag {
    name: "out",
    value: Some("FILE"),
    doc: "Where to [default: standard output]",
    set: |request, file| {
        if file.is_empty() {
            return Err("a file has a name".to_owned().into());
        }
        request.out = Some(file.into());
        Ok(())
    },
};
const GPU: Flag<Request> = Flag {
    name: "gpu",
    value: Some("CARD"),
    doc: "A card's telemetry: its number, from 0 in the order that history\nmet them, or a beginning of its UUID",
    set: |request, gpu| {
        request.gpu = Some(gpu.to_owned());
        Ok(())
    },
};
const READINGS: Flag<Request> = Flag {
    name: "readings",
    value: Some("fast|slow|host"),
    doc: "Which telemetry: a card's of ten times a second; its fan, PCIe,\nenergy and ECC, once a second; the machine's [default: fast]",
    set: |request, readings| {
        let group = match readings {
            "fast" => Group::Fast,
            "slow" => Group::Slow,
            "host" => Group::Host,
            _ => return Err(format!("{readings:?} is none of fast, slow, host").into()),
        };
        request.group = Some(group);
        Ok(())
    },
};
const FROM: Flag<Request> = Flag {
    name: "from",
    value: Some("TIME"),
    doc: "Telemetry from then on [default: as long as it is kept]",
    set: |request, time| {
        request.from_ms = Some(self::time(time)?);
        Ok(())
    },
};
const TO: Flag<Request> = Flag {
    name: "to",
    value: Some("TIME"),
    doc: "Telemetry up to then [default: now]",
    set: |request, time| {
        request.to_ms = Some(self::time(time)?);
        Ok(())
    },
};

const FLAGS: &[Flag<Request>] = &[FORMAT, OUT, GPU, READINGS, FROM, TO, DATA_DIR];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "runs export",
    summary: "Write a run's losses, or a GPU's telemetry, as CSV or JSON",
    about: "\
Writes a run's iterations and evaluations, or the telemetry of a GPU or of the machine, as
it is kept: full rate for the newest hour, 10 s for two days, minutes beyond.",
    usage: &[
        "headroom runs export ID [--format csv|json] [--out FILE]",
        "headroom runs export --gpu CARD [--readings fast|slow] [--from TIME] [--to TIME] [OPTIONS]",
        "headroom runs export --readings host [--from TIME] [--to TIME] [OPTIONS]",
    ],
    arguments: super::ID,
    options: || shown(FLAGS),
    words: Words::Name,
    notes: "\
A reading that the GPU did not give is empty, or null.

A TIME is 2026-11-22, \"2026-11-22 14:30\", the same with a Z in UTC, or a duration ago:
90m, 24h, 30d.",
    exits: super::EXITS,
    examples: &["headroom runs export 3f2a --out losses.csv", "headroom runs export --gpu 0 --from 24h --format json"],
    run: |args| super::run(&COMMAND, FLAGS, None, args, run),
    ..Command::EMPTY
};

/// A time on the command line, in milliseconds since 1970.
///
/// # Errors
/// It is none.
pub fn time(text: &str) -> Result<u64, Refusal> {
    let time_ms = calendar::parse(text, now_ms());
    time_ms.ok_or_else(|| format!("{text:?} is no time; write it as \"2026-11-22 14:30\" or 24h").into())
}

/// What is written of a run as JSON.
#[derive(Debug, Serialize)]
struct OfRun {
    schema: u32,
    run: Run,
    iterations: Vec<At<Iteration>>,
    evaluations: Vec<At<Evaluation>>,
}

#[derive(Debug, Serialize)]
struct At<T> {
    /// When it was printed.
    at_ms: u64,
    #[serde(flatten)]
    what: T,
}

/// What is written of a card, or of the machine, as JSON.
#[derive(Debug, Serialize)]
struct OfCard {
    schema: u32,
    #[serde(flatten)]
    card: Option<Named>,
    metrics: &'static [Metric],
    /// Oldest first, each in rows of its own width.
    parts: Vec<History>,
}

#[derive(Debug, Serialize)]
struct Named {
    gpu: String,
    name: String,
}

/// Writes what is asked for.
///
/// # Errors
/// There is no such run or card, or it cannot be read or written.
fn run(request: &Request) -> Result<Exit, cli::Error> {
    let of_card =
        request.gpu.is_some() || request.group.is_some() || request.from_ms.is_some() || request.to_ms.is_some();
    if let (Some(from_ms), Some(to_ms)) = (request.from_ms, request.to_ms)
        && from_ms >= to_ms
    {
        let words = "--from has to be before --to: a time ago is the further back, the greater it is";
        return Err(UsageError::Words(words.to_owned()).into());
    }
    if request.group == Some(Group::Host) && request.gpu.is_some() {
        let words = "--readings host are the machine's, and take no --gpu";
        return Err(UsageError::Words(words.to_owned()).into());
    }
    let text = match (&request.word, of_card) {
        (Some(_), true) => {
            return Err(UsageError::Words("runs export takes a run or a card's telemetry, not both".to_owned()).into());
        }
        (None, false) => {
            return Err(UsageError::Missing { command: "runs export", what: "ID, or --gpu CARD" }.into());
        }
        (Some(_), false) => of_run(request)?,
        (None, true) => of_a_card(request)?,
    };
    match &request.out {
        None => print::data(&text)?,
        Some(file) => {
            write(file, &text)?;
            print::data(&format!("{}\n", file.display()))?;
        }
    }
    Ok(Exit::Success)
}

fn write(file: &Path, text: &str) -> Result<(), Error> {
    let failed = |error| Error::Write { file: file.to_owned(), error };
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Err(failed(std::io::ErrorKind::InvalidFilename.into()));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    files::replace(&Disk(folder.to_owned()), name, |out| out.write_all(text.as_bytes())).map_err(failed)
}

fn of_run(request: &Request) -> Result<String, Error> {
    let archive = request.archive()?;
    let run = found(&archive, request)?;
    let (mut iterations, mut evaluations) = (Vec::new(), Vec::new());
    let mut csv = "kind,at_ms,iter,loss,time_ms,tokens_per_second,mfu_printed_percent,mfu_percent,train_loss,val_loss,\
         learning_rate,gradient_norm\n"
        .to_owned();
    let mut after = 0;
    loop {
        let events = archive.events(Some(&run.id), after, EVENTS_AT_ONCE)?;
        let Some(last) = events.last() else { break };
        after = last.id;
        for event in events {
            let at_ms = event.time_ms;
            match event.what {
                What::RunIteration(what) => {
                    let Iteration { iter, loss, tokens_per_second, mfu_printed_percent, mfu_percent, .. } = what;
                    let figures = [loss, Some(what.time_ms), tokens_per_second, mfu_printed_percent, mfu_percent];
                    let learnt = [what.learning_rate, what.gradient_norm].map(cell).join(",");
                    let _ = writeln!(csv, "iteration,{at_ms},{iter},{},,,{learnt}", figures.map(cell).join(","));
                    iterations.push(At { at_ms, what });
                }
                What::RunEvaluation(what) => {
                    let Evaluation { iter, train_loss, val_loss } = what;
                    let _ = writeln!(csv, "evaluation,{at_ms},{iter},,,,,,{},{},,", cell(train_loss), cell(val_loss));
                    evaluations.push(At { at_ms, what });
                }
                _ => {}
            }
        }
    }
    if request.json { json(&OfRun { schema: SCHEMA, run, iterations, evaluations }) } else { Ok(csv) }
}

fn of_a_card(request: &Request) -> Result<String, Error> {
    let archive = request.archive()?;
    let group = request.group.unwrap_or_default();
    let card = match group {
        Group::Fast | Group::Slow => Some(card(&archive, request.gpu.as_deref())?),
        Group::Host => None,
    };
    let to_ms = request.to_ms.unwrap_or_else(|| now_ms() + 1);
    let subject = Subject { group, gpu: card.as_ref().map_or("", |card| &card.uuid) };
    let parts = archive.kept(subject, request.from_ms.unwrap_or(0), to_ms)?;
    let metrics = group.metrics();
    if request.json {
        let card = card.map(|Card { uuid: gpu, name }| Named { gpu, name });
        return json(&OfCard { schema: SCHEMA, card, metrics, parts });
    }
    let mut csv = "time_ms,step_ms".to_owned();
    for metric in metrics {
        let name = metric.name();
        let _ = write!(csv, ",{name}_min,{name}_mean,{name}_max");
    }
    csv.push('\n');
    for part in &parts {
        for (idx, time_ms) in part.times_ms.iter().enumerate() {
            let _ = write!(csv, "{time_ms},{}", part.step_ms);
            for series in &part.series {
                for values in [&series.min, &series.mean, &series.max] {
                    let _ = write!(csv, ",{}", cell(values.get(idx).copied().flatten()));
                }
            }
            csv.push('\n');
        }
    }
    Ok(csv)
}

/// The card that is meant; the only one there is, where none is named.
fn card(archive: &Archive, given: Option<&str>) -> Result<Card, Error> {
    let cards = archive.cards()?;
    let given_or_first = given.unwrap_or_default();
    let by_number = || given_or_first.parse::<usize>().ok().and_then(|number| cards.get(number));
    let by_uuid = || {
        let mut all = cards.iter().filter(|card| card.uuid.starts_with(given_or_first));
        all.next().filter(|_| all.next().is_none())
    };
    by_number().or_else(by_uuid).cloned().ok_or_else(|| {
        let known: Vec<String> =
            cards.iter().enumerate().map(|(number, card)| format!("{number}: {} ({})", card.name, card.uuid)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::NoCard { given: given_or_first.to_owned(), known }
    })
}

/// A figure, or nothing where there is none.
fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
