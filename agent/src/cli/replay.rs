//! `headroom replay`: the memory of a recorded run on a GPU.

mod report;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
};

use headroom_planner::{
    hardware::Device,
    memory::message::TorchVersion,
    plan::Plan,
    recording::{self, DecodeError, Decoder, Problem, ProgramError, Recording, ReplayRequest},
    report::Node,
    session::{MachineError, Options},
};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    plan::machine::{PlanArguments, allocator_remarks},
    print,
    style::Style,
};

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 64 << 10;

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
    /// The recording is no program.
    #[error(transparent)]
    Program(#[from] ProgramError),
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
            Self::Invalid { error, .. } => match error.problem {
                Problem::NotARecording => "`headroom record -- python train.py` writes a recording",
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
    file: Option<OsString>,
}

impl PlanArguments for Arguments {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn json(&mut self) -> &mut bool {
        &mut self.json
    }

    fn gpus(&mut self) -> &mut Option<Vec<&'static Device>> {
        &mut self.gpus
    }
}

const FLAGS: &[Flag<Arguments>] = &[
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
];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "replay",
    summary: "Predict whether a recorded run fits on a GPU",
    about: "\
Replays a recording of `headroom record` on a GPU: how much memory the run needs, whether it
fits, where it would run out of memory, and the largest tensors with their source lines.",
    usage: &["headroom replay [OPTIONS] FILE"],
    arguments: "  FILE           A recording, such as train.headroom",
    options: || shown(FLAGS),
    words: Words::Files,
    notes: "A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.",
    exits: &[(0, "the run fits"), (1, "the run does not fit")],
    examples: &[
        "headroom replay train.headroom --gpu \"RTX 4070\"",
        "headroom replay train.headroom --gpu \"RTX 3060\" --alloc-conf max_split_size_mb:64",
        "headroom replay train.headroom --gpu \"RTX 3060\" --expandable-segments --json",
    ],
    run,
    ..Command::EMPTY
};

fn run(args: Vec<OsString>) -> Result<Exit, super::Error> {
    let mut arguments = Arguments::default();
    if parse(COMMAND.name, FLAGS, args, &mut arguments, take_word)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let plan = replayed(&mut arguments)?;
    let answer = if arguments.json {
        let mut document = plan.replay_document();
        if let Node::Object(fields) = &mut document {
            let variables = report::variables_that_fit(&plan).into_iter().map(|variable| Node::Value(variable.into()));
            fields.push(("fits_with", Node::List(variables.collect())));
        }
        serde_json::to_string_pretty(&document).map_err(Error::from)? + "\n"
    } else {
        report::answer(&plan, &allocator_remarks(&arguments.options), &Style::of_stdout())
    };
    print::data(&answer)?;
    Ok(if plan.fits { Exit::Success } else { Exit::Failure })
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

fn replayed(arguments: &mut Arguments) -> Result<Plan<ReplayRequest>, Error> {
    let path = arguments.file.as_ref().ok_or(Error::NoFile)?;
    let name = path.to_string_lossy().into_owned();
    let file = File::open(path).map_err(|error| Error::Unreadable { name: name.clone(), error })?;
    let recording = read(file, &name)?;
    // A version that cannot be read keeps the default.
    if !arguments.gives_torch && recording.origin.torch.parse::<TorchVersion>().is_ok() {
        arguments.options.torch.clone_from(&recording.origin.torch);
    }
    Ok(recording::plan(&recording, arguments.options.machine()?)?)
}

fn read(mut file: File, name: &str) -> Result<Recording, Error> {
    let mut decoder = Decoder::default();
    let mut piece = vec![0; PIECE_BYTES];
    let invalid = |error| Error::Invalid { name: name.to_owned(), error };
    loop {
        match file.read(&mut piece) {
            Ok(0) => return decoder.finish().map_err(invalid),
            Ok(n) => decoder.push(&piece[..n]).map_err(invalid)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Unreadable { name: name.to_owned(), error }),
        }
    }
}
