//! Parsing of figures in squeezed text (`reader`): lower case, ASCII only, without blanks.
//!
//! Every unit is a power of 1024. PyTorch's `format_size`, Metal's allocator (which prints GB), XLA and TensorFlow
//! (which print G) and numpy all divide by 1024.

use super::message::Size;

/// A parsed figure and its length in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    /// The size; `None` if it exceeds `u64`.
    pub size: Option<Size>,
    /// Length in bytes of squeezed text.
    pub len: usize,
}

/// Units and their exponents, longest first, because squeezing joins a unit with the next word.
const UNITS: [(&[u8], u32); 13] = [
    (b"bytes", 0),
    (b"byte", 0),
    (b"kib", 10),
    (b"mib", 20),
    (b"gib", 30),
    (b"tib", 40),
    (b"kb", 10),
    (b"mb", 20),
    (b"gb", 30),
    (b"tb", 40),
    (b"k", 10),
    (b"m", 20),
    (b"g", 30),
];

/// Maximum number of decimals read: more than any program prints, and few enough for `u64`.
const MAX_DECIMALS: usize = 6;

/// Parses the size at the start of `text`. Returns `None` without digits or without a unit, as when the text is cut
/// inside a figure.
pub(super) fn size(text: &[u8]) -> Option<Figure> {
    let mut at = 0;
    let mut whole: Option<u64> = Some(0);
    while let Some(&c) = text.get(at) {
        // 1,024 is one number. A comma that no group of three digits follows ends the number.
        let in_number = c.is_ascii_digit() || (c == b',' && at > 0 && n_digits(&text[at + 1..]) == 3);
        if !in_number {
            break;
        }
        if c != b',' {
            whole = whole.and_then(|n| n.checked_mul(10)?.checked_add(u64::from(c - b'0')));
        }
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let (mut decimals, mut scale) = (0_u64, 1_u64);
    if text.get(at) == Some(&b'.') {
        let n = n_digits(&text[at + 1..]);
        for &c in &text[at + 1..at + 1 + n.min(MAX_DECIMALS)] {
            decimals = decimals * 10 + u64::from(c - b'0');
            scale *= 10;
        }
        at += 1 + n;
    }
    let rest = &text[at..];
    let (len, shift) = match UNITS.iter().find(|(unit, _)| rest.starts_with(unit)) {
        Some((unit, shift)) => (unit.len(), *shift),
        None if rest.first() == Some(&b'b') && !rest.get(1).is_some_and(u8::is_ascii_alphabetic) => (1, 0),
        None => return None,
    };
    let unit = 1_u64 << shift;
    let bytes = whole.and_then(|n| n.checked_mul(unit)?.checked_add((decimals * unit + scale / 2) / scale));
    let size = bytes.map(|bytes| Size { bytes, resolution_bytes: unit.div_ceil(scale) });
    Some(Figure { size, len: at + len })
}

fn n_digits(text: &[u8]) -> usize {
    text.iter().take_while(|c| c.is_ascii_digit()).count()
}

/// Parses the whole number at the start of `text`. Returns `None` without digits or if it exceeds `u64`.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = &text[..n_digits(text)];
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |n, c| n.checked_mul(10)?.checked_add(u64::from(c - b'0')))
}

/// Parses the number at the start of `text` as a GPU index or a rank.
pub(super) fn index(text: &[u8]) -> Option<u32> {
    number(text).and_then(|n| u32::try_from(n).ok())
}

/// Returns the offset of the first `needle`.
pub(super) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    // Comparing the first byte rejects most positions without a call.
    (0..text.len()).find(|at| text[*at] == needle[0] && text[*at..].starts_with(needle))
}

/// Returns the text after the first `needle`.
pub(super) fn after<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    find(text, needle).map(|at| &text[at + needle.len()..])
}

/// Element sizes in bytes, by numpy's and TensorFlow's type names.
const ELEMENTS: [(&[u8], u64); 16] = [
    (b"float64", 8),
    (b"float32", 4),
    (b"float16", 2),
    (b"bfloat16", 2),
    (b"half", 2),
    (b"double", 8),
    (b"float", 4),
    (b"complex128", 16),
    (b"complex64", 8),
    (b"int64", 8),
    (b"int32", 4),
    (b"int16", 2),
    (b"int8", 1),
    (b"uint8", 1),
    (b"uint16", 2),
    (b"bool", 1),
];

/// Computes the size in bytes of the tensor described by `shape[1,12]andtypefloat` or `shape(1,12)anddatatypefloat32`.
pub(super) fn shaped(text: &[u8]) -> Option<Size> {
    let mut rest = after(text, b"shape")?.get(1..)?;
    let mut bytes = 1_u64;
    loop {
        match rest.first()? {
            b']' | b')' => break,
            b',' => rest = &rest[1..],
            _ => {
                bytes = bytes.checked_mul(number(rest)?)?;
                rest = &rest[n_digits(rest)..];
            }
        }
    }
    let name = after(rest, b"type")?;
    let (_, element) = ELEMENTS.iter().find(|(element, _)| name.starts_with(element))?;
    Some(Size { bytes: bytes.checked_mul(*element)?, resolution_bytes: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_text::units::{GIB, MIB};

    #[test]
    fn sizes_as_they_are_printed() {
        for (text, bytes, resolution_bytes) in [
            ("6.14gibofwhich", 6_592_774_799, 10_737_419),
            ("1024bytes", 1024, 1),
            ("0bytesfree", 0, 1),
            ("1,024bytes", 1024, 1),
            ("15923675136b)", 15_923_675_136, 1),
            ("58.0gibforanarray", 58 * GIB, 107_374_183),
            ("201.gibforanarray", 201 * GIB, GIB),
            ("378.60m(396990720bytes)", 396_990_874, 10_486),
            ("1024.00mb", GIB, 10_486),
            ("179.00kibcached)", 183_296, 11),
            ("17179869183.00gib", 18_446_744_072_635_809_792, 10_737_419),
        ] {
            let figure = size(text.as_bytes()).expect(text);
            assert_eq!(figure.size, Some(Size { bytes, resolution_bytes }), "{text}");
        }
        assert_eq!(size(b"17179869184.00gib").map(|figure| figure.size), Some(None));
        assert_eq!(size(b"999999999999999999999999bytes").map(|figure| figure.size), Some(None));
        for text in ["", "gib", "12", "12.", "12.5", "12parsecs", "-1gib", "12bananas"] {
            assert_eq!(size(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn shapes() {
        for (text, bytes) in [
            ("shape[1,12,1024,1024]andtypefloaton/job", Some(48 * MIB)),
            ("shape[]andtypefloat", Some(4)),
            ("shape(176351,176460)anddatatypeuint16", Some(62_237_794_920)),
            ("shape[4,8]andtypestring", None),
            ("shape[99999999999,99999999999]andtypefloat", None),
            ("shape[4,", None),
        ] {
            assert_eq!(shaped(text.as_bytes()).map(|size| size.bytes), bytes, "{text}");
        }
    }
}
