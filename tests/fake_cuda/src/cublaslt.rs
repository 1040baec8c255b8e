//! The C symbols of cuBLASLt declared in cublasLt.h that the host uses, operating on the memory of the emulated GPU.
//!
//! SAFETY, for every symbol: as for the driver's symbols in `calls.rs`.
#![allow(non_snake_case, reason = "names of cublasLt.h")]

mod product;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    Algorithm,
    calls::{handle, put},
    code,
    state::{self, CallResult, Handle, State, complain},
};
use product::{Addresses, Matrix, Operation};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 7;
const EXECUTION_FAILED: u32 = 13;
const NOT_SUPPORTED: u32 = 15;

/// Marks an algorithm of this library.
const MARK: u64 = 0x4845_4144_524f_4f4d;

/// The objects behind the library's handles, and its counters.
#[derive(Debug, Default)]
struct Products {
    states: BTreeSet<usize>,
    descs: BTreeMap<usize, Desc>,
    layouts: BTreeMap<usize, Matrix>,
    preferences: BTreeMap<usize, Preference>,
    /// Number of executed GEMMs.
    n: u64,
}

/// Returns the objects and counters. The caller holds no other guard of them.
fn objects() -> MutexGuard<'static, Products> {
    static PRODUCTS: LazyLock<Mutex<Products>> = LazyLock::new(Mutex::default);
    PRODUCTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// cublasLtMatmulDesc_t.
#[derive(Clone, Copy, Debug, Default)]
struct Desc {
    transposed: [bool; 2],
    has_bias: bool,
    bias: u64,
}

/// cublasLtMatmulPreference_t; by default there is no workspace, and every reduction scheme is permitted.
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

/// Runs a call that concerns no GPU.
fn any(answer: impl FnOnce(&mut State) -> CallResult) -> u32 {
    through(state::apart(|answer| state::begun(answer), answer))
}

/// Runs a call on the GPU whose context is current.
fn on_gpu(answer: impl FnOnce(&mut State) -> CallResult) -> u32 {
    through(state::apart(|answer| state::in_context(|state, _| answer(state)), answer))
}

/// Converts a driver code to the library's status.
fn through((driver, status): (u32, u32)) -> u32 {
    match driver {
        code::SUCCESS => status,
        code::NOT_INITIALIZED | code::INVALID_CONTEXT => NOT_INITIALIZED,
        _ => EXECUTION_FAILED,
    }
}

/// Reports an invalid call.
fn wrong(what: impl std::fmt::Display) -> u32 {
    complain(format_args!("cuBLASLt: {what}"));
    INVALID_VALUE
}

/// Returns the object of a handle.
fn of<T: Copy>(all: &BTreeMap<usize, T>, handle: Handle, what: &str) -> Result<T, u32> {
    all.get(&handle.addr()).copied().ok_or_else(|| wrong(format_args!("the {what} does not exist")))
}

/// Reads an attribute's value and checks its size.
///
/// # Safety
/// As for every symbol.
unsafe fn value<const N: usize>(from: *const c_void, bytes: usize) -> Result<[u8; N], u32> {
    if from.is_null() || bytes != N {
        return Err(wrong(format_args!("an attribute has {bytes} bytes instead of {N}")));
    }
    // SAFETY: the caller promises that many bytes.
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

fn describe(status: c_uint) -> (&'static CStr, &'static CStr) {
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
    describe(status).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(status: c_uint) -> *const c_char {
    describe(status).1.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(out: *mut Handle) -> c_uint {
    on_gpu(|state| {
        let answer = state.scenario()?.cublaslt.create;
        if answer != SUCCESS {
            return Err(answer);
        }
        let number = state.new_handle();
        objects().states.insert(number);
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(library: Handle) -> c_uint {
    on_gpu(|_| if objects().states.remove(&library.addr()) { Ok(()) } else { Err(NOT_INITIALIZED) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(out: *mut Handle, compute: c_uint, scale: c_uint) -> c_uint {
    any(|state| {
        if (compute, scale) != (68, 0) {
            return Err(wrong(format_args!("compute type {compute} and scale type {scale} are not emulated")));
        }
        let number = state.new_handle();
        objects().descs.insert(number, Desc::default());
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(desc: Handle) -> c_uint {
    any(|_| objects().descs.remove(&desc.addr()).map(|_| ()).ok_or_else(|| wrong("the description is destroyed twice")))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    desc: Handle,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> c_uint {
    any(|_| {
        let mut objects = objects();
        let desc = objects.descs.get_mut(&desc.addr()).ok_or_else(|| wrong("the description does not exist"))?;
        match attribute {
            3 | 4 => {
                let transpose = i32::from_ne_bytes(unsafe { value(from, bytes) }?);
                desc.transposed[attribute as usize - 3] = transpose == 1;
                if matches!(transpose, 0 | 1) { Ok(()) } else { Err(wrong("the transpose is not emulated")) }
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
            other => Err(wrong(format_args!("attribute {other} of a description is not emulated"))),
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
            leading.ok_or_else(|| wrong(format_args!("invalid leading dimension of a {rows} x {columns} matrix")))?;
        let is_wide = match kind {
            0 => true,
            14 => false,
            other => return Err(wrong(format_args!("element type {other} is not emulated"))),
        };
        let number = state.new_handle();
        objects().layouts.insert(number, Matrix { rows, columns, leading, is_wide });
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: Handle) -> c_uint {
    any(|_| objects().layouts.remove(&layout.addr()).map(|_| ()).ok_or_else(|| wrong("the layout is destroyed twice")))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut Handle) -> c_uint {
    any(|state| {
        let number = state.new_handle();
        objects().preferences.insert(number, Preference { workspace_bytes: 0, schemes: 7 });
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(preference: Handle) -> c_uint {
    any(|_| {
        let gone = objects().preferences.remove(&preference.addr());
        gone.map(|_| ()).ok_or_else(|| wrong("the preference is destroyed twice"))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: Handle,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> c_uint {
    any(|_| {
        let mut objects = objects();
        let preference = objects.preferences.get_mut(&preference.addr());
        let preference = preference.ok_or_else(|| wrong("the preference does not exist"))?;
        match attribute {
            1 => preference.workspace_bytes = u64::from_ne_bytes(unsafe { value(from, bytes) }?),
            3 => preference.schemes = u32::from_ne_bytes(unsafe { value(from, bytes) }?),
            other => return Err(wrong(format_args!("attribute {other} of a preference is not emulated"))),
        }
        Ok(())
    })
}

/// Builds a GEMM from its descriptor and layouts, and checks that they match.
fn operation(desc: Handle, [a, b, c, out]: [Handle; 4]) -> Result<(Operation, Desc), u32> {
    let desc = of(&objects().descs, desc, "description")?;
    let layout = |handle| of(&objects().layouts, handle, "layout");
    let (a, b, c, out) = (layout(a)?, layout(b)?, layout(c)?, layout(out)?);
    if c != out {
        return Err(wrong("the layouts of C and D differ"));
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
    on_gpu(|state| {
        if !objects().states.contains(&library.addr()) {
            return Err(NOT_INITIALIZED);
        }
        let (operation, desc) = operation(desc, [a, b, c, out])?;
        let preference = of(&objects().preferences, preference, "preference")?;
        if desc.has_bias && desc.bias == 0 {
            return Err(wrong("the heuristic for a product with a bias is called before the bias is set"));
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

/// Returns the algorithm in an opaque struct.
fn algorithm(state: &State, words: *const [u64; 8]) -> Result<(usize, Algorithm), u32> {
    if words.is_null() {
        return Err(wrong("no algorithm"));
    }
    // SAFETY: as for every symbol.
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
    on_gpu(|state| {
        if !objects().states.contains(&library.addr()) {
            return Err(NOT_INITIALIZED);
        }
        operation(desc, [a, b, c, out])?;
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
    on_gpu(|state| {
        if !objects().states.contains(&library.addr()) {
            return Err(NOT_INITIALIZED);
        }
        crate::calls::check_stream(state, stream).map_err(|_| wrong("the stream does not exist"))?;
        let (operation, desc) = operation(desc, [a_layout, b_layout, c_layout, out_layout])?;
        let (_, algorithm) = algorithm(state, words)?;
        objects().n += 1;
        let scenario = &state.scenario()?.cublaslt;
        if let Some(refused) = scenario.refused.filter(|refused| refused.launch == objects().n) {
            return Err(refused.code);
        }
        if alpha.is_null() || beta.is_null() {
            return Err(wrong("alpha or beta is missing"));
        }
        let [alpha, beta] = unsafe { [alpha.read(), beta.read()] };
        let workspace = workspace.addr() as u64;
        if !workspace_bytes.is_multiple_of(256) || !workspace.is_multiple_of(256) {
            return Err(wrong(format_args!("a workspace of {workspace_bytes} bytes at {workspace:#x}")));
        }
        if algorithm.workspace_bytes > workspace_bytes as u64 {
            return Err(wrong("the workspace is too small for the algorithm"));
        }
        // Overwrites the workspace, so that data of others in it is destroyed.
        state.emulator.fill(workspace, 0x7f, algorithm.workspace_bytes).map_err(wrong)?;
        let [a, b, c, out] = [a, b, c, out].map(|handle| handle.addr() as u64);
        let bias = desc.has_bias.then_some(desc.bias);
        // With the in-place scheme, partial sums are added in the order in which blocks end.
        let backwards = algorithm.scheme == 1 && objects().n.is_multiple_of(2);
        let addresses = Addresses { a, b, c, out, bias };
        product::compute(&mut state.emulator, operation, addresses, [alpha, beta], algorithm.parts, backwards)
            .map_err(wrong)?;
        state.ahead += Duration::from_millis(algorithm.millis);
        Ok(())
    })
}
