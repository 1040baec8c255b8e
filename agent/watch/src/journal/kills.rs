//! Detection of OOM kills by the kernel. A killed process gets no message.

use std::{fs, time::Duration};

/// Interval of reads of the counter.
const EVERY: Duration = Duration::from_secs(1);
/// A run that is killed within this time after the counter rose is attributed to the OOM killer.
const WITHIN: Duration = Duration::from_secs(5);

/// The kernel's counter, and when it last rose.
#[derive(Debug, Default)]
pub struct OomKillCounter {
    count: Option<u64>,
    looked_at: Option<Duration>,
    rose_at: Option<Duration>,
}

impl OomKillCounter {
    /// Reads the counter if due.
    pub fn tick(&mut self, now: Duration) {
        if self.looked_at.is_none_or(|at| now.saturating_sub(at) >= EVERY) {
            self.look(now, count());
        }
    }

    /// Reads the counter, and returns whether it rose recently.
    pub fn is_one(&mut self, now: Duration) -> bool {
        self.look(now, count());
        self.rose_at.is_some_and(|at| now.saturating_sub(at) <= WITHIN)
    }

    fn look(&mut self, now: Duration, count: Option<u64>) {
        self.looked_at = Some(now);
        if self.count.zip(count).is_some_and(|(before, is)| is > before) {
            self.rose_at = Some(now);
        }
        self.count = count.or(self.count);
    }
}

/// OOM kills since boot. `None` if the system does not count them.
fn count() -> Option<u64> {
    let counts = fs::read_to_string("/proc/vmstat").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_counts_for_what_dies_right_after_it() {
        let at = Duration::from_secs;
        let mut kills = OomKillCounter::default();
        kills.look(at(0), Some(7));
        assert_eq!(kills.rose_at, None, "earlier kills belong to other processes");
        kills.look(at(10), Some(7));
        kills.look(at(11), None);
        assert_eq!(kills.rose_at, None);
        kills.look(at(12), Some(8));
        assert_eq!(kills.rose_at, Some(at(12)));
        assert!(kills.is_one(at(13)) && !kills.is_one(at(3600)));
    }
}
