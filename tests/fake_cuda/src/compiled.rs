//! Launches of the PTX that the host loads, by the interpreter of `tests/ptx`.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use headroom_emulator::Change;
use headroom_ptx::{Allocation, Launch, MistakeKind, Module, mutations};

use crate::{
    code, launch_settings,
    state::{CallResult, State, complain},
};

/// Parsed modules by their text, because each test opens the GPU again and loads the same ones.
static MODULES: LazyLock<Mutex<BTreeMap<String, Arc<Module>>>> = LazyLock::new(Mutex::default);

/// Returns the parsed module if this thread's launches run the PTX.
///
/// # Errors
/// The module has something unknown.
pub fn module(text: &str) -> Result<Option<Arc<Module>>, String> {
    if launch_settings::is_compiled() { read(text).map(Some) } else { Ok(None) }
}

fn read(text: &str) -> Result<Arc<Module>, String> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(text) {
        return Ok(Arc::clone(module));
    }
    let module = Arc::new(Module::read(text).map_err(|error| error.to_string())?);
    modules.insert(text.to_owned(), Arc::clone(&module));
    Ok(module)
}

/// Returns the module, with the mutation of an entry that this thread selects.
fn mutated(module: &Arc<Module>, entry: &str) -> Result<Arc<Module>, u32> {
    let Some(name) = launch_settings::mutation(entry) else { return Ok(Arc::clone(module)) };
    let refused = |what: String| {
        complain(what);
        code::NOT_FOUND
    };
    let found = mutations().iter().find(|mutation| mutation.entry == entry && mutation.name == name);
    let found = found.ok_or_else(|| refused(format!("tests/ptx/mutations.txt has no {name} in {entry}")))?;
    let text = found.apply(module.text()).map_err(|error| refused(error.to_string()))?;
    read(&text).map_err(|error| refused(format!("{entry} with {name}: {error}")))
}

/// Applies the host's changes of memory since the last call. Memory that was written before the first call counts as
/// uninitialised.
pub fn follow(state: &mut State) {
    for change in state.emulator.changes() {
        match change {
            Change::Allocated(address, bytes) => state.compiled_memory.allocate(address, bytes),
            Change::Freed(address) => state.compiled_memory.free(address),
            Change::Written(address, bytes) => state.compiled_memory.written(address, bytes),
        }
    }
}

/// Runs an entry to completion, or to its first mistake.
///
/// # Safety
/// Each argument points to a value of its parameter's size, as for the driver's own call.
///
/// # Errors
/// The driver's code, if the launch is rejected.
pub unsafe fn launch(
    state: &mut State,
    module: &Arc<Module>,
    entry: &str,
    launch: Launch,
    arguments: &[*const c_void],
) -> CallResult {
    let module = mutated(module, entry)?;
    let known = module.parameters(entry).ok_or(code::NOT_FOUND)?;
    let mut parameters = vec![];
    for (parameter, argument) in known.iter().zip(arguments) {
        parameters.resize(parameter.offset as usize, 0);
        // SAFETY: the caller promises it.
        let value = unsafe { std::slice::from_raw_parts(argument.cast::<u8>(), parameter.bytes as usize) };
        parameters.extend_from_slice(value);
    }
    follow(state);
    let allocations = state.emulator.allocations().map(|(address, bytes)| Allocation { address, bytes }).collect();
    let ran = module.launch(entry, launch, &parameters, &mut state.compiled_memory, allocations);
    if let Err(fault) = ran.ok_or(code::NOT_FOUND)? {
        state.fail(code_of(&fault.mistake), fault.to_string());
    }
    Ok(())
}

/// Returns the code that a GPU would report, for mistakes that a GPU detects.
const fn code_of(mistake: &MistakeKind) -> u32 {
    match mistake {
        MistakeKind::OutOfBounds { .. } => code::ILLEGAL_ADDRESS,
        MistakeKind::Misaligned { .. } => code::MISALIGNED_ADDRESS,
        MistakeKind::TimedOut { .. } => code::LAUNCH_TIMEOUT,
        _ => code::LAUNCH_FAILED,
    }
}
