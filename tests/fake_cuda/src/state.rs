//! The state of the loaded library: the scenario, the GPU's memory, and the objects behind its handles.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::c_void,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use headroom_emulator::{Emulator, Kernel};
use headroom_ptx::Module;

use crate::{FakeGpu, Scenario, VARIABLE, code, launch_settings};

/// Identifies a version of a file: its modification time, its size, and its inode number.
type Identity = (SystemTime, u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some((metadata.modified().ok()?, metadata.len(), number))
}

/// The result of a call: success, or an error code.
pub type CallResult = Result<(), u32>;
/// An opaque handle.
pub type Handle = *mut c_void;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The GPU whose context is current in this thread.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The library's state.
#[derive(Debug)]
pub struct State {
    /// The memory, and the emulator that runs kernels.
    pub emulator: Emulator,
    /// The state of the memory for the compiled kernels.
    pub compiled_memory: headroom_ptx::Memory,
    /// Allocations by address.
    pub allocations: BTreeMap<u64, Allocation>,
    /// Modules by handle.
    pub modules: BTreeMap<usize, Vec<Entry>>,
    /// Functions by handle: the module's handle, and the index in it.
    pub functions: BTreeMap<usize, (usize, usize)>,
    /// Streams by handle.
    pub streams: BTreeSet<usize>,
    /// Streams, including the default one, with a host-memory copy that was not synchronised.
    pub unawaited: BTreeSet<usize>,
    /// Events by handle, with the time at which they were reached.
    pub events: BTreeMap<usize, Option<Instant>>,
    /// The reference count of each GPU's primary context.
    pub retained: Vec<u64>,
    pub n_launches: u64,
    pub n_allocations: u64,
    /// The simulated time by which the GPU's clock is ahead.
    pub ahead: Duration,
    /// The code that every call fails with since a kernel failed.
    fault: Option<u32>,
    begun: bool,
    scenario: Option<Scenario>,
    identity: Option<Identity>,
    n_handles: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// The GPU's index.
    pub gpu: usize,
    /// Its size.
    pub bytes: u64,
}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// The emulator's kernel.
    pub kernel: &'static Kernel,
    /// The PTX module, if the compiled kernels run.
    pub compiled: Option<Arc<Module>>,
    /// Largest number of threads per block.
    pub threads_max: u32,
    /// Largest shared memory of a launch, in bytes.
    pub shared_bytes_max: u32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            emulator: Emulator::new(0),
            compiled_memory: headroom_ptx::Memory::default(),
            allocations: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            streams: BTreeSet::new(),
            unawaited: BTreeSet::new(),
            events: BTreeMap::new(),
            retained: vec![],
            n_launches: 0,
            n_allocations: 0,
            ahead: Duration::ZERO,
            fault: None,
            begun: false,
            scenario: None,
            identity: None,
            n_handles: 0,
        }
    }
}

/// Runs a call that is valid before `cuInit`.
pub fn any(answer: impl FnOnce(&mut State) -> CallResult) -> u32 {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.read();
    answer(&mut state).err().unwrap_or(code::SUCCESS)
}

/// Runs a call that is valid only after `cuInit`.
pub fn begun(answer: impl FnOnce(&mut State) -> CallResult) -> u32 {
    any(|state| if state.begun { answer(state) } else { Err(code::NOT_INITIALIZED) })
}

/// Runs a call on this thread's context. All of them fail after a fault.
pub fn in_context(answer: impl FnOnce(&mut State, usize) -> CallResult) -> u32 {
    begun(|state| {
        let gpu = CURRENT.get().filter(|&gpu| state.retained.get(gpu).is_some_and(|&n| n > 0));
        let gpu = gpu.ok_or(code::INVALID_CONTEXT)?;
        launch_settings::fault_code().or(state.fault).map_or(Ok(()), Err)?;
        answer(state, gpu)
    })
}

/// Runs a call of another library through the driver's checks. Returns the driver's code and the library's own status.
pub fn apart(
    call: impl FnOnce(&mut dyn FnMut(&mut State) -> CallResult) -> u32,
    answer: impl FnOnce(&mut State) -> CallResult,
) -> (u32, u32) {
    let (mut status, mut answer) = (code::SUCCESS, Some(answer));
    let driver = call(&mut |state: &mut State| {
        status = answer.take().map_or(Ok(()), |answer| answer(state)).err().unwrap_or(code::SUCCESS);
        Ok(())
    });
    (driver, status)
}

/// Sets this thread's current context.
pub fn set_current(gpu: Option<usize>) {
    CURRENT.set(gpu);
}

/// Prints a message for the author of a test.
#[expect(clippy::print_stderr, reason = "only tests load it, and an error code alone does not identify the cause")]
pub fn complain(what: impl std::fmt::Display) {
    eprintln!("fake libcuda: {what}");
}

impl State {
    /// Performs `cuInit`.
    pub fn begin(&mut self) -> CallResult {
        let scenario = self.scenario()?;
        if scenario.init != code::SUCCESS {
            return Err(scenario.init);
        }
        if scenario.gpus.is_empty() {
            return Err(code::NO_DEVICE);
        }
        self.begun = true;
        Ok(())
    }

    pub fn scenario(&self) -> Result<&Scenario, u32> {
        self.scenario.as_ref().ok_or(code::UNKNOWN)
    }

    /// Returns a GPU by its index.
    pub fn gpu(&self, number: i32) -> Result<(usize, &FakeGpu), u32> {
        let number = usize::try_from(number).map_err(|_| code::INVALID_DEVICE)?;
        Ok((number, self.scenario()?.gpus.get(number).ok_or(code::INVALID_DEVICE)?))
    }

    /// Returns the free memory of a GPU, in bytes.
    pub fn free_bytes(&self, gpu: usize) -> Result<u64, u32> {
        let of = self.scenario()?.gpus.get(gpu).ok_or(code::INVALID_CONTEXT)?;
        let ours: u64 = self.allocations.values().filter(|taken| taken.gpu == gpu).map(|taken| taken.bytes).sum();
        Ok(of.total_bytes.saturating_sub(of.context_bytes).saturating_sub(of.others_bytes).saturating_sub(ours))
    }

    /// Records a kernel's failure: every later call fails with this code. If the thread has settings of its own, only
    /// its calls fail.
    pub fn fail(&mut self, code: u32, what: String) {
        if let Some(what) = launch_settings::fail(code, what) {
            complain(what);
            self.fault.get_or_insert(code);
        }
    }

    /// Returns an unused handle.
    pub fn new_handle(&mut self) -> usize {
        // Far from 0 and from the numbers of GPUs and attributes.
        self.n_handles += 1;
        0x1000 + 16 * self.n_handles
    }

    /// Reads the scenario again if its file has changed. An unreadable file makes the library unusable.
    fn read(&mut self) {
        let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) else {
            self.scenario.get_or_insert_default();
            return;
        };
        let identity = identity(&path);
        if self.scenario.is_some() && self.identity == identity {
            return;
        }
        let read = fs::read(&path).map_err(|error| error.to_string());
        match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string())) {
            Ok(scenario) => (self.scenario, self.identity) = (Some(scenario), identity),
            Err(error) => complain(format_args!("{} is not a scenario: {error}", path.display())),
        }
    }
}
