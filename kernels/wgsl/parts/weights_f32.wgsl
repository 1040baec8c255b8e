// A matrix of f32 in blocks of 4 rows by 8 columns, as cpu/pack.rs lays them out: (OC / 4, C / 8, 2, 4) groups of four
// columns. Neighbouring invocations take neighbouring rows of a block, so that what they read lies side by side.

@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;

// Groups from one block of a row to the next.
const BLOCK: u32 = 8u;

struct Columns {
    low: vec4<f32>,
    high: vec4<f32>,
}

// Eight columns of a row.
fn columns(at: u32) -> Columns {
    return Columns(weight[at], weight[at + 4u]);
}
