//! `cargo xtask bench`: the benchmarks of every package, one package at a time so that they do not disturb each other.

use crate::{
    args::Args,
    failure::{Failure, Result},
    packages::{END_TO_END, Packages},
    shell::{Shell, step},
};

/// Runs the benchmarks whose names contain the filter, or all. Arguments after `--` are passed to the benchmark.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let more = args.after_dashes();
    let filter = args.free();
    args.finish()?;
    if !more.is_empty() && filter.is_none() {
        return Err(Failure::new("what follows -- is for one benchmark").hint("cargo xtask bench load -- --viewers 1"));
    }
    let packages = Packages::read(shell)?;
    let with_benches: Vec<_> = packages.all().filter(|package| !package.benches.is_empty()).collect();
    if with_benches.is_empty() {
        return Err(Failure::new("no package has a benchmark"));
    }
    let known = || with_benches.iter().flat_map(|package| &package.benches).map(String::as_str);
    if let Some(asked) = &filter
        && !more.is_empty()
        && known().all(|name| name != asked)
    {
        let known: Vec<&str> = known().collect();
        return Err(
            Failure::new(format!("there is no benchmark {asked}")).hint(format!("one of: {}", known.join(", ")))
        );
    }
    for package in with_benches {
        // Extra arguments are valid for the named benchmark only.
        let is_asked = |bench: &&String| more.is_empty() || filter.as_ref() == Some(*bench);
        let asked: Vec<&String> = package.benches.iter().filter(is_asked).collect();
        if asked.is_empty() {
            continue;
        }
        if package.name == END_TO_END {
            // These benchmarks run the program, and cargo builds only the binaries of the benchmark's own package.
            let command = shell.cmd("cargo").args(["build", "--release", "--package", "headroom-agent"]);
            step("build headroom", "as it ships, for the benchmarks of the whole program", || command.run(""))?;
        }
        step(&format!("bench {}", package.name), "figures of this machine, as ratios where it is noisy", || {
            let benches = asked.iter().flat_map(|bench| ["--bench", bench.as_str()]);
            let command = shell.cmd("cargo").args(["bench", "--all-features", "--package", &package.name]);
            command.args(benches).args(filter.iter().flat_map(|filter| ["--", filter])).args(&more).run("")
        })?;
    }
    Ok(())
}
