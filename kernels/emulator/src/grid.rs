//! A launch: block after block, and in each whichever threads can go on, in an order that a seed makes.

use std::{ffi::c_void, ptr};

use corosensei::{
    Coroutine, CoroutineResult,
    stack::{DefaultStack, Stack},
};

use crate::{
    Emulator, Fault, Kernel, Launch, Size,
    block::{Block, Thread},
    fault::{Space, What},
    memory::Region,
    native,
    shadow::THREADS_MAX,
    warp::LANES,
};

/// Bytes of a fiber's stack. A kernel's registers and local arrays lie there; what is never touched takes nothing.
const STACK_BYTES: usize = 128 * 1024;

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// Runs a kernel.
///
/// # Safety
/// As [`Emulator::launch`].
///
/// # Errors
/// The first fault.
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
        return Err(refused(What::SharedMemory { needs_bytes, given_bytes: 0 }));
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
    // From here on the block is touched by this pointer alone: fibers do so too.
    let block: *mut Block<'_> = &raw mut block;
    native::enter(block.cast());
    let mut order: Vec<usize> = (0..n_threads).collect();
    // SAFETY: nobody else has a reference while this thread, or a fiber that it resumed, makes one.
    while unsafe { (*block).fault.is_none() && (*block).live() > 0 } {
        let is_shuffled = *seed != 0;
        if is_shuffled {
            random.shuffle(&mut order);
        }
        // Some warps stand still for a while, so that others run far ahead of them.
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
        // SAFETY: what lies on the stack is a kernel's, which has nothing to be dropped.
        unsafe { fiber.force_reset() };
        stacks.push(fiber.into_stack());
    }
    // SAFETY: the fibers are gone.
    let block = unsafe { &mut *block };
    let (tick, fault) = (block.tick, block.fault.take());
    emulator.tick = tick;
    fault.map_or(Ok(()), Err)
}

fn fiber(stack: DefaultStack) -> Fiber {
    Coroutine::with_stack(stack, |yielder, ()| native::thread(ptr::from_ref(yielder)))
}
