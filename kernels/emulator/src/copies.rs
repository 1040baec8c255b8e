//! A thread's asynchronous copies: none has arrived before it is waited for.

use std::collections::VecDeque;

/// Bytes of one.
pub const COPY_BYTES: u64 = 16;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// In shared memory.
    pub to: u64,
    /// In global memory; `None` for zeros.
    pub from: Option<u64>,
}

/// Those on their way, by groups.
#[derive(Debug, Default)]
pub struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    /// Another one begins.
    pub fn begin(&mut self, copy: Copy) {
        self.open.push(copy);
    }

    /// The group is ended.
    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Those that have to have arrived where so many groups at most are still on their way.
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
