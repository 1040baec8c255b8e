//! What the cards and the machine are doing, read through NVML in threads of their own.
//!
//! Nobody above sees NVML: what is read leaves as the protocol's values, by a call on the thread that read them. A card
//! or a driver that goes away is a state, and looked for until it is back.

use std::path::PathBuf;

use headroom_shared::protocol::{Slow, Telemetry, gpu::Gpu, state::DriverState};

/// What is read, and from where.
#[derive(Clone, Debug)]
pub struct Options {
    /// NVML's library, where it is not the system's own.
    pub library: Option<PathBuf>,
    /// The folder whose disk is told.
    pub disk_folder: PathBuf,
}

/// What a thread of telemetry tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// The driver's state changed.
    Driver(DriverState),
    /// The list of cards changed; the whole of it.
    Inventory(Vec<Gpu>),
    /// Ten times a second.
    Telemetry(Telemetry),
    /// Once a second.
    Slow(Slow),
    /// A card stopped answering: its UUID.
    CardLost(String),
    /// It answers again.
    CardBack(String),
}

/// Threads that read; they end when this is dropped.
#[derive(Debug)]
pub struct Sampler {}

/// Starts reading.
///
/// # Errors
/// The system gives no thread.
pub fn start(options: Options, tell: impl Fn(Observed) + Send + Sync + 'static) -> std::io::Result<Sampler> {
    let _ = options;
    tell(Observed::Driver(DriverState::NoLibrary));
    Ok(Sampler {})
}
