//! What the tests of the page take, and that they say what is missing.

use headroom_tests::skips::skip;
use std::{env, path::PathBuf};

/// What `cargo xtask test` hands over.
#[derive(Debug)]
pub struct Means {
    /// The program with the page in it.
    pub headroom: PathBuf,
    /// The page as files.
    pub dist: PathBuf,
    /// The browser.
    pub chromium: PathBuf,
    /// What steers the browser.
    pub chromedriver: PathBuf,
}

impl Means {
    /// Everything, or the skip is counted.
    pub fn of(test: &str) -> Option<Self> {
        Some(Self {
            headroom: named(test, "HEADROOM_BIN")?,
            dist: named(test, "HEADROOM_DIST")?,
            chromium: named(test, "CHROMIUM")?,
            chromedriver: named(test, "CHROMEDRIVER")?,
        })
    }
}

/// The path in a variable, or the skip is counted.
pub fn named(test: &str, variable: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        skip(test, &format!("{variable} is not set; `cargo xtask test` finds or builds what it names"));
    }
    path
}
