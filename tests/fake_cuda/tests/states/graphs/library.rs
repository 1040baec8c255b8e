//! The emulated cuDNN through its C symbols, as another host would use it.
//!
//! SAFETY, for every call: the symbols belong to the tested library and have these signatures. The library accesses
//! only memory that lives in the calling function.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use headroom_fake_cuda::library;
use libloading::Library;

pub type RawHandle = *mut c_void;

/// cudnnDataType_t.
pub const FLOAT: i32 = 0;
pub const INT32: i32 = 4;
pub const BFLOAT16: i32 = 9;
pub const BOOLEAN: i32 = 11;

/// cudnnBackendAttributeType_t.
pub mod of {
    pub const HANDLE: u32 = 0;
    pub const DATA: u32 = 1;
    pub const BOOLEAN: u32 = 2;
    pub const INT64: u32 = 3;
    pub const POINTER: u32 = 6;
    pub const HEUR_MODE: u32 = 8;
    pub const NOTE: u32 = 11;
    pub const MODE: u32 = 14;
    pub const DESCRIPTOR: u32 = 15;
    pub const REDUCTION: u32 = 18;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorLocation {
    Memory,
    Nowhere,
    Host,
}

/// The driver and the library, with a context and a handle.
pub struct LoadedLibraries {
    library: Library,
    pub handle: RawHandle,
}

impl LoadedLibraries {
    /// Loads both and creates a handle, or returns the status of `cudnnCreate`.
    pub fn open() -> Result<Self, u32> {
        let library = unsafe { Library::new(library().expect("it was built")) }.expect("it loads");
        let mut loaded = Self { library, handle: ptr::null_mut() };
        let mut context: RawHandle = ptr::null_mut();
        assert_eq!(unsafe { loaded.symbol::<unsafe extern "C" fn(u32) -> u32>("cuInit")(0) }, 0);
        let retain: unsafe extern "C" fn(*mut RawHandle, i32) -> u32 = loaded.symbol("cuDevicePrimaryCtxRetain");
        assert_eq!(unsafe { retain(&raw mut context, 0) }, 0);
        assert_eq!(unsafe { loaded.symbol::<unsafe extern "C" fn(RawHandle) -> u32>("cuCtxSetCurrent")(context) }, 0);
        let create: unsafe extern "C" fn(*mut RawHandle) -> u32 = loaded.symbol("cudnnCreate");
        let mut handle: RawHandle = ptr::null_mut();
        match unsafe { create(&raw mut handle) } {
            0 => loaded.handle = handle,
            status => return Err(status),
        }
        Ok(loaded)
    }

    pub fn symbol<F: Copy>(&self, name: &str) -> F {
        *unsafe { self.library.get(name) }.expect(name)
    }

    /// Allocates GPU memory with these values.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let (mut address, bytes) = (0, size_of_val(values));
        let allocate: unsafe extern "C" fn(*mut u64, usize) -> u32 = self.symbol("cuMemAlloc_v2");
        assert_eq!(unsafe { allocate(&raw mut address, bytes) }, 0);
        let copy: unsafe extern "C" fn(u64, *const c_void, usize, RawHandle) -> u32 =
            self.symbol("cuMemcpyHtoDAsync_v2");
        assert_eq!(unsafe { copy(address, values.as_ptr().cast(), bytes, ptr::null_mut()) }, 0);
        self.wait();
        address
    }

    pub fn download<T: Copy + Default>(&self, address: u64, n: usize) -> Vec<T> {
        let mut values = vec![T::default(); n];
        let copy: unsafe extern "C" fn(*mut c_void, u64, usize, RawHandle) -> u32 = self.symbol("cuMemcpyDtoHAsync_v2");
        assert_eq!(unsafe { copy(values.as_mut_ptr().cast(), address, n * size_of::<T>(), ptr::null_mut()) }, 0);
        self.wait();
        values
    }

    fn wait(&self) {
        let wait: unsafe extern "C" fn(RawHandle) -> u32 = self.symbol("cuStreamSynchronize");
        assert_eq!(unsafe { wait(ptr::null_mut()) }, 0);
    }

    pub fn create(&self, kind: u32) -> RawHandle {
        let mut out = ptr::null_mut();
        let create: unsafe extern "C" fn(u32, *mut RawHandle) -> u32 = self.symbol("cudnnBackendCreateDescriptor");
        assert_eq!(unsafe { create(kind, &raw mut out) }, 0);
        out
    }

    pub fn destroy(&self, descriptor: RawHandle) -> u32 {
        unsafe { self.symbol::<unsafe extern "C" fn(RawHandle) -> u32>("cudnnBackendDestroyDescriptor")(descriptor) }
    }

    pub fn set<T>(&self, descriptor: RawHandle, attribute: u32, of: u32, values: &[T]) -> u32 {
        type Set = unsafe extern "C" fn(RawHandle, u32, u32, i64, *const c_void) -> u32;
        let set: Set = self.symbol("cudnnBackendSetAttribute");
        unsafe { set(descriptor, attribute, of, values.len() as i64, values.as_ptr().cast()) }
    }

    /// Reads an attribute into `values`, and returns its count.
    pub fn get<T>(&self, descriptor: RawHandle, attribute: u32, of: u32, values: &mut [T]) -> Result<usize, u32> {
        type GetAttributeFn = unsafe extern "C" fn(RawHandle, u32, u32, i64, *mut i64, *mut c_void) -> u32;
        let get: GetAttributeFn = self.symbol("cudnnBackendGetAttribute");
        let mut n = -1;
        let out = if values.is_empty() { ptr::null_mut() } else { values.as_mut_ptr().cast() };
        match unsafe { get(descriptor, attribute, of, values.len() as i64, &raw mut n, out) } {
            0 => Ok(usize::try_from(n).expect("a count")),
            status => Err(status),
        }
    }

    pub fn finalize(&self, descriptor: RawHandle) -> u32 {
        unsafe { self.symbol::<unsafe extern "C" fn(RawHandle) -> u32>("cudnnBackendFinalize")(descriptor) }
    }

    pub fn execute(&self, plan: RawHandle, pack: RawHandle) -> u32 {
        let execute: unsafe extern "C" fn(RawHandle, RawHandle, RawHandle) -> u32 = self.symbol("cudnnBackendExecute");
        unsafe { execute(self.handle, plan, pack) }
    }

    /// Returns the last error message.
    pub fn refused(&self) -> String {
        let mut text = [0_u8; 200];
        type LastErrorFn = unsafe extern "C" fn(*mut c_char, usize);
        unsafe { self.symbol::<LastErrorFn>("cudnnGetLastErrorString")(text.as_mut_ptr().cast(), text.len()) };
        CStr::from_bytes_until_nul(&text).expect("its end").to_string_lossy().into_owned()
    }

    pub fn name(&self, status: u32) -> String {
        let name = unsafe { self.symbol::<unsafe extern "C" fn(u32) -> *const c_char>("cudnnGetErrorString")(status) };
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Creates a descriptor from other descriptors.
    pub fn of_parts(&self, kind: u32, parts: &[(u32, RawHandle)]) -> RawHandle {
        let descriptor = self.create(kind);
        for &(attribute, part) in parts {
            assert_eq!(self.set(descriptor, attribute, of::DESCRIPTOR, &[part]), 0, "{attribute}");
        }
        assert_eq!(self.finalize(descriptor), 0, "{kind}");
        descriptor
    }

    pub fn tensor(
        &self,
        uid: i64,
        dims: [i64; 4],
        strides: [i64; 4],
        elements: i32,
        place: TensorLocation,
    ) -> RawHandle {
        let tensor = self.create(17);
        let answers = [
            self.set(tensor, 901, of::DATA, &[elements]),
            self.set(tensor, 902, of::INT64, &dims),
            self.set(tensor, 903, of::INT64, &strides),
            self.set(tensor, 906, of::INT64, &[uid]),
            self.set(tensor, 900, of::INT64, &[16_i64]),
            self.set(tensor, 907, of::BOOLEAN, &[place == TensorLocation::Nowhere]),
            self.set(tensor, 908, of::BOOLEAN, &[place == TensorLocation::Host]),
            self.finalize(tensor),
        ];
        assert_eq!(answers, [0; 8], "tensor {uid}");
        tensor
    }

    /// Creates a pointwise operation; the inputs are X, then B, then T.
    pub fn pointwise(&self, mode: i32, axis: Option<i64>, inputs: &[RawHandle], output: RawHandle) -> RawHandle {
        let what = self.create(0);
        assert_eq!([self.set(what, 0, of::MODE, &[mode]), self.set(what, 1, of::DATA, &[FLOAT])], [0; 2]);
        if let Some(axis) = axis {
            assert_eq!(self.set(what, 9, of::INT64, &[axis]), 0);
        }
        assert_eq!(self.finalize(what), 0, "mode {mode}");
        let parts: Vec<_> = [751, 752, 758].into_iter().zip(inputs.iter().copied()).collect();
        self.of_parts(13, &[&[(750, what), (753, output)], &parts[..]].concat())
    }

    pub fn matmul(&self, a: RawHandle, b: RawHandle, c: RawHandle) -> RawHandle {
        let what = self.create(18);
        assert_eq!([self.set(what, 1500, of::DATA, &[FLOAT]), self.finalize(what)], [0; 2]);
        self.of_parts(19, &[(1520, a), (1521, b), (1522, c), (1523, what)])
    }

    pub fn reduce(&self, operator: i32, x: RawHandle, y: RawHandle) -> RawHandle {
        let what = self.create(21);
        let set = [self.set(what, 1600, of::REDUCTION, &[operator]), self.set(what, 1601, of::DATA, &[FLOAT])];
        assert_eq!((set, self.finalize(what)), ([0; 2], 0));
        self.of_parts(22, &[(1610, x), (1611, y), (1612, what)])
    }

    pub fn reshape(&self, x: RawHandle, y: RawHandle) -> RawHandle {
        self.of_parts(31, &[(2200, x), (2201, y)])
    }

    pub fn graph(&self, operations: &[RawHandle]) -> RawHandle {
        let graph = self.create(15);
        let set = [
            self.set(graph, 800, of::HANDLE, &[self.handle]),
            self.set(graph, 801, of::DESCRIPTOR, operations),
            self.finalize(graph),
        ];
        assert_eq!(set, [0; 3], "{}", self.refused());
        graph
    }

    /// Creates heuristics for a graph, or returns their status.
    pub fn heuristics(&self, graph: RawHandle) -> Result<RawHandle, u32> {
        let heuristics = self.create(4);
        let set =
            [self.set(heuristics, 201, of::DESCRIPTOR, &[graph]), self.set(heuristics, 200, of::HEUR_MODE, &[3_i32])];
        assert_eq!(set, [0; 2]);
        match self.finalize(heuristics) {
            0 => Ok(heuristics),
            status => Err(status),
        }
    }

    /// Returns the engine configurations that heuristics propose.
    pub fn proposals(&self, graph: RawHandle) -> Result<Vec<RawHandle>, u32> {
        let heuristics = self.heuristics(graph)?;
        let most = self.get::<RawHandle>(heuristics, 202, of::DESCRIPTOR, &mut [])?;
        let mut configs: Vec<RawHandle> = (0..most).map(|_| self.create(3)).collect();
        let n = self.get(heuristics, 202, of::DESCRIPTOR, &mut configs)?;
        configs.truncate(n);
        Ok(configs)
    }

    /// Creates a plan and returns it with its workspace in bytes, or returns the status of finalizing.
    pub fn plan(&self, config: RawHandle) -> Result<(RawHandle, usize), u32> {
        let plan = self.create(5);
        let set = [self.set(plan, 400, of::HANDLE, &[self.handle]), self.set(plan, 401, of::DESCRIPTOR, &[config])];
        assert_eq!(set, [0; 2]);
        match self.finalize(plan) {
            0 => {}
            status => return Err(status),
        }
        let mut bytes = [0_i64];
        self.get(plan, 402, of::INT64, &mut bytes)?;
        Ok((plan, usize::try_from(bytes[0]).expect("a size")))
    }

    pub fn pack(&self, tensors: &[(i64, u64)], workspace: u64) -> RawHandle {
        let pack = self.create(16);
        let (uids, pointers): (Vec<i64>, Vec<u64>) = tensors.iter().copied().unzip();
        let set = [
            self.set(pack, 1000, of::INT64, &uids),
            self.set(pack, 1001, of::POINTER, &pointers),
            self.set(pack, 1003, of::POINTER, &[workspace]),
            self.finalize(pack),
        ];
        assert_eq!(set, [0; 4]);
        pack
    }
}
