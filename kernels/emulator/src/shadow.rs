//! Shadow memory: the last accesses to each granule, and whether a new access is ordered after them.
//!
//! Time is counted in ticks; every barrier is one. Another thread's access precedes the current one in two cases: a
//! barrier of both threads completed since, or the access belongs to an earlier launch.

/// Bytes of a granule: the size of a kernel's smallest element.
pub const GRANULE_BYTES: u64 = 2;

/// A thread's number in its grid, and the ticks of its last barriers.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTime {
    /// The thread's number in the grid.
    pub thread: u32,
    /// Threads per block.
    pub block_threads: u32,
    /// The current tick.
    pub tick: u32,
    /// The launch's first tick.
    pub launch_tick: u32,
    /// The tick at which the block's last barrier completed.
    pub block_tick: u32,
    /// The tick at which the warp's last barrier completed.
    pub warp_tick: u32,
}

/// The thread or threads behind an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOrigin {
    /// One thread, by its number in the grid.
    Thread(u32),
    /// Several threads of a warp, including the one with this number.
    Warp(u32),
    /// Several threads of a block, including the one with this number.
    Block(u32),
    /// Several threads of a grid.
    Grid,
}

/// A mistake found in an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// A read of uninitialised memory.
    Unwritten,
    /// A copy to the granule is in flight.
    InFlight,
    /// An unordered write by another thread.
    Wrote(AccessOrigin),
    /// An unordered read by another thread.
    Read(AccessOrigin),
}

/// The last accesses to one granule. All bits are 0 in fresh memory: no access yet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cell {
    /// 0 for none, else the thread's number plus 1. The highest bit marks a copy in flight.
    writer: u32,
    write_tick: u32,
    /// 0 for none, else the thread's number plus 1. The two highest bits select the variant of [`AccessOrigin`].
    reader: u32,
    read_tick: u32,
}

const IN_FLIGHT: u32 = 1 << 31;
const NUMBER: u32 = (1 << 30) - 1;
const HOST: u32 = NUMBER;
const LEVEL_SHIFT: u32 = 30;
const WARP: u32 = 32;

/// The maximum number of threads of a grid, so that their numbers fit a cell.
pub const THREADS_MAX: u64 = NUMBER as u64 - 1;

impl Cell {
    /// Records a write by the host.
    pub fn host_writes(&mut self, tick: u32) {
        *self = Self { writer: HOST, write_tick: tick, reader: 0, read_tick: 0 };
    }

    /// Records a read by a thread.
    ///
    /// # Errors
    /// The read is not ordered after a write, or the granule is uninitialised.
    pub fn read(&mut self, now: &ThreadTime) -> Result<(), Conflict> {
        if self.writer == 0 {
            return Err(Conflict::Unwritten);
        }
        if self.writer & IN_FLIGHT != 0 {
            return Err(Conflict::InFlight);
        }
        if let Some(who) = now.concurrent(self.writer & NUMBER, 0, self.write_tick) {
            return Err(Conflict::Wrote(who));
        }
        let me = now.thread + 1;
        let level = self.reader >> LEVEL_SHIFT;
        let number = self.reader & NUMBER;
        if number == 0 || (level == 0 && number == me) || now.concurrent(number, level, self.read_tick).is_none() {
            self.reader = me;
        } else {
            let (other, this) = (number - 1, now.thread);
            let meet = if other / now.block_threads != this / now.block_threads {
                3
            } else if now.warp_of(other) != now.warp_of(this) {
                2
            } else {
                1
            };
            self.reader = me | level.max(meet) << LEVEL_SHIFT;
        }
        self.read_tick = now.tick;
        Ok(())
    }

    /// Records a write by a thread.
    ///
    /// # Errors
    /// The write is not ordered after another access.
    pub fn write(&mut self, now: &ThreadTime) -> Result<(), Conflict> {
        if self.writer & IN_FLIGHT != 0 {
            return Err(Conflict::InFlight);
        }
        self.judge_write(now)?;
        self.writer = now.thread + 1;
        self.write_tick = now.tick;
        Ok(())
    }

    fn judge_write(&self, now: &ThreadTime) -> Result<(), Conflict> {
        let writer = self.writer & NUMBER;
        if writer != 0
            && let Some(who) = now.concurrent(writer, 0, self.write_tick)
        {
            return Err(Conflict::Wrote(who));
        }
        let reader = self.reader & NUMBER;
        if reader != 0
            && let Some(who) = now.concurrent(reader, self.reader >> LEVEL_SHIFT, self.read_tick)
        {
            return Err(Conflict::Read(who));
        }
        Ok(())
    }

    /// Records the start of a thread's copy to the granule, which may arrive from now on.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn copy_begins(&mut self, now: &ThreadTime) -> Result<(), Conflict> {
        self.write(now)?;
        self.writer |= IN_FLIGHT;
        Ok(())
    }

    /// Records the arrival of a copy.
    pub fn copy_ends(&mut self, now: &ThreadTime) {
        self.writer = now.thread + 1;
        self.write_tick = now.tick;
    }
}

impl ThreadTime {
    fn warp_of(&self, thread: u32) -> u32 {
        thread % self.block_threads / WARP
    }

    /// The author of an access at a tick, if that access is not ordered before the current one.
    fn concurrent(&self, number: u32, level: u32, tick: u32) -> Option<AccessOrigin> {
        if number == HOST || tick < self.launch_tick {
            return None;
        }
        let (other, this) = (number - 1, self.thread);
        if level == 0 && other == this {
            return None;
        }
        let same_block = level < 3 && other / self.block_threads == this / self.block_threads;
        let same_warp = same_block && level < 2 && self.warp_of(other) == self.warp_of(this);
        let is_before = (same_block && tick < self.block_tick) || (same_warp && tick < self.warp_tick);
        (!is_before).then_some(match level {
            0 => AccessOrigin::Thread(other),
            1 => AccessOrigin::Warp(other),
            2 => AccessOrigin::Block(other),
            _ => AccessOrigin::Grid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(thread: u32, tick: u32, block_tick: u32, warp_tick: u32) -> ThreadTime {
        ThreadTime { thread, block_threads: 64, tick, launch_tick: 10, block_tick, warp_tick }
    }

    fn written() -> Cell {
        let mut cell = Cell { writer: 0, write_tick: 0, reader: 0, read_tick: 0 };
        cell.host_writes(5);
        cell
    }

    #[test]
    fn uninitialized_memory_cannot_be_read() {
        let mut cell = Cell { writer: 0, write_tick: 0, reader: 0, read_tick: 0 };
        assert_eq!(cell.read(&now(0, 10, 10, 10)), Err(Conflict::Unwritten));
    }

    #[test]
    fn a_write_is_read_by_others_after_a_barrier_only() {
        let mut cell = written();
        cell.write(&now(3, 10, 10, 10)).expect("the first");
        assert_eq!(cell.read(&now(3, 10, 10, 10)), Ok(()), "its own");
        assert_eq!(cell.read(&now(4, 10, 10, 10)), Err(Conflict::Wrote(AccessOrigin::Thread(3))));
        assert_eq!(cell.read(&now(4, 11, 10, 11)), Ok(()), "the same warp, after the warp's");
        assert_eq!(cell.read(&now(40, 11, 10, 11)), Err(Conflict::Wrote(AccessOrigin::Thread(3))), "another warp");
        assert_eq!(cell.read(&now(40, 12, 12, 10)), Ok(()), "after the block's");
        assert_eq!(cell.read(&now(70, 12, 12, 12)), Err(Conflict::Wrote(AccessOrigin::Thread(3))), "another block");
    }

    #[test]
    fn writer_waits_for_all_readers() {
        let mut cell = written();
        for thread in [1, 2] {
            cell.read(&now(thread, 10, 10, 10)).expect("reads");
        }
        assert_eq!(
            cell.write(&now(2, 10, 10, 10)),
            Err(Conflict::Read(AccessOrigin::Warp(2))),
            "another lane read it too"
        );
        cell.read(&now(33, 10, 10, 10)).expect("reads");
        assert!(
            matches!(cell.write(&now(1, 11, 10, 11)), Err(Conflict::Read(AccessOrigin::Block(_)))),
            "a warp barrier is not enough"
        );
        assert_eq!(cell.write(&now(1, 11, 11, 10)), Ok(()));
    }

    #[test]
    fn a_launch_is_after_all_before_it() {
        let mut cell = written();
        cell.write(&now(100, 9, 1, 1)).expect("the first");
        let later = ThreadTime { launch_tick: 10, ..now(0, 10, 10, 10) };
        assert_eq!(cell.read(&later), Ok(()));
    }

    #[test]
    fn a_copy_on_its_way_may_not_be_touched() {
        let mut cell = written();
        cell.copy_begins(&now(0, 10, 10, 10)).expect("no conflict");
        for thread in [0, 1] {
            assert_eq!(cell.read(&now(thread, 11, 11, 11)), Err(Conflict::InFlight));
        }
        cell.copy_ends(&now(0, 12, 11, 11));
        assert_eq!(cell.read(&now(0, 12, 11, 11)), Ok(()));
        assert_eq!(
            cell.read(&now(1, 12, 11, 11)),
            Err(Conflict::Wrote(AccessOrigin::Thread(0))),
            "thread 1 waited but has not synchronised since the copy"
        );
        assert_eq!(cell.read(&now(1, 13, 13, 11)), Ok(()));
    }
}
