//! `cargo xtask bench`: every package's benchmarks, one package after the other so that they do not disturb each other.

use crate::{
    args::Args,
    failure::{Failure, Result},
    packages::{END_TO_END, Packages},
    shell::{Shell, step},
};

/// Runs the benchmarks whose names contain the filter, or all.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let filter = args.free();
    args.finish()?;
    let packages = Packages::read(shell)?;
    let with_benches: Vec<_> = packages.all().filter(|package| !package.benches.is_empty()).collect();
    if with_benches.is_empty() {
        return Err(Failure::new("no package has a benchmark"));
    }
    for package in with_benches {
        if package.name == END_TO_END {
            // What is measured there is the program, and cargo builds a package's own alone.
            let command = shell.cmd("cargo").args(["build", "--release", "--package", "headroom-agent"]);
            step("build headroom", "as it ships, for the benchmarks of the whole program", || command.run(""))?;
        }
        step(&format!("bench {}", package.name), "figures of this machine, as ratios where it is noisy", || {
            let benches = package.benches.iter().flat_map(|bench| ["--bench", bench]);
            let command = shell.cmd("cargo").args(["bench", "--all-features", "--package", &package.name]);
            command.args(benches).args(filter.iter().flat_map(|filter| ["--", filter])).run("")
        })?;
    }
    Ok(())
}
