//! The symbol that launches kernels. It makes the driver's checks and runs the kernel to completion.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::{
    ffi::{c_uint, c_void},
    slice,
};

use headroom_emulator::{FaultKind, Kernel, Launch};

use super::{module, stream};
use crate::{
    code, compiled, launch_settings,
    state::{CallResult, Entry, Handle, State, complain, in_context},
};

/// Largest grid, by x, y and z.
const GRID_MAX: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];
/// Largest block, by x, y and z, and in total threads.
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
            complain(format_args!("{}: invalid launch of {grid:?} x {block:?} with {shared_bytes} bytes", entry.name));
        })?;
        let n = entry.kernel.parameter_bytes().len();
        if !extra.is_null() || (arguments.is_null() && n > 0) {
            return Err(code::INVALID_VALUE);
        }
        // The number of parameters in the PTX, which was checked against the source.
        let arguments = if n == 0 { &[] } else { unsafe { slice::from_raw_parts(arguments, n) } };
        state.n_launches += 1;
        if let Some(fault) = state.scenario()?.fault.filter(|fault| fault.launch == state.n_launches) {
            state.fail(fault.code, format!("{}: fails with {} as the scenario says", entry.name, fault.code));
            return Ok(());
        }
        let seed = launch_settings::seed().unwrap_or(state.scenario()?.seed);
        if let Some(module) = &entry.compiled {
            let launch = headroom_ptx::Launch { grid, block, shared_bytes, seed };
            return unsafe { compiled::launch(state, module, &entry.name, launch, arguments) };
        }
        let kernel = mutated(state, &entry)?;
        state.emulator.reseed(seed);
        let launched = unsafe { state.emulator.launch(kernel, Launch { grid, block, shared_bytes }, arguments) };
        // The failure is reported by the next synchronising call.
        if let Err(fault) = launched {
            state.fail(code_of(&fault.what), fault.to_string());
        }
        Ok(())
    })
}

/// Rejects launches that exceed the limits of a GPU or of the kernel.
fn may(entry: &Entry, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> CallResult {
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

/// Returns the kernel, or its mutation if this thread or the scenario selects one.
fn mutated(state: &State, entry: &Entry) -> Result<&'static Kernel, u32> {
    let mutation =
        launch_settings::mutation(&entry.name).or_else(|| state.scenario().ok()?.mutations.get(&entry.name).cloned());
    let Some(mutation) = mutation else { return Ok(entry.kernel) };
    let name = format!("{}__{mutation}", entry.name);
    headroom_emulator::kernel(&name).ok_or_else(|| {
        complain(format_args!("mutations.txt has no {name}"));
        code::NOT_FOUND
    })
}

/// Returns the code that a GPU would report, for mistakes that a GPU detects.
fn code_of(what: &FaultKind) -> u32 {
    match what {
        FaultKind::OutOfBounds(_) => code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned { .. } => code::MISALIGNED_ADDRESS,
        FaultKind::Deadlock { .. } => code::LAUNCH_TIMEOUT,
        _ => code::LAUNCH_FAILED,
    }
}
