//! `headroom replay`: the memory of a recorded run on a GPU, and of a memory snapshot of PyTorch.

mod report;
mod snapshot_report;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use headroom_planner::{
    hardware::Device,
    memory::message::TorchVersion,
    plan::{Plan, RunOnMachine as _},
    recording::{self, DecodeError, Decoder, Problem, ProgramError, Recording, ReplayRequest, SizeError, Variable},
    report::{Node, SCHEMA},
    session::{MachineError, Options},
    snapshot::{self, History, PICKLE_START, ReadError, Reader, Report, Snapshot},
};
use serde_json::Value;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    plan::{
        machine::{PlanArguments, allocator_remarks},
        snapshot_file,
    },
    print,
    record::one_variable,
    style::Style,
};

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// First byte of a file compressed with gzip.
const GZIP_START: u8 = 0x1f;

/// Why a recording is not replayed.
#[derive(Debug, Error)]
pub enum Error {
    /// No file is given.
    #[error("cannot replay a recording: its file is missing")]
    NoFile,
    /// The file cannot be read.
    #[error("cannot read {name}: {error}")]
    Unreadable {
        /// Name as given.
        name: String,
        /// What the system reports.
        error: io::Error,
    },
    /// The file is not a recording.
    #[error("cannot read {name}: {error}")]
    Invalid {
        /// Name as given.
        name: String,
        /// What is wrong, with its offset.
        error: DecodeError,
    },
    /// The file is not a memory snapshot.
    #[error("cannot read {name}: {error}")]
    InvalidSnapshot {
        /// Name as given.
        name: String,
        /// What is wrong, with its offset.
        error: ReadError,
    },
    /// The file is compressed.
    #[error("cannot read {name}: it is compressed with gzip")]
    Compressed {
        /// Name as given.
        name: String,
    },
    /// The recording is no program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The recording has no run at a size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The machine is not known.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The answer cannot be serialized as JSON.
    #[error("cannot write the answer as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoFile => "`headroom record -- python train.py` records a run",
            Self::InvalidSnapshot { error, .. } => match error.problem {
                snapshot::Problem::Cut => "dump the snapshot again; the file may be incomplete",
                _ => "`torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")` writes a snapshot",
            },
            Self::Size(SizeError::OneSize(variable)) => {
                return Some(format!(
                    "`headroom record --{0}s 4,8,12 -- python train.py --{1}={{{1}}}` records several",
                    variable.to_string().replace(' ', "-"),
                    variable.key(),
                ));
            }
            Self::Size(SizeError::NotWhole { .. }) => "use a multiple of the step between the recorded sizes",
            Self::Compressed { .. } => "decompress it first, as with `gunzip`",
            Self::Invalid { error, .. } => match error.problem {
                Problem::NotARecording => {
                    "`headroom record -- python train.py` writes a recording, and \
                     `torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")` a snapshot"
                }
                Problem::Version(_) => "install the version of Headroom that recorded the run",
                _ => "record the run again; the file may be incomplete",
            },
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// Exit status of this error.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Unreadable { .. } => Exit::InputOutput,
            Self::Json(_) => Exit::Failure,
            // Not 1, which would mean that the run does not fit.
            _ => Exit::Usage,
        }
    }
}

/// Parsed arguments.
#[derive(Debug, Default)]
struct Arguments {
    options: Options,
    json: bool,
    gives_torch: bool,
    gpus: Option<Vec<&'static Device>>,
    snapshot: Option<PathBuf>,
    size: Option<(Variable, u64)>,
    file: Option<OsString>,
}

impl PlanArguments for Arguments {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn json(&mut self) -> &mut bool {
        &mut self.json
    }

    fn write_snapshot(&mut self, file: &str) {
        self.snapshot = Some(file.into());
    }

    fn gpus(&mut self) -> &mut Option<Vec<&'static Device>> {
        &mut self.gpus
    }
}

impl Arguments {
    fn set_size(&mut self, variable: Variable, size: &str) -> Result<(), InvalidValue> {
        one_variable(self.size.map(|(variable, _)| variable), variable)?;
        let number = size.parse().ok().filter(|size| *size > 0);
        self.size = Some((variable, number.ok_or_else(|| "it is a number of at least 1".to_owned())?));
        Ok(())
    }
}

const FLAGS: &[Flag<Arguments>] = &[
    Flag {
        name: "batch-size",
        value: Some("N"),
        doc: "Batch size, for a recording of several\n[default: the smallest recorded one]",
        set: |arguments, size| arguments.set_size(Variable::BatchSize, size),
    },
    Flag {
        name: "sequence-length",
        value: Some("N"),
        doc: "Sequence length, for a recording of several\n[default: the smallest recorded one]",
        set: |arguments, size| arguments.set_size(Variable::SequenceLength, size),
    },
    Flag::GPU,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag::EXPANDABLE_SEGMENTS,
    Flag::ALLOC_CONF,
    Flag {
        name: "torch",
        value: Some("VERSION"),
        doc: "PyTorch version, for error messages\n[default: that of the recording]",
        set: |arguments, version| {
            arguments.gives_torch = true;
            (Flag::<Arguments>::TORCH.set)(arguments, version)
        },
    },
    Flag::JSON,
    Flag::SNAPSHOT,
];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "replay",
    summary: "Predict whether a recorded run fits on a GPU",
    about: "\
Replays a recording of `headroom record` on a GPU: how much memory the run needs, whether it
fits, where it would run out of memory, and the largest tensors with their source lines.

The file may also be a memory snapshot of PyTorch. The command then prints its peaks, its
largest blocks with their source lines, and its failed requests. With a GPU or another option
of the machine, it also replays the snapshot.",
    usage: &["headroom replay [OPTIONS] FILE"],
    arguments: "  FILE           A recording, such as train.headroom, or a memory snapshot of PyTorch",
    options: || shown(FLAGS),
    words: Words::Files,
    notes: "A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.",
    exits: &[(0, "the run fits, or only the snapshot is described"), (1, "the run does not fit")],
    examples: &[
        "headroom replay train.headroom --gpu \"RTX 4070\"",
        "headroom replay train.headroom --gpu \"RTX 3060\" --alloc-conf max_split_size_mb:64",
        "headroom replay train.headroom --gpu \"RTX 3060\" --expandable-segments --json",
        "headroom replay train.headroom --batch-size 24",
        "headroom replay snapshot.pickle",
    ],
    run,
    ..Command::EMPTY
};

fn run(args: Vec<OsString>) -> Result<Exit, super::Error> {
    let mut arguments = Arguments::default();
    if parse(COMMAND.name, FLAGS, args, &mut arguments, take_word)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    if arguments.snapshot.is_some() && arguments.options.tuned.is_some() {
        return Err(UsageError::Exclusive("alloc-conf", "snapshot").into());
    }
    let path = arguments.file.clone().ok_or(Error::NoFile)?;
    let name = path.to_string_lossy().into_owned();
    let file = File::open(&path).map_err(|error| Error::Unreadable { name: name.clone(), error })?;
    let (answer, plan) = match read(file, &name)? {
        Contents::Recording(recording) => {
            let recording = match arguments.size {
                Some((variable, size)) => recording.at(variable, size).map_err(Error::from)?,
                None => *recording,
            };
            let plan = replayed(&mut arguments, &recording)?;
            (recording_answer(&arguments, &recording, &plan)?, Some(plan))
        }
        Contents::Snapshot(snapshot) => match arguments.size {
            Some((variable, _)) => return Err(Error::from(SizeError::OneSize(variable)).into()),
            None => snapshot_answer(&arguments, &snapshot)?,
        },
    };
    if let (Some(file), Some(plan)) = (&arguments.snapshot, &plan) {
        snapshot_file::write(file, plan)?;
    }
    print::data(&answer)?;
    Ok(if plan.is_none_or(|plan| plan.fits) { Exit::Success } else { Exit::Failure })
}

fn take_word(arguments: &mut Arguments, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Plain(file) if arguments.file.is_none() => {
            arguments.file = Some(file);
            Ok(())
        }
        other => Err(refusal(COMMAND.name, FLAGS, other)),
    }
}

fn recording_answer(arguments: &Arguments, recording: &Recording, plan: &Plan<ReplayRequest>) -> Result<String, Error> {
    let largest = recording.largest_that_fits(plan.request.machine());
    if arguments.json {
        let mut document = replay_document(plan);
        if let Node::Object(fields) = &mut document {
            fields.push(("largest_size_that_fits", Node::Value(largest.map_or(Value::Null, Value::from))));
        }
        return Ok(serde_json::to_string_pretty(&document)? + "\n");
    }
    Ok(report::answer(plan, largest, &allocator_remarks(&arguments.options), &Style::of_stdout()))
}

/// The answer of a replay as JSON, with the environment variables that make the run fit.
fn replay_document(plan: &Plan<ReplayRequest>) -> Node {
    let mut document = plan.replay_document();
    if let Node::Object(fields) = &mut document {
        let variables = report::variables_that_fit(plan).into_iter().map(|variable| Node::Value(variable.into()));
        fields.push(("fits_with", Node::List(variables.collect())));
    }
    document
}

/// Describes a snapshot, and replays it if an option of the machine is given.
fn snapshot_answer(arguments: &Arguments, snapshot: &Snapshot) -> Result<(String, Option<Plan<ReplayRequest>>), Error> {
    let device = snapshot.main_device();
    let report = Report::new(snapshot, device);
    let replays = arguments.options != Options::default() || arguments.snapshot.is_some();
    let plan = match replays {
        true => Some(snapshot::plan(&History::new(snapshot, device), arguments.options.machine()?)?),
        false => None,
    };
    if arguments.json {
        let replay = plan.as_ref().map_or(Node::Value(Value::Null), replay_document);
        let document = Node::Object(vec![
            ("schema", Node::Value(SCHEMA.into())),
            ("snapshot", report.document()),
            ("replay", replay),
        ]);
        return Ok((serde_json::to_string_pretty(&document)? + "\n", plan));
    }
    let style = Style::of_stdout();
    let mut answer = snapshot_report::answer(&report, &style);
    if let Some(plan) = &plan {
        answer = answer + "\n" + &report::answer(plan, None, &allocator_remarks(&arguments.options), &style);
    }
    Ok((answer, plan))
}

fn replayed(arguments: &mut Arguments, recording: &Recording) -> Result<Plan<ReplayRequest>, Error> {
    // A version that cannot be read keeps the default.
    if !arguments.gives_torch && recording.origin.torch.parse::<TorchVersion>().is_ok() {
        arguments.options.torch.clone_from(&recording.origin.torch);
    }
    Ok(recording::plan(recording, arguments.options.machine()?)?)
}

/// Contents of a file.
enum Contents {
    Recording(Box<Recording>),
    Snapshot(Box<Snapshot>),
}

/// Reads a file; its first byte shows its kind.
fn read(mut file: File, name: &str) -> Result<Contents, Error> {
    let mut decoder = Decoder::default();
    let mut reader: Option<Reader> = None;
    let mut piece = vec![0; PIECE_BYTES];
    let mut is_first = true;
    let invalid = |error| Error::Invalid { name: name.to_owned(), error };
    let invalid_snapshot = |error| Error::InvalidSnapshot { name: name.to_owned(), error };
    loop {
        let n = match file.read(&mut piece) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::Unreadable { name: name.to_owned(), error }),
        };
        let bytes = &piece[..n];
        if std::mem::take(&mut is_first) {
            match bytes.first() {
                Some(&PICKLE_START) => reader = Some(Reader::default()),
                Some(&GZIP_START) => return Err(Error::Compressed { name: name.to_owned() }),
                _ => {}
            }
        }
        match &mut reader {
            Some(reader) => reader.push(bytes).map_err(invalid_snapshot)?,
            None => decoder.push(bytes).map_err(invalid)?,
        }
        if n == 0 {
            return match reader {
                Some(reader) => reader.finish().map(Box::new).map(Contents::Snapshot).map_err(invalid_snapshot),
                None => decoder.finish().map(Box::new).map(Contents::Recording).map_err(invalid),
            };
        }
    }
}
