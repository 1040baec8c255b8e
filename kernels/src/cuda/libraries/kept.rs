//! What was chosen of a library, in a file: a run that is resumed takes the same, and has the same bits.
//!
//! What a library knows an algorithm by is good for the same version of it; which one is fastest depends on the card; and
//! the driver may change what it can. Each of these makes another file.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::cuda::{Card, driver};

/// What the names of such files begin with: whoever takes a run's folder away knows them by it.
pub const PREFIXES: [&str; 2] = ["cublaslt-", "cudnn-"];
/// What a file may have at most: some hundred times what a run leaves.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
pub enum KeptError {
    /// The disk, or who may use it.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// It holds something else.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How.
        reason: String,
    },
}

/// Whom it was chosen for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    card: String,
    capability: String,
    multiprocessors: u32,
    driver: u32,
    library: String,
    version: u64,
    workspace_bytes: u64,
}

impl Key {
    /// Of a card with its driver, a library by the name that files have of it, and the room that it has.
    pub fn new(card: &Card, driver: driver::Version, (library, version): (&str, u64), workspace_bytes: u64) -> Self {
        Self {
            card: card.name.clone(),
            capability: card.capability.to_string(),
            multiprocessors: card.multiprocessors,
            driver: driver.0,
            library: library.to_owned(),
            version,
            workspace_bytes,
        }
    }

    fn file_name(&self) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let card: String = self.card.chars().take(64).map(word).collect();
        let Self { multiprocessors, driver, library, version, .. } = self;
        format!("{library}-{card}-{multiprocessors}-{driver}-{version}.json")
    }
}

/// What was chosen, by the name of what it was chosen for.
pub type Choices<T> = BTreeMap<String, T>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents<T> {
    key: Key,
    algorithms: Choices<T>,
}

/// A file of choices.
#[derive(Clone, Debug)]
pub struct Kept {
    path: PathBuf,
    key: Key,
}

impl Kept {
    /// The one in a folder that is for these.
    pub fn new(folder: &Path, key: Key) -> Self {
        Self { path: folder.join(key.file_name()), key }
    }

    /// What it has; nothing where it is not there yet.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
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
            return Err(damaged("it is for another card, driver or library than its name says".to_owned()));
        }
        Ok(contents.algorithms)
    }

    /// Writes it, whole or not at all, and makes its folder where a run has saved nothing yet.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn write<T: Serialize>(&self, algorithms: Choices<T>) -> Result<(), KeptError> {
        let io = |reason| KeptError::Io { path: self.path.clone(), reason };
        let contents = Contents { key: self.key.clone(), algorithms };
        let text = serde_json::to_vec_pretty(&contents).map_err(|error| io(error.into()))?;
        // A name of this process's own: two may begin at once.
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        let made = self.path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = made.and_then(|()| fs::write(&new, text)).and_then(|()| fs::rename(&new, &self.path));
        written.map_err(|error| {
            // What is left of it is nobody's.
            let _: io::Result<()> = fs::remove_file(&new);
            io(error)
        })
    }
}
