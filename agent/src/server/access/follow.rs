//! Looking at the file of tokens, once a second: what `headroom token` changes beside the agent.

use std::{io, thread};

use tokio::{
    runtime,
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

use super::{Access, LOOK_EVERY};

/// Follows as long as it lives.
#[derive(Debug)]
pub struct Following {
    /// Dropped, it ends the thread, which nobody waits for: a disk that does not answer keeps nobody from ending.
    _stop: oneshot::Sender<()>,
}

impl Access {
    /// Follows the file on a thread of its own: a disk that does not answer keeps no viewer waiting, and the loop that
    /// serves them is not woken each second for it.
    ///
    /// # Errors
    /// The system gives no thread or no timer.
    pub fn follow_aside(self) -> io::Result<Following> {
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
        Ok(Following { _stop: stop })
    }

    /// Follows the file for ever, on the thread that it is called on.
    pub async fn follow(self) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look();
            // A disk that is full keeps nobody out.
            let _ = self.keep_used();
        }
    }
}
