//! `cargo xtask cross`: whether the agent compiles for the other systems of home rigs. Nothing is linked or run.
//!
//! SQLite and ring are C, so each target takes a C compiler: the system's own where it has one (`gcc-mingw-w64` and
//! `gcc-aarch64-linux-gnu` in Debian), else Zig's, which Python's package index has for every system.

use crate::{
    failure::{Doing, Result},
    files,
    pins::ZIG,
    python,
    shell::{Shell, note, step},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A system that the agent has to compile for.
struct Target {
    /// As rustc calls it.
    rust: &'static str,
    /// And Zig.
    zig: &'static str,
    /// The prefix of a system's own compiler and archiver for it.
    gcc: &'static str,
}

const TARGETS: [Target; 2] = [
    Target { rust: "x86_64-pc-windows-gnu", zig: "x86_64-windows-gnu", gcc: "x86_64-w64-mingw32" },
    Target { rust: "aarch64-unknown-linux-gnu", zig: "aarch64-linux-gnu", gcc: "aarch64-linux-gnu" },
];

/// The C compiler and the archiver for a target.
struct C {
    compiler: PathBuf,
    archiver: PathBuf,
}

/// Checks the agent for every target.
pub fn run(shell: &Shell) -> Result<()> {
    for target in &TARGETS {
        let Some(c) = c_of(shell, target)? else {
            note(&format!(
                "skipped {}: neither {}-gcc is installed, nor Python 3.11 with venv to fetch Zig's",
                target.rust, target.gcc
            ));
            continue;
        };
        ensure_std(shell, target)?;
        step(&format!("check the agent for {}", target.rust), "home rigs run it too", || {
            let name = target.rust.replace('-', "_");
            shell
                .cmd("cargo")
                .args(["clippy", "--quiet", "--no-deps", "--package", "headroom-agent", "--bins"])
                .args(["--target", target.rust, "--", "--deny", "warnings"])
                .env(&format!("CC_{name}"), c.compiler)
                .env(&format!("AR_{name}"), c.archiver)
                .run("what is Unix-only stands in agent/src/platform, with a twin for Windows")
        })?;
    }
    Ok(())
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
        // Crates that call a C compiler name the target in rustc's words, which Zig does not read.
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
