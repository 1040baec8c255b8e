//! Safe wrappers of cuDNN's functions: results are checked, and objects are destroyed on drop.
//!
//! The declarations follow NVIDIA's documentation of the graph API. The constants are those of cudnn_graph.h, unchanged
//! in all of cuDNN 9.
//!
//! SAFETY, of every call here: the library is never unloaded, and its functions have the documented types. Handles and
//! descriptors come from the library and are not destroyed yet, as only the owners in this module create and destroy
//! them. Pointers refer to as many values of the type as are passed with them, which the library copies or writes
//! before it returns.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    ptr,
    sync::Arc,
};

use crate::cuda::{
    CudaError, Device,
    device::DeviceState,
    error::{Code, SourceLocation},
    libraries::loaded::{self, functions},
};

type Raw = *mut c_void;
type Status = c_int;

/// CUDNN_STATUS_SUCCESS.
const SUCCESS: Status = 0;
/// Maximum size of the library's error message in bytes; longer ones are truncated.
const MESSAGE_BYTES: usize = 512;
/// Maximum number of engines requested; later ones are not faster.
const ENGINES_MAX: usize = 8;

/// cudnnBackendDescriptorType_t, limited to the values in use.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Kind {
    Pointwise = 0,
    EngineConfig = 3,
    EngineHeuristics = 4,
    ExecutionPlan = 5,
    OperationPointwise = 13,
    OperationGraph = 15,
    VariantPack = 16,
    Tensor = 17,
    Matmul = 18,
    OperationMatmul = 19,
    Reduction = 21,
    OperationReduction = 22,
    OperationReshape = 31,
    DeviceProperties = 38,
}

/// cudnnBackendAttributeName_t, limited to the values in use.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Name {
    PointwiseMode = 0,
    PointwiseMathPrecision = 1,
    PointwiseAxis = 9,
    HeuristicsMode = 200,
    HeuristicsGraph = 201,
    HeuristicsResults = 202,
    HeuristicsDeviceProperties = 204,
    PlanHandle = 400,
    PlanEngineConfig = 401,
    PlanWorkspaceSize = 402,
    OperationPointwiseDescriptor = 750,
    OperationPointwiseX = 751,
    OperationPointwiseB = 752,
    OperationPointwiseY = 753,
    OperationPointwiseT = 758,
    GraphHandle = 800,
    GraphOperations = 801,
    TensorAlignment = 900,
    TensorDataType = 901,
    TensorDimensions = 902,
    TensorStrides = 903,
    TensorId = 906,
    TensorIsVirtual = 907,
    TensorIsByValue = 908,
    PackIds = 1000,
    PackPointers = 1001,
    PackWorkspace = 1003,
    MatmulComputeType = 1500,
    OperationMatmulA = 1520,
    OperationMatmulB = 1521,
    OperationMatmulC = 1522,
    OperationMatmulDescriptor = 1523,
    ReductionOperator = 1600,
    ReductionComputeType = 1601,
    OperationReductionX = 1610,
    OperationReductionY = 1611,
    OperationReductionDescriptor = 1612,
    OperationReshapeX = 2200,
    OperationReshapeY = 2201,
    DevicePropertiesJson = 2702,
}

/// cudnnBackendAttributeType_t: element type of an attribute's values.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
enum Type {
    Handle = 0,
    Data = 1,
    Boolean = 2,
    Int64 = 3,
    Pointer = 6,
    HeuristicsMode = 8,
    PointwiseMode = 14,
    Descriptor = 15,
    ReductionOperator = 18,
    Char = 24,
}

/// An attribute value of one of the library's enumerations.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// cudnnDataType_t.
    DataType(i32),
    /// cudnnPointwiseMode_t.
    PointwiseMode(i32),
    /// cudnnReduceTensorOp_t.
    ReductionOperator(i32),
    /// cudnnBackendHeurMode_t.
    HeuristicsMode(i32),
}

/// Location of a tensor or number that a plan is executed with.
#[derive(Clone, Copy, Debug)]
pub enum TensorLocation<'a> {
    /// Address in GPU memory.
    OnGpu(u64),
    /// A number in host memory, read when the plan is executed.
    Here(&'a f32),
}

functions! {
    version: "cudnnGetVersion", () -> usize;
    status_name: "cudnnGetErrorString", (Status) -> *const c_char;
    last_error: "cudnnGetLastErrorString", (*mut c_char, usize) -> ();
    create: "cudnnCreate", (*mut Raw) -> Status;
    destroy: "cudnnDestroy", (Raw) -> Status;
    set_stream: "cudnnSetStream", (Raw, Raw) -> Status;
    descriptor_create: "cudnnBackendCreateDescriptor", (c_int, *mut Raw) -> Status;
    descriptor_destroy: "cudnnBackendDestroyDescriptor", (Raw) -> Status;
    finalize: "cudnnBackendFinalize", (Raw) -> Status;
    set: "cudnnBackendSetAttribute", (Raw, c_int, c_int, i64, *const c_void) -> Status;
    get: "cudnnBackendGetAttribute", (Raw, c_int, c_int, i64, *mut i64, *mut c_void) -> Status;
    execute: "cudnnBackendExecute", (Raw, Raw, Raw) -> Status;
}

impl Functions {
    /// Converts the status of a library call to a result.
    #[track_caller]
    fn answer(&self, call: &'static str, status: Status) -> Result<(), CudaError> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(CudaError::Cudnn { call, code: self.code(status), at: SourceLocation::caller() })
    }

    fn code(&self, status: Status) -> Code {
        // SAFETY: as of every call; the text is static in the library.
        let name = unsafe { (self.status_name)(status) };
        // SAFETY: a null-terminated text of the library.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        let mut message = [0_u8; MESSAGE_BYTES];
        // SAFETY: as of every call; the buffer has that many bytes, and its last byte stays 0.
        unsafe { (self.last_error)(message.as_mut_ptr().cast(), MESSAGE_BYTES - 1) };
        let message = CStr::from_bytes_until_nul(&message).map(|text| text.to_string_lossy().trim().to_owned());
        let name = name.unwrap_or_else(|| "unknown".to_owned());
        let description = message.ok().filter(|message| !message.is_empty()).unwrap_or_else(|| "refused".to_owned());
        Code { number: status.unsigned_abs(), name, description }
    }
}

/// The loaded library, which is never unloaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadedCudnn(Functions);

impl LoadedCudnn {
    /// Loads the library and looks up its functions.
    ///
    /// # Errors
    /// The loader's message: the file does not exist, is not a library for this machine, or lacks a function.
    pub fn open(path: &OsStr) -> Result<Self, String> {
        // SAFETY: symbols of these names are cuDNN's.
        loaded::open(path, |library| unsafe { Functions::of(library) }).map(Self)
    }

    /// Version of the library: 91900 for 9.19.0.
    pub fn version(self) -> u64 {
        // SAFETY: as of every call.
        unsafe { (self.0.version)() as u64 }
    }

    /// Creates the library's handle on a GPU, which launches into the device's stream.
    #[track_caller]
    pub fn create(self, device: &Device) -> Result<Handle, CudaError> {
        let stream = device.stream()?.raw();
        let mut raw = ptr::null_mut();
        // SAFETY: as of every call.
        let status = unsafe { (self.0.create)(&raw mut raw) };
        device.record_fault(self.0.answer("cudnnCreate", status))?;
        let handle = Handle { functions: self.0, raw, device: device.opened() };
        // SAFETY: as of every call; the stream lives as long as the device is open.
        let status = unsafe { (self.0.set_stream)(raw, stream) };
        device.record_fault(self.0.answer("cudnnSetStream", status))?;
        Ok(handle)
    }

    /// Describes a GPU that is not present by its properties, in the library's format.
    #[track_caller]
    pub fn described(self, json: &str) -> Result<Descriptor, CudaError> {
        let mut properties = Descriptor::new(self.0, Kind::DeviceProperties)?;
        properties.set_values(Name::DevicePropertiesJson, Type::Char, json.as_bytes())?;
        properties.finalize()?;
        Ok(properties)
    }
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
    /// Executes a plan after all previously launched work. GPU addresses in the pack are accessed by the GPU only.
    #[track_caller]
    pub fn execute(&self, device: &Device, plan: &Descriptor, pack: &Descriptor) -> Result<(), CudaError> {
        // The library uses the current context of this thread.
        device.stream()?;
        device.has_launched("cudnnBackendExecute");
        // SAFETY: as of every call.
        let status = unsafe { (self.functions.execute)(self.raw, plan.raw, pack.raw) };
        device.record_fault(self.functions.answer("cudnnBackendExecute", status))?;
        if device.waits_for_each() { device.synchronize() } else { Ok(()) }
    }
}

/// The GPU that a descriptor is made for.
#[derive(Clone, Copy, Debug)]
pub enum DescriptorGpu<'a> {
    /// A present GPU.
    Here(&'a Handle),
    /// A described GPU.
    Elsewhere(&'a Descriptor),
}

impl DescriptorGpu<'_> {
    const fn functions(self) -> Functions {
        match self {
            Self::Here(handle) => handle.functions,
            Self::Elsewhere(properties) => properties.functions,
        }
    }
}

/// A backend descriptor of the library.
#[derive(Debug)]
pub struct Descriptor {
    functions: Functions,
    raw: Raw,
}

// SAFETY: descriptors are not tied to a thread, and only the owner uses them.
unsafe impl Send for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: as of every call. A failure cannot be reported from here.
        unsafe { (self.functions.descriptor_destroy)(self.raw) };
    }
}

impl Descriptor {
    #[track_caller]
    fn new(functions: Functions, kind: Kind) -> Result<Self, CudaError> {
        let mut raw = ptr::null_mut();
        // SAFETY: as of every call.
        let status = unsafe { (functions.descriptor_create)(kind as c_int, &raw mut raw) };
        functions.answer("cudnnBackendCreateDescriptor", status)?;
        Ok(Self { functions, raw })
    }

    /// Creates an empty descriptor.
    #[track_caller]
    pub fn of(whom: DescriptorGpu<'_>, kind: Kind) -> Result<Self, CudaError> {
        Self::new(whom.functions(), kind)
    }

    #[track_caller]
    fn set_values<T>(&mut self, name: Name, of: Type, values: &[T]) -> Result<(), CudaError> {
        let n = i64::try_from(values.len()).unwrap_or(i64::MAX);
        // SAFETY: as of every call; the functions below pass each `Type` with values of that type only.
        let status = unsafe { (self.functions.set)(self.raw, name as c_int, of as c_int, n, values.as_ptr().cast()) };
        self.functions.answer("cudnnBackendSetAttribute", status)
    }

    /// Sets integers.
    #[track_caller]
    pub fn set_i64s(&mut self, name: Name, values: &[i64]) -> Result<(), CudaError> {
        self.set_values(name, Type::Int64, values)
    }

    /// Sets a boolean, which is one byte.
    #[track_caller]
    pub fn set_bool(&mut self, name: Name, value: bool) -> Result<(), CudaError> {
        self.set_values(name, Type::Boolean, &[value])
    }

    /// Sets a value of an enumeration.
    #[track_caller]
    pub fn set_word(&mut self, name: Name, word: Word) -> Result<(), CudaError> {
        let (of, value) = match word {
            Word::DataType(value) => (Type::Data, value),
            Word::PointwiseMode(value) => (Type::PointwiseMode, value),
            Word::ReductionOperator(value) => (Type::ReductionOperator, value),
            Word::HeuristicsMode(value) => (Type::HeuristicsMode, value),
        };
        self.set_values(name, of, &[value])
    }

    /// Sets other descriptors, which must be finalized.
    #[track_caller]
    pub fn set_descriptors<'a>(
        &mut self,
        name: Name,
        values: impl IntoIterator<Item = &'a Self>,
    ) -> Result<(), CudaError> {
        let raw: Vec<Raw> = values.into_iter().map(|descriptor| descriptor.raw).collect();
        self.set_values(name, Type::Descriptor, &raw)
    }

    #[track_caller]
    pub fn set_places(&mut self, name: Name, values: &[TensorLocation<'_>]) -> Result<(), CudaError> {
        let pointer = |place: &TensorLocation<'_>| match place {
            TensorLocation::OnGpu(address) => ptr::without_provenance_mut(usize::try_from(*address).unwrap_or(0)),
            TensorLocation::Here(number) => ptr::from_ref::<f32>(number).cast_mut().cast(),
        };
        let raw: Vec<Raw> = values.iter().map(pointer).collect();
        self.set_values(name, Type::Pointer, &raw)
    }

    /// Sets the handle of the GPU, if it is present.
    #[track_caller]
    pub fn set_gpu(&mut self, name: Name, whom: DescriptorGpu<'_>) -> Result<(), CudaError> {
        match whom {
            DescriptorGpu::Here(handle) => self.set_values(name, Type::Handle, &[handle.raw]),
            DescriptorGpu::Elsewhere(_) => Ok(()),
        }
    }

    /// Finalizes the descriptor: it is read-only from then on and can be used.
    #[track_caller]
    pub fn finalize(&mut self) -> Result<(), CudaError> {
        // SAFETY: as of every call.
        let status = unsafe { (self.functions.finalize)(self.raw) };
        self.functions.answer("cudnnBackendFinalize", status)
    }

    /// Reads an integer.
    #[track_caller]
    pub fn i64(&self, name: Name) -> Result<i64, CudaError> {
        let (mut value, mut n) = (0_i64, 0_i64);
        let into = (&raw mut value).cast();
        // SAFETY: as of every call; the buffer holds one value.
        let status =
            unsafe { (self.functions.get)(self.raw, name as c_int, Type::Int64 as c_int, 1, &raw mut n, into) };
        self.functions.answer("cudnnBackendGetAttribute", status)?;
        Ok(value)
    }

    /// Reads the proposed engine configurations, in order of expected speed.
    #[track_caller]
    pub fn engines(&self) -> Result<Vec<Self>, CudaError> {
        let made = |_| Self::new(self.functions, Kind::EngineConfig);
        let mut engines = (0..ENGINES_MAX).map(made).collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Raw> = engines.iter().map(|engine| engine.raw).collect();
        let (name, of, mut n) = (Name::HeuristicsResults as c_int, Type::Descriptor as c_int, 0_i64);
        let asked = i64::try_from(ENGINES_MAX).unwrap_or(0);
        // SAFETY: as of every call; the library fills the descriptors in the array.
        let status = unsafe { (self.functions.get)(self.raw, name, of, asked, &raw mut n, raw.as_mut_ptr().cast()) };
        self.functions.answer("cudnnBackendGetAttribute", status)?;
        engines.truncate(usize::try_from(n).unwrap_or(0));
        Ok(engines)
    }
}
