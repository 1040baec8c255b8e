//! The C symbols of cuDNN's graph API declared in cudnn_graph.h that the host uses, operating on the memory of the
//! emulated GPU. Graphs are not recognised as patterns but executed operation by operation.
//!
//! Checks are stricter than the library's. The library accepts descriptors that are not finalized or have the wrong
//! kind, and then fails late or crashes. Here both are rejected immediately, and shapes that do not match are rejected
//! when an operation is finalized. Like the library's, the heuristics count more engines than they return.
//!
//! SAFETY, for every symbol: as for the driver's symbols in `calls.rs`.
#![allow(non_snake_case, reason = "names of cudnn_graph.h")]

mod descriptor;
mod execute;
mod finalize;
mod finalized;
mod graph;
mod table;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CStr, c_char, c_uint, c_void},
    slice,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    Determinism,
    calls::{check_stream, handle, put, put_text, stream_exists},
    code,
    state::{self, CallResult, Handle, State, complain},
};
use descriptor::{Descriptor, Values};
use execute::EngineBehaviour;
use finalize::{FinalizeContext, finalize};
use finalized::FinalizedDescriptor;
use table::{Attribute, Kind, Type};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1001;
const BAD_PARAM: u32 = 2000;
const NOT_SUPPORTED: u32 = 3000;
const EXECUTION_FAILED: u32 = 5000;

thread_local! {
    /// This thread's last error message.
    static REFUSED: RefCell<String> = RefCell::default();
}

/// The objects behind the library's handles, and its counters.
#[derive(Debug, Default)]
struct Graphs {
    /// The stream of each handle.
    handles: BTreeMap<usize, usize>,
    descriptors: BTreeMap<usize, Arc<Descriptor>>,
    /// Number of executions.
    n: u64,
    /// Number of executions of each engine, by its output tensors.
    n_each: BTreeMap<(usize, Vec<i64>), u64>,
}

/// Returns the objects and counters. The caller holds no other guard of them.
fn graphs() -> MutexGuard<'static, Graphs> {
    static GRAPHS: LazyLock<Mutex<Graphs>> = LazyLock::new(Mutex::default);
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts a driver code to the library's status.
fn through((driver, status): (u32, u32)) -> u32 {
    match driver {
        code::SUCCESS => status,
        code::NOT_INITIALIZED | code::INVALID_CONTEXT => NOT_INITIALIZED,
        _ => EXECUTION_FAILED,
    }
}

/// Runs a call that concerns no GPU.
fn any(answer: impl FnOnce(&mut State) -> CallResult) -> u32 {
    through(state::apart(|answer| state::any(answer), answer))
}

/// Runs a call on the GPU whose context is current.
fn on_gpu(answer: impl FnOnce(&mut State) -> CallResult) -> u32 {
    through(state::apart(|answer| state::in_context(|state, _| answer(state)), answer))
}

fn say(what: impl std::fmt::Display) {
    complain(format_args!("cuDNN: {what}"));
    REFUSED.set(what.to_string());
}

/// Reports an invalid call.
fn wrong(what: impl std::fmt::Display) -> u32 {
    say(what);
    BAD_PARAM
}

/// Reports something that the real library may support and this one does not.
fn unknown(what: impl std::fmt::Display) -> u32 {
    say(format_args!("{what} is not known here"));
    NOT_SUPPORTED
}

impl Graphs {
    fn descriptor(&self, handle: usize) -> Result<&Arc<Descriptor>, u32> {
        self.descriptors.get(&handle).ok_or_else(|| wrong("there is no such descriptor"))
    }

    fn descriptor_mut(&mut self, handle: usize) -> Result<&mut Descriptor, u32> {
        let descriptor = self.descriptors.get_mut(&handle).ok_or_else(|| wrong("there is no such descriptor"))?;
        Ok(Arc::make_mut(descriptor))
    }

    /// Returns a snapshot of a descriptor, which must be finalized.
    fn part(&self, handle: usize) -> Result<Arc<Descriptor>, u32> {
        let part = self.descriptor(handle)?;
        let made = part.made().ok_or_else(|| wrong(format_args!("a {:?} is set that is not finalized", part.kind)));
        made.map(|_| part.clone())
    }

    fn stream(&self, handle: Handle) -> Result<usize, u32> {
        self.handles.get(&handle.addr()).copied().ok_or_else(|| wrong("the handle does not exist"))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    let mut version = 0;
    state::any(|state| {
        version = state.scenario()?.cudnn.version;
        Ok(())
    });
    version
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(status: c_uint) -> *const c_char {
    let name: &CStr = match status {
        SUCCESS => c"CUDNN_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUDNN_STATUS_NOT_INITIALIZED",
        BAD_PARAM => c"CUDNN_STATUS_BAD_PARAM",
        NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED",
        4000 => c"CUDNN_STATUS_INTERNAL_ERROR",
        EXECUTION_FAILED => c"CUDNN_STATUS_EXECUTION_FAILED",
        _ => c"CUDNN_UNKNOWN_STATUS",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnGetLastErrorString(out: *mut c_char, room: usize) {
    // Without a buffer nothing is written, and the function has no status to return.
    let _: CallResult = unsafe { put_text(out, room, &REFUSED.take()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(out: *mut Handle) -> c_uint {
    on_gpu(|state| {
        let answer = state.scenario()?.cudnn.create;
        if answer != SUCCESS {
            return Err(answer);
        }
        let number = state.new_handle();
        graphs().handles.insert(number, 0);
        unsafe { put(out, handle(number)) }.map_err(|_| BAD_PARAM)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnDestroy(library: Handle) -> c_uint {
    on_gpu(|_| {
        graphs().handles.remove(&library.addr()).map(|_| ()).ok_or_else(|| wrong("the handle is destroyed twice"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(library: Handle, stream: Handle) -> c_uint {
    on_gpu(|state| {
        stream_exists(state, stream).map_err(|_| wrong("the stream does not exist"))?;
        let mut graphs = graphs();
        graphs.stream(library)?;
        graphs.handles.insert(library.addr(), stream.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_uint, out: *mut Handle) -> c_uint {
    any(|state| {
        let kind = Kind::of(kind.into()).ok_or_else(|| unknown(format_args!("descriptor {kind}")))?;
        let number = state.new_handle();
        graphs().descriptors.insert(number, Arc::new(Descriptor::new(kind)));
        unsafe { put(out, handle(number)) }.map_err(|_| wrong("the pointer for a descriptor is null"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> c_uint {
    any(|_| {
        let gone = graphs().descriptors.remove(&descriptor.addr());
        gone.map(|_| ()).ok_or_else(|| wrong("the descriptor is destroyed twice"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(descriptor: Handle) -> c_uint {
    any(|state| {
        let library = state.scenario()?.cudnn.clone();
        let mut graphs = graphs();
        let handles = graphs.handles.clone();
        let around = FinalizeContext { library: &library, handles: &handles };
        finalize(graphs.descriptor_mut(descriptor.addr())?, &around)
    })
}

fn attribute(number: u32) -> Result<&'static Attribute, u32> {
    table::attribute(number).ok_or_else(|| wrong(format_args!("attribute {number}")))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Handle,
    name: c_uint,
    of: c_uint,
    count: i64,
    from: *const c_void,
) -> c_uint {
    any(|_| {
        let attribute = attribute(name)?;
        let (of, count) = graphs().descriptor(descriptor.addr())?.may(attribute, of.into(), count)?;
        if from.is_null() {
            return Err(wrong(format_args!("{} is set from a null pointer", attribute.name)));
        }
        // SAFETY: the caller passes that many values of this type.
        let values = match of {
            Type::Float => Values::Factors(unsafe { all::<f32>(from, count) }.into_iter().map(f64::from).collect()),
            Type::Double => Values::Factors(unsafe { all(from, count) }),
            Type::Descriptor => {
                let parts = unsafe { all::<usize>(from, count) };
                Values::Parts(parts.into_iter().map(|part| graphs().part(part)).collect::<Result<_, u32>>()?)
            }
            Type::Boolean => Values::Numbers(unsafe { all::<u8>(from, count) }.into_iter().map(i64::from).collect()),
            _ if of.bytes() == 4 => {
                Values::Numbers(unsafe { all::<i32>(from, count) }.into_iter().map(i64::from).collect())
            }
            _ => Values::Numbers(unsafe { all(from, count) }),
        };
        graphs().descriptor_mut(descriptor.addr())?.set(attribute, values);
        Ok(())
    })
}

/// Copies values from the caller's memory.
///
/// # Safety
/// `from` is valid for reading `count` values.
unsafe fn all<T: Copy>(from: *const c_void, count: usize) -> Vec<T> {
    // SAFETY: the caller promises it.
    (0..count).map(|index| unsafe { from.cast::<T>().add(index).read_unaligned() }).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: Handle,
    name: c_uint,
    of: c_uint,
    room: i64,
    count: *mut i64,
    out: *mut c_void,
) -> c_uint {
    any(|_| {
        let attribute = attribute(name)?;
        let values = graphs().descriptor(descriptor.addr())?.get(attribute, of.into())?.clone();
        let room = usize::try_from(room).map_err(|_| wrong(format_args!("room for {room} values")))?;
        if room > 0 && out.is_null() {
            return Err(wrong(format_args!("{} is read into a null pointer", attribute.name)));
        }
        let n = match &values {
            Values::Numbers(numbers) => {
                for (index, number) in numbers.iter().take(room).enumerate() {
                    let bytes = attribute.of.bytes();
                    // SAFETY: the caller's buffer holds that many values of this type. Memory is little-endian.
                    unsafe { out.byte_add(index * bytes).cast::<u8>().copy_from(number.to_le_bytes().as_ptr(), bytes) };
                }
                numbers.len()
            }
            Values::Factors(_) => return Err(unknown(format_args!("reading {}", attribute.name))),
            Values::Parts(parts) => {
                // SAFETY: the caller passes that many descriptors.
                let to = if room == 0 { &[] } else { unsafe { slice::from_raw_parts(out.cast::<usize>(), room) } };
                for (&to, part) in to.iter().zip(parts) {
                    fill(to, part)?;
                }
                // When asked for the count alone, the library includes engines that it then does not return.
                if room == 0 && attribute.number == table::ENGINEHEUR_RESULTS { parts.len() + 1 } else { parts.len() }
            }
        };
        let n = if room == 0 { n } else { n.min(room) };
        if !count.is_null() {
            // SAFETY: not null, and valid for writing.
            unsafe { count.write(n as i64) };
        }
        Ok(())
    })
}

/// Copies a finalized descriptor into one that the caller created.
fn fill(to: usize, from: &Arc<Descriptor>) -> CallResult {
    let mut graphs = graphs();
    let empty = graphs.descriptor(to)?;
    if empty.kind != from.kind || empty.made().is_some() {
        return Err(wrong(format_args!(
            "a {:?} is read into a {:?}, or into a finalized descriptor",
            from.kind, empty.kind
        )));
    }
    graphs.descriptors.insert(to, from.clone());
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(library: Handle, plan: Handle, pack: Handle) -> c_uint {
    on_gpu(|state| {
        let stream = graphs().stream(library)?;
        check_stream(state, handle(stream))
            .map_err(|_| wrong("the stream does not exist, or it waits for the host"))?;
        let plan = graphs().part(plan.addr())?;
        let pack = graphs().part(pack.addr())?;
        let (Some(FinalizedDescriptor::Plan(plan)), Some(FinalizedDescriptor::Pack(pack))) = (plan.made(), pack.made())
        else {
            return Err(wrong("only a plan can be executed, with a variant pack"));
        };
        if plan.handle != library.addr() {
            return Err(wrong("the plan belongs to another handle"));
        }
        let mut graphs = graphs();
        graphs.n += 1;
        let n = graphs.n;
        if let Some(refused) = state.scenario()?.cudnn.refused.filter(|refused| refused.launch == n) {
            return Err(refused.code);
        }
        let (chosen, engine) = (&plan.chosen, &plan.chosen.engine);
        let given = chosen.graph.given.iter().copied().collect();
        let n_each = graphs.n_each.entry((chosen.place, given)).or_default();
        *n_each += 1;
        let off = engine.determinism != Determinism::Repeats && n_each.is_multiple_of(2);
        let way = EngineBehaviour { workspace_bytes: engine.workspace_bytes, wrong: engine.wrong, off };
        execute::execute(&mut state.emulator, &chosen.graph, pack, way).map_err(wrong)?;
        state.ahead += Duration::from_millis(engine.millis);
        Ok(())
    })
}
