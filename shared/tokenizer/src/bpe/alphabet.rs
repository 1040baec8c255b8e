//! Characters that represent bytes in a vocabulary file: encoder.py's `bytes_to_unicode`.
//!
//! A printable Latin-1 byte is represented by its own character. The other 68 are represented by the characters from
//! U+0100 on, in order, so that no token contains a blank or a control character.

/// Non-printable bytes: up to the blank, from DEL to the no-break space, and the soft hyphen.
const N_LOW: u8 = 0x21;
const MIDDLE: u8 = 0x7f;
const N_MIDDLE: u8 = 0x22;
const SOFT_HYPHEN: u8 = 0xad;
/// Character of the first non-printable byte.
const FIRST: u32 = 0x100;

/// Returns the character that represents a byte in GPT-2's vocabulary and merges.
#[must_use]
pub fn byte_char(byte: u8) -> char {
    let index = match byte {
        _ if byte < N_LOW => byte,
        _ if (MIDDLE..MIDDLE + N_MIDDLE).contains(&byte) => byte - MIDDLE + N_LOW,
        SOFT_HYPHEN => N_LOW + N_MIDDLE,
        _ => return char::from(byte),
    };
    char::from_u32(FIRST + u32::from(index)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the byte that a character represents.
fn char_byte(char: char) -> Option<u8> {
    let code = u32::from(char);
    let byte = match u8::try_from(code) {
        Ok(byte) => byte,
        Err(_) => match u8::try_from(code - FIRST).ok()? {
            index if index < N_LOW => index,
            index if index < N_LOW + N_MIDDLE => index - N_LOW + MIDDLE,
            _ => SOFT_HYPHEN,
        },
    };
    // The check excludes the characters of non-printable bytes, and those after the last one.
    (byte_char(byte) == char).then_some(byte)
}

/// Returns the bytes that a token's characters represent, or `None` if one of them is invalid.
pub(super) fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(char_byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_a_character_of_its_own() {
        for byte in 0..=u8::MAX {
            assert_eq!(char_byte(byte_char(byte)), Some(byte));
        }
        // As in GPT-2's files.
        assert_eq!(b"\n !\x7f\xa0\xa1\xad\xff".map(byte_char), ['Ċ', 'Ġ', '!', 'ġ', 'ł', '¡', 'Ń', 'ÿ']);
        let n_known = (char::MIN..=char::MAX).filter(|char| char_byte(*char).is_some()).count();
        assert_eq!(n_known, 256);
        assert_eq!((bytes_of("Ġé"), bytes_of("a b")), (Some(vec![b' ', 0xe9]), None));
    }
}
