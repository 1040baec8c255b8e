//! The GPU's memory and a block's shared memory: bytes and shadow cells.

use std::collections::{BTreeMap, VecDeque};

use memmap2::{MmapMut, MmapOptions};

use crate::{
    fault::{FaultKind, OutOfBounds, Space},
    shadow::{AccessOrigin, Cell, Conflict, GRANULE_BYTES, ThreadTime},
};

/// The distance past an allocation within which an address is reported as an access to that allocation.
pub const NEAR_BYTES: u64 = 1 << 20;

/// A piece of memory, with a shadow cell per granule.
#[derive(Debug)]
pub struct Region {
    space: Space,
    base: u64,
    bytes: u64,
    data: MmapMut,
    cells: MmapMut,
}

impl Region {
    /// Uninitialised memory; `None` if the host is out of memory.
    pub fn new(space: Space, bytes: u64) -> Option<Self> {
        let cell_bytes = bytes.div_ceil(GRANULE_BYTES).checked_mul(size_of::<Cell>() as u64)?;
        // Untouched pages take no memory, so an emulated GPU may have more memory than the host.
        let map =
            |bytes: u64| MmapOptions::new().len(usize::try_from(bytes.max(1)).ok()?).no_reserve_swap().map_anon().ok();
        // The bytes after the region belong to no other one, so that an access past its end is reported.
        let data = map(bytes.checked_add(NEAR_BYTES)?)?;
        Some(Self { space, base: data.as_ptr().addr() as u64, bytes, cells: map(cell_bytes)?, data })
    }

    /// The address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks all bytes as uninitialised.
    pub fn clear(&mut self) {
        // An unnoticed read of these bytes gives NaN.
        let bytes = usize::try_from(self.bytes).expect("it is mapped");
        self.data[..bytes].fill(0xff);
        self.cells.fill(0);
    }

    fn offset(&self, address: u64, bytes: u64) -> Result<u64, OutOfBounds> {
        let offset = address.wrapping_sub(self.base);
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            Ok(offset)
        } else {
            Err(OutOfBounds::After { bytes, offset, allocated_bytes: self.bytes })
        }
    }

    fn cells(&mut self, offset: u64, bytes: u64) -> &mut [Cell] {
        let first = usize::try_from(offset / GRANULE_BYTES).expect("it is mapped");
        let last = usize::try_from((offset + bytes).div_ceil(GRANULE_BYTES)).expect("it is mapped");
        // SAFETY: the mapping is page-aligned and has a cell per granule, and every bit pattern is a valid cell.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.cells.as_mut_ptr().cast::<Cell>(), self.cells.len() / size_of::<Cell>())
        };
        &mut all[first..last]
    }

    /// Checks a thread's access to all granules of a range, and records it.
    ///
    /// # Errors
    /// The access's mistake.
    pub fn access(
        &mut self,
        address: u64,
        bytes: u64,
        now: &ThreadTime,
        mut touch: impl FnMut(&mut Cell, &ThreadTime) -> Result<(), Conflict>,
        does: &'static str,
    ) -> Result<(), FaultKind> {
        let offset = self.offset(address, bytes)?;
        let space = self.space;
        for (i, cell) in self.cells(offset, bytes).iter_mut().enumerate() {
            let offset = (offset / GRANULE_BYTES + i as u64) * GRANULE_BYTES;
            touch(cell, now).map_err(|conflict| match conflict {
                Conflict::Unwritten => FaultKind::Unwritten { space, offset },
                Conflict::InFlight => FaultKind::InFlight { offset },
                Conflict::Wrote(who) => {
                    FaultKind::Race { space, offset, does, other: describe(who, now), did: "wrote" }
                }
                Conflict::Read(who) => FaultKind::Race { space, offset, does, other: describe(who, now), did: "read" },
            })?;
        }
        Ok(())
    }

    /// The bytes at an address, which must be inside the region.
    pub fn slice_mut(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        let offset = usize::try_from(address - self.base).expect("it is mapped");
        &mut self.data[offset..][..usize::try_from(bytes).expect("it is mapped")]
    }
}

fn describe(who: AccessOrigin, now: &ThreadTime) -> String {
    let place = |thread: u32| {
        let (block, thread) = (thread / now.block_threads, thread % now.block_threads);
        if block == now.thread / now.block_threads {
            format!("thread {thread}")
        } else {
            format!("thread {thread} of block {block}")
        }
    };
    match who {
        AccessOrigin::Thread(thread) => place(thread),
        AccessOrigin::Warp(thread) => format!("{} and others of its warp", place(thread)),
        AccessOrigin::Block(thread) => format!("{} and others of its block", place(thread)),
        AccessOrigin::Grid => "threads of several blocks".to_owned(),
    }
}

/// All allocations of the GPU.
#[derive(Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u64, Region>,
    /// Freed regions, the oldest first. Their addresses are not reused meanwhile, so that a use after free is reported.
    gone: VecDeque<Region>,
}

/// The maximum total size of `gone`, in bytes.
const GONE_BYTES: u64 = 64 << 20;

impl Memory {
    /// Allocates memory and returns its address; `None` if the host is out of memory.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let region = Region::new(Space::Global, bytes)?;
        let base = region.base();
        self.regions.insert(base, region);
        Some(base)
    }

    /// Frees memory. Returns whether an allocation starts at the address.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(region) = self.regions.remove(&address) else { return false };
        self.gone.push_back(region);
        while self.gone.iter().map(Region::bytes).sum::<u64>() > GONE_BYTES {
            self.gone.pop_front();
        }
        true
    }

    /// The address and size in bytes of each allocation.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.regions.iter().map(|(address, region)| (*address, region.bytes))
    }

    /// The address and contents of each allocation.
    pub fn all(&mut self) -> impl Iterator<Item = (u64, &mut [u8])> {
        self.regions.iter_mut().map(|(address, region)| {
            let bytes = usize::try_from(region.bytes).expect("it is mapped");
            (*address, &mut region.data[..bytes])
        })
    }

    /// The size in bytes of the allocation that starts at an address.
    pub fn allocated_bytes(&self, address: u64) -> Option<u64> {
        self.regions.get(&address).map(Region::bytes)
    }

    /// The allocation that contains an address, or ends shortly before it.
    ///
    /// # Errors
    /// No allocation is near.
    pub fn region(&mut self, address: u64, bytes: u64) -> Result<&mut Region, OutOfBounds> {
        let near = self.regions.range_mut(..=address).next_back().map(|(_, region)| region);
        near.filter(|region| address - region.base < region.bytes + NEAR_BYTES)
            .ok_or(OutOfBounds::Nowhere { bytes, address })
    }

    /// The bytes of a range that the host is about to write.
    ///
    /// # Errors
    /// The range is not within one allocation.
    pub fn host_slice_mut(&mut self, address: u64, bytes: u64, tick: u32) -> Result<&mut [u8], OutOfBounds> {
        let region = self.region(address, bytes)?;
        let offset = region.offset(address, bytes)?;
        region.cells(offset, bytes).iter_mut().for_each(|cell| cell.host_writes(tick));
        Ok(region.slice_mut(address, bytes))
    }

    /// The bytes of a range, for the host to read.
    ///
    /// # Errors
    /// The range is not within one allocation.
    pub fn host_slice(&self, address: u64, bytes: u64) -> Result<&[u8], OutOfBounds> {
        let near = self.regions.range(..=address).next_back().map(|(_, region)| region);
        let region = near.ok_or(OutOfBounds::Nowhere { bytes, address })?;
        let offset = usize::try_from(region.offset(address, bytes)?).expect("it is mapped");
        Ok(&region.data[offset..][..usize::try_from(bytes).expect("it is mapped")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_what_was_given_back_are_nobodys_for_a_while() {
        let mut memory = Memory::default();
        let first = memory.allocate(4096).expect("a page");
        memory.host_slice_mut(first, 4096, 1).expect("it is there").fill(7);
        assert!(memory.free(first) && !memory.free(first));
        let others: Vec<u64> = (0..64).map(|_| memory.allocate(4096).expect("a page")).collect();
        assert!(!others.contains(&first));
        assert!(memory.host_slice(first, 1).is_err() && memory.host_slice_mut(first, 1, 2).is_err());
        for other in others {
            assert!(memory.free(other));
        }
        assert_eq!(memory.gone.len(), 65);
        let large = memory.allocate(GONE_BYTES + 1).expect("addresses");
        assert!(memory.free(large) && memory.gone.is_empty(), "excess memory is freed");
    }
}
