//! Renames a damaged file and SQLite's companion files, so that no data is lost.

use std::{fs, io, path::Path};

use super::NAME;
use crate::store::calendar;

/// Maximum number of files that are set aside within one second.
const SAME_SECOND_MAX: u32 = 100;
/// Suffixes of the file and of SQLite's companion files.
const ENDS: [&str; 3] = ["", "-wal", "-shm"];

/// Renames the history file and its companions. Returns the new name, or `None` if there was no file.
///
/// # Errors
/// The system cannot rename a file.
pub fn set_aside(folder: &Path, now_ms: u64) -> io::Result<Option<String>> {
    let there: Vec<&str> = ENDS.into_iter().filter(|end| folder.join(format!("{NAME}{end}")).exists()).collect();
    if there.is_empty() {
        return Ok(None);
    }
    let time = calendar::stamp(now_ms).unwrap_or_else(|| now_ms.to_string());
    let free = (0..SAME_SECOND_MAX).map(|n| name(&time, n)).find(|name| is_free(folder, name));
    let name = free.ok_or(io::ErrorKind::AlreadyExists)?;
    // The history file last: if a rename fails, the remaining files keep their names and are retried.
    for end in there.iter().rev() {
        fs::rename(folder.join(format!("{NAME}{end}")), folder.join(format!("{name}{end}")))?;
    }
    Ok(Some(name))
}

fn name(time: &str, n: u32) -> String {
    let count = if n == 0 { String::new() } else { format!("-{n}") };
    format!("history.damaged-{time}{count}.sqlite")
}

fn is_free(folder: &Path, name: &str) -> bool {
    ENDS.iter().all(|end| !folder.join(format!("{name}{end}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_000_000_000;

    #[test]
    fn sibling_files_are_set_aside_too_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (round, name) in
            ["history.damaged-20261118T110640Z.sqlite", "history.damaged-20261118T110640Z-1.sqlite"].iter().enumerate()
        {
            fs::write(path(NAME), format!("file {round}")).expect("a file");
            fs::write(path(&format!("{NAME}-wal")), "log").expect("a log");
            assert_eq!(set_aside(folder.path(), NOW_MS).expect("it is renamed").as_deref(), Some(*name));
            assert_eq!(fs::read_to_string(path(name)).expect("it is there"), format!("file {round}"));
            assert!(path(&format!("{name}-wal")).exists());
        }
        assert_eq!(set_aside(folder.path(), NOW_MS).expect("nothing to do"), None);
    }
}
