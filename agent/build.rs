//! Watches the built page, so that a page built after the program is in the program's next build.

use std::fs;

fn main() {
    // Cargo takes a watched path that is missing for changed and would build the crate anew each time, so an empty
    // folder stands for a page not built yet. Where it cannot be made, the next full build finds the page.
    let _ = fs::create_dir_all("../dist");
    println!("cargo::rerun-if-changed=../dist");
}
