// The layout of weights_packed.wgsl, read as f16 by devices that support it.

enable f16;

struct Halves {
    low: vec4<f16>,
    high: vec4<f16>,
}

@group(0) @binding(2) var<storage, read> weight: array<Halves>;

// Groups between consecutive blocks of a row.
const BLOCK: u32 = 4u;

struct Columns {
    low: vec4<f32>,
    high: vec4<f32>,
}

// Eight columns of a row.
fn columns(at: u32) -> Columns {
    let halves = weight[at];
    return Columns(vec4<f32>(halves.low), vec4<f32>(halves.high));
}
