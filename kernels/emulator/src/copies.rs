//! A thread's asynchronous copies. No copy completes before the thread waits for it.

use std::collections::VecDeque;

pub const COPY_BYTES: u64 = 16;

/// An asynchronous copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The destination address, in shared memory.
    pub to: u64,
    /// The source address in global memory; `None` writes zeros.
    pub from: Option<u64>,
}

/// The copies in flight, by groups.
#[derive(Debug, Default)]
pub struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    /// Adds a copy to the open group.
    pub fn begin(&mut self, copy: Copy) {
        self.open.push(copy);
    }

    /// Commits the open group.
    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Removes and returns the oldest copies, leaving at most `groups` groups in flight.
    pub fn arrive(&mut self, groups: usize) -> Vec<Copy> {
        let n = self.groups.len().saturating_sub(groups);
        self.groups.drain(..n).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_groups_arrive_and_what_was_not_committed_does_not() {
        let copy = |to| Copy { to, from: None };
        let mut copies = Copies::default();
        for to in 0..3 {
            copies.begin(copy(to));
            copies.commit();
        }
        copies.begin(copy(9));
        assert_eq!(copies.arrive(1), [copy(0), copy(1)]);
        assert_eq!(copies.arrive(1), []);
        assert_eq!(copies.arrive(0), [copy(2)]);
        assert_eq!(copies.arrive(0), []);
    }
}
