// Normalizes each token's channels, then scales and shifts them. The statistics are not written.
// Twin: reference/layernorm_forward.rs.
//
// Shapes: inp (n, C), weight (C), bias (C) or none -> out (n, C), C padded with zeros after the first CHANNELS.
//
// One workgroup per token. Two passes: the mean, then the squares of the deviations.
//
// With: parts/pass.wgsl.

override LANES: u32 = 64u;
override C: u32 = 64u;
override CHANNELS: u32 = 64u;
override BIAS: bool = true;
// Processes only the pass's last token, as row 0.
override LAST: bool = false;

@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> inp: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> pass_: Pass;

const EPS: f32 = 1e-5;

var<workgroup> partial: array<f32, LANES>;

// Returns the sum of all invocations' values to every invocation.
fn sum_of(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    partial[lane] = value;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < LANES; i++) {
        sum += partial[i];
    }
    return sum;
}

// Four channels minus the mean; zero in the padding.
fn centred(x: vec4<f32>, at: u32, mean: f32) -> vec4<f32> {
    return select(vec4(0.0), x - mean, vec4(at * 4u) + vec4(0u, 1u, 2u, 3u) < vec4(CHANNELS));
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let row = select(group.x, pass_.n - 1u, LAST) * (C / 4u);
    let to = group.x * (C / 4u);
    var sum = vec4(0.0);
    for (var i = lane; i < C / 4u; i += LANES) {
        sum += inp[row + i];
    }
    let mean = sum_of(lane, sum.x + sum.y + sum.z + sum.w) / f32(CHANNELS);
    var squares = 0.0;
    for (var i = lane; i < C / 4u; i += LANES) {
        let x = centred(inp[row + i], i, mean);
        squares += dot(x, x);
    }
    let rstd = inverseSqrt(sum_of(lane, squares) / f32(CHANNELS) + EPS);
    for (var i = lane; i < C / 4u; i += LANES) {
        var y = centred(inp[row + i], i, mean) * rstd * weight[i];
        if BIAS {
            y += bias[i];
        }
        out[to + i] = y;
    }
}
