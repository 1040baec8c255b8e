//! A card that is opened: its context, its one stream, and what ran on it.

use std::{
    env,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    calls::{self, Context, Event, Stream},
    card::{self, Card},
    driver::Driver,
    error::{At, CudaError, Culprit},
    launch::Library,
};

/// With the value 1 every launch is waited for, so that a fault names its kernel. Slow.
pub const SYNC_VARIABLE: &str = "HEADROOM_CUDA_SYNC";

/// Bytes of a card's memory, of all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What nobody has.
    pub free_bytes: u64,
    /// All.
    pub total_bytes: u64,
}

/// A card that computes. Clones are the same one; what they launch runs in one order.
#[derive(Clone, Debug)]
pub struct Device(Arc<Opened>);

/// What clones of a device share. Fields are ended in their order, the context last.
#[derive(Debug)]
pub(super) struct Opened {
    library: Mutex<Library>,
    launches: Mutex<Launches>,
    waits_for_each: bool,
    stream: Stream,
    card: Card,
    context: Context,
}

/// What was launched since somebody waited.
#[derive(Debug, Default)]
struct Launches {
    count: u64,
    last: Option<&'static str>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // What is ended after this belongs to the context, and the thread may be another than the one that opened it.
        let _: Result<(), CudaError> = self.bind();
    }
}

impl Opened {
    /// Makes this thread's calls be for this card.
    #[track_caller]
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        self.context.bind()
    }
}

impl Device {
    /// Opens a card, by its number in [`super::cards`].
    ///
    /// # Errors
    /// There is no driver, it or the card is too old, there is no such card, or it gives no context: each a variant.
    pub fn open(index: u32) -> Result<Self, CudaError> {
        Driver::get()?;
        Self::of(index)
    }

    /// Opens a card of the driver at a path; for tests. What this process opened first stays its driver.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(library: &Path, index: u32) -> Result<Self, CudaError> {
        Driver::at(library)?;
        Self::of(index)
    }

    fn of(index: u32) -> Result<Self, CudaError> {
        let (card, handle) = card::card(index)?;
        card.check()?;
        let context = Context::retain(handle).map_err(|error| match error {
            error if error.is_out_of_memory() => {
                CudaError::NoRoomForContext { name: card.name.clone(), total_bytes: card.total_bytes }
            }
            other => other,
        })?;
        context.bind()?;
        let stream = Stream::create()?;
        let waits_for_each = env::var_os(SYNC_VARIABLE).is_some_and(|value| value == "1");
        let (library, launches) = Default::default();
        Ok(Self(Arc::new(Opened { library, launches, waits_for_each, stream, card, context })))
    }

    /// What the driver tells of the card.
    #[must_use]
    pub fn card(&self) -> &Card {
        &self.0.card
    }

    /// What is free of its memory now.
    ///
    /// # Errors
    /// A fault of a kernel before.
    #[track_caller]
    pub fn memory(&self) -> Result<Memory, CudaError> {
        self.0.bind()?;
        let (free_bytes, total_bytes) = self.told(calls::memory_info())?;
        Ok(Memory { free_bytes, total_bytes })
    }

    /// Waits until all that was launched has run.
    ///
    /// # Errors
    /// [`CudaError::Fault`] where a kernel failed.
    #[track_caller]
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.told(self.stream()?.synchronize())?;
        self.has_waited();
        Ok(())
    }

    /// Milliseconds that the card takes for what a function launches, by its own clock.
    ///
    /// # Errors
    /// What the function answers, or a fault of a kernel.
    #[track_caller]
    pub fn millis(&self, launch: impl FnOnce() -> Result<(), CudaError>) -> Result<f32, CudaError> {
        let stream = self.stream()?;
        let (start, end) = (self.told(Event::create())?, self.told(Event::create())?);
        self.told(start.record(stream))?;
        launch()?;
        self.told(end.record(stream))?;
        self.told(end.synchronize())?;
        self.has_waited();
        self.told(end.millis_since(&start))
    }

    #[track_caller]
    pub(super) fn allocate_bytes(&self, bytes: usize) -> Result<u64, CudaError> {
        let free_bytes = self.memory()?.free_bytes;
        let too_little = CudaError::OutOfDeviceMemory { requested_bytes: bytes as u64, free_bytes };
        if bytes as u64 > free_bytes {
            return Err(too_little);
        }
        match self.told(calls::allocate(bytes)) {
            // Another process was faster, or what is free does not lie together.
            Err(error) if error.is_out_of_memory() => Err(too_little),
            answer => answer,
        }
    }

    pub(super) fn opened(&self) -> Arc<Opened> {
        Arc::clone(&self.0)
    }

    /// The stream, with this thread's calls being for this card.
    #[track_caller]
    pub(super) fn stream(&self) -> Result<&Stream, CudaError> {
        self.0.bind()?;
        Ok(&self.0.stream)
    }

    /// Makes this thread's calls be for this card.
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

    /// The answer of a call, with whose fault it is where it is a kernel's.
    #[track_caller]
    pub(super) fn told<T>(&self, answer: Result<T, CudaError>) -> Result<T, CudaError> {
        // Asked outside of the closure, whose caller is the library's.
        let at = At::caller();
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
