// A matrix in half precision, two numbers a word, in blocks of 4 rows by 8 columns, as cpu/pack.rs lays them out:
// (OC / 4, C / 8, 4) groups of eight columns. Arithmetic is in f32; no device needs to know f16.

@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;

// Groups from one block of a row to the next.
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
