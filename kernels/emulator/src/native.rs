//! Functions that kernels call, declared in `include/emulator.h` and used by `src/callbacks.cpp`.

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_void},
    ptr,
};

use corosensei::Yielder;

use crate::{
    Size,
    block::{Block, Step},
    copies::Copy,
    fault::FaultKind,
    warp::{Operation, Slot, SourceLine},
};

thread_local! {
    /// The block that runs on this host thread; null if none does.
    static BLOCK: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Sets the block that runs on this host thread.
pub fn enter(block: *mut c_void) {
    BLOCK.set(block);
}

/// Clears the running block.
pub fn leave() {
    BLOCK.set(ptr::null_mut());
}

/// Runs a thread of the block to its end.
pub fn thread(yielder: *const Yielder<(), ()>) {
    let (kernel, arguments) = with(|block| {
        let current = block.current;
        block.threads[current].yielder = yielder;
        (block.kernel, block.arguments)
    });
    // SAFETY: promised by the caller of `Emulator::launch`.
    unsafe { kernel.call(arguments) };
}

/// Calls `act` with the running block; never leaves the fiber.
fn with<T>(act: impl FnOnce(&mut Block<'static>) -> T) -> T {
    let block = BLOCK.get().cast::<Block<'static>>();
    assert!(!block.is_null(), "kernels run in a block");
    // SAFETY: the pointer is valid while a block runs. No other reference exists, and this one ends before the fiber is
    // left.
    act(unsafe { &mut *block })
}

/// Suspends the fiber until it is resumed.
fn leave_fiber() {
    let yielder = with(|block| block.threads[block.current].yielder);
    // SAFETY: the yielder belongs to this fiber, which set it when it started.
    unsafe { (*yielder).suspend(()) };
}

/// Performs a step and waits if necessary. On a fault it never returns.
fn step(place: impl FnOnce() -> String, act: impl FnOnce(&mut Block<'static>) -> Result<Step, FaultKind>) {
    match with(act) {
        Ok(Step::Done) => {}
        Ok(Step::Wait) => leave_fiber(),
        Err(what) => {
            let place = place();
            with(|block| block.fail(what, place));
            loop {
                leave_fiber();
            }
        }
    }
    with(|block| {
        let current = block.current;
        block.threads[current].wait = None;
    });
}

/// A source line, from the compiler's builtins.
fn place(file: *const c_char, line: u32) -> SourceLine {
    // SAFETY: the pointer is `__builtin_FILE()`, which is a static string.
    SourceLine { file: unsafe { CStr::from_ptr(file) }, line }
}

fn operate(operation: Operation, mask: u32, input: [u32; 10], place: SourceLine) -> Slot {
    step(|| place.to_string(), |block| block.operate(operation, mask, input, place));
    with(|block| block.slot())
}

/// CUDA's `dim3`.
#[repr(C)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl From<Size> for Dim3 {
    fn from([x, y, z]: Size) -> Self {
        Self { x, y, z }
    }
}

const ALL_LANES: u32 = u32::MAX;

#[unsafe(no_mangle)]
extern "C" fn emulator_thread_index() -> Dim3 {
    with(|block| block.thread_index(block.current)).into()
}

#[unsafe(no_mangle)]
extern "C" fn emulator_block_index() -> Dim3 {
    with(|block| block.index).into()
}

#[unsafe(no_mangle)]
extern "C" fn emulator_block_size() -> Dim3 {
    with(|block| block.launch.block).into()
}

#[unsafe(no_mangle)]
extern "C" fn emulator_grid_size() -> Dim3 {
    with(|block| block.launch.grid).into()
}

#[unsafe(no_mangle)]
extern "C" fn emulator_shared_memory(bytes: u64, file: *const c_char, line: u32) -> *mut c_void {
    step(
        || place(file, line).to_string(),
        |block| {
            let given_bytes = block.shared.bytes();
            if bytes > given_bytes {
                return Err(FaultKind::SharedMemory { needs_bytes: bytes, given_bytes });
            }
            Ok(Step::Done)
        },
    );
    with(|block| ptr::with_exposed_provenance_mut(usize::try_from(block.shared.base()).unwrap_or_default()))
}

#[unsafe(no_mangle)]
extern "C" fn emulator_sync_threads(file: *const c_char, line: u32) {
    let place = place(file, line);
    step(|| place.to_string(), |block| block.sync(place));
}

#[unsafe(no_mangle)]
extern "C" fn emulator_sync_warp(mask: u32, file: *const c_char, line: u32) {
    operate(Operation::Sync, mask, [0; 10], place(file, line));
}

#[unsafe(no_mangle)]
extern "C" fn emulator_shuffle(mask: u32, value: u32, from_lane: u32, file: *const c_char, line: u32) -> u32 {
    let mut input = [0; 10];
    (input[0], input[1]) = (value, from_lane);
    operate(Operation::Shuffle, mask, input, place(file, line)).output[0]
}

/// # Safety
/// `out` has `n` elements, 4 at most.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulator_ldmatrix(
    out: *mut u32,
    n: u32,
    transposed: u32,
    row: *const c_void,
    file: *const c_char,
    line: u32,
) {
    let mut input = [0; 10];
    let address = row.addr() as u64;
    #[expect(clippy::cast_possible_truncation, reason = "its halves")]
    {
        (input[0], input[1]) = (address as u32, (address >> 32) as u32);
    }
    let n = n as usize;
    let operation = Operation::LoadMatrix { n, transposed: transposed != 0 };
    let slot = operate(operation, ALL_LANES, input, place(file, line));
    // SAFETY: as the caller promises.
    unsafe { ptr::copy_nonoverlapping(slot.output.as_ptr(), out, n.min(4)) };
}

/// # Safety
/// `d` and `a` have 4 elements, `b` has 2.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulator_mma_m16n8k16(d: *mut f32, a: *const u32, b: *const u32, file: *const c_char, line: u32) {
    let mut input = [0; 10];
    // SAFETY: as the caller promises.
    unsafe {
        ptr::copy_nonoverlapping(a, input.as_mut_ptr(), 4);
        ptr::copy_nonoverlapping(b, input[4..].as_mut_ptr(), 2);
        ptr::copy_nonoverlapping(d.cast::<u32>(), input[6..].as_mut_ptr(), 4);
    }
    let slot = operate(Operation::Multiply, ALL_LANES, input, place(file, line));
    // SAFETY: as the caller promises.
    unsafe { ptr::copy_nonoverlapping(slot.output.as_ptr(), d.cast::<u32>(), 4) };
}

#[unsafe(no_mangle)]
extern "C" fn emulator_copy_begin(
    to_shared: *mut c_void,
    from_global: *const c_void,
    valid: u32,
    file: *const c_char,
    line: u32,
) {
    let copy = Copy { to: to_shared.addr() as u64, from: (valid != 0).then_some(from_global.addr() as u64) };
    step(|| place(file, line).to_string(), |block| block.copy_begins(copy).map(|()| Step::Done));
}

#[unsafe(no_mangle)]
extern "C" fn emulator_copy_commit() {
    with(Block::copies_commit);
}

#[unsafe(no_mangle)]
extern "C" fn emulator_copy_wait(groups: u32, file: *const c_char, line: u32) {
    step(|| place(file, line).to_string(), |block| block.copies_arrive(groups as usize).map(|()| Step::Done));
}

#[unsafe(no_mangle)]
extern "C" fn emulator_access(address: *const c_void, bytes: u32, writes: u32, after: *mut c_void) {
    // A variable on the fiber's own stack is a register on a GPU.
    let is_own = with(|block| block.threads[block.current].stack.contains(&address.addr()));
    if !is_own {
        step(
            || line_of(after),
            |block| {
                let current = block.current;
                let (address, bytes) = (address.addr() as u64, u64::from(bytes));
                block.access(current, address, bytes, writes != 0).map(|()| Step::Done)
            },
        );
    }
}

#[unsafe(no_mangle)]
extern "C" fn emulator_misaligned(address: *const c_void, bytes: u32, file: *const c_char, line: u32) {
    let what = FaultKind::Misaligned { address: address.addr() as u64, bytes };
    step(|| place(file, line).to_string(), |_| Err(what));
}

/// The source line of the instruction before an address.
fn line_of(after: *mut c_void) -> String {
    let mut line = None;
    // Inlined calls come innermost first. An access inside the emulator's header is reported at the calling kernel's
    // line.
    backtrace::resolve(after.wrapping_byte_sub(1), |symbol| {
        if let (Some(file), Some(number)) = (symbol.filename().and_then(|file| file.file_name()), symbol.lineno())
            && (file != HEADER || line.is_none())
        {
            let is_kernels = line.as_ref().is_some_and(|(is_kernels, _)| *is_kernels);
            if !is_kernels {
                line = Some((file != HEADER, format!("{}:{number}", file.to_string_lossy())));
            }
        }
    });
    line.map_or_else(|| "an unknown line".to_owned(), |(_, line)| line)
}

/// The header that replaces the GPU's instructions.
const HEADER: &str = "emulator.h";
