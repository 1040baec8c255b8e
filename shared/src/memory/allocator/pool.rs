//! The free blocks of one pool, ordered as c10's `BlockComparatorSize` orders them: by size, then address.
//!
//! A sorted vector rather than a tree: a pool holds tens to hundreds of free blocks, where a binary search and a
//! short move beat any tree by several times.

use super::{Block, NONE, SegmentKind};

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    free: Vec<(u64, u64, u32)>,
    /// Address-ordered room of expandable segments that is not backed by memory.
    pub(super) unmapped: Vec<(u64, u32)>,
}

impl Pool {
    pub(super) fn insert(&mut self, block: &Block, id: u32) {
        let key = (block.size, block.address, id);
        let at = self.free.partition_point(|entry| *entry < key);
        self.free.insert(at, key);
    }

    pub(super) fn remove(&mut self, block: &Block, id: u32) {
        let key = (block.size, block.address, id);
        if let Ok(at) = self.free.binary_search(&key) {
            self.free.remove(at);
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

    /// Takes the block PyTorch would take (`get_free_block`): the smallest that is large enough, the lowest address
    /// among equals. In expandable segments a block counts as large as it could grow, so that the end of the segment
    /// is left alone while another block serves.
    pub(super) fn take_best_fit(&mut self, bytes: u64, kind: SegmentKind, blocks: &[Block]) -> Option<u32> {
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
        Some(self.free.remove(at).2)
    }

    pub(super) fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().map(|entry| entry.2)
    }

    /// Whether both hold blocks of the same sizes at the same addresses.
    pub(super) fn same(&self, other: &Self) -> bool {
        let keys = |entry: &(u64, u64, u32)| (entry.0, entry.1);
        self.free.iter().map(keys).eq(other.free.iter().map(keys))
    }
}
