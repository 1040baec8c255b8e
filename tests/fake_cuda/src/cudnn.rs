//! The C symbols of cuDNN's graphs, as cudnn_graph.h declares them: what our host uses of them, over the memory of the
//! fake card. A graph is not recognized but computed, operation by operation.
//!
//! Stricter than the library, which takes a descriptor that is not finalized, or of another kind, and says so late or
//! breaks; here both are refused at once, and shapes that do not fit as an operation is finalized. As with the library,
//! heuristics count more engines than they then give.
//!
//! SAFETY, of every one: as of the driver's, in `calls.rs`.
#![allow(non_snake_case, reason = "names of cudnn_graph.h")]

mod descriptor;
mod execute;
mod graph;
mod made;
mod table;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{CStr, c_char, c_uint, c_void},
    slice,
    sync::Arc,
    time::Duration,
};

use crate::{
    Determinism,
    calls::{check_stream, handle, put, put_text, stream_exists},
    code,
    state::{self, Answer, Handle, State, complain},
};
use descriptor::{Descriptor, Values};
use execute::Way;
use made::{Around, Made};
use table::{Attribute, Kind, Type};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1001;
const BAD_PARAM: u32 = 2000;
const NOT_SUPPORTED: u32 = 3000;
const EXECUTION_FAILED: u32 = 5000;

thread_local! {
    /// What this thread was refused last.
    static REFUSED: RefCell<String> = RefCell::default();
}

/// What the library gave handles for, and did.
#[derive(Debug, Default)]
pub struct Graphs {
    /// Whose stream is which.
    handles: BTreeMap<usize, usize>,
    descriptors: BTreeMap<usize, Arc<Descriptor>>,
    /// Executions so far.
    n: u64,
    /// The same of each engine, by the tensors that it gave.
    n_each: BTreeMap<(usize, Vec<i64>), u64>,
}

/// What the library says where the driver says this.
fn through((driver, status): (u32, u32)) -> u32 {
    match driver {
        code::SUCCESS => status,
        code::NOT_INITIALIZED | code::INVALID_CONTEXT => NOT_INITIALIZED,
        _ => EXECUTION_FAILED,
    }
}

/// A call that is of no card.
fn any(answer: impl FnOnce(&mut State) -> Answer) -> u32 {
    through(state::apart(|answer| state::any(answer), answer))
}

/// A call that is of the card whose context is this thread's.
fn on_card(answer: impl FnOnce(&mut State) -> Answer) -> u32 {
    through(state::apart(|answer| state::in_context(|state, _| answer(state)), answer))
}

fn say(what: impl std::fmt::Display) {
    complain(format_args!("cuDNN: {what}"));
    REFUSED.set(what.to_string());
}

/// Says what was wrong with a call.
fn wrong(what: impl std::fmt::Display) -> u32 {
    say(what);
    BAD_PARAM
}

/// Says what the library may know and this one does not.
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

    /// A descriptor as it is now, which has to be finalized.
    fn part(&self, handle: usize) -> Result<Arc<Descriptor>, u32> {
        let part = self.descriptor(handle)?;
        let made = part.made().ok_or_else(|| wrong(format_args!("a {:?} is set that is not finalized", part.kind)));
        made.map(|_| part.clone())
    }

    fn stream(&self, handle: Handle) -> Result<usize, u32> {
        self.handles.get(&handle.addr()).copied().ok_or_else(|| wrong("there is no such handle"))
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
    // Where there is no room nothing is written, and nobody can be told.
    let _: Answer = unsafe { put_text(out, room, &REFUSED.take()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnCreate(out: *mut Handle) -> c_uint {
    on_card(|state| {
        let answer = state.scenario()?.cudnn.create;
        if answer != SUCCESS {
            return Err(answer);
        }
        let number = state.new_handle();
        state.graphs.handles.insert(number, 0);
        unsafe { put(out, handle(number)) }.map_err(|_| BAD_PARAM)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnDestroy(library: Handle) -> c_uint {
    on_card(|state| state.graphs.handles.remove(&library.addr()).map(|_| ()).ok_or_else(|| wrong("a handle twice")))
}

#[unsafe(no_mangle)]
extern "C" fn cudnnSetStream(library: Handle, stream: Handle) -> c_uint {
    on_card(|state| {
        stream_exists(state, stream).map_err(|_| wrong("a stream that is not there"))?;
        state.graphs.stream(library)?;
        state.graphs.handles.insert(library.addr(), stream.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_uint, out: *mut Handle) -> c_uint {
    any(|state| {
        let kind = Kind::of(kind.into()).ok_or_else(|| unknown(format_args!("descriptor {kind}")))?;
        let number = state.new_handle();
        state.graphs.descriptors.insert(number, Arc::new(Descriptor::new(kind)));
        unsafe { put(out, handle(number)) }.map_err(|_| wrong("no place for a descriptor"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> c_uint {
    any(|state| {
        let gone = state.graphs.descriptors.remove(&descriptor.addr());
        gone.map(|_| ()).ok_or_else(|| wrong("a descriptor twice"))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendFinalize(descriptor: Handle) -> c_uint {
    any(|state| {
        let library = state.scenario()?.cudnn.clone();
        let handles = state.graphs.handles.clone();
        let around = Around { library: &library, handles: &handles };
        state.graphs.descriptor_mut(descriptor.addr())?.finalize(&around)
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
    any(|state| {
        let attribute = attribute(name)?;
        let (of, count) = state.graphs.descriptor(descriptor.addr())?.may(attribute, of.into(), count)?;
        if from.is_null() {
            return Err(wrong(format_args!("{} is set from nowhere", attribute.name)));
        }
        // SAFETY: the caller has so many of that type there.
        let values = match of {
            Type::Float => Values::Factors(unsafe { all::<f32>(from, count) }.into_iter().map(f64::from).collect()),
            Type::Double => Values::Factors(unsafe { all(from, count) }),
            Type::Descriptor => {
                let parts = unsafe { all::<usize>(from, count) };
                Values::Parts(parts.into_iter().map(|part| state.graphs.part(part)).collect::<Result<_, u32>>()?)
            }
            Type::Boolean => Values::Numbers(unsafe { all::<u8>(from, count) }.into_iter().map(i64::from).collect()),
            _ if of.bytes() == 4 => {
                Values::Numbers(unsafe { all::<i32>(from, count) }.into_iter().map(i64::from).collect())
            }
            _ => Values::Numbers(unsafe { all(from, count) }),
        };
        state.graphs.descriptor_mut(descriptor.addr())?.set(attribute, values);
        Ok(())
    })
}

/// Copies what lies there.
///
/// # Safety
/// So many lie there.
unsafe fn all<T: Copy>(from: *const c_void, count: usize) -> Vec<T> {
    // SAFETY: as the caller promises.
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
    any(|state| {
        let attribute = attribute(name)?;
        let values = state.graphs.descriptor(descriptor.addr())?.get(attribute, of.into())?.clone();
        let room = usize::try_from(room).map_err(|_| wrong(format_args!("room for {room} values")))?;
        if room > 0 && out.is_null() {
            return Err(wrong(format_args!("{} is read to nowhere", attribute.name)));
        }
        let n = match &values {
            Values::Numbers(numbers) => {
                for (index, number) in numbers.iter().take(room).enumerate() {
                    let bytes = attribute.of.bytes();
                    // SAFETY: the caller has room for so many of that type; what is the lesser comes first in memory.
                    unsafe { out.byte_add(index * bytes).cast::<u8>().copy_from(number.to_le_bytes().as_ptr(), bytes) };
                }
                numbers.len()
            }
            Values::Factors(_) => return Err(unknown(format_args!("reading {}", attribute.name))),
            Values::Parts(parts) => {
                // SAFETY: the caller has so many descriptors there.
                let to = if room == 0 { &[] } else { unsafe { slice::from_raw_parts(out.cast::<usize>(), room) } };
                for (&to, part) in to.iter().zip(parts) {
                    fill(state, to, part)?;
                }
                // Before it looks closer, the library has counted some that then are not there.
                if room == 0 && attribute.number == table::ENGINEHEUR_RESULTS { parts.len() + 1 } else { parts.len() }
            }
        };
        let n = if room == 0 { n } else { n.min(room) };
        if !count.is_null() {
            // SAFETY: not null, and the caller's to be written.
            unsafe { count.write(n as i64) };
        }
        Ok(())
    })
}

/// Makes a descriptor that the caller has created what another is.
fn fill(state: &mut State, to: usize, from: &Arc<Descriptor>) -> Answer {
    let empty = state.graphs.descriptor(to)?;
    if empty.kind != from.kind || empty.made().is_some() {
        return Err(wrong(format_args!("a {:?} is read into a {:?}, or a finalized one", from.kind, empty.kind)));
    }
    state.graphs.descriptors.insert(to, from.clone());
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cudnnBackendExecute(library: Handle, plan: Handle, pack: Handle) -> c_uint {
    on_card(|state| {
        let stream = state.graphs.stream(library)?;
        check_stream(state, handle(stream)).map_err(|_| wrong("a stream that is not there, or waits for the host"))?;
        let (plan, pack) = (state.graphs.part(plan.addr())?, state.graphs.part(pack.addr())?);
        let (Some(Made::Plan(plan)), Some(Made::Pack(pack))) = (plan.made(), pack.made()) else {
            return Err(wrong("what is executed is a plan, with a variant pack"));
        };
        if plan.handle != library.addr() {
            return Err(wrong("a plan is executed with another handle than it was made for"));
        }
        state.graphs.n += 1;
        let n = state.graphs.n;
        if let Some(refused) = state.scenario()?.cudnn.refused.filter(|refused| refused.launch == n) {
            return Err(refused.code);
        }
        let (chosen, engine) = (&plan.chosen, &plan.chosen.engine);
        let given = chosen.graph.given.iter().copied().collect();
        let n_each = state.graphs.n_each.entry((chosen.place, given)).or_default();
        *n_each += 1;
        let off = engine.determinism != Determinism::Repeats && n_each.is_multiple_of(2);
        let way = Way { workspace_bytes: engine.workspace_bytes, wrong: engine.wrong, off };
        execute::execute(&mut state.emulator, &chosen.graph, pack, way).map_err(wrong)?;
        state.ahead += Duration::from_millis(engine.millis);
        Ok(())
    })
}
