//! Limits of this process: open files, of which each connection uses one, and the size of a file.

/// Raises the limit to at least `n`, if the system permits, and returns the limit. Common systems start with 1,024 and
/// permit far more.
#[cfg(unix)]
pub fn raise_open_files(n: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` means no limit.
    let Some(now) = current else { return u64::MAX };
    if now >= n {
        return now;
    }
    let wanted = maximum.map_or(n, |maximum| maximum.min(n));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(_) => now,
    }
}

/// Returns `u64::MAX`: Windows has no limit of this kind.
#[cfg(not(unix))]
pub fn raise_open_files(_: u64) -> u64 {
    u64::MAX
}

/// Returns the maximum size of a file that this process may write, in bytes; `None` for no limit. A write beyond it
/// ends the process by SIGXFSZ.
#[cfg(unix)]
pub fn file_bytes_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Returns `None`: Windows does not limit the size.
#[cfg(not(unix))]
pub fn file_bytes_max() -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    #[test]
    fn limit_of_open_files_is_not_lowered() {
        let now = super::raise_open_files(1);
        assert!(now >= 1);
        assert_eq!(super::raise_open_files(now), now);
    }
}
