//! What waits for whoever looks after alerts. Who puts something in never waits, and wakes nobody for a moment of
//! telemetry: those are ten a second, and one look a second sees all of them.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use headroom_shared::protocol::event::Event;

use crate::telemetry::Observed;

/// What waits to be looked at: some seconds of telemetry and a burst of events. What comes while it is full is not
/// looked at, as the next moment says it again.
const NEWS_MAX: usize = 256;

/// Something to look at.
#[derive(Debug)]
pub enum News {
    /// Of a card.
    Observed(Observed),
    /// Of a run.
    Event(Event),
}

impl News {
    /// Whether it is looked at at once.
    const fn is_urgent(&self) -> bool {
        !matches!(self, Self::Observed(Observed::Telemetry(_)))
    }
}

#[derive(Debug, Default)]
struct Inner {
    news: VecDeque<News>,
    is_urgent: bool,
    is_closed: bool,
}

/// Between those who tell and the one who looks.
#[derive(Debug, Default)]
pub struct Inbox {
    inner: Mutex<Inner>,
    called: Condvar,
}

impl Inbox {
    /// Nothing in it is left half changed where a thread panics.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something in.
    pub fn put(&self, news: News) {
        let mut inner = self.lock();
        if inner.is_closed || inner.news.len() >= NEWS_MAX {
            return;
        }
        // Telemetry that nobody took for so long leaves room for what is urgent.
        let calls = news.is_urgent() || inner.news.len() >= NEWS_MAX / 2;
        inner.is_urgent |= calls;
        inner.news.push_back(news);
        drop(inner);
        if calls {
            self.called.notify_one();
        }
    }

    /// Ends it: nothing more is put in, and what is in is not looked at.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.called.notify_all();
    }

    /// Waits so long, or until something urgent comes, and takes everything; nothing once it was closed.
    pub fn wait(&self, timeout: Duration) -> Option<VecDeque<News>> {
        let waits = |inner: &mut Inner| !inner.is_urgent && !inner.is_closed;
        let waited = self.called.wait_timeout_while(self.lock(), timeout, waits);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        inner.is_urgent = false;
        (!inner.is_closed).then(|| std::mem::take(&mut inner.news))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Instant};

    use headroom_shared::protocol::{Telemetry, event::What};

    use super::*;

    /// Nobody waits as long as this in a test that passes.
    const LONG: Duration = Duration::from_secs(60);

    fn telemetry(seq: u64) -> News {
        News::Observed(Observed::Telemetry(Arc::new(Telemetry { seq, time_ms: 0, gpus: vec![] })))
    }

    fn event() -> News {
        News::Event(Event { id: 1, time_ms: 0, run: None, what: What::HistoryResumed })
    }

    #[test]
    fn telemetry_waits_for_the_look_and_an_event_brings_it_along() {
        let inbox = Arc::new(Inbox::default());
        inbox.put(telemetry(1));
        let taken = inbox.wait(Duration::from_millis(1)).expect("it is open");
        assert_eq!(taken.len(), 1, "a look that nobody called for sees it");
        let told = Arc::clone(&inbox);
        let teller = thread::spawn(move || {
            told.put(telemetry(2));
            told.put(event());
        });
        let since = Instant::now();
        let taken = inbox.wait(LONG).expect("it is open");
        teller.join().expect("it ends");
        assert!(since.elapsed() < LONG, "the event called");
        assert!(
            matches!(&*taken.into_iter().collect::<Vec<_>>(), [News::Observed(_), News::Event(_)]),
            "in their order"
        );
    }

    #[test]
    fn it_is_bounded_and_ends() {
        let inbox = Inbox::default();
        for seq in 0..NEWS_MAX as u64 + 5 {
            inbox.put(telemetry(seq));
        }
        inbox.put(event());
        assert_eq!(inbox.wait(Duration::ZERO).map(|taken| taken.len()), Some(NEWS_MAX));
        inbox.put(event());
        inbox.close();
        assert!(inbox.wait(LONG).is_none());
        inbox.put(event());
        assert!(inbox.wait(LONG).is_none());
    }
}
