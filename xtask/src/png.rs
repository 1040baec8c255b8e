//! PNG files: the size in the header, and text chunks.

mod compact;

pub use compact::compact;
use flate2::Crc;

/// First bytes of every PNG file.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Bytes of a chunk's length and type, before its data.
const CHUNK_HEAD_BYTES: usize = 8;
/// Bytes of a chunk beside its data: the head and the checksum.
const CHUNK_FRAME_BYTES: usize = CHUNK_HEAD_BYTES + 4;

/// Returns width and height in pixels; `None` if the bytes are not a PNG file.
pub fn size(png: &[u8]) -> Option<[u32; 2]> {
    let (kind, data) = chunks(png).next()?;
    let number = |at: usize| Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?));
    (kind == b"IHDR").then_some(())?;
    Some([number(0)?, number(4)?])
}

/// Returns a PNG file with a text chunk after its header; `None` if the bytes are not a PNG file.
pub fn with_text(png: &[u8], keyword: &str, text: &str) -> Option<Vec<u8>> {
    let (_, header) = chunks(png).next()?;
    let (before, after) = png.split_at(SIGNATURE.len() + CHUNK_FRAME_BYTES + header.len());
    let mut out = before.to_vec();
    push_chunk(&mut out, *b"tEXt", &[keyword.as_bytes(), text.as_bytes()].join(&0))?;
    out.extend(after);
    Some(out)
}

/// Appends a chunk; `None` if the data is too long.
fn push_chunk(png: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) -> Option<()> {
    png.extend(u32::try_from(data.len()).ok()?.to_be_bytes());
    let start = png.len();
    png.extend(kind);
    png.extend(data);
    let mut crc = Crc::new();
    crc.update(&png[start..]);
    png.extend(crc.sum().to_be_bytes());
    Some(())
}

/// Returns the text of the first text chunk with this keyword.
#[cfg(test)]
pub fn text<'a>(png: &'a [u8], keyword: &str) -> Option<&'a str> {
    let texts = chunks(png).filter(|(kind, _)| *kind == b"tEXt");
    let mut values = texts.filter_map(|(_, data)| data.strip_prefix(keyword.as_bytes())?.strip_prefix(b"\0"));
    std::str::from_utf8(values.next()?).ok()
}

/// Returns the type and the data of each chunk, up to the first incomplete one.
fn chunks(png: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = png.strip_prefix(SIGNATURE).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        let end = CHUNK_HEAD_BYTES.checked_add(usize::try_from(length).ok()?)?;
        let (kind, data) = (rest.get(4..CHUNK_HEAD_BYTES)?, rest.get(CHUNK_HEAD_BYTES..end)?);
        rest = rest.get(end + 4..)?;
        Some((kind, data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grey pixel.
    const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x02\x08\0\0\0\0\xbc\x0f\xed\x12\
                           \0\0\0\0IEND\xae\x42\x60\x82";

    #[test]
    fn size_is_read_from_the_header() {
        assert_eq!(size(PIXEL), Some([1, 2]));
        for cut in [0, 7, 12, 20, 30] {
            assert_eq!(size(&PIXEL[..cut]), None, "{cut}");
        }
        assert_eq!(size(b"GIF89a"), None);
    }

    #[test]
    fn a_text_is_found_by_its_keyword() {
        let png = with_text(PIXEL, "Source", "ab").expect("a PNG file");
        assert_eq!((size(&png), text(&png, "Source")), (Some([1, 2]), Some("ab")));
        assert_eq!((text(&png, "Sour"), text(PIXEL, "Source")), (None, None));
        // The checksum of the chunk, as zlib computes it.
        assert_eq!(png[PIXEL.len() - 12 + 8 + 9..][..4], 0x57b8_452f_u32.to_be_bytes(), "{png:x?}");
        assert_eq!(with_text(b"GIF89a", "Source", "ab"), None);
    }
}
