//! What the thread of ten times a second tells the thread of once a second: the library and who answers by it.

use std::sync::{Arc, Mutex, PoisonError};

use super::{cards::Address, library::Library};

/// Cards that answer.
#[derive(Clone, Debug)]
pub struct Attached {
    /// What they are read by. Whoever drops it last ends NVML.
    pub library: Arc<Library>,
    /// Who they are.
    pub targets: Vec<Target>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its place.
    pub gpu: u32,
    /// Where it stands.
    pub address: Address,
    /// Whether it is split into instances.
    pub split: bool,
}

/// Both threads' view of the cards.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Option<Attached>>);

impl Shared {
    /// Says who answers; none where no driver does.
    pub fn set(&self, attached: Option<Attached>) {
        // What was there is dropped after the lock is free: to end NVML may take its time.
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), attached);
        drop(before);
    }

    /// Who answers.
    pub fn get(&self) -> Option<Attached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
