//! The size and the free space of a directory's disk.

use std::{io, path::Path};

/// A disk's space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes available to an ordinary user.
    pub free_bytes: u64,
    /// The size of the whole file system.
    pub total_bytes: u64,
}

/// Reads the space of the disk that holds `folder`. Returns `None` if the directory is missing or the system gives no
/// figures.
///
/// Reads only that disk, because another one, such as a network share, may hang.
#[cfg(unix)]
pub fn disk(folder: &Path) -> Option<Disk> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(Disk {
        // `f_bavail` excludes the administrator's reserve.
        free_bytes: disk.f_bavail.checked_mul(disk.f_frsize)?,
        total_bytes: disk.f_blocks.checked_mul(disk.f_frsize)?,
    })
}

/// Reads the space of the disk that holds `folder`. Returns `None` if the directory is missing or the system gives no
/// figures.
#[cfg(not(unix))]
pub fn disk(folder: &Path) -> Option<Disk> {
    let folder = std::path::absolute(folder).ok()?;
    let disks = sysinfo::Disks::new_with_refreshed_list().ok()?;
    let of_folder = disks.iter().filter(|disk| folder.starts_with(disk.mount_point()));
    let disk = of_folder.max_by_key(|disk| disk.mount_point().components().count())?;
    Some(Disk { free_bytes: disk.available_space(), total_bytes: disk.total_space() })
}

/// Checks that this process may write to a directory. Writes nothing.
///
/// # Errors
/// The directory, or the file system that it is on, is read-only for this process.
#[cfg(unix)]
pub fn check_writable(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Does nothing, because only an attempt to write shows the permissions.
#[cfg(not(unix))]
pub fn check_writable(_: &Path) -> io::Result<()> {
    Ok(())
}
