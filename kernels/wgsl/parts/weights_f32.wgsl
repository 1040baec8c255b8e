// Float32 matrix in blocks of 4 rows by 8 columns, as packed by reference/pack.rs: (OC / 4, C / 8, 2, 4) groups of four
// columns. Adjacent invocations read adjacent rows of a block, so their reads are contiguous.

@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;

// Groups between consecutive blocks of a row.
const BLOCK: u32 = 8u;

struct Columns {
    low: vec4<f32>,
    high: vec4<f32>,
}

// Eight columns of a row.
fn columns(at: u32) -> Columns {
    return Columns(weight[at], weight[at + 4u]);
}
