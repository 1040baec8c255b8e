//! bfloat16 numbers in the memory of the emulated GPU.

/// Converts bytes to float32.
pub fn wide(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|two| f32::from_bits(u32::from(u16::from_ne_bytes([two[0], two[1]])) << 16)).collect()
}

/// Rounds to the nearest, ties to even.
pub fn rounded(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let upper = if value.is_nan() { bits | 0x40_0000 } else { bits + 0x7fff + ((bits >> 16) & 1) } >> 16;
    u16::try_from(upper).unwrap_or(u16::MAX).to_ne_bytes()
}
