//! Who may do what: tokens, told apart by their hashes alone.
//!
//! The agent keeps the file's tokens in memory and looks at the file once a second, so that `headroom token` works
//! beside it. A token is 32 random bytes and cannot be guessed; that failures are limited all the same keeps the noise
//! of those who try away from everything behind it.

pub mod book;
pub mod file;
mod follow;
mod limit;

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use headroom_shared::{protocol::Scope, text};
use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio::{sync::watch, time::Instant};

use crate::clock::now_ms;
use book::{Book, BookError, Hash, Paired, hash};
use file::{AccessFile, FileError, Stamp};
pub use limit::network;
use limit::{Bucket, Failures};

/// How often the file is looked at: a token that is revoked is of no use a second later.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How old the kept time of a token's last use may be. Its owner asks whether a device is still about, for which the
/// disk need not be written more often.
const LAST_USED_STEP_MS: u64 = 10 * 60 * 1000;
/// Requests a token may make at once: a page opens with a dozen, each card's charts with one more.
const REQUESTS_BURST: f64 = 200.0;
/// And a second, in the long run: zooming asks several times.
const REQUESTS_PER_SECOND: f64 = 20.0;

/// Somebody whose token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    hash: Hash,
    /// What they may do.
    pub scope: Scope,
}

/// Why somebody is not let in.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The token is unknown, or was revoked.
    #[error("{}", text::BAD_TOKEN)]
    BadToken,
    /// Too many that failed.
    #[error("{}", text::TOO_MANY_FAILURES)]
    TooManyFailures,
    /// Too many requests.
    #[error("{}", text::TOO_MANY_REQUESTS)]
    TooManyRequests,
    /// The code is unknown, used, or too old.
    #[error("{}", text::BAD_CODE)]
    BadCode,
    /// A name that cannot be.
    #[error("{0}")]
    Name(BookError),
    /// The file cannot be read or written.
    #[error("Tokens cannot be kept: {0}")]
    File(FileError),
}

#[derive(Debug)]
struct Known {
    book: Book,
    stamp: Option<Stamp>,
    /// Uses that the file does not have yet.
    used: HashMap<Hash, u64>,
    requests: HashMap<Hash, Bucket>,
    failures: Failures,
}

/// The agent's side. A clone is the same.
#[derive(Clone, Debug)]
pub struct Access {
    file: AccessFile,
    known: Arc<Mutex<Known>>,
    /// Counts up when tokens changed.
    changes: watch::Sender<u64>,
}

impl Access {
    /// Of a data folder.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(folder: &Path) -> Result<Self, FileError> {
        let file = AccessFile::of(folder);
        let (book, stamp) = file.read()?;
        let known =
            Known { book, stamp, used: HashMap::new(), requests: HashMap::new(), failures: Failures::default() };
        Ok(Self { file, known: Arc::new(Mutex::new(known)), changes: watch::Sender::new(0) })
    }

    /// Nothing that is kept here is left half changed where a thread panics.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no device was let in so far.
    pub fn is_new(&self) -> bool {
        self.known().book.tokens.is_empty()
    }

    /// Judges a token that came from an address.
    ///
    /// # Errors
    /// It is not good, or too many that were not came from there.
    pub fn judge(&self, token: &str, from: IpAddr) -> Result<Grant, AccessError> {
        let given = hash(token);
        let mut known = self.known();
        let found = known.book.tokens.iter().fold(None, |found, token| {
            // Every one is compared, and each in the same time.
            if bool::from(token.hash.ct_eq(&given)) {
                Some(Grant { hash: token.hash, scope: token.scope })
            } else {
                found
            }
        });
        let Some(grant) = found else {
            // A good token is let in whatever came before: behind a proxy everybody has one address, and whoever sends
            // nonsense would lock the owner out.
            return Err(if known.failures.count(from, Instant::now()) {
                AccessError::BadToken
            } else {
                AccessError::TooManyFailures
            });
        };
        known.used.insert(grant.hash, now_ms());
        Ok(grant)
    }

    /// Counts a request of somebody.
    ///
    /// # Errors
    /// There were too many.
    pub fn count(&self, grant: &Grant) -> Result<(), AccessError> {
        let now = Instant::now();
        let mut known = self.known();
        let bucket = known.requests.entry(grant.hash).or_insert_with(|| Bucket::full(REQUESTS_BURST, now));
        bucket.take(REQUESTS_PER_SECOND, REQUESTS_BURST, now).then_some(()).ok_or(AccessError::TooManyRequests)
    }

    /// Whether somebody who was let in still may do what they could then.
    pub fn holds(&self, grant: &Grant) -> bool {
        self.known().book.tokens.iter().any(|token| token.hash == grant.hash && token.scope == grant.scope)
    }

    /// Tells when tokens changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A code for one device, good for ten minutes. Writes to the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new_code(&self, scope: Scope) -> Result<String, FileError> {
        let code = self.file.change(|book| book.new_code(scope, now_ms()))?;
        self.look();
        Ok(code)
    }

    /// Keeps where the page is, for the links of `headroom token pair`. Writes to the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_links(&self, page: &str, far: Option<&str>) -> Result<(), FileError> {
        self.file.change(|book| {
            book.link = Some(page.to_owned());
            book.far_link = far.map(str::to_owned);
            Ok::<_, FileError>(())
        })?;
        self.look();
        Ok(())
    }

    /// Gives a device a token for its code. Writes to the disk.
    ///
    /// # Errors
    /// The code is not good, too many that were not came from there, or the file cannot be written.
    pub fn pair(&self, code: &str, name: &str, from: IpAddr) -> Result<Paired, AccessError> {
        // A code that nobody gave out takes no lock: who sends many would keep the owner's own changes waiting.
        self.look();
        let paired = if self.known().book.has_code(code) {
            self.file.change(|book| book.redeem(code, name, now_ms()))
        } else {
            Err(BookError::BadCode.into())
        };
        match paired {
            Ok(paired) => {
                self.look();
                Ok(paired)
            }
            Err(FileError::Refused(BookError::BadCode)) => {
                let counted = self.known().failures.count(from, Instant::now());
                Err(if counted { AccessError::BadCode } else { AccessError::TooManyFailures })
            }
            Err(FileError::Refused(error)) => Err(AccessError::Name(error)),
            Err(error) => Err(AccessError::File(error)),
        }
    }

    /// Looks at the file, and takes what changed.
    fn look(&self) {
        let stamp = self.file.stamp();
        if stamp == self.known().stamp {
            return;
        }
        let (book, stamp) = match self.file.read() {
            Ok(read) => read,
            // What cannot be understood lets nobody in.
            Err(FileError::Damaged { .. }) => (Book::default(), stamp),
            // The disk or the system may be better in a second.
            Err(_) => return,
        };
        let mut known = self.known();
        known.stamp = stamp;
        let changed = known.book.tokens != book.tokens;
        known.book = book;
        if changed {
            let Known { book, requests, used, .. } = &mut *known;
            let is_known = |hash: &Hash| book.tokens.iter().any(|token| token.hash == *hash);
            requests.retain(|hash, _| is_known(hash));
            used.retain(|hash, _| is_known(hash));
        }
        drop(known);
        if changed {
            self.changes.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    /// Writes down who was here, where what is kept of it is old.
    fn keep_used(&self) -> Result<(), FileError> {
        let due = {
            let known = self.known();
            known.book.tokens.iter().any(|token| {
                let used_ms = known.used.get(&token.hash);
                used_ms.is_some_and(|used_ms| token.last_used_ms.saturating_add(LAST_USED_STEP_MS) <= *used_ms)
            })
        };
        if !due {
            return Ok(());
        }
        let used = std::mem::take(&mut self.known().used);
        self.file.change(|book| {
            for token in &mut book.tokens {
                token.last_used_ms = token.last_used_ms.max(used.get(&token.hash).copied().unwrap_or(0));
            }
            Ok::<_, FileError>(())
        })
    }
}

impl From<io::Error> for AccessError {
    fn from(error: io::Error) -> Self {
        Self::File(FileError::Random(error))
    }
}

#[cfg(test)]
mod tests;
