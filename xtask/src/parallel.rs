//! Independent work on all cores.

use crate::failure::Result;
use std::{
    num::NonZero,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Runs `work` on each item, in as many threads as there are cores. A thread stops at its first failure, and the first
/// failure is returned.
pub fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..n_cores()).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that does not panic"))
    })
}

/// Returns the number of cores that this process may use, or 1 if the system does not report it.
pub fn n_cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn every_item_is_visited_once() {
        let visits: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
        for_each(&visits, |visit| {
            visit.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .expect("no failure");
        assert!(visits.iter().all(|visit| visit.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_failure_is_returned() {
        let error = for_each(&[1, 2, 3], |n| if *n == 2 { Err(Failure::new("two")) } else { Ok(()) });
        assert!(error.expect_err("one failed").to_string().contains("two"));
    }
}
