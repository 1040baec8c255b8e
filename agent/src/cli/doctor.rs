//! `headroom doctor`: what of this machine can be read, and why the rest cannot: driver, cards, host and data folder.

mod reading;
mod report;

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::Duration,
};

use headroom_shared::protocol::{
    Slow, Telemetry,
    gpu::Gpu,
    state::{DriverState, HistoryState},
};
use serde::Serialize;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, Parsed, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
    style::Style,
};
use crate::{
    folders,
    store::Archive,
    telemetry::{self, Observed},
};

/// The schema's number.
const SCHEMA: u32 = 1;
/// How long cards are waited for. The driver is loaded in this time on a machine where no program uses it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Moments to wait for besides the first: a share of time needs one before it.
const SLOW_MOMENTS: usize = 2;

/// Why nothing could be looked at.
#[derive(Debug, Error)]
pub enum Error {
    /// The system gives no thread.
    #[error("cannot start reading: {0}")]
    Start(io::Error),
    /// It cannot be written as JSON.
    #[error("the findings cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// What was found, as JSON prints it.
#[derive(Debug, Serialize)]
struct Findings {
    schema: u32,
    driver: DriverState,
    gpus: Vec<Gpu>,
    telemetry: Option<Telemetry>,
    slow: Option<Slow>,
    /// None where there is no place for one.
    data_folder: Option<PathBuf>,
    /// Why the data folder cannot be used, or what is in it.
    history: HistoryState,
}

impl Findings {
    /// Whether a card answers.
    fn has_card(&self) -> bool {
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
    about: "Checks what can be read on this machine, and gives the reason for what cannot.",
    usage: &["headroom doctor [--data-dir FOLDER] [--json]"],
    options: || shown(FLAGS),
    notes: "Every reading of every GPU is listed, with its value or the reason why there is none.",
    exits: &[(0, "a GPU answers"), (1, "no GPU answers")],
    examples: &["headroom doctor", "headroom doctor --json"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, the system gives no thread, or standard output cannot be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let findings = look(&request)?;
    let text = if request.json {
        serde_json::to_string_pretty(&findings).map_err(Error::Json)? + "\n"
    } else {
        report::report(&findings, &Style::of_stdout())
    };
    print::data(&text)?;
    Ok(if findings.has_card() { Exit::Success } else { Exit::Failure })
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

fn look(request: &Request) -> Result<Findings, Error> {
    let folder = folders::data(request.data_dir.as_deref());
    let history = match &folder {
        Ok(folder) => Archive::new(folder).state(),
        Err(error) => HistoryState::Paused { reason: error.to_string(), since_ms: 0 },
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
        // Nobody listens any more once everything was heard.
        let _ = sender.send(observed);
    })
    .map_err(Error::Start)?;
    let mut slow_moments = 0;
    while slow_moments < SLOW_MOMENTS {
        match observed.recv_timeout(ANSWER_TIME_MAX) {
            Ok(Observed::Driver(driver)) => findings.driver = driver,
            Ok(Observed::Inventory(gpus)) => findings.gpus = gpus,
            Ok(Observed::Telemetry(telemetry)) => findings.telemetry = Some(Arc::unwrap_or_clone(telemetry)),
            Ok(Observed::Slow(slow)) => {
                // Only those that come when the driver's state is known say anything of cards.
                slow_moments += usize::from(findings.driver != DriverState::Starting);
                findings.slow = Some(slow);
            }
            Ok(Observed::ClockSet(_) | Observed::CardLost(_) | Observed::CardBack(_) | Observed::Xid { .. }) => {}
            Err(_) => break,
        }
    }
    Ok(findings)
}
