//! Errors of access: of a request, of a change of the tokens, and of their file.

use std::{io, path::PathBuf};

use headroom_text::{self as text, Text};
use thiserror::Error;

/// The maximum number of tokens. Each request is compared with all of them.
pub const TOKENS_MAX: usize = 256;
/// The maximum length of a device's name in characters.
pub const NAME_CHARS_MAX: usize = 64;

/// The reason why access is refused.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum AccessError {
    /// The token is unknown or revoked.
    BadToken,
    /// Too many failed attempts.
    TooManyFailures,
    /// Too many requests.
    TooManyRequests,
    /// The code is unknown, used, or expired.
    BadCode,
    /// The device's name is invalid.
    Name(TokenError),
    /// The file cannot be read or written.
    File(FileError),
}

impl AccessError {
    /// Returns the message of the error.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::BadToken => text::BAD_TOKEN.into(),
            Self::TooManyFailures => text::TOO_MANY_FAILURES.into(),
            Self::TooManyRequests => text::TOO_MANY_REQUESTS.into(),
            Self::BadCode => text::BAD_CODE.into(),
            Self::Name(error) => text::as_is(error.to_string()),
            Self::File(error) => text::as_is(format!("Tokens cannot be kept: {error}")),
        }
    }
}

impl From<io::Error> for AccessError {
    fn from(error: io::Error) -> Self {
        Self::File(FileError::Random(error))
    }
}

/// The reason why a change is refused.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// A name that is empty, too long, or has invisible characters.
    #[error("a device's name has 1 to {NAME_CHARS_MAX} characters, and none that are not seen")]
    BadName,
    /// A name that is in use.
    #[error("there is a token named {0:?} already")]
    NameTaken(String),
    /// A name that no token has.
    #[error("there is no token named {0:?}")]
    NoSuchName(String),
    /// Too many tokens.
    #[error("there are {TOKENS_MAX} tokens, and no more are kept; `headroom token revoke NAME` makes room")]
    TooMany,
    /// A code that is unknown, used, or expired.
    #[error("the code is unknown, used, or too old")]
    BadCode,
}

/// The reason why tokens cannot be read or changed.
#[derive(Debug, Error)]
pub enum FileError {
    /// The change is refused.
    #[error(transparent)]
    Refused(#[from] TokenError),
    /// An I/O error.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is damaged.
    #[error("{} is damaged, or of a later version: {why}", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The position and kind of the damage.
        why: String,
    },
    /// Another program holds the lock.
    #[error("{} is held by another program", path.display())]
    Busy {
        /// The path of the lock file.
        path: PathBuf,
    },
    /// The system has no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(io::Error),
}

impl FileError {
    /// Returns a suggestion to resolve the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused(TokenError::NameTaken(name)) => {
                Some(format!("`headroom token revoke {name:?}` takes that one away"))
            }
            Self::Refused(TokenError::NoSuchName(_)) => Some("`headroom token list` has their names".to_owned()),
            Self::Damaged { path, .. } => Some(format!(
                "move {} away: headroom begins a new one, and every device has to be paired again",
                path.display()
            )),
            Self::Busy { .. } => Some("try again; a `headroom` that hangs holds it".to_owned()),
            Self::Refused(_) | Self::Io { .. } | Self::Random(_) => None,
        }
    }
}
