//! What building the page takes: each tool is looked for, and fetched in its pinned version where it is missing.
//! Tools on PATH in the right version are used as they are; the rest goes to the tools folder, never to the system.

use crate::{
    failure::{Doing, Failure, Result},
    pins::{self, AXE, BINARYEN, ESBUILD, MDBOOK, Pin, Source, TRUNK, WASM_BINDGEN},
    shell::{Shell, note, step},
};
use std::path::{Path, PathBuf};

/// What to do where a download fails.
pub const OFFLINE_HINT: &str = "this step downloads: check the network and run the command again, it resumes where it \
                            stopped. Or install that version yourself and put it on PATH";

/// Whether the page can be built with everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTools {
    /// Whether wasm-opt and esbuild are there. `false` on a machine without Node: the page is then larger, and works the
    /// same.
    pub optimizers: bool,
}

/// Sees to everything that building the page takes.
pub fn ensure_page_tools(shell: &Shell) -> Result<PageTools> {
    pins::check(&shell.root)?;
    ensure_wasm_target(shell)?;
    ensure_program(shell, TRUNK)?;
    ensure_program(shell, WASM_BINDGEN)?;
    discard_build_folder(shell);
    Ok(PageTools { optimizers: ensure_optimizers(shell)? })
}

/// Sees to mdBook.
pub fn ensure_mdbook(shell: &Shell) -> Result<()> {
    ensure_program(shell, MDBOOK)?;
    discard_build_folder(shell);
    Ok(())
}

/// Sees to the standard library for wasm32, in the toolchain that runs us.
pub fn ensure_wasm_target(shell: &Shell) -> Result<()> {
    let folder = shell.cmd("rustc").args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]).read();
    if folder.is_some_and(|folder| Path::new(folder.trim()).is_dir()) {
        return Ok(());
    }
    step("add the wasm32 target", "the page is compiled to WebAssembly", || {
        shell
            .cmd("rustup")
            .args(["target", "add", "wasm32-unknown-unknown"])
            .run("without rustup, install the standard library for wasm32-unknown-unknown from your system's packages")
    })
}

/// Sees to `cargo fmt` and `cargo clippy`.
pub fn ensure_lint_components(shell: &Shell) -> Result<()> {
    let has = |subcommand: &str| shell.cmd("cargo").args([subcommand, "--version"]).read().is_some();
    if has("fmt") && has("clippy") {
        return Ok(());
    }
    step("add rustfmt and clippy", "the checks need them", || {
        shell
            .cmd("rustup")
            .args(["component", "add", "rustfmt", "clippy"])
            .run("without rustup, install rustfmt and clippy from your system's packages")
    })
}

/// The path of axe.min.js, or `None` on a machine without Node.
pub fn ensure_axe(shell: &Shell) -> Result<Option<PathBuf>> {
    let folder = shell.tools.join("node_modules").join(AXE.package);
    let script = folder.join(AXE.brings);
    let has_version = |package: &str| package.contains(&format!("\"version\": \"{}\"", AXE.version));
    let installed = std::fs::read_to_string(folder.join("package.json")).is_ok_and(|text| has_version(&text));
    if installed && script.is_file() {
        return Ok(Some(script));
    }
    if !has_npm(shell) {
        return Ok(None);
    }
    npm_install(shell, AXE)?;
    Ok(Some(script))
}

fn ensure_optimizers(shell: &Shell) -> Result<bool> {
    for pin in [BINARYEN, ESBUILD] {
        if has_version(shell, pin) {
            continue;
        }
        if !has_npm(shell) {
            note(
                "Node and npm are not installed, so wasm-opt and esbuild are not: the page is built without, and is larger",
            );
            return Ok(false);
        }
        npm_install(shell, pin)?;
        if !has_version(shell, pin) {
            return Err(not_there(pin));
        }
    }
    Ok(true)
}

fn ensure_program(shell: &Shell, pin: Pin) -> Result<()> {
    if has_version(shell, pin) {
        return Ok(());
    }
    let what = format!("install {} {}, some minutes", pin.package, pin.version);
    step(&what, pin.why, || cargo_install(shell, pin))?;
    if has_version(shell, pin) { Ok(()) } else { Err(not_there(pin)) }
}

fn has_npm(shell: &Shell) -> bool {
    shell.which("node").is_some() && shell.which("npm").is_some()
}

fn has_version(shell: &Shell, pin: Pin) -> bool {
    let printed = shell.cmd(pin.brings).args(["--version"]).read();
    printed.is_some_and(|printed| says_version(&printed, pin.printed_version()))
}

fn says_version(printed: &str, version: &str) -> bool {
    printed.split_whitespace().any(|word| word.trim_start_matches('v') == version)
}

fn not_there(pin: Pin) -> Failure {
    Failure::new(format!("{} {} was installed, but `{}` does not run", pin.package, pin.version, pin.brings))
        .hint(format!("run `{} --version` from the tools folder's bin and see what it says", pin.brings))
}

/// In cargo's dev profile: trunk's release profile is half an hour of link-time optimisation for a program that
/// spends its time waiting for others.
fn cargo_install(shell: &Shell, pin: Pin) -> Result<()> {
    std::fs::create_dir_all(&shell.tools).doing(|| format!("create {}", shell.tools.display()))?;
    let root = shell.tools.display().to_string();
    let how: &[&str] = match pin.source {
        Source::CargoLocked => &["--locked"],
        Source::CargoLockedBare => &["--locked", "--no-default-features"],
        Source::Cargo | Source::Npm | Source::Pip => &[],
    };
    shell
        .cmd("cargo")
        .args(["install", pin.package, "--version", pin.version, "--debug", "--force", "--root", &root])
        .args(how)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_DIR", build_folder(shell))
        .dir(&shell.tools)
        .run(OFFLINE_HINT)
}

/// Kept until both programs are there, so that an installation that broke off resumes and the second shares the first's crates.
fn build_folder(shell: &Shell) -> PathBuf {
    shell.tools.join("build")
}

fn discard_build_folder(shell: &Shell) {
    if build_folder(shell).is_dir() && std::fs::remove_dir_all(build_folder(shell)).is_err() {
        note("the build folder of the tools could not be removed; it only takes space");
    }
}

fn npm_install(shell: &Shell, pin: Pin) -> Result<()> {
    std::fs::create_dir_all(&shell.tools).doing(|| format!("create {}", shell.tools.display()))?;
    let tools = shell.tools.display().to_string();
    let package = format!("{}@{}", pin.package, pin.version);
    step(&format!("fetch {package}"), pin.why, || {
        shell
            .cmd("npm")
            .args(["install", "--prefix", &tools, "--save-exact", "--ignore-scripts"])
            .args(["--no-audit", "--no-fund", "--loglevel=error", &package])
            .dir(&shell.tools)
            .run(OFFLINE_HINT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_whole_word() {
        assert!(says_version("trunk 0.21.14\n", TRUNK.printed_version()));
        assert!(says_version("wasm-opt version 132 (version_132)", BINARYEN.printed_version()));
        assert!(says_version("mdbook v0.5.4\n", MDBOOK.printed_version()));
        assert!(!says_version("trunk 0.21.140", TRUNK.printed_version()));
        assert!(!says_version("wasm-opt version 108", BINARYEN.printed_version()));
    }
}
