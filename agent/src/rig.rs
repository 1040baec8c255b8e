//! What `headroom serve` watches, tied together: telemetry and history, which do not know each other, and the hub that
//! viewers hang on.
//!
//! Everything is told on the thread where it happened, and no teller waits for a viewer or for the disk.

use std::{io, path::Path, sync::Arc};

use headroom_shared::protocol::event::What;

use crate::{
    server::hub::Hub,
    store::{Store, Told},
    telemetry::{self, Observed, Sampler},
};

/// All of it, as long as it lives.
#[derive(Debug)]
pub struct Rig {
    /// What viewers follow.
    pub hub: Hub,
    // Fields are dropped in this order: nothing is read any more when the store writes what is left.
    _sampler: Sampler,
    /// What is kept.
    pub store: Store,
}

impl Rig {
    /// Opens the history of a folder and begins to read cards.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let hub = Hub::default();
        let told = hub.clone();
        let store = Store::open(folder, move |what| match what {
            Told::State(state) => told.history(state),
            Told::Event(event) => told.event(event),
        })?;
        store.append(None, What::AgentStarted { version: env!("CARGO_PKG_VERSION").to_owned() });
        let options = telemetry::Options { library: None, disk_folder: folder.to_owned() };
        let (observed, kept) = (hub.clone(), store.clone());
        let sampler = telemetry::start(options, move |what| observe(what, &observed, &kept))?;
        Ok(Self { hub, _sampler: sampler, store })
    }
}

fn observe(what: Observed, hub: &Hub, store: &Store) {
    match what {
        Observed::Driver(driver) => hub.driver(driver),
        Observed::Inventory(gpus) => {
            store.inventory(&gpus);
            hub.gpus(gpus);
        }
        Observed::Telemetry(telemetry) => {
            let telemetry = Arc::new(telemetry);
            store.telemetry(Arc::clone(&telemetry));
            hub.telemetry(telemetry);
        }
        Observed::Slow(slow) => hub.slow(slow),
        Observed::CardLost(gpu) => store.append(None, What::CardLost { gpu }),
        Observed::CardBack(gpu) => store.append(None, What::CardBack { gpu }),
    }
}
