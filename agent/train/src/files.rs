//! Atomic replacement of files: write a temporary file beside the target, sync it, and rename it over the old one.
//!
//! The operations on a directory are a trait, so that a test can make the disk fail at any step.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use headroom_agent_core::folders::private_file;

/// Bytes per write to the system.
const BUFFER_BYTES: usize = 1 << 20;

/// The directory operations that [`replace`] needs.
pub trait Folder {
    /// An open file that is being written.
    type File: Write;

    /// Creates a file, or truncates an existing one.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Returns once the file's bytes survive a power loss.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    /// Renames a file. A process that opens the new name finds either the old file or the new one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Returns once the directory's entries survive a power loss.
    fn sync_names(&self) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A directory that supports a second name for a file.
pub trait Links: Folder {
    /// Gives a file a second, new name. Copies the file only if the file system has no hard links.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
}

/// A directory of this machine.
#[derive(Clone, Debug)]
pub struct Disk {
    pub dir: PathBuf,
    /// Creates the file at a path, or truncates an existing one.
    create: fn(&Path) -> io::Result<File>,
}

impl Disk {
    /// Returns a directory whose new files have the default mode.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::creating(dir, |path| File::create(path))
    }

    /// Returns a directory whose new files only their owner can read.
    pub fn private(dir: impl Into<PathBuf>) -> Self {
        Self::creating(dir, create_private)
    }

    /// Returns a directory whose new files `create` creates.
    pub fn creating(dir: impl Into<PathBuf>, create: fn(&Path) -> io::Result<File>) -> Self {
        Self { dir: dir.into(), create }
    }
}

/// Creates a file that only its owner can read, in place of an existing one.
///
/// # Errors
/// The existing file cannot be removed, or the new one cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    // A leftover file may have been created with other permissions.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` refuses a file that another user created in between.
    private_file().create_new(true).open(path)
}

impl Folder for Disk {
    type File = File;

    fn create(&self, name: &str) -> io::Result<File> {
        (self.create)(&self.dir.join(name))
    }

    fn sync(&self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        // Windows cannot open a directory as a file; its renames are written through.
        if cfg!(unix) { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }
}

impl Links for Disk {
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.dir.join(from), self.dir.join(to));
        if fs::hard_link(&from, &to).is_ok() {
            return Ok(());
        }
        // FAT and some network file systems have no hard links.
        fs::copy(from, &to)?;
        File::options().write(true).open(to)?.sync_all()
    }
}

/// Suffix of an unfinished file's name.
const UNFINISHED: &str = ".tmp";

/// Returns the name of a file while this process writes it.
pub fn unfinished_name(name: &str) -> String {
    format!("{name}.{}{UNFINISHED}", std::process::id())
}

/// Returns the name of one of several files that this process writes at one time.
fn numbered_name(name: &str, number: usize) -> String {
    format!("{name}.{}{number}{UNFINISHED}", std::process::id())
}

/// Replaces a file, or creates it. On failure the old file is unchanged and nothing of the new one remains.
///
/// # Errors
/// An error of the system. If syncing the directory fails, the new file may already be in place.
pub fn replace<F: Folder>(
    folder: &F,
    name: &str,
    write: impl FnOnce(&mut BufWriter<F::File>) -> io::Result<()>,
) -> io::Result<()> {
    let unfinished = unfinished_name(name);
    let written = write_out(folder, &unfinished, write).and_then(|()| folder.rename(&unfinished, name));
    if let Err(error) = written {
        // Its bytes may be what fills the disk. If it cannot be removed now, the next start tries again.
        let _ = folder.remove(&unfinished);
        return Err(error);
    }
    folder.sync_names()
}

/// Gives the file `name` the second name `kept`, and replaces the file that has that name. If the process is killed,
/// `kept` is either the old file or the new one.
///
/// # Errors
/// The file system supports no second name and has no space for a copy. Both files are then unchanged.
pub fn keep<F: Links>(folder: &F, name: &str, kept: &str) -> io::Result<()> {
    let unfinished = unfinished_name(kept);
    let linked = folder.link(name, &unfinished).and_then(|()| folder.rename(&unfinished, kept));
    // The rename does nothing if both names are already links to one file. Otherwise there is nothing to remove.
    let _ = folder.remove(&unfinished);
    linked
}

/// Checks that a directory can hold `n_files` more files at one time, by writing them and removing them. Their names are
/// those of unfinished files of `name`.
///
/// # Errors
/// The system refuses to create, write, sync or remove a file.
pub fn probe<F: Folder>(folder: &F, name: &str, n_files: usize) -> io::Result<()> {
    let mut created = vec![];
    let mut write_one = |number| {
        let name = numbered_name(name, number);
        let file = folder.create(&name).map_err(|error| no_inode(error, n_files))?;
        created.push(name);
        fill(folder, file, |out| out.write_all(b"probe"))
    };
    let written = (0..n_files).try_for_each(&mut write_one);
    let removed = created.iter().map(|name| folder.remove(name)).fold(Ok(()), io::Result::and);
    written.and(removed)
}

/// Adds the reason to an error of creating an empty file, which needs an inode and no other space.
fn no_inode(error: io::Error, n_files: usize) -> io::Error {
    if !is_disk_full(&error) {
        return error;
    }
    let files = if n_files == 1 { "1 more file".to_owned() } else { format!("{n_files} more files") };
    io::Error::new(error.kind(), format!("the file system has no inodes for {files}: {error}"))
}

fn write_out<F: Folder>(
    folder: &F,
    name: &str,
    write: impl FnOnce(&mut BufWriter<F::File>) -> io::Result<()>,
) -> io::Result<()> {
    fill(folder, folder.create(name)?, write)
}

fn fill<F: Folder>(
    folder: &F,
    file: F::File,
    write: impl FnOnce(&mut BufWriter<F::File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        // Prevents a second flush on drop.
        drop(out.into_parts());
        return Err(error);
    }
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    folder.sync(&mut file)
}

/// Removes the unfinished files of `name` that killed processes left behind. No process may be writing it.
///
/// # Errors
/// The directory cannot be listed, or a file cannot be removed.
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

/// Returns whether [`unfinished_name`] made this name.
fn is_unfinished(file: &str, name: &str) -> bool {
    let process = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(UNFINISHED));
    process.is_some_and(|process| !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether an error means a full disk, under any of the system's names for it.
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
        assert!(is_unfinished(&numbered_name("ckpt.safetensors", 2), "ckpt.safetensors"));
        for other in ["ckpt.safetensors", "ckpt.safetensors.tmp", "ckpt.safetensors.old.tmp", "my.safetensors.7.tmp"] {
            assert!(!is_unfinished(other, "ckpt.safetensors"), "{other}");
        }
    }
}
