//! `cargo xtask lint`: formatting, and clippy with warnings as errors.
//! Package by package, as a whole workspace shares features and so hides what one package forgot to ask for.

use crate::{
    failure::Result,
    packages::{END_TO_END, Packages},
    shell::{Shell, step},
    tools,
};

/// Packages that the page is made of without being the page's own.
const SHARED_WITH_PAGE: &[&str] = &["headroom-shared"];

/// Runs all checks, stopping at the first that finds something.
pub fn run(shell: &Shell) -> Result<()> {
    tools::ensure_lint_components(shell)?;
    tools::ensure_wasm_target(shell)?;
    step("check the formatting", "cargo fmt", || {
        shell.cmd("cargo").args(["fmt", "--all", "--check"]).run("run `cargo fmt --all`")
    })?;
    let packages = Packages::read(shell)?;
    for package in packages.native(&shell.root) {
        let name = package.name.as_str();
        clippy(shell, name, &["--all-targets", "--all-features"], None)?;
        if package.has_features && name != END_TO_END {
            clippy(shell, name, &["--no-default-features"], None)?;
        }
    }
    for package in packages.of_page(&shell.root) {
        clippy(shell, &package.name, &["--all-features", "--target", "wasm32-unknown-unknown"], Some("wasm"))?;
    }
    for name in SHARED_WITH_PAGE {
        clippy(shell, name, &["--lib", "--all-features", "--target", "wasm32-unknown-unknown"], Some("wasm"))?;
    }
    Ok(())
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
