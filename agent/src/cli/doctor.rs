//! `headroom doctor`: the readings of this machine, or why they are missing: driver, GPUs, host and data directory.

mod reading;
mod report;

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use headroom_protocol::{
    SlowReadings, Telemetry,
    gpu::Gpu,
    message::Message,
    state::{DriverState, HistoryState},
};
use serde::Serialize;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
    style::Style,
};
use headroom_agent_core::{
    folders,
    store::Archive,
    telemetry::{self, TelemetryEvent},
};

/// The version of the JSON schema.
const SCHEMA: u32 = 1;
/// The longest wait for GPUs. On a machine where no program uses the driver it includes loading the driver.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Slow readings to wait for: a utilisation needs a previous reading.
const SLOW_MOMENTS: usize = 2;

/// Why the machine cannot be checked.
#[derive(Debug, Error)]
pub enum Error {
    /// A thread cannot be started.
    #[error("cannot start reading: {0}")]
    Start(io::Error),
    /// The findings cannot be written as JSON.
    #[error("cannot write the findings as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The findings, in the form of the JSON output.
#[derive(Debug, Serialize)]
struct Findings {
    schema: u32,
    driver: DriverState,
    gpus: Vec<Gpu>,
    telemetry: Option<Telemetry>,
    slow: Option<SlowReadings>,
    /// `None` if the system has no place for one.
    data_folder: Option<PathBuf>,
    /// The data directory's content, or why it cannot be used.
    history: HistoryState,
}

impl Findings {
    /// Returns whether a GPU responds.
    fn has_gpu(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.present)
    }
}

#[derive(Debug, Default)]
struct Request {
    data_dir: Option<PathBuf>,
    json: bool,
}

impl InDataFolder for Request {
    fn set_data_folder(&mut self, folder: PathBuf) {
        self.data_dir = Some(folder);
    }
}

const FLAGS: &[Flag<Request>] = &[
    Flag::DATA_DIR,
    Flag {
        name: "json",
        value: None,
        doc: "Print the findings as JSON, schema 1",
        set: |request, _| {
            request.json = true;
            Ok(())
        },
    },
];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "doctor",
    summary: "Check drivers and telemetry",
    about: "Checks the telemetry of this machine, and explains each missing reading.",
    usage: &["headroom doctor [--data-dir FOLDER] [--json]"],
    options: || shown(FLAGS),
    notes: "Lists every reading of every GPU, with its value or the reason why it is missing.",
    exits: &[(0, "a GPU responds"), (1, "no GPU responds")],
    examples: &["headroom doctor", "headroom doctor --json"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, a thread cannot be started, or standard output cannot be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let findings = look(&request)?;
    let text = if request.json {
        serde_json::to_string_pretty(&findings).map_err(Error::Json)? + "\n"
    } else {
        report::report(&findings, &Style::of_stdout())
    };
    print::data(&text)?;
    Ok(if findings.has_gpu() { Exit::Success } else { Exit::Failure })
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

fn look(request: &Request) -> Result<Findings, Error> {
    let folder = folders::data(request.data_dir.as_deref());
    let history = match &folder {
        Ok(folder) => Archive::new(folder).state(),
        Err(error) => HistoryState::Paused { reason: Message::plain(error.to_string()), since_ms: 0 },
    };
    let mut findings = Findings {
        schema: SCHEMA,
        driver: DriverState::Starting,
        gpus: Vec::new(),
        telemetry: None,
        slow: None,
        data_folder: folder.ok(),
        history,
    };
    let disk_folder = findings.data_folder.clone().unwrap_or_else(|| PathBuf::from("."));
    let (sender, observed) = mpsc::channel();
    let options = telemetry::Options { library: None, disk_folder };
    let _sampler = telemetry::start(options, move |observed| {
        // Fails once everything was received and the receiver is gone.
        let _ = sender.send(observed);
    })
    .map_err(Error::Start)?;
    let mut slow_moments = 0;
    while slow_moments < SLOW_MOMENTS {
        match observed.recv_timeout(ANSWER_TIME_MAX) {
            Ok(TelemetryEvent::Driver(driver)) => findings.driver = driver,
            Ok(TelemetryEvent::Inventory(gpus)) => findings.gpus = gpus,
            Ok(TelemetryEvent::Telemetry(telemetry)) => findings.telemetry = Some(Arc::unwrap_or_clone(telemetry)),
            Ok(TelemetryEvent::Slow(slow)) => {
                // Only moments after the driver's state is known include GPUs.
                slow_moments += usize::from(findings.driver != DriverState::Starting);
                findings.slow = Some(slow);
            }
            Ok(
                TelemetryEvent::ClockSet(_)
                | TelemetryEvent::GpuLost(_)
                | TelemetryEvent::GpuRecovered(_)
                | TelemetryEvent::Xid { .. },
            ) => {}
            Err(_) => break,
        }
    }
    Ok(findings)
}
