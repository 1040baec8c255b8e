//! How many files the system lets the program have open: each connection is one.

/// Asks for so many, and gives how many there are then. Common systems begin with 1,024 and allow far more to who asks.
#[cfg(unix)]
pub fn raise_open_files(n: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Without a number there is no limit.
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

/// Windows has no such limit.
#[cfg(not(unix))]
pub fn raise_open_files(_: u64) -> u64 {
    u64::MAX
}

#[cfg(all(test, unix))]
mod tests {
    #[test]
    fn what_is_there_is_not_made_less() {
        let now = super::raise_open_files(1);
        assert!(now >= 1);
        assert_eq!(super::raise_open_files(now), now);
    }
}
