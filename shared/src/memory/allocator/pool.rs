//! The free blocks of one pool, ordered as c10's `BlockComparatorSize` orders them: by size, then address.
//!
//! A sorted vector rather than a tree: a pool holds tens to hundreds of free blocks, where a binary search and a
//! short move beat any tree by several times.

use super::{Block, Key, NONE, SegmentKind};

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    free: Vec<Key>,
    /// Address-ordered room of expandable segments that is not backed by memory.
    pub(super) unmapped: Vec<(u64, u32)>,
}

impl Pool {
    pub(super) fn insert(&mut self, key: Key) {
        let at = self.free.partition_point(|entry| *entry < key);
        self.free.insert(at, key);
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Ok(at) = self.free.binary_search(&key) {
            self.free.remove(at);
        }
    }

    pub(super) fn remove_at(&mut self, at: usize) {
        self.free.remove(at);
    }

    /// Puts `key` in the place of the entry at `at` and moves it to where it belongs: only what lies between moves.
    pub(super) fn replace(&mut self, at: usize, key: Key) {
        let to = self.free.partition_point(|entry| *entry < key);
        if to <= at {
            self.free.copy_within(to..at, to + 1);
            self.free[to] = key;
        } else {
            self.free.copy_within(at + 1..to, at);
            self.free[to - 1] = key;
        }
    }

    /// The same for an entry known by its key.
    pub(super) fn replace_key(&mut self, old: Key, key: Key) {
        match self.free.binary_search(&old) {
            Ok(at) => self.replace(at, key),
            Err(_) => self.insert(key),
        }
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
