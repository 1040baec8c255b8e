//! The `headroom` binary: the command line, and the server on the machine with the GPU.
//!
//! This file only converts a command's outcome to an exit status. All computations about runs are in `headroom_planner`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(std::env::args_os().skip(1)) {
        Ok(exit) => exit.into(),
        Err(error) => cli::explain(&error).into(),
    }
}
