//! `headroom runs export`: a run's iterations and evaluations, or a GPU's telemetry, for other programs.

use std::{
    cell::RefCell,
    fmt::Write as _,
    io::{self, Write},
};

use headroom_protocol::{
    history::History,
    metric::{Group, Metric},
    run::{Evaluation, Iteration, Run},
};
use serde::{Serialize, Serializer, ser::Error as _};

use super::{DATA_DIR, Error, Exit, Flag, Request, SCHEMA, UsageError, found, json, output::Destination, print};
use crate::cli::{
    self,
    args::{InvalidValue, shown},
    command::{Command, Words},
};
use headroom_agent_core::{
    clock::now_ms,
    store::{
        self, Archive, ArchivedGpu, Subject, calendar,
        printed::{Cursor, Figures, Page, PrintedLine},
    },
};
use headroom_server::figures;

const FORMAT: Flag<Request> = Flag {
    name: "format",
    value: Some("csv|json"),
    doc: "Output format [default: csv]",
    set: |request, format| {
        request.csv = format == "csv";
        request.json = format == "json";
        if request.csv || request.json { Ok(()) } else { Err(InvalidValue::not_one_of(format, &["csv", "json"])) }
    },
};
const OUT: Flag<Request> = Flag {
    name: "out",
    value: Some("FILE"),
    doc: "Output file [default: standard output]",
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
    doc: "Overwrite the output file",
    set: |request, _| {
        request.force = true;
        Ok(())
    },
};
const GPU: Flag<Request> = Flag {
    name: "gpu",
    value: Some("GPU"),
    doc: "Export a GPU's telemetry: its index in the history, from 0, or a\nprefix of its UUID",
    set: |request, gpu| {
        request.gpu = Some(gpu.to_owned());
        Ok(())
    },
};
const READINGS: Flag<Request> = Flag {
    name: "readings",
    value: Some("fast|slow|host"),
    doc: "fast: a GPU's readings at 10 Hz; slow: its readings at 1 Hz;\nhost: the machine's at 1 Hz [default: fast]",
    set: |request, readings| {
        let group = Group::ALL.into_iter().find(|group| group.name() == readings);
        request.group = Some(group.ok_or_else(|| InvalidValue::not_one_of(readings, &Group::ALL.map(Group::name)))?);
        Ok(())
    },
};
const FROM: Flag<Request> = Flag {
    name: "from",
    value: Some("TIME"),
    doc: "Start of the telemetry [default: oldest stored]",
    set: |request, time| {
        request.from_ms = Some(self::time(time)?);
        Ok(())
    },
};
const TO: Flag<Request> = Flag {
    name: "to",
    value: Some("TIME"),
    doc: "End of the telemetry [default: now]",
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
Exports every iteration and evaluation that a run printed, up to 10,000,000 lines; or the
stored telemetry of a GPU or of the machine: full rate for the last hour, 10 s for two
days, minutes for older.",
    usage: &[
        "headroom runs export ID [--format csv|json] [--out FILE] [--force]",
        "headroom runs export --gpu GPU [--readings fast|slow] [--from TIME] [--to TIME] [OPTIONS]",
        "headroom runs export --readings host [--from TIME] [--to TIME] [OPTIONS]",
    ],
    arguments: super::ID,
    options: || shown(FLAGS),
    words: Words::Run,
    notes: "\
A missing reading is empty in CSV and null in JSON.

CSV of a run, here and from the server: printed_at_unix_ms is the time of the line, and
iteration_time_ms the duration of the iteration. A row of kind left_out replaces
lines_left_out or more lines that were not stored. A loss that is not finite is NaN, inf or
-inf in CSV, as in pandas, and null in JSON.

A TIME is 2026-11-22, \"2026-11-22 14:30\", the same with a Z in UTC, or a duration ago:
90m, 24h, 30d.",
    exits: super::EXITS,
    examples: &["headroom runs export 3f2a --out losses.csv", "headroom runs export --gpu 0 --from 24h --format json"],
    run: |args| super::run(&COMMAND, FLAGS, None, args, run),
    ..Command::EMPTY
};

/// Parses a time argument to Unix milliseconds.
///
/// # Errors
/// The text is not a time.
pub fn time(text: &str) -> Result<u64, InvalidValue> {
    let time_ms = calendar::parse(text, now_ms());
    time_ms.ok_or_else(|| format!("{text:?} is not a time; write it as \"2026-11-22 14:30\" or 24h").into())
}

/// JSON output of a run.
#[derive(Serialize)]
struct OfRun<'a> {
    schema: u32,
    run: &'a Run,
    iterations: Lines<'a, ExportedAt<Iteration>>,
    evaluations: Lines<'a, ExportedAt<Evaluation>>,
    /// Minimum number of lines that were printed but not recorded.
    lines_left_out: u64,
}

/// Lines of one kind, serialized as a JSON array. Reads them page by page, so that memory stays bounded for millions of
/// lines.
struct Lines<'a, T> {
    archive: &'a Archive,
    run: &'a str,
    pick: fn(PrintedLine) -> Option<T>,
    /// Error that ended the reading early.
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

/// Pages of a run's lines, up to the first read error.
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
struct ExportedAt<T> {
    /// Time of printing in Unix milliseconds.
    at_ms: u64,
    #[serde(flatten)]
    what: T,
}

/// JSON output of the telemetry of a GPU or the machine.
#[derive(Debug, Serialize)]
struct OfGpu {
    schema: u32,
    #[serde(flatten)]
    gpu: Option<NamedGpu>,
    metrics: &'static [Metric],
    /// Histories, oldest first, each with its own row interval.
    parts: Vec<History>,
}

#[derive(Debug, Serialize)]
struct NamedGpu {
    gpu: String,
    name: String,
}

/// Writes the requested data.
///
/// # Errors
/// The run or GPU does not exist, or data cannot be read or written.
fn run(request: &Request) -> Result<Exit, cli::Error> {
    let of_gpu =
        request.gpu.is_some() || request.group.is_some() || request.from_ms.is_some() || request.to_ms.is_some();
    if let (Some(from_ms), Some(to_ms)) = (request.from_ms, request.to_ms)
        && from_ms >= to_ms
    {
        let words = "--from must be before --to: of two durations such as 2h, the longer one is earlier";
        return Err(UsageError::Words(words.to_owned()).into());
    }
    if request.group == Some(Group::Host) && request.gpu.is_some() {
        let words = "--readings host are the machine's, and take no --gpu";
        return Err(UsageError::Words(words.to_owned()).into());
    }
    match (&request.word, of_gpu) {
        (Some(_), true) => {
            return Err(UsageError::Words("runs export takes a run or a GPU's telemetry, not both".to_owned()).into());
        }
        (None, false) => {
            return Err(UsageError::Missing { command: "runs export", what: "ID, or --gpu GPU" }.into());
        }
        (Some(_), false) | (None, true) => {}
    }
    if request.force && request.out.is_none() {
        return Err(UsageError::Words("--force needs --out FILE".to_owned()).into());
    }
    if let Some(file) = &request.out {
        // Before the history is read.
        Destination::of(file, request.force)?;
    }
    if request.word.is_some() {
        of_run(request)?;
    } else {
        put(request, &of_a_gpu(request)?)?;
    }
    if let Some(file) = &request.out {
        print::data(&format!("{}\n", file.display()))?;
    }
    Ok(Exit::Success)
}

/// Writes a text to the requested output.
fn put(request: &Request, text: &str) -> Result<(), cli::Error> {
    put_with(request, |out| out.write_all(text.as_bytes()))
}

/// Writes to the requested output by a closure.
fn put_with(request: &Request, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), cli::Error> {
    match &request.out {
        None => Ok(print::data_with(write)?),
        Some(file) => {
            let failed = |error| Error::Write { file: file.clone(), error };
            Ok(Destination::of(file, request.force)?.write(write).map_err(failed)?)
        }
    }
}

fn of_run(request: &Request) -> Result<(), cli::Error> {
    let archive = request.archive()?;
    let run = found(&archive, request)?;
    let failed = RefCell::new(None);
    let written = put_with(request, |out| match request.json {
        true => as_json(&archive, &run, &failed, out),
        false => as_csv(&archive, &run, &failed, out),
    });
    // An error of the history takes precedence over the serialization error that it caused.
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
    let iteration = |PrintedLine { at_ms, figures }| match figures {
        Figures::Iteration(what) => Some(ExportedAt { at_ms, what }),
        Figures::Evaluation(_) | Figures::LeftOut(_) => None,
    };
    let evaluation = |PrintedLine { at_ms, figures }| match figures {
        Figures::Evaluation(what) => Some(ExportedAt { at_ms, what }),
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

fn of_a_gpu(request: &Request) -> Result<String, Error> {
    let archive = request.archive()?;
    let group = request.group.unwrap_or_default();
    let gpu = match group {
        Group::Fast | Group::Slow => Some(gpu(&archive, request.gpu.as_deref())?),
        Group::Host => None,
    };
    let to_ms = request.to_ms.unwrap_or_else(|| now_ms() + 1);
    let subject = Subject { group, gpu: gpu.as_ref().map_or("", |gpu| &gpu.uuid) };
    let parts = archive.kept(subject, request.from_ms.unwrap_or(0), to_ms)?;
    let metrics = group.metrics();
    if request.json {
        let gpu = gpu.map(|ArchivedGpu { uuid: gpu, name }| NamedGpu { gpu, name });
        return json(&OfGpu { schema: SCHEMA, gpu, metrics, parts });
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

/// The named GPU, or the only one if none is named.
fn gpu(archive: &Archive, given: Option<&str>) -> Result<ArchivedGpu, Error> {
    let gpus = archive.gpus()?;
    let given_or_first = given.unwrap_or_default();
    let by_number = || given_or_first.parse::<usize>().ok().and_then(|number| gpus.get(number));
    let by_uuid = || {
        let mut all = gpus.iter().filter(|gpu| gpu.uuid.starts_with(given_or_first));
        all.next().filter(|_| all.next().is_none())
    };
    by_number().or_else(by_uuid).cloned().ok_or_else(|| {
        let known: Vec<String> =
            gpus.iter().enumerate().map(|(number, gpu)| format!("{number}: {} ({})", gpu.name, gpu.uuid)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Error::NoGpu { given: given_or_first.to_owned(), known }
    })
}
