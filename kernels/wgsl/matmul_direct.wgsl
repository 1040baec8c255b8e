// Linear layer over the rows of a prompt, for adapters that compute on a CPU. It uses no workgroup memory, which on a
// CPU is only a copy, and no barriers, at which a CPU switches stacks. Twin: reference/matmul.rs.
//
// Shapes and pieces as in matmul_forward.wgsl. An invocation computes four tokens by one row of each of four adjacent
// blocks.
//
// With: parts/weights_*.wgsl, parts/after.wgsl, parts/linear.wgsl, parts/pass.wgsl.

override LANES: u32 = 16u;
override OC: u32 = 64u;

@group(0) @binding(4) var<uniform> pass_: Pass;

fn store_token(token: u32, row: u32, y: vec4<f32>) {
    if token < pass_.n {
        store_four(token * OC, row, 4u, y);
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x % 4u;
    let first = id.x / 4u * 4u;
    let token = id.y * 4u;
    // Out of range, the last block and the last token are read again and nothing is written.
    let blocks = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(ROWS / 4u - 1u));
    let tokens = min(vec4(token) + vec4(0u, 1u, 2u, 3u), vec4(pass_.n - 1u));
    var at = blocks * (C / 8u) * BLOCK + row;
    var from_inp = tokens * (C / 4u);
    var sum0 = vec4(0.0);
    var sum1 = vec4(0.0);
    var sum2 = vec4(0.0);
    var sum3 = vec4(0.0);
    for (var i = 0u; i < C / 8u; i++) {
        let w0 = columns(at.x);
        let w1 = columns(at.y);
        let w2 = columns(at.z);
        let w3 = columns(at.w);
        var x = inp[from_inp.x];
        sum0 += vec4(dot(x, w0.low), dot(x, w1.low), dot(x, w2.low), dot(x, w3.low));
        x = inp[from_inp.x + 1u];
        sum0 += vec4(dot(x, w0.high), dot(x, w1.high), dot(x, w2.high), dot(x, w3.high));
        x = inp[from_inp.y];
        sum1 += vec4(dot(x, w0.low), dot(x, w1.low), dot(x, w2.low), dot(x, w3.low));
        x = inp[from_inp.y + 1u];
        sum1 += vec4(dot(x, w0.high), dot(x, w1.high), dot(x, w2.high), dot(x, w3.high));
        x = inp[from_inp.z];
        sum2 += vec4(dot(x, w0.low), dot(x, w1.low), dot(x, w2.low), dot(x, w3.low));
        x = inp[from_inp.z + 1u];
        sum2 += vec4(dot(x, w0.high), dot(x, w1.high), dot(x, w2.high), dot(x, w3.high));
        x = inp[from_inp.w];
        sum3 += vec4(dot(x, w0.low), dot(x, w1.low), dot(x, w2.low), dot(x, w3.low));
        x = inp[from_inp.w + 1u];
        sum3 += vec4(dot(x, w0.high), dot(x, w1.high), dot(x, w2.high), dot(x, w3.high));
        at += vec4(BLOCK);
        from_inp += vec4(2u);
    }
    let to_row = first * 4u + row;
    store_token(token, to_row, sum0);
    store_token(token + 1u, to_row, sum1);
    store_token(token + 2u, to_row, sum2);
    store_token(token + 3u, to_row, sum3);
}
