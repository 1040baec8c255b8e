//! The binary `headroom`: its command line and the server on the machine with the card.
//!
//! Here is only the way out: what a command came to, as an exit status. Everything that is computed about a run is in
//! `headroom_shared`.

mod alerts;
mod ancestry;
mod cli;
mod clock;
mod data;
mod figures;
mod folders;
mod foreman;
mod platform;
mod random;
mod rig;
mod server;
mod store;
mod telemetry;
mod train;
mod utf8;
mod watch;
mod webhook;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(std::env::args_os().skip(1)) {
        Ok(exit) => exit.into(),
        Err(error) => cli::explain(&error).into(),
    }
}
