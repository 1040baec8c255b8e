//! The C symbols of cuBLASLt, as cublasLt.h declares them: what our host uses of it, over the memory of the fake card.
//!
//! SAFETY, of every one: as of the driver's, in `calls.rs`.
#![allow(non_snake_case, reason = "names of cublasLt.h")]

mod product;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    time::Duration,
};

use crate::{
    Algorithm,
    calls::{handle, put},
    code,
    state::{self, Answer, Handle, State, complain},
};
use product::{Addresses, Matrix, Operation};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 7;
const EXECUTION_FAILED: u32 = 13;
const NOT_SUPPORTED: u32 = 15;

/// What tells an algorithm of this library from other bytes.
const MARK: u64 = 0x4845_4144_524f_4f4d;

/// What the library gave handles for, and did.
#[derive(Debug, Default)]
pub struct Products {
    states: BTreeSet<usize>,
    descs: BTreeMap<usize, Desc>,
    layouts: BTreeMap<usize, Matrix>,
    preferences: BTreeMap<usize, Preference>,
    /// Products so far.
    n: u64,
}

/// cublasLtMatmulDesc_t.
#[derive(Clone, Copy, Debug, Default)]
struct Desc {
    transposed: [bool; 2],
    has_bias: bool,
    bias: u64,
}

/// cublasLtMatmulPreference_t; before anybody says more there is no room, and every scheme is allowed.
#[derive(Clone, Copy, Debug)]
struct Preference {
    workspace_bytes: u64,
    schemes: u32,
}

/// cublasLtMatmulHeuristicResult_t.
#[repr(C)]
struct Proposal {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    status: u32,
    waves: f32,
    reserved: [c_int; 4],
}

impl Proposal {
    fn of(index: usize, algorithm: &Algorithm) -> Self {
        let workspace_bytes = usize::try_from(algorithm.workspace_bytes).unwrap_or(usize::MAX);
        let words = [MARK, index as u64, 0, 0, 0, 0, 0, 0];
        Self { algorithm: words, workspace_bytes, status: SUCCESS, waves: 1.0, reserved: [0; 4] }
    }
}

/// A call that is of no card.
fn any(answer: impl FnOnce(&mut State) -> Answer) -> u32 {
    through(state::apart(|answer| state::begun(answer), answer))
}

/// A call that is of the card whose context is this thread's.
fn on_card(answer: impl FnOnce(&mut State) -> Answer) -> u32 {
    through(state::apart(|answer| state::in_context(|state, _| answer(state)), answer))
}

/// What the library says where the driver says this.
fn through((driver, status): (u32, u32)) -> u32 {
    match driver {
        code::SUCCESS => status,
        code::NOT_INITIALIZED | code::INVALID_CONTEXT => NOT_INITIALIZED,
        _ => EXECUTION_FAILED,
    }
}

/// Says what was wrong with a call.
fn wrong(what: impl std::fmt::Display) -> u32 {
    complain(format_args!("cuBLASLt: {what}"));
    INVALID_VALUE
}

/// What a handle stands for.
fn of<T: Copy>(all: &BTreeMap<usize, T>, handle: Handle, what: &str) -> Result<T, u32> {
    all.get(&handle.addr()).copied().ok_or_else(|| wrong(format_args!("there is no such {what}")))
}

/// An attribute's value, of the size that it has to have.
///
/// # Safety
/// As of every symbol.
unsafe fn value<const N: usize>(from: *const c_void, bytes: usize) -> Result<[u8; N], u32> {
    if from.is_null() || bytes != N {
        return Err(wrong(format_args!("an attribute of {N} bytes is given as {bytes}")));
    }
    // SAFETY: the caller has that many bytes there.
    Ok(unsafe { from.cast::<[u8; N]>().read_unaligned() })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    let mut version = 0;
    state::any(|state| {
        version = state.scenario()?.cublaslt.version;
        Ok(())
    });
    version
}

fn told(status: c_uint) -> (&'static CStr, &'static CStr) {
    match status {
        SUCCESS => (c"CUBLAS_STATUS_SUCCESS", c"success"),
        NOT_INITIALIZED => (c"CUBLAS_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
        INVALID_VALUE => (c"CUBLAS_STATUS_INVALID_VALUE", c"an unsupported value or parameter was passed"),
        EXECUTION_FAILED => (c"CUBLAS_STATUS_EXECUTION_FAILED", c"the GPU program failed to execute"),
        NOT_SUPPORTED => (c"CUBLAS_STATUS_NOT_SUPPORTED", c"the functionality requested is not supported"),
        _ => (c"CUBLAS_STATUS_UNKNOWN", c"unknown"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusName(status: c_uint) -> *const c_char {
    told(status).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(status: c_uint) -> *const c_char {
    told(status).1.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(out: *mut Handle) -> c_uint {
    on_card(|state| {
        let answer = state.scenario()?.cublaslt.create;
        if answer != SUCCESS {
            return Err(answer);
        }
        let number = state.new_handle();
        state.products.states.insert(number);
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(library: Handle) -> c_uint {
    on_card(|state| if state.products.states.remove(&library.addr()) { Ok(()) } else { Err(NOT_INITIALIZED) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(out: *mut Handle, compute: c_uint, scale: c_uint) -> c_uint {
    any(|state| {
        if (compute, scale) != (68, 0) {
            return Err(wrong(format_args!("sums of kind {compute} and factors of kind {scale}")));
        }
        let number = state.new_handle();
        state.products.descs.insert(number, Desc::default());
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(desc: Handle) -> c_uint {
    any(|state| state.products.descs.remove(&desc.addr()).map(|_| ()).ok_or_else(|| wrong("a description twice")))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    desc: Handle,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> c_uint {
    any(|state| {
        let desc = state.products.descs.get_mut(&desc.addr()).ok_or_else(|| wrong("there is no such description"))?;
        match attribute {
            3 | 4 => {
                let transpose = i32::from_ne_bytes(unsafe { value(from, bytes) }?);
                desc.transposed[attribute as usize - 3] = transpose == 1;
                if matches!(transpose, 0 | 1) { Ok(()) } else { Err(wrong("a transpose of another kind")) }
            }
            7 => {
                let epilogue = u32::from_ne_bytes(unsafe { value(from, bytes) }?);
                desc.has_bias = epilogue == 4;
                if matches!(epilogue, 1 | 4) { Ok(()) } else { Err(NOT_SUPPORTED) }
            }
            8 => {
                desc.bias = u64::from_ne_bytes(unsafe { value(from, bytes) }?);
                Ok(())
            }
            other => Err(wrong(format_args!("attribute {other} of a description"))),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    out: *mut Handle,
    kind: c_uint,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_uint {
    any(|state| {
        let leading = u64::try_from(leading).ok().filter(|&leading| leading >= rows && rows > 0 && columns > 0);
        let leading =
            leading.ok_or_else(|| wrong(format_args!("a matrix of {rows} x {columns}, {leading:?} apart")))?;
        let is_wide = match kind {
            0 => true,
            14 => false,
            other => return Err(wrong(format_args!("elements of kind {other}"))),
        };
        let number = state.new_handle();
        state.products.layouts.insert(number, Matrix { rows, columns, leading, is_wide });
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: Handle) -> c_uint {
    any(|state| state.products.layouts.remove(&layout.addr()).map(|_| ()).ok_or_else(|| wrong("a layout twice")))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut Handle) -> c_uint {
    any(|state| {
        let number = state.new_handle();
        state.products.preferences.insert(number, Preference { workspace_bytes: 0, schemes: 7 });
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(preference: Handle) -> c_uint {
    any(|state| {
        let gone = state.products.preferences.remove(&preference.addr());
        gone.map(|_| ()).ok_or_else(|| wrong("a preference twice"))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: Handle,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> c_uint {
    any(|state| {
        let preference = state.products.preferences.get_mut(&preference.addr());
        let preference = preference.ok_or_else(|| wrong("there is no such preference"))?;
        match attribute {
            1 => preference.workspace_bytes = u64::from_ne_bytes(unsafe { value(from, bytes) }?),
            3 => preference.schemes = u32::from_ne_bytes(unsafe { value(from, bytes) }?),
            other => return Err(wrong(format_args!("attribute {other} of a preference"))),
        }
        Ok(())
    })
}

/// A product by its description and layouts, which have to fit each other.
fn operation(state: &State, desc: Handle, [a, b, c, out]: [Handle; 4]) -> Result<(Operation, Desc), u32> {
    let desc = of(&state.products.descs, desc, "description")?;
    let layout = |handle| of(&state.products.layouts, handle, "layout");
    let (a, b, c, out) = (layout(a)?, layout(b)?, layout(c)?, layout(out)?);
    if c != out {
        return Err(wrong("what is added is of another layout than the result"));
    }
    let [a_transposed, b_transposed] = desc.transposed;
    let operation = Operation { a, b, out, a_transposed, b_transposed };
    if operation.fits() { Ok((operation, desc)) } else { Err(wrong(format_args!("{operation:?} does not fit"))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    library: Handle,
    desc: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    out: Handle,
    preference: Handle,
    asked: c_int,
    proposals: *mut Proposal,
    n: *mut c_int,
) -> c_uint {
    on_card(|state| {
        if !state.products.states.contains(&library.addr()) {
            return Err(NOT_INITIALIZED);
        }
        let (operation, desc) = operation(state, desc, [a, b, c, out])?;
        let preference = of(&state.products.preferences, preference, "preference")?;
        if desc.has_bias && desc.bias == 0 {
            return Err(wrong("a product with a bias is to be chosen for before there is one"));
        }
        let scenario = &state.scenario()?.cublaslt;
        if scenario.none_for_rows.contains(&operation.out.rows) {
            return Err(NOT_SUPPORTED);
        }
        let may = |algorithm: &Algorithm| {
            algorithm.workspace_bytes <= preference.workspace_bytes
                && (algorithm.scheme == 0 || algorithm.scheme & preference.schemes != 0)
        };
        let algorithms = scenario.algorithms.iter().enumerate().filter(|(_, algorithm)| may(algorithm));
        let mut written = 0;
        for (index, algorithm) in algorithms.take(usize::try_from(asked).unwrap_or(0)) {
            unsafe { put(proposals.add(written), Proposal::of(index, algorithm)) }?;
            written += 1;
        }
        unsafe { put(n, c_int::try_from(written).unwrap_or(0)) }
    })
}

/// The algorithm of these words.
fn algorithm(state: &State, words: *const [u64; 8]) -> Result<(usize, Algorithm), u32> {
    if words.is_null() {
        return Err(wrong("no algorithm"));
    }
    // SAFETY: as of every symbol.
    let [mark, index, ..] = unsafe { words.read() };
    let index = usize::try_from(index).ok().filter(|_| mark == MARK).ok_or(INVALID_VALUE)?;
    let algorithm = state.scenario()?.cublaslt.algorithms.get(index).ok_or(INVALID_VALUE)?;
    Ok((index, algorithm.clone()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    library: Handle,
    desc: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    out: Handle,
    words: *const [u64; 8],
    proposal: *mut Proposal,
) -> c_uint {
    on_card(|state| {
        if !state.products.states.contains(&library.addr()) {
            return Err(NOT_INITIALIZED);
        }
        operation(state, desc, [a, b, c, out])?;
        let (index, algorithm) = algorithm(state, words)?;
        unsafe { put(proposal, Proposal::of(index, &algorithm)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    library: Handle,
    desc: Handle,
    alpha: *const f32,
    a: Handle,
    a_layout: Handle,
    b: Handle,
    b_layout: Handle,
    beta: *const f32,
    c: Handle,
    c_layout: Handle,
    out: Handle,
    out_layout: Handle,
    words: *const [u64; 8],
    workspace: Handle,
    workspace_bytes: usize,
    stream: Handle,
) -> c_uint {
    on_card(|state| {
        if !state.products.states.contains(&library.addr()) {
            return Err(NOT_INITIALIZED);
        }
        crate::calls::check_stream(state, stream).map_err(|_| wrong("a stream that is not there"))?;
        let (operation, desc) = operation(state, desc, [a_layout, b_layout, c_layout, out_layout])?;
        let (_, algorithm) = algorithm(state, words)?;
        state.products.n += 1;
        let scenario = &state.scenario()?.cublaslt;
        if let Some(refused) = scenario.refused.filter(|refused| refused.launch == state.products.n) {
            return Err(refused.code);
        }
        if alpha.is_null() || beta.is_null() {
            return Err(wrong("no factors"));
        }
        let [alpha, beta] = unsafe { [alpha.read(), beta.read()] };
        let workspace = workspace.addr() as u64;
        if !workspace_bytes.is_multiple_of(256) || !workspace.is_multiple_of(256) {
            return Err(wrong(format_args!("a workspace of {workspace_bytes} bytes at {workspace:#x}")));
        }
        if algorithm.workspace_bytes > workspace_bytes as u64 {
            return Err(wrong("the workspace is too small for the algorithm"));
        }
        // Whoever else keeps something there loses it.
        state.emulator.fill(workspace, 0x7f, algorithm.workspace_bytes).map_err(wrong)?;
        let [a, b, c, out] = [a, b, c, out].map(|handle| handle.addr() as u64);
        let bias = desc.has_bias.then_some(desc.bias);
        // In place, parts come as blocks end.
        let backwards = algorithm.scheme == 1 && state.products.n.is_multiple_of(2);
        let addresses = Addresses { a, b, c, out, bias };
        product::compute(&mut state.emulator, operation, addresses, [alpha, beta], algorithm.parts, backwards)
            .map_err(wrong)?;
        state.ahead += Duration::from_millis(algorithm.millis);
        Ok(())
    })
}
