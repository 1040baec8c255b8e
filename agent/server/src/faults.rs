//! Counts of the GPU errors that the driver reported since the agent started.

use std::collections::{BTreeMap, btree_map::Entry};

/// The maximum number of pairs of GPU and error number. NVIDIA's catalogue has about 150 numbers, and a failing GPU
/// reports a few. Further pairs are not counted.
const FAULTS_MAX: usize = 1024;
/// The interval after which the same error of a GPU is reported again. A failing GPU may repeat an error every second,
/// and the history keeps every event.
const QUIET_MS: u64 = 60_000;

/// An error of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The UUID of the GPU.
    pub gpu: String,
    /// NVIDIA's number (Xid).
    pub xid: u64,
    /// The number of occurrences.
    pub n: u64,
    /// The time of the last occurrence.
    pub last_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    n: u64,
    last_ms: u64,
    reported_ms: u64,
}

/// The counts of all errors.
#[derive(Debug, Default)]
pub struct Faults(BTreeMap<(String, u64), Count>);

impl Faults {
    /// Counts an error, and returns whether to report it.
    pub fn add(&mut self, gpu: &str, xid: u64, now_ms: u64) -> bool {
        let n_known = self.0.len();
        match self.0.entry((gpu.to_owned(), xid)) {
            Entry::Vacant(entry) => {
                let has_room = n_known < FAULTS_MAX;
                if has_room {
                    entry.insert(Count { n: 1, last_ms: now_ms, reported_ms: now_ms });
                }
                has_room
            }
            Entry::Occupied(mut entry) => {
                let count = entry.get_mut();
                (count.n, count.last_ms) = (count.n.saturating_add(1), now_ms);
                let is_news = now_ms.saturating_sub(count.reported_ms) >= QUIET_MS;
                if is_news {
                    count.reported_ms = now_ms;
                }
                is_news
            }
        }
    }

    /// Returns all errors, ordered by GPU and number.
    pub fn all(&self) -> Vec<Fault> {
        let fault = |((gpu, xid), count): (&(String, u64), &Count)| Fault {
            gpu: gpu.clone(),
            xid: *xid,
            n: count.n,
            last_ms: count.last_ms,
        };
        self.0.iter().map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_repeats_itself_is_counted_and_reported_once_a_minute() {
        let mut faults = Faults::default();
        let reported_ms: Vec<u64> =
            (0..=120).map(|s| s * 1000).filter(|&now_ms| faults.add("GPU-0", 31, now_ms)).collect();
        assert_eq!(reported_ms, [0, QUIET_MS, 2 * QUIET_MS]);
        assert!(faults.add("GPU-0", 79, 120_000) && faults.add("GPU-1", 31, 120_000), "other errors are reported");
        let all = faults.all();
        assert_eq!(all[0], Fault { gpu: "GPU-0".to_owned(), xid: 31, n: 121, last_ms: 120_000 });
        assert_eq!(all.iter().map(|fault| fault.n).collect::<Vec<_>>(), [121, 1, 1]);
    }

    #[test]
    fn a_driver_that_makes_numbers_up_fills_no_memory() {
        let mut faults = Faults::default();
        let n_reported = (0..5000).filter(|&xid| faults.add("GPU-0", xid, 1)).count();
        assert_eq!((n_reported, faults.all().len()), (FAULTS_MAX, FAULTS_MAX));
        assert!(!faults.add("GPU-0", 0, 2) && faults.all()[0].n == 2, "a known fault is only counted");
    }
}
