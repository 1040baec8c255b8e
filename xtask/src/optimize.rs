//! Writes a page's program so that it compresses well.

use crate::{
    failure::{Failure, Result},
    files,
    shell::Shell,
};
use std::path::Path;

/// What compresses well is not what is short: functions that are inlined repeat themselves, and data that is packed leaves
/// out its zeros one by one. Found by trying each pass of binaryen 132 with and without; 236,600 bytes of brotli become
/// 231,200, where `-Oz` alone gives 235,400.
const PASSES: [&str; 13] = [
    "-O2",
    "--flexible-inline-max-function-size=4",
    "--one-caller-inline-max-function-size=0",
    "--always-inline-max-function-size=0",
    "--skip-pass=memory-packing",
    "--skip-pass=remove-unused-brs",
    "--skip-pass=simplify-locals-nostructure",
    "--skip-pass=simplify-locals",
    "--skip-pass=merge-blocks",
    // The same function of the framework for another type is much the same code.
    "--reorder-functions-by-name",
    "--strip-debug",
    "--strip-producers",
    // Said to tools, and to no browser.
    "--strip-target-features",
];

/// Optimizes the one program in a folder.
pub fn program_in(shell: &Shell, folder: &Path) -> Result<()> {
    let is_program = |file: &&std::path::PathBuf| file.extension().is_some_and(|ending| ending == "wasm");
    let all = files::files_below(folder)?;
    let Some(program) = all.iter().find(is_program) else {
        return Err(Failure::new(format!("{} holds no program", folder.display()))
            .hint("does the page's HTML still have its link data-trunk rel=\"rust\"?"));
    };
    let path = program.display().to_string();
    shell
        .cmd("wasm-opt")
        .args(PASSES)
        .args([&*path, "-o", &path])
        .run("the lines above say what it does not read in that file")
}
