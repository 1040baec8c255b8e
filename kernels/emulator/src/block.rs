//! A running block: its threads, and what each of them waits for.

use std::ffi::c_void;

use corosensei::Yielder;

use crate::{
    Kernel, Launch, Size,
    copies::{COPY_BYTES, Copies, Copy},
    fault::{Fault, FaultKind, OutOfBounds},
    memory::{Memory, NEAR_BYTES, Region},
    shadow::{Cell, Conflict, ThreadTime},
    warp::{LANES, Operation, Slot, SourceLine, Warp},
};

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub enum WaitReason {
    /// A barrier of the block, by the number of barriers completed after it.
    Block(u64, SourceLine),
    /// An operation of the thread's warp, by the number of operations completed after it.
    Warp(u64, Operation, SourceLine),
}

/// A thread of the block.
#[derive(Debug)]
pub struct Thread {
    /// The fiber's yielder; null before the thread starts.
    pub yielder: *const Yielder<(), ()>,
    /// The address range of its stack.
    pub stack: std::ops::Range<usize>,
    /// The barrier or operation that the thread waits for.
    pub wait: Option<WaitReason>,
    /// Whether the thread has returned.
    pub done: bool,
    copies: Copies,
}

impl Thread {
    /// A thread that has not started.
    pub fn new(stack: std::ops::Range<usize>) -> Self {
        Self { yielder: std::ptr::null(), stack, wait: None, done: false, copies: Copies::default() }
    }
}

/// The outcome of a barrier or warp operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is complete.
    Done,
    /// The thread must wait.
    Wait,
}

/// A running block.
pub struct Block<'a> {
    /// The GPU's global memory.
    pub memory: &'a mut Memory,
    /// The block's shared memory.
    pub shared: &'a mut Region,
    /// The running kernel.
    pub kernel: &'static Kernel,
    /// The launch's parameters.
    pub launch: Launch,
    /// The addresses of the kernel's arguments.
    pub arguments: *const *const c_void,
    /// The block's index in the grid.
    pub index: Size,
    /// The block's linear number in the grid.
    pub number: u32,
    /// The block's threads, by thread number.
    pub threads: Vec<Thread>,
    /// The block's warps, by warp number.
    pub warps: Vec<Warp>,
    /// The number of the running thread.
    pub current: usize,
    /// The current tick.
    pub tick: u32,
    /// The launch's first tick.
    pub launch_tick: u32,
    /// The first fault, if any.
    pub fault: Option<Box<Fault>>,
    block_tick: u32,
    arrived: usize,
    barriers: u64,
    barrier: Option<SourceLine>,
}

impl<'a> Block<'a> {
    /// A block whose threads have not started.
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

    /// The index of a thread in the block.
    pub fn thread_index(&self, thread: usize) -> Size {
        let [x, y, _] = self.launch.block.map(|n| n as usize);
        [thread % x, thread / x % y, thread / x / y].map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Records a fault of the current thread, unless one is recorded already.
    pub fn fail(&mut self, what: FaultKind, place: String) {
        let thread = self.thread_index(self.current);
        let fault = Fault { kernel: self.kernel.name(), block: self.index, thread, what, place };
        self.fault.get_or_insert(Box::new(fault));
    }

    /// Whether a thread is ready to run.
    pub fn can_go(&self, thread: usize) -> bool {
        let state = &self.threads[thread];
        !state.done
            && match state.wait {
                None => true,
                Some(WaitReason::Block(number, _)) => self.barriers >= number,
                Some(WaitReason::Warp(number, ..)) => self.warps[thread / LANES].done >= number,
            }
    }

    /// The number of threads that have not returned.
    pub fn live(&self) -> usize {
        self.threads.iter().filter(|thread| !thread.done).count()
    }

    /// Handles the return of the current thread, which may complete a barrier or an operation of its warp.
    pub fn returned(&mut self) {
        self.threads[self.current].done = true;
        if self.arrived > 0 && self.arrived == self.live() {
            self.complete_barrier();
        }
        let lane = self.current % LANES;
        let at = self.warps[self.current / LANES].at;
        if let Some((operation, mask, place)) = at.filter(|(_, mask, _)| mask >> lane & 1 == 1) {
            let _ = (operation, mask);
            self.fail(FaultKind::NoLane { lane: u32::try_from(lane).unwrap_or(u32::MAX) }, place.to_string());
        }
    }

    /// Records a deadlock: threads remain, and none is ready to run.
    pub fn deadlock(&mut self) {
        let waiting = self.threads.iter().position(|thread| !thread.done).unwrap_or(0);
        self.current = waiting;
        let (waits, place) = match self.threads[waiting].wait {
            Some(WaitReason::Block(_, place)) => ("__syncthreads".to_owned(), place.to_string()),
            Some(WaitReason::Warp(_, operation, place)) => (operation.to_string(), place.to_string()),
            None => (String::new(), String::new()),
        };
        self.fail(FaultKind::Deadlock { waits }, place);
    }

    /// The current thread reaches a barrier.
    pub fn sync(&mut self, place: SourceLine) -> Result<Step, FaultKind> {
        if let Some(other) = self.barrier.filter(|other| *other != place) {
            return Err(FaultKind::OtherBarrier { other: other.to_string() });
        }
        self.barrier = Some(place);
        self.arrived += 1;
        self.threads[self.current].wait = Some(WaitReason::Block(self.barriers + 1, place));
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

    /// The current thread reaches an operation of its warp, with its input registers.
    pub fn operate(
        &mut self,
        operation: Operation,
        mask: u32,
        input: [u32; 10],
        place: SourceLine,
    ) -> Result<Step, FaultKind> {
        let (number, lane) = (self.current / LANES, self.current % LANES);
        for named in (0..LANES).filter(|named| mask >> named & 1 == 1) {
            let is_there = self.threads.get(number * LANES + named).is_some_and(|thread| !thread.done);
            if !is_there {
                return Err(FaultKind::NoLane { lane: u32::try_from(named).unwrap_or(u32::MAX) });
            }
        }
        let warp = &mut self.warps[number];
        let this = (operation, mask, place);
        if let Some(other) = warp.at.filter(|other| *other != this) {
            let describe = |(operation, mask, place): (Operation, u32, SourceLine)| {
                format!("{operation} at {place} with the mask {mask:#010x}")
            };
            return Err(FaultKind::OtherOperation { this: describe(this), other: describe(other) });
        }
        warp.at = Some(this);
        warp.arrived |= 1 << lane;
        warp.slots[lane].input = input;
        self.threads[self.current].wait = Some(WaitReason::Warp(warp.done + 1, operation, place));
        if warp.arrived != mask {
            return Ok(Step::Wait);
        }
        self.execute(number, operation, mask)?;
        let warp = &mut self.warps[number];
        (warp.at, warp.arrived) = (None, 0);
        warp.done += 1;
        Ok(Step::Done)
    }

    fn execute(&mut self, number: usize, operation: Operation, mask: u32) -> Result<(), FaultKind> {
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
                        return Err(FaultKind::NoLane { lane: from });
                    }
                    slots[lane].output[0] = slots[from as usize].input[0];
                }
            }
            Operation::LoadMatrix { n, transposed } => self.load_matrices(number, n, transposed)?,
            Operation::Multiply => self.warps[number].multiply(),
        }
        Ok(())
    }

    fn load_matrices(&mut self, number: usize, n: usize, transposed: bool) -> Result<(), FaultKind> {
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

    fn shared_slice(&mut self, address: u64) -> Result<&mut [u8], FaultKind> {
        if !self.is_shared(address) {
            return Err(OutOfBounds::Nowhere { bytes: COPY_BYTES, address }.into());
        }
        Ok(self.shared.slice_mut(address, COPY_BYTES))
    }

    fn is_shared(&self, address: u64) -> bool {
        address.wrapping_sub(self.shared.base()) < self.shared.bytes().max(1)
    }

    fn now(&self, thread: usize) -> ThreadTime {
        let block_threads = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        ThreadTime {
            thread: self.number * block_threads + u32::try_from(thread).unwrap_or(u32::MAX),
            block_threads,
            tick: self.tick,
            launch_tick: self.launch_tick,
            block_tick: self.block_tick,
            warp_tick: self.warps[thread / LANES].tick,
        }
    }

    /// Checks a load or store of a thread.
    pub fn access(&mut self, thread: usize, address: u64, bytes: u64, writes: bool) -> Result<(), FaultKind> {
        let (does, touch): (_, fn(&mut Cell, &ThreadTime) -> _) =
            if writes { ("writes", Cell::write) } else { ("reads", Cell::read) };
        self.touch(thread, address, bytes, touch, does)
    }

    fn touch(
        &mut self,
        thread: usize,
        address: u64,
        bytes: u64,
        touch: impl FnMut(&mut Cell, &ThreadTime) -> Result<(), Conflict>,
        does: &'static str,
    ) -> Result<(), FaultKind> {
        if bytes.is_power_of_two() && !address.is_multiple_of(bytes) {
            return Err(FaultKind::Misaligned { address, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        }
        let now = self.now(thread);
        // An address slightly past the block's shared memory is an out-of-bounds access to it.
        let near_shared = address.wrapping_sub(self.shared.base()) < self.shared.bytes() + NEAR_BYTES;
        let region = if near_shared { &mut *self.shared } else { self.memory.region(address, bytes)? };
        region.access(address, bytes, &now, touch, does)
    }

    /// The current thread starts a copy from global to shared memory.
    pub fn copy_begins(&mut self, copy: Copy) -> Result<(), FaultKind> {
        if let Some(from) = copy.from {
            self.access(self.current, from, COPY_BYTES, false)?;
        }
        self.touch(self.current, copy.to, COPY_BYTES, Cell::copy_begins, "copies to")?;
        self.shared_slice(copy.to)?;
        self.threads[self.current].copies.begin(copy);
        Ok(())
    }

    /// The current thread commits a group of its copies.
    pub fn copies_commit(&mut self) {
        self.threads[self.current].copies.commit();
    }

    /// The current thread waits until at most `groups` groups of copies are in flight.
    pub fn copies_arrive(&mut self, groups: usize) -> Result<(), FaultKind> {
        for copy in self.threads[self.current].copies.arrive(groups) {
            let mut bytes = [0; 16];
            if let Some(from) = copy.from {
                bytes.copy_from_slice(self.memory.host_slice(from, COPY_BYTES)?);
            }
            let arrived = |cell: &mut Cell, now: &ThreadTime| {
                cell.copy_ends(now);
                Ok(())
            };
            self.touch(self.current, copy.to, COPY_BYTES, arrived, "copies to")?;
            self.shared_slice(copy.to)?.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// The registers of the current thread in its warp's last operation.
    pub fn slot(&self) -> Slot {
        self.warps[self.current / LANES].slots[self.current % LANES]
    }
}
