//! An open GPU: its context, its single stream, and the launches since the last synchronization.

use std::{
    env,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    calls::{self, Context, Event, Stream},
    driver::Driver,
    error::{CudaError, Culprit, SourceLocation},
    gpu::{self, Gpu},
    library::Library,
    requirements::SYNC_VARIABLE,
};

/// Memory of a GPU in bytes, over all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// An open GPU. Clones share the context and stream, so launches from all clones run in one order.
#[derive(Clone, Debug)]
pub struct Device(Arc<DeviceState>);

/// The state shared by a device's clones. Fields are dropped in order of declaration, the context last.
#[derive(Debug)]
pub(super) struct DeviceState {
    library: Mutex<Library>,
    launches: Mutex<Launches>,
    waits_for_each: bool,
    stream: Stream,
    gpu: Gpu,
    context: Context,
}

/// Launches since the last synchronization.
#[derive(Debug, Default)]
struct Launches {
    count: u64,
    last: Option<&'static str>,
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The fields dropped next belong to the context, and this thread may not be the one that opened it.
        let _: Result<(), CudaError> = self.bind();
    }
}

impl DeviceState {
    /// Makes this GPU's context current for the calling thread.
    #[track_caller]
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        self.context.bind()
    }
}

impl Device {
    /// Opens the GPU at an index of [`super::gpus`].
    ///
    /// # Errors
    /// The driver is missing or too old, the GPU does not exist or is too old, or the context cannot be created. Each
    /// has its own variant.
    pub fn open(index: u32) -> Result<Self, CudaError> {
        Driver::get()?;
        Self::of(index)
    }

    /// Opens a GPU with the driver at a path; for tests. If a driver is already open, it is used instead.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(library: &Path, index: u32) -> Result<Self, CudaError> {
        Driver::at(library)?;
        Self::of(index)
    }

    fn of(index: u32) -> Result<Self, CudaError> {
        let (gpu, handle) = gpu::gpu(index)?;
        gpu.check()?;
        let context = Context::retain(handle).map_err(|error| match error {
            error if error.is_out_of_memory() => {
                CudaError::NoRoomForContext { name: gpu.name.clone(), total_bytes: gpu.total_bytes }
            }
            other => other,
        })?;
        context.bind()?;
        let stream = Stream::create()?;
        let waits_for_each = env::var_os(SYNC_VARIABLE).is_some_and(|value| value == "1");
        let (library, launches) = Default::default();
        Ok(Self(Arc::new(DeviceState { library, launches, waits_for_each, stream, gpu, context })))
    }

    /// The GPU's properties.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// Free and total memory at the time of the call.
    ///
    /// # Errors
    /// A previously launched kernel faulted.
    #[track_caller]
    pub fn memory(&self) -> Result<Memory, CudaError> {
        self.0.bind()?;
        let (free_bytes, total_bytes) = self.record_fault(calls::memory_info())?;
        Ok(Memory { free_bytes, total_bytes })
    }

    /// Waits until all launched work has completed.
    ///
    /// # Errors
    /// [`CudaError::Fault`] if a kernel failed.
    #[track_caller]
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.record_fault(self.stream()?.synchronize())?;
        self.has_waited();
        Ok(())
    }

    /// Measures the GPU time in milliseconds of the work that `launch` submits, with CUDA events.
    ///
    /// # Errors
    /// An error of `launch`, or a kernel faulted.
    #[track_caller]
    pub fn millis(&self, launch: impl FnOnce() -> Result<(), CudaError>) -> Result<f32, CudaError> {
        let stream = self.stream()?;
        let (start, end) = (self.record_fault(Event::create())?, self.record_fault(Event::create())?);
        self.record_fault(start.record(stream))?;
        launch()?;
        self.record_fault(end.record(stream))?;
        self.record_fault(end.synchronize())?;
        self.has_waited();
        self.record_fault(end.millis_since(&start))
    }

    #[track_caller]
    pub(super) fn allocate_bytes(&self, bytes: usize) -> Result<u64, CudaError> {
        let free_bytes = self.memory()?.free_bytes;
        let too_little = CudaError::OutOfDeviceMemory { requested_bytes: bytes as u64, free_bytes };
        if bytes as u64 > free_bytes {
            return Err(too_little);
        }
        match self.record_fault(calls::allocate(bytes)) {
            // Another process allocated first, or the free memory is fragmented.
            Err(error) if error.is_out_of_memory() => Err(too_little),
            answer => answer,
        }
    }

    pub(super) fn opened(&self) -> Arc<DeviceState> {
        Arc::clone(&self.0)
    }

    /// The stream, after making this GPU's context current for the calling thread.
    #[track_caller]
    pub(super) fn stream(&self) -> Result<&Stream, CudaError> {
        self.0.bind()?;
        Ok(&self.0.stream)
    }

    /// Makes this GPU's context current for the calling thread.
    #[track_caller]
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        self.0.bind()
    }

    pub(super) fn library(&self) -> MutexGuard<'_, Library> {
        self.0.library.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waits_for_each(&self) -> bool {
        self.0.waits_for_each
    }

    fn launches(&self) -> MutexGuard<'_, Launches> {
        self.0.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_launched(&self, kernel: &'static str) {
        let mut launches = self.launches();
        launches.count += 1;
        launches.last = Some(kernel);
    }

    pub(super) fn has_waited(&self) {
        *self.launches() = Launches::default();
    }

    /// Converts a call's error to [`CudaError::Fault`] with the suspected kernels if a kernel caused it.
    #[track_caller]
    pub(super) fn record_fault<T>(&self, answer: Result<T, CudaError>) -> Result<T, CudaError> {
        // Taken outside of the closure, whose caller is in the standard library.
        let at = SourceLocation::caller();
        answer.map_err(|error| match error {
            CudaError::Call { code, .. } if code.is_fault() => CudaError::Fault { code, culprit: self.culprit(), at },
            other => other,
        })
    }

    fn culprit(&self) -> Culprit {
        let launches = self.launches();
        match launches.last {
            Some(last) if self.0.waits_for_each => Culprit::Kernel(last),
            Some(last) => Culprit::Among { launches: launches.count, last },
            None => Culprit::Nobody,
        }
    }
}
