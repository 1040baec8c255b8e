//! Settings of a thread's launches: the seed, compiled kernels, mutations and the fault.

use std::{cell::RefCell, collections::BTreeMap};

/// A thread's settings.
#[derive(Debug, Default)]
struct LaunchSettings {
    seed: u64,
    compiled: bool,
    mutations: BTreeMap<String, String>,
    fault: Option<(u32, String)>,
}

thread_local! {
    static SAID: RefCell<Option<LaunchSettings>> = const { RefCell::new(None) };
}

fn with<T>(act: impl FnOnce(&mut LaunchSettings) -> T) -> Option<T> {
    SAID.with_borrow_mut(|said| said.as_mut().map(act))
}

/// Returns the seed of this thread's launches.
pub fn seed() -> Option<u64> {
    with(|said| said.seed)
}

/// Returns whether this thread's launches run the PTX.
pub fn is_compiled() -> bool {
    with(|said| said.compiled).unwrap_or(false)
}

/// Returns the mutation of a kernel in this thread's launches.
pub fn mutation(kernel: &str) -> Option<String> {
    with(|said| said.mutations.get(kernel).cloned()).flatten()
}

/// Returns the code that this thread's calls fail with.
pub fn fault_code() -> Option<u32> {
    with(|said| said.fault.as_ref().map(|(code, _)| *code)).flatten()
}

/// Records a fault for this thread; returns its text if the thread has no settings of its own.
pub fn fail(code: u32, what: String) -> Option<String> {
    SAID.with_borrow_mut(|said| match said {
        Some(said) => {
            said.fault.get_or_insert((code, what));
            None
        }
        None => Some(what),
    })
}

/// Starts settings with a seed for the order of threads.
pub fn begin(seed: u64) {
    SAID.set(Some(LaunchSettings { seed, ..LaunchSettings::default() }));
}

/// Ends this thread's settings.
pub fn end() {
    SAID.set(None);
}

/// Runs the PTX in this thread's launches from now on.
pub fn run_compiled() {
    with(|said| said.compiled = true);
}

/// Runs a mutation of a kernel in this thread's launches from now on.
pub fn mutate(kernel: String, mutation: String) {
    with(|said| said.mutations.insert(kernel, mutation));
}

/// Returns the text of this thread's fault.
pub fn fault() -> Option<String> {
    with(|said| said.fault.as_ref().map(|(_, what)| what.clone())).flatten()
}
