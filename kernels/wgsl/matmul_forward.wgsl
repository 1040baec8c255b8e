// Linear layer over the rows of a prompt. Twin: reference/matmul.rs.
//
// Shapes: inp (n, C), weight (OC, C) in blocks, bias (OC) or none -> out (n, OC). If the weight is split into pieces,
// each has its own dispatch, with ROWS rows from FIRST.
//
// A workgroup computes a tile of 32 tokens by 64 rows of the weight, 32 columns at a time through workgroup memory. An
// invocation computes 4 by 4 of the tile, so eight reads serve sixteen dot products of four.
//
// With: parts/weights_*.wgsl, parts/after.wgsl, parts/linear.wgsl, parts/pass.wgsl.

override OC: u32 = 64u;

@group(0) @binding(4) var<uniform> pass_: Pass;

const LANES: u32 = 128u;
const TOKENS: u32 = 32u;
const TILE_ROWS: u32 = 64u;
// Groups of eight columns per step.
const DEPTH: u32 = 4u;
// One group of four columns more than a step reads, so that rows start in different banks.
const STRIDE: u32 = 2u * DEPTH + 1u;

var<workgroup> inp_tile: array<vec4<f32>, TOKENS * STRIDE>;
var<workgroup> weight_tile: array<vec4<f32>, TILE_ROWS * STRIDE>;

fn store_token(token: u32, row: u32, y: vec4<f32>) {
    if token < pass_.n {
        store_four(token * OC, row, 16u, y);
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let row = lane % 16u;
    let token = lane / 16u;
    let first_block = group.x * (TILE_ROWS / 4u);
    let first_token = group.y * TOKENS;
    var sum0 = vec4(0.0);
    var sum1 = vec4(0.0);
    var sum2 = vec4(0.0);
    var sum3 = vec4(0.0);
    for (var turn = 0u; turn < C / 8u; turn += DEPTH) {
        for (var i = lane; i < TILE_ROWS * DEPTH; i += LANES) {
            let chunk = i / 4u % DEPTH;
            let block = i / (4u * DEPTH);
            var w = Columns(vec4(0.0), vec4(0.0));
            if turn + chunk < C / 8u && first_block + block < ROWS / 4u {
                w = columns(((first_block + block) * (C / 8u) + turn + chunk) * BLOCK + i % 4u);
            }
            let to = (block * 4u + i % 4u) * STRIDE + 2u * chunk;
            weight_tile[to] = w.low;
            weight_tile[to + 1u] = w.high;
        }
        for (var i = lane; i < TOKENS * 2u * DEPTH; i += LANES) {
            let column = turn * 2u + i % (2u * DEPTH);
            let from_token = first_token + i / (2u * DEPTH);
            var x = vec4(0.0);
            if column < C / 4u && from_token < pass_.n {
                x = inp[from_token * (C / 4u) + column];
            }
            inp_tile[i / (2u * DEPTH) * STRIDE + i % (2u * DEPTH)] = x;
        }
        workgroupBarrier();
        for (var k = 0u; k < 2u * DEPTH; k++) {
            let w0 = weight_tile[row * STRIDE + k];
            let w1 = weight_tile[(row + 16u) * STRIDE + k];
            let w2 = weight_tile[(row + 32u) * STRIDE + k];
            let w3 = weight_tile[(row + 48u) * STRIDE + k];
            let x0 = inp_tile[token * STRIDE + k];
            let x1 = inp_tile[(token + 8u) * STRIDE + k];
            let x2 = inp_tile[(token + 16u) * STRIDE + k];
            let x3 = inp_tile[(token + 24u) * STRIDE + k];
            sum0 += vec4(dot(x0, w0), dot(x0, w1), dot(x0, w2), dot(x0, w3));
            sum1 += vec4(dot(x1, w0), dot(x1, w1), dot(x1, w2), dot(x1, w3));
            sum2 += vec4(dot(x2, w0), dot(x2, w1), dot(x2, w2), dot(x2, w3));
            sum3 += vec4(dot(x3, w0), dot(x3, w1), dot(x3, w2), dot(x3, w3));
        }
        workgroupBarrier();
    }
    let to_row = first_block * 4u + row;
    let to_token = first_token + token;
    store_token(to_token, to_row, sum0);
    store_token(to_token + 8u, to_row, sum1);
    store_token(to_token + 16u, to_row, sum2);
    store_token(to_token + 24u, to_row, sum3);
}
