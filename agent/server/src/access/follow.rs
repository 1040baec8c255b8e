//! Polls the file of tokens once a second for changes by `headroom token`.

use std::{io, thread};

use tokio::{
    runtime,
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

use super::{Access, LOOK_EVERY};
use headroom_agent_core::logging::{ACCESS, LastError};

/// Polls the file until this is dropped.
#[derive(Debug)]
pub struct FilePoll {
    /// Dropping it ends the thread without waiting, because a hung disk must not block shutdown.
    _stop: oneshot::Sender<()>,
}

impl Access {
    /// Polls the file on its own thread. A hung disk then delays no viewer, and the server's event loop does not wake
    /// each second.
    ///
    /// # Errors
    /// The system cannot create a thread or a timer.
    pub fn follow_aside(self) -> io::Result<FilePoll> {
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name("tokens".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = self.follow() => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(FilePoll { _stop: stop })
    }

    /// Polls the file forever on the current thread.
    pub async fn follow(self) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_error = LastError::default();
        loop {
            ticks.tick().await;
            self.look();
            // A full disk must not deny access.
            match self.keep_used() {
                Ok(()) => drop(last_error.clear()),
                Err(error) if last_error.is_new(&error) => {
                    tracing::warn!(target: ACCESS, %error, "cannot store when devices were last used");
                }
                Err(_) => {}
            }
        }
    }
}
