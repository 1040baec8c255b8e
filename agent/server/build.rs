//! Watches the built page, so that a page built after the program is in the program's next build.

use std::fs;

fn main() {
    // Cargo treats a missing watched path as changed and would rebuild the crate each time. An empty directory avoids
    // this before the page is built. If it cannot be created, the next full build finds the page.
    let _ = fs::create_dir_all("../../dist");
    println!("cargo::rerun-if-changed=../../dist");
}
