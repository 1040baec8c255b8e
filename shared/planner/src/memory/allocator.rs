//! PyTorch's CUDA caching allocator, reproduced block by block.
//!
//! Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11.
//!
//! * Sizes are rounded to 512 bytes.
//! * Requests up to 1 MiB use 2 MiB segments, requests up to 10 MiB use 20 MiB segments. Larger requests use segments
//!   of their size, rounded up to 2 MiB.
//! * The search is best fit by size, then address. Free neighbours merge.
//! * If a segment cannot be allocated, the allocator releases all unused cached segments and tries once more.
//!
//! [`AllocConf`] has the settings that change these rules. Not modelled: several streams, graph pools.

mod conf;
mod expandable;
mod pool;
mod release;
mod restore;
mod settings;
mod sizes;

pub use conf::{AllocConf, AllocConfError, GpuSettings};
use pool::Pool;
pub use restore::{SegmentState, expandable_segment_bytes};
use settings::Ages;
pub use settings::{Defaults, Settings};
use sizes::{MIN_BLOCK_SIZE, SMALL_SIZE};
pub use sizes::{is_small, segment_bytes};

/// Handle to an allocated block; [`Allocator::free`] frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(u32);

/// Invalid block number, so that a lookup returns no block.
const NONE: u32 = u32::MAX;

/// Bytes of the address space of a GPU.
const ADDRESS_SPACE: u64 = 1 << 56;

/// Sort key of a free block: size, address and block number.
type Key = (u64, u64, u32);

/// Size and address of a [`Key`], unique among blocks.
type BlockKey = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Block {
    address: u64,
    size: u64,
    prev: u32,
    next: u32,
    allocated: bool,
    mapped: bool,
    small: bool,
}

impl Block {
    const fn key(&self, id: u32) -> Key {
        (self.size, self.address, id)
    }

    /// Whether the block can serve a request or merge with a neighbour.
    const fn is_free(&self) -> bool {
        !self.allocated && self.mapped
    }
}

/// Kind of segments that the allocator requests from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// One `cudaMalloc` per segment.
    #[default]
    Native,
    /// `expandable_segments:True`: one growing segment per pool.
    Expandable,
}

/// Error: a request fails even after cached segments were released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Requested bytes, rounded up to 512.
    pub requested_bytes: u64,
    /// Bytes requested from `cudaMalloc`; PyTorch's message prints this number.
    pub segment_bytes: u64,
}

/// State of the caching allocator with settings `S`.
#[derive(Clone, Debug)]
pub struct Allocator<S: Settings = Defaults> {
    kind: SegmentKind,
    settings: S,
    ages: S::Ages,
    capacity_bytes: u64,
    blocks: Vec<Block>,
    unused_ids: Vec<u32>,
    small: Pool,
    large: Pool,
    next_address: u64,
    /// Whether each new segment has a lower address than the ones before.
    descends: bool,
    n_releases: u64,
    allocated_bytes: u64,
    reserved_bytes: u64,
    max_allocated_bytes: u64,
    max_reserved_bytes: u64,
}

impl Allocator {
    /// An empty allocator on a GPU with `capacity_bytes` available to PyTorch.
    #[must_use]
    pub fn new(kind: SegmentKind, capacity_bytes: u64) -> Self {
        Self::with_settings(kind, capacity_bytes, Defaults)
    }
}

impl<S: Settings> Allocator<S> {
    /// An empty allocator with settings, on a GPU with `capacity_bytes` available to PyTorch.
    #[must_use]
    pub fn with_settings(kind: SegmentKind, capacity_bytes: u64, settings: S) -> Self {
        Self {
            kind,
            settings,
            ages: S::Ages::default(),
            capacity_bytes,
            blocks: Vec::with_capacity(1024),
            unused_ids: Vec::new(),
            small: Pool::default(),
            large: Pool::default(),
            next_address: 0,
            descends: false,
            n_releases: 0,
            allocated_bytes: 0,
            reserved_bytes: 0,
            max_allocated_bytes: 0,
            max_reserved_bytes: 0,
        }
    }

    /// The allocator with a lower address for each new segment, which fits figures of an H200. In its snapshots, most
    /// large segments descend, but small ones mostly ascend.
    ///
    /// Among free blocks of one size, the allocator takes the one with the lowest address.
    #[must_use]
    pub fn with_descending_segments(mut self) -> Self {
        self.descends = true;
        self
    }

    /// `torch.cuda.memory_allocated()`.
    #[must_use]
    pub const fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// `torch.cuda.memory_reserved()`.
    #[must_use]
    pub const fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// `torch.cuda.max_memory_allocated()`, never reset.
    #[must_use]
    pub const fn max_allocated_bytes(&self) -> u64 {
        self.max_allocated_bytes
    }

    /// `torch.cuda.max_memory_reserved()`, never reset.
    #[must_use]
    pub const fn max_reserved_bytes(&self) -> u64 {
        self.max_reserved_bytes
    }

    /// Whether two states serve all future requests identically.
    #[must_use]
    pub fn same_state(&self, other: &Self) -> bool {
        self.allocated_bytes == other.allocated_bytes
            && self.reserved_bytes == other.reserved_bytes
            && self.max_allocated_bytes == other.max_allocated_bytes
            && self.max_reserved_bytes == other.max_reserved_bytes
            && self.small.same(&other.small)
            && self.large.same(&other.large)
    }

    /// Address and size of an allocated block, in the allocator's own address space.
    #[must_use]
    pub fn extent(&self, BlockId(id): BlockId) -> (u64, u64) {
        let block = &self.blocks[id as usize];
        (block.address, block.size)
    }

    /// Bytes reserved from the driver by the pool of small or large requests. The pool's segments are unchanged while
    /// this value and [`Self::n_releases`] are unchanged.
    #[must_use]
    pub const fn pool_reserved_bytes(&self, small: bool) -> u64 {
        if small { self.small.reserved_bytes } else { self.large.reserved_bytes }
    }

    /// Number of times that cached segments of both pools were released to the driver.
    #[must_use]
    pub const fn n_releases(&self) -> u64 {
        self.n_releases
    }

    /// Resets the maximum of allocated bytes to an earlier value, for a replay that omits tensors of one pool.
    pub(super) const fn reset_max_allocated_bytes(&mut self, bytes: u64) {
        self.max_allocated_bytes = bytes;
    }

    /// Whether the small pool serves a request without a new segment.
    pub(super) fn serves_small(&self, bytes: u64) -> bool {
        self.small.first_fit(self.settings.round(bytes)).is_some()
    }

    /// Whether garbage collection couples the pools and depends on the number of requests.
    pub(super) fn collects_garbage(&self) -> bool {
        self.settings.collection_bytes().is_some()
    }

    /// Allocates a given range of the small pool; `None` if it is not free.
    pub(super) fn alloc_at(&mut self, (address, size): (u64, u64)) -> Option<BlockId> {
        let end = address + size;
        let holds = |&id: &u32| {
            let block = &self.blocks[id as usize];
            block.address <= address && end <= block.address + block.size
        };
        let id = self.small.free_ids().find(holds)?;
        self.isolate(id, address, end);
        self.blocks[id as usize].allocated = true;
        self.allocated_bytes += size;
        Some(BlockId(id))
    }

    /// Allocates a block for a tensor of `bytes`, a positive multiple of 512.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the request does not fit, even after cached segments were released.
    pub fn alloc(&mut self, bytes: u64) -> Result<BlockId, OutOfMemory> {
        let bytes = self.settings.round(bytes);
        let small = is_small(bytes);
        let is_expandable = self.kind == SegmentKind::Expandable;
        if !small {
            self.ages.note_search();
        }
        let pool = if small { &self.small } else { &self.large };
        let (found, entry) = match pool.best_fit(bytes, is_expandable, self.blocks.as_slice()) {
            Some((found, entry)) if self.settings.permits(bytes, self.blocks.as_slice()[found as usize].size) => {
                (found, Some(entry))
            }
            _ => (self.new_room(bytes, small)?, None),
        };
        let mut block = self.blocks.as_slice()[found as usize];
        let left = block.size - bytes;
        let splits = if small || is_expandable {
            left >= MIN_BLOCK_SIZE
        } else {
            left > SMALL_SIZE && bytes < self.settings.max_split_bytes()
        };
        if splits {
            let address = block.address + bytes;
            let rest = self.add_block(Block { address, size: left, prev: found, ..block });
            if let Some(next) = self.blocks.as_mut_slice().get_mut(block.next as usize) {
                next.prev = rest;
            }
            let key = (left, address, rest);
            let pool = self.pool(small);
            match entry {
                Some(entry) => pool.replace_entry(entry, key),
                None => pool.insert(key),
            }
            block.size = bytes;
            block.next = rest;
        } else if let Some(entry) = entry {
            self.pool(small).remove_entry(entry);
        }
        block.allocated = true;
        self.blocks.as_mut_slice()[found as usize] = block;
        self.allocated_bytes += block.size;
        self.max_allocated_bytes = self.max_allocated_bytes.max(self.allocated_bytes);
        Ok(BlockId(found))
    }

    /// Frees a block and merges it with free neighbours.
    pub fn free(&mut self, BlockId(id): BlockId) {
        let blocks = self.blocks.as_mut_slice();
        let mut block = blocks[id as usize];
        let pool = if block.small { &mut self.small } else { &mut self.large };
        block.allocated = false;
        self.allocated_bytes -= block.size;
        if let Some(&before) = blocks.get(block.prev as usize)
            && before.is_free()
        {
            pool.remove((before.size, before.address));
            self.unused_ids.push(block.prev);
            (block.address, block.prev) = (before.address, before.prev);
            block.size += before.size;
            if let Some(prev) = blocks.get_mut(block.prev as usize) {
                prev.next = id;
            }
        }
        let mut grown = None;
        if let Some(&behind) = blocks.get(block.next as usize)
            && behind.is_free()
        {
            grown = Some((behind.size, behind.address));
            self.unused_ids.push(block.next);
            block.next = behind.next;
            block.size += behind.size;
            if let Some(next) = blocks.get_mut(block.next as usize) {
                next.prev = id;
            }
        }
        blocks[id as usize] = block;
        match grown {
            Some(place) => pool.replace(place, block.key(id)),
            None => pool.insert(block.key(id)),
        }
        self.ages.note_free(id);
    }

    /// Allocates memory for a request that no cached block serves: a new segment, or growth of the expandable one. If
    /// that fails, releases cached segments and tries again.
    fn new_room(&mut self, bytes: u64, small: bool) -> Result<u32, OutOfMemory> {
        let segment_bytes = self.settings.segment_bytes(bytes);
        if let Some(limit) = self.settings.collection_bytes() {
            self.collect_garbage(limit);
        }
        let mut tried_oversize = self.settings.max_split_bytes() == u64::MAX;
        let mut has_released = false;
        loop {
            let is_allowed = match self.settings.allowed_bytes() {
                Some(allowed) => self.reserved_bytes.saturating_add(segment_bytes) <= allowed,
                None => true,
            };
            let room = match self.kind {
                _ if !is_allowed => None,
                SegmentKind::Native => self.new_segment(segment_bytes, small),
                SegmentKind::Expandable => self.expand(bytes, small),
            };
            if let Some(id) = room {
                return Ok(id);
            }
            if !std::mem::replace(&mut tried_oversize, true) && self.release_oversize(bytes, small) {
                continue;
            }
            if std::mem::replace(&mut has_released, true) {
                return Err(OutOfMemory { requested_bytes: bytes, segment_bytes });
            }
            self.release_cached();
        }
    }

    fn reserve(&mut self, bytes: u64, small: bool) -> Option<()> {
        let reserved = self.reserved_bytes.checked_add(bytes)?;
        if reserved > self.capacity_bytes {
            return None;
        }
        self.reserved_bytes = reserved;
        self.pool(small).reserved_bytes += bytes;
        self.max_reserved_bytes = self.max_reserved_bytes.max(reserved);
        Some(())
    }

    fn unreserve(&mut self, bytes: u64, small: bool) {
        self.reserved_bytes -= bytes;
        self.pool(small).reserved_bytes -= bytes;
    }

    fn new_segment(&mut self, bytes: u64, small: bool) -> Option<u32> {
        self.reserve(bytes, small)?;
        let start = self.next_address;
        self.next_address += bytes;
        let address = if self.descends { ADDRESS_SPACE.saturating_sub(self.next_address) } else { start };
        Some(self.add_block(Block {
            address,
            size: bytes,
            prev: NONE,
            next: NONE,
            allocated: false,
            mapped: true,
            small,
        }))
    }

    /// Removes a free block from its pool and reduces it to the range from `start` to `end`; the remainders at its ends
    /// stay free.
    fn isolate(&mut self, id: u32, start: u64, end: u64) {
        let place = self.place(id);
        let block = self.blocks[id as usize];
        self.pool(block.small).remove(place);
        if start > block.address {
            let front = Block { size: start - block.address, next: id, ..block };
            let front_id = self.add_block(front);
            if block.prev != NONE {
                self.blocks[block.prev as usize].next = front_id;
            }
            self.blocks[id as usize].prev = front_id;
            self.insert_free(front_id);
        }
        if end < block.address + block.size {
            let back = Block { address: end, size: block.address + block.size - end, prev: id, ..block };
            let back_id = self.add_block(back);
            if block.next != NONE {
                self.blocks[block.next as usize].prev = back_id;
            }
            self.blocks[id as usize].next = back_id;
            self.insert_free(back_id);
        }
        let middle = &mut self.blocks[id as usize];
        (middle.address, middle.size) = (start, end - start);
    }

    /// Merges free neighbours and removes them from the pool.
    fn absorb_all(&mut self, id: u32, neighbours: [u32; 2]) {
        for neighbour in neighbours {
            if let Some(place) = self.absorb(id, neighbour) {
                let small = self.blocks[id as usize].small;
                self.pool(small).remove(place);
            }
        }
    }

    /// Merges a free neighbour of the same mapping into `id` (`try_merge_blocks`). Returns the neighbour's place in the
    /// pool, which the caller must remove.
    fn absorb(&mut self, id: u32, neighbour: u32) -> Option<BlockKey> {
        if neighbour == NONE {
            return None;
        }
        let other = self.blocks[neighbour as usize];
        let block = self.blocks[id as usize];
        if other.allocated || other.mapped != block.mapped {
            return None;
        }
        let merged = &mut self.blocks[id as usize];
        merged.size = block.size + other.size;
        if block.prev == neighbour {
            merged.address = other.address;
            merged.prev = other.prev;
            if other.prev != NONE {
                self.blocks[other.prev as usize].next = id;
            }
        } else {
            merged.next = other.next;
            if other.next != NONE {
                self.blocks[other.next as usize].prev = id;
            }
        }
        self.unused_ids.push(neighbour);
        if other.mapped {
            return Some((other.size, other.address));
        }
        self.pool(other.small).remove_unmapped(other.address);
        None
    }

    fn place(&self, id: u32) -> BlockKey {
        let block = &self.blocks[id as usize];
        (block.size, block.address)
    }

    fn insert_free(&mut self, id: u32) {
        let block = self.blocks[id as usize];
        self.pool(block.small).insert(block.key(id));
    }

    fn add_block(&mut self, block: Block) -> u32 {
        if let Some(id) = self.unused_ids.pop() {
            self.blocks[id as usize] = block;
            return id;
        }
        self.blocks.push(block);
        u32::try_from(self.blocks.len() - 1).unwrap_or(NONE)
    }

    fn pool(&mut self, small: bool) -> &mut Pool {
        if small { &mut self.small } else { &mut self.large }
    }
}
