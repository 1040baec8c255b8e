//! Who touched a piece of memory last, and whether what comes now has to be after it.
//!
//! Time is counted in ticks, of which every barrier is one. What another thread did at a tick is before what this one does
//! now where a barrier of both was complete since, or where it belongs to an earlier launch.

/// Bytes that are told apart: the smallest element a kernel has.
pub const GRANULE_BYTES: u64 = 2;

/// A thread's number in its grid, and when it last met others.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Its number, of all of the grid.
    pub thread: u32,
    /// Threads a block.
    pub block_threads: u32,
    /// The present tick.
    pub tick: u32,
    /// The launch's first.
    pub launch_tick: u32,
    /// When the block's last barrier was complete.
    pub block_tick: u32,
    /// When the warp's last one was.
    pub warp_tick: u32,
}

/// Who touched something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A thread, by its number in the grid.
    Thread(u32),
    /// Several of a warp, one of them this.
    Warp(u32),
    /// Several of a block.
    Block(u32),
    /// Several of a grid.
    Grid,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Nobody wrote what is read.
    Unwritten,
    /// A copy is on its way there.
    InFlight,
    /// Somebody wrote it, with no barrier since.
    Wrote(Who),
    /// Somebody read it, with no barrier since.
    Read(Who),
}

/// What is known of one granule. All bits 0, as fresh memory has them: nobody touched it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cell {
    /// 0 for nobody, else the thread's number and 1; the highest bit where a copy is on its way.
    writer: u32,
    write_tick: u32,
    /// 0 for nobody, else the thread's number and 1; in the two highest bits how many it stands for.
    reader: u32,
    read_tick: u32,
}

const IN_FLIGHT: u32 = 1 << 31;
const NUMBER: u32 = (1 << 30) - 1;
const HOST: u32 = NUMBER;
const LEVEL_SHIFT: u32 = 30;
const WARP: u32 = 32;

/// Threads of a grid at most, so that their numbers fit.
pub const THREADS_MAX: u64 = NUMBER as u64 - 1;

impl Cell {
    /// The host wrote it.
    pub fn host_writes(&mut self, tick: u32) {
        *self = Self { writer: HOST, write_tick: tick, reader: 0, read_tick: 0 };
    }

    /// A thread reads it.
    ///
    /// # Errors
    /// It may not, without a barrier.
    pub fn read(&mut self, now: &Now) -> Result<(), Conflict> {
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

    /// A thread writes it.
    ///
    /// # Errors
    /// It may not, without a barrier.
    pub fn write(&mut self, now: &Now) -> Result<(), Conflict> {
        if self.writer & IN_FLIGHT != 0 {
            return Err(Conflict::InFlight);
        }
        self.judge_write(now)?;
        self.writer = now.thread + 1;
        self.write_tick = now.tick;
        Ok(())
    }

    fn judge_write(&self, now: &Now) -> Result<(), Conflict> {
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

    /// A copy of a thread's is on its way there: it may arrive from now on.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn copy_begins(&mut self, now: &Now) -> Result<(), Conflict> {
        self.write(now)?;
        self.writer |= IN_FLIGHT;
        Ok(())
    }

    /// It has arrived.
    pub fn copy_ends(&mut self, now: &Now) {
        self.writer = now.thread + 1;
        self.write_tick = now.tick;
    }
}

impl Now {
    fn warp_of(&self, thread: u32) -> u32 {
        thread % self.block_threads / WARP
    }

    /// Who touched something at a tick, where that is not before now.
    fn concurrent(&self, number: u32, level: u32, tick: u32) -> Option<Who> {
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
            0 => Who::Thread(other),
            1 => Who::Warp(other),
            2 => Who::Block(other),
            _ => Who::Grid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(thread: u32, tick: u32, block_tick: u32, warp_tick: u32) -> Now {
        Now { thread, block_threads: 64, tick, launch_tick: 10, block_tick, warp_tick }
    }

    fn written() -> Cell {
        let mut cell = Cell { writer: 0, write_tick: 0, reader: 0, read_tick: 0 };
        cell.host_writes(5);
        cell
    }

    #[test]
    fn what_nobody_wrote_cannot_be_read() {
        let mut cell = Cell { writer: 0, write_tick: 0, reader: 0, read_tick: 0 };
        assert_eq!(cell.read(&now(0, 10, 10, 10)), Err(Conflict::Unwritten));
    }

    #[test]
    fn a_write_is_read_by_others_after_a_barrier_only() {
        let mut cell = written();
        cell.write(&now(3, 10, 10, 10)).expect("the first");
        assert_eq!(cell.read(&now(3, 10, 10, 10)), Ok(()), "its own");
        assert_eq!(cell.read(&now(4, 10, 10, 10)), Err(Conflict::Wrote(Who::Thread(3))));
        assert_eq!(cell.read(&now(4, 11, 10, 11)), Ok(()), "the same warp, after the warp's");
        assert_eq!(cell.read(&now(40, 11, 10, 11)), Err(Conflict::Wrote(Who::Thread(3))), "another warp");
        assert_eq!(cell.read(&now(40, 12, 12, 10)), Ok(()), "after the block's");
        assert_eq!(cell.read(&now(70, 12, 12, 12)), Err(Conflict::Wrote(Who::Thread(3))), "another block");
    }

    #[test]
    fn whoever_writes_waits_for_all_readers() {
        let mut cell = written();
        for thread in [1, 2] {
            cell.read(&now(thread, 10, 10, 10)).expect("reads");
        }
        assert_eq!(cell.write(&now(2, 10, 10, 10)), Err(Conflict::Read(Who::Warp(2))), "another lane read it too");
        cell.read(&now(33, 10, 10, 10)).expect("reads");
        assert!(
            matches!(cell.write(&now(1, 11, 10, 11)), Err(Conflict::Read(Who::Block(_)))),
            "a warp's is not enough"
        );
        assert_eq!(cell.write(&now(1, 11, 11, 10)), Ok(()));
    }

    #[test]
    fn a_launch_is_after_all_before_it() {
        let mut cell = written();
        cell.write(&now(100, 9, 1, 1)).expect("the first");
        let later = Now { launch_tick: 10, ..now(0, 10, 10, 10) };
        assert_eq!(cell.read(&later), Ok(()));
    }

    #[test]
    fn a_copy_on_its_way_may_not_be_touched() {
        let mut cell = written();
        cell.copy_begins(&now(0, 10, 10, 10)).expect("nobody else");
        for thread in [0, 1] {
            assert_eq!(cell.read(&now(thread, 11, 11, 11)), Err(Conflict::InFlight));
        }
        cell.copy_ends(&now(0, 12, 11, 11));
        assert_eq!(cell.read(&now(0, 12, 11, 11)), Ok(()));
        assert_eq!(
            cell.read(&now(1, 12, 11, 11)),
            Err(Conflict::Wrote(Who::Thread(0))),
            "it waited, and met nobody since"
        );
        assert_eq!(cell.read(&now(1, 13, 13, 11)), Ok(()));
    }
}
