//! A file that is there whole or not at all: written beside its place, made to last, and put in the place of the old one.
//!
//! What is asked of a folder is a trait, so that a test can take the disk away at any moment.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Bytes that go to the system at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What replacing a file asks of its folder.
pub trait Folder {
    /// A file that is being written.
    type File: Write;

    /// A new file, or an old one emptied.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Returns once the file's bytes will outlast a loss of power.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    /// Gives a file another's name; who opens that name finds the one or the other.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Returns once the names will outlast a loss of power.
    fn sync_names(&self) -> io::Result<()>;
    /// Takes a file away.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A folder whose files can have two names.
pub trait Links: Folder {
    /// Gives a file a second, new name, without a copy where the file system has hard links.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
}

/// A folder of this machine.
#[derive(Clone, Debug)]
pub struct Disk(pub PathBuf);

impl Folder for Disk {
    type File = File;

    fn create(&self, name: &str) -> io::Result<File> {
        File::create(self.0.join(name))
    }

    fn sync(&self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        // A folder is no file that can be opened on Windows, where renaming is written through.
        if cfg!(unix) { File::open(&self.0)?.sync_all() } else { Ok(()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }
}

impl Links for Disk {
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.0.join(from), self.0.join(to));
        if fs::hard_link(&from, &to).is_ok() {
            return Ok(());
        }
        // FAT and some network file systems have no hard links.
        fs::copy(from, &to)?;
        File::options().write(true).open(to)?.sync_all()
    }
}

/// What the name of an unfinished file ends with.
const UNFINISHED: &str = ".tmp";

/// The name of a file while this process writes it.
pub fn unfinished_name(name: &str) -> String {
    format!("{name}.{}{UNFINISHED}", std::process::id())
}

/// Writes a file in the place of the one that may be there. Where it fails, the old one is as it was, and nothing of
/// the new one is left.
///
/// # Errors
/// What the system says, also of the disk's last moment: after an error in it the new file may be in place already.
pub fn replace<F: Folder>(
    folder: &F,
    name: &str,
    write: impl FnOnce(&mut BufWriter<F::File>) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = unfinished_name(name);
    let written = write_out(folder, &unfinished, write).and_then(|()| folder.rename(&unfinished, name));
    if let Err(error) = written {
        // Its bytes may be what the disk lacks. Where it cannot be removed either, the next start tries again.
        let _ = folder.remove(&unfinished);
        return Err(error);
    }
    folder.sync_names()
}

/// Keeps the file `name` under the second name `kept` as well, in the place of the file that may have that name. A process
/// that is killed at any moment leaves the old file or the new one under `kept`.
///
/// # Errors
/// The file system takes no second name and has no room for a copy; both files are then as they were.
pub fn keep<F: Links>(folder: &F, name: &str, kept: &str) -> io::Result<()> {
    let unfinished = unfinished_name(kept);
    let linked = folder.link(name, &unfinished).and_then(|()| folder.rename(&unfinished, kept));
    // Renaming does nothing where both names are links to one file already. Otherwise there is nothing to remove.
    let _ = folder.remove(&unfinished);
    linked
}

/// Checks that files can be written to a folder, by writing one and removing it again.
///
/// # Errors
/// The system refuses to create, write, synchronise or remove the file.
pub fn probe<F: Folder>(folder: &F, name: &str) -> io::Result<()> {
    let unfinished = unfinished_name(name);
    let written = write_out(folder, &unfinished, |out| out.write_all(b"probe"));
    let removed = folder.remove(&unfinished);
    written.and(removed)
}

fn write_out<F: Folder>(
    folder: &F,
    name: &str,
    write: impl FnOnce(&mut BufWriter<F::File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, folder.create(name)?);
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        // Not flushed once more as it is dropped.
        drop(out.into_parts());
        return Err(error);
    }
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    folder.sync(&mut file)
}

/// Removes what writers of that file left that were killed. No writer may be at work.
///
/// # Errors
/// The folder cannot be listed, or a file not be removed.
pub fn remove_unfinished(folder: &Path, name: &str) -> io::Result<usize> {
    let mut n_removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_unfinished(&entry.file_name().to_string_lossy(), name) {
            fs::remove_file(entry.path())?;
            n_removed += 1;
        }
    }
    Ok(n_removed)
}

/// Whether a file's name is one that [`unfinished_name`] gave it.
fn is_unfinished(file: &str, name: &str) -> bool {
    let process = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(UNFINISHED));
    process.is_some_and(|process| !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether an error is want of space, by whichever name the system has for it.
pub fn is_disk_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_writer_left_is_unfinished() {
        assert!(is_unfinished(&unfinished_name("ckpt.safetensors"), "ckpt.safetensors"));
        for other in ["ckpt.safetensors", "ckpt.safetensors.tmp", "ckpt.safetensors.old.tmp", "my.safetensors.7.tmp"] {
            assert!(!is_unfinished(other, "ckpt.safetensors"), "{other}");
        }
    }
}
