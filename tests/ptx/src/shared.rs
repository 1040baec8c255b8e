//! A block's shared memory, and for each word who accessed it since which barrier.

use crate::fault::{Access, Mistake, Space};

/// Bytes of an asynchronous copy.
pub const COPY_BYTES: usize = 16;
/// What memory holds that nothing has written: NaN as float and as two bfloat16.
const POISON: u8 = 0xff;
/// No thread, or several.
const NO_THREAD: u32 = u32::MAX;
/// Lanes of a warp.
const WARP: u32 = 32;

/// When something happens, in an order that barriers make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Barriers of the block before it.
    pub block: u32,
    /// Barriers of the thread's warp before it.
    pub warp: u32,
}

/// A thread at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// Its number in the block.
    pub thread: u32,
    /// When.
    pub moment: Moment,
}

/// What is known of four bytes.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// The last thread that wrote them.
    writer: u32,
    written: Moment,
    /// A bit for each warp that has read them since `read.block`.
    readers: u32,
    /// The one thread of `reader_warp` that has since `read.warp`, or [`NO_THREAD`] for several.
    reader: u32,
    reader_warp: u32,
    read: Moment,
    defined: bool,
    in_flight: bool,
}

const UNTOUCHED: Word = Word {
    writer: NO_THREAD,
    written: Moment { block: 0, warp: 0 },
    readers: 0,
    reader: NO_THREAD,
    reader_warp: NO_THREAD,
    read: Moment { block: 0, warp: 0 },
    defined: false,
    in_flight: false,
};

/// An asynchronous copy that was not waited for.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Where it goes.
    pub to: usize,
    /// What is copied.
    pub words: [u32; COPY_BYTES / 4],
    /// The group of its thread's that it belongs to.
    pub group: u32,
}

/// The memory.
#[derive(Debug)]
pub struct Shared {
    bytes: Vec<u8>,
    words: Vec<Word>,
}

impl Shared {
    /// Memory of so many bytes.
    pub fn new(bytes: u32) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        Self { bytes: vec![POISON; bytes], words: vec![UNTOUCHED; bytes.div_ceil(4)] }
    }

    /// That of the next block, which nothing has written.
    pub fn clear(&mut self) {
        self.bytes.fill(POISON);
        self.words.fill(UNTOUCHED);
    }

    fn place(&self, access: Access, address: u64, bytes: u32) -> Result<usize, Mistake> {
        if !address.is_multiple_of(u64::from(bytes)) {
            return Err(Mistake::Misaligned { access, bytes, address });
        }
        let room = self.bytes.len() as u64;
        if address.checked_add(u64::from(bytes)).is_none_or(|end| end > room) {
            let place = format!("byte {} of {room} bytes of shared memory", address.cast_signed());
            return Err(Mistake::OutOfBounds { access, bytes, place });
        }
        usize::try_from(address).map_err(|_| Mistake::Misaligned { access, bytes, address })
    }

    /// Reads words; with whether each is defined.
    pub fn load(&mut self, address: u64, out: &mut [u32], by: Actor, by_warp: bool) -> Result<(), Mistake> {
        let bytes = u32::try_from(out.len() * 4).unwrap_or(0);
        let place = self.place(Access::Load, address, bytes)?;
        for (i, out) in out.iter_mut().enumerate() {
            let at = place + i * 4;
            read(&mut self.words[at / 4], at as u64, by, by_warp)?;
            *out = word(&self.bytes[at..]);
        }
        Ok(())
    }

    /// Writes words.
    pub fn store(&mut self, address: u64, values: &[u32], defined: u32, by: Actor) -> Result<(), Mistake> {
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

    /// Begins a copy: from now on its bytes are nobody's. Where it goes.
    pub fn begin_copy(&mut self, address: u64, by: Actor) -> Result<usize, Mistake> {
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

    /// Ends a copy: its thread sees the bytes, and others after a barrier.
    pub fn end_copy(&mut self, copy: &Copy, by: Actor) {
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
fn unordered(thread: u32, moment: Moment, by: Actor) -> bool {
    let same_warp = thread / WARP == by.thread / WARP;
    moment.block == by.moment.block && !(same_warp && moment.warp != by.moment.warp)
}

fn race(access: Access, offset: u64, other: String) -> Mistake {
    Mistake::Race { access, space: Space::Shared, offset, other }
}

fn of_thread(thread: u32) -> String {
    format!("thread {thread}")
}

/// Judges a read and remembers it. `by_warp`: that any lane of the warp may be the one that reads.
fn read(word: &mut Word, offset: u64, by: Actor, by_warp: bool) -> Result<(), Mistake> {
    if word.in_flight {
        return Err(Mistake::InFlight { access: Access::Load, offset });
    }
    if !word.defined {
        return Err(Mistake::Unwritten { space: Space::Shared, offset });
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

/// Judges a write.
fn may_write(word: &Word, offset: u64, by: Actor) -> Result<(), Mistake> {
    if word.in_flight {
        return Err(Mistake::InFlight { access: Access::Store, offset });
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
