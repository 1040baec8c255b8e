// Half-precision matrix, two numbers per word, in blocks of 4 rows by 8 columns, as packed by reference/pack.rs: (OC /
// 4, C / 8, 4) groups of eight columns. Arithmetic is in f32, so the device need not support f16.

@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;

// Groups between consecutive blocks of a row.
const BLOCK: u32 = 4u;

struct Columns {
    low: vec4<f32>,
    high: vec4<f32>,
}

// Eight columns of a row.
fn columns(at: u32) -> Columns {
    let words = weight[at];
    let low = vec4(unpack2x16float(words.x), unpack2x16float(words.y));
    let high = vec4(unpack2x16float(words.z), unpack2x16float(words.w));
    return Columns(low, high);
}
