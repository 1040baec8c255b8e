//! The table of everything that xtask downloads: program, version and purpose. Crates are pinned by Cargo.lock and the
//! toolchain by rust-toolchain.toml; neither is repeated here.

use crate::failure::{Failure, IoContext, Result};
use std::path::Path;

/// The source of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `cargo install` with the crate's own lock file, and without its default features.
    CargoLockedBare,
    /// `cargo install` without the crate's lock file and its default features.
    CargoBare,
    /// `npm install`.
    Npm,
    /// `pip install` into a separate environment.
    Pip,
}

/// A program or file that is downloaded if it is missing.
#[derive(Debug, Clone, Copy)]
pub struct Pin {
    /// The package's name at its source.
    pub package: &'static str,
    /// The only accepted version.
    pub version: &'static str,
    /// The program or file that the package provides.
    pub brings: &'static str,
    pub source: Source,
    /// Its purpose, for display.
    pub why: &'static str,
}

/// Must equal the wasm-bindgen crate in Cargo.lock. Its own lock file names a yanked crate, so it is not used. Its
/// default feature is TLS for its test runner, which takes longer to compile than wasm-bindgen.
pub const WASM_BINDGEN: Pin = Pin {
    package: "wasm-bindgen-cli",
    version: "0.2.130",
    brings: "wasm-bindgen",
    source: Source::CargoBare,
    why: "generates the JavaScript between the pages and their wasm",
};

/// Debian's package is version 108, which does not read current compiler output.
pub const BINARYEN: Pin = Pin {
    package: "binaryen",
    version: "132.0.0",
    brings: "wasm-opt",
    source: Source::Npm,
    why: "optimizes the pages' wasm",
};

/// A single-file program, downloaded without its install script, which only avoids a start of Node.
pub const ESBUILD: Pin = Pin {
    package: "esbuild",
    version: "0.28.2",
    brings: "esbuild",
    source: Source::Npm,
    why: "minifies the pages' scripts and style sheets",
};

/// A file, not a program: the tests load it into the page.
pub const AXE: Pin = Pin {
    package: "axe-core",
    version: "4.14.1",
    brings: "axe.min.js",
    source: Source::Npm,
    why: "checks the pages for accessibility errors",
};

/// Without its server, file watching and search.
pub const MDBOOK: Pin = Pin {
    package: "mdbook",
    version: "0.5.4",
    brings: "mdbook",
    source: Source::CargoLockedBare,
    why: "builds the documentation, and a test page that embeds the calculator",
};

/// tests/hosts/mkdocs/requirements.txt pins its dependencies; a test compares this version.
pub const MKDOCS: Pin = Pin {
    package: "mkdocs",
    version: "1.6.1",
    brings: "mkdocs",
    source: Source::Pip,
    why: "builds another test page, if Python is installed",
};

/// A library that compiles CUDA C++ to PTX. Version 12.4, because drivers from 550 on accept its output;
/// xtask/nvrtc.txt has the same version.
pub const NVRTC: Pin = Pin {
    package: "nvidia-cuda-nvrtc-cu12",
    version: "12.4.127",
    brings: "nvrtc",
    source: Source::Pip,
    why: "compiles the CUDA kernels, if Python is installed",
};

/// Newer than the compiler, as 12.4 does not know sm_120. Also in xtask/nvrtc.txt.
pub const PTXAS: Pin = Pin {
    package: "nvidia-cuda-nvcc-cu12",
    version: "12.9.86",
    brings: "ptxas",
    source: Source::Pip,
    why: "assembles them for every architecture, to count registers",
};

/// The newest assembler, similar to that of drivers from 580 on. A kernel may fit the registers with one release and
/// spill with another. Its dependencies are not needed to assemble. Also in xtask/nvrtc.txt.
pub const PTXAS_NEWEST: Pin = Pin {
    package: "nvidia-cuda-nvcc",
    version: "13.5.37",
    brings: "ptxas",
    source: Source::Pip,
    why: "assembles them as newer drivers do, to find register spills",
};

/// All downloads, for `cargo xtask help`.
pub const ALL: &[Pin] = &[WASM_BINDGEN, BINARYEN, ESBUILD, AXE, MDBOOK, MKDOCS, NVRTC, PTXAS, PTXAS_NEWEST];

impl Pin {
    /// Returns the version as the program prints it; binaryen prints only the major version.
    pub fn printed_version(&self) -> &'static str {
        if self.package == BINARYEN.package { self.version.trim_end_matches(".0.0") } else { self.version }
    }
}

/// Returns the first version of `package` in the text of a Cargo.lock.
pub fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

/// Checks that Cargo.lock has the version of the table above.
pub fn check(root: &Path) -> Result<()> {
    check_lock(&std::fs::read_to_string(root.join("Cargo.lock")).doing(|| "read Cargo.lock".into())?)
}

fn check_lock(lock: &str) -> Result<()> {
    match locked_version(lock, "wasm-bindgen") {
        Some(locked) if locked != WASM_BINDGEN.version => Err(Failure::new(format!(
            "Cargo.lock has wasm-bindgen {locked}, xtask/src/pins.rs has {}: the page would not start",
            WASM_BINDGEN.version
        ))
        .hint(format!("run `cargo update -p wasm-bindgen --precise {}`, or change the table", WASM_BINDGEN.version))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\nsource = \"x\"\n";

    #[test]
    fn the_repository_agrees_with_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace");
        check(root).expect("one version everywhere");
    }

    #[test]
    fn python_packages_and_what_they_need_have_one_version_each() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace");
        for (pin, list) in [
            (MKDOCS, "tests/hosts/mkdocs/requirements.txt"),
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
        check_lock(LOCK).expect("the same version");
        let error = check_lock(&LOCK.replace("0.2.130", "0.2.131")).expect_err("another version");
        assert!(error.to_string().contains("cargo update -p wasm-bindgen --precise 0.2.130"), "{error}");
    }
}
