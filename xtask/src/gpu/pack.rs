//! `cargo xtask gpu --pack FOLDER`: what a machine with a card needs to run all of it without Rust or this checkout.

use super::programs::{NAMES, build};
use crate::{
    failure::{Doing, Failure, Result},
    files,
    shell::{Shell, note, step},
};
use std::{fs, path::Path};

/// What a pack may take: it is carried to machines that are lent for minutes.
const BYTES_MAX: u64 = 60 << 20;
/// The script that begins it there. Who carried the folder may have lost which files are programs.
const SCRIPT: &str = r#"#!/bin/sh
# Measures this machine's card: sh run.sh [OPTIONS], as `cargo xtask gpu` takes them; lines go to bench/results here.
cd "$(dirname "$0")" && chmod +x headroom xtask ops cuda_ops && exec ./xtask gpu "$@"
"#;

/// Fills the folder, and says what is in it.
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
                note(&format!("{name} is not stripped: there is no `strip`, and the pack is larger for it"));
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

/// The newest version of glibc's symbols that a program names: by `GLIBC_2.34` among its strings, which is where the
/// loader finds it.
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
