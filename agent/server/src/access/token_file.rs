//! The stored tokens and pairing codes, as a value.
//!
//! Only hashes are stored. Tokens and codes are long and random, so a single round of SHA-256 suffices: unlike
//! passwords, they cannot be guessed.

use std::io;

use headroom_protocol::Scope;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::{FileError, NAME_CHARS_MAX, TOKENS_MAX, TokenError};
use headroom_agent_core::random;

/// The number of random bytes of a token and of a code. Codes can be as long as tokens because they are never typed.
const SECRET_BYTES: usize = 32;
/// The lifetime of a pairing code: enough to find the phone.
pub const CODE_TIME_MS: u64 = 10 * 60 * 1000;
/// The maximum number of pairing codes; the oldest is dropped.
const CODES_MAX: usize = 16;
/// The SHA-256 hash of a token or a code.
pub type Hash = [u8; 32];

/// Returns the hash of a token or a code.
pub fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// A paired device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The unique name of the device.
    pub name: String,
    /// The hash of its token.
    #[serde(serialize_with = "write_hash", deserialize_with = "read_hash")]
    pub hash: Hash,
    /// Its permissions.
    pub scope: Scope,
    /// The time of its pairing.
    pub created_ms: u64,
    /// The time of its last request, to about ten minutes; 0 for never.
    #[serde(default)]
    pub last_used_ms: u64,
}

/// A one-time pairing code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    #[serde(serialize_with = "write_hash", deserialize_with = "read_hash")]
    hash: Hash,
    scope: Scope,
    expires_ms: u64,
}

/// A newly created token, which is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct NewToken {
    /// The token in hexadecimal digits.
    pub token: String,
    /// The permissions of the token.
    pub scope: Scope,
    /// The name of the device in lists.
    pub name: String,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `Debug` omits the token, because debug output may end up in a log.
        f.debug_struct("Paired").field("scope", &self.scope).field("name", &self.name).finish_non_exhaustive()
    }
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenFile {
    /// Paired devices, in the order of their pairing.
    pub tokens: Vec<Token>,
    /// Pairing codes, including expired ones.
    #[serde(default)]
    pub codes: Vec<Code>,
    /// The page's URL on this machine, from the last start of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The page's URL for other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_link: Option<String>,
}

impl TokenFile {
    /// Adds a device and returns its token, which is shown only once.
    ///
    /// # Errors
    /// The name is invalid or in use, there are too many tokens, or the system has no random bytes.
    pub fn add(&mut self, name: &str, scope: Scope, now_ms: u64) -> Result<String, FileError> {
        check_name(name)?;
        if self.has(name) {
            return Err(TokenError::NameTaken(name.to_owned()).into());
        }
        if self.tokens.len() >= TOKENS_MAX {
            return Err(TokenError::TooMany.into());
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

    /// Revokes the token of a device.
    ///
    /// # Errors
    /// No device has this name.
    pub fn revoke(&mut self, name: &str) -> Result<(), TokenError> {
        let n = self.tokens.len();
        self.tokens.retain(|token| token.name != name);
        if self.tokens.len() == n { Err(TokenError::NoSuchName(name.to_owned())) } else { Ok(()) }
    }

    /// Creates a pairing code for one device.
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

    /// Exchanges a pairing code for a token, and deletes the code.
    ///
    /// # Errors
    /// The code or the name is invalid, there are too many tokens, or the system has no random bytes.
    pub fn redeem(&mut self, code: &str, name: &str, now_ms: u64) -> Result<NewToken, FileError> {
        self.forget_old(now_ms);
        let Some(i) = self.place_of(code) else { return Err(TokenError::BadCode.into()) };
        let scope = self.codes[i].scope;
        check_name(name)?;
        let name = self.free_name(name);
        let token = self.add(&name, scope, now_ms)?;
        self.codes.remove(i);
        Ok(NewToken { token, scope, name })
    }

    /// Returns whether a code exists.
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

    /// Returns the name, or a similar one if it is in use: two phones of one make have the same default name.
    fn free_name(&self, name: &str) -> String {
        let numbered = |n: usize| {
            let number = format!(" {n}");
            let kept = name.chars().take(NAME_CHARS_MAX - number.len()).collect::<String>();
            kept.trim_end().to_owned() + &number
        };
        let names = std::iter::once(name.to_owned()).chain((2..=TOKENS_MAX + 1).map(numbered));
        // There are more candidate names than tokens.
        names.into_iter().find(|name| !self.has(name)).unwrap_or_else(|| name.to_owned())
    }

    /// Deletes expired codes. A code that expires later than a new one was created before the clock was set back, and
    /// is deleted too.
    fn forget_old(&mut self, now_ms: u64) {
        self.codes.retain(|code| now_ms < code.expires_ms && code.expires_ms - now_ms <= CODE_TIME_MS);
    }
}

fn check_name(name: &str) -> Result<(), TokenError> {
    let n_chars = name.chars().count();
    let seen = !name.chars().any(is_unseen) && name.trim() == name;
    if (1..=NAME_CHARS_MAX).contains(&n_chars) && seen { Ok(()) } else { Err(TokenError::BadName) }
}

/// Returns whether a character is invisible: a control character, or one without a width of its own. Such characters
/// can control a terminal, imitate another name, or reverse the text.
fn is_unseen(char: char) -> bool {
    let is_format = matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    char.is_control() || is_format
}

fn secret() -> Result<String, FileError> {
    random::hex(SECRET_BYTES).map_err(|error: io::Error| FileError::Random(error))
}

/// Writes a hash in hexadecimal digits.
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
        let mut book = TokenFile::default();
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        let mut late = book.clone();
        let paired = book.redeem(&code, "phone", NOW_MS + CODE_TIME_MS - 1).expect("it is good");
        assert_eq!((paired.scope, paired.name.as_str(), paired.token.len()), (Scope::View, "phone", 64));
        assert_eq!(book.tokens[0].hash, hash(&paired.token));
        let bad = |result: Result<NewToken, FileError>| {
            assert!(matches!(result, Err(FileError::Refused(TokenError::BadCode))), "{result:?}");
        };
        bad(book.redeem(&code, "another", NOW_MS));
        bad(late.redeem(&code, "phone", NOW_MS + CODE_TIME_MS));
        bad(TokenFile::default().redeem("", "phone", NOW_MS));
    }

    #[test]
    fn a_clock_set_back_makes_no_code_live_longer() {
        let mut book = TokenFile::default();
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        book.redeem(&code, "phone", NOW_MS - 1).expect_err("the clock was set back");
    }

    #[test]
    fn a_name_that_cannot_be_uses_no_code_up() {
        let mut book = TokenFile::default();
        let code = book.new_code(Scope::Control, NOW_MS).expect("a code");
        for name in
            ["", " phone", "pho\nne", "\u{1b}[31m", "pho\u{200b}ne", "\u{202e}enohp", &"x".repeat(NAME_CHARS_MAX + 1)]
        {
            let error = book.redeem(&code, name, NOW_MS).expect_err(name);
            assert!(matches!(error, FileError::Refused(TokenError::BadName)), "{error}");
        }
        book.redeem(&code, "电话", NOW_MS).expect("it is still good");
    }

    #[test]
    fn two_devices_of_one_name_are_distinguished() {
        let mut book = TokenFile::default();
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
        assert_eq!(book.revoke("phone 2"), Err(TokenError::NoSuchName("phone 2".to_owned())));
    }

    #[test]
    fn codes_and_tokens_are_bounded() {
        let mut book = TokenFile::default();
        let first = book.new_code(Scope::View, NOW_MS).expect("a code");
        for _ in 0..CODES_MAX {
            book.new_code(Scope::View, NOW_MS).expect("a code");
        }
        assert_eq!(book.codes.len(), CODES_MAX);
        book.redeem(&first, "phone", NOW_MS).expect_err("the oldest code was removed");
        for i in 0..TOKENS_MAX {
            book.add(&i.to_string(), Scope::View, NOW_MS).expect("there is room");
        }
        let error = book.add("one more", Scope::View, NOW_MS).expect_err("the file is full");
        assert!(matches!(error, FileError::Refused(TokenError::TooMany)));
    }

    #[test]
    fn no_secret_is_kept_or_printed() {
        let mut book = TokenFile::default();
        let code = book.new_code(Scope::View, NOW_MS).expect("a code");
        let token = book.add("laptop", Scope::Control, NOW_MS).expect("a token");
        let text = serde_json::to_string(&book).expect("JSON");
        assert!(!text.contains(&code) && !text.contains(&token), "{text}");
        assert_eq!(serde_json::from_str::<TokenFile>(&text).expect("a book"), book);
        let paired = book.redeem(&code, "phone", NOW_MS).expect("paired");
        assert!(!format!("{paired:?}").contains(&paired.token));
    }
}
