//! Builds, runs and tests Headroom: `cargo xtask help`. It is not part of the released program.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints to the terminal")]

mod args;
mod bench;
mod browser;
mod bundle;
mod compress;
mod cross;
mod docs;
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
mod parallel;
mod pins;
mod png;
mod previews;
mod python;
mod run;
mod shell;
mod size;
mod test;
mod texts;
mod tools;

use crate::{
    args::Args,
    compress::Effort,
    failure::{Failure, Result},
    page::Build,
    shell::Shell,
};
use std::process::ExitCode;

const HELP: &str = "\
Builds, runs and tests Headroom. Missing tools are downloaded into .tools, in the versions below.

cargo xtask run [--port N] [--no-open] [--fast]
    Builds the pages and headroom, and serves them on loopback, on port 8420 by default.
    --no-open opens no browser. --fast builds faster; the pages are larger and slower.
cargo xtask page [--fast]               builds the pages and the documentation into dist, with compressed copies
cargo xtask docs                        builds only the documentation, into dist/docs
cargo xtask previews                    draws the images of shared links and the icons, into web, with Chromium
cargo xtask test [--quick|--full] [--lint] [--no-browser] [NAME]
    Runs all tests, or those whose names contain NAME. --quick runs the unit tests, the golden files of the memory model
    and the house rules, without building the pages. --full tests the release build, and repeats each kill test as often
    as a release requires. --lint compiles with clippy, and warnings are errors.
cargo xtask lint [--rest]
    Runs cargo fmt and clippy. --rest leaves out what `test --lint` and `fuzz --lint` check while they compile: all
    packages together with their tests, and the fuzz targets. Continuous integration runs these three.
cargo xtask fuzz [--seconds N] [--seed N] [--lint] [TARGET]
    Runs all fuzz targets, or one: first the stored corpus, then mutated inputs, 60 seconds for each target by default.
    --seconds 0 runs only the corpus. TARGET --input FILE runs one input.
cargo xtask kernels [--check]           compiles the CUDA kernels to the committed PTX
    --check writes no PTX. It checks that the committed PTX belongs to the sources, and that no kernel exceeds its limit
    in kernels/cuda/registers.txt. If the compilers cannot be downloaded, it compares only hashes.
cargo xtask cross                       checks the agent for Windows and for Linux on aarch64
cargo xtask ci
    lint --rest, kernels --check, cross, pages, size, fuzz --seconds 10 --lint, then test --lint
cargo xtask size                        checks the size of each page's first visit against its limit
cargo xtask bench [NAME]                runs the benchmarks
cargo xtask bench NAME -- OPTIONS       runs one benchmark with its own options: load -- --viewers 1
cargo xtask gpu [--only STEPS] [--seed N] [--nanogpt FOLDER] [--llmc FOLDER] [--load COMMAND] [--out FOLDER]
    Runs the measurements that need a GPU, into bench/results: nvml (readings, agreement with nvidia-smi, cost of the
    telemetry), kernels, sanitizer, train, ceilings and speed. --only selects steps, separated by commas. --nanogpt and
    --llmc are checkouts to compare with. --headroom FILE, --ops FILE and --cuda-ops FILE are programs built elsewhere.
    --tiny runs all steps on the emulated GPU, in one minute.
cargo xtask gpu --pack FOLDER           writes a copy for a machine without Rust: sh FOLDER/run.sh [OPTIONS]
cargo xtask help                        prints this help

HEADROOM_TOOLS_DIR      directory for downloaded tools, instead of .tools
HEADROOM_PAGE_URL       public address of the pages, such as https://example.org/headroom/, for the images of shared links
CHROMIUM, CHROMEDRIVER  browser and driver for the tests, if they are not on PATH
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
        "docs" => {
            args.finish()?;
            docs::ensure(&shell, Effort::Most)?;
        }
        "test" => return test::run(&shell, args),
        "lint" => lint::run(&shell, args)?,
        "ci" => {
            args.finish()?;
            lint::check(&shell, true)?;
            kernels::check(&shell)?;
            cross::run(&shell)?;
            page::ensure(&shell, Build::Release)?;
            size::run(&shell)?;
            fuzz::run(&shell, Args::new(fuzz::IN_CI.map(str::to_owned)))?;
            return test::run(&shell, Args::new(["--lint".to_owned()]));
        }
        "size" => {
            args.finish()?;
            page::ensure(&shell, Build::Release)?;
            size::run(&shell)?;
        }
        "previews" => {
            args.finish()?;
            previews::run(&shell)?;
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
    println!("\nTools, downloaded if missing:");
    for pin in pins::ALL {
        println!("  {:<22} {:<8} {}", pin.package, pin.version, pin.why);
    }
}
