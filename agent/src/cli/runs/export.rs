//! `headroom runs export`: a run's iterations and evaluations, or a card's telemetry, for other programs.

use std::{
    cell::RefCell,
    fmt::Write as _,
    io::{self, Write},
    path::Path,
};

use headroom_shared::protocol::{
    history::{Group, History, Metric},
    run::{Evaluation, Iteration, Run},
};
use serde::{Serialize, Serializer, ser::Error as _};

use super::{DATA_DIR, Error, Exit, Flag, Request, SCHEMA, UsageError, found, json, print};
use crate::{
    cli::{
        self,
        args::{Refusal, shown},
        command::{Command, Words},
    },
    clock::now_ms,
    figures,
    store::{
        self, Archive, Card, Subject, calendar,
        printed::{Cursor, Figures, Page, Printed},
    },
    train::files::{self, Disk},
};

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
const FORCE: Flag<Request> = Flag {
    name: "force",
    value: None,
    doc: "Replace the file of --out if it exists",
    set: |request, _| {
        request.force = true;
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

const FLAGS: &[Flag<Request>] = &[FORMAT, OUT, FORCE, GPU, READINGS, FROM, TO, DATA_DIR];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "runs export",
    summary: "Write a run's losses, or a GPU's telemetry, as CSV or JSON",
    about: "\
Writes every iteration and evaluation that a run printed, up to 10,000,000 lines, or the
telemetry of a GPU or of the machine as it is stored: full rate for the newest hour, 10 s
for two days, minutes beyond.",
    usage: &[
        "headroom runs export ID [--format csv|json] [--out FILE] [--force]",
        "headroom runs export --gpu CARD [--readings fast|slow] [--from TIME] [--to TIME] [OPTIONS]",
        "headroom runs export --readings host [--from TIME] [--to TIME] [OPTIONS]",
    ],
    arguments: super::ID,
    options: || shown(FLAGS),
    words: Words::Name,
    notes: "\
A reading that the GPU did not give is empty, or null.

A run's CSV, here and from the server: printed_at_unix_ms is the time of day when a line was
printed, iteration_time_ms how long the iteration took. A row of the kind left_out stands for
lines_left_out lines or more that were printed there and not kept.

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
#[derive(Serialize)]
struct OfRun<'a> {
    schema: u32,
    run: &'a Run,
    iterations: Lines<'a, At<Iteration>>,
    evaluations: Lines<'a, At<Evaluation>>,
    /// Lines that were printed and not kept: at least so many.
    lines_left_out: u64,
}

/// Lines of one kind as a JSON array, which is read while it is written: a run of millions of lines takes no memory.
struct Lines<'a, T> {
    archive: &'a Archive,
    run: &'a str,
    pick: fn(Printed) -> Option<T>,
    /// Why they could not be read to the end.
    failed: &'a RefCell<Option<store::Error>>,
}

impl<T: Serialize> Serialize for Lines<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pages = Pages { archive: self.archive, run: self.run, next: Some(Cursor::default()) };
        let lines = pages.flat_map(|page| match page {
            Ok(page) => page.lines,
            Err(error) => {
                *self.failed.borrow_mut() = Some(error);
                vec![]
            }
        });
        let array = serializer.collect_seq(lines.filter_map(self.pick))?;
        if self.failed.borrow().is_some() { Err(S::Error::custom("history")) } else { Ok(array) }
    }
}

/// The pages of a run's lines, up to one that cannot be read.
struct Pages<'a> {
    archive: &'a Archive,
    run: &'a str,
    next: Option<Cursor>,
}

impl Iterator for Pages<'_> {
    type Item = Result<Page, store::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = self.archive.printed(self.run, self.next.take()?);
        self.next = page.as_ref().ok().and_then(|page| page.next);
        Some(page)
    }
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
    match (&request.word, of_card) {
        (Some(_), true) => {
            return Err(UsageError::Words("runs export takes a run or a card's telemetry, not both".to_owned()).into());
        }
        (None, false) => {
            return Err(UsageError::Missing { command: "runs export", what: "ID, or --gpu CARD" }.into());
        }
        (Some(_), false) | (None, true) => {}
    }
    if request.force && request.out.is_none() {
        return Err(UsageError::Words("--force needs --out FILE".to_owned()).into());
    }
    if let Some(file) = request.out.as_ref().filter(|file| !request.force && file.symlink_metadata().is_ok()) {
        return Err(Error::Exists(file.clone()).into());
    }
    if request.word.is_some() {
        of_run(request)?;
    } else {
        put(request, &of_a_card(request)?)?;
    }
    if let Some(file) = &request.out {
        print::data(&format!("{}\n", file.display()))?;
    }
    Ok(Exit::Success)
}

/// Writes a text to where the request says.
fn put(request: &Request, text: &str) -> Result<(), cli::Error> {
    put_with(request, |out| out.write_all(text.as_bytes()))
}

/// The same, piece by piece.
fn put_with(request: &Request, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), cli::Error> {
    match &request.out {
        None => Ok(print::data_with(write)?),
        Some(file) => Ok(into_file(file, write)?),
    }
}

fn into_file(file: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let failed = |error| Error::Write { file: file.to_owned(), error };
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Err(failed(io::ErrorKind::InvalidFilename.into()));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    files::replace(&Disk(folder.to_owned()), name, |out| write(out)).map_err(failed)
}

fn of_run(request: &Request) -> Result<(), cli::Error> {
    let archive = request.archive()?;
    let run = found(&archive, request)?;
    let failed = RefCell::new(None);
    let written = put_with(request, |out| match request.json {
        true => as_json(&archive, &run, &failed, out),
        false => as_csv(&archive, &run, &failed, out),
    });
    // What history says comes before what its reader made of it.
    match failed.into_inner() {
        Some(error) => Err(Error::History(error).into()),
        None => written,
    }
}

fn as_csv(archive: &Archive, run: &Run, failed: &RefCell<Option<store::Error>>, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(figures::HEAD.as_bytes())?;
    for page in (Pages { archive, run: &run.id, next: Some(Cursor::default()) }) {
        let page = page.map_err(|error| {
            *failed.borrow_mut() = Some(error);
            io::Error::other("history")
        })?;
        let mut rows = String::new();
        page.lines.iter().for_each(|line| figures::add_row(&mut rows, line));
        out.write_all(rows.as_bytes())?;
    }
    Ok(())
}

fn as_json(
    archive: &Archive,
    run: &Run,
    failed: &RefCell<Option<store::Error>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut lines_left_out = 0_u64;
    for page in (Pages { archive, run: &run.id, next: Some(Cursor::default()) }) {
        let page = page.map_err(|error| {
            *failed.borrow_mut() = Some(error);
            io::Error::other("history")
        })?;
        for line in page.lines {
            if let Figures::LeftOut(n) = line.figures {
                lines_left_out = lines_left_out.saturating_add(n);
            }
        }
    }
    let iteration = |Printed { at_ms, figures }| match figures {
        Figures::Iteration(what) => Some(At { at_ms, what }),
        Figures::Evaluation(_) | Figures::LeftOut(_) => None,
    };
    let evaluation = |Printed { at_ms, figures }| match figures {
        Figures::Evaluation(what) => Some(At { at_ms, what }),
        Figures::Iteration(_) | Figures::LeftOut(_) => None,
    };
    let document = OfRun {
        schema: SCHEMA,
        run,
        iterations: Lines { archive, run: &run.id, pick: iteration, failed },
        evaluations: Lines { archive, run: &run.id, pick: evaluation, failed },
        lines_left_out,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    out.write_all(b"\n")
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
                    let _ = write!(csv, ",{}", figures::field(values.get(idx).copied().flatten()));
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
