//! Optimises a page's program for compressed size.

mod imports;

use crate::{
    failure::{Failure, IoContext, Result},
    shell::Shell,
};
use std::{fs, path::Path};

/// The smallest program is not the one that compresses best: inlined functions repeat code, and packed data omits runs
/// of zeros. Found by trying each pass of binaryen 132. The brotli size falls from 236,600 to 231,200 bytes; `-Oz`
/// alone gives 235,400.
const PASSES: [&str; 18] = [
    // 283,805 bytes become 283,319 with this pass, and 283,022 without `precompute`.
    "--optimize-added-constants-propagate",
    "--skip-pass=precompute",
    "-O2",
    // 280,466 bytes of brotli become 279,433.
    "--shrink-level=1",
    // The stack comes first in memory, so no data is in the first kilobyte. 279,834 bytes become 279,201.
    "--low-memory-unused",
    "--flexible-inline-max-function-size=4",
    "--one-caller-inline-max-function-size=0",
    "--always-inline-max-function-size=0",
    "--skip-pass=memory-packing",
    "--skip-pass=simplify-locals",
    // 280,137 bytes become 279,940.
    "--skip-pass=code-pushing",
    // Similar functions get the same numbers of locals: 282,135 bytes become 281,173.
    "--coalesce-locals",
    "--reorder-locals",
    // Instances of a generic framework function for different types are similar.
    "--reorder-functions-by-name",
    // 283,245 bytes become 283,148. `--converge` saves 299 more, and takes 24 s for each program instead of 9 s.
    "--remove-unused-names",
    "--strip-debug",
    "--strip-producers",
    // For tools only; browsers ignore it.
    "--strip-target-features",
];

/// Optimises a program and its script in place.
pub fn program(shell: &Shell, program: &Path, script: &Path) -> Result<()> {
    let path = program.display().to_string();
    shell
        .cmd("wasm-opt")
        .args(PASSES)
        .args([&*path, "-o", &path])
        .run("the lines above say what it does not read in that file")?;
    let bytes = fs::read(program).doing(|| format!("read {path}"))?;
    let text = fs::read_to_string(script).doing(|| format!("read {}", script.display()))?;
    let Some((bytes, text)) = imports::shortened(&bytes, &text) else {
        return Err(Failure::new(format!("cannot shorten the imports of {path}: they are not only functions"))
            .hint("see what wasm-bindgen imports now in xtask/src/optimize/imports.rs"));
    };
    fs::write(program, bytes).doing(|| format!("write {path}"))?;
    fs::write(script, text).doing(|| format!("write {}", script.display()))
}
