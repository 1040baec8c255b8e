//! The symbol that launches: it refuses what a card's driver would, and runs the kernel to its end.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::{
    ffi::{c_uint, c_void},
    slice,
};

use headroom_emulator::{Kernel, Launch, What};

use super::{module, stream};
use crate::{
    code, compiled, here,
    state::{Answer, Entry, Handle, State, complain, in_context},
};

/// Blocks at most, by x, y and z.
const GRID_MAX: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
/// Threads at most, by x, y and z, and of all together.
const BLOCK_MAX: ([u32; 3], u32) = ([1024, 1024, 64], 1024);

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    on: Handle,
    arguments: *const *const c_void,
    extra: *const *const c_void,
) -> c_uint {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    in_context(|state, _| {
        stream::check(state, on)?;
        let entry = module::of(state, function)?.clone();
        may(&entry, grid, block, shared_bytes).inspect_err(|_| {
            complain(format_args!("{}: no launch of {grid:?} x {block:?} with {shared_bytes} bytes", entry.name));
        })?;
        let n = entry.kernel.parameter_bytes().len();
        if !extra.is_null() || (arguments.is_null() && n > 0) {
            return Err(code::INVALID_VALUE);
        }
        // As many as the PTX says, which was compared with the source.
        let arguments = if n == 0 { &[] } else { unsafe { slice::from_raw_parts(arguments, n) } };
        state.n_launches += 1;
        if let Some(fault) = state.scenario()?.fault.filter(|fault| fault.launch == state.n_launches) {
            state.fail(fault.code, format!("{}: fails with {} as the scenario says", entry.name, fault.code));
            return Ok(());
        }
        let seed = here::seed().unwrap_or(state.scenario()?.seed);
        if let Some(module) = &entry.compiled {
            let launch = headroom_ptx::Launch { grid, block, shared_bytes, seed };
            return unsafe { compiled::launch(state, module, &entry.name, launch, arguments) };
        }
        let kernel = mutated(state, &entry)?;
        state.emulator.reseed(seed);
        let launched = unsafe { state.emulator.launch(kernel, Launch { grid, block, shared_bytes }, arguments) };
        // That it failed is told by whoever waits.
        if let Err(fault) = launched {
            state.fail(code_of(&fault.what), fault.to_string());
        }
        Ok(())
    })
}

/// Refuses what no card of the kind launches.
fn may(entry: &Entry, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Answer {
    let within =
        |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(&size, most)| (1..=most).contains(&size));
    let threads = block.iter().try_fold(1_u32, |threads, &size| threads.checked_mul(size));
    let threads = threads.filter(|&threads| threads <= BLOCK_MAX.1).ok_or(code::INVALID_VALUE)?;
    if !within(grid, GRID_MAX) || !within(block, BLOCK_MAX.0) || shared_bytes > entry.shared_bytes_max {
        return Err(code::INVALID_VALUE);
    }
    if threads > entry.threads_max {
        return Err(code::LAUNCH_OUT_OF_RESOURCES);
    }
    Ok(())
}

/// The kernel, or the one with a mistake that this thread or the scenario wants.
fn mutated(state: &State, entry: &Entry) -> Result<&'static Kernel, u32> {
    let mutation = here::mutation(&entry.name).or_else(|| state.scenario().ok()?.mutations.get(&entry.name).cloned());
    let Some(mutation) = mutation else { return Ok(entry.kernel) };
    let name = format!("{}__{mutation}", entry.name);
    headroom_emulator::kernel(&name).ok_or_else(|| {
        complain(format_args!("mutations.txt has no {name}"));
        code::NOT_FOUND
    })
}

/// What a card would say of it, as far as it would notice.
fn code_of(what: &What) -> u32 {
    match what {
        What::OutOfBounds(_) => code::ILLEGAL_ADDRESS,
        What::Misaligned { .. } => code::MISALIGNED_ADDRESS,
        What::Deadlock { .. } => code::LAUNCH_TIMEOUT,
        _ => code::LAUNCH_FAILED,
    }
}
