//! Paths of the agent's runs: a run's directory, its log, and the locks that reserve devices.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use headroom_kernels::cuda::libraries;

use headroom_protocol::message::Message;

use headroom_agent_core::{
    folders::{self, private_file},
    logging::RUNS,
};
use headroom_train::{checkpoint, stop};

/// Subdirectory of the data directory for the agent's runs.
const FOLDER: &str = "training";
/// Extension of the file in which a watcher reports why it does not start its run.
const REASON: &str = "reason";
/// Copy of the config in a run's directory, as of the order.
pub const CONFIG: &str = "config.py";
/// Stop file in a run's directory, for systems without signals.
const STOP: &str = "stop";

/// Directory of a run with its config and checkpoint, in the training directory.
pub fn of_run(root: &Path, id: &str) -> PathBuf {
    root.join(format!("out-{id}"))
}

/// Checkpoint path in a run's directory.
pub fn checkpoint(folder: &Path) -> PathBuf {
    folder.join(checkpoint::FILE)
}

/// Whether a run can start over in its directory: its config is there, and no checkpoint would be replaced.
pub fn can_start_over(folder: &Path) -> bool {
    let is_free = |name: &str| folder.join(name).symlink_metadata().is_err();
    folder.join(CONFIG).is_file() && [checkpoint::FILE, checkpoint::BEST].into_iter().all(is_free)
}

/// Creates a run's directory with its config, which may contain secrets: only the owner can read them.
///
/// # Errors
/// The directory exists, or it cannot be written.
pub fn make(folder: &Path, config: &str) -> io::Result<()> {
    folders::make_new(folder)?;
    private_file().create_new(true).open(folder.join(CONFIG))?.write_all(config.as_bytes())
}

/// Stop file in a run's directory.
pub fn stop(folder: &Path) -> PathBuf {
    folder.join(STOP)
}

/// Removes the files that the agent and `headroom train` created in a run's directory, and the directory if it is empty
/// then. Removes a link without following it, as the target belongs to the owner.
pub fn remove(folder: &Path) -> io::Result<()> {
    if folder.is_symlink() {
        // On Windows a link to a directory is removed as a directory.
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
        // Remains of a killed writer, the lock file of systems that cannot lock a directory, and cached GEMM
        // algorithms.
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("ckpt.") || libraries::PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            missing_is_good(fs::remove_file(entry.path()))?;
        }
    }
    match missing_is_good(fs::remove_dir(folder)) {
        // Files that the owner put there remain.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => result,
    }
}

/// Log of a run's output, with a bounded size.
pub fn log(data_folder: &Path, id: &str) -> io::Result<PathBuf> {
    Ok(folder(data_folder)?.join(format!("{id}.log")))
}

/// Removes the logs of a run.
pub fn remove_logs(data_folder: &Path, id: &str) {
    for name in ["log", "log.1", "watch", REASON] {
        let removed = fs::remove_file(data_folder.join(FOLDER).join(format!("{id}.{name}")));
        // A remaining log is bounded and belongs to no run. A run without all of these files is usual.
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(target: RUNS, run = id, file = name, %error, "cannot remove a log of a deleted run");
        }
    }
}

/// Log of the run's watcher itself.
pub fn watcher_log(data_folder: &Path, id: &str) -> io::Result<PathBuf> {
    Ok(folder(data_folder)?.join(format!("{id}.watch")))
}

/// Writes the reason why a watcher does not start its run, for the agent that started the watcher.
///
/// # Errors
/// The directory cannot be written.
pub fn write_reason(data_folder: &Path, id: &str, reason: &Message) -> io::Result<()> {
    let json = serde_json::to_vec(reason).map_err(io::Error::other)?;
    let path = folder(data_folder)?.join(format!("{id}.{REASON}"));
    private_file().truncate(true).open(path)?.write_all(&json)
}

/// Reads the reason that a run's watcher wrote, if any.
pub fn read_reason(data_folder: &Path, id: &str) -> Option<Message> {
    let json = fs::read(folder(data_folder).ok()?.join(format!("{id}.{REASON}"))).ok()?;
    serde_json::from_slice(&json).ok()
}

/// Removes the reason of an earlier watcher.
pub fn forget_reason(data_folder: &Path, id: &str) {
    // If the removal fails, the watcher overwrites the file.
    let _ = fs::remove_file(data_folder.join(FOLDER).join(format!("{id}.{REASON}")));
}

fn folder(data_folder: &Path) -> io::Result<PathBuf> {
    let folder = data_folder.join(FOLDER);
    folders::make(&folder)?;
    Ok(folder)
}

/// Lock of a device. Held until this value and the processes that inherited it are gone.
#[derive(Debug)]
pub struct DeviceLock(pub File);

/// Locks a device for one process. `None` if another process holds the lock.
///
/// # Errors
/// The lock file cannot be created.
pub fn take(data_folder: &Path, device: &str) -> io::Result<Option<DeviceLock>> {
    take_in(&locks(data_folder)?, device)
}

/// Directory of device locks, shared by all agents of this user. Without a runtime directory an agent's locks are
/// private. Agents of other users are never seen.
fn locks(data_folder: &Path) -> io::Result<PathBuf> {
    let shared = folders::runtime().filter(|folder| folders::make(folder).is_ok());
    shared.map_or_else(|| folder(data_folder), Ok)
}

fn take_in(locks: &Path, device: &str) -> io::Result<Option<DeviceLock>> {
    // On Windows `cuda:0` would name an alternate data stream.
    let name: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let path = locks.join(format!("{name}.lock"));
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(DeviceLock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        // Some network file systems have no locks; the history alone records the device's run there.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Some(DeviceLock(file))),
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
        remove(&run).expect("removed");
        assert!(!run.is_symlink() && elsewhere.join(CONFIG).exists() && elsewhere.join(checkpoint::FILE).exists());
        // A dangling link is removed too.
        std::os::unix::fs::symlink(root.path().join("none"), &run).expect("a link");
        remove(&run).expect("removed");
        assert!(!run.is_symlink());
    }

    #[test]
    fn foreign_files_stay() {
        let root = tempfile::tempdir().expect("a folder");
        let run = of_run(root.path(), "ab12");
        fs::create_dir(&run).expect("a folder");
        for name in
            [CONFIG, STOP, checkpoint::FILE, "ckpt.safetensors.tmp", "cublaslt-nvidia-h200-132-12080-120803.json"]
        {
            fs::write(run.join(name), "x").expect("a file");
        }
        fs::write(run.join("notes.txt"), "x").expect("a file");
        remove(&run).expect("removed");
        let left: Vec<_> = fs::read_dir(&run).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
        fs::remove_file(run.join("notes.txt")).expect("a file");
        remove(&run).expect("removed");
        assert!(!run.exists());
        remove(&run).expect("deleting a missing directory succeeds");
    }
}
