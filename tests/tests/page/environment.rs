//! The programs and files that the page's tests need. A missing one is reported as a skip.

use headroom_harness::skip;
use std::{env, path::PathBuf};

/// The paths that `cargo xtask test` passes in variables.
#[derive(Debug)]
pub struct Means {
    /// The program with the page in it.
    pub headroom: PathBuf,
    /// The page as files.
    pub dist: PathBuf,
    /// The browser.
    pub chromium: PathBuf,
    /// The browser's WebDriver server.
    pub chromedriver: PathBuf,
}

impl Means {
    /// Returns all paths, or counts a skip.
    pub fn of(test: &str) -> Option<Self> {
        Some(Self {
            headroom: named(test, "HEADROOM_BIN")?,
            dist: named(test, "HEADROOM_DIST")?,
            chromium: named(test, "CHROMIUM")?,
            chromedriver: named(test, "CHROMEDRIVER")?,
        })
    }
}

/// Returns the path in a variable, or counts a skip.
pub fn named(test: &str, variable: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        skip(test, &format!("{variable} is not set; `cargo xtask test` finds or builds what it names"));
    }
    path
}
