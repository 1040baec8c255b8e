//! Percent-encoding. The crate `percent-encoding` makes the calculator's first load 470 bytes larger.

/// Appends a text to a link. Letters, digits and `-_.~/` stay as they are.
pub(super) fn percent_encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            for nibble in [byte >> 4, byte & 15] {
                into.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
}

/// Decodes a part of a link. A `+` is a space, as in forms, and invalid UTF-8 is replaced.
pub(super) fn percent_decode(text: &str) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = (bytes[at] == b'%').then(|| Some((hex(*bytes.get(at + 1)?)?, hex(*bytes.get(at + 2)?)?)));
        match pair.flatten() {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
