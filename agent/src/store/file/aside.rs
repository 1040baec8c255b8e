//! A damaged file gets another name, with what SQLite has beside it: nothing is thrown away.

use std::{fs, io, path::Path};

use rusqlite::Connection;

use super::NAME;

/// Files that are set aside within one second at most.
const SAME_SECOND_MAX: u32 = 100;
/// What SQLite has beside a file.
const ENDS: [&str; 3] = ["", "-wal", "-shm"];

/// Renames whatever has the history's name; gives the new name, or none where nothing was there.
///
/// # Errors
/// The system does not rename it.
pub fn set_aside(folder: &Path, now_ms: u64) -> io::Result<Option<String>> {
    let there: Vec<&str> = ENDS.into_iter().filter(|end| folder.join(format!("{NAME}{end}")).exists()).collect();
    if there.is_empty() {
        return Ok(None);
    }
    let time = time(now_ms).unwrap_or_else(|_| now_ms.to_string());
    let free = (0..SAME_SECOND_MAX).map(|n| name(&time, n)).find(|name| is_free(folder, name));
    let name = free.ok_or(io::ErrorKind::AlreadyExists)?;
    // The file last: where a rename fails, what is left has its name still and is tried again.
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

/// As `20261122T025500Z`, by SQLite's calendar.
fn time(now_ms: u64) -> Result<String, rusqlite::Error> {
    let seconds = i64::try_from(now_ms / 1000).unwrap_or(0);
    Connection::open_in_memory()?
        .query_row("SELECT strftime('%Y%m%dT%H%M%SZ', ?1, 'unixepoch')", [seconds], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_000_000_000;

    #[test]
    fn what_is_beside_it_goes_along_and_nothing_is_overwritten() {
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
