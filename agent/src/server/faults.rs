//! Errors of cards that the driver reported since the agent started, counted, and which of them are news.

use std::collections::{BTreeMap, btree_map::Entry};

/// Cards and numbers of errors together that are told apart: NVIDIA's catalogue has some hundred and fifty numbers, of
/// which a card that fails has a few. Further ones are not counted.
const FAULTS_MAX: usize = 1024;
/// The same error of the same card is told again after so long: one that fails may repeat itself every second, and history
/// keeps every event.
const QUIET_MS: u64 = 60_000;

/// An error of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The card's UUID.
    pub gpu: String,
    /// NVIDIA's number (Xid).
    pub xid: u64,
    /// How often.
    pub n: u64,
    /// When it came last.
    pub last_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    n: u64,
    last_ms: u64,
    told_ms: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Faults(BTreeMap<(String, u64), Count>);

impl Faults {
    /// Counts an error; gives whether it is to be told.
    pub fn add(&mut self, gpu: &str, xid: u64, now_ms: u64) -> bool {
        let n_known = self.0.len();
        match self.0.entry((gpu.to_owned(), xid)) {
            Entry::Vacant(entry) => {
                let has_room = n_known < FAULTS_MAX;
                if has_room {
                    entry.insert(Count { n: 1, last_ms: now_ms, told_ms: now_ms });
                }
                has_room
            }
            Entry::Occupied(mut entry) => {
                let count = entry.get_mut();
                (count.n, count.last_ms) = (count.n.saturating_add(1), now_ms);
                let is_news = now_ms.saturating_sub(count.told_ms) >= QUIET_MS;
                if is_news {
                    count.told_ms = now_ms;
                }
                is_news
            }
        }
    }

    /// Each, by its card and its number.
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
    fn an_error_that_repeats_itself_is_counted_and_told_once_a_minute() {
        let mut faults = Faults::default();
        let told: Vec<u64> = (0..=120).map(|s| s * 1000).filter(|&now_ms| faults.add("GPU-0", 31, now_ms)).collect();
        assert_eq!(told, [0, QUIET_MS, 2 * QUIET_MS]);
        assert!(faults.add("GPU-0", 79, 120_000) && faults.add("GPU-1", 31, 120_000), "others are news");
        let all = faults.all();
        assert_eq!(all[0], Fault { gpu: "GPU-0".to_owned(), xid: 31, n: 121, last_ms: 120_000 });
        assert_eq!(all.iter().map(|fault| fault.n).collect::<Vec<_>>(), [121, 1, 1]);
    }

    #[test]
    fn a_driver_that_makes_numbers_up_fills_no_memory() {
        let mut faults = Faults::default();
        let n_told = (0..5000).filter(|&xid| faults.add("GPU-0", xid, 1)).count();
        assert_eq!((n_told, faults.all().len()), (FAULTS_MAX, FAULTS_MAX));
        assert!(!faults.add("GPU-0", 0, 2) && faults.all()[0].n == 2, "what is known is counted on");
    }
}
