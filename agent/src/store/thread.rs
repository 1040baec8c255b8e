//! The thread that writes: a loop around the writer's turns, with the time of day.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{Told, queue::Queue, writer::Writer};
use crate::clock::now_ms;

/// How often it takes a turn: how late another program's event may be told.
const TURN: Duration = Duration::from_millis(250);
/// How long it goes on trying to write what waits when everything else has ended, while nothing can be written.
const LAST: Duration = Duration::from_secs(5);

/// A thread that ends, at the latest, with this.
#[derive(Debug)]
pub struct Thread {
    queue: Arc<Queue>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Thread {
    /// Starts it.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(mut writer: Writer, queue: Arc<Queue>, tell: impl Fn(Told) + Send + 'static) -> io::Result<Self> {
        let shared = Arc::clone(&queue);
        let handle = thread::Builder::new().name("history".to_owned()).spawn(move || {
            loop {
                let is_last = shared.wait(TURN);
                writer.turn(&shared, now_ms(), is_last, &tell);
                if is_last {
                    break;
                }
            }
            let (mut since, mut n_left) = (Instant::now(), shared.n_unwritten());
            while !shared.is_empty() && since.elapsed() < LAST {
                writer.turn(&shared, now_ms(), true, &tell);
                if shared.n_unwritten() < n_left {
                    (since, n_left) = (Instant::now(), shared.n_unwritten());
                } else {
                    thread::sleep(TURN / 5);
                }
            }
        })?;
        Ok(Self { queue, handle: Mutex::new(Some(handle)) })
    }

    /// Lets it write what waits, and waits for its end.
    pub fn end(&self) {
        self.queue.stop();
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last owner may be what is told, on the thread itself, which then ends by itself.
        if let Some(handle) = handle.filter(|handle| handle.thread().id() != thread::current().id()) {
            // It panics where what it tells does; nothing of that is left to mend here.
            let _ = handle.join();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.end();
    }
}
