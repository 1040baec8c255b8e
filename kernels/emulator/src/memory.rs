//! The card's memory and a block's: bytes, and what is known of them.

use std::collections::{BTreeMap, VecDeque};

use memmap2::{MmapMut, MmapOptions};
use thiserror::Error;

use crate::{
    fault::{Space, What},
    shadow::{Cell, Conflict, GRANULE_BYTES, Now, Who},
};

/// An address of nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutOfBounds {
    /// It begins inside an allocation and ends, or begins, after it.
    #[error("an access of {bytes} bytes at byte {offset} of an allocation of {allocated_bytes}")]
    After {
        /// The access's size.
        bytes: u64,
        /// Where it begins.
        offset: u64,
        /// The allocation's size.
        allocated_bytes: u64,
    },
    /// Nothing is near.
    #[error("an access of {bytes} bytes at {address:#x}, where nothing is allocated")]
    Nowhere {
        /// The access's size.
        bytes: u64,
        /// The address.
        address: u64,
    },
}

/// How far behind an allocation an address still is told as of that one.
pub const NEAR_BYTES: u64 = 1 << 20;

/// A piece of memory, and a cell for each granule.
#[derive(Debug)]
pub struct Region {
    space: Space,
    base: u64,
    bytes: u64,
    data: MmapMut,
    cells: MmapMut,
}

impl Region {
    /// Memory that nobody wrote; `None` where this machine gives no more.
    pub fn new(space: Space, bytes: u64) -> Option<Self> {
        let cell_bytes = bytes.div_ceil(GRANULE_BYTES).checked_mul(size_of::<Cell>() as u64)?;
        // What is not touched takes nothing, and a test's card may have more than this machine.
        let map =
            |bytes: u64| MmapOptions::new().len(usize::try_from(bytes.max(1)).ok()?).no_reserve_swap().map_anon().ok();
        // What is behind it belongs to nobody else, so that whoever goes too far is told so.
        let data = map(bytes.checked_add(NEAR_BYTES)?)?;
        Some(Self { space, base: data.as_ptr().addr() as u64, bytes, cells: map(cell_bytes)?, data })
    }

    /// Where it begins.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets what was written.
    pub fn clear(&mut self) {
        // Where a read slips through, it is of numbers that are none.
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
        // SAFETY: the mapping is page-aligned, has a cell for each granule, and every pattern of bits is a cell.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.cells.as_mut_ptr().cast::<Cell>(), self.cells.len() / size_of::<Cell>())
        };
        &mut all[first..last]
    }

    /// Judges an access of a thread's to all granules of some bytes, and remembers it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn access(
        &mut self,
        address: u64,
        bytes: u64,
        now: &Now,
        mut touch: impl FnMut(&mut Cell, &Now) -> Result<(), Conflict>,
        does: &'static str,
    ) -> Result<(), What> {
        let offset = self.offset(address, bytes)?;
        let space = self.space;
        for (i, cell) in self.cells(offset, bytes).iter_mut().enumerate() {
            let offset = (offset / GRANULE_BYTES + i as u64) * GRANULE_BYTES;
            touch(cell, now).map_err(|conflict| match conflict {
                Conflict::Unwritten => What::Unwritten { space, offset },
                Conflict::InFlight => What::InFlight { offset },
                Conflict::Wrote(who) => What::Race { space, offset, does, other: told(who, now), did: "wrote" },
                Conflict::Read(who) => What::Race { space, offset, does, other: told(who, now), did: "read" },
            })?;
        }
        Ok(())
    }

    /// The bytes at an address, which was found to be inside.
    pub fn slice_mut(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        let offset = usize::try_from(address - self.base).expect("it is mapped");
        &mut self.data[offset..][..usize::try_from(bytes).expect("it is mapped")]
    }
}

fn told(who: Who, now: &Now) -> String {
    let place = |thread: u32| {
        let (block, thread) = (thread / now.block_threads, thread % now.block_threads);
        if block == now.thread / now.block_threads {
            format!("thread {thread}")
        } else {
            format!("thread {thread} of block {block}")
        }
    };
    match who {
        Who::Thread(thread) => place(thread),
        Who::Warp(thread) => format!("{} and others of its warp", place(thread)),
        Who::Block(thread) => format!("{} and others of its block", place(thread)),
        Who::Grid => "threads of several blocks".to_owned(),
    }
}

/// All allocations.
#[derive(Debug, Default)]
pub struct Memory {
    regions: BTreeMap<u64, Region>,
    /// What was given back last, the oldest first: nobody else gets its addresses meanwhile, so that whoever still uses
    /// them is told.
    gone: VecDeque<Region>,
}

/// Bytes that are kept of what was given back.
const GONE_BYTES: u64 = 64 << 20;

impl Memory {
    /// Takes some.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let region = Region::new(Space::Global, bytes)?;
        let base = region.base();
        self.regions.insert(base, region);
        Some(base)
    }

    /// Gives some back.
    pub fn free(&mut self, address: u64) -> bool {
        let Some(region) = self.regions.remove(&address) else { return false };
        self.gone.push_back(region);
        while self.gone.iter().map(Region::bytes).sum::<u64>() > GONE_BYTES {
            self.gone.pop_front();
        }
        true
    }

    /// Address and bytes of each allocation.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.regions.iter().map(|(address, region)| (*address, region.bytes))
    }

    /// Address and contents of each allocation.
    pub fn all(&mut self) -> impl Iterator<Item = (u64, &mut [u8])> {
        self.regions.iter_mut().map(|(address, region)| {
            let bytes = usize::try_from(region.bytes).expect("it is mapped");
            (*address, &mut region.data[..bytes])
        })
    }

    /// Bytes of an allocation.
    pub fn allocated_bytes(&self, address: u64) -> Option<u64> {
        self.regions.get(&address).map(Region::bytes)
    }

    /// The allocation that an address belongs to, or is a little behind.
    ///
    /// # Errors
    /// There is none.
    pub fn region(&mut self, address: u64, bytes: u64) -> Result<&mut Region, OutOfBounds> {
        let near = self.regions.range_mut(..=address).next_back().map(|(_, region)| region);
        near.filter(|region| address - region.base < region.bytes + NEAR_BYTES)
            .ok_or(OutOfBounds::Nowhere { bytes, address })
    }

    /// Bytes that the host is about to write.
    ///
    /// # Errors
    /// They are not all inside one allocation.
    pub fn host_slice_mut(&mut self, address: u64, bytes: u64, tick: u32) -> Result<&mut [u8], OutOfBounds> {
        let region = self.region(address, bytes)?;
        let offset = region.offset(address, bytes)?;
        region.cells(offset, bytes).iter_mut().for_each(|cell| cell.host_writes(tick));
        Ok(region.slice_mut(address, bytes))
    }

    /// Bytes for the host.
    ///
    /// # Errors
    /// They are not all inside one allocation.
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
        assert!(memory.free(large) && memory.gone.is_empty(), "what is too much is given back for good");
    }
}
