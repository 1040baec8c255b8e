//! A block that runs: its threads, and what they wait for.

use std::ffi::c_void;

use corosensei::Yielder;

use crate::{
    Kernel, Launch, Size,
    copies::{COPY_BYTES, Copies, Copy},
    fault::{Fault, What},
    memory::{Memory, NEAR_BYTES, OutOfBounds, Region},
    shadow::{Cell, Conflict, Now},
    warp::{LANES, Operation, Place, Slot, Warp},
};

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// A barrier of the block, by the number that there will have been.
    Block(u64, Place),
    /// An operation of its warp, likewise.
    Warp(u64, Operation, Place),
}

/// A thread of the block.
#[derive(Debug)]
pub struct Thread {
    /// Where to leave it from, while it runs; nothing before.
    pub yielder: *const Yielder<(), ()>,
    /// The addresses of its stack.
    pub stack: std::ops::Range<usize>,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// It has returned.
    pub done: bool,
    copies: Copies,
}

impl Thread {
    /// One that has not begun.
    pub fn new(stack: std::ops::Range<usize>) -> Self {
        Self { yielder: std::ptr::null(), stack, wait: None, done: false, copies: Copies::default() }
    }
}

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is done.
    Done,
    /// The thread has to wait.
    Wait,
}

/// The block.
pub struct Block<'a> {
    /// The card's memory.
    pub memory: &'a mut Memory,
    /// Its own.
    pub shared: &'a mut Region,
    /// What it runs.
    pub kernel: &'static Kernel,
    /// How it was launched.
    pub launch: Launch,
    /// The parameters.
    pub arguments: *const *const c_void,
    /// Its place in the grid.
    pub index: Size,
    /// Its number in the grid.
    pub number: u32,
    /// By their numbers.
    pub threads: Vec<Thread>,
    /// By their numbers.
    pub warps: Vec<Warp>,
    /// The thread that runs.
    pub current: usize,
    /// The present.
    pub tick: u32,
    /// The launch's first.
    pub launch_tick: u32,
    /// What went wrong.
    pub fault: Option<Box<Fault>>,
    block_tick: u32,
    arrived: usize,
    barriers: u64,
    barrier: Option<Place>,
}

impl<'a> Block<'a> {
    /// A block whose threads have not begun.
    #[expect(clippy::too_many_arguments, reason = "it is made in one place")]
    pub fn new(
        memory: &'a mut Memory,
        shared: &'a mut Region,
        kernel: &'static Kernel,
        launch: Launch,
        arguments: *const *const c_void,
        index: Size,
        number: u32,
        threads: Vec<Thread>,
        [launch_tick, tick]: [u32; 2],
    ) -> Self {
        let warps = (0..threads.len().div_ceil(LANES)).map(|_| Warp::new(tick)).collect();
        Self {
            memory,
            shared,
            kernel,
            launch,
            arguments,
            index,
            number,
            threads,
            warps,
            current: 0,
            tick,
            launch_tick,
            fault: None,
            block_tick: tick,
            arrived: 0,
            barriers: 0,
            barrier: None,
        }
    }

    /// A thread's place in the block.
    pub fn thread_index(&self, thread: usize) -> Size {
        let [x, y, _] = self.launch.block.map(|n| n as usize);
        [thread % x, thread / x % y, thread / x / y].map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Remembers what the present thread did wrong.
    pub fn fail(&mut self, what: What, place: String) {
        let thread = self.thread_index(self.current);
        let fault = Fault { kernel: self.kernel.name(), block: self.index, thread, what, place };
        self.fault.get_or_insert(Box::new(fault));
    }

    /// Whether a thread can go on.
    pub fn can_go(&self, thread: usize) -> bool {
        let state = &self.threads[thread];
        !state.done
            && match state.wait {
                None => true,
                Some(Wait::Block(number, _)) => self.barriers >= number,
                Some(Wait::Warp(number, ..)) => self.warps[thread / LANES].done >= number,
            }
    }

    /// Threads that have not returned.
    pub fn live(&self) -> usize {
        self.threads.iter().filter(|thread| !thread.done).count()
    }

    /// The present thread returned.
    pub fn returned(&mut self) {
        self.threads[self.current].done = true;
        if self.arrived > 0 && self.arrived == self.live() {
            self.complete_barrier();
        }
        let lane = self.current % LANES;
        let at = self.warps[self.current / LANES].at;
        if let Some((operation, mask, place)) = at.filter(|(_, mask, _)| mask >> lane & 1 == 1) {
            let _ = (operation, mask);
            self.fail(What::NoLane { lane: u32::try_from(lane).unwrap_or(u32::MAX) }, place.to_string());
        }
    }

    /// All threads wait, and none can go on.
    pub fn deadlock(&mut self) {
        let waiting = self.threads.iter().position(|thread| !thread.done).unwrap_or(0);
        self.current = waiting;
        let (waits, place) = match self.threads[waiting].wait {
            Some(Wait::Block(_, place)) => ("__syncthreads".to_owned(), place.to_string()),
            Some(Wait::Warp(_, operation, place)) => (operation.to_string(), place.to_string()),
            None => (String::new(), String::new()),
        };
        self.fail(What::Deadlock { waits }, place);
    }

    /// The present thread comes to a barrier.
    pub fn sync(&mut self, place: Place) -> Result<Step, What> {
        if let Some(other) = self.barrier.filter(|other| *other != place) {
            return Err(What::OtherBarrier { other: other.to_string() });
        }
        self.barrier = Some(place);
        self.arrived += 1;
        self.threads[self.current].wait = Some(Wait::Block(self.barriers + 1, place));
        if self.arrived < self.live() {
            return Ok(Step::Wait);
        }
        self.complete_barrier();
        Ok(Step::Done)
    }

    fn complete_barrier(&mut self) {
        self.arrived = 0;
        self.barrier = None;
        self.barriers += 1;
        self.tick = self.tick.saturating_add(1);
        self.block_tick = self.tick;
    }

    /// The present thread comes to an operation of its warp with its part.
    pub fn operate(&mut self, operation: Operation, mask: u32, input: [u32; 10], place: Place) -> Result<Step, What> {
        let (number, lane) = (self.current / LANES, self.current % LANES);
        for named in (0..LANES).filter(|named| mask >> named & 1 == 1) {
            let is_there = self.threads.get(number * LANES + named).is_some_and(|thread| !thread.done);
            if !is_there {
                return Err(What::NoLane { lane: u32::try_from(named).unwrap_or(u32::MAX) });
            }
        }
        let warp = &mut self.warps[number];
        let this = (operation, mask, place);
        if let Some(other) = warp.at.filter(|other| *other != this) {
            let told = |(operation, mask, place): (Operation, u32, Place)| {
                format!("{operation} at {place} with the mask {mask:#010x}")
            };
            return Err(What::OtherOperation { this: told(this), other: told(other) });
        }
        warp.at = Some(this);
        warp.arrived |= 1 << lane;
        warp.slots[lane].input = input;
        self.threads[self.current].wait = Some(Wait::Warp(warp.done + 1, operation, place));
        if warp.arrived != mask {
            return Ok(Step::Wait);
        }
        self.execute(number, operation, mask)?;
        let warp = &mut self.warps[number];
        (warp.at, warp.arrived) = (None, 0);
        warp.done += 1;
        Ok(Step::Done)
    }

    fn execute(&mut self, number: usize, operation: Operation, mask: u32) -> Result<(), What> {
        match operation {
            Operation::Sync => {
                self.tick = self.tick.saturating_add(1);
                self.warps[number].tick = self.tick;
            }
            Operation::Shuffle => {
                let slots = &mut self.warps[number].slots;
                for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
                    let from = slots[lane].input[1];
                    if from as usize >= LANES || mask >> from & 1 == 0 {
                        return Err(What::NoLane { lane: from });
                    }
                    slots[lane].output[0] = slots[from as usize].input[0];
                }
            }
            Operation::LoadMatrix { n, transposed } => self.load_matrices(number, n, transposed)?,
            Operation::Multiply => self.warps[number].multiply(),
        }
        Ok(())
    }

    fn load_matrices(&mut self, number: usize, n: usize, transposed: bool) -> Result<(), What> {
        for matrix in 0..n {
            let mut rows = [[0_u16; 8]; 8];
            for (row, elements) in rows.iter_mut().enumerate() {
                let lane = matrix * 8 + row;
                let [low, high] = [0, 1].map(|half| u64::from(self.warps[number].slots[lane].input[half]));
                let address = low | high << 32;
                self.access(number * LANES + lane, address, COPY_BYTES, false)?;
                let bytes = self.shared_slice(address)?;
                for (element, bytes) in elements.iter_mut().zip(bytes.chunks_exact(2)) {
                    *element = u16::from_le_bytes([bytes[0], bytes[1]]);
                }
            }
            for (lane, slot) in self.warps[number].slots.iter_mut().enumerate() {
                let (row, pair) = (lane / 4, lane % 4 * 2);
                let at = |column: usize| u32::from(if transposed { rows[column][row] } else { rows[row][column] });
                slot.output[matrix] = at(pair) | at(pair + 1) << 16;
            }
        }
        Ok(())
    }

    fn shared_slice(&mut self, address: u64) -> Result<&mut [u8], What> {
        if !self.is_shared(address) {
            return Err(OutOfBounds::Nowhere { bytes: COPY_BYTES, address }.into());
        }
        Ok(self.shared.slice_mut(address, COPY_BYTES))
    }

    fn is_shared(&self, address: u64) -> bool {
        address.wrapping_sub(self.shared.base()) < self.shared.bytes().max(1)
    }

    fn now(&self, thread: usize) -> Now {
        let block_threads = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        Now {
            thread: self.number * block_threads + u32::try_from(thread).unwrap_or(u32::MAX),
            block_threads,
            tick: self.tick,
            launch_tick: self.launch_tick,
            block_tick: self.block_tick,
            warp_tick: self.warps[thread / LANES].tick,
        }
    }

    /// Judges a load or store of a thread's.
    pub fn access(&mut self, thread: usize, address: u64, bytes: u64, writes: bool) -> Result<(), What> {
        let (does, touch): (_, fn(&mut Cell, &Now) -> _) =
            if writes { ("writes", Cell::write) } else { ("reads", Cell::read) };
        self.touch(thread, address, bytes, touch, does)
    }

    fn touch(
        &mut self,
        thread: usize,
        address: u64,
        bytes: u64,
        touch: impl FnMut(&mut Cell, &Now) -> Result<(), Conflict>,
        does: &'static str,
    ) -> Result<(), What> {
        if bytes.is_power_of_two() && !address.is_multiple_of(bytes) {
            return Err(What::Misaligned { address, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        }
        let now = self.now(thread);
        // What is a little behind the block's own memory is a step too far in it.
        let near_shared = address.wrapping_sub(self.shared.base()) < self.shared.bytes() + NEAR_BYTES;
        let region = if near_shared { &mut *self.shared } else { self.memory.region(address, bytes)? };
        region.access(address, bytes, &now, touch, does)
    }

    /// The present thread begins a copy from global to shared memory.
    pub fn copy_begins(&mut self, copy: Copy) -> Result<(), What> {
        if let Some(from) = copy.from {
            self.access(self.current, from, COPY_BYTES, false)?;
        }
        self.touch(self.current, copy.to, COPY_BYTES, Cell::copy_begins, "copies to")?;
        self.shared_slice(copy.to)?;
        self.threads[self.current].copies.begin(copy);
        Ok(())
    }

    /// The present thread ends a group of its copies.
    pub fn copies_commit(&mut self) {
        self.threads[self.current].copies.commit();
    }

    /// The present thread waits until so many groups at most are on their way.
    pub fn copies_arrive(&mut self, groups: usize) -> Result<(), What> {
        for copy in self.threads[self.current].copies.arrive(groups) {
            let mut bytes = [0; 16];
            if let Some(from) = copy.from {
                bytes.copy_from_slice(self.memory.host_slice(from, COPY_BYTES)?);
            }
            let arrived = |cell: &mut Cell, now: &Now| {
                cell.copy_ends(now);
                Ok(())
            };
            self.touch(self.current, copy.to, COPY_BYTES, arrived, "copies to")?;
            self.shared_slice(copy.to)?.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// What the present thread got of its warp's last operation.
    pub fn slot(&self) -> Slot {
        self.warps[self.current / LANES].slots[self.current % LANES]
    }
}
