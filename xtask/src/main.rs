//! Builds, runs and tests Headroom: `cargo xtask help`. Nothing here is part of what users run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool: it speaks to the person before it")]

mod args;
mod bench;
mod browser;
mod bundle;
mod compress;
mod cross;
mod failure;
mod files;
mod fuzz;
mod gpu;
mod hosts;
mod kernels;
mod lint;
mod optimize;
mod outcome;
mod packages;
mod page;
mod pins;
mod python;
mod run;
mod shell;
mod size;
mod test;
mod texts;
mod tools;

use crate::{
    args::Args,
    failure::{Failure, Result},
    page::Build,
    shell::Shell,
};
use std::process::ExitCode;

const HELP: &str = "\
Builds, runs and tests Headroom. What is missing is fetched, in the versions below, into .tools.

cargo xtask run [--port N] [--no-open] [--fast]
    Builds the page and headroom and serves the page on this machine only, on port 8420 unless told otherwise.
    --no-open leaves the browser alone; --fast builds quickly, larger and slower.
cargo xtask page [--fast]               builds the page into dist, with compressed copies
cargo xtask test [--no-browser] [NAME]  runs all tests, or those with NAME in theirs
cargo xtask lint                        cargo fmt and clippy, as the continuous integration does
cargo xtask fuzz [--seconds N] [--seed N] [TARGET]
    Runs the fuzz targets, or one: over the kept corpus, then for 60 seconds each, or N, over what is made of it.
    --seconds 0 is the corpus alone; TARGET --input FILE one input.
cargo xtask kernels [--check]           compiles the CUDA kernels to the PTX that is committed
    --check compiles nothing into place: what is committed has to be of these sources, and to take no more registers than
    kernels/cuda/registers.txt lets it. Where the compilers cannot be fetched, hashes alone are checked.
cargo xtask cross                       whether the agent compiles for Windows and for Linux on aarch64
cargo xtask ci                          lint, cross, kernels --check, the page and its size, fuzz for a minute, then test
cargo xtask size                        what a first visit fetches, against its bar
cargo xtask bench [NAME]                runs the benchmarks
cargo xtask bench NAME -- OPTIONS       runs one, with options of its own: load -- --viewers 1
cargo xtask gpu [--only STEPS] [--seed N] [--nanogpt FOLDER] [--llmc FOLDER] [--load COMMAND] [--out FOLDER]
    What only a real card can show, into bench/results: nvml (readings, agreement with nvidia-smi, what telemetry costs),
    kernels, sanitizer, train, ceilings and speed; --only names some, with commas. --nanogpt and --llmc are checkouts to be
    fast beside. Programs that were built elsewhere: --headroom FILE, --ops FILE, --cuda-ops FILE. --tiny sees on the
    emulated card, in a minute, that all of it works.
cargo xtask gpu --pack FOLDER           all that this needs on a machine without Rust: sh FOLDER/run.sh [OPTIONS]
cargo xtask help                        this text

HEADROOM_TOOLS_DIR  keeps fetched programs elsewhere than in .tools
CHROMIUM, CHROMEDRIVER  browser and driver for the tests, where they are not on PATH
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".into());
    dispatch(&command, Args::new(args)).unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::FAILURE
    })
}

fn dispatch(command: &str, mut args: Args) -> Result<ExitCode> {
    let shell = Shell::new()?;
    match command {
        "run" => run::run(&shell, args)?,
        "page" => {
            let build = if args.flag("--fast") { Build::Fast } else { Build::Release };
            args.finish()?;
            page::ensure(&shell, build)?;
        }
        "test" => return test::run(&shell, args),
        "lint" => {
            args.finish()?;
            lint::run(&shell)?;
        }
        "ci" => {
            args.finish()?;
            lint::run(&shell)?;
            cross::run(&shell)?;
            kernels::check(&shell)?;
            page::ensure(&shell, Build::Release)?;
            size::run(&shell)?;
            fuzz::run(&shell, Args::new(fuzz::IN_CI.map(str::to_owned)))?;
            return test::run(&shell, Args::new([]));
        }
        "size" => {
            args.finish()?;
            page::ensure(&shell, Build::Release)?;
            size::run(&shell)?;
        }
        "fuzz" => fuzz::run(&shell, args)?,
        "bench" => bench::run(&shell, args)?,
        "gpu" => gpu::run(&shell, args)?,
        "kernels" => kernels::run(&shell, args)?,
        "cross" => {
            args.finish()?;
            cross::run(&shell)?;
        }
        "help" | "--help" | "-h" => help(),
        unknown => {
            return Err(Failure::new(format!("unknown command `{unknown}`")).hint("`cargo xtask help` lists them"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn help() {
    print!("{HELP}");
    println!("\nfetched where missing:");
    for pin in pins::ALL {
        println!("  {:<22} {:<8} {}", pin.package, pin.version, pin.why);
    }
}
