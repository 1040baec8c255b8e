//! `headroom record`: runs a PyTorch program without a GPU and writes its allocations to a file.
//!
//! The recorder is the Python package `recorder/headroom_recorder`. This module writes it to a temporary folder and starts
//! the user's command with it. [`series`] runs the command at several batch sizes.

mod series;

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::{self, ExitStatus},
    sync::{Arc, atomic::AtomicBool},
};

use headroom_planner::{
    hardware::{ComputeCapability, Device, by_popularity},
    recording::Variable,
    session::{MachineError, Options},
};
use tempfile::TempDir;
use thiserror::Error;

use series::Sizes;
pub use series::one_variable;

use super::{
    Exit,
    args::{Flag, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
};

/// Files of the package.
const PACKAGE: [(&str, &str); 11] = [
    ("__init__.py", include_str!("../../../recorder/headroom_recorder/__init__.py")),
    ("__main__.py", include_str!("../../../recorder/headroom_recorder/__main__.py")),
    ("attention.py", include_str!("../../../recorder/headroom_recorder/attention.py")),
    ("command.py", include_str!("../../../recorder/headroom_recorder/command.py")),
    ("compiled.py", include_str!("../../../recorder/headroom_recorder/compiled.py")),
    ("file.py", include_str!("../../../recorder/headroom_recorder/file.py")),
    ("gpu.py", include_str!("../../../recorder/headroom_recorder/gpu.py")),
    ("hidden.py", include_str!("../../../recorder/headroom_recorder/hidden.py")),
    ("phases.py", include_str!("../../../recorder/headroom_recorder/phases.py")),
    ("recorder.py", include_str!("../../../recorder/headroom_recorder/recorder.py")),
    ("source.py", include_str!("../../../recorder/headroom_recorder/source.py")),
];

/// Name of the package.
const PACKAGE_NAME: &str = "headroom_recorder";
/// The oldest architecture whose attention kernels the recorder knows.
const OLDEST: ComputeCapability = ComputeCapability::new(8, 0);
/// Default number of optimizer steps: the second is the first with the optimizer's state.
const STEPS: u64 = 2;
/// Limit of steps. A step of a small model has 50 KB.
const STEPS_MAX: u64 = 1000;

/// Why a run is not recorded.
#[derive(Debug, Error)]
pub enum Error {
    /// The command does not start with Python.
    #[error("cannot record {command}: it is not Python with a script or a module")]
    NotPython {
        /// First word of the command.
        command: String,
    },
    /// The GPU is older than the recorder knows.
    #[error("cannot record for compute capability {capability}: attention kernels are known from {OLDEST} on")]
    TooOld {
        /// Compute capability of the GPU.
        capability: ComputeCapability,
    },
    /// No known GPU has the compute capability.
    #[error("cannot record for compute capability {capability}: no known GPU has it")]
    NoDevice {
        /// Compute capability as given.
        capability: ComputeCapability,
    },
    /// The GPU is not known.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The recorder cannot be written to a temporary folder.
    #[error("cannot write the recorder to {}: {error}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// The command is not recorded at several sizes.
    #[error(transparent)]
    Series(#[from] series::SeriesError),
    /// Python cannot be started.
    #[error("cannot run {command}: {error}")]
    Start {
        /// First word of the command.
        command: String,
        /// What the system reports.
        error: io::Error,
    },
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotPython { .. } => "start the script itself, as in `headroom record -- python train.py`",
            Self::TooOld { .. } | Self::NoDevice { .. } => "`headroom gpus` lists GPUs with their capability",
            Self::Start { .. } => "name the Python that trains, such as venv/bin/python",
            Self::Series(error) => return error.hint(),
            Self::Machine(_) | Self::Folder { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// Exit status of this error.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Folder { .. } | Self::Start { .. } => Exit::InputOutput,
            Self::Series(error) => error.exit(),
            _ => Exit::Usage,
        }
    }
}

/// Parsed arguments.
#[derive(Debug)]
struct Arguments {
    options: Options,
    capability: Option<ComputeCapability>,
    steps: u64,
    out: Option<PathBuf>,
    assume: Option<f64>,
    eager: bool,
    strip: bool,
    sizes: Option<Sizes>,
}

impl Arguments {
    fn set_sizes(&mut self, variable: Variable, sizes: &str) -> Result<(), InvalidValue> {
        one_variable(self.sizes.as_ref().map(|sizes| sizes.variable), variable)?;
        self.sizes = Some(Sizes::read(variable, sizes)?);
        Ok(())
    }
}

const FLAGS: &[Flag<Arguments>] = &[
    Flag {
        name: "gpu",
        value: Some("NAME"),
        doc: "GPU that the program finds, such as \"RTX 4070\"\n[default: RTX 4070; `headroom gpus` lists all]",
        set: |arguments, name| {
            name.clone_into(&mut arguments.options.gpu);
            Ok(())
        },
    },
    Flag {
        name: "capability",
        value: Some("X.Y"),
        doc: "Instead of a GPU, its compute capability, such as 9.0",
        set: |arguments, capability| {
            arguments.capability = Some(capability.parse().map_err(|error| format!("{error}"))?);
            Ok(())
        },
    },
    Flag {
        name: "steps",
        value: Some("N"),
        doc: "Optimizer steps to record [default: 2]",
        set: |arguments, steps| {
            let steps = steps.parse().ok().filter(|steps| (1..=STEPS_MAX).contains(steps));
            arguments.steps = steps.ok_or_else(|| format!("it is a number of steps, 1 to {STEPS_MAX}"))?;
            Ok(())
        },
    },
    Flag {
        name: "batch-sizes",
        value: Some("N,N,N"),
        doc: "Record at these batch sizes, which replace {batch_size}\nin the command, and combine the recordings",
        set: |arguments, sizes| arguments.set_sizes(Variable::BatchSize, sizes),
    },
    Flag {
        name: "sequence-lengths",
        value: Some("N,N,N"),
        doc: "The same with sequence lengths and {sequence_length}",
        set: |arguments, sizes| arguments.set_sizes(Variable::SequenceLength, sizes),
    },
    Flag {
        name: "out",
        value: Some("FILE"),
        doc: "File of the recording [default: SCRIPT.headroom]",
        set: |arguments, file| {
            arguments.out = Some(file.into());
            Ok(())
        },
    },
    Flag {
        name: "assume",
        value: Some("N"),
        doc: "Value of every number of a GPU tensor that the program\nreads [default: 1.0 for floats; whole numbers are an error]",
        set: |arguments, number| {
            let number = number.parse().ok().filter(|number: &f64| number.is_finite());
            arguments.assume = Some(number.ok_or_else(|| "it is a number, such as 2".to_owned())?);
            Ok(())
        },
    },
    Flag {
        name: "eager",
        value: None,
        doc: "Ignore torch.compile, and record the uncompiled run",
        set: |arguments, _| {
            arguments.eager = true;
            Ok(())
        },
    },
    Flag {
        name: "strip",
        value: None,
        doc: "Leave out the names of the program, its parameters,\nmodules and source lines",
        set: |arguments, _| {
            arguments.strip = true;
            Ok(())
        },
    },
];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "record",
    summary: "Record the GPU memory of a PyTorch program without a GPU",
    about: "\
Runs a PyTorch program without a GPU and writes its GPU allocations to a file, which
`headroom replay` replays on any GPU. The program is unchanged. Its GPU tensors have shapes
and no data.",
    usage: &["headroom record [OPTIONS] -- python SCRIPT.py …", "headroom record [OPTIONS] -- python -m MODULE …"],
    options: || shown(FLAGS),
    words: Words::Program,
    notes: "\
The program needs PyTorch 2.6 or newer and its training data; a small stand-in suffices. Losses
have no meaning. Nothing is saved by torch.save, and data loaders have no workers.

Recording stops before the first forward after the last step, so a later evaluation is
included. The file has no data, no weights, and no paths besides names of modules and files.",
    exits: &[(0, "the run is recorded"), (1, "the program cannot be recorded, or it failed")],
    examples: &[
        "headroom record -- python train.py --eval_iters=2",
        "headroom record --batch-sizes 4,8,12 -- python train.py --batch_size={batch_size}",
        "headroom record --gpu H200 --steps 3 -o chat.headroom -- python -m scripts.base_train --depth=4",
    ],
    run,
    ..Command::EMPTY
};

/// A command that starts Python.
#[derive(Clone, Debug, PartialEq)]
struct Program {
    python: OsString,
    /// Options of Python itself.
    options: Vec<OsString>,
    /// A script or `-m MODULE`, with its arguments.
    words: Vec<OsString>,
}

impl Program {
    fn read(command: Vec<OsString>) -> Result<Self, Error> {
        let mut words = command.into_iter();
        let python = words.next().unwrap_or_default();
        let error = || Error::NotPython { command: python.to_string_lossy().into_owned() };
        let base = Path::new(&python).file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if !base.starts_with("python") {
            return Err(error());
        }
        let mut words: Vec<OsString> = words.collect();
        let is_option = |word: &OsString| word.to_string_lossy().starts_with('-') && word != "-m";
        let mut at = 0;
        while words.get(at).is_some_and(is_option) {
            at += if words[at] == "-X" || words[at] == "-W" { 2 } else { 1 };
        }
        let program = words.split_off(at.min(words.len()));
        let is_module = program.first().is_some_and(|word| word == "-m");
        let is_code = words.iter().any(|word| word == "-c" || word == "-");
        if is_code || program.len() < if is_module { 2 } else { 1 } {
            return Err(error());
        }
        Ok(Self { python, options: words, words: program })
    }

    /// Name of the script or the module, without its folder and ending.
    fn name(&self) -> String {
        let name = match self.words.as_slice() {
            [first, module, ..] if first == "-m" => {
                module.to_string_lossy().rsplit('.').next().unwrap_or_default().to_owned()
            }
            [script, ..] => Path::new(script).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            [] => String::new(),
        };
        if name.is_empty() { "run".to_owned() } else { name }
    }
}

/// A temporary folder with the package, removed at the end.
struct Package {
    folder: TempDir,
}

impl Package {
    fn write() -> Result<Self, Error> {
        let error = |error| Error::Folder { folder: env::temp_dir(), error };
        // Only this user can read or write the folder.
        let folder = tempfile::Builder::new().prefix("headroom-record-").tempdir().map_err(error)?;
        let package = Self { folder };
        let inner = package.path();
        fs::create_dir(&inner).map_err(error)?;
        for (name, text) in PACKAGE {
            fs::write(inner.join(name), text).map_err(error)?;
        }
        Ok(package)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(PACKAGE_NAME)
    }
}

fn run(args: Vec<OsString>) -> Result<Exit, super::Error> {
    let mut options = args;
    let command = options.iter().position(|word| word == "--").map(|at| {
        let command = options.split_off(at).into_iter().skip(1);
        command.collect::<Vec<OsString>>()
    });
    let mut arguments = Arguments {
        options: Options::default(),
        capability: None,
        steps: STEPS,
        out: None,
        assume: None,
        eager: false,
        strip: false,
        sizes: None,
    };
    if parse(COMMAND.name, FLAGS, options, &mut arguments, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let command = command.filter(|command| !command.is_empty());
    let command = command.ok_or(UsageError::Missing { command: COMMAND.name, what: "a command behind `--`" })?;
    let program = Program::read(command)?;
    let device = device(&arguments)?;
    let out = arguments.out.clone().unwrap_or_else(|| format!("{}.headroom", program.name()).into());
    // Ctrl-C ends the program, and this process removes the temporary folders.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::new(AtomicBool::new(false)));
    let record = |program: &Program, out: &Path| record(&arguments, program, &device, out);
    let is_recorded = match &arguments.sizes {
        Some(sizes) => series::record(&program, sizes, &out, record)?,
        None => record(&program, &out)?.success(),
    };
    Ok(if is_recorded { Exit::Success } else { Exit::Failure })
}

fn refuse(_: &mut Arguments, word: Word) -> Result<(), UsageError> {
    Err(match word {
        Word::Plain(_) => UsageError::Missing { command: COMMAND.name, what: "`--` before the command" },
        other => refusal(COMMAND.name, FLAGS, other),
    })
}

/// The GPU that the program finds: the given one, or the most common one with the given capability.
fn device(arguments: &Arguments) -> Result<Device, Error> {
    let device = match arguments.capability {
        Some(capability) => {
            let mut all = by_popularity().map(|(_, device)| device);
            all.find(|device| device.compute_capability == capability).cloned().ok_or(Error::NoDevice { capability })?
        }
        None => arguments.options.machine()?.device,
    };
    let capability = device.compute_capability;
    if capability < OLDEST { Err(Error::TooOld { capability }) } else { Ok(device) }
}

fn record(arguments: &Arguments, program: &Program, device: &Device, out: &Path) -> Result<ExitStatus, Error> {
    let package = Package::write()?;
    let mut command = process::Command::new(&program.python);
    command.args(&program.options).arg(package.path());
    let mut option = |name: &str, value: &dyn AsRef<OsStr>| {
        command.arg(name).arg(value);
    };
    let capability = device.compute_capability;
    option("--out", &out);
    option("--steps", &arguments.steps.to_string());
    option("--gpu", &format!("NVIDIA {}", device.reported_name));
    option("--capability", &capability.to_string());
    option("--multiprocessors", &device.sm_count.unwrap_or_default().to_string());
    option("--threads-per-multiprocessor", &capability.architecture().threads_per_sm.to_string());
    option("--total-bytes", &device.total_bytes.to_string());
    if let Some(number) = arguments.assume {
        option("--assume", &number.to_string());
    }
    if arguments.eager {
        command.arg("--eager");
    }
    if arguments.strip {
        command.arg("--strip");
    }
    command.arg("--").args(&program.words);
    let start = |error| Error::Start { command: program.python.to_string_lossy().into_owned(), error };
    command.status().map_err(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Program, String> {
        Program::read(words.iter().map(OsString::from).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_starts_python_with_a_script_or_a_module() {
        let program = read(&["venv/bin/python3.11", "-u", "-X", "dev", "a/train.py", "-m", "x"]).expect("a script");
        assert_eq!((program.options.len(), program.words.len(), program.name().as_str()), (3, 3, "train"));
        let program = read(&["python", "-m", "scripts.base_train", "--depth=4"]).expect("a module");
        assert_eq!((program.options.len(), program.name().as_str()), (0, "base_train"));
        for words in [
            &["torchrun", "train.py"][..],
            &["python"],
            &["python", "-m"],
            &["python", "-c", "pass"],
            &["python", "-X"],
            &["train.py"],
        ] {
            assert!(read(words).is_err_and(|error| error.contains("is not Python")), "{words:?}");
        }
    }

    #[test]
    fn the_package_is_whole() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder").join(PACKAGE_NAME);
        let files = fs::read_dir(folder).expect("the package").map(|entry| entry.expect("a file").path());
        let mut names: Vec<String> = files
            .filter(|path| path.extension().is_some_and(|ending| ending == "py"))
            .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, PACKAGE.map(|(name, _)| name.to_owned()));
    }
}
