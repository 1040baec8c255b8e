//! Authentication by tokens, which are stored as hashes.
//!
//! The agent keeps the tokens in memory and checks the file once a second, so that `headroom token` works beside a
//! running agent. A token has 32 random bytes and cannot be guessed. Failures are rate-limited anyway, which keeps
//! guessing clients from using resources.

pub mod error;
pub mod file;
mod follow;
mod limit;
pub mod token_file;

use std::{
    collections::HashMap,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use headroom_protocol::Scope;
use subtle::ConstantTimeEq;
use tokio::{sync::watch, time::Instant};

use error::{AccessError, FileError, TokenError};
use file::{AccessFile, FileStamp};
use headroom_agent_core::{
    clock::now_ms,
    logging::{ACCESS, LastError},
};
pub use limit::network;
use limit::{Bucket, Failures};
use token_file::{Hash, NewToken, TokenFile, hash};

/// The period of checks of the file. A revoked token stops working within this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The maximum age of a stored time of last use. The time only shows whether a device is still in use, so more frequent
/// disk writes are unnecessary.
const LAST_USED_STEP_MS: u64 = 10 * 60 * 1000;
/// The burst of requests that a token allows. Opening a page takes a dozen, and one more for each GPU's charts.
const REQUESTS_BURST: f64 = 200.0;
/// The sustained rate of requests per second and token. Zooming takes several.
const REQUESTS_PER_SECOND: f64 = 20.0;

/// A successful authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    hash: Hash,
    /// The permissions of the token.
    pub scope: Scope,
}

#[derive(Debug)]
struct KnownTokens {
    book: TokenFile,
    stamp: Option<FileStamp>,
    /// Times of last use that the file does not contain yet.
    used: HashMap<Hash, u64>,
    requests: HashMap<Hash, Bucket>,
    failures: Failures,
    /// The last error of reading the file.
    last_error: LastError,
}

impl KnownTokens {
    fn find(&self, given: &Hash) -> Option<AccessGrant> {
        self.book.tokens.iter().fold(None, |found, token| {
            // Compares all tokens, each in constant time.
            if bool::from(token.hash.ct_eq(given)) {
                Some(AccessGrant { hash: token.hash, scope: token.scope })
            } else {
                found
            }
        })
    }
}

/// The agent's view of the tokens. Clones share their state.
#[derive(Clone, Debug)]
pub struct Access {
    file: AccessFile,
    known: Arc<Mutex<KnownTokens>>,
    /// A counter that is incremented when tokens change.
    changes: watch::Sender<u64>,
}

impl Access {
    /// Opens the tokens of a data directory.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn open(folder: &Path) -> Result<Self, FileError> {
        let file = AccessFile::of(folder);
        let (book, stamp) = file.read()?;
        let known = KnownTokens {
            book,
            stamp,
            used: HashMap::new(),
            requests: HashMap::new(),
            failures: Failures::default(),
            last_error: LastError::default(),
        };
        Ok(Self { file, known: Arc::new(Mutex::new(known)), changes: watch::Sender::new(0) })
    }

    /// Locks the state. A poisoned lock is safe to use: no update leaves the state inconsistent.
    fn known(&self) -> MutexGuard<'_, KnownTokens> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no device was ever paired.
    pub fn is_new(&self) -> bool {
        self.known().book.tokens.is_empty()
    }

    /// Authenticates a token sent from an address.
    ///
    /// # Errors
    /// The token is invalid, or the address sent too many invalid tokens.
    pub fn judge(&self, token: &str, from: IpAddr) -> Result<AccessGrant, AccessError> {
        let given = hash(token);
        let mut known = self.known();
        let mut found = known.find(&given);
        if found.is_none() {
            // `headroom token` may have added it a moment ago.
            drop(known);
            self.look();
            known = self.known();
            found = known.find(&given);
        }
        let Some(grant) = found else {
            // A valid token is accepted despite earlier failures. Behind a proxy all clients share one address, and
            // invalid tokens would otherwise lock the owner out.
            return Err(if known.failures.count(from, Instant::now()) {
                AccessError::BadToken
            } else {
                AccessError::TooManyFailures
            });
        };
        known.used.insert(grant.hash, now_ms());
        Ok(grant)
    }

    /// Counts a request of a token.
    ///
    /// # Errors
    /// The token exceeds its rate limit.
    pub fn count(&self, grant: &AccessGrant) -> Result<(), AccessError> {
        let now = Instant::now();
        let mut known = self.known();
        let bucket = known.requests.entry(grant.hash).or_insert_with(|| Bucket::full(REQUESTS_BURST, now));
        bucket.take(REQUESTS_PER_SECOND, REQUESTS_BURST, now).then_some(()).ok_or(AccessError::TooManyRequests)
    }

    /// Returns whether a token is still valid with the same scope.
    pub fn holds(&self, grant: &AccessGrant) -> bool {
        self.known().book.tokens.iter().any(|token| token.hash == grant.hash && token.scope == grant.scope)
    }

    /// Returns a receiver that is notified when tokens change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Creates a one-time pairing code, valid for ten minutes. Writes to the disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new_code(&self, scope: Scope) -> Result<String, FileError> {
        let code = self.file.change(|book| book.new_code(scope, now_ms()))?;
        self.look();
        Ok(code)
    }

    /// Stores the URLs of the page for the links of `headroom token pair`. Writes to the disk.
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

    /// Exchanges a pairing code for a token. Writes to the disk.
    ///
    /// # Errors
    /// The code is invalid, the address sent too many invalid codes, or the file cannot be written.
    pub fn pair(&self, code: &str, name: &str, from: IpAddr) -> Result<NewToken, AccessError> {
        // An unknown code takes no file lock: a flood of codes would otherwise delay the owner's own changes.
        self.look();
        let paired = if self.known().book.has_code(code) {
            self.file.change(|book| book.redeem(code, name, now_ms()))
        } else {
            Err(TokenError::BadCode.into())
        };
        match paired {
            Ok(paired) => {
                self.look();
                Ok(paired)
            }
            Err(FileError::Refused(TokenError::BadCode)) => {
                let counted = self.known().failures.count(from, Instant::now());
                Err(if counted { AccessError::BadCode } else { AccessError::TooManyFailures })
            }
            Err(FileError::Refused(error)) => Err(AccessError::Name(error)),
            Err(error) => Err(AccessError::File(error)),
        }
    }

    /// Reloads the file if it changed.
    fn look(&self) {
        let stamp = self.file.stamp();
        if stamp == self.known().stamp {
            return;
        }
        let (book, stamp) = match self.file.read() {
            Ok(read) => {
                self.known().last_error.clear();
                read
            }
            // A damaged file grants no access.
            Err(error @ FileError::Damaged { .. }) => {
                tracing::error!(target: ACCESS, %error, "no token is valid");
                (TokenFile::default(), stamp)
            }
            // A temporary error of the disk or the system; the next check retries.
            Err(error) => {
                if self.known().last_error.is_new(&error) {
                    tracing::warn!(target: ACCESS, %error, "cannot read tokens; earlier ones remain valid");
                }
                return;
            }
        };
        let mut known = self.known();
        known.stamp = stamp;
        let changed = known.book.tokens != book.tokens;
        known.book = book;
        if changed {
            let KnownTokens { book, requests, used, .. } = &mut *known;
            let is_known = |hash: &Hash| book.tokens.iter().any(|token| token.hash == *hash);
            requests.retain(|hash, _| is_known(hash));
            used.retain(|hash, _| is_known(hash));
        }
        drop(known);
        if changed {
            tracing::info!(target: ACCESS, "tokens were changed");
            self.changes.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    /// Writes the times of last use if the stored ones are too old.
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

#[cfg(test)]
mod tests;
