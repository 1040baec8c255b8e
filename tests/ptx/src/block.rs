//! A block of threads. Each warp runs until its next barrier, in an order given by a seed.

use crate::{
    arithmetic::Files,
    fault::{Fault, LaneMistake, MistakeKind},
    global::View,
    program::{Address, Base, Entry, Instruction, Memory, Operation, Special, Word},
    registers::{ALL, LANES, Lanes, PredicateRegisters, Registers, lanes},
    shared::{BarrierTime, Copy, Shared, ThreadAtBarrier},
    tensor,
};

/// The maximum number of warp instructions of a block: 30 times the longest test's.
const INSTRUCTIONS_MAX: u64 = 5_000_000;
/// Threads per warp.
const WARP: u32 = 32;

/// The parameters of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks of the grid, by axis.
    pub grid: [u32; 3],
    /// Threads of a block, by axis.
    pub block: [u32; 3],
    /// Bytes of shared memory per block.
    pub shared_bytes: u32,
    /// The seed of the order in which warps run; 0 is the order of their numbers.
    pub seed: u64,
}

impl Launch {
    fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// 32 threads, which share a program counter while their control flow agrees.
#[derive(Debug)]
struct Warp {
    number: u32,
    files: Files,
    /// A mask of the initial lanes.
    all: u32,
    /// A mask of the lanes that have not returned.
    alive: u32,
    next: Lanes<usize>,
    /// The index of the barrier instruction that the warp waits at.
    waits_at: Option<usize>,
    /// The number of warp barriers so far.
    barriers: u32,
    copies: Vec<(usize, Copy)>,
    groups: Lanes<u32>,
}

/// The control flow after an instruction.
enum ControlFlow {
    Following,
    /// The lanes of the group have their own next instructions.
    Elsewhere,
    Barrier,
}

/// The state of a launch, which runs blocks one after the other.
#[derive(Debug)]
pub struct Blocks<'a> {
    entry: &'a Entry,
    launch: Launch,
    parameters: &'a [u8],
    memory: &'a View<'a>,
    shared: Shared,
    warps: Vec<Warp>,
    index: [u32; 3],
    /// The number in the grid of the block's first thread.
    first_thread: u32,
    barriers: u32,
    executed: u64,
}

/// A mistake, with its instruction and thread.
type ThreadMistake = (usize, u32, MistakeKind);

impl<'a> Blocks<'a> {
    pub fn new(entry: &'a Entry, launch: Launch, parameters: &'a [u8], memory: &'a View<'a>) -> Self {
        let warps = (0..launch.threads().div_ceil(WARP)).map(|number| Warp::new(entry, number, launch)).collect();
        let shared = Shared::new(launch.shared_bytes);
        let (index, first_thread, barriers, executed) = Default::default();
        Self { entry, launch, parameters, memory, shared, warps, index, first_thread, barriers, executed }
    }

    /// Runs the block with a number to its end. `text` is the PTX, for the fault's source line.
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

    fn finish(&mut self, number: u64) -> Result<(), ThreadMistake> {
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
                return Err((place, warp * WARP, MistakeKind::OtherBarrier { other }));
            }
            if exited > 0 {
                let warp = self.warps.iter().find(|warp| warp.alive != 0).map_or(0, |warp| warp.number);
                return Err((first, warp * WARP, MistakeKind::BarrierAfterExit { exited }));
            }
            self.barriers += 1;
            self.warps.iter_mut().for_each(|warp| warp.waits_at = None);
        }
    }

    /// Runs a warp until all its lanes wait or have returned.
    ///
    /// If lanes diverge, those with the lowest instruction run until they reach the others.
    fn run_to_barrier(&mut self, warp: usize) -> Result<(), ThreadMistake> {
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
                    return Err((at.saturating_sub(1), thread(group.trailing_zeros()), MistakeKind::NoReturn));
                };
                if self.executed > INSTRUCTIONS_MAX {
                    let mistake = MistakeKind::TimedOut { limit: INSTRUCTIONS_MAX };
                    return Err((at, thread(group.trailing_zeros()), mistake));
                }
                let next = self.step(warp, instruction, at, group);
                match next.map_err(|wrong| (at, self.warps[warp].number * WARP + wrong.lane, wrong.mistake))? {
                    ControlFlow::Following => at += 1,
                    ControlFlow::Elsewhere => break,
                    ControlFlow::Barrier => {
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

    fn step(
        &mut self,
        warp: usize,
        instruction: &Instruction,
        at: usize,
        group: u32,
    ) -> Result<ControlFlow, LaneMistake> {
        let warp = &mut self.warps[warp];
        let active = warp.active(instruction, group)?;
        if let Some(done) = warp.files.execute(&instruction.operation, active) {
            return match done {
                Ok(()) => Ok(ControlFlow::Following),
                Err(zero) => Err(MistakeKind::DivisionByZero.by_first(zero)),
            };
        }
        match &instruction.operation {
            Operation::Branch(target) => {
                warp.go_on(active, *target);
                warp.go_on(group & !active, at + 1);
                return Ok(if active == 0 { ControlFlow::Following } else { ControlFlow::Elsewhere });
            }
            Operation::Return => {
                if let Some((lane, _)) = warp.copies.iter().find(|(lane, _)| active >> lane & 1 == 1) {
                    return Err(MistakeKind::Unawaited.by(*lane));
                }
                warp.alive &= !active;
                warp.go_on(group & !active, at + 1);
                return Ok(ControlFlow::Elsewhere);
            }
            Operation::BlockBarrier => return warp.together(active).map(|()| ControlFlow::Barrier),
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
        Ok(ControlFlow::Following)
    }
}

/// The block's state that a warp's accesses need.
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
        let files = Files { words, longs, predicates: PredicateRegisters::new(entry.n_predicates) };
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

    /// Sets the next instruction of lanes.
    fn go_on(&mut self, lanes: u32, at: usize) {
        for lane in self::lanes(lanes) {
            self.next[lane] = at;
        }
    }

    /// The lanes of a group for which the instruction's guard is true.
    fn active(&self, instruction: &Instruction, group: u32) -> Result<u32, LaneMistake> {
        let Some(guard) = instruction.guard else { return Ok(group) };
        let undefined = group & !self.files.predicates.defined(guard.predicate);
        if undefined != 0 {
            return Err(MistakeKind::Undefined { what: "predicate of an instruction" }.by_first(undefined));
        }
        let holds = self.files.predicates.get(guard.predicate);
        Ok(group & if guard.negated { !holds } else { holds })
    }

    /// Checks that all lanes of the warp execute an instruction together.
    fn together(&self, active: u32) -> Result<(), LaneMistake> {
        if active == self.all {
            Ok(())
        } else {
            Err(MistakeKind::Diverged { lanes: active }.by_first(self.all & !active))
        }
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
            return Err(MistakeKind::Diverged { lanes: words.get(*members)[lane] }.by(lane));
        }
        let shuffled = tensor::shuffled(words.get(*lane_mask), words.get(*clamp));
        let (mut values, mut defined) = ([0; LANES], 0);
        for lane in lanes(active) {
            let from = shuffled.from[lane];
            if active >> from & 1 == 0 {
                return Err(MistakeKind::InactiveLane { lane: u32::try_from(from).unwrap_or(0) }.by(lane));
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
            return Err(MistakeKind::Undefined { what: "operand of a product of matrices" }.by_first(!defined));
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
            return Err(MistakeKind::Undefined { what: "address" }.by_first(active & !defined));
        }
        addresses.iter_mut().for_each(|at| *at = at.wrapping_add_signed(address.offset));
        Ok(addresses)
    }

    fn actor(&self, lane: usize, block: &Access<'_>) -> ThreadAtBarrier {
        let thread = self.number * WARP + u32::try_from(lane).unwrap_or(0);
        ThreadAtBarrier { thread, moment: BarrierTime { block: block.barriers, warp: self.barriers } }
    }

    /// Executes an instruction that accesses memory.
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
                            Err(MistakeKind::Undefined { what: "value stored to global memory" })
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
            return Err(MistakeKind::Undefined { what: "size of a copy" }.by_first(undefined));
        }
        for lane in lanes(active) {
            let (by, mut words) = (self.actor(lane, block), [0; 4]);
            let source = match self.files.words.get(bytes)[lane] {
                // A size of 0 writes zeros without reading the source.
                0 => Ok(()),
                16 => block.memory.load(from[lane], &mut words, block.first_thread + by.thread),
                bytes => Err(MistakeKind::CopySize { bytes }),
            };
            let begun = source.and_then(|()| shared.begin_copy(to[lane], by)).map_err(|mistake| mistake.by(lane))?;
            self.copies.push((lane, Copy { to: begun, words, group: self.groups[lane] }));
        }
        Ok(())
    }
}
