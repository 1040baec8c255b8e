//! A thousand viewers of telemetry at 10 Hz against the real program, which reads eight cards that play a scenario:
//! `cargo xtask bench load`, or `cargo bench -p headroom-tests --bench load -- [--viewers N] [--seconds N] [--cards N]`
//! with the program built before. Prints a line of JSON, and fails where a bar is missed: under one core, nothing
//! dropped, 99 of 100 messages within 50 ms of their reading. With `--viewers 1` the bar is half a percent of a core, for
//! reading eight cards, keeping their history and one page that looks on: `cargo xtask bench load -- --viewers 1`.
//!
//! Viewers live in this program, on one thread, and read no more of a message than its head: what they cost is told as
//! `client_cores`, and the machine has to have a core for them beside the server's.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures are what a benchmark is for")]

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

/// Its name, for whoever asks for some benchmarks alone.
const NAME: &str = "load of viewers";

/// How much of it.
#[derive(Clone, Copy, Debug)]
struct Size {
    n_viewers: usize,
    n_cards: usize,
    seconds: u64,
}

impl Size {
    /// What the bars are for; less where that is asked for.
    fn read(words: &[String]) -> Result<Option<Self>, String> {
        let mut size = Self { n_viewers: 1000, n_cards: 8, seconds: 20 };
        // The kernel counts in hundredths of a second, of which a core's half percent is one in two seconds.
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
                "--cards" => size.n_cards = usize::try_from(number()?).map_err(|error| error.to_string())?,
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
    eprintln!("load: what a process takes is read from /proc, which is Linux's; nothing is measured here");
    Ok(())
}
