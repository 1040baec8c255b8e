//! The free blocks of one pool, in the order of c10's `BlockComparatorSize`: by size, then address.
//!
//! Blocks are in bins by size, with sixteen bins per doubling, and sorted within a bin. A bin holds a few blocks and a
//! whole pool hundreds, so that searching and moving are cheap. A bitmap of non-empty bins leads to the next larger
//! block.
//!
//! Every event of a replay comes here. Pages are compiled for size, where a method of a vector is a call; lists are
//! therefore indexed as slices, and small helpers are always inlined.

use super::{Block, BlockKey, Key, sizes::MIN_BLOCK_SIZE};

/// Base-2 logarithm of the number of bins per doubling of the size.
const BINS_PER_DOUBLING_LOG2: u32 = 4;
const BINS_PER_DOUBLING: usize = 1 << BINS_PER_DOUBLING_LOG2;
/// Words of the bitmap, sufficient for sizes up to `u64::MAX` in units of the smallest block.
const N_WORDS: usize = (u64::BITS - MIN_BLOCK_SIZE.ilog2()) as usize * BINS_PER_DOUBLING / u64::BITS as usize + 1;
/// Maximum length of a bin that is searched and moved entry by entry. This is cheaper than bisection and a call of
/// `memmove`, by a large factor in a browser.
const SHORT: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Pool {
    bins: Vec<Vec<Key>>,
    /// Bitmap of non-empty bins.
    filled: [u64; N_WORDS],
    /// Unmapped ranges of expandable segments, ordered by address.
    pub(super) unmapped: Vec<(u64, u32)>,
    /// Bytes of the pool's segments.
    pub(super) reserved_bytes: u64,
}

/// Position of an entry, valid until the next change: its bin and its index there.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    bin: usize,
    at: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            bins: vec![Vec::new(); N_WORDS * u64::BITS as usize],
            filled: [0; N_WORDS],
            unmapped: Vec::new(),
            reserved_bytes: 0,
        }
    }
}

/// The bin of blocks of that size; larger sizes have the same or a later bin.
#[inline(always)]
fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK_SIZE;
    let doublings = (units | BINS_PER_DOUBLING as u64).ilog2() - BINS_PER_DOUBLING_LOG2;
    #[allow(clippy::cast_possible_truncation, reason = "below 2^5; only a 32-bit usize makes the lint speak")]
    let highest_bits = (units >> doublings) as usize;
    doublings as usize * BINS_PER_DOUBLING + highest_bits
}

/// Number of entries before a place.
#[inline(always)]
fn entries_before(bin: &[Key], place: BlockKey) -> usize {
    if bin.len() > SHORT {
        return bin.partition_point(|entry| is_before(entry, place));
    }
    let mut before = 0;
    while before < bin.len() && is_before(&bin[before], place) {
        before += 1;
    }
    before
}

#[inline(always)]
const fn is_before(entry: &Key, (size, address): BlockKey) -> bool {
    entry.0 < size || entry.0 == size && entry.1 < address
}

/// Bytes by which a block at the end of an expandable segment can grow.
#[inline(always)]
fn growth(id: u32, blocks: &[Block]) -> u64 {
    match blocks.get(blocks[id as usize].next as usize) {
        Some(next) if !next.mapped => next.size,
        _ => 0,
    }
}

impl Pool {
    pub(super) fn insert(&mut self, key: Key) {
        let bin = bin_of(key.0);
        let place = (key.0, key.1);
        let list = &mut self.bins.as_mut_slice()[bin];
        if list.len() > SHORT {
            let at = entries_before(list.as_slice(), place);
            list.insert(at, key);
            return;
        }
        list.push(key);
        let entries = list.as_mut_slice();
        let mut at = entries.len() - 1;
        while at > 0 && !is_before(&entries[at - 1], place) {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = key;
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    pub(super) fn remove(&mut self, place: BlockKey) {
        let bin = bin_of(place.0);
        let entries = self.bins.as_slice()[bin].as_slice();
        let at = entries_before(entries, place);
        if entries.get(at).is_some_and(|entry| (entry.0, entry.1) == place) {
            self.remove_entry(Entry { bin, at });
        }
    }

    /// Replaces a block, in the same entry if the order allows.
    pub(super) fn replace_entry(&mut self, entry: Entry, key: Key) {
        let entries = self.bins.as_mut_slice()[entry.bin].as_mut_slice();
        let place = (key.0, key.1);
        if bin_of(key.0) == entry.bin
            && (entry.at == 0 || is_before(&entries[entry.at - 1], place))
            && (entry.at + 1 >= entries.len() || !is_before(&entries[entry.at + 1], place))
        {
            entries[entry.at] = key;
        } else {
            self.remove_entry(entry);
            self.insert(key);
        }
    }

    /// Replaces a block that has grown or moved.
    pub(super) fn replace(&mut self, old: BlockKey, key: Key) {
        let bin = bin_of(old.0);
        let at = entries_before(self.bins.as_slice()[bin].as_slice(), old);
        self.replace_entry(Entry { bin, at }, key);
    }

    pub(super) fn remove_entry(&mut self, Entry { bin, at }: Entry) {
        let list = &mut self.bins.as_mut_slice()[bin];
        if list.len() > SHORT {
            list.remove(at);
            return;
        }
        let entries = list.as_mut_slice();
        let mut later = at + 1;
        while later < entries.len() {
            entries[later - 1] = entries[later];
            later += 1;
        }
        list.pop();
        if list.is_empty() {
            self.filled[bin / 64] &= !(1 << (bin % 64));
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

    /// The block that PyTorch would allocate (`get_free_block`) and its entry: the smallest sufficient one, with the
    /// lowest address among equals. In expandable segments, the possible growth counts as part of a block's size, so
    /// that the block at the end of the segment is used last.
    pub(super) fn best_fit(&self, bytes: u64, is_expandable: bool, blocks: &[Block]) -> Option<(u32, Entry)> {
        let mut entry = self.first_fit(bytes)?;
        let mut id = self.id(entry);
        if is_expandable {
            // The next block is at least as large, so its reach can be smaller only if the current block can grow.
            loop {
                let grows_by = growth(id, blocks);
                let next = if grows_by > 0 { self.entry_from(entry.bin, entry.at + 1) } else { None };
                let Some(next) = next else { break };
                let next_id = self.id(next);
                let reach = blocks[id as usize].size + grows_by;
                if reach <= blocks[next_id as usize].size + growth(next_id, blocks) {
                    break;
                }
                (entry, id) = (next, next_id);
            }
        }
        Some((id, entry))
    }

    /// The entry of the smallest block of at least `bytes`.
    #[inline(always)]
    pub(super) fn first_fit(&self, bytes: u64) -> Option<Entry> {
        let bin = bin_of(bytes);
        self.entry_from(bin, entries_before(self.bins.as_slice()[bin].as_slice(), (bytes, 0)))
    }

    #[inline(always)]
    fn id(&self, entry: Entry) -> u32 {
        self.bins.as_slice()[entry.bin].as_slice()[entry.at].2
    }

    /// The entry at that position, or the first entry of the next bins.
    #[inline(always)]
    fn entry_from(&self, bin: usize, at: usize) -> Option<Entry> {
        if at < self.bins.as_slice()[bin].len() {
            return Some(Entry { bin, at });
        }
        let (mut word, next) = ((bin + 1) / 64, (bin + 1) % 64);
        if word >= N_WORDS {
            return None;
        }
        let mut bits = self.filled[word] & (u64::MAX << next);
        while bits == 0 {
            word += 1;
            if word >= N_WORDS {
                return None;
            }
            bits = self.filled[word];
        }
        Some(Entry { bin: word * 64 + bits.trailing_zeros() as usize, at: 0 })
    }

    pub(super) fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.bins.iter().flatten().map(|entry| entry.2)
    }

    /// Whether both pools hold blocks of the same sizes at the same addresses.
    pub(super) fn same(&self, other: &Self) -> bool {
        let places = |entry: &Key| (entry.0, entry.1);
        self.bins.iter().flatten().map(places).eq(other.bins.iter().flatten().map(places))
    }
}
