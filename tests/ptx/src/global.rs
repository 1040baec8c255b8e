//! The GPU's global memory: for each word, whether it is initialised, and which threads of a launch accessed it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use crate::fault::{Access, MistakeKind, Space};

/// An access to a word by the host. Other accesses hold the launch's number in the upper half and the thread's in the
/// lower.
const HOST: u64 = 1;
/// The lower half of an access by several threads of a launch.
const SEVERAL: u64 = 0xffff_ffff;

/// The shadow state of the GPU's allocations. The allocator owns their bytes.
#[derive(Debug, Default)]
pub struct Memory {
    allocations: BTreeMap<u64, AllocationShadow>,
    launches: u64,
}

/// The shadow state of one allocation: the last accesses to each word.
#[derive(Debug)]
struct AllocationShadow {
    writers: Vec<u64>,
    readers: Vec<u64>,
}

/// An allocation and its bytes.
#[derive(Debug)]
pub struct Allocation<'a> {
    /// The address on the GPU, a multiple of 16.
    pub address: u64,
    /// The bytes, aligned to 4 on the host.
    pub bytes: &'a mut [u8],
}

impl Memory {
    /// Registers an uninitialised allocation.
    pub fn allocate(&mut self, address: u64, bytes: u64) {
        let words = usize::try_from(bytes.div_ceil(4)).unwrap_or(0);
        self.allocations.insert(address, AllocationShadow { writers: vec![0; words], readers: vec![0; words] });
    }

    /// Removes an allocation.
    pub fn free(&mut self, address: u64) {
        self.allocations.remove(&address);
    }

    /// Records a write by the host.
    pub fn written(&mut self, address: u64, bytes: u64) {
        let Some((base, known)) = self.allocations.range_mut(..=address).next_back() else { return };
        let place = |bytes: u64| usize::try_from(bytes / 4).unwrap_or(usize::MAX).min(known.writers.len());
        let (first, end) = (place(address - base), place((address - base).saturating_add(bytes).saturating_add(3)));
        known.writers[first..end].fill(HOST);
    }

    /// The memory in a launch.
    pub(crate) fn view<'a>(&'a mut self, allocations: Vec<Allocation<'a>>) -> View<'a> {
        self.launches += 1;
        let mut buffers: Vec<Buffer<'a>> = Vec::new();
        let mut known: BTreeMap<u64, &'a mut AllocationShadow> =
            self.allocations.iter_mut().map(|(address, known)| (*address, known)).collect();
        for Allocation { address, bytes } in allocations {
            let Some(known) = known.remove(&address) else { continue };
            let length = bytes.len() as u64;
            buffers.push(Buffer {
                address,
                length,
                words: words(bytes),
                writers: longs(&mut known.writers),
                readers: longs(&mut known.readers),
            });
        }
        buffers.sort_by_key(|buffer| buffer.address);
        View { buffers, launch: (self.launches + 1) << 32 }
    }
}

/// Words that several host threads may access at once.
fn words(bytes: &mut [u8]) -> &[AtomicU32] {
    // SAFETY: every bit pattern is a valid word, and no other reference to the bytes exists during the borrow.
    let (before, words, _) = unsafe { bytes.align_to_mut::<u32>() };
    assert!(before.is_empty(), "allocations begin at whole words");
    // SAFETY: an atomic word has the layout of a word, and the borrow is exclusive.
    unsafe { &*(std::ptr::from_mut(words) as *const [AtomicU32]) }
}

fn longs(longs: &mut [u64]) -> &[AtomicU64] {
    // SAFETY: as for words; on every target with 64-bit atomics, they have the alignment of u64.
    unsafe { &*(std::ptr::from_mut(longs) as *const [AtomicU64]) }
}

/// An allocation during a launch.
#[derive(Debug)]
struct Buffer<'a> {
    address: u64,
    length: u64,
    words: &'a [AtomicU32],
    writers: &'a [AtomicU64],
    readers: &'a [AtomicU64],
}

/// All memory during a launch. Blocks may run in parallel.
#[derive(Debug)]
pub struct View<'a> {
    buffers: Vec<Buffer<'a>>,
    launch: u64,
}

impl View<'_> {
    fn place(&self, access: Access, address: u64, n: usize) -> Result<(&Buffer<'_>, usize), MistakeKind> {
        let bytes = u32::try_from(n * 4).unwrap_or(0);
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(MistakeKind::Misaligned { access, bytes, address });
        }
        let after = self.buffers.partition_point(|buffer| buffer.address <= address);
        let near = after.checked_sub(1).map(|place| &self.buffers[place]);
        let outside = || {
            let place = match near {
                Some(near) => {
                    format!("byte {} of an allocation of {} bytes", address - near.address, near.length)
                }
                None => format!("{address:#x}, before every allocation"),
            };
            MistakeKind::OutOfBounds { access, bytes, place }
        };
        let near = near.ok_or_else(outside)?;
        let offset = address - near.address;
        if offset.checked_add(u64::from(bytes)).is_none_or(|end| end > near.length) {
            return Err(outside());
        }
        Ok((near, usize::try_from(offset / 4).map_err(|_| outside())?))
    }

    /// Reads words as a thread, given by its number in the grid.
    pub fn load(&self, address: u64, out: &mut [u32], thread: u32) -> Result<(), MistakeKind> {
        let (buffer, first) = self.place(Access::Load, address, out.len())?;
        let me = self.launch | u64::from(thread);
        for (i, out) in out.iter_mut().enumerate() {
            let at = first + i;
            let writer = buffer.writers[at].load(Ordering::Relaxed);
            let offset = at as u64 * 4;
            if writer == 0 {
                return Err(MistakeKind::Unwritten { space: Space::Global, offset });
            }
            if writer >> 32 == self.launch >> 32 && writer != me {
                return Err(race(Access::Load, offset, writer));
            }
            let reader = buffer.readers[at].load(Ordering::Relaxed);
            if reader != me {
                let others = reader >> 32 == self.launch >> 32;
                buffer.readers[at].store(if others { self.launch | SEVERAL } else { me }, Ordering::Relaxed);
            }
            *out = buffer.words[at].load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes words as a thread, given by its number in the grid.
    pub fn store(&self, address: u64, values: &[u32], thread: u32) -> Result<(), MistakeKind> {
        let (buffer, first) = self.place(Access::Store, address, values.len())?;
        let me = self.launch | u64::from(thread);
        for (i, value) in values.iter().enumerate() {
            let at = first + i;
            let offset = at as u64 * 4;
            let writer = buffer.writers[at].swap(me, Ordering::Relaxed);
            if writer >> 32 == self.launch >> 32 && writer != me {
                return Err(race(Access::Store, offset, writer));
            }
            let reader = buffer.readers[at].load(Ordering::Relaxed);
            if reader >> 32 == self.launch >> 32 && reader != me {
                return Err(race(Access::Store, offset, reader));
            }
            buffer.words[at].store(*value, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn race(access: Access, offset: u64, other: u64) -> MistakeKind {
    let other = match other & SEVERAL {
        SEVERAL => "several threads".to_owned(),
        thread => format!("thread {thread} of the grid"),
    };
    MistakeKind::Race { access, space: Space::Global, offset, other: other + " of the same launch" }
}
