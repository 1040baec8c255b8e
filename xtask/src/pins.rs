//! The one table of what xtask fetches: which program, which version, and what it is for.
//! Crates are pinned by Cargo.lock and the toolchain by rust-toolchain.toml; neither is repeated here.

use crate::failure::{Doing, Failure, Result};
use std::path::Path;

/// Where a program comes from, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `cargo install`, with the crate's own lock file.
    CargoLocked,
    /// The same, without the crate's default features.
    CargoLockedBare,
    /// `cargo install` without it.
    Cargo,
    /// `npm install`.
    Npm,
    /// `pip install`, into an environment of its own.
    Pip,
}

/// A program or file that is fetched when it is missing.
#[derive(Debug, Clone, Copy)]
pub struct Pin {
    /// The package's name where it comes from.
    pub package: &'static str,
    /// The version that is fetched, and the only one that is accepted.
    pub version: &'static str,
    /// The program that the package brings, or the file where it is not a program.
    pub brings: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// Why it is needed, as a person reads it.
    pub why: &'static str,
}

/// Builds the page. 0.22 needs a newer compiler than rust-toolchain.toml names.
pub const TRUNK: Pin = Pin {
    package: "trunk",
    version: "0.21.14",
    brings: "trunk",
    source: Source::CargoLocked,
    why: "builds the page from the web crate",
};

/// Must equal the wasm-bindgen crate in Cargo.lock. Its own lock file names a withdrawn crate, so it goes without.
pub const WASM_BINDGEN: Pin = Pin {
    package: "wasm-bindgen-cli",
    version: "0.2.130",
    brings: "wasm-bindgen",
    source: Source::Cargo,
    why: "writes the JavaScript between the page and its wasm",
};

/// Debian's package is version 108, which does not read what the compiler writes today.
pub const BINARYEN: Pin = Pin {
    package: "binaryen",
    version: "132.0.0",
    brings: "wasm-opt",
    source: Source::Npm,
    why: "makes the page's wasm smaller",
};

/// A program of one file, fetched without its install script, which only saves it a start of Node.
pub const ESBUILD: Pin = Pin {
    package: "esbuild",
    version: "0.28.2",
    brings: "esbuild",
    source: Source::Npm,
    why: "makes the page's scripts and style sheets smaller",
};

/// A file, not a program: the tests load it into the page.
pub const AXE: Pin = Pin {
    package: "axe-core",
    version: "4.14.1",
    brings: "axe.min.js",
    source: Source::Npm,
    why: "checks the page for accessibility faults",
};

/// Without its own server, its watching of files, and its search.
pub const MDBOOK: Pin = Pin {
    package: "mdbook",
    version: "0.5.4",
    brings: "mdbook",
    source: Source::CargoLockedBare,
    why: "makes a page that shows the calculator, for the tests",
};

/// What it needs stands with its versions in tests/hosts/mkdocs/requirements.txt; a test compares this one.
pub const MKDOCS: Pin = Pin {
    package: "mkdocs",
    version: "1.6.1",
    brings: "mkdocs",
    source: Source::Pip,
    why: "makes another one, where Python is installed",
};

/// A C compiler for every system, where this one has none; its version stands in xtask/zig.txt, too.
pub const ZIG: Pin = Pin {
    package: "ziglang",
    version: "0.17.1",
    brings: "zig",
    source: Source::Pip,
    why: "compiles C for other systems, where Python is installed",
};

/// A library: CUDA C++ to PTX. Of 12.4, as what it writes is read by drivers from 550 on; its version stands in
/// xtask/nvrtc.txt, too.
pub const NVRTC: Pin = Pin {
    package: "nvidia-cuda-nvrtc-cu12",
    version: "12.4.127",
    brings: "nvrtc",
    source: Source::Pip,
    why: "compiles the CUDA kernels, where Python is installed",
};

/// Newer than the compiler, as 12.4 does not know sm_120. Stands in xtask/nvrtc.txt with it.
pub const PTXAS: Pin = Pin {
    package: "nvidia-cuda-nvcc-cu12",
    version: "12.9.86",
    brings: "ptxas",
    source: Source::Pip,
    why: "assembles them for every architecture, to see what they take",
};

/// The newest assembler, as drivers from 580 on have one of its kind: what fits the registers of one release may spill
/// with another. Of what it depends on nothing is needed to assemble. Stands in xtask/nvrtc.txt too.
pub const PTXAS_NEWEST: Pin = Pin {
    package: "nvidia-cuda-nvcc",
    version: "13.5.37",
    brings: "ptxas",
    source: Source::Pip,
    why: "assembles them as newer drivers do, to see that nothing is spilled",
};

/// All of them, for `cargo xtask help`.
pub const ALL: &[Pin] = &[TRUNK, WASM_BINDGEN, BINARYEN, ESBUILD, AXE, MDBOOK, MKDOCS, ZIG, NVRTC, PTXAS, PTXAS_NEWEST];

impl Pin {
    /// The version as the program prints it: binaryen counts only majors.
    pub fn printed_version(&self) -> &'static str {
        if self.package == BINARYEN.package { self.version.trim_end_matches(".0.0") } else { self.version }
    }
}

/// The version of `package` in the text of a Cargo.lock, the first where there are several.
pub fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

/// Fails where Cargo.lock or Trunk.toml name other versions than the table above.
pub fn check(root: &Path) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).doing(|| format!("read {name}"));
    check_texts(&read("Cargo.lock")?, &read("Trunk.toml")?)
}

fn check_texts(lock: &str, trunk: &str) -> Result<()> {
    let locked = locked_version(lock, "wasm-bindgen");
    if locked.is_some_and(|locked| locked != WASM_BINDGEN.version) {
        return Err(Failure::new(format!(
            "Cargo.lock has wasm-bindgen {}, xtask/src/pins.rs has {}: the page would not start",
            locked.unwrap_or("none"),
            WASM_BINDGEN.version
        ))
        .hint(format!(
            "run `cargo update -p wasm-bindgen --precise {}`, or change the table and Trunk.toml",
            WASM_BINDGEN.version
        )));
    }
    let line = format!("wasm_bindgen = \"{}\"", WASM_BINDGEN.version);
    if trunk.lines().any(|found| found.trim() == line) {
        return Ok(());
    }
    Err(Failure::new(format!("Trunk.toml does not say `{line}`"))
        .hint("Trunk.toml and xtask/src/pins.rs must name the same versions"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\nsource = \"x\"\n";
    const TRUNK: &str = "[tools]\nwasm_bindgen = \"0.2.130\"\n";

    #[test]
    fn the_repository_agrees_with_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
        check(root).expect("one version everywhere");
    }

    #[test]
    fn python_packages_and_what_they_need_have_one_version_each() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
        for (pin, list) in [
            (MKDOCS, "tests/hosts/mkdocs/requirements.txt"),
            (ZIG, "xtask/zig.txt"),
            (NVRTC, "xtask/nvrtc.txt"),
            (PTXAS, "xtask/nvrtc.txt"),
            (PTXAS_NEWEST, "xtask/nvrtc.txt"),
        ] {
            let list = std::fs::read_to_string(root.join(list)).expect("a list");
            let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(lines.contains(&&*format!("{}=={}", pin.package, pin.version)), "{lines:?}");
            assert!(lines.iter().all(|line| line.contains("==")), "{lines:?}");
        }
    }

    #[test]
    fn another_wasm_bindgen_in_the_lock_file_is_refused() {
        check_texts(LOCK, TRUNK).expect("the same version");
        let error = check_texts(&LOCK.replace("0.2.130", "0.2.131"), TRUNK).expect_err("another version");
        assert!(error.to_string().contains("cargo update -p wasm-bindgen --precise 0.2.130"), "{error}");
    }

    #[test]
    fn another_wasm_bindgen_in_trunk_toml_is_refused() {
        let error = check_texts(LOCK, &TRUNK.replace("130", "131")).expect_err("another version");
        assert!(error.to_string().contains("0.2.130"), "{error}");
    }
}
