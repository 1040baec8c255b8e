//! PyTorch's CUDA caching allocator, block for block.
//!
//! Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11: 512-byte rounding; requests up to 1 MiB come from 2 MiB
//! segments, up to 10 MiB from 20 MiB segments, larger ones from their size rounded up to 2 MiB; best fit by size, then
//! address; neighbours merge on free; when a segment cannot be had, whole cached segments are given back and it is
//! tried once more. Not modelled: several streams, `max_split_size_mb`, `garbage_collection_threshold`, graph pools.

mod pool;

use pool::Pool;

const MIB: u64 = 1 << 20;
/// Largest request of the small pool (`kSmallSize`).
const SMALL_SIZE: u64 = MIB;
/// Segment of the small pool (`kSmallBuffer`).
const SMALL_BUFFER: u64 = 2 * MIB;
/// Segment for requests of 1 to 10 MiB (`kLargeBuffer`).
const LARGE_BUFFER: u64 = 20 * MIB;
/// From here a segment is made to measure (`kMinLargeAlloc`).
const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// Rounding of a segment made to measure (`kRoundLarge`).
const ROUND_LARGE: u64 = 2 * MIB;
/// A block is split where at least this would be left (`kMinBlockSize`).
const MIN_BLOCK_SIZE: u64 = 512;

/// A block handed out; give it back with [`Allocator::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(u32);

/// No block: a number that no block has, so that looking it up gives none.
const NONE: u32 = u32::MAX;

/// How a free block is ordered and found: size, address, and which block it is.
type Key = (u64, u64, u32);

/// The first two of a [`Key`], which no two blocks share.
type Place = (u64, u64);

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
    fn key(&self, id: u32) -> Key {
        (self.size, self.address, id)
    }
}

/// How the allocator takes memory from the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// One `cudaMalloc` a segment.
    #[default]
    Native,
    /// `expandable_segments:True`: one growing segment a pool.
    Expandable,
}

/// A request the card cannot serve, even after cached segments were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for, rounded up to 512 bytes.
    pub requested_bytes: u64,
    /// What was asked of `cudaMalloc`; PyTorch's message prints this.
    pub segment_bytes: u64,
}

/// The allocator's state.
#[derive(Clone, Debug)]
pub struct Allocator {
    kind: SegmentKind,
    capacity_bytes: u64,
    blocks: Vec<Block>,
    unused_ids: Vec<u32>,
    small: Pool,
    large: Pool,
    next_address: u64,
    n_releases: u64,
    allocated_bytes: u64,
    reserved_bytes: u64,
    max_allocated_bytes: u64,
    max_reserved_bytes: u64,
}

impl Allocator {
    /// An empty allocator on a card where PyTorch can have `capacity_bytes`.
    #[must_use]
    pub fn new(kind: SegmentKind, capacity_bytes: u64) -> Self {
        Self {
            kind,
            capacity_bytes,
            blocks: Vec::with_capacity(1024),
            unused_ids: Vec::new(),
            small: Pool::default(),
            large: Pool::default(),
            next_address: 0,
            n_releases: 0,
            allocated_bytes: 0,
            reserved_bytes: 0,
            max_allocated_bytes: 0,
            max_reserved_bytes: 0,
        }
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

    /// Whether two states would serve the same requests the same way.
    #[must_use]
    pub fn same_state(&self, other: &Self) -> bool {
        self.allocated_bytes == other.allocated_bytes
            && self.reserved_bytes == other.reserved_bytes
            && self.max_allocated_bytes == other.max_allocated_bytes
            && self.max_reserved_bytes == other.max_reserved_bytes
            && self.small.same(&other.small)
            && self.large.same(&other.large)
    }

    /// Address and size of a block that was handed out, in an address space of the allocator's own.
    #[must_use]
    pub fn extent(&self, BlockId(id): BlockId) -> (u64, u64) {
        let block = &self.blocks[id as usize];
        (block.address, block.size)
    }

    /// What the allocator has from the driver: as long as these three stay, so do the segments. They are the end of the
    /// address space in use, the bytes reserved, and how often cached memory was given back.
    #[must_use]
    pub const fn driver_state(&self) -> [u64; 3] {
        [self.next_address, self.reserved_bytes, self.n_releases]
    }

    /// Hands out a block for a tensor of `bytes`, at least 512 and a multiple of that.
    ///
    /// # Errors
    /// The card has no room, even after cached segments were given back.
    pub fn alloc(&mut self, bytes: u64) -> Result<BlockId, OutOfMemory> {
        let small = bytes <= SMALL_SIZE;
        let pool = if small { &mut self.small } else { &mut self.large };
        let (found, entry) = match pool.best_fit(bytes, self.kind, &self.blocks) {
            Some((found, entry)) => (found, Some(entry)),
            None => (self.new_room(bytes, small)?, None),
        };
        let block = self.blocks[found as usize];
        let left = block.size - bytes;
        let splits =
            if small || self.kind == SegmentKind::Expandable { left >= MIN_BLOCK_SIZE } else { left > SMALL_SIZE };
        let taken = if splits {
            let address = block.address + bytes;
            let rest = self.add_block(Block { address, size: left, prev: found, ..block });
            if let Some(next) = self.blocks.get_mut(block.next as usize) {
                next.prev = rest;
            }
            let pool = self.pool(small);
            if let Some(entry) = entry {
                pool.remove_entry(entry);
            }
            pool.insert((left, address, rest));
            Block { size: bytes, next: rest, allocated: true, ..block }
        } else {
            if let Some(entry) = entry {
                self.pool(small).remove_entry(entry);
            }
            Block { allocated: true, ..block }
        };
        self.blocks[found as usize] = taken;
        self.allocated_bytes += taken.size;
        self.max_allocated_bytes = self.max_allocated_bytes.max(self.allocated_bytes);
        Ok(BlockId(found))
    }

    /// Takes a block back and merges it with free neighbours.
    pub fn free(&mut self, BlockId(id): BlockId) {
        let mut block = self.blocks[id as usize];
        block.allocated = false;
        self.allocated_bytes -= block.size;
        if let Some(before) = self.free_block(block.prev) {
            self.pool(block.small).remove((before.size, before.address));
            self.unused_ids.push(block.prev);
            (block.address, block.prev) = (before.address, before.prev);
            block.size += before.size;
            if let Some(prev) = self.blocks.get_mut(block.prev as usize) {
                prev.next = id;
            }
        }
        if let Some(behind) = self.free_block(block.next) {
            self.pool(block.small).remove((behind.size, behind.address));
            self.unused_ids.push(block.next);
            block.next = behind.next;
            block.size += behind.size;
            if let Some(next) = self.blocks.get_mut(block.next as usize) {
                next.prev = id;
            }
        }
        self.blocks[id as usize] = block;
        self.pool(block.small).insert(block.key(id));
    }

    /// The mapped block of that number, if it is free.
    fn free_block(&self, id: u32) -> Option<Block> {
        self.blocks.get(id as usize).copied().filter(|block| !block.allocated && block.mapped)
    }

    /// Room for a request no cached block serves: a new segment, or the expandable one grown; given-back cached
    /// segments make a second try.
    fn new_room(&mut self, bytes: u64, small: bool) -> Result<u32, OutOfMemory> {
        let segment_bytes = segment_bytes(bytes);
        for give_back in [false, true] {
            if give_back {
                self.release_cached();
            }
            let room = match self.kind {
                SegmentKind::Native => self.new_segment(segment_bytes, small),
                SegmentKind::Expandable => self.expand(bytes, small),
            };
            if let Some(id) = room {
                return Ok(id);
            }
        }
        Err(OutOfMemory { requested_bytes: bytes, segment_bytes })
    }

    fn reserve(&mut self, bytes: u64) -> Option<()> {
        let reserved = self.reserved_bytes.checked_add(bytes)?;
        if reserved > self.capacity_bytes {
            return None;
        }
        self.reserved_bytes = reserved;
        self.max_reserved_bytes = self.max_reserved_bytes.max(reserved);
        Some(())
    }

    fn new_segment(&mut self, bytes: u64, small: bool) -> Option<u32> {
        self.reserve(bytes)?;
        let address = self.next_address;
        self.next_address += bytes;
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

    /// Grows the pool's expandable segment (`try_allocate_expandable_block`): the free block at its end and as much
    /// unmapped room behind it as is missing.
    ///
    /// PyTorch reserves address space of 1 1/8 of the card a segment, more than one pool can fill, so that one
    /// segment a pool is enough here. Unmapped room in the middle (left by [`Self::release_cached`]) is tried first,
    /// lowest address first, as in `find_expandable_block`.
    fn expand(&mut self, bytes: u64, small: bool) -> Option<u32> {
        let step = if small { SMALL_BUFFER } else { LARGE_BUFFER };
        let mut candidate = self.find_expandable(bytes, small);
        if !self.blocks[candidate as usize].mapped {
            let want = bytes.min(self.blocks[candidate as usize].size);
            candidate = self.map(candidate, want, step)?;
        }
        while self.blocks[candidate as usize].size < bytes {
            let Block { size, next, .. } = self.blocks[candidate as usize];
            let want = (bytes - size).min(self.blocks[next as usize].size);
            candidate = self.map(next, want, step)?;
        }
        let place = self.place(candidate);
        self.pool(small).remove(place);
        Some(candidate)
    }

    fn find_expandable(&mut self, bytes: u64, small: bool) -> u32 {
        let unmapped = self.pool(small).unmapped.clone();
        for (_, id) in unmapped {
            let prev = self.blocks[id as usize].prev;
            let start = if prev != NONE && !self.blocks[prev as usize].allocated { prev } else { id };
            let (mut at, mut room) = (start, 0);
            while at != NONE && !self.blocks[at as usize].allocated && room < bytes {
                room += self.blocks[at as usize].size;
                at = self.blocks[at as usize].next;
            }
            if room >= bytes {
                return start;
            }
        }
        // A fresh segment: address space for everything the card could hold and an eighth more.
        let size = (u64::MAX >> 8).next_multiple_of(LARGE_BUFFER);
        let address = self.next_address;
        self.next_address = self.next_address.saturating_add(size);
        let id =
            self.add_block(Block { address, size, prev: NONE, next: NONE, allocated: false, mapped: false, small });
        self.pool(small).insert_unmapped(address, id);
        id
    }

    /// Maps the front of an unmapped block, in whole steps of the segment, and merges it with mapped free neighbours.
    fn map(&mut self, id: u32, bytes: u64, step: u64) -> Option<u32> {
        let block = self.blocks[id as usize];
        let mapped = bytes.next_multiple_of(step).min(block.size);
        self.reserve(mapped)?;
        self.pool(block.small).remove_unmapped(block.address);
        if mapped < block.size {
            let rest =
                self.add_block(Block { address: block.address + mapped, size: block.size - mapped, prev: id, ..block });
            if block.next != NONE {
                self.blocks[block.next as usize].prev = rest;
            }
            self.blocks[id as usize].next = rest;
            self.blocks[id as usize].size = mapped;
            self.pool(block.small).insert_unmapped(block.address + mapped, rest);
        }
        self.blocks[id as usize].mapped = true;
        let (prev, next) = (self.blocks[id as usize].prev, self.blocks[id as usize].next);
        self.absorb_all(id, [prev, next]);
        self.insert_free(id);
        Some(id)
    }

    /// Gives back every cached segment with nothing in it (`release_cached_blocks`); of expandable segments, every
    /// whole step of a free block.
    fn release_cached(&mut self) {
        self.n_releases += 1;
        for small in [true, false] {
            let free: Vec<u32> = self.pool(small).free_ids().collect();
            for id in free {
                let block = self.blocks[id as usize];
                match self.kind {
                    SegmentKind::Native if block.prev == NONE && block.next == NONE => {
                        let place = self.place(id);
                        self.pool(small).remove(place);
                        self.reserved_bytes -= block.size;
                        self.unused_ids.push(id);
                    }
                    SegmentKind::Native => {}
                    SegmentKind::Expandable => self.unmap(id, if small { SMALL_BUFFER } else { LARGE_BUFFER }),
                }
            }
        }
    }

    /// Unmaps the whole steps inside a free block (`unmap_block`); what is left at its ends stays free.
    fn unmap(&mut self, id: u32, step: u64) {
        let block = self.blocks[id as usize];
        // Segments start at a multiple of the step, or so it may be taken: the first address of each is one.
        let start = block.address.next_multiple_of(step);
        let end = (block.address + block.size) / step * step;
        if end <= start {
            return;
        }
        let place = self.place(id);
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
        middle.address = start;
        middle.size = end - start;
        middle.mapped = false;
        self.reserved_bytes -= end - start;
        let (prev, next) = (middle.prev, middle.next);
        self.absorb_all(id, [prev, next]);
        let address = self.blocks[id as usize].address;
        self.pool(block.small).insert_unmapped(address, id);
    }

    /// Merges free neighbours and takes them out of the pool.
    fn absorb_all(&mut self, id: u32, neighbours: [u32; 2]) {
        for neighbour in neighbours {
            if let Some(place) = self.absorb(id, neighbour) {
                let small = self.blocks[id as usize].small;
                self.pool(small).remove(place);
            }
        }
    }

    /// Merges a free neighbour of the same mapping into `id` (`try_merge_blocks`); gives the place at which the pool
    /// still has the neighbour, for the caller to remove.
    fn absorb(&mut self, id: u32, neighbour: u32) -> Option<Place> {
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

    fn place(&self, id: u32) -> Place {
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

/// Bytes asked of the driver for a request (`get_allocation_size`).
#[must_use]
pub fn segment_bytes(bytes: u64) -> u64 {
    if bytes <= SMALL_SIZE {
        SMALL_BUFFER
    } else if bytes < MIN_LARGE_ALLOC {
        LARGE_BUFFER
    } else {
        bytes.next_multiple_of(ROUND_LARGE)
    }
}
