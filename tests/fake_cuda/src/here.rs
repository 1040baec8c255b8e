//! What a thread of a test says for its own launches, and how it reaches the library that its process has loaded.

use std::{cell::RefCell, collections::BTreeMap, env, io, path::PathBuf};

use libloading::{Library, Symbol};

use crate::{compiled, state};

/// The library as cargo built it: beside the executable of a test of this package, or of one that names it under
/// `[dev-dependencies]`.
///
/// # Errors
/// It is not there, as where somebody moved the executable.
pub fn library() -> io::Result<PathBuf> {
    let name = format!("{}headroom_fake_cuda{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let executable = env::current_exe()?;
    // Tests lie in `deps`, and programs a folder above it.
    let folders = executable.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let mut paths = folders.map(|folder| folder.join(&name));
    paths
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("cargo built no {name} beside this test")))
}

/// This thread's own launches, until it is dropped: a fault of theirs is told to this thread alone.
#[derive(Debug)]
pub struct Here {
    library: Library,
}

impl Here {
    /// Begins; threads run in the order of a seed.
    ///
    /// # Errors
    /// The library is not there.
    pub fn seeded(seed: u64) -> io::Result<Self> {
        // SAFETY: it is ours, and opening it does nothing.
        let library = unsafe { Library::new(library()?) }.map_err(io::Error::other)?;
        let here = Self { library };
        here.say("begin", seed, "", "")?;
        Ok(here)
    }

    /// Begins, with the PTX that the host loads instead of the kernels' C++; warps run in the order of a seed. It goes for
    /// the modules that this thread loads from now on.
    ///
    /// # Errors
    /// The library is not there.
    pub fn compiled(seed: u64) -> io::Result<Self> {
        let here = Self::seeded(seed)?;
        here.say("compiled", 0, "", "")?;
        Ok(here)
    }

    /// Runs a kernel with a mistake of `kernels/emulator/mutations.txt` from now on, or of `tests/ptx/mutations.txt` where
    /// the PTX runs.
    ///
    /// # Errors
    /// The library is another one.
    pub fn mutate(&self, kernel: &str, mutation: &str) -> io::Result<()> {
        self.say("mutate", 0, kernel, mutation)
    }

    /// What the first kernel that failed did wrong, with its line; none where none failed.
    ///
    /// # Errors
    /// The library is another one.
    pub fn fault(&self) -> io::Result<Option<String>> {
        let mut text = vec![0; 4096];
        // SAFETY: the symbol is the function below.
        let length = unsafe {
            let fault: Symbol<'_, unsafe extern "C" fn(*mut u8, usize) -> usize> =
                self.library.get("headroom_fake_cuda_fault").map_err(io::Error::other)?;
            fault(text.as_mut_ptr(), text.len())
        };
        text.truncate(length);
        Ok((length > 0).then(|| String::from_utf8_lossy(&text).into_owned()))
    }

    fn say(&self, what: &str, number: u64, first: &str, second: &str) -> io::Result<()> {
        type Say = unsafe extern "C" fn(u64, *const u8, usize, *const u8, usize);
        let name = format!("headroom_fake_cuda_{what}");
        // SAFETY: the symbols are the functions below, which all are declared so.
        unsafe {
            let say: Symbol<'_, Say> = self.library.get(name).map_err(io::Error::other)?;
            say(number, first.as_ptr(), first.len(), second.as_ptr(), second.len());
        }
        Ok(())
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // Whoever was told of the begin is there for the end.
        let _: io::Result<()> = self.say("end", 0, "", "");
    }
}

/// What a thread said.
#[derive(Debug, Default)]
struct Said {
    seed: u64,
    compiled: bool,
    mutations: BTreeMap<String, String>,
    fault: Option<(u32, String)>,
}

thread_local! {
    static SAID: RefCell<Option<Said>> = const { RefCell::new(None) };
}

fn with<T>(act: impl FnOnce(&mut Said) -> T) -> Option<T> {
    SAID.with_borrow_mut(|said| said.as_mut().map(act))
}

/// The order of this thread's launches.
pub fn seed() -> Option<u64> {
    with(|said| said.seed)
}

/// Whether this thread's launches run the PTX.
pub fn is_compiled() -> bool {
    with(|said| said.compiled).unwrap_or(false)
}

/// The mistake that this thread's launches of a kernel have.
pub fn mutation(kernel: &str) -> Option<String> {
    with(|said| said.mutations.get(kernel).cloned()).flatten()
}

/// What this thread's calls are answered with.
pub fn fault_code() -> Option<u32> {
    with(|said| said.fault.as_ref().map(|(code, _)| *code)).flatten()
}

/// Keeps a fault for this thread; gives it back where the thread has no launches of its own.
pub fn fail(code: u32, what: String) -> Option<String> {
    SAID.with_borrow_mut(|said| match said {
        Some(said) => {
            said.fault.get_or_insert((code, what));
            None
        }
        None => Some(what),
    })
}

/// # Safety
/// The texts are as long as said.
unsafe fn text(start: *const u8, length: usize) -> String {
    // SAFETY: as the caller promises.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(start, length) }).into_owned()
}

#[unsafe(no_mangle)]
extern "C" fn headroom_fake_cuda_begin(seed: u64, _: *const u8, _: usize, _: *const u8, _: usize) {
    SAID.set(Some(Said { seed, ..Said::default() }));
}

#[unsafe(no_mangle)]
extern "C" fn headroom_fake_cuda_compiled(_: u64, _: *const u8, _: usize, _: *const u8, _: usize) {
    with(|said| said.compiled = true);
    state::any(|state| {
        compiled::follow(state);
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn headroom_fake_cuda_end(_: u64, _: *const u8, _: usize, _: *const u8, _: usize) {
    SAID.set(None);
}

/// # Safety
/// The texts are as long as said.
#[unsafe(no_mangle)]
unsafe extern "C" fn headroom_fake_cuda_mutate(_: u64, kernel: *const u8, n: usize, mutation: *const u8, m: usize) {
    // SAFETY: as the caller promises.
    let (kernel, mutation) = unsafe { (text(kernel, n), text(mutation, m)) };
    with(|said| said.mutations.insert(kernel, mutation));
}

/// # Safety
/// There is room for so many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn headroom_fake_cuda_fault(out: *mut u8, length: usize) -> usize {
    let fault = with(|said| said.fault.as_ref().map(|(_, what)| what.clone())).flatten().unwrap_or_default();
    let length = fault.len().min(length);
    // SAFETY: as the caller promises.
    unsafe { out.copy_from_nonoverlapping(fault.as_ptr(), length) };
    length
}
