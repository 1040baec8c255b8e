//! Symbols that load PTX and return kernels. The kernels are those of the sources; their parameters must match the PTX.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    slice,
};

use super::{handle, put, put_text};
use crate::{
    FakeGpu, code, compiled,
    ptx::{self, Ptx},
    state::{Entry, Handle, State, complain, in_context},
};

/// CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
const ERROR_LOG: (c_uint, c_uint) = (5, 6);
/// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
const SHARED_BYTES_MAX: c_uint = 8;
/// Dynamic shared memory of a block without opt-in, in bytes.
const SHARED_BYTES_USUAL: u32 = 49_152;
/// Largest number of threads per block.
const THREADS_MAX: u32 = 1024;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut Handle,
    image: *const c_void,
    n_options: c_uint,
    options: *const c_uint,
    values: *const *mut c_void,
) -> c_uint {
    in_context(|state, gpu| {
        if image.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
        let n_launches = state.n_launches;
        let scenario = state.scenario()?;
        if scenario.no_modules_after.is_some_and(|n| n_launches >= n) {
            return Err(code::OUT_OF_MEMORY);
        }
        let entries = read(&text, scenario.driver_version, &scenario.gpus[gpu]).and_then(|mut entries| {
            let module = compiled::module(&text).map_err(|error| (code::INVALID_PTX, error))?;
            entries.iter_mut().for_each(|entry| entry.compiled = module.clone());
            Ok(entries)
        });
        match entries {
            Ok(entries) => {
                let number = state.new_handle();
                state.modules.insert(number, entries);
                unsafe { put(out, handle(number)) }
            }
            Err((code, log)) => {
                unsafe { put_log(&log, n_options, options, values) };
                complain(&log);
                Err(code)
            }
        }
    })
}

/// Writes an error log to the caller's buffer, if the options have one.
///
/// # Safety
/// As for every symbol.
unsafe fn put_log(log: &str, n_options: c_uint, options: *const c_uint, values: *const *mut c_void) {
    let n_options = usize::try_from(n_options).unwrap_or(0);
    if n_options == 0 || options.is_null() || values.is_null() {
        return;
    }
    let (options, values) =
        unsafe { (slice::from_raw_parts(options, n_options), slice::from_raw_parts(values, n_options)) };
    let value = |of: c_uint| options.iter().position(|&option| option == of).map(|place| values[place]);
    if let (Some(buffer), Some(size)) = (value(ERROR_LOG.0), value(ERROR_LOG.1)) {
        // A caller without a buffer gets no log.
        let _: Result<(), u32> = unsafe { put_text(buffer.cast::<c_char>(), size.addr(), log) };
    }
}

/// Parses a module, or returns the code and the log.
fn read(text: &str, driver_version: i32, gpu: &FakeGpu) -> Result<Vec<Entry>, (u32, String)> {
    let ptx = Ptx::read(text).map_err(|error| (code::INVALID_PTX, error))?;
    let (version, known) = (ptx.version, newest(driver_version));
    if version > known {
        let what = format!("PTX of version {}.{}, newer than this driver", version / 10, version % 10);
        return Err((code::UNSUPPORTED_PTX_VERSION, what));
    }
    let can = u32::try_from(10 * gpu.capability.0 + gpu.capability.1).unwrap_or(0);
    if ptx.target > can {
        return Err((code::NO_BINARY_FOR_GPU, format!("PTX for sm_{} on a GPU of sm_{can}", ptx.target)));
    }
    ptx.entries.iter().map(entry).collect()
}

/// Returns the newest PTX version of a driver: 8.4 came with CUDA 12.4, 8.5 with 12.5 (PTX ISA, release notes).
fn newest(driver_version: i32) -> u32 {
    match driver_version {
        ..12_000 => 78,
        12_000..12_060 => u32::try_from(80 + driver_version % 1000 / 10).unwrap_or(80),
        12_060..12_080 => 85,
        12_080..12_090 => 87,
        12_090..13_000 => 88,
        _ => 90,
    }
}

fn entry(entry: &ptx::Entry) -> Result<Entry, (u32, String)> {
    let name = &entry.name;
    let invalid = |what| (code::INVALID_IMAGE, what);
    let kernel = headroom_emulator::kernel(name)
        .ok_or_else(|| invalid(format!("the PTX has {name}, and no source does: it is of older ones")))?;
    let source = kernel.parameter_bytes();
    if source != entry.parameter_bytes {
        let ptx = &entry.parameter_bytes;
        return Err(invalid(format!(
            "{name} takes parameters of {ptx:?} bytes in the PTX and of {source:?} in its source: it is of an older one"
        )));
    }
    let threads_max = entry.threads_max.unwrap_or(THREADS_MAX);
    Ok(Entry { name: name.clone(), kernel, compiled: None, threads_max, shared_bytes_max: SHARED_BYTES_USUAL })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> c_uint {
    in_context(|state, _| {
        state.modules.remove(&module.addr()).ok_or(code::INVALID_HANDLE)?;
        state.functions.retain(|_, (of, _)| *of != module.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char) -> c_uint {
    in_context(|state, _| {
        let entries = state.modules.get(&module.addr()).ok_or(code::INVALID_HANDLE)?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let place = entries.iter().position(|entry| *entry.name == *name).ok_or(code::NOT_FOUND)?;
        let number = state.new_handle();
        state.functions.insert(number, (module.addr(), place));
        unsafe { put(out, handle(number)) }
    })
}

/// Returns the kernel of a handle.
pub fn of(state: &mut State, function: Handle) -> Result<&mut Entry, u32> {
    let (module, place) = *state.functions.get(&function.addr()).ok_or(code::INVALID_HANDLE)?;
    state.modules.get_mut(&module).and_then(|entries| entries.get_mut(place)).ok_or(code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetParamInfo(
    function: Handle,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> c_uint {
    in_context(|state, _| {
        let parameters = of(state, function)?.kernel.parameter_bytes();
        let own = *parameters.get(index).ok_or(code::INVALID_VALUE)? as usize;
        // Parameters are numbers and addresses, each aligned to its own size.
        let before = parameters[..index].iter().fold(0, |end: usize, &n| end.next_multiple_of(n as usize) + n as usize);
        unsafe { put(offset, before.next_multiple_of(own)) }?;
        if bytes.is_null() { Ok(()) } else { unsafe { put(bytes, own) } }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) -> c_uint {
    in_context(|state, gpu| {
        let most = state.scenario()?.gpus[gpu].shared_bytes_max;
        let entry = of(state, function)?;
        if attribute != SHARED_BYTES_MAX {
            complain(format_args!("attribute {attribute} of a function is not emulated"));
            return Err(code::INVALID_VALUE);
        }
        let value = u32::try_from(value).ok().filter(|&value| value <= most).ok_or(code::INVALID_VALUE)?;
        entry.shared_bytes_max = value;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, driver_version: i32) -> (u32, String) {
        read(text, driver_version, &FakeGpu::default()).expect_err("it is refused")
    }

    fn file(version: &str, target: u32, entry: &str) -> String {
        format!(".version {version}\n.target sm_{target}\n.visible .entry {entry} {{ ret; }}\n")
    }

    const ROOT: &str = "global_norm_root(.param .u64 a, .param .u64 b, .param .u32 c)";

    #[test]
    fn ptx_of_the_sources_is_taken() {
        let entries = read(&file("8.4", 80, ROOT), 12_040, &FakeGpu::default()).expect("it is current");
        assert_eq!(entries[0].name, "global_norm_root");
    }

    #[test]
    fn ptx_of_other_sources_is_refused() {
        let (code, log) = refused(&file("8.4", 80, &ROOT.replace("u32", "u64")), 12_040);
        assert_eq!(code, code::INVALID_IMAGE);
        assert!(log.contains("[8, 8, 8] bytes in the PTX and of [8, 8, 4] in its source"), "{log}");
        let (code, log) = refused(&file("8.4", 80, "global_norm_gone()"), 12_040);
        assert_eq!(code, code::INVALID_IMAGE);
        assert!(log.contains("global_norm_gone"), "{log}");
    }

    #[test]
    fn ptx_beyond_driver_or_gpu_is_refused() {
        assert_eq!(refused(&file("8.5", 80, ROOT), 12_040).0, code::UNSUPPORTED_PTX_VERSION);
        assert_eq!(refused(&file("8.4", 90, ROOT), 13_000).0, code::NO_BINARY_FOR_GPU);
        assert_eq!(refused("no PTX", 13_000).0, code::INVALID_PTX);
    }
}
