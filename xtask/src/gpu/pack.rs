//! `cargo xtask gpu --pack FOLDER`: collects what a machine with a GPU needs to run all steps without Rust or this
//! checkout.

use super::programs::{NAMES, build};
use crate::{
    failure::{Failure, IoContext, Result},
    files,
    shell::{Shell, note, step},
};
use std::{fs, path::Path};

/// The size limit of a pack, which is copied to machines that are available for minutes.
const BYTES_MAX: u64 = 60 << 20;
/// The pack's start script. Copying the directory may have lost the executable bits.
const SCRIPT: &str = r#"#!/bin/sh
# Measures this machine's GPU: sh run.sh [OPTIONS], as `cargo xtask gpu` takes them; lines go to bench/results here.
cd "$(dirname "$0")" && chmod +x headroom xtask ops cuda_ops && exec ./xtask gpu "$@"
"#;

/// Fills the directory and prints its contents.
pub fn run(shell: &Shell, folder: &Path) -> Result<()> {
    let built = build(shell)?;
    step("pack", "stripped copies, and the script that begins", || {
        files::remake(folder)?;
        for name in NAMES {
            let from = built.iter().find(|(built, _)| built == name).map(|(_, path)| path);
            let from = from.ok_or_else(|| Failure::new(format!("cargo built no {name}")))?;
            let to = folder.join(name);
            fs::copy(from, &to).doing(|| format!("copy {} to {}", from.display(), to.display()))?;
            if shell.cmd("strip").args([to.display().to_string()]).read().is_none() {
                note(&format!("{name} is not stripped, because `strip` is missing; the pack is larger"));
            }
        }
        fs::write(folder.join("run.sh"), SCRIPT).doing(|| "write run.sh".into())
    })?;
    let mut whole = 0;
    let mut newest = None;
    for name in NAMES {
        let bytes = fs::read(folder.join(name)).doing(|| format!("read {name}"))?;
        let needs = newest_glibc(&bytes);
        note(&format!("{name:<9} {:>6.1} MiB, glibc {}", mebibytes(bytes.len() as u64), shown(needs)));
        whole += bytes.len() as u64;
        newest = newest.max(needs);
    }
    note(&format!(
        "in all    {:>6.1} MiB; it needs x86-64 Linux, glibc {} and a driver",
        mebibytes(whole),
        shown(newest)
    ));
    println!("{}", folder.display());
    if whole > BYTES_MAX {
        return Err(Failure::new(format!("the pack has {whole} bytes, and may have {BYTES_MAX}")));
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn shown(version: Option<(u32, u32)>) -> String {
    version.map_or_else(|| "of any version".to_owned(), |(major, minor)| format!("{major}.{minor}"))
}

/// Returns the newest glibc version that a program requires: the loader finds it as `GLIBC_2.34` among the program's
/// strings.
fn newest_glibc(program: &[u8]) -> Option<(u32, u32)> {
    const NAME: &[u8] = b"GLIBC_";
    let starts = program.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    let versions = starts.filter_map(|(start, _)| {
        let rest = &program[start + NAME.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let (major, minor) = std::str::from_utf8(&rest[..end]).ok()?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts_by_its_numbers() {
        assert_eq!(newest_glibc(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"), Some((2, 34)));
        assert_eq!(newest_glibc(b"\0nothing\0"), None);
    }

    #[test]
    fn the_script_names_all_that_is_packed() {
        for name in NAMES {
            assert!(SCRIPT.contains(&format!(" {name}")), "{name}");
        }
    }
}
