//! Directory of a run's checkpoints. A new run replaces no checkpoint, and shares no directory with another run.

use std::path::{Path, PathBuf};

use headroom_planner::nanogpt::Settings;

use super::{Error, STORIES_NAME, options::Request};
use crate::cli::print;
use headroom_train::{
    checkpoint::{self, CheckpointError, Store},
    settings::{InitFrom, RunSettings},
};

/// Number of directory names to try for a new run without `out_dir`.
const FOLDERS_MAX: u32 = 10_000;

/// Choice of a run's directory.
#[derive(Debug)]
pub struct RunFolder {
    /// Directory without a number.
    base: PathBuf,
    /// Whether the run must find no checkpoint in its directory.
    is_new: bool,
    /// Whether no key names the directory, so that the run may take another one.
    is_free_to_move: bool,
    /// Whether the run saves to another directory than its keys name.
    pub is_moved: bool,
}

/// The use of a directory that prevents a new run.
#[derive(Debug)]
enum DirectoryUse {
    Checkpoint(PathBuf),
    /// An active run saves to it.
    Busy,
}

fn use_of(dir: &Path) -> Option<DirectoryUse> {
    let busy = || checkpoint::is_busy(dir).then_some(DirectoryUse::Busy);
    checkpoint::existing(dir).map(DirectoryUse::Checkpoint).or_else(busy)
}

impl RunFolder {
    /// Chooses the directory of a run. A new run without `out_dir` takes the next free directory. `is_chosen` states
    /// that the directory was found automatically, to resume the run there.
    ///
    /// # Errors
    /// [`CheckpointError::Exists`]: the named directory has a checkpoint. [`CheckpointError::Folder`]: it is another kind
    /// of file.
    pub fn choose(
        request: &Request,
        settings: &Settings,
        run: &mut RunSettings,
        is_chosen: bool,
    ) -> Result<Self, Error> {
        checkpoint::check_is_folder(&run.out_dir)?;
        let is_new = run.init_from != InitFrom::Resume && !run.eval_only && !request.force;
        let named = settings.values.get("out_dir").map(|setting| settings.source_name(&setting.origin));
        let is_free_to_move = is_new && named.is_none_or(|source| source == STORIES_NAME);
        let mut folder = Self { base: run.out_dir.clone(), is_new, is_free_to_move, is_moved: is_chosen };
        if is_new && let Some(found) = use_of(&run.out_dir) {
            folder.leave(found, run)?;
        }
        Ok(folder)
    }

    /// Opens the directory. Another run may have taken it since it was chosen.
    ///
    /// # Errors
    /// The named directory is taken, or cannot be used.
    pub fn open(&mut self, run: &mut RunSettings) -> Result<Store, Error> {
        loop {
            let taken = match Store::open(&run.out_dir) {
                Ok(store) => match checkpoint::existing(&run.out_dir).filter(|_| self.is_new) {
                    None => return Ok(store),
                    Some(path) => DirectoryUse::Checkpoint(path),
                },
                Err(CheckpointError::Busy { .. }) if self.is_free_to_move => DirectoryUse::Busy,
                Err(error) => return Err(error.into()),
            };
            self.leave(taken, run)?;
        }
    }

    /// Moves the run to the next free directory. A named directory is left as it is: a checkpoint there is an error,
    /// and an active run is one when the directory is opened.
    fn leave(&mut self, why: DirectoryUse, run: &mut RunSettings) -> Result<(), Error> {
        let said = match why {
            DirectoryUse::Checkpoint(path) if !self.is_free_to_move => {
                return Err(CheckpointError::Exists { path }.into());
            }
            DirectoryUse::Busy if !self.is_free_to_move => return Ok(()),
            DirectoryUse::Checkpoint(_) => "has the checkpoint of another run",
            DirectoryUse::Busy => "is in use by another run",
        };
        let numbered = |n| {
            let mut name = self.base.clone().into_os_string();
            name.push(format!("-{n}"));
            PathBuf::from(name)
        };
        let free = (2..=FOLDERS_MAX).map(numbered).find(|folder| use_of(folder).is_none());
        let free = free.ok_or_else(|| CheckpointError::Busy { dir: self.base.clone() })?;
        print::note(&format!("{} {said}. This run saves to {}.\n", run.out_dir.display(), free.display()));
        (run.out_dir, self.is_moved) = (free, true);
        Ok(())
    }
}
