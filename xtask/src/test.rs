//! `cargo xtask test`: runs all tests, and prints one final line.
//!
//! A test whose requirements this machine does not meet appends `name: reason` to the file in `HEADROOM_SKIPS` and
//! returns. It is then printed and counted as skipped.

use crate::{
    args::Args,
    browser,
    failure::{Failure, IoContext, Result},
    gpu, hosts,
    outcome::{Outcome, Runner},
    page::{self, Build},
    parallel, run,
    shell::{Shell, note, step},
    tools,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The extent of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// Unit tests, golden files of the memory model, and house rules. Nothing but the tests is built.
    Quick,
    /// All tests, on programs of the `dev` profile.
    Normal,
    /// All tests, on the released program and with all repetitions.
    Full,
}

/// The targets of the quick tier. Profile `quick` of .config/nextest.toml leaves out their slow tests.
const QUICK: [&str; 4] = ["--lib", "--bins", "--test=memory", "--test=tidy"];

/// Options of the command line.
#[derive(Debug)]
struct Options {
    tier: Tier,
    /// Whether clippy checks the tests and the programs while it compiles them.
    lints: bool,
    with_browser: bool,
    /// A filter of tests by name.
    filter: Option<String>,
}

impl Options {
    fn read(mut args: Args) -> Result<Self> {
        let tier = match (args.flag("--quick"), args.flag("--full")) {
            (true, true) => return Err(Failure::new("--quick and --full exclude each other")),
            (true, false) => Tier::Quick,
            (false, true) => Tier::Full,
            (false, false) => Tier::Normal,
        };
        let (lints, with_browser) = (args.flag("--lint"), !args.flag("--no-browser"));
        if lints && tier == Tier::Quick {
            return Err(Failure::new("--quick and --lint exclude each other").hint("`cargo xtask lint` checks alone"));
        }
        let options = Self { tier, lints, with_browser, filter: args.free() };
        args.finish()?;
        Ok(options)
    }
}

/// Runs the tests and returns whether they passed. The final line is printed in every case.
pub fn run(shell: &Shell, args: Args) -> Result<ExitCode> {
    let options = Options::read(args)?;
    let mut outcome = Outcome::default();
    let judgement = run_tier(shell, &options, &mut outcome);
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

fn run_tier(shell: &Shell, options: &Options, outcome: &mut Outcome) -> Result<()> {
    let skips = shell.target.join("xtask").join("skips.txt");
    empty_file(&skips)?;
    let runner = runner(shell, options.tier)?;
    if options.tier == Tier::Quick {
        let environment = [("HEADROOM_SKIPS", skips.clone())];
        outcome.add(tests(shell, runner, options, &environment)?);
    } else {
        let mut environment = environment(shell, options, skips.clone())?;
        // The build may replace this program, and Linux then reports its path as deleted.
        let xtask = env::current_exe().doing(|| "find this program".into())?;
        build(shell, options.lints)?;
        environment.push(("HEADROOM_BIN", program(shell, options.tier)?));
        environment.extend(gpu::of_tests(shell, xtask));
        outcome.add(tests(shell, runner, options, &environment)?);
        if options.with_browser {
            skip_what_is_missing(&environment, outcome);
        }
    }
    outcome.add_declared_skips(&fs::read_to_string(&skips).doing(|| format!("read {}", skips.display()))?);
    judge(outcome)
}

fn skip_what_is_missing(environment: &[(&'static str, PathBuf)], outcome: &mut Outcome) {
    let axe = "Node and npm are not installed, so axe-core cannot be fetched";
    for (test, variable, reason) in [("axe", "HEADROOM_AXE", axe), ("mkdocs", "HEADROOM_MKDOCS", hosts::NO_MKDOCS)] {
        if !environment.iter().any(|(name, _)| *name == variable) {
            outcome.skip(test, reason);
        }
    }
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

/// Builds the page, fetches the tools of the end-to-end tests, and returns their environment.
fn environment(shell: &Shell, options: &Options, skips: PathBuf) -> Result<Vec<(&'static str, PathBuf)>> {
    browser::ensure_vulkan(shell)?;
    page::ensure(shell, Build::Release)?;
    let mut environment = vec![("HEADROOM_DIST", shell.root.join("dist")), ("HEADROOM_SKIPS", skips)];
    if options.tier == Tier::Full {
        environment.push(("HEADROOM_TESTS", "full".into()));
    }
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

/// Builds all tests with the programs that they start. If `lints`, clippy checks them and the benchmarks.
fn build(shell: &Shell, lints: bool) -> Result<()> {
    if lints {
        tools::ensure_lint_components(shell)?;
    }
    let hint = "the compiler's message is above; a missing `cc` or `gcc` is in your system's packages";
    let why = if lints {
        "and the programs that they start; warnings are errors here"
    } else {
        "and the programs that they start"
    };
    step("build the tests", why, || {
        let command = shell.cmd("cargo").args(["test", "--no-run", "--workspace", "--all-features"]);
        let command = if lints { tools::compile_with_clippy(command.args(["--all-targets"])) } else { command };
        command.run(hint)
    })
}

/// Returns the program to test. The tests' build has made that of the `dev` profile.
fn program(shell: &Shell, tier: Tier) -> Result<PathBuf> {
    if tier == Tier::Full {
        return run::build_headroom(shell, Build::Release);
    }
    run::built(shell, "debug")
}

/// Returns the runner. The fallback runs all tests of a crate in one process, and stops nothing that hangs.
fn runner(shell: &Shell, tier: Tier) -> Result<Runner> {
    if shell.cmd("cargo").args(["nextest", "--version"]).read().is_some() {
        return Ok(Runner::Nextest);
    }
    if tier == Tier::Quick {
        return Err(Failure::new("cargo-nextest is not installed, and --quick needs its filters")
            .hint("`cargo install cargo-nextest --locked`, or run all tests: `cargo xtask test`"));
    }
    note("cargo-nextest is not installed: `cargo test` runs one test at a time, and stops nothing that hangs");
    Ok(Runner::CargoTest)
}

/// Returns three test threads for two cores. With one thread per core, a run used 61 % of two cores' time, because
/// tests of servers and of the page wait.
fn test_threads() -> usize {
    let cores = parallel::n_cores();
    cores + cores.div_ceil(2)
}

/// Runs the tests of the quick tier's targets, or all of them.
fn tests(shell: &Shell, runner: Runner, options: &Options, environment: &[(&'static str, PathBuf)]) -> Result<Outcome> {
    let command = match runner {
        Runner::Nextest => {
            let threads = format!("--test-threads={}", test_threads());
            let command = shell.cmd("cargo").args(["nextest", "run", "--no-fail-fast", "--no-tests=pass"]);
            let command = command.args([threads]);
            if options.tier == Tier::Quick { command.args(["--profile=quick"]).args(QUICK) } else { command }
        }
        Runner::CargoTest => {
            let command = shell.cmd("cargo").args(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]);
            command.env("RUST_TEST_THREADS", "1")
        }
    };
    let command = environment.iter().fold(command, |command, (name, value)| command.env(name, value));
    let command = if options.lints { tools::compile_with_clippy(command) } else { command };
    let command = command.args(["--workspace", "--all-features"]);
    let command = command.args(options.filter.iter().flat_map(|filter| ["--", filter]));
    step("run the tests", "of all packages", || {
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

    #[test]
    fn tiers_exclude_each_other() {
        let read = |line: &str| Options::read(Args::new(line.split_whitespace().map(str::to_owned)));
        assert_eq!(read("").expect("options").tier, Tier::Normal);
        let quick = read("--quick name").expect("options");
        assert_eq!((quick.tier, quick.filter.as_deref()), (Tier::Quick, Some("name")));
        assert_eq!(read("--full --no-browser").expect("options").tier, Tier::Full);
        assert!(read("--lint").expect("options").lints && !read("").expect("options").lints);
        read("--quick --lint").expect_err("the quick tier compiles some of the tests");
        read("--quick --full").expect_err("two tiers");
    }
}
