//! `cargo xtask lint`: formatting, and clippy with warnings as errors.
//! Package by package, as a whole workspace shares features and so hides what one package forgot to ask for.

use crate::{
    failure::{Failure, Result},
    fuzz,
    packages::Packages,
    shell::{Shell, step},
    tools,
};

/// Packages that the page is made of without being the page's own, with the features that it takes.
const SHARED_WITH_PAGE: &[(&str, &str)] =
    &[("headroom-shared", "--all-features"), ("headroom-kernels", "--features=wgpu")];

/// Runs all checks, also after one that finds something, and then names those that did.
pub fn run(shell: &Shell) -> Result<()> {
    tools::ensure_lint_components(shell)?;
    tools::ensure_wasm_target(shell)?;
    let packages = Packages::read(shell)?;
    let mut results = vec![step("check the formatting", "cargo fmt", || {
        shell.cmd("cargo").args(["fmt", "--all", "--check"]).run("run `cargo fmt --all`")
    })];
    for package in packages.native(&shell.root) {
        let name = package.name.as_str();
        results.push(clippy(shell, name, &["--all-targets", "--all-features"], None));
        if package.has_features {
            results.push(clippy(shell, name, &["--no-default-features"], None));
        }
    }
    let page = packages.of_page(&shell.root).map(|package| (package.name.as_str(), "--all-features"));
    for (name, features) in page.chain(SHARED_WITH_PAGE.iter().copied()) {
        results.push(clippy(shell, name, &[features, "--target", "wasm32-unknown-unknown"], Some("wasm")));
    }
    results.push(fuzz::lint(shell));
    let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() {
        return Ok(());
    }
    for failure in &failures {
        eprintln!("{failure}\n");
    }
    Err(Failure::new(format!("{} checks found something", failures.len())))
}

/// `config` is a folder below xtask/clippy whose clippy.toml replaces the workspace's.
fn clippy(shell: &Shell, package: &str, args: &[&str], config: Option<&str>) -> Result<()> {
    let why = config.map_or("warnings are errors here", |_| "no clock, files or threads in the page");
    step(&format!("clippy {package} {}", args.join(" ")), why, || {
        let command = shell.cmd("cargo").args(["clippy", "--quiet", "--no-deps", "--package", package]);
        let command = command.args(args).args(["--", "--deny", "warnings"]);
        let folder = config.map(|config| shell.root.join("xtask/clippy").join(config));
        let command = folder.into_iter().fold(command, |command, folder| command.env("CLIPPY_CONF_DIR", folder));
        command.run("fix what it names; an exception is `#[expect(lint, reason = \"…\")]`")
    })
}
