//! `headroom bench`: speed of training and generation, and the cost of telemetry. Prints a line of JSON per result.
//!
//! A part that is unavailable or fails is a line with its reason, so a machine without a GPU has results too.

mod machine;
mod report;
#[cfg(feature = "webgpu")]
mod webgpu;

use std::{ffi::OsString, hint::black_box, thread};

use headroom_kernels::{
    bench::{Effort, MODELS, Model, decode, train},
    cpu_train::gemm_rate_bytes,
};
use headroom_text::units::human_size;
use serde::Serialize;

use super::{
    Error, Exit,
    args::{Flag, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown, threads},
    command::Command,
    print,
};
use headroom_agent_core::{store, telemetry};
use headroom_train::memory::available_bytes;
use report::{Kind, Report};

/// The device's name in lines without a device.
const NO_WEBGPU: &str = "webgpu";
const NO_GPU: &str = "nvidia";
#[cfg(not(feature = "webgpu"))]
const NOT_BUILT_IN: &str =
    "this build has no WebGPU; `cargo build --release --package headroom-agent` makes one that has";

/// With `--quick`, shapes that take longer are omitted.
const QUICK_SECONDS: f64 = 10.0;
/// Rounds with `--quick`: the most that fit into the limit.
const QUICK_ROUNDS: [usize; 2] = [3, 1];

/// The length of the telemetry measurement: a thousandth of a core is 30 ms in it.
const TELEMETRY_SECONDS: u64 = 30;
const QUICK_TELEMETRY_SECONDS: u64 = 3;
/// Seconds of simulated telemetry that are written; the 99th percentile counts as the slowest.
const HISTORY_SECONDS: u64 = 600;
const QUICK_HISTORY_SECONDS: u64 = 60;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Train,
    Decode,
    Webgpu,
    Telemetry,
    History,
}

#[derive(Debug, Default)]
struct Request {
    effort: Effort,
    only: Option<Part>,
    threads: Option<usize>,
}

const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "quick",
        value: None,
        doc: "Run fewer rounds, without gpt2 and shapes that take over\nten seconds",
        set: |request, _| {
            request.effort = Effort::Quick;
            Ok(())
        },
    },
    Flag {
        name: "only",
        value: Some("train|decode|webgpu|telemetry|history"),
        doc: "Run only this benchmark",
        set: |request, word| {
            request.only = Some(part(word)?);
            Ok(())
        },
    },
    Flag {
        name: "threads",
        value: Some("N"),
        doc: "Training threads [default: one per core]",
        set: |request, n| {
            request.threads = Some(threads(n)?);
            Ok(())
        },
    },
];

fn part(word: &str) -> Result<Part, InvalidValue> {
    match word {
        "train" => Ok(Part::Train),
        "decode" => Ok(Part::Decode),
        "webgpu" => Ok(Part::Webgpu),
        "telemetry" => Ok(Part::Telemetry),
        "history" => Ok(Part::History),
        _ => Err(InvalidValue::not_one_of(word, &["train", "decode", "webgpu", "telemetry", "history"])),
    }
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "bench",
    summary: "Benchmark training and generation",
    about: "\
Benchmarks training and text generation, on the CPU and on WebGPU. Prints one JSON object
per line after each measurement. Progress goes to standard error.",
    usage: &["headroom bench [OPTIONS]"],
    options: || shown(FLAGS),
    notes: "\
Every line has schema (1), headroom (the version), build, kind, device (its name), shape,
and available. If available is false, reason gives the cause instead of figures:
  machine  the processor: threads, instructions
  gemm     matrix products on all threads: gflops
  train    training on the CPU, shapes small, medium and gpt2: tokens_per_second, gflops,
           fraction_of_gemm
  decode   generation on the CPU, shapes tiny and gpt2, weights in f32 and int16:
           tokens_per_second, millis_a_token, prompt_tokens_per_second
  webgpu   generation on WebGPU, the same shapes, weights in f32 and f16: the same, and
           software, f16, fraction_of_copy_bandwidth
  telemetry
           reading NVIDIA GPUs at 10 Hz: core_percent, moment_micros, and readings of the
           first GPU, each with its micros or the reason why it is missing;
           `headroom doctor` explains them
  history  storing the readings of eight GPUs, in a temporary folder: second_millis,
           core_percent, hour_bytes, month_bytes, ranges with the millis of each
Figures are medians. Other load on the machine affects them.",
    exits: &[(0, "all benchmarks of this machine ran")],
    examples: &["headroom bench", "headroom bench --quick --only decode"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, or standard output cannot be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let threads = request.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let bench = Bench { report: Report::new(), processor: machine::processor(), effort: request.effort, threads };
    let is_asked = |part| request.only.is_none_or(|only| only == part);
    bench.machine()?;
    if is_asked(Part::Train) {
        bench.train()?;
    }
    if is_asked(Part::Decode) {
        bench.decode()?;
    }
    if is_asked(Part::Webgpu) {
        #[cfg(feature = "webgpu")]
        webgpu::run(&bench.report, bench.effort)?;
        #[cfg(not(feature = "webgpu"))]
        bench.report.line(Kind::Webgpu, NO_WEBGPU, None, Err::<(), _>(NOT_BUILT_IN.to_owned()))?;
    }
    if is_asked(Part::Telemetry) {
        bench.telemetry()?;
    }
    if is_asked(Part::History) {
        bench.history()?;
    }
    Ok(Exit::Success)
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

/// The parts that run on the CPU.
struct Bench {
    report: Report,
    processor: String,
    effort: Effort,
    threads: usize,
}

/// What is known of the machine without measuring.
#[derive(Debug, Serialize)]
struct Machine {
    threads: usize,
    instructions: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_available_bytes: Option<u64>,
}

impl Bench {
    fn machine(&self) -> Result<(), print::Error> {
        let machine = Machine {
            threads: self.threads,
            instructions: headroom_kernels::decode::instructions(),
            memory_available_bytes: available_bytes(),
        };
        self.report.line(Kind::Machine, &self.processor, None, Ok(machine))
    }

    fn train(&self) -> Result<(), print::Error> {
        let Self { report, processor, effort, threads } = self;
        let on_threads = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        report.progress(&format!("plain products on {on_threads}"));
        let gemm = enough_memory(gemm_rate_bytes(*threads))
            .and_then(|()| train::gemm(*threads, *effort).map_err(|error| error.to_string()));
        report.line(Kind::Gemm, processor, None, gemm)?;
        let mut flops_per_second = None;
        for case in train::CASES.iter().filter(|case| is_part(case.name, *effort)) {
            let figures = self.train_case(case, flops_per_second);
            flops_per_second = figures.as_ref().map(|figures| 1e9 * figures.gflops).ok().or(flops_per_second);
            report.line(Kind::Train, processor, Some(case.name), figures)?;
        }
        Ok(())
    }

    /// Measures a shape. `flops_per_second` is the rate of the previous shape.
    fn train_case(&self, case: &train::Case, flops_per_second: Option<f64>) -> Result<train::Figures, String> {
        let config = case.config().map_err(|error| error.to_string())?;
        enough_memory(train::planned_bytes(case, &config, self.threads).map_err(|error| error.to_string())?)?;
        let seconds = |work| flops_per_second.map_or(0.0, |rate| case.seconds(&config, work, rate));
        let work = match self.effort {
            Effort::Full => case.full(),
            Effort::Quick => {
                let fits = |work: &train::Work| seconds(*work) <= QUICK_SECONDS;
                QUICK_ROUNDS.map(|rounds| case.quick(rounds)).into_iter().find(fits).ok_or_else(|| {
                    format!("it would take more than {QUICK_SECONDS:.0} s here; without --quick it is measured")
                })?
            }
        };
        self.report.progress(&format!("training {}, rounds: {}", case.name, work.rounds));
        train::measure(case, &config, self.threads, work).map_err(|error| error.to_string())
    }

    fn decode(&self) -> Result<(), print::Error> {
        for model in models(self.effort) {
            for storage in decode::STORAGES {
                self.report.progress(&format!("writing with {}, weights in {}", model.name, decode::name(storage)));
                let figures = self.decode_model(&model, storage);
                self.report.line(Kind::Decode, &self.processor, Some(model.name), figures)?;
            }
        }
        Ok(())
    }

    fn telemetry(&self) -> Result<(), print::Error> {
        let seconds = match self.effort {
            Effort::Full => TELEMETRY_SECONDS,
            Effort::Quick => QUICK_TELEMETRY_SECONDS,
        };
        self.report.progress(&format!("reading the GPUs for {seconds} s"));
        match telemetry::measure::measure(None, seconds) {
            Ok((gpu, figures)) => self.report.line(Kind::Telemetry, &gpu, None, Ok(figures)),
            Err(reason) => self.report.line(Kind::Telemetry, NO_GPU, None, Err::<(), _>(reason)),
        }
    }

    fn history(&self) -> Result<(), print::Error> {
        let seconds = match self.effort {
            Effort::Full => HISTORY_SECONDS,
            Effort::Quick => QUICK_HISTORY_SECONDS,
        };
        self.report.progress(&format!("storing an hour and {seconds} s of eight GPUs, then a month"));
        let figures = store::measure::measure(seconds);
        self.report.line(Kind::History, &self.processor, None, figures)
    }

    fn decode_model(
        &self,
        model: &Model,
        storage: headroom_kernels::decode::Storage,
    ) -> Result<decode::Figures, String> {
        let config = model.config().map_err(|error| error.to_string())?;
        enough_memory(decode::planned_bytes(&config, storage).map_err(|error| error.to_string())?)?;
        decode::measure(model, &config, storage, self.effort).map_err(|error| error.to_string())
    }
}

/// The models that are measured generating text. `tiny50257` is left out, because gpt2 has the same vocabulary.
fn models(effort: Effort) -> impl Iterator<Item = Model> {
    MODELS.into_iter().filter(move |model| model.name != "tiny50257" && is_part(model.name, effort))
}

fn is_part(shape: &str, effort: Effort) -> bool {
    effort == Effort::Full || shape != "gpt2"
}

/// Checks that `bytes` of memory are available. A system that overcommits memory would otherwise end the program later,
/// and so would a refused allocation.
fn enough_memory(bytes: u64) -> Result<(), String> {
    if let Some(available) = available_bytes().filter(|&available| available < bytes) {
        return Err(format!(
            "it takes {} of memory, but this machine has {} left",
            human_size(bytes),
            human_size(available)
        ));
    }
    // For systems that report no figure, and for a limit on this process alone.
    let mut probe: Vec<u8> = Vec::new();
    let reserved = usize::try_from(bytes).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok());
    // Keeps the compiler from removing the unused reservation.
    black_box(&probe);
    if reserved {
        Ok(())
    } else {
        Err(format!("it takes {} of memory, which the system cannot provide", human_size(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_machine_has_is_a_reason() {
        assert_eq!(enough_memory(1), Ok(()));
        for bytes in [1 << 50, u64::MAX] {
            let reason = enough_memory(bytes).expect_err("no machine has it");
            assert!(reason.starts_with("it takes ") && reason.contains(" TiB of memory, "), "{reason}");
        }
    }

    #[test]
    fn a_quick_run_has_no_large_model() {
        let names = |effort| models(effort).map(|model| model.name).collect::<Vec<_>>();
        assert_eq!(names(Effort::Quick), ["tiny"]);
        assert_eq!(names(Effort::Full), ["tiny", "gpt2"]);
    }
}
