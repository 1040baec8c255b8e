//! `cargo xtask cross`: compiles the agent for other systems. Nothing is linked or run.
//!
//! One target has the default features and the other has none. The code of a feature is the same for all targets, so
//! that a check of each pair would find nothing more, and WebGPU's crates take most of a check's time.
//!
//! The build scripts of SQLite and ring compile C, which a check does not need. They get a compiler and an archiver that
//! only create their output, so that no cross compiler has to be installed.

use crate::{
    failure::{IoContext, Result},
    files,
    shell::{Shell, note, step},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A target of the agent.
struct Target {
    /// rustc's name.
    rust: &'static str,
    /// Cargo's arguments that select features.
    features: &'static [&'static str],
}

/// Packages of the agent, checked for each target.
pub const AGENT: [&str; 5] =
    ["headroom-agent-core", "headroom-train", "headroom-watch", "headroom-server", "headroom-agent"];

const TARGETS: [Target; 2] = [
    Target { rust: "x86_64-pc-windows-gnu", features: &[] },
    Target { rust: "aarch64-unknown-linux-gnu", features: &["--no-default-features"] },
];

/// A C compiler that creates empty object files: the file after `-o`, or nothing for a question about itself.
const COMPILER: &str = "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n  [ \"$1\" = -o ] && : > \"$2\"\n  shift\ndone\n";
/// An archiver that creates empty archives: the operation comes before the archive.
const ARCHIVER: &str = "#!/bin/sh\n: > \"$2\"\n";

/// The programs in place of a C compiler and an archiver.
struct C {
    compiler: PathBuf,
    archiver: PathBuf,
}

/// Checks the agent alone: for every target, and without its features. `cargo xtask lint` checks it together
/// with the workspace, whose unified features hide one that the agent forgot to request.
pub fn run(shell: &Shell) -> Result<()> {
    if cfg!(windows) {
        note("skipped the other systems: the programs in place of a C compiler are shell scripts");
        return clippy(shell, None, &["--no-default-features"]);
    }
    let c = empty_c(shell)?;
    // One call for all targets would unify their features: code for Unix would be compiled for Windows.
    for target in &TARGETS {
        ensure_std(shell, target)?;
        clippy(shell, Some((target, &c)), target.features)?;
    }
    Ok(())
}

/// Runs clippy on the agent for a target, or for this machine.
fn clippy(shell: &Shell, target: Option<(&Target, &C)>, features: &[&str]) -> Result<()> {
    let name = target.map_or("this machine", |(target, _)| target.rust);
    let step_name = format!("check the agent for {name} {}", features.join(" "));
    step(step_name.trim_end(), "home rigs run it too", || {
        let command = shell.cmd("cargo").args(["clippy", "--quiet", "--no-deps"]);
        let mut command = command.args(AGENT.iter().flat_map(|name| ["--package", name])).args(features);
        if let Some((target, c)) = target {
            let variable = target.rust.replace('-', "_");
            command = command.args(["--target", target.rust]);
            command = command.env(&format!("CC_{variable}"), &c.compiler).env(&format!("AR_{variable}"), &c.archiver);
        }
        command
            .args(["--", "--deny", "warnings"])
            .run("Unix-only code is in agent/core/src/platform, with a Windows counterpart")
    })
}

fn ensure_std(shell: &Shell, target: &Target) -> Result<()> {
    let folder = shell.cmd("rustc").args(["--print", "target-libdir", "--target", target.rust]).read();
    if folder.is_some_and(|folder| Path::new(folder.trim()).is_dir()) {
        return Ok(());
    }
    step(&format!("add the target {}", target.rust), "the agent is checked for it", || {
        let hint = "without rustup, install that target's standard library from your system's packages";
        shell.cmd("rustup").args(["target", "add", target.rust]).run(hint)
    })
}

fn empty_c(shell: &Shell) -> Result<C> {
    let folder = shell.target.join("xtask").join("empty_c");
    fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
    let program = |name: &str, text: &str| {
        let path = folder.join(name);
        files::write_program(&path, text).map(|()| path)
    };
    Ok(C { compiler: program("cc", COMPILER)?, archiver: program("ar", ARCHIVER)? })
}
