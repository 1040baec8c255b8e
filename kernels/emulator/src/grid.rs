//! Runs a launch block by block. Within a block, ready threads run in an order given by a seed.

use std::{ffi::c_void, ptr};

use corosensei::{
    Coroutine, CoroutineResult,
    stack::{DefaultStack, Stack},
};

use crate::{
    Emulator, Fault, Kernel, Launch, Size,
    block::{Block, Thread},
    fault::{FaultKind, Space},
    memory::Region,
    native,
    shadow::THREADS_MAX,
    warp::LANES,
};

/// Bytes of a fiber's stack, which holds a kernel's registers and local arrays. Untouched pages take no memory.
const STACK_BYTES: usize = 128 * 1024;

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// Runs a kernel.
///
/// # Safety
/// The requirements of [`Emulator::launch`].
///
/// # Errors
/// The first fault of the kernel.
pub unsafe fn run(
    emulator: &mut Emulator,
    kernel: &'static Kernel,
    launch: Launch,
    arguments: &[*const c_void],
) -> Result<(), Box<Fault>> {
    let n_threads = launch.block.iter().map(|&n| n as usize).product::<usize>();
    let refused = |what| {
        Box::new(Fault { kernel: kernel.name(), block: [0; 3], thread: [0; 3], what, place: "its launch".to_owned() })
    };
    let n_all = launch.grid.iter().map(|&n| u64::from(n)).product::<u64>() * n_threads as u64;
    assert!(n_all <= THREADS_MAX, "{}: a grid of {n_all} threads is more than a test needs", kernel.name());
    let Some(mut shared) = Region::new(Space::Shared, u64::from(launch.shared_bytes)) else {
        let needs_bytes = u64::from(launch.shared_bytes);
        return Err(refused(FaultKind::SharedMemory { needs_bytes, given_bytes: 0 }));
    };
    let launch_tick = emulator.tick;
    let mut number = 0;
    for z in 0..launch.grid[2] {
        for y in 0..launch.grid[1] {
            for x in 0..launch.grid[0] {
                shared.clear();
                // SAFETY: as the caller promises.
                unsafe { run_block(emulator, &mut shared, kernel, launch, arguments, [x, y, z], number, launch_tick) }?;
                number += 1;
            }
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "it is called in one place")]
unsafe fn run_block(
    emulator: &mut Emulator,
    shared: &mut Region,
    kernel: &'static Kernel,
    launch: Launch,
    arguments: &[*const c_void],
    index: Size,
    number: u32,
    launch_tick: u32,
) -> Result<(), Box<Fault>> {
    let n_threads = launch.block.iter().map(|&n| n as usize).product::<usize>();
    let tick = emulator.next_tick();
    let mut fibers = Vec::with_capacity(n_threads);
    let mut threads = Vec::with_capacity(n_threads);
    for _ in 0..n_threads {
        let stack =
            emulator.stacks.pop().map_or_else(|| DefaultStack::new(STACK_BYTES), Ok).expect("memory for a stack");
        threads.push(Thread::new(stack.limit().get()..stack.base().get()));
        fibers.push(Some(fiber(stack)));
    }
    let Emulator { memory, random, seed, stacks, .. } = emulator;
    let mut block =
        Block::new(memory, shared, kernel, launch, arguments.as_ptr(), index, number, threads, [launch_tick, tick]);
    // From here on the block is accessed through this pointer only, as in the fibers.
    let block: *mut Block<'_> = &raw mut block;
    native::enter(block.cast());
    let mut order: Vec<usize> = (0..n_threads).collect();
    // SAFETY: no other reference exists while this thread, or a fiber that it resumed, creates one.
    while unsafe { (*block).fault.is_none() && (*block).live() > 0 } {
        let is_shuffled = *seed != 0;
        if is_shuffled {
            random.shuffle(&mut order);
        }
        // Some warps pause for a while, so that others run far ahead of them.
        let starved = if is_shuffled { random.u64(..) & random.u64(..) } else { 0 };
        let mut went = false;
        for starve in [starved, 0] {
            for &thread in &order {
                // SAFETY: as above.
                let goes = unsafe { (*block).fault.is_none() && (*block).can_go(thread) };
                if !goes || starve >> (thread / LANES % 64) & 1 == 1 {
                    continue;
                }
                went = true;
                // SAFETY: as above; the reference ends before the fiber is resumed.
                unsafe { (*block).current = thread };
                let fiber = fibers[thread].as_mut().expect("it has not returned");
                if let CoroutineResult::Return(()) = fiber.resume(()) {
                    // SAFETY: as above.
                    unsafe { (*block).returned() };
                    stacks.extend(fibers[thread].take().map(Coroutine::into_stack));
                }
            }
            if went {
                break;
            }
        }
        if !went {
            // SAFETY: as above.
            unsafe { (*block).deadlock() };
        }
    }
    native::leave();
    for mut fiber in fibers.into_iter().flatten() {
        // SAFETY: the stack holds a kernel's frames only, which have nothing to drop.
        unsafe { fiber.force_reset() };
        stacks.push(fiber.into_stack());
    }
    // SAFETY: the fibers, which held the other pointers to the block, are gone.
    let block = unsafe { &mut *block };
    let (tick, fault) = (block.tick, block.fault.take());
    emulator.tick = tick;
    fault.map_or(Ok(()), Err)
}

fn fiber(stack: DefaultStack) -> Fiber {
    Coroutine::with_stack(stack, |yielder, ()| native::thread(ptr::from_ref(yielder)))
}
