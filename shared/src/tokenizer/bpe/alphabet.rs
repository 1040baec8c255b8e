//! The characters that stand for bytes where a vocabulary is written: encoder.py's `bytes_to_unicode`.
//!
//! A byte that Latin-1 prints is its own character. The other 68 are the characters from U+0100 on, in order, so that no
//! token holds a blank or a control character.

/// The bytes that are not printed: up to the blank, from DEL to the no-break space, and the soft hyphen.
const N_LOW: u8 = 0x21;
const MIDDLE: u8 = 0x7f;
const N_MIDDLE: u8 = 0x22;
const SOFT_HYPHEN: u8 = 0xad;
/// The character of the first of them.
const FIRST: u32 = 0x100;

/// The character that a byte is written as in GPT-2's vocabulary and merges.
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

/// The byte that a character stands for.
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
    // What has another character is not meant by its own, and beyond the last of them there are none.
    (byte_char(byte) == char).then_some(byte)
}

/// The bytes that a token's characters stand for; `None` where one of them stands for none.
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
        // As GPT-2's files have them.
        assert_eq!(b"\n !\x7f\xa0\xa1\xad\xff".map(byte_char), ['Ċ', 'Ġ', '!', 'ġ', 'ł', '¡', 'Ń', 'ÿ']);
        let n_known = (char::MIN..=char::MAX).filter(|char| char_byte(*char).is_some()).count();
        assert_eq!(n_known, 256);
        assert_eq!((bytes_of("Ġé"), bytes_of("a b")), (Some(vec![b' ', 0xe9]), None));
    }
}
