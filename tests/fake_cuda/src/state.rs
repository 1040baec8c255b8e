//! What the loaded library knows: the scenario, the card's memory, and everything that it gave a handle for.

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

use crate::{Card, Scenario, VARIABLE, code, cublaslt::Products, cudnn::Graphs, here};

/// Tells a file from the one that stood there before: when it was written, its bytes, and its number in the file system.
type Identity = (SystemTime, u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some((metadata.modified().ok()?, metadata.len(), number))
}

/// What a call answers: the code of what went wrong, else success.
pub type Answer = Result<(), u32>;
/// Something that the library gave out; never looked into.
pub type Handle = *mut c_void;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The card whose context is this thread's.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The library's state.
#[derive(Debug)]
pub struct State {
    /// Memory, and whoever runs kernels.
    pub emulator: Emulator,
    /// What is known of the memory where the compiled kernels run.
    pub compiled_memory: headroom_ptx::Memory,
    /// By their addresses.
    pub allocations: BTreeMap<u64, Allocation>,
    /// By their handles.
    pub modules: BTreeMap<usize, Vec<Entry>>,
    /// By their handles: the module's, and the place in it.
    pub functions: BTreeMap<usize, (usize, usize)>,
    /// By their handles.
    pub streams: BTreeSet<usize>,
    /// Of those, and the usual one, who has a copy of the host's memory that nobody waited for.
    pub unawaited: BTreeSet<usize>,
    /// By their handles; when they were reached.
    pub events: BTreeMap<usize, Option<Instant>>,
    /// How often each card's context was taken and not given back.
    pub retained: Vec<u64>,
    /// Launches so far.
    pub n_launches: u64,
    /// Allocations so far.
    pub n_allocations: u64,
    /// How far the card's clock is ahead, of what only pretends to take time.
    pub ahead: Duration,
    /// What the library of products gave handles for, and did.
    pub products: Products,
    /// What the library of graphs gave handles for, and did.
    pub graphs: Graphs,
    /// The code that everything is answered with since a kernel failed.
    fault: Option<u32>,
    begun: bool,
    scenario: Option<Scenario>,
    identity: Option<Identity>,
    n_handles: usize,
}

/// Memory that somebody took.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Of which card.
    pub card: usize,
    /// How much.
    pub bytes: u64,
}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What is run for it.
    pub kernel: &'static Kernel,
    /// The file that it is in, where the compiled kernels run.
    pub compiled: Option<Arc<Module>>,
    /// Threads of a block at most.
    pub threads_max: u32,
    /// Shared memory of a launch at most.
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
            products: Products::default(),
            graphs: Graphs::default(),
            fault: None,
            begun: false,
            scenario: None,
            identity: None,
            n_handles: 0,
        }
    }
}

/// A call that may come before `cuInit`.
pub fn any(answer: impl FnOnce(&mut State) -> Answer) -> u32 {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.read();
    answer(&mut state).err().unwrap_or(code::SUCCESS)
}

/// A call that may not.
pub fn begun(answer: impl FnOnce(&mut State) -> Answer) -> u32 {
    any(|state| if state.begun { answer(state) } else { Err(code::NOT_INITIALIZED) })
}

/// A call that is of this thread's context: nothing of it works after a fault.
pub fn in_context(answer: impl FnOnce(&mut State, usize) -> Answer) -> u32 {
    begun(|state| {
        let card = CURRENT.get().filter(|&card| state.retained.get(card).is_some_and(|&n| n > 0));
        let card = card.ok_or(code::INVALID_CONTEXT)?;
        here::fault_code().or(state.fault).map_or(Ok(()), Err)?;
        answer(state, card)
    })
}

/// A call of another library's that the driver answers as well: its code, and apart from that the library's.
pub fn apart(
    call: impl FnOnce(&mut dyn FnMut(&mut State) -> Answer) -> u32,
    answer: impl FnOnce(&mut State) -> Answer,
) -> (u32, u32) {
    let (mut status, mut answer) = (code::SUCCESS, Some(answer));
    let driver = call(&mut |state: &mut State| {
        status = answer.take().map_or(Ok(()), |answer| answer(state)).err().unwrap_or(code::SUCCESS);
        Ok(())
    });
    (driver, status)
}

/// Makes a card's context this thread's; none with `None`.
pub fn set_current(card: Option<usize>) {
    CURRENT.set(card);
}

/// Says what a test's author is to know.
#[expect(clippy::print_stderr, reason = "only a test loads it, and a code alone does not tell what is wrong")]
pub fn complain(what: impl std::fmt::Display) {
    eprintln!("fake libcuda: {what}");
}

impl State {
    /// What `cuInit` answers.
    pub fn begin(&mut self) -> Answer {
        let scenario = self.scenario()?;
        if scenario.init != code::SUCCESS {
            return Err(scenario.init);
        }
        if scenario.cards.is_empty() {
            return Err(code::NO_DEVICE);
        }
        self.begun = true;
        Ok(())
    }

    /// The machine.
    pub fn scenario(&self) -> Result<&Scenario, u32> {
        self.scenario.as_ref().ok_or(code::UNKNOWN)
    }

    /// A card by its number.
    pub fn card(&self, number: i32) -> Result<(usize, &Card), u32> {
        let number = usize::try_from(number).map_err(|_| code::INVALID_DEVICE)?;
        Ok((number, self.scenario()?.cards.get(number).ok_or(code::INVALID_DEVICE)?))
    }

    /// What nobody has of a card's memory.
    pub fn free_bytes(&self, card: usize) -> Result<u64, u32> {
        let of = self.scenario()?.cards.get(card).ok_or(code::INVALID_CONTEXT)?;
        let ours: u64 = self.allocations.values().filter(|taken| taken.card == card).map(|taken| taken.bytes).sum();
        Ok(of.total_bytes.saturating_sub(of.context_bytes).saturating_sub(of.others_bytes).saturating_sub(ours))
    }

    /// A kernel failed: everything from now on is answered with that code; where a thread has launches of its own, to
    /// that thread alone.
    pub fn fail(&mut self, code: u32, what: String) {
        if let Some(what) = here::fail(code, what) {
            complain(what);
            self.fault.get_or_insert(code);
        }
    }

    /// A handle that nobody has.
    pub fn new_handle(&mut self) -> usize {
        // Far from 0, and from what a card or an attribute is numbered.
        self.n_handles += 1;
        0x1000 + 16 * self.n_handles
    }

    /// Reads the scenario if it is another one than before. One that cannot be read leaves the library unusable.
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
            Err(error) => complain(format_args!("{} is no scenario: {error}", path.display())),
        }
    }
}
