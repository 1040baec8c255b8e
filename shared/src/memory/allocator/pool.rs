//! The free blocks of one pool, ordered as c10's `BlockComparatorSize` orders them: by size, then address.
//!
//! Blocks lie in bins by size, a bin for each sixteenth of a doubling, and are sorted within a bin. A bin holds a few
//! blocks where a whole pool holds hundreds, so that finding and moving cost next to nothing; a bit for each filled bin
//! leads to the next larger block.

use super::{Block, Key, MIN_BLOCK_SIZE, NONE, Place, SegmentKind};

/// Bins for each doubling of the size, as a power of two.
const BINS_PER_DOUBLING_LOG2: u32 = 4;
const BINS_PER_DOUBLING: usize = 1 << BINS_PER_DOUBLING_LOG2;
/// Enough for sizes of `u64::MAX` in units of the smallest block.
const N_WORDS: usize = (u64::BITS - MIN_BLOCK_SIZE.ilog2()) as usize * BINS_PER_DOUBLING / u64::BITS as usize + 1;
/// Up to here a bin is looked through and moved entry by entry, which costs less than halving it again and again and a
/// call of `memmove`: in a browser, far less.
const SHORT: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Pool {
    bins: Vec<Vec<Key>>,
    /// A bit for each bin that is not empty.
    filled: [u64; N_WORDS],
    /// Address-ordered room of expandable segments that is not backed by memory.
    pub(super) unmapped: Vec<(u64, u32)>,
}

/// Where an entry is, until the next change: its bin, and its place there.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    bin: usize,
    at: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self { bins: vec![Vec::new(); N_WORDS * u64::BITS as usize], filled: [0; N_WORDS], unmapped: Vec::new() }
    }
}

/// The bin of blocks of that size; a larger size has the same bin or a later one.
fn bin_of(size: u64) -> usize {
    let units = size / MIN_BLOCK_SIZE;
    let doublings = (units | BINS_PER_DOUBLING as u64).ilog2() - BINS_PER_DOUBLING_LOG2;
    #[allow(clippy::cast_possible_truncation, reason = "below 2^5; only a 32-bit usize makes the lint speak")]
    let highest_bits = (units >> doublings) as usize;
    doublings as usize * BINS_PER_DOUBLING + highest_bits
}

/// How many entries come before a place.
fn entries_before(bin: &[Key], place: Place) -> usize {
    let is_before = |entry: &Key| (entry.0, entry.1) < place;
    if bin.len() <= SHORT {
        bin.iter().take_while(|entry| is_before(entry)).count()
    } else {
        bin.partition_point(is_before)
    }
}

impl Pool {
    pub(super) fn insert(&mut self, key: Key) {
        let bin = bin_of(key.0);
        let entries = &mut self.bins[bin];
        if entries.len() > SHORT {
            entries.insert(entries_before(entries, (key.0, key.1)), key);
            return;
        }
        entries.push(key);
        let mut at = entries.len() - 1;
        while at > 0 && (entries[at - 1].0, entries[at - 1].1) > (key.0, key.1) {
            entries[at] = entries[at - 1];
            at -= 1;
        }
        entries[at] = key;
        self.filled[bin / 64] |= 1 << (bin % 64);
    }

    pub(super) fn remove(&mut self, place: Place) {
        let bin = bin_of(place.0);
        let at = entries_before(&self.bins[bin], place);
        if self.bins[bin].get(at).is_some_and(|entry| (entry.0, entry.1) == place) {
            self.remove_entry(Entry { bin, at });
        }
    }

    pub(super) fn remove_entry(&mut self, Entry { bin, at }: Entry) {
        let entries = &mut self.bins[bin];
        if entries.len() > SHORT {
            entries.remove(at);
            return;
        }
        for later in at + 1..entries.len() {
            entries[later - 1] = entries[later];
        }
        entries.pop();
        if entries.is_empty() {
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

    /// The block PyTorch would take (`get_free_block`) and where it is here: the smallest that is large enough, the
    /// lowest address among equals. In expandable segments a block counts as large as it could grow, so that the end of
    /// the segment is left alone while another block serves.
    pub(super) fn best_fit(&self, bytes: u64, kind: SegmentKind, blocks: &[Block]) -> Option<(u32, Entry)> {
        let bin = bin_of(bytes);
        let at = entries_before(&self.bins[bin], (bytes, 0));
        let mut entry = self.entry_from(bin, at)?;
        if kind == SegmentKind::Expandable {
            let reach = |entry: Entry| {
                let block = &blocks[self.id(entry) as usize];
                let beyond = match block.next {
                    NONE => 0,
                    next if blocks[next as usize].mapped => 0,
                    next => blocks[next as usize].size,
                };
                block.size + beyond
            };
            while let Some(next) = self.entry_from(entry.bin, entry.at + 1)
                && reach(next) < reach(entry)
            {
                entry = next;
            }
        }
        Some((self.id(entry), entry))
    }

    fn id(&self, entry: Entry) -> u32 {
        self.bins[entry.bin][entry.at].2
    }

    /// The entry at that place, or the first one behind the bin's end.
    fn entry_from(&self, bin: usize, at: usize) -> Option<Entry> {
        if at < self.bins[bin].len() {
            return Some(Entry { bin, at });
        }
        let (mut word, next) = ((bin + 1) / 64, (bin + 1) % 64);
        let mut bits = self.filled.get(word)? & (u64::MAX << next);
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(Entry { bin: word * 64 + bits.trailing_zeros() as usize, at: 0 })
    }

    pub(super) fn free_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.bins.iter().flatten().map(|entry| entry.2)
    }

    /// Whether both hold blocks of the same sizes at the same addresses.
    pub(super) fn same(&self, other: &Self) -> bool {
        let places = |entry: &Key| (entry.0, entry.1);
        self.bins.iter().flatten().map(places).eq(other.bins.iter().flatten().map(places))
    }
}
