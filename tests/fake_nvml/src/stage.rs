//! Use of the library by a test: a directory with a copy of it and the scenario beside.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use headroom_built_library::built_library;

use crate::{FILE, Scenario};

/// Returns the path of the built library. Cargo places it beside the executable of a test that has this package in
/// `[dev-dependencies]`.
///
/// # Errors
/// The library is not there, for example because the executable was moved.
pub fn library() -> io::Result<PathBuf> {
    built_library("headroom_fake_nvml")
}

/// Returns the symbols that read a property of a device.
pub fn device_symbols() -> impl Iterator<Item = &'static str> {
    let symbols = include_str!("calls/device.rs").split("extern \"C\" fn ").skip(1);
    symbols.filter_map(|rest| rest.split_once('(')).map(|(symbol, _)| symbol)
}

/// A directory with a copy of the library and its scenario.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// Copies the library to a directory. A loader treats different paths as different libraries, so each test has its
    /// own. The copy lacks the symbols in `without`.
    ///
    /// # Errors
    /// The directory cannot be written, or a symbol in `without` does not exist.
    pub fn new(folder: &Path, without: &[&str], scenario: &Scenario) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut bytes = fs::read(library()?)?;
        for symbol in without {
            hide(&mut bytes, symbol)?;
        }
        let stage = Self { folder: folder.to_owned() };
        fs::write(stage.library(), bytes)?;
        stage.play(scenario)?;
        Ok(stage)
    }

    /// Returns the path of the library to load.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }

    /// Replaces the scenario.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn play(&self, scenario: &Scenario) -> io::Result<()> {
        // Renamed, so that no reader sees a partial file.
        let new = self.folder.join("scenario.new");
        fs::write(&new, serde_json::to_vec_pretty(scenario)?)?;
        fs::rename(new, self.folder.join(FILE))
    }
}

/// Renames a symbol in the library's table of names, so that it cannot be found.
fn hide(bytes: &mut [u8], symbol: &str) -> io::Result<()> {
    let name = format!("\0{symbol}\0").into_bytes();
    let starts: Vec<usize> =
        bytes.windows(name.len()).enumerate().filter(|(_, window)| **window == name).map(|(start, _)| start).collect();
    if starts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("the library has no {symbol}")));
    }
    for start in starts {
        bytes[start + 1] = b'x';
    }
    Ok(())
}
