//! Makes PNG files of drawings small: at most 256 colours, and no filters, which help photographs.

use super::{SIGNATURE, chunks, push_chunk};
use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use std::{
    collections::HashMap,
    io::{Read, Write},
};

/// Colours of a palette.
const COLOURS_MAX: usize = 256;
/// Types of chunks in the order of the file.
const KINDS: [&[u8; 4]; 4] = [b"IHDR", b"PLTE", b"IDAT", b"IEND"];

type Colour = [u8; 3];

/// Returns the same image with the 256 most frequent colours; others become the nearest of them. Transparency is lost.
/// `None` if the file is not a PNG file as Chromium writes it: 8 bits per channel, not interlaced.
pub fn compact(png: &[u8]) -> Option<Vec<u8>> {
    let (kind, header) = chunks(png).next()?;
    let &[_, _, _, _, _, _, _, _, 8, colour_type, 0, 0, 0] = header else { return None };
    let channels = match colour_type {
        2 => 3,
        6 => 4,
        _ => return None,
    };
    let [width, height] = super::size(png).filter(|_| kind == KINDS[0])?.map(|edge| edge as usize);
    let packed: Vec<u8> =
        chunks(png).filter(|(kind, _)| *kind == KINDS[2]).flat_map(|(_, data)| data).copied().collect();
    let mut filtered = Vec::new();
    ZlibDecoder::new(&*packed).read_to_end(&mut filtered).ok()?;
    let rows = unfiltered(&filtered, width * channels, height, channels)?;
    let pixels = rows.chunks_exact(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]);
    let palette = palette(pixels.clone());
    let mut indices = HashMap::new();
    let indexed: Vec<u8> =
        pixels.map(|colour| *indices.entry(colour).or_insert_with(|| nearest(&palette, colour))).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for row in indexed.chunks_exact(width) {
        encoder.write_all(&[0]).and_then(|()| encoder.write_all(row)).ok()?;
    }
    let indexed_header = [&header[..9], &[3, 0, 0, 0]].concat();
    let mut out = SIGNATURE.to_vec();
    for (kind, data) in KINDS.into_iter().zip([indexed_header, palette.concat(), encoder.finish().ok()?, Vec::new()]) {
        push_chunk(&mut out, *kind, &data)?;
    }
    Some(out)
}

/// Returns the bytes of the rows without their filters. `stride` is a row's length, `channels` that of a pixel.
fn unfiltered(filtered: &[u8], stride: usize, height: usize, channels: usize) -> Option<Vec<u8>> {
    if stride == 0 || filtered.len() != (stride + 1) * height {
        return None;
    }
    let mut rows: Vec<u8> = Vec::with_capacity(stride * height);
    for row in filtered.chunks_exact(stride + 1) {
        let start = rows.len();
        for (at, byte) in row[1..].iter().enumerate() {
            let is_first = at < channels;
            let left = if is_first { 0 } else { rows[start + at - channels] };
            let up = if start == 0 { 0 } else { rows[start + at - stride] };
            let diagonal = if is_first || start == 0 { 0 } else { rows[start + at - stride - channels] };
            let predicted = match row[0] {
                0 => 0,
                1 => left,
                2 => up,
                3 => left.midpoint(up),
                4 => paeth(left, up, diagonal),
                _ => return None,
            };
            rows.push(byte.wrapping_add(predicted));
        }
    }
    Some(rows)
}

/// Paeth's predictor: the neighbour that is nearest to `left + up - diagonal`.
fn paeth(left: u8, up: u8, diagonal: u8) -> u8 {
    let [a, b, c] = [left, up, diagonal].map(i32::from);
    let distance = |of: i32| (a + b - c - of).abs();
    if distance(a) <= distance(b) && distance(a) <= distance(c) {
        left
    } else if distance(b) <= distance(c) {
        up
    } else {
        diagonal
    }
}

/// Returns the most frequent colours, the most frequent first.
fn palette(pixels: impl Iterator<Item = Colour>) -> Vec<Colour> {
    let mut counts: HashMap<Colour, usize> = HashMap::new();
    for colour in pixels {
        *counts.entry(colour).or_default() += 1;
    }
    let mut all: Vec<(Colour, usize)> = counts.into_iter().collect();
    // The colours of equal counts are ordered too, so that an image always has the same bytes.
    all.sort_unstable_by_key(|(colour, count)| (std::cmp::Reverse(*count), *colour));
    all.into_iter().take(COLOURS_MAX).map(|(colour, _)| colour).collect()
}

/// Returns the index of the nearest colour of a palette.
fn nearest(palette: &[Colour], colour: Colour) -> u8 {
    let distance =
        |other: &Colour| -> u32 { other.iter().zip(colour).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum() };
    let found = palette.iter().enumerate().min_by_key(|(_, other)| distance(other));
    u8::try_from(found.map_or(0, |(index, _)| index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_undone() {
        // Rows of one pixel with three channels and of two pixels with one channel.
        let rows = [0, 1, 2, 3, 4].map(|filter| unfiltered(&[0, 10, 20, filter, 5, 7], 2, 2, 1));
        let expected: [[u8; 4]; 5] =
            [[10, 20, 5, 7], [10, 20, 5, 12], [10, 20, 15, 27], [10, 20, 10, 22], [10, 20, 15, 27]];
        assert_eq!(rows, expected.map(|row| Some(row.to_vec())));
        assert_eq!(unfiltered(&[5, 1, 2], 2, 1, 1), None, "an unknown filter");
        assert_eq!(unfiltered(&[0, 1], 2, 1, 1), None, "too short");
    }

    #[test]
    fn rare_colours_become_the_nearest_frequent_one() {
        let mut pixels: Vec<Colour> = (0..=255).flat_map(|red| [[red, 0, 0]; 2]).collect();
        pixels.push([7, 1, 0]);
        let palette = palette(pixels.into_iter());
        assert_eq!(palette.len(), COLOURS_MAX);
        assert_eq!(palette[usize::from(nearest(&palette, [7, 1, 0]))], [7, 0, 0]);
    }

    #[test]
    fn an_image_keeps_its_pixels() {
        let raw = [0, 1, 2, 3, 4, 5, 6, 1, 1, 2, 3, 0, 0, 0];
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&raw).expect("memory");
        let header = [0, 0, 0, 2, 0, 0, 0, 2, 8, 2, 0, 0, 0];
        let mut png = SIGNATURE.to_vec();
        push_chunk(&mut png, *b"IHDR", &header).expect("short");
        push_chunk(&mut png, *b"IDAT", &encoder.finish().expect("memory")).expect("short");
        let small = compact(&png).expect("a PNG file");
        let part = |name: &[u8]| chunks(&small).find(|(kind, _)| *kind == name).expect("a chunk").1;
        assert_eq!(part(b"PLTE"), [1, 2, 3, 4, 5, 6]);
        let mut indices = Vec::new();
        ZlibDecoder::new(part(b"IDAT")).read_to_end(&mut indices).expect("rows");
        assert_eq!(indices, [0, 0, 1, 0, 0, 0]);
        assert_eq!(super::super::size(&small), Some([2, 2]));
        assert_eq!(compact(b"GIF89a"), None);
    }
}
