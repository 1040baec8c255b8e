//! Builds the page into `dist`: Trunk, then a compressed copy of each file beside it.

use crate::{
    bundle,
    compress::{self, Effort},
    failure::Result,
    files,
    packages::Packages,
    shell::{Shell, note, step},
    tools::{self, PageTools},
};
use std::path::PathBuf;

/// How much care the page gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// As it is shipped.
    Release,
    /// Quick to build, larger and slower: to look at while working on it.
    Fast,
}

/// Sees to the tools and builds the page, unless nothing it is made of has changed.
pub fn ensure(shell: &Shell, build: Build) -> Result<()> {
    let tools = tools::ensure_page_tools(shell)?;
    let inputs = inputs(shell)?;
    let digest = files::digest(&inputs, &format!("{build:?} {tools:?}"))?;
    let stamp = shell.target.join("xtask").join("page.stamp");
    if files::is_stamped(&stamp, &digest) && shell.root.join("dist/index.html.br").is_file() {
        note("the page in dist is up to date: none of its sources changed");
        return Ok(());
    }
    step("fetch crates", "the page is built with no network after this", || {
        shell.cmd("cargo").args(["fetch", "--quiet"]).run("check the network and run the command again")
    })?;
    step("build the page", "it is compiled to WebAssembly by Trunk; a minute or two from nothing", || {
        trunk(shell, build, tools)
    })?;
    let dist = shell.root.join("dist");
    step("bundle the page", "one style sheet instead of many; small scripts where Node is installed", || {
        bundle::folder(shell, &dist, build == Build::Release && tools.optimizers)
    })?;
    step("compress the page", "it is sent as it lies, so no viewer costs the server anything", || {
        compress::folder(&dist, if build == Build::Release { Effort::Most } else { Effort::Little })
    })?;
    files::write_stamp(&stamp, &digest)
}

/// Outside of its release mode Trunk leaves wasm-opt alone; the profile is given either way.
fn trunk(shell: &Shell, build: Build, tools: PageTools) -> Result<()> {
    let (profile, wasm_opt) = match build {
        Build::Release => ("page", tools.optimizers),
        Build::Fast => ("page-fast", false),
    };
    let release = format!("--release={wasm_opt}");
    // Trunk reads `NO_COLOR` as its own flag and refuses values other than true and false.
    shell
        .cmd("trunk")
        .args(["build", "--cargo-profile", profile, &release])
        .env("NO_COLOR", "true")
        .run("the lines above say which file; `cargo xtask help` lists the pinned versions of the tools")
}

/// Everything the page is made of.
fn inputs(shell: &Shell) -> Result<Vec<PathBuf>> {
    let packages = Packages::read(shell)?;
    let mut inputs = Vec::new();
    for folder in packages.folders_behind(packages.of_page(&shell.root)) {
        inputs.extend(files::files_below(folder)?);
    }
    for name in ["Cargo.toml", "Cargo.lock", "Trunk.toml", "rust-toolchain.toml", "xtask/src/pins.rs"] {
        inputs.push(shell.root.join(name));
    }
    inputs.sort();
    inputs.dedup();
    Ok(inputs)
}
