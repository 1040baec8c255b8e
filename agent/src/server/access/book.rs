//! What is kept of tokens and codes, as a value: who was let in, and which links are still good.
//!
//! Only hashes are kept. What is hashed is random and long, so that one round of SHA-256 is enough: there is nothing to
//! guess, unlike in a password.

use std::io;

use headroom_shared::protocol::Scope;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::file::FileError;
use crate::random;

/// Random bytes of a token and of a code. A code is as long although it lives for minutes: it is never typed.
const SECRET_BYTES: usize = 32;
/// How long a link for pairing is good: as long as it takes to find the phone.
pub const CODE_TIME_MS: u64 = 10 * 60 * 1000;
/// Devices at most. Every one is compared with every token that comes.
pub const TOKENS_MAX: usize = 256;
/// Links for pairing at once; the oldest goes.
const CODES_MAX: usize = 16;
/// Characters of a device's name.
pub const NAME_CHARS_MAX: usize = 64;

/// SHA-256 of a token or a code.
pub type Hash = [u8; 32];

/// The hash of what somebody sent.
pub fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// A device that was let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Unique.
    pub name: String,
    /// Of its token.
    #[serde(serialize_with = "write_hash", deserialize_with = "read_hash")]
    pub hash: Hash,
    /// What it may do.
    pub scope: Scope,
    /// When it was let in.
    pub created_ms: u64,
    /// When it was last here, to about ten minutes; 0 for never.
    #[serde(default)]
    pub last_used_ms: u64,
}

/// A link that a device can be paired by, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    #[serde(serialize_with = "write_hash", deserialize_with = "read_hash")]
    hash: Hash,
    scope: Scope,
    expires_ms: u64,
}

/// A device's token, which is told this once.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Paired {
    /// In hexadecimal digits.
    pub token: String,
    /// What it may do.
    pub scope: Scope,
    /// What the device is called in lists.
    pub name: String,
}

impl std::fmt::Debug for Paired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What is printed of a value ends in a log one day.
        f.debug_struct("Paired").field("scope", &self.scope).field("name", &self.name).finish_non_exhaustive()
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    /// Devices, in the order they came.
    pub tokens: Vec<Token>,
    /// Links that are still good, or were.
    #[serde(default)]
    pub codes: Vec<Code>,
    /// Where the agent that last started has its page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// And where other machines find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_link: Option<String>,
}

/// Why something is not done.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum BookError {
    /// Empty, too long, or with characters that are not seen.
    #[error("a device's name has 1 to {NAME_CHARS_MAX} characters, and none that are not seen")]
    BadName,
    /// There is one already.
    #[error("there is a token named {0:?} already")]
    NameTaken(String),
    /// None is called so.
    #[error("there is no token named {0:?}")]
    NoSuchName(String),
    /// There are too many.
    #[error("there are {TOKENS_MAX} tokens, and no more are kept; `headroom token revoke NAME` makes room")]
    TooMany,
    /// Unknown, used, or too old.
    #[error("the code is unknown, used, or too old")]
    BadCode,
}

impl Book {
    /// Lets a device in: its token, which is told this once.
    ///
    /// # Errors
    /// The name cannot be or is taken, there are too many, or the system has no random bytes.
    pub fn add(&mut self, name: &str, scope: Scope, now_ms: u64) -> Result<String, FileError> {
        check_name(name)?;
        if self.has(name) {
            return Err(BookError::NameTaken(name.to_owned()).into());
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(BookError::TooMany.into());
        }
        let token = secret()?;
        self.tokens.push(Token {
            name: name.to_owned(),
            hash: hash(&token),
            scope,
            created_ms: now_ms,
            last_used_ms: 0,
        });
        Ok(token)
    }

    /// Takes a device's token away.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn revoke(&mut self, name: &str) -> Result<(), BookError> {
        let n = self.tokens.len();
        self.tokens.retain(|token| token.name != name);
        if self.tokens.len() == n { Err(BookError::NoSuchName(name.to_owned())) } else { Ok(()) }
    }

    /// A code for one device.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new_code(&mut self, scope: Scope, now_ms: u64) -> Result<String, FileError> {
        self.forget_old(now_ms);
        if self.codes.len() >= CODES_MAX {
            self.codes.remove(0);
        }
        let code = secret()?;
        self.codes.push(Code { hash: hash(&code), scope, expires_ms: now_ms.saturating_add(CODE_TIME_MS) });
        Ok(code)
    }

    /// Gives a device a token for its code, which is of no use then.
    ///
    /// # Errors
    /// The code is not good, the name cannot be, there are too many, or the system has no random bytes.
    pub fn redeem(&mut self, code: &str, name: &str, now_ms: u64) -> Result<Paired, FileError> {
        self.forget_old(now_ms);
        let Some(i) = self.place_of(code) else { return Err(BookError::BadCode.into()) };
        let scope = self.codes[i].scope;
        check_name(name)?;
        let name = self.free_name(name);
        let token = self.add(&name, scope, now_ms)?;
        self.codes.remove(i);
        Ok(Paired { token, scope, name })
    }

    /// Whether a code was given out, and is not forgotten yet.
    pub fn has_code(&self, code: &str) -> bool {
        self.place_of(code).is_some()
    }

    fn place_of(&self, code: &str) -> Option<usize> {
        let given = hash(code);
        let codes = self.codes.iter().enumerate();
        codes.fold(None, |found, (i, code)| if bool::from(code.hash.ct_eq(&given)) { Some(i) } else { found })
    }

    fn has(&self, name: &str) -> bool {
        self.tokens.iter().any(|token| token.name == name)
    }

    /// The name, or one like it: two phones of one make call themselves alike.
    fn free_name(&self, name: &str) -> String {
        let numbered = |n: usize| {
            let number = format!(" {n}");
            let kept = name.chars().take(NAME_CHARS_MAX - number.len()).collect::<String>();
            kept.trim_end().to_owned() + &number
        };
        let names = std::iter::once(name.to_owned()).chain((2..=TOKENS_MAX + 1).map(numbered));
        // There are more of them than tokens.
        names.into_iter().find(|name| !self.has(name)).unwrap_or_else(|| name.to_owned())
    }

    /// A clock that was set back would make codes live on: what expires later than a new one would is old too.
    fn forget_old(&mut self, now_ms: u64) {
        self.codes.retain(|code| now_ms < code.expires_ms && code.expires_ms - now_ms <= CODE_TIME_MS);
    }
}

fn check_name(name: &str) -> Result<(), BookError> {
    let n_chars = name.chars().count();
    let seen = !name.chars().any(is_unseen) && name.trim() == name;
    if (1..=NAME_CHARS_MAX).contains(&n_chars) && seen { Ok(()) } else { Err(BookError::BadName) }
}

/// What a terminal acts upon, and what makes a name look like another one or run backwards: control characters, and those
/// without a width of their own.
fn is_unseen(char: char) -> bool {
    let is_format = matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    char.is_control() || is_format
}

fn secret() -> Result<String, FileError> {
    random::hex(SECRET_BYTES).map_err(|error: io::Error| FileError::Random(error))
}

/// In hexadecimal digits.
fn write_hash<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn read_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let well_formed = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = (0..32).map(|i| digits(2 * i)).collect();
    let hash = bytes.filter(|_| well_formed).and_then(|bytes| bytes.try_into().ok());
    hash.ok_or_else(|| de::Error::custom("a hash has 64 hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_000_000_000;

    #[test]
    fn a_code_is_good_once_and_for_ten_minutes() {
        let mut book = Book::default();
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        let mut late = book.clone();
        let paired = book.redeem(&code, "phone", NOW_MS + CODE_TIME_MS - 1).expect("it is good");
        assert_eq!((paired.scope, paired.name.as_str(), paired.token.len()), (Scope::View, "phone", 64));
        assert_eq!(book.tokens[0].hash, hash(&paired.token));
        let bad = |result: Result<Paired, FileError>| {
            assert!(matches!(result, Err(FileError::Refused(BookError::BadCode))), "{result:?}");
        };
        bad(book.redeem(&code, "another", NOW_MS));
        bad(late.redeem(&code, "phone", NOW_MS + CODE_TIME_MS));
        bad(Book::default().redeem("", "phone", NOW_MS));
    }

    #[test]
    fn a_clock_set_back_makes_no_code_live_longer() {
        let mut book = Book::default();
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        book.redeem(&code, "phone", NOW_MS - 1).expect_err("it would live longer than any");
    }

    #[test]
    fn a_name_that_cannot_be_uses_no_code_up() {
        let mut book = Book::default();
        let code = book.new_code(Scope::Control, NOW_MS).expect("a code");
        for name in
            ["", " phone", "pho\nne", "\u{1b}[31m", "pho\u{200b}ne", "\u{202e}enohp", &"x".repeat(NAME_CHARS_MAX + 1)]
        {
            let error = book.redeem(&code, name, NOW_MS).expect_err(name);
            assert!(matches!(error, FileError::Refused(BookError::BadName)), "{error}");
        }
        book.redeem(&code, "电话", NOW_MS).expect("it is still good");
    }

    #[test]
    fn two_devices_of_one_name_are_told_apart() {
        let mut book = Book::default();
        let long = "x".repeat(NAME_CHARS_MAX);
        for (name, kept) in [("phone", "phone"), ("phone", "phone 2"), ("phone", "phone 3"), (&long, &long)] {
            let code = book.new_code(Scope::View, NOW_MS).expect("a code");
            assert_eq!(book.redeem(&code, name, NOW_MS).expect("paired").name, kept);
        }
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        let name = book.redeem(&code, &long, NOW_MS).expect("paired").name;
        assert_eq!((name.chars().count(), name.ends_with("x 2")), (NAME_CHARS_MAX, true));
        let error = book.add("phone", Scope::View, NOW_MS).expect_err("it is there");
        assert_eq!(error.to_string(), "there is a token named \"phone\" already");
        book.revoke("phone 2").expect("it is there");
        assert_eq!(book.revoke("phone 2"), Err(BookError::NoSuchName("phone 2".to_owned())));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut book = Book::default();
        let first = book.new_code(Scope::View, NOW_MS).expect("a code");
        for _ in 0..CODES_MAX {
            book.new_code(Scope::View, NOW_MS).expect("a code");
        }
        assert_eq!(book.codes.len(), CODES_MAX);
        book.redeem(&first, "phone", NOW_MS).expect_err("the oldest went");
        for i in 0..TOKENS_MAX {
            book.add(&i.to_string(), Scope::View, NOW_MS).expect("there is room");
        }
        let error = book.add("one more", Scope::View, NOW_MS).expect_err("there is none");
        assert!(matches!(error, FileError::Refused(BookError::TooMany)));
    }

    #[test]
    fn no_secret_is_kept_or_printed() {
        let mut book = Book::default();
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        let token = book.add("laptop", Scope::Control, NOW_MS).expect("a token");
        let text = serde_json::to_string(&book).expect("JSON");
        assert!(!text.contains(&code) && !text.contains(&token), "{text}");
        assert_eq!(serde_json::from_str::<Book>(&text).expect("a book"), book);
        let paired = book.redeem(&code, "phone", NOW_MS).expect("paired");
        assert!(!format!("{paired:?}").contains(&paired.token));
    }
}
