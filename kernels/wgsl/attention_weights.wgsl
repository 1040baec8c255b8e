// Attention weights of one head for some of the queries so far, for a heat map. Twin: reference/cached.rs.
//
// Shapes: cache with queries, in the layout of cache_append.wgsl -> out (maxT, maxT). Writes n rows from `first`: the
// weights of the keys up to the row's position, then zeros.
//
// One workgroup per query. With: parts/pass.wgsl.

override LANES: u32 = 64u;
override C: u32 = 64u;
override HS: u32 = 8u;
override T: u32 = 4u;
// Number of columns of the output.
override COLUMNS: u32 = 4u;
override SCALE: f32 = 1.0;

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> cache: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> pass_: Pass;

const LOWEST: f32 = -3.0e38;

var<workgroup> partial: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let query = pass_.first + group.x;
    let n_keys = query + 1u;
    let keys = pass_.head * (T / 4u) * HS;
    let q = 2u * T * (C / 4u) + (pass_.head * T + query) * (HS / 4u);
    let row = query * COLUMNS;
    var lane_max = LOWEST;
    for (var key = lane; key < n_keys; key += LANES) {
        let at = keys + key / 4u * HS + key % 4u;
        var score = 0.0;
        for (var j = 0u; j < HS / 4u; j++) {
            score += dot(cache[q + j], cache[at + 4u * j]);
        }
        out[row + key] = score * SCALE;
        lane_max = max(lane_max, score * SCALE);
    }
    partial[lane] = lane_max;
    workgroupBarrier();
    var max_score = LOWEST;
    for (var j = 0u; j < LANES; j++) {
        max_score = max(max_score, partial[j]);
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var key = lane; key < n_keys; key += LANES) {
        sum += exp(out[row + key] - max_score);
    }
    partial[lane] = sum;
    workgroupBarrier();
    sum = 0.0;
    for (var j = 0u; j < LANES; j++) {
        sum += partial[j];
    }
    // Each invocation reads only its own writes.
    for (var key = lane; key < COLUMNS; key += LANES) {
        if key < n_keys {
            out[row + key] = exp(out[row + key] - max_score) / sum;
        } else {
            out[row + key] = 0.0;
        }
    }
}
