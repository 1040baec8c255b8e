//! Selected algorithms of a library, stored in a file: a resumed run uses the same ones and computes the same bits.
//!
//! An algorithm's identifier is valid for one version of the library. The fastest algorithm depends on the GPU, and the
//! supported algorithms may depend on the driver. Each combination has its own file.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::cuda::{Gpu, driver};

/// File name prefixes of such files, by which they are recognized when a run's directory is deleted.
pub const PREFIXES: [&str; 2] = ["cublaslt-", "cudnn-"];
/// Maximum size of a file in bytes, some hundred times the size after a run.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file of selected algorithms cannot be read or written.
#[derive(Debug, Error)]
pub enum KeptError {
    /// An I/O error, such as a full disk or missing permissions.
    #[error("{}: {reason}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The file has invalid contents, or contents for another key.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
}

/// The configuration that algorithms were selected for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    #[serde(rename = "card")]
    gpu: String,
    capability: String,
    multiprocessors: u32,
    driver: u32,
    library: String,
    version: u64,
    workspace_bytes: u64,
}

impl Key {
    /// Creates the key of a GPU and its driver, a library (its name in file names, and version) and a workspace size.
    pub fn new(gpu: &Gpu, driver: driver::Version, (library, version): (&str, u64), workspace_bytes: u64) -> Self {
        Self {
            gpu: gpu.name.clone(),
            capability: gpu.capability.to_string(),
            multiprocessors: gpu.multiprocessors,
            driver: driver.0,
            library: library.to_owned(),
            version,
            workspace_bytes,
        }
    }

    fn file_name(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let gpu: String = self.gpu.chars().take(64).map(word).collect();
        let Self { multiprocessors, driver, library, version, .. } = self;
        format!("{library}-{gpu}-{multiprocessors}-{driver}-{version}.json")
    }
}

/// Selected algorithms by the name of the operation.
pub type Choices<T> = BTreeMap<String, T>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents<T> {
    key: Key,
    algorithms: Choices<T>,
}

/// A file of selected algorithms.
#[derive(Clone, Debug)]
pub struct AlgorithmFile {
    path: PathBuf,
    key: Key,
}

impl AlgorithmFile {
    /// The file for `key` in the directory `folder`.
    pub fn new(folder: &Path, key: Key) -> Self {
        Self { path: folder.join(key.file_name()), key }
    }

    /// Reads the selected algorithms; empty if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Choices<T>, KeptError> {
        let io = |reason| KeptError::Io { path: self.path.clone(), reason };
        let damaged = |reason| KeptError::Damaged { path: self.path.clone(), reason };
        let file = match fs::File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Choices::new()),
            file => file.map_err(io)?,
        };
        let mut bytes = vec![];
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(damaged(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let contents: Contents<T> = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if contents.key != self.key {
            return Err(damaged("it is for another GPU, driver or library than its name says".to_owned()));
        }
        Ok(contents.algorithms)
    }

    /// Writes the file atomically, and creates the directory if the run has not saved anything yet.
    ///
    /// # Errors
    /// The directory cannot be created or the file cannot be written.
    pub fn write<T: Serialize>(&self, algorithms: Choices<T>) -> Result<(), KeptError> {
        let io = |reason| KeptError::Io { path: self.path.clone(), reason };
        let contents = Contents { key: self.key.clone(), algorithms };
        let text = serde_json::to_vec_pretty(&contents).map_err(|error| io(error.into()))?;
        // A name unique to this process: two runs may start at once.
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        let made = self.path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = made.and_then(|()| fs::write(&new, text)).and_then(|()| fs::rename(&new, &self.path));
        written.map_err(|error| {
            // The temporary file is useless now.
            let _: io::Result<()> = fs::remove_file(&new);
            io(error)
        })
    }
}
