// Start of the residual stream: each token's row of wte plus its position's row of wpe. Twin: reference/encoder.rs.
//
// Shapes: inp (T), wte (V, C) in blocks, wpe (maxT, C) -> out (n, C). One invocation computes eight channels of a
// token.
//
// If wte is split into pieces, each has its own dispatch, which writes the tokens whose rows the piece contains.
//
// With: parts/weights_*.wgsl, parts/pass.wgsl.

override LANES: u32 = 64u;
override C: u32 = 64u;
// Rows of this piece.
override FIRST: u32 = 0u;
override ROWS: u32 = 4u;

@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> inp: array<u32>;
@group(0) @binding(3) var<storage, read> wpe: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> pass_: Pass;

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let chunk = id.x;
    let i = id.y;
    if chunk < C / 8u && i < pass_.n {
        let position = pass_.first + i;
        let token = inp[position];
        if token >= FIRST && token < FIRST + ROWS {
            let row = token - FIRST;
            let wte = columns((row / 4u * (C / 8u) + chunk) * BLOCK + row % 4u);
            let at = chunk * 2u;
            out[i * (C / 4u) + at] = wte.low + wpe[position * (C / 4u) + at];
            out[i * (C / 4u) + at + 1u] = wte.high + wpe[position * (C / 4u) + at + 1u];
        }
    }
}
