//! The state of the loaded library: the current scenario, and the number of initialisations.

use std::{
    env, fs,
    os::raw::c_uint,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use crate::{FILE, FakeGpu, Scenario, VARIABLE, code};

/// An opaque device handle.
pub type Handle = *mut std::ffi::c_void;

static STATE: Mutex<State> = Mutex::new(State { scenario: None, identity: None, path: None, n_users: 0 });

#[derive(Debug)]
struct State {
    scenario: Option<Scenario>,
    identity: Option<Identity>,
    path: Option<PathBuf>,
    n_users: u32,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    written: SystemTime,
    bytes: u64,
    inode: u64,
}

/// The result of a call: success, or an error code.
pub type CallResult = Result<(), c_uint>;

/// Performs `nvmlInit`.
pub fn begin() -> c_uint {
    with(|state| {
        state.read();
        let Some(scenario) = &state.scenario else { return Err(code::UNKNOWN) };
        if scenario.init != code::SUCCESS {
            return Err(scenario.init);
        }
        state.n_users += 1;
        Ok(())
    })
}

/// Performs `nvmlShutdown`.
pub fn end() -> c_uint {
    wait("nvmlShutdown");
    with(|state| {
        state.n_users = state.n_users.checked_sub(1).ok_or(code::UNINITIALIZED)?;
        Ok(())
    })
}

/// Runs a call that concerns no GPU.
pub fn system(symbol: &str, answer: impl FnOnce(&Scenario, f64) -> CallResult) -> c_uint {
    wait(symbol);
    with(|state| {
        // Frequent enough for tests, and cheap enough not to affect measurements.
        if matches!(symbol, "nvmlDeviceGetCount_v2" | "nvmlDeviceGetHandleByIndex_v2" | "nvmlEventSetWait_v2") {
            state.read();
        }
        let scenario = state.in_use()?;
        answer(scenario, time_s(state))
    })
}

/// Runs a call on a GPU.
pub fn of_gpu(symbol: &str, handle: Handle, answer: impl FnOnce(&FakeGpu, f64) -> CallResult) -> c_uint {
    wait(symbol);
    with(|state| {
        let (gpu, instance) = unfold(handle);
        // Covers callers with cached handles: once per round of all GPUs.
        if gpu == 0 && symbol == "nvmlDeviceGetMemoryInfo_v2" {
            state.read();
        }
        let scenario = state.in_use()?;
        let time_s = time_s(state);
        let parent = scenario.gpus.get(gpu).ok_or(code::INVALID_ARGUMENT)?;
        if parent.is_lost(time_s) {
            return Err(code::GPU_IS_LOST);
        }
        let gpu = match instance {
            None => parent,
            Some(instance) => parent.mig.as_ref().and_then(|all| all.get(instance)).ok_or(code::NOT_FOUND)?,
        };
        match gpu.errors.get(symbol).or_else(|| gpu.errors.get("*")) {
            Some(&error) => Err(error),
            None => answer(gpu, time_s),
        }
    })
}

/// Returns the handle of a GPU or a MIG instance; never null.
pub fn handle(gpu: usize, instance: Option<usize>) -> Handle {
    let number = 1 + gpu + (instance.map_or(0, |instance| 1 + instance) << 16);
    std::ptr::without_provenance_mut(number)
}

/// Returns the indices of a handle's GPU and instance.
pub fn unfold(handle: Handle) -> (usize, Option<usize>) {
    let number = handle.addr();
    ((number & 0xffff).wrapping_sub(1), (number >> 16).checked_sub(1))
}

fn with(answer: impl FnOnce(&mut State) -> CallResult) -> c_uint {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    answer(&mut state).err().unwrap_or(code::SUCCESS)
}

/// Waits for the scenario's delay of a symbol, without blocking other calls.
fn wait(symbol: &str) {
    let mut wait_ms = 0;
    with(|state| {
        wait_ms = state.scenario.as_ref().and_then(|scenario| scenario.slow_ms.get(symbol).copied()).unwrap_or(0);
        Ok(())
    });
    if wait_ms > 0 {
        thread::sleep(Duration::from_millis(wait_ms));
    }
}

fn time_s(state: &State) -> f64 {
    let fixed = state.scenario.as_ref().and_then(|scenario| scenario.time_s);
    fixed.unwrap_or_else(|| {
        let written = state.identity.map_or(SystemTime::UNIX_EPOCH, |identity| identity.written);
        SystemTime::now().duration_since(written).unwrap_or_default().as_secs_f64()
    })
}

impl State {
    fn in_use(&self) -> Result<&Scenario, c_uint> {
        let scenario = self.scenario.as_ref().filter(|_| self.n_users > 0).ok_or(code::UNINITIALIZED)?;
        scenario.every_call.map_or(Ok(scenario), Err)
    }

    /// Reads the file again if it has changed. An unreadable file changes nothing, and an error is printed.
    #[expect(clippy::print_stderr, reason = "only tests load it, and the scenario's author has to see the error")]
    fn read(&mut self) {
        let path = self.path.get_or_insert_with(path);
        let Some(identity) = identity(path) else { return };
        if self.identity == Some(identity) {
            return;
        }
        let read = fs::read(&*path).map_err(|error| error.to_string());
        match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string())) {
            Ok(scenario) => {
                self.scenario = Some(scenario);
                self.identity = Some(identity);
            }
            Err(error) => eprintln!("{} is not a scenario: {error}", path.display()),
        }
    }
}

fn identity(path: &PathBuf) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some(Identity { written: metadata.modified().ok()?, bytes: metadata.len(), inode })
}

/// Returns the scenario's path: beside the library, otherwise from the variable.
fn path() -> PathBuf {
    let beside = own_path().map(|own| own.with_file_name(FILE)).filter(|path| path.is_file());
    beside.unwrap_or_else(|| env::var_os(VARIABLE).map(PathBuf::from).unwrap_or_default())
}

/// Returns the path of this library: the file from which the kernel mapped this function.
fn own_path() -> Option<PathBuf> {
    let address = own_path as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        range.is_some_and(|(from, to)| {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            (number(from)..number(to)).contains(&address)
        })
    })?;
    line.find('/').map(|start| PathBuf::from(&line[start..]))
}
