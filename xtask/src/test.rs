//! `cargo xtask test`: everything that can fail, with one closing line.
//!
//! A test that finds this machine lacking something appends `name: reason` to the file that `HEADROOM_SKIPS` names
//! and returns; it is then printed and counted as skipped.

use crate::{
    args::Args,
    browser,
    failure::{Doing, Failure, Result},
    gpu, hosts,
    outcome::{Outcome, Runner},
    packages::{END_TO_END, Package, Packages},
    page::{self, Build},
    run,
    shell::{Cmd, Shell, note, step},
    tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// What the command line asks for.
#[derive(Debug)]
struct Options {
    with_browser: bool,
    /// Only tests whose names contain it.
    filter: Option<String>,
}

/// Runs the tests and says whether they passed. Whatever happens, the closing line comes last.
pub fn run(shell: &Shell, mut args: Args) -> Result<ExitCode> {
    let options = Options { with_browser: !args.flag("--no-browser"), filter: args.free() };
    args.finish()?;
    let mut outcome = Outcome::default();
    let judgement = run_all(shell, &options, &mut outcome);
    if judgement.is_err() && outcome.failed == 0 {
        outcome.failed = 1;
    }
    for (name, reason) in outcome.skips() {
        note(&format!("skipped {name}: {reason}"));
    }
    if let Err(failure) = &judgement {
        eprintln!("{failure}\n");
    }
    println!("{}", outcome.closing_line());
    Ok(if judgement.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_all(shell: &Shell, options: &Options, outcome: &mut Outcome) -> Result<()> {
    let skips = shell.target.join("xtask").join("skips.txt");
    empty_file(&skips)?;
    let mut environment = environment(shell, options, skips.clone())?;
    let packages = Packages::read(shell)?;
    let runner = runner(shell);
    let (end_to_end, others): (Vec<_>, Vec<_>) = packages.all().partition(|package| package.name == END_TO_END);
    let libraries: Vec<_> = others.iter().copied().filter(|package| package.has_library).collect();
    let filter = options.filter.as_deref();

    outcome.add(tests(shell, runner, &others, filter, &environment, "each package's own tests")?);
    outcome.add(doc_tests(shell, &libraries, filter)?);
    environment.extend(gpu::of_tests(shell)?);
    outcome.add(tests(shell, runner, &end_to_end, filter, &environment, "the programs as people use them")?);
    outcome.add_declared_skips(&fs::read_to_string(&skips).doing(|| format!("read {}", skips.display()))?);
    if options.with_browser && !environment.iter().any(|(name, _)| *name == "HEADROOM_AXE") {
        outcome.skip("axe", "Node and npm are not installed, so axe-core cannot be fetched");
    }
    if options.with_browser && !environment.iter().any(|(name, _)| *name == "HEADROOM_MKDOCS") {
        outcome.skip("mkdocs", hosts::NO_MKDOCS);
    }
    judge(outcome)
}

fn judge(outcome: &Outcome) -> Result<()> {
    match (outcome.failed, outcome.passed) {
        (0, 0) => Err(Failure::new("no test ran").hint("does the filter name one?")),
        (0, _) => Ok(()),
        _ => Err(Failure::new("there are failures").hint("`cargo xtask test NAME` runs one test again")),
    }
}

fn empty_file(file: &Path) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
    }
    fs::write(file, "").doing(|| format!("write {}", file.display()))
}

/// Builds what the end-to-end tests use, and says where it is.
fn environment(shell: &Shell, options: &Options, skips: PathBuf) -> Result<Vec<(&'static str, PathBuf)>> {
    browser::ensure_vulkan(shell)?;
    page::ensure(shell, Build::Release)?;
    let headroom = run::build_headroom(shell, Build::Release)?;
    let mut environment =
        vec![("HEADROOM_BIN", headroom), ("HEADROOM_DIST", shell.root.join("dist")), ("HEADROOM_SKIPS", skips)];
    if options.with_browser {
        let browser = browser::ensure(shell)?;
        environment.extend([("CHROMIUM", browser.chromium), ("CHROMEDRIVER", browser.chromedriver)]);
        environment.extend(tools::ensure_axe(shell)?.map(|axe| ("HEADROOM_AXE", axe)));
        let sites = hosts::ensure(shell)?;
        environment.push(("HEADROOM_MDBOOK", sites.mdbook));
        environment.extend(sites.mkdocs.map(|site| ("HEADROOM_MKDOCS", site)));
    }
    Ok(environment)
}

fn runner(shell: &Shell) -> Runner {
    if shell.cmd("cargo").args(["nextest", "--version"]).read().is_some() {
        return Runner::Nextest;
    }
    note("cargo-nextest is not installed: using `cargo test`, which is slower and stops nothing that hangs");
    Runner::CargoTest
}

/// Runs the tests of some packages together; all features, as what is behind a feature is tested too.
fn tests(
    shell: &Shell,
    runner: Runner,
    packages: &[&Package],
    filter: Option<&str>,
    environment: &[(&'static str, PathBuf)],
    why: &str,
) -> Result<Outcome> {
    let command = match runner {
        Runner::Nextest => shell.cmd("cargo").args(["nextest", "run", "--no-fail-fast", "--no-tests=pass"]),
        Runner::CargoTest => shell.cmd("cargo").args(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]),
    };
    let command = environment.iter().fold(command, |command, (name, value)| command.env(name, value));
    measured(command, runner, packages, filter, why)
}

fn doc_tests(shell: &Shell, packages: &[&Package], filter: Option<&str>) -> Result<Outcome> {
    let command = shell.cmd("cargo").args(["test", "--doc", "--no-fail-fast"]);
    measured(command, Runner::CargoTest, packages, filter, "the examples in the documentation")
}

fn measured(command: Cmd, runner: Runner, packages: &[&Package], filter: Option<&str>, why: &str) -> Result<Outcome> {
    if packages.is_empty() {
        return Ok(Outcome::default());
    }
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let command = command.args(["--all-features"]).args(names.iter().flat_map(|name| ["--package", name]));
    let command = command.args(filter.iter().flat_map(|filter| ["--", filter]));
    step(&format!("test {}", names.join(" ")), why, || {
        let (lines, success) = command.watch(|_| {})?;
        Ok(Outcome::of_runner(runner, &lines, success))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_or_nothing_at_all_is_an_error() {
        let mut outcome = Outcome::default();
        judge(&outcome).expect_err("no test ran");
        outcome.passed = 1;
        judge(&outcome).expect("a test passed");
        outcome.failed = 1;
        judge(&outcome).expect_err("a test failed");
    }
}
