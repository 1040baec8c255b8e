//! How a test uses the library: a folder with a copy of it, and the scenario beside.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use crate::{FILE, Scenario};

/// The library as cargo built it: beside the executable of a test that names this package under `[dev-dependencies]`.
///
/// # Errors
/// It is not there, as where somebody moved the executable.
pub fn library() -> io::Result<PathBuf> {
    let name = format!("{}headroom_fake_nvml{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let executable = env::current_exe()?;
    // Tests lie in `deps`, and programs a folder above it.
    let folders = executable.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let mut paths = folders.map(|folder| folder.join(&name));
    paths
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("cargo built no {name} beside this test")))
}

/// A folder in which the library plays a scenario.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// Copies the library into a folder: a loader gives two paths two libraries, and a test its own. Symbols that are
    /// named are not in the copy.
    ///
    /// # Errors
    /// The folder cannot be written, or a symbol to be left out was never there.
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

    /// What is to be loaded.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }

    /// Plays another scenario from now on.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn play(&self, scenario: &Scenario) -> io::Result<()> {
        // Renamed into its place, so that nobody reads half of one.
        let new = self.folder.join("scenario.new");
        fs::write(&new, serde_json::to_vec_pretty(scenario)?)?;
        fs::rename(new, self.folder.join(FILE))
    }
}

/// Calls a symbol something else in the library's table of names, so that nobody finds it.
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
