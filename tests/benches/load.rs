//! Load benchmark: a thousand viewers of telemetry at 10 Hz, with the real program reading eight GPUs from a scenario.
//!
//! Run it with `cargo xtask bench load`, or build the program and run:
//!
//! ```text
//! cargo bench -p headroom-tests --bench load -- [--viewers N] [--seconds N] [--cards N]
//! ```
//!
//! It prints a line of JSON and fails if a limit is missed: under one core, no dropped message, and 99 % of messages
//! within 50 ms of their reading. With `-- --viewers 1` the limit is half a percent of a core, for reading eight GPUs,
//! keeping their history and serving one page.
//!
//! The viewers run in this process on one thread, and parse only the head of a message. Their cost is reported as
//! `client_cores`; the machine needs a core for them beside the server's.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its results")]

#[cfg(target_os = "linux")]
#[path = "load/process.rs"]
mod process;
#[cfg(target_os = "linux")]
#[path = "load/report.rs"]
mod report;
#[cfg(target_os = "linux")]
#[path = "load/run.rs"]
mod run;
#[cfg(target_os = "linux")]
#[path = "load/viewer.rs"]
mod viewer;

use std::process::ExitCode;

/// The benchmark's name, for filters on the command line.
const NAME: &str = "load of viewers";

/// The size of the benchmark.
#[derive(Clone, Copy, Debug)]
struct Size {
    n_viewers: usize,
    n_gpus: usize,
    seconds: u64,
}

impl Size {
    /// Parses the arguments. The defaults are the sizes that the limits apply to.
    fn read(words: &[String]) -> Result<Option<Self>, String> {
        let mut size = Self { n_viewers: 1000, n_gpus: 8, seconds: 20 };
        // The kernel counts in hundredths of a second; half a percent of a core is one of them in two seconds.
        if words.windows(2).any(|two| two == ["--viewers", "1"]) {
            size.seconds = 60;
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let number = words.next().and_then(|number| number.parse::<u64>().ok());
                number.filter(|number| (1..=100_000).contains(number)).ok_or(format!("{word} takes a number"))
            };
            match word.as_str() {
                "--viewers" => size.n_viewers = usize::try_from(number()?).map_err(|error| error.to_string())?,
                "--cards" => size.n_gpus = usize::try_from(number()?).map_err(|error| error.to_string())?,
                "--seconds" => size.seconds = number()?,
                option if option.starts_with('-') => return Err(format!("{option} is no option")),
                name if NAME.contains(name) => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(size))
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let run = match Size::read(&words) {
        Ok(Some(size)) => measured(size),
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => Err(problem),
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("load: {problem}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(target_os = "linux")]
fn measured(size: Size) -> Result<(), String> {
    let report = run::run(size).map_err(|error| error.to_string())?;
    println!("{}", report.json());
    match report.missed().as_slice() {
        [] => Ok(()),
        missed => Err(format!("a bar is missed: {}", missed.join("; "))),
    }
}

#[cfg(not(target_os = "linux"))]
fn measured(_: Size) -> Result<(), String> {
    eprintln!("load: only Linux has /proc, from which resource usage is read; nothing is measured");
    Ok(())
}
