//! What the loaded library knows: the scenario as it stands now, and who began to use it.

use std::{
    env, fs,
    os::raw::c_uint,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use crate::{Card, FILE, Scenario, VARIABLE, code};

/// A card as NVML's callers hold it: never looked into.
pub type Handle = *mut std::ffi::c_void;

static STATE: Mutex<State> = Mutex::new(State { scenario: None, identity: None, path: None, n_users: 0 });

#[derive(Debug)]
struct State {
    scenario: Option<Scenario>,
    identity: Option<Identity>,
    path: Option<PathBuf>,
    n_users: u32,
}

/// Tells a file from the one that stood there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    written: SystemTime,
    bytes: u64,
    inode: u64,
}

/// What a call answers: the code of what went wrong, else success.
pub type Answer = Result<(), c_uint>;

/// Begins to use the library.
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

/// Ends to use it.
pub fn end() -> c_uint {
    wait("nvmlShutdown");
    with(|state| {
        state.n_users = state.n_users.checked_sub(1).ok_or(code::UNINITIALIZED)?;
        Ok(())
    })
}

/// A call that is of no card.
pub fn system(symbol: &str, answer: impl FnOnce(&Scenario, f64) -> Answer) -> c_uint {
    wait(symbol);
    with(|state| {
        // Often enough to follow a test, and seldom enough to cost nothing.
        if matches!(symbol, "nvmlDeviceGetCount_v2" | "nvmlDeviceGetHandleByIndex_v2" | "nvmlEventSetWait_v2") {
            state.read();
        }
        let scenario = state.in_use()?;
        answer(scenario, time_s(state))
    })
}

/// A call that is of a card.
pub fn of_card(symbol: &str, handle: Handle, answer: impl FnOnce(&Card, f64) -> Answer) -> c_uint {
    wait(symbol);
    with(|state| {
        let (card, instance) = unfold(handle);
        // Who keeps its handles is followed as well: once in a round of the cards.
        if card == 0 && symbol == "nvmlDeviceGetMemoryInfo_v2" {
            state.read();
        }
        let scenario = state.in_use()?;
        let time_s = time_s(state);
        let parent = scenario.cards.get(card).ok_or(code::INVALID_ARGUMENT)?;
        if parent.is_lost(time_s) {
            return Err(code::GPU_IS_LOST);
        }
        let card = match instance {
            None => parent,
            Some(instance) => parent.mig.as_ref().and_then(|all| all.get(instance)).ok_or(code::NOT_FOUND)?,
        };
        match card.errors.get(symbol).or_else(|| card.errors.get("*")) {
            Some(&error) => Err(error),
            None => answer(card, time_s),
        }
    })
}

/// The handle of a card, or of an instance of one; both are numbers, and never 0.
pub fn handle(card: usize, instance: Option<usize>) -> Handle {
    let number = 1 + card + (instance.map_or(0, |instance| 1 + instance) << 16);
    std::ptr::without_provenance_mut(number)
}

/// The card of a handle, and its instance.
pub fn unfold(handle: Handle) -> (usize, Option<usize>) {
    let number = handle.addr();
    ((number & 0xffff).wrapping_sub(1), (number >> 16).checked_sub(1))
}

fn with(answer: impl FnOnce(&mut State) -> Answer) -> c_uint {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    answer(&mut state).err().unwrap_or(code::SUCCESS)
}

/// Takes the time that the scenario says; others call meanwhile.
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

    /// Reads the file if it is another one than before. One that cannot be read changes nothing, and says so.
    #[expect(clippy::print_stderr, reason = "only a test loads it, and its author is to see the slip")]
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
            Err(error) => eprintln!("{} is no scenario: {error}", path.display()),
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

/// Beside the library, else what the variable names.
fn path() -> PathBuf {
    let beside = own_path().map(|own| own.with_file_name(FILE)).filter(|path| path.is_file());
    beside.unwrap_or_else(|| env::var_os(VARIABLE).map(PathBuf::from).unwrap_or_default())
}

/// Where this library was loaded from: the file that the kernel mapped this function out of.
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
