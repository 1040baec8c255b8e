//! `cargo xtask lint`: formatting, and clippy with warnings as errors.
//!
//! One call checks all native packages with their tests, so that dependencies are checked once and packages in parallel.
//! It unifies the features of the workspace, which hides a feature that a package forgot to request. Therefore each
//! package is checked alone too, without its tests; `cargo xtask cross` does that for the agent.
//!
//! `cargo xtask test --lint` and `cargo xtask fuzz --lint` check what they compile, so that no dependency is compiled for
//! a check alone. `--rest` leaves out the checks that these commands make: the first call, and that of the fuzz targets.

use crate::{
    args::Args,
    cross,
    failure::{Failure, Result},
    fuzz,
    packages::Packages,
    shell::{Shell, step},
    tools,
};

/// The target of the page, and the profile of its build, which compiles the same macros and build scripts.
const WASM: [&str; 4] = ["--target", "wasm32-unknown-unknown", "--profile", "page"];
/// The programs of the page and the packages that they share with the agent.
const OF_THE_PAGE: [&str; 7] = [
    "headroom-web",
    "headroom-demo",
    "headroom-text",
    "headroom-planner",
    "headroom-protocol",
    "headroom-tokenizer",
    "headroom-kernels",
];
/// The features of these packages that the page enables.
const FEATURES_OF_THE_PAGE: &str = "--features=headroom-kernels/wgpu";

/// Reads the command line, and runs the checks.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let rest_only = args.flag("--rest");
    args.finish()?;
    check(shell, rest_only)
}

/// Runs all checks, or those of `--rest`, even after a failure. Then names those that failed.
pub fn check(shell: &Shell, rest_only: bool) -> Result<()> {
    tools::ensure_lint_components(shell)?;
    tools::ensure_wasm_target(shell)?;
    let packages = Packages::read(shell)?;
    let mut results = vec![step("check the formatting", "cargo fmt", || {
        shell.cmd("cargo").args(["fmt", "--all", "--check"]).run("run `cargo fmt --all`")
    })];
    let native: Vec<_> = packages.native(&shell.root).collect();
    if !rest_only {
        let names: Vec<_> = native.iter().map(|package| package.name.as_str()).collect();
        results.push(clippy(shell, &names, &["--all-targets", "--all-features"], None));
    }
    for package in native.iter().filter(|package| !cross::AGENT.contains(&package.name.as_str())) {
        results.push(clippy(shell, &[&package.name], &["--all-features"], None));
        if package.has_features {
            results.push(clippy(shell, &[&package.name], &["--no-default-features"], None));
        }
    }
    // In one call, because other features of a dependency would compile it again. The build of the page compiles each of
    // its programs alone.
    results.push(clippy(shell, &OF_THE_PAGE, &[&WASM[..], &[FEATURES_OF_THE_PAGE]].concat(), Some("wasm")));
    results.push(fuzz::check_formatting(shell));
    if !rest_only {
        results.push(fuzz::lint(shell));
    }
    let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() {
        return Ok(());
    }
    for failure in &failures {
        eprintln!("{failure}\n");
    }
    Err(Failure::new(format!("{} checks found something", failures.len())))
}

/// Runs clippy; `config` is a directory below xtask/clippy whose clippy.toml replaces the workspace's.
fn clippy(shell: &Shell, packages: &[&str], args: &[&str], config: Option<&str>) -> Result<()> {
    let why = config.map_or("warnings are errors here", |_| "no clock, files or threads in the page");
    step(&format!("clippy {} {}", packages.join(" "), args.join(" ")), why, || {
        let command = shell.cmd("cargo").args(["clippy", "--quiet", "--no-deps"]);
        let command = command.args(packages.iter().flat_map(|name| ["--package", name]));
        let command = command.args(args).args(["--", "--deny", "warnings"]);
        let folder = config.map(|config| shell.root.join("xtask/clippy").join(config));
        let command = folder.into_iter().fold(command, |command, folder| command.env("CLIPPY_CONF_DIR", folder));
        command.run("fix what it names; an exception is `#[expect(lint, reason = \"…\")]`")
    })
}
