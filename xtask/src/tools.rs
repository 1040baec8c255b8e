//! Tools for building the page; a missing one is downloaded in its pinned version. Tools in PATH with the right version
//! are used; downloads go to the tools directory, never to the system.

use crate::{
    failure::{Failure, IoContext, Result},
    pins::{self, AXE, BINARYEN, ESBUILD, MDBOOK, Pin, Source, WASM_BINDGEN},
    shell::{Cmd, Shell, note, step},
};
use std::path::{Path, PathBuf};

/// The hint for a failed download.
pub const OFFLINE_HINT: &str = "this step downloads: check the network and run the command again, it resumes where it \
                            stopped. Or install that version yourself and put it on PATH";

/// The available tools for building the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTools {
    /// Whether wasm-opt and esbuild are available. Without Node they are not: the page is then larger, and otherwise
    /// the same.
    pub optimizers: bool,
}

/// Installs everything that building the page needs.
pub fn ensure_page_tools(shell: &Shell) -> Result<PageTools> {
    pins::check(&shell.root)?;
    ensure_wasm_target(shell)?;
    ensure_program(shell, WASM_BINDGEN)?;
    // Before the build directory is removed, because the two share crates.
    ensure_mdbook(shell)?;
    Ok(PageTools { optimizers: ensure_optimizers(shell)? })
}

/// Installs mdBook.
pub fn ensure_mdbook(shell: &Shell) -> Result<()> {
    ensure_program(shell, MDBOOK)?;
    discard_build_folder(shell);
    Ok(())
}

/// Installs the standard library for wasm32 in the current toolchain.
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

/// Installs `cargo fmt` and `cargo clippy`.
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

/// Makes clippy the compiler of the workspace's packages, with warnings as errors. Every cargo command on the same build
/// must use it, because cargo compiles again for another compiler.
pub fn compile_with_clippy(command: Cmd) -> Cmd {
    // As `cargo clippy` does, which only checks.
    let args = ["--deny", "warnings"].map(|arg| format!("{arg}__CLIPPY_HACKERY__")).concat();
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env("CLIPPY_ARGS", args)
}

/// Installs axe.min.js and returns its path; `None` without Node.
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

/// Installs a program in cargo's dev profile, which compiles in a fraction of the time.
fn cargo_install(shell: &Shell, pin: Pin) -> Result<()> {
    std::fs::create_dir_all(&shell.tools).doing(|| format!("create {}", shell.tools.display()))?;
    let root = shell.tools.display().to_string();
    let how: &[&str] = match pin.source {
        Source::CargoLockedBare => &["--locked", "--no-default-features"],
        Source::CargoBare => &["--no-default-features"],
        Source::Npm | Source::Pip => &[],
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

/// Returns the tools' build directory. It is kept until all are installed, so that an interrupted installation resumes
/// and crates are shared.
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
        assert!(says_version("wasm-bindgen 0.2.130\n", WASM_BINDGEN.printed_version()));
        assert!(says_version("wasm-opt version 132 (version_132)", BINARYEN.printed_version()));
        assert!(says_version("mdbook v0.5.4\n", MDBOOK.printed_version()));
        assert!(!says_version("wasm-bindgen 0.2.1300", WASM_BINDGEN.printed_version()));
        assert!(!says_version("wasm-opt version 108", BINARYEN.printed_version()));
    }
}
