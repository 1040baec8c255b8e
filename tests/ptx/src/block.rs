//! A block of threads: its warps run one after the other, each to the next barrier, in an order that a seed makes.

use crate::{
    arithmetic::Files,
    fault::{Fault, LaneMistake, Mistake},
    global::View,
    program::{Address, Base, Entry, Instruction, Memory, Operation, Special, Word},
    registers::{ALL, LANES, Lanes, Predicates, Registers, lanes},
    shared::{Actor, Copy, Moment, Shared},
    tensor,
};

/// Instructions of warps that a block may execute: 30 times what the longest test needs.
const INSTRUCTIONS_MAX: u64 = 5_000_000;
/// Threads of a warp.
const WARP: u32 = 32;

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks, by axis.
    pub grid: [u32; 3],
    /// Threads of a block, by axis.
    pub block: [u32; 3],
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// The order in which warps run; 0 is that of their numbers.
    pub seed: u64,
}

impl Launch {
    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// 32 threads that share a program counter where they can.
#[derive(Debug)]
struct Warp {
    number: u32,
    files: Files,
    /// The lanes that it begins with.
    all: u32,
    /// Those that have not returned.
    alive: u32,
    next: Lanes<usize>,
    /// The barrier's instruction.
    waits_at: Option<usize>,
    /// Barriers of the warp so far.
    barriers: u32,
    copies: Vec<(usize, Copy)>,
    groups: Lanes<u32>,
}

/// Whether a warp goes on behind an instruction, and where.
enum Next {
    Following,
    /// The group's lanes have their own next instructions.
    Elsewhere,
    Barrier,
}

/// Blocks of a launch, one after the other.
#[derive(Debug)]
pub struct Blocks<'a> {
    entry: &'a Entry,
    launch: Launch,
    parameters: &'a [u8],
    memory: &'a View<'a>,
    shared: Shared,
    warps: Vec<Warp>,
    index: [u32; 3],
    /// The first thread's number in the grid.
    first_thread: u32,
    barriers: u32,
    executed: u64,
}

/// What went wrong at an instruction.
type Wrong = (usize, u32, Mistake);

impl<'a> Blocks<'a> {
    pub fn new(entry: &'a Entry, launch: Launch, parameters: &'a [u8], memory: &'a View<'a>) -> Self {
        let warps = (0..launch.threads().div_ceil(WARP)).map(|number| Warp::new(entry, number, launch)).collect();
        let shared = Shared::new(launch.shared_bytes);
        let (index, first_thread, barriers, executed) = Default::default();
        Self { entry, launch, parameters, memory, shared, warps, index, first_thread, barriers, executed }
    }

    /// Runs the block of a number to its end. The text gives a mistake its line.
    pub fn run(&mut self, number: u64, text: &str) -> Result<(), Box<Fault>> {
        self.begin(number);
        self.finish(number).map_err(|(instruction, thread, mistake)| {
            let line = self.entry.instructions.get(instruction).map_or(0, |instruction| instruction.line);
            let found = text.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default();
            let instruction = found.split_whitespace().collect::<Vec<_>>().join(" ");
            Box::new(Fault { entry: self.entry.name.clone(), line, instruction, block: self.index, thread, mistake })
        })
    }

    fn begin(&mut self, number: u64) {
        let [x, y, _] = self.launch.grid.map(u64::from);
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        self.index = [small(number % x), small(number / x % y), small(number / x / y)];
        self.first_thread = small(number * u64::from(self.launch.threads()));
        self.shared.clear();
        (self.barriers, self.executed) = (1, 0);
        for warp in &mut self.warps {
            warp.begin(self.entry, self.index, self.launch);
        }
    }

    fn finish(&mut self, number: u64) -> Result<(), Wrong> {
        let mut random = fastrand::Rng::with_seed(self.launch.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut order: Vec<usize> = (0..self.warps.len()).collect();
        loop {
            if self.launch.seed != 0 {
                random.shuffle(&mut order);
            }
            for &warp in &order {
                self.run_to_barrier(warp)?;
            }
            let exited = self.warps.iter().filter(|warp| warp.alive == 0).count();
            let mut waiting = self.warps.iter().filter_map(|warp| Some((warp.waits_at?, warp.number)));
            let Some((first, _)) = waiting.next() else { return Ok(()) };
            if let Some((place, warp)) = waiting.find(|(place, _)| *place != first) {
                let other = self.entry.instructions[first].line;
                return Err((place, warp * WARP, Mistake::OtherBarrier { other }));
            }
            if exited > 0 {
                let warp = self.warps.iter().find(|warp| warp.alive != 0).map_or(0, |warp| warp.number);
                return Err((first, warp * WARP, Mistake::BarrierAfterExit { exited }));
            }
            self.barriers += 1;
            self.warps.iter_mut().for_each(|warp| warp.waits_at = None);
        }
    }

    /// Runs a warp until all its lanes wait or have returned. Of lanes at different instructions those at the first of
    /// them run, until they reach the next.
    fn run_to_barrier(&mut self, warp: usize) -> Result<(), Wrong> {
        let entry = self.entry;
        loop {
            let state = &self.warps[warp];
            if state.alive == 0 || state.waits_at.is_some() {
                return Ok(());
            }
            let first = lanes(state.alive).map(|lane| state.next[lane]).min().unwrap_or(0);
            let group =
                lanes(state.alive).filter(|lane| state.next[*lane] == first).fold(0, |all, lane| all | 1 << lane);
            let others = lanes(state.alive & !group).map(|lane| state.next[lane]).min().unwrap_or(usize::MAX);
            let mut at = first;
            while at < others {
                let thread = |lane: u32| self.warps[warp].number * WARP + lane;
                self.executed += 1;
                let Some(instruction) = entry.instructions.get(at) else {
                    return Err((at.saturating_sub(1), thread(group.trailing_zeros()), Mistake::NoReturn));
                };
                if self.executed > INSTRUCTIONS_MAX {
                    let mistake = Mistake::TimedOut { limit: INSTRUCTIONS_MAX };
                    return Err((at, thread(group.trailing_zeros()), mistake));
                }
                let next = self.step(warp, instruction, at, group);
                match next.map_err(|wrong| (at, self.warps[warp].number * WARP + wrong.lane, wrong.mistake))? {
                    Next::Following => at += 1,
                    Next::Elsewhere => break,
                    Next::Barrier => {
                        self.warps[warp].go_on(group, at + 1);
                        self.warps[warp].waits_at = Some(at);
                        return Ok(());
                    }
                }
            }
            if at >= others {
                self.warps[warp].go_on(group, at);
            }
        }
    }

    fn step(&mut self, warp: usize, instruction: &Instruction, at: usize, group: u32) -> Result<Next, LaneMistake> {
        let warp = &mut self.warps[warp];
        let active = warp.active(instruction, group)?;
        if let Some(done) = warp.files.execute(&instruction.operation, active) {
            return match done {
                Ok(()) => Ok(Next::Following),
                Err(zero) => Err(Mistake::DivisionByZero.by_first(zero)),
            };
        }
        match &instruction.operation {
            Operation::Branch(target) => {
                warp.go_on(active, *target);
                warp.go_on(group & !active, at + 1);
                return Ok(if active == 0 { Next::Following } else { Next::Elsewhere });
            }
            Operation::Return => {
                if let Some((lane, _)) = warp.copies.iter().find(|(lane, _)| active >> lane & 1 == 1) {
                    return Err(Mistake::Unawaited.by(*lane));
                }
                warp.alive &= !active;
                warp.go_on(group & !active, at + 1);
                return Ok(Next::Elsewhere);
            }
            Operation::BlockBarrier => return warp.together(active).map(|()| Next::Barrier),
            Operation::WarpBarrier => {
                warp.together(active)?;
                warp.barriers += 1;
            }
            Operation::Shuffle(d, in_range, sources) => warp.shuffle(active, *d, *in_range, sources)?,
            Operation::MultiplyMatrices { d, a, b, c } => warp.multiply(active, *d, *a, *b, *c)?,
            Operation::Parameter(d, offset) => {
                let bytes = self.parameters.get(*offset as usize..).and_then(<[u8]>::first_chunk::<4>);
                warp.files.words.set(*d, active, &[bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes)); LANES], ALL);
            }
            Operation::LongParameter(d, offset) => {
                let bytes = self.parameters.get(*offset as usize..).and_then(<[u8]>::first_chunk::<8>);
                warp.files.longs.set(*d, active, &[bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes)); LANES], ALL);
            }
            _ => {
                let block = Access { memory: self.memory, first_thread: self.first_thread, barriers: self.barriers };
                warp.access(&instruction.operation, active, &mut self.shared, &block)?;
            }
        }
        Ok(Next::Following)
    }
}

/// What a warp's accesses need of its block.
struct Access<'a> {
    memory: &'a View<'a>,
    first_thread: u32,
    barriers: u32,
}

impl Warp {
    fn new(entry: &Entry, number: u32, launch: Launch) -> Self {
        let mut longs = Registers::new(entry.n_longs, entry.longs.len());
        for (i, &value) in entry.longs.iter().enumerate() {
            longs.set_constant(i, [value; LANES]);
        }
        let words = Registers::new(entry.n_words, entry.words.len());
        let files = Files { words, longs, predicates: Predicates::new(entry.n_predicates) };
        let left = launch.threads() - number * WARP;
        let all = if left >= WARP { ALL } else { (1 << left) - 1 };
        let (waits_at, copies) = Default::default();
        Self { number, files, all, alive: 0, next: [0; LANES], waits_at, barriers: 0, copies, groups: [0; LANES] }
    }

    fn begin(&mut self, entry: &Entry, block: [u32; 3], launch: Launch) {
        self.files.words.forget();
        self.files.longs.forget();
        self.files.predicates.forget();
        let [x, y, _] = launch.block;
        for (i, word) in entry.words.iter().enumerate() {
            let first = self.number * WARP;
            let values = match *word {
                Word::Immediate(value) => [value; LANES],
                Word::Special(Special::Threads, axis) => [launch.block[axis]; LANES],
                Word::Special(Special::Block, axis) => [block[axis]; LANES],
                Word::Special(Special::Blocks, axis) => [launch.grid[axis]; LANES],
                Word::Special(Special::Thread, axis) => {
                    let mut thread = first..;
                    [(); LANES].map(|()| {
                        let thread = thread.next().unwrap_or(first);
                        [thread % x, thread / x % y, thread / x / y][axis]
                    })
                }
            };
            self.files.words.set_constant(i, values);
        }
        (self.alive, self.next, self.waits_at, self.barriers) = (self.all, [0; LANES], None, 1);
        self.copies.clear();
        self.groups = [0; LANES];
    }

    /// Lets lanes go on at an instruction.
    fn go_on(&mut self, lanes: u32, at: usize) {
        for lane in self::lanes(lanes) {
            self.next[lane] = at;
        }
    }

    /// The lanes of a group that a guard lets execute.
    fn active(&self, instruction: &Instruction, group: u32) -> Result<u32, LaneMistake> {
        let Some(guard) = instruction.guard else { return Ok(group) };
        let undefined = group & !self.files.predicates.defined(guard.predicate);
        if undefined != 0 {
            return Err(Mistake::Undefined { what: "predicate of an instruction" }.by_first(undefined));
        }
        let holds = self.files.predicates.get(guard.predicate);
        Ok(group & if guard.negated { !holds } else { holds })
    }

    /// Refuses what all lanes have to execute together, and do not.
    fn together(&self, active: u32) -> Result<(), LaneMistake> {
        if active == self.all { Ok(()) } else { Err(Mistake::Diverged { lanes: active }.by_first(self.all & !active)) }
    }

    fn shuffle(
        &mut self,
        active: u32,
        d: u16,
        in_range: Option<u16>,
        [value, lane_mask, clamp, members]: &[u16; 4],
    ) -> Result<(), LaneMistake> {
        self.together(active)?;
        let words = &self.files.words;
        let outside = lanes(active).find(|&lane| words.get(*members)[lane] & self.all != self.all);
        if let Some(lane) = outside {
            return Err(Mistake::Diverged { lanes: words.get(*members)[lane] }.by(lane));
        }
        let shuffled = tensor::shuffled(words.get(*lane_mask), words.get(*clamp));
        let (mut values, mut defined) = ([0; LANES], 0);
        for lane in lanes(active) {
            let from = shuffled.from[lane];
            if active >> from & 1 == 0 {
                return Err(Mistake::InactiveLane { lane: u32::try_from(from).unwrap_or(0) }.by(lane));
            }
            values[lane] = words.get(*value)[from];
            defined |= (words.defined(*value) >> from & 1) << lane;
        }
        let defined = defined & words.defined(*lane_mask) & words.defined(*clamp);
        self.files.words.set(d, active, &values, defined);
        if let Some(predicate) = in_range {
            self.files.predicates.set(predicate, active, shuffled.in_range, ALL);
        }
        Ok(())
    }

    fn multiply(&mut self, active: u32, d: [u16; 4], a: [u16; 4], b: [u16; 2], c: [u16; 4]) -> Result<(), LaneMistake> {
        self.together(active)?;
        let words = &self.files.words;
        let defined = a.iter().chain(&b).chain(&c).fold(ALL, |defined, register| defined & words.defined(*register));
        if defined != ALL {
            return Err(Mistake::Undefined { what: "operand of a product of matrices" }.by_first(!defined));
        }
        let sums = tensor::product(
            a.map(|register| words.get(register)),
            b.map(|register| words.get(register)),
            c.map(|register| words.get(register)),
        );
        for (register, sums) in d.iter().zip(&sums) {
            self.files.words.set(*register, active, sums, ALL);
        }
        Ok(())
    }

    fn addresses(&self, address: Address, active: u32) -> Result<Lanes<u64>, LaneMistake> {
        let (mut addresses, defined) = match address.base {
            Base::Long(register) => (*self.files.longs.get(register), self.files.longs.defined(register)),
            Base::Word(register) => (self.files.words.get(register).map(u64::from), self.files.words.defined(register)),
        };
        if active & !defined != 0 {
            return Err(Mistake::Undefined { what: "address" }.by_first(active & !defined));
        }
        addresses.iter_mut().for_each(|at| *at = at.wrapping_add_signed(address.offset));
        Ok(addresses)
    }

    fn actor(&self, lane: usize, block: &Access<'_>) -> Actor {
        let thread = self.number * WARP + u32::try_from(lane).unwrap_or(0);
        Actor { thread, moment: Moment { block: block.barriers, warp: self.barriers } }
    }

    /// Executes what accesses memory.
    fn access(
        &mut self,
        operation: &Operation,
        active: u32,
        shared: &mut Shared,
        block: &Access<'_>,
    ) -> Result<(), LaneMistake> {
        match operation {
            Operation::Load { space, long, n, to, address } => {
                let addresses = self.addresses(*address, active)?;
                let mut out = [[0; LANES]; 4];
                let n_words = if *long { 2 } else { *n };
                for lane in lanes(active) {
                    let mut values = [0; 4];
                    let (values, by) = (&mut values[..n_words], self.actor(lane, block));
                    let loaded = match space {
                        Memory::Shared => shared.load(addresses[lane], values, by, false),
                        Memory::Global => block.memory.load(addresses[lane], values, block.first_thread + by.thread),
                    };
                    loaded.map_err(|mistake| mistake.by(lane))?;
                    for (out, value) in out.iter_mut().zip(values) {
                        out[lane] = *value;
                    }
                }
                if *long {
                    let mut values = [0; LANES];
                    for (lane, value) in values.iter_mut().enumerate() {
                        *value = u64::from(out[0][lane]) | u64::from(out[1][lane]) << 32;
                    }
                    self.files.longs.set(to[0], active, &values, ALL);
                } else {
                    for (register, values) in to[..*n].iter().zip(&out) {
                        self.files.words.set(*register, active, values, ALL);
                    }
                }
            }
            Operation::Store { space, n, from, address } => {
                let addresses = self.addresses(*address, active)?;
                for lane in lanes(active) {
                    let (mut values, mut defined) = ([0; 4], 0);
                    for (i, register) in from[..*n].iter().enumerate() {
                        values[i] = self.files.words.get(*register)[lane];
                        defined |= (self.files.words.defined(*register) >> lane & 1) << i;
                    }
                    let (values, by) = (&values[..*n], self.actor(lane, block));
                    let stored = match space {
                        Memory::Shared => shared.store(addresses[lane], values, defined, by),
                        Memory::Global if defined != (1 << n) - 1 => {
                            Err(Mistake::Undefined { what: "value stored to global memory" })
                        }
                        Memory::Global => block.memory.store(addresses[lane], values, block.first_thread + by.thread),
                    };
                    stored.map_err(|mistake| mistake.by(lane))?;
                }
            }
            Operation::LoadMatrices { transposed, to, address } => {
                self.together(active)?;
                let addresses = self.addresses(*address, active)?;
                let mut rows = [[0; 4]; LANES];
                for (lane, row) in rows.iter_mut().enumerate() {
                    let loaded = shared.load(addresses[lane], row, self.actor(lane, block), true);
                    loaded.map_err(|mistake| mistake.by(lane))?;
                }
                for (register, values) in to.iter().zip(&tensor::matrices(&rows, *transposed)) {
                    self.files.words.set(*register, active, values, ALL);
                }
            }
            Operation::Copy(to, from, bytes) => self.copy(active, [*to, *from], *bytes, shared, block)?,
            Operation::Commit => lanes(active).for_each(|lane| self.groups[lane] += 1),
            Operation::Wait(n) => {
                let (mut done, mut rest) = (Vec::new(), Vec::new());
                for (lane, copy) in self.copies.drain(..) {
                    let arrives = active >> lane & 1 == 1 && copy.group + n < self.groups[lane];
                    if arrives { done.push((lane, copy)) } else { rest.push((lane, copy)) }
                }
                self.copies = rest;
                for (lane, copy) in done {
                    shared.end_copy(&copy, self.actor(lane, block));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn copy(
        &mut self,
        active: u32,
        [to, from]: [Address; 2],
        bytes: u16,
        shared: &mut Shared,
        block: &Access<'_>,
    ) -> Result<(), LaneMistake> {
        let (to, from) = (self.addresses(to, active)?, self.addresses(from, active)?);
        let undefined = active & !self.files.words.defined(bytes);
        if undefined != 0 {
            return Err(Mistake::Undefined { what: "size of a copy" }.by_first(undefined));
        }
        for lane in lanes(active) {
            let (by, mut words) = (self.actor(lane, block), [0; 4]);
            let source = match self.files.words.get(bytes)[lane] {
                // Of no bytes, zeros are written, and the source is not read.
                0 => Ok(()),
                16 => block.memory.load(from[lane], &mut words, block.first_thread + by.thread),
                bytes => Err(Mistake::CopySize { bytes }),
            };
            let begun = source.and_then(|()| shared.begin_copy(to[lane], by)).map_err(|mistake| mistake.by(lane))?;
            self.copies.push((lane, Copy { to: begun, words, group: self.groups[lane] }));
        }
        Ok(())
    }
}
