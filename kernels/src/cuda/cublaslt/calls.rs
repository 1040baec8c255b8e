//! Safe wrappers of cuBLASLt's functions: results are checked, and objects are destroyed on drop.
//!
//! The declarations follow NVIDIA's documentation of the cuBLASLt API. The constants are those of cublasLt.h,
//! cublas_api.h and library_types.h, unchanged from CUDA 12.0 to 13. A status is a plain number, because a newer
//! library may return one that is not listed here.
//!
//! SAFETY, of every call here: the library is never unloaded, and its functions have the documented types. Handles come
//! from the library and are not destroyed yet, as only the owners in this module create and destroy them. Pointers
//! refer to local variables of the calling function, which the library reads or writes before it returns.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    mem::size_of,
    ptr,
    sync::Arc,
};

use super::shape::{Product, Slices};
use crate::cuda::{
    CudaError, Device, Slice,
    device::DeviceState,
    error::{Code, SourceLocation},
    libraries::loaded::{self, functions},
};

type Raw = *mut c_void;
type Status = u32;

/// CUBLAS_STATUS_SUCCESS.
const SUCCESS: Status = 0;
/// CUBLAS_COMPUTE_32F: sums in float32.
const COMPUTE_32F: u32 = 68;
/// CUDA_R_32F.
const R_32F: u32 = 0;
/// CUDA_R_16BF.
const R_16BF: u32 = 14;
/// CUBLAS_OP_T; the default of a new description is CUBLAS_OP_N.
const OP_T: i32 = 1;
/// CUBLASLT_MATMUL_DESC_TRANSA.
const DESC_TRANSA: u32 = 3;
/// CUBLASLT_MATMUL_DESC_TRANSB.
const DESC_TRANSB: u32 = 4;
/// CUBLASLT_MATMUL_DESC_EPILOGUE.
const DESC_EPILOGUE: u32 = 7;
/// CUBLASLT_MATMUL_DESC_BIAS_POINTER.
const DESC_BIAS_POINTER: u32 = 8;
/// CUBLASLT_EPILOGUE_BIAS: adds a vector of the result's type to each column.
const EPILOGUE_BIAS: u32 = 4;
/// CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES.
const PREF_MAX_WORKSPACE_BYTES: u32 = 1;
/// CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK.
const PREF_REDUCTION_SCHEME_MASK: u32 = 3;
/// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; sums that are not split (0) are always allowed. Partial sums are float32 in
/// the workspace, and a separate step adds them up. Other schemes add partial sums in the result itself, in an order
/// set by counters, or round them to its type before. Neither the order nor the roundings are guaranteed.
const REDUCTION_COMPUTE_TYPE: u32 = 2;

/// Maximum number of proposals requested from the library; later proposals are not faster.
pub const ALGORITHMS_MAX: usize = 8;
/// [`ALGORITHMS_MAX`] in the library's type.
const ASKED: c_int = 8;

/// cublasLtMatmulAlgo_t: opaque data, valid for the same version of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct RawAlgorithm([u64; 8]);

/// cublasLtMatmulHeuristicResult_t.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawProposal {
    algorithm: RawAlgorithm,
    workspace_bytes: usize,
    status: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const NO_PROPOSAL: RawProposal =
    RawProposal { algorithm: RawAlgorithm([0; 8]), workspace_bytes: 0, status: 0, waves: 0.0, reserved: [0; 4] };

functions! {
    version: "cublasLtGetVersion", () -> usize;
    status_name: "cublasLtGetStatusName", (Status) -> *const c_char;
    status_text: "cublasLtGetStatusString", (Status) -> *const c_char;
    create: "cublasLtCreate", (*mut Raw) -> Status;
    destroy: "cublasLtDestroy", (Raw) -> Status;
    desc_create: "cublasLtMatmulDescCreate", (*mut Raw, u32, u32) -> Status;
    desc_destroy: "cublasLtMatmulDescDestroy", (Raw) -> Status;
    desc_set: "cublasLtMatmulDescSetAttribute", (Raw, u32, *const c_void, usize) -> Status;
    layout_create: "cublasLtMatrixLayoutCreate", (*mut Raw, u32, u64, u64, i64) -> Status;
    layout_destroy: "cublasLtMatrixLayoutDestroy", (Raw) -> Status;
    preference_create: "cublasLtMatmulPreferenceCreate", (*mut Raw) -> Status;
    preference_destroy: "cublasLtMatmulPreferenceDestroy", (Raw) -> Status;
    preference_set: "cublasLtMatmulPreferenceSetAttribute", (Raw, u32, *const c_void, usize) -> Status;
    heuristic: "cublasLtMatmulAlgoGetHeuristic",
        (Raw, Raw, Raw, Raw, Raw, Raw, Raw, c_int, *mut RawProposal, *mut c_int) -> Status;
    check: "cublasLtMatmulAlgoCheck",
        (Raw, Raw, Raw, Raw, Raw, Raw, *const RawAlgorithm, *mut RawProposal) -> Status;
    matmul: "cublasLtMatmul",
        (Raw, Raw, *const c_void, *const c_void, Raw, *const c_void, Raw, *const c_void, *const c_void, Raw, Raw, Raw,
         *const RawAlgorithm, Raw, usize, Raw) -> Status;
}

impl Functions {
    /// Converts the status of a library call to a result.
    #[track_caller]
    fn answer(&self, call: &'static str, status: Status) -> Result<(), CudaError> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(CudaError::CublasLt { call, code: self.code(status), at: SourceLocation::caller() })
    }

    fn code(&self, status: Status) -> Code {
        let text = |get: unsafe extern "C" fn(Status) -> *const c_char| {
            // SAFETY: as of every call; the text is static in the library.
            let text = unsafe { get(status) };
            // SAFETY: a null-terminated text of the library.
            let known = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
            known.unwrap_or_else(|| "unknown".to_owned())
        };
        Code { number: status, name: text(self.status_name), description: text(self.status_text) }
    }
}

/// The loaded library, which is never unloaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadedCublasLt(Functions);

impl LoadedCublasLt {
    /// Loads the library and looks up its functions.
    ///
    /// # Errors
    /// The loader's message: the file does not exist, is not a library for this machine, or lacks a function.
    pub fn open(path: &OsStr) -> Result<Self, String> {
        // SAFETY: symbols of these names are cuBLASLt's.
        loaded::open(path, |library| unsafe { Functions::of(library) }).map(Self)
    }

    /// Version of the library: 120803 for 12.8.3.
    pub fn version(self) -> u64 {
        // SAFETY: as of every call.
        unsafe { (self.0.version)() as u64 }
    }

    /// Creates the library's handle on a GPU.
    #[track_caller]
    pub fn create(self, device: &Device) -> Result<Handle, CudaError> {
        device.stream()?;
        let mut raw = ptr::null_mut();
        // SAFETY: as of every call.
        let status = unsafe { (self.0.create)(&raw mut raw) };
        device.record_fault(self.0.answer("cublasLtCreate", status))?;
        Ok(Handle { functions: self.0, raw, device: device.opened() })
    }
}

/// An object of the library, with the function that destroys it.
#[derive(Debug)]
struct LibraryObject {
    raw: Raw,
    destroy: unsafe extern "C" fn(Raw) -> Status,
}

// SAFETY: objects are not tied to a thread, and only the owner uses them.
unsafe impl Send for LibraryObject {}

impl Drop for LibraryObject {
    fn drop(&mut self) {
        // SAFETY: as of every call. A failure cannot be reported from here.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// An algorithm for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    raw: RawAlgorithm,
    /// Required workspace in bytes.
    pub workspace_bytes: u64,
}

impl Algorithm {
    /// Identifier of the algorithm, valid for the same version of the library.
    pub const fn words(&self) -> [u64; 8] {
        self.raw.0
    }
}

/// A product described to the library.
#[derive(Debug)]
pub struct Operation {
    desc: LibraryObject,
    a: LibraryObject,
    b: LibraryObject,
    out: LibraryObject,
    product: Product,
}

/// The library's handle on a GPU.
#[derive(Debug)]
pub struct Handle {
    functions: Functions,
    raw: Raw,
    device: Arc<DeviceState>,
}

// SAFETY: the library may be called from any thread whose current context is the GPU's; the owner of the handle binds
// it.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // This thread may not be the one that created the handle.
        if self.device.bind().is_ok() {
            // SAFETY: as of every call. After a fault the call fails, which cannot be reported from here.
            unsafe { (self.functions.destroy)(self.raw) };
        }
    }
}

impl Handle {
    #[track_caller]
    fn made(
        &self,
        call: &'static str,
        destroy: unsafe extern "C" fn(Raw) -> Status,
        create: impl FnOnce(*mut Raw) -> Status,
    ) -> Result<LibraryObject, CudaError> {
        let mut raw = ptr::null_mut();
        let status = create(&raw mut raw);
        self.functions.answer(call, status)?;
        Ok(LibraryObject { raw, destroy })
    }

    #[track_caller]
    fn set<T>(
        &self,
        call: &'static str,
        set: unsafe extern "C" fn(Raw, u32, *const c_void, usize) -> Status,
        of: &LibraryObject,
        attribute: u32,
        value: &T,
    ) -> Result<(), CudaError> {
        // SAFETY: as of every call; the value is copied.
        let status = unsafe { set(of.raw, attribute, (&raw const *value).cast(), size_of::<T>()) };
        self.functions.answer(call, status)
    }

    #[track_caller]
    fn set_desc<T>(&self, desc: &LibraryObject, attribute: u32, value: &T) -> Result<(), CudaError> {
        self.set("cublasLtMatmulDescSetAttribute", self.functions.desc_set, desc, attribute, value)
    }

    #[track_caller]
    fn layout(&self, of: u32, [rows, columns]: [u64; 2]) -> Result<LibraryObject, CudaError> {
        let functions = self.functions;
        // Columns are contiguous.
        let leading = i64::try_from(rows).unwrap_or(i64::MAX);
        // SAFETY: as of every call.
        let create = |out| unsafe { (functions.layout_create)(out, of, rows, columns, leading) };
        self.made("cublasLtMatrixLayoutCreate", functions.layout_destroy, create)
    }

    /// Describes a product to the library. `bias` represents the bias vectors of all later calls: the library may
    /// inspect it when it proposes algorithms.
    #[track_caller]
    pub fn operation(&self, product: Product, bias: Option<u64>) -> Result<Operation, CudaError> {
        let functions = self.functions;
        // SAFETY: as of every call.
        let create = |out| unsafe { (functions.desc_create)(out, COMPUTE_32F, R_32F) };
        let desc = self.made("cublasLtMatmulDescCreate", functions.desc_destroy, create)?;
        for (attribute, is_transposed) in
            [(DESC_TRANSA, product.a_is_transposed), (DESC_TRANSB, product.b_is_transposed)]
        {
            if is_transposed {
                self.set_desc(&desc, attribute, &OP_T)?;
            }
        }
        if let Some(bias) = bias {
            self.set_desc(&desc, DESC_EPILOGUE, &EPILOGUE_BIAS)?;
            self.set_desc(&desc, DESC_BIAS_POINTER, &bias)?;
        }
        let [rows, columns, depth] = [product.rows, product.columns, product.depth];
        let a = self.layout(R_16BF, if product.a_is_transposed { [depth, rows] } else { [rows, depth] })?;
        let b = self.layout(R_16BF, if product.b_is_transposed { [columns, depth] } else { [depth, columns] })?;
        let out = self.layout(if product.is_wide { R_32F } else { R_16BF }, [rows, columns])?;
        Ok(Operation { desc, a, b, out, product })
    }

    /// Proposes algorithms for a product, in order of expected speed. Only algorithms with a fixed order of summation
    /// that fit into the workspace are returned.
    #[track_caller]
    pub fn proposals(&self, of: &Operation, workspace_bytes: u64) -> Result<Vec<Algorithm>, CudaError> {
        let functions = self.functions;
        // SAFETY: as of every call.
        let create = |out| unsafe { (functions.preference_create)(out) };
        let preference = self.made("cublasLtMatmulPreferenceCreate", functions.preference_destroy, create)?;
        let set = functions.preference_set;
        let call = "cublasLtMatmulPreferenceSetAttribute";
        self.set(call, set, &preference, PREF_MAX_WORKSPACE_BYTES, &workspace_bytes)?;
        self.set(call, set, &preference, PREF_REDUCTION_SCHEME_MASK, &REDUCTION_COMPUTE_TYPE)?;
        let mut proposals = [NO_PROPOSAL; ALGORITHMS_MAX];
        let mut n = 0;
        let (a, b, out) = (of.a.raw, of.b.raw, of.out.raw);
        let into = proposals.as_mut_ptr();
        // SAFETY: as of every call; the array has as many elements as are requested.
        let status = unsafe {
            (functions.heuristic)(self.raw, of.desc.raw, a, b, out, out, preference.raw, ASKED, into, &raw mut n)
        };
        functions.answer("cublasLtMatmulAlgoGetHeuristic", status)?;
        let proposals = proposals.into_iter().take(usize::try_from(n).unwrap_or(0));
        let proposals = proposals.filter(|proposal| proposal.status == SUCCESS).map(algorithm);
        Ok(proposals.filter(|algorithm| algorithm.workspace_bytes <= workspace_bytes).collect())
    }

    /// Restores a stored algorithm, if the library still accepts it for this product.
    #[track_caller]
    pub fn kept(&self, of: &Operation, words: [u64; 8]) -> Result<Algorithm, CudaError> {
        let (mut proposal, raw) = (NO_PROPOSAL, RawAlgorithm(words));
        let (a, b, out) = (of.a.raw, of.b.raw, of.out.raw);
        // SAFETY: as of every call. The check exists to reject invalid algorithms.
        let status =
            unsafe { (self.functions.check)(self.raw, of.desc.raw, a, b, out, out, &raw const raw, &raw mut proposal) };
        self.functions.answer("cublasLtMatmulAlgoCheck", status)?;
        self.functions.answer("cublasLtMatmulAlgoCheck", proposal.status)?;
        Ok(Algorithm { raw, workspace_bytes: proposal.workspace_bytes as u64 })
    }

    /// Computes a product after all previously launched work.
    ///
    /// The caller has compared the lengths of the slices with the product's sizes.
    #[track_caller]
    pub fn multiply(
        &self,
        device: &Device,
        of: &Operation,
        algorithm: &Algorithm,
        slices: Slices,
        workspace: Slice<u8>,
    ) -> Result<(), CudaError> {
        let stream = device.stream()?;
        if let Some(bias) = slices.bias {
            self.set_desc(&of.desc, DESC_BIAS_POINTER, &bias)?;
        }
        let (alpha, beta) = (1.0_f32, if of.product.adds { 1.0_f32 } else { 0.0 });
        let [a, b, c, out, workspace_address] =
            [slices.a, slices.b, slices.c, slices.out, workspace.address()].map(on_gpu);
        let workspace_bytes = usize::try_from(workspace.bytes()).unwrap_or(usize::MAX);
        device.has_launched("cublasLtMatmul");
        // SAFETY: as of every call; the GPU accesses only memory within the slices.
        let status = unsafe {
            (self.functions.matmul)(
                self.raw,
                of.desc.raw,
                (&raw const alpha).cast(),
                a,
                of.a.raw,
                b,
                of.b.raw,
                (&raw const beta).cast(),
                c,
                of.out.raw,
                out,
                of.out.raw,
                &raw const algorithm.raw,
                workspace_address,
                workspace_bytes,
                stream.raw(),
            )
        };
        device.record_fault(self.functions.answer("cublasLtMatmul", status))?;
        if device.waits_for_each() { device.synchronize() } else { Ok(()) }
    }
}

fn algorithm(proposal: RawProposal) -> Algorithm {
    Algorithm { raw: proposal.algorithm, workspace_bytes: proposal.workspace_bytes as u64 }
}

/// A GPU address in the library's type.
fn on_gpu(address: u64) -> Raw {
    ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}
