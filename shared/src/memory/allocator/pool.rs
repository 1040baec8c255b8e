//! The free blocks of one pool, ordered as c10's `BlockComparatorSize` orders them: by size, then address.
//!
//! A sorted vector rather than a tree: a pool holds tens to hundreds of free blocks, where a binary search and a
//! short move beat any tree by several times.

use super::{Block, Key, NONE, Place, SegmentKind};

/// How far a changed entry is moved one by one. Most go less far; moving a few costs less than a search and a call of
/// `memmove`.
const NEAR: usize = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    free: Vec<Key>,
    /// Address-ordered room of expandable segments that is not backed by memory.
    pub(super) unmapped: Vec<(u64, u32)>,
}

impl Pool {
    pub(super) fn insert(&mut self, key: Key) {
        let at = self.free.partition_point(|entry| order(entry) < order(&key));
        self.free.insert(at, key);
    }

    pub(super) fn remove(&mut self, place: Place) {
        if let Some(at) = self.find(place) {
            self.free.remove(at);
        }
    }

    pub(super) fn remove_at(&mut self, at: usize) {
        self.free.remove(at);
    }

    /// Puts the smaller `key` in the place of the entry at `at` and moves it down to where it belongs.
    pub(super) fn shrink(&mut self, at: usize, key: Key) {
        let floor = at.saturating_sub(NEAR);
        let mut to = at;
        while to > floor && order(&self.free[to - 1]) > order(&key) {
            self.free[to] = self.free[to - 1];
            to -= 1;
        }
        if to == floor {
            to = self.free[..floor].partition_point(|entry| order(entry) < order(&key));
            self.free.copy_within(to..floor, to + 1);
        }
        self.free[to] = key;
    }

    /// Puts the larger `key` in the place `old` and moves it up to where it belongs.
    pub(super) fn grow(&mut self, old: Place, key: Key) {
        let Some(mut to) = self.find(old) else { return self.insert(key) };
        let ceiling = (to + NEAR).min(self.free.len() - 1);
        while to < ceiling && order(&self.free[to + 1]) < order(&key) {
            self.free[to] = self.free[to + 1];
            to += 1;
        }
        if to == ceiling {
            to += self.free[ceiling + 1..].partition_point(|entry| order(entry) < order(&key));
            self.free.copy_within(ceiling + 1..=to, ceiling);
        }
        self.free[to] = key;
    }

    fn find(&self, (size, address): Place) -> Option<usize> {
        let at = self.free.partition_point(|entry| order(entry) < order(&(size, address, 0)));
        self.free.get(at).is_some_and(|entry| (entry.0, entry.1) == (size, address)).then_some(at)
    }

    pub(super) fn insert_unmapped(&mut self, address: u64, id: u32) {
        let at = self.unmapped.partition_point(|entry| entry.0 < address);
        self.unmapped.insert(at, (address, id));
    }

    pub(super) fn remove_unmapped(&mut self, address: u64) {
        if let Ok(at) = self.unmapped.binary_search_by_key(&address, |entry| entry.0) {
            self.unmapped.remove(at);
        }
    }

    /// The block PyTorch would take (`get_free_block`) and its place here: the smallest that is large enough, the lowest address
    /// among equals. In expandable segments a block counts as large as it could grow, so that the end of the segment
    /// is left alone while another block serves.
    pub(super) fn best_fit(&self, bytes: u64, kind: SegmentKind, blocks: &[Block]) -> Option<(u32, usize)> {
        let mut at = self.free.partition_point(|entry| entry.0 < bytes);
        self.free.get(at)?;
        if kind == SegmentKind::Expandable {
            let reach = |at: usize| {
                let block = &blocks[self.free[at].2 as usize];
                let beyond = match block.next {
                    NONE => 0,
                    next if blocks[next as usize].mapped => 0,
                    next => blocks[next as usize].size,
                };
                block.size + beyond
            };
            while at + 1 < self.free.len() && reach(at + 1) < reach(at) {
                at += 1;
            }
        }
        Some((self.free[at].2, at))
    }

    pub(super) fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().map(|entry| entry.2)
    }

    /// Whether both hold blocks of the same sizes at the same addresses.
    pub(super) fn same(&self, other: &Self) -> bool {
        let keys = |entry: &Key| (entry.0, entry.1);
        self.free.iter().map(keys).eq(other.free.iter().map(keys))
    }
}

/// Size and address as one number: a comparison without branches.
fn order(&(size, address, _): &Key) -> u128 {
    u128::from(size) << 64 | u128::from(address)
}
