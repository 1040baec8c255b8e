//! Where a run of the agent's lies: its folder among the owner's, its log, and what keeps a second process from a device.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use headroom_kernels::cuda::libraries;

use crate::{
    folders,
    train::{checkpoint, stop},
};

/// Of the data folder, what belongs to runs of the agent's.
const FOLDER: &str = "training";
/// A run's config in its folder, as it was when the run was ordered.
pub const CONFIG: &str = "config.py";
/// What asks a run to end, in its folder, where no signal can.
const STOP: &str = "stop";

/// The folder of a run with its config and its checkpoint, in the owner's.
pub fn of_run(root: &Path, id: &str) -> PathBuf {
    root.join(format!("out-{id}"))
}

/// The checkpoint of a run's folder.
pub fn checkpoint(folder: &Path) -> PathBuf {
    folder.join(checkpoint::FILE)
}

/// What asks a run to end, of its folder.
pub fn stop(folder: &Path) -> PathBuf {
    folder.join(STOP)
}

/// Takes away what the agent and `headroom train` made in a run's folder, and the folder if nothing else is in it. Of a
/// link in its place the link alone: where it leads is the owner's.
pub fn remove(folder: &Path) -> io::Result<()> {
    if folder.is_symlink() {
        // Windows removes a link to a folder as a folder.
        return if cfg!(windows) { fs::remove_dir(folder) } else { fs::remove_file(folder) };
    }
    let missing_is_good = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    missing_is_good(fs::remove_file(checkpoint(folder)))?;
    missing_is_good(fs::remove_file(folder.join(CONFIG)))?;
    stop::forget(&stop(folder))?;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // What a writer that was killed left, the lock of systems that do not lock a folder itself, and the algorithms
        // that products are computed with.
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("ckpt.") || libraries::PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            missing_is_good(fs::remove_file(entry.path()))?;
        }
    }
    match missing_is_good(fs::remove_dir(folder)) {
        // The owner put something there, which is the owner's.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => result,
    }
}

/// What a run prints, within a bound.
pub fn log(data_folder: &Path, id: &str) -> io::Result<PathBuf> {
    Ok(folder(data_folder)?.join(format!("{id}.log")))
}

/// Takes away what is kept of a run's output.
pub fn remove_logs(data_folder: &Path, id: &str) {
    for name in ["log", "log.1", "watch"] {
        // What is left of it is bounded, and nobody's run.
        let _ = fs::remove_file(data_folder.join(FOLDER).join(format!("{id}.{name}")));
    }
}

/// What the watcher of a run says itself.
pub fn watcher_log(data_folder: &Path, id: &str) -> io::Result<PathBuf> {
    Ok(folder(data_folder)?.join(format!("{id}.watch")))
}

fn folder(data_folder: &Path) -> io::Result<PathBuf> {
    let folder = data_folder.join(FOLDER);
    folders::make(&folder)?;
    Ok(folder)
}

/// A device that is ours as long as this, or a process that has it too, lives.
#[derive(Debug)]
pub struct Taken(pub File);

/// Takes a device for one process; none where another has it.
///
/// # Errors
/// The system has no such file.
pub fn take(data_folder: &Path, device: &str) -> io::Result<Option<Taken>> {
    take_in(&locks(data_folder)?, device)
}

/// Where the locks of devices lie: where every agent of this user looks, whatever its data folder. Without such a place an
/// agent knows of its own runs alone, and so it does of other users'.
fn locks(data_folder: &Path) -> io::Result<PathBuf> {
    let shared = folders::runtime().filter(|folder| folders::make(folder).is_ok());
    shared.map_or_else(|| folder(data_folder), Ok)
}

fn take_in(locks: &Path, device: &str) -> io::Result<Option<Taken>> {
    // `cuda:0` would name a stream of a file on Windows.
    let name: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let path = locks.join(format!("{name}.lock"));
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Taken(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        // Network file systems may have none; then history alone says who is there.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Some(Taken(file))),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_one_process_s() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = take_in(folder.path(), "cuda:0").expect("a file").expect("it is free");
        assert!(take_in(folder.path(), "cuda:0").expect("a file").is_none());
        assert!(take_in(folder.path(), "cuda:1").expect("a file").is_some(), "another one");
        drop(first);
        assert!(take_in(folder.path(), "cuda:0").expect("a file").is_some());
    }

    #[cfg(unix)]
    #[test]
    fn of_a_link_the_link_alone_is_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let elsewhere = root.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        for name in [CONFIG, checkpoint::FILE] {
            fs::write(elsewhere.join(name), "x").expect("a file");
        }
        let run = of_run(root.path(), "ab12");
        std::os::unix::fs::symlink(&elsewhere, &run).expect("a link");
        remove(&run).expect("it goes");
        assert!(!run.is_symlink() && elsewhere.join(CONFIG).exists() && elsewhere.join(checkpoint::FILE).exists());
        // One that leads nowhere goes as well.
        std::os::unix::fs::symlink(root.path().join("none"), &run).expect("a link");
        remove(&run).expect("it goes");
        assert!(!run.is_symlink());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let root = tempfile::tempdir().expect("a folder");
        let run = of_run(root.path(), "ab12");
        fs::create_dir(&run).expect("a folder");
        for name in
            [CONFIG, STOP, checkpoint::FILE, "ckpt.safetensors.tmp", "cublaslt-nvidia-h200-132-12080-120803.json"]
        {
            fs::write(run.join(name), "x").expect("a file");
        }
        fs::write(run.join("notes.txt"), "x").expect("a file");
        remove(&run).expect("it goes");
        let left: Vec<_> = fs::read_dir(&run).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
        fs::remove_file(run.join("notes.txt")).expect("a file");
        remove(&run).expect("it goes");
        assert!(!run.exists());
        remove(&run).expect("what is gone is gone");
    }
}
