//! A block's shared memory: for each word, the threads that accessed it since the last barriers.

use crate::fault::{Access, MistakeKind, Space};

/// Bytes per asynchronous copy.
pub const COPY_BYTES: usize = 16;
/// The content of uninitialised memory: NaN as f32 and as two bfloat16.
const POISON: u8 = 0xff;
/// The number for no thread, or several.
const NO_THREAD: u32 = u32::MAX;
/// Lanes per warp.
const WARP: u32 = 32;

/// A point in time, counted in barriers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierTime {
    /// The number of preceding barriers of the block.
    pub block: u32,
    /// The number of preceding barriers of the thread's warp.
    pub warp: u32,
}

/// A thread at a point in time.
#[derive(Clone, Copy, Debug)]
pub struct ThreadAtBarrier {
    /// The thread's number in the block.
    pub thread: u32,
    /// The point in time.
    pub moment: BarrierTime,
}

/// The shadow state of four bytes.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// The last thread that wrote the word.
    writer: u32,
    written: BarrierTime,
    /// A mask of the warps that have read the word since `read.block`.
    readers: u32,
    /// The only thread of `reader_warp` that has read since `read.warp`, or [`NO_THREAD`] for several.
    reader: u32,
    reader_warp: u32,
    read: BarrierTime,
    defined: bool,
    in_flight: bool,
}

const UNTOUCHED: Word = Word {
    writer: NO_THREAD,
    written: BarrierTime { block: 0, warp: 0 },
    readers: 0,
    reader: NO_THREAD,
    reader_warp: NO_THREAD,
    read: BarrierTime { block: 0, warp: 0 },
    defined: false,
    in_flight: false,
};

/// An asynchronous copy in flight.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// The byte offset of the destination.
    pub to: usize,
    /// The copied words.
    pub words: [u32; COPY_BYTES / 4],
    /// The number of the copy's group in its thread.
    pub group: u32,
}

/// The shared memory of a block.
#[derive(Debug)]
pub struct Shared {
    bytes: Vec<u8>,
    words: Vec<Word>,
}

impl Shared {
    /// Uninitialised memory of the given size.
    pub fn new(bytes: u32) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        Self { bytes: vec![POISON; bytes], words: vec![UNTOUCHED; bytes.div_ceil(4)] }
    }

    /// Resets the memory to uninitialised, for the next block.
    pub fn clear(&mut self) {
        self.bytes.fill(POISON);
        self.words.fill(UNTOUCHED);
    }

    fn place(&self, access: Access, address: u64, bytes: u32) -> Result<usize, MistakeKind> {
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(MistakeKind::Misaligned { access, bytes, address });
        }
        let room = self.bytes.len() as u64;
        if address.checked_add(u64::from(bytes)).is_none_or(|end| end > room) {
            let place = format!("byte {} of {room} bytes of shared memory", address.cast_signed());
            return Err(MistakeKind::OutOfBounds { access, bytes, place });
        }
        usize::try_from(address).map_err(|_| MistakeKind::Misaligned { access, bytes, address })
    }

    /// Reads words, which must be initialised.
    pub fn load(
        &mut self,
        address: u64,
        out: &mut [u32],
        by: ThreadAtBarrier,
        by_warp: bool,
    ) -> Result<(), MistakeKind> {
        let bytes = u32::try_from(out.len() * 4).unwrap_or(0);
        let place = self.place(Access::Load, address, bytes)?;
        for (i, out) in out.iter_mut().enumerate() {
            let at = place + i * 4;
            read(&mut self.words[at / 4], at as u64, by, by_warp)?;
            *out = word(&self.bytes[at..]);
        }
        Ok(())
    }

    /// Writes words; `defined` is a mask of those with initialised values.
    pub fn store(
        &mut self,
        address: u64,
        values: &[u32],
        defined: u32,
        by: ThreadAtBarrier,
    ) -> Result<(), MistakeKind> {
        let bytes = u32::try_from(values.len() * 4).unwrap_or(0);
        let place = self.place(Access::Store, address, bytes)?;
        for (i, value) in values.iter().enumerate() {
            let at = place + i * 4;
            let word = &mut self.words[at / 4];
            may_write(word, at as u64, by)?;
            (word.writer, word.written, word.defined) = (by.thread, by.moment, defined >> i & 1 == 1);
            self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    }

    /// Starts a copy, which makes the destination inaccessible. Returns the byte offset of the destination.
    pub fn begin_copy(&mut self, address: u64, by: ThreadAtBarrier) -> Result<usize, MistakeKind> {
        let place = self.place(Access::Store, address, 16)?;
        for at in (place..place + COPY_BYTES).step_by(4) {
            let word = &mut self.words[at / 4];
            may_write(word, at as u64, by)?;
            (word.writer, word.written) = (by.thread, by.moment);
            (word.defined, word.in_flight) = (false, true);
        }
        self.bytes[place..place + COPY_BYTES].fill(POISON);
        Ok(place)
    }

    /// Completes a copy. Its thread sees the bytes at once, other threads after a barrier.
    pub fn end_copy(&mut self, copy: &Copy, by: ThreadAtBarrier) {
        for (i, value) in copy.words.iter().enumerate() {
            let at = copy.to + i * 4;
            let word = &mut self.words[at / 4];
            (word.writer, word.written) = (by.thread, by.moment);
            (word.defined, word.in_flight) = (true, false);
            self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Whether two threads' accesses have no barrier between them.
fn unordered(thread: u32, moment: BarrierTime, by: ThreadAtBarrier) -> bool {
    let same_warp = thread / WARP == by.thread / WARP;
    moment.block == by.moment.block && !(same_warp && moment.warp != by.moment.warp)
}

fn race(access: Access, offset: u64, other: String) -> MistakeKind {
    MistakeKind::Race { access, space: Space::Shared, offset, other }
}

fn of_thread(thread: u32) -> String {
    format!("thread {thread}")
}

/// Checks a read and records it. With `by_warp`, any lane of the warp may be the reader.
fn read(word: &mut Word, offset: u64, by: ThreadAtBarrier, by_warp: bool) -> Result<(), MistakeKind> {
    if word.in_flight {
        return Err(MistakeKind::InFlight { access: Access::Load, offset });
    }
    if !word.defined {
        return Err(MistakeKind::Unwritten { space: Space::Shared, offset });
    }
    let writer = word.writer;
    if (writer != by.thread || by_warp) && unordered(writer, word.written, by) {
        return Err(race(Access::Load, offset, of_thread(writer)));
    }
    if word.read.block != by.moment.block {
        word.readers = 0;
    }
    let warp = by.thread / WARP;
    let again = word.readers >> (warp % WARP) & 1 == 1
        && word.reader_warp == warp
        && word.read.warp == by.moment.warp
        && word.reader != by.thread;
    word.reader = if again || by_warp { NO_THREAD } else { by.thread };
    word.reader_warp = warp;
    word.readers |= 1 << (warp % WARP);
    word.read = by.moment;
    Ok(())
}

/// Checks a write.
fn may_write(word: &Word, offset: u64, by: ThreadAtBarrier) -> Result<(), MistakeKind> {
    if word.in_flight {
        return Err(MistakeKind::InFlight { access: Access::Store, offset });
    }
    let writer = word.writer;
    if writer != NO_THREAD && writer != by.thread && unordered(writer, word.written, by) {
        return Err(race(Access::Store, offset, of_thread(writer)));
    }
    if word.readers == 0 || word.read.block != by.moment.block {
        return Ok(());
    }
    let warp = by.thread / WARP;
    let others = word.readers & !(1 << (warp % WARP));
    if others != 0 {
        return Err(race(Access::Store, offset, format!("warp {}", others.trailing_zeros())));
    }
    if word.reader_warp == warp && word.read.warp == by.moment.warp && word.reader != by.thread {
        return Err(race(Access::Store, offset, "another thread of its warp".to_owned()));
    }
    Ok(())
}
