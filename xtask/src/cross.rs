//! `cargo xtask cross`: compiles the agent for other systems. Nothing is linked or run.
//!
//! One target has the default features and the other has none. The code of a feature is the same for all targets, so
//! that a check of each pair would find nothing more, and WebGPU's crates take most of a check's time.
//!
//! SQLite and ring are C, so each target needs a C compiler. That is the system's cross compiler if installed
//! (`gcc-mingw-w64` and `gcc-aarch64-linux-gnu` in Debian). Otherwise it is Zig's, from Python's package index.

use crate::{
    failure::{IoContext, Result},
    files,
    pins::ZIG,
    python,
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
    /// Zig's name.
    zig: &'static str,
    /// The prefix of the system's cross compiler and archiver.
    gcc: &'static str,
    /// Cargo's arguments that select features.
    features: &'static [&'static str],
}

/// Packages of the agent, checked for each target.
pub const AGENT: [&str; 5] =
    ["headroom-agent-core", "headroom-train", "headroom-watch", "headroom-server", "headroom-agent"];

const TARGETS: [Target; 2] = [
    Target { rust: "x86_64-pc-windows-gnu", zig: "x86_64-windows-gnu", gcc: "x86_64-w64-mingw32", features: &[] },
    Target {
        rust: "aarch64-unknown-linux-gnu",
        zig: "aarch64-linux-gnu",
        gcc: "aarch64-linux-gnu",
        features: &["--no-default-features"],
    },
];

/// The C compiler and the archiver for a target.
struct C {
    compiler: PathBuf,
    archiver: PathBuf,
}

/// Checks the agent alone: for every target, and without its features. `cargo xtask lint` checks it together
/// with the workspace, whose unified features hide one that the agent forgot to request.
pub fn run(shell: &Shell) -> Result<()> {
    let mut compilers = Vec::new();
    for target in &TARGETS {
        match c_of(shell, target)? {
            Some(c) => {
                ensure_std(shell, target)?;
                compilers.push((target, c));
            }
            None => note(&format!(
                "skipped {}: neither {}-gcc is installed, nor Python 3.11 with venv to fetch Zig's",
                target.rust, target.gcc
            )),
        }
    }
    // One call for all targets would unify their features: code for Unix would be compiled for Windows.
    for (target, c) in &compilers {
        clippy(shell, Some((target, c)), target.features)?;
    }
    // Without that target's compiler, the agent is still checked without its features.
    if compilers.iter().all(|(target, _)| target.features.is_empty()) {
        clippy(shell, None, &["--no-default-features"])?;
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

fn c_of(shell: &Shell, target: &Target) -> Result<Option<C>> {
    let own = |program: &str| shell.which(&format!("{}-{program}", target.gcc));
    if let (Some(compiler), Some(archiver)) = (own("gcc"), own("ar")) {
        return Ok(Some(C { compiler, archiver }));
    }
    if cfg!(windows) {
        return Ok(None);
    }
    let list = shell.root.join("xtask/zig.txt");
    let Some(environment) = python::ensure(shell, ZIG, &list)? else { return Ok(None) };
    let folder = shell.target.join("xtask").join("zig");
    fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
    let script = |name: &str, words: &str| {
        let path = folder.join(format!("{name}-{}", target.zig));
        // Crates that call a C compiler pass the target in rustc's form, which Zig does not accept.
        let text = format!(
            "#!/bin/sh\nfor word; do shift; case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac; done\n\
             ZIG_GLOBAL_CACHE_DIR='{cache}' exec '{python}' -m ziglang {words} \"$@\"\n",
            cache = folder.join("cache").display(),
            python = environment.python().display(),
        );
        files::write_program(&path, &text).map(|()| path)
    };
    Ok(Some(C { compiler: script("cc", &format!("cc -target {}", target.zig))?, archiver: script("ar", "ar")? }))
}
