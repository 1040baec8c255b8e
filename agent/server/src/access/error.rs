//! Errors of the tokens and of their file.

use std::{io, path::PathBuf};

use thiserror::Error;

/// The maximum number of tokens. Each request is compared with all of them.
pub const TOKENS_MAX: usize = 256;
/// The maximum length of a device's name in characters.
pub const NAME_CHARS_MAX: usize = 64;

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
