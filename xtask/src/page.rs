//! Builds the page into `dist`: Trunk, then a compressed copy of each file beside it.

use crate::{
    bundle,
    compress::{self, Effort},
    failure::{Doing, Result},
    files, optimize,
    packages::Packages,
    shell::{Shell, note, step},
    texts, tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

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
    let dist = shell.root.join("dist");
    // Trunk empties the folder it writes to, so each page has one of its own at first.
    let apart = shell.target.join("xtask").join("pages");
    step("build the pages", "they are compiled to WebAssembly by Trunk; a minute or two from nothing", || {
        for page in PAGES {
            let folder = apart.join(page);
            trunk(shell, build, page, &folder)?;
            if build == Build::Release && tools.optimizers {
                optimize::program_in(shell, &folder)?;
            }
        }
        files::remake(&dist)?;
        for page in PAGES {
            files::copy_below(&apart.join(page), &dist)?;
            // Trunk calls every page index.html; the first one keeps that name, and so comes last.
            let (from, to) = (dist.join("index.html"), dist.join(page));
            fs::rename(&from, &to).doing(|| format!("name {}", to.display()))?;
        }
        Ok(())
    })?;
    step(
        "bundle the pages",
        "one style sheet instead of many, the texts of each language; small scripts where Node is installed",
        || {
            for page in PAGES {
                bundle::style_sheets_of(&dist, page)?;
                texts::add_to(&dist, page)?;
            }
            texts::add_of_worker(&dist)?;
            bundle::make_small(shell, &dist, build == Build::Release && tools.optimizers)
        },
    )?;
    step("compress the page", "it is sent as it lies, so no viewer costs the server anything", || {
        compress::folder(&dist, if build == Build::Release { Effort::Most } else { Effort::Little })
    })?;
    files::write_stamp(&stamp, &digest)
}

/// Every page is a program of its own, and its HTML names it.
pub const PAGES: [&str; 5] = ["demo.html", "diagnose.html", "embed.html", "rig.html", "index.html"];

fn trunk(shell: &Shell, build: Build, page: &str, dist: &Path) -> Result<()> {
    // In its release mode wasm-bindgen leaves out what it would check at run time.
    let (profile, release) = match build {
        Build::Release => ("page", "--release=true"),
        Build::Fast => ("page-fast", "--release=false"),
    };
    // Trunk reads `NO_COLOR` as its own flag and refuses values other than true and false.
    shell
        .cmd("trunk")
        .args(["build", &format!("web/{page}"), "--dist", &dist.display().to_string()])
        .args(["--cargo-profile", profile, release])
        .env("NO_COLOR", "true")
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", without_paths(shell))
        .run("the lines above say which file; `cargo xtask help` lists the pinned versions of the tools")
}

/// The program names places in its sources where it fails; those of the machine it is built on are nobody's business.
fn without_paths(shell: &Shell) -> String {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok()).into_iter().flatten();
    let mut folders: Vec<PathBuf> = registries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.push(shell.root.clone());
    // A path with a blank would be two arguments.
    let plain = folders.iter().filter(|folder| !folder.to_string_lossy().contains(' '));
    plain.map(|folder| format!("--remap-path-prefix={}=", folder.display())).collect::<Vec<_>>().join(" ")
}

/// Everything the page is made of.
fn inputs(shell: &Shell) -> Result<Vec<PathBuf>> {
    let packages = Packages::read(shell)?;
    let mut inputs = Vec::new();
    for folder in packages.folders_behind(packages.of_page(&shell.root)) {
        inputs.extend(files::files_below(folder)?);
    }
    inputs.extend(files::files_below(&shell.root.join("vendor"))?);
    for name in ["Cargo.toml", "Cargo.lock", "Trunk.toml", "rust-toolchain.toml", "xtask/src/pins.rs"] {
        inputs.push(shell.root.join(name));
    }
    inputs.sort();
    inputs.dedup();
    Ok(inputs)
}
