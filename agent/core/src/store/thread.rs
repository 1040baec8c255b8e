//! The writer thread: calls the writer's turns in a loop, with the current time.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{StoreEvent, queue::Queue, writer::Writer};
use crate::clock::now_ms;

/// Interval between turns, and so the maximum delay of notifications about other programs' events.
const TURN: Duration = Duration::from_millis(250);
/// Maximum time for writing the remaining data at shutdown while nothing can be written.
const LAST: Duration = Duration::from_secs(5);

/// A thread that ends when this value is dropped, or earlier.
#[derive(Debug)]
pub struct Thread {
    queue: Arc<Queue>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Thread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        mut writer: Writer,
        queue: Arc<Queue>,
        tell: impl Fn(StoreEvent) + Send + 'static,
    ) -> io::Result<Self> {
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

    /// Lets the thread write the queued data, and waits for its end.
    pub fn end(&self) {
        self.queue.stop();
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last owner may be the notification callback on the thread itself, which then ends without a join.
        if let Some(handle) = handle.filter(|handle| handle.thread().id() != thread::current().id()) {
            // The thread panics if its callback does. Nothing can be repaired here.
            let _ = handle.join();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.end();
    }
}
