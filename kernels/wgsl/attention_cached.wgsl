// Causal attention of a pass's queries over the keys and values of the cache. Twin: reference/cached.rs.
//
// Shapes: qkv (n, 3, NH, HS), cache in the layout of cache_append.wgsl -> out (n, NH, HS).
//
// One workgroup per head and query. Keys are processed in tiles with a running maximum score and sum of exponentials
// (arXiv:1805.02867). An invocation first processes keys, then four channels of every `splits`-th value.
//
// With: parts/pass.wgsl.

override LANES: u32 = 64u;
override C: u32 = 64u;
override HS: u32 = 8u;
override T: u32 = 4u;
// Factor of the scores: 1 / sqrt of the channels per head without padding.
override SCALE: f32 = 1.0;
// Keys per tile.
override TILE: u32 = 1024u;

@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> cache: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> pass_: Pass;

// Below every score. Finite, because WGSL may assume that no value is infinite.
const LOWEST: f32 = -3.0e38;

var<workgroup> scores: array<f32, TILE>;
var<workgroup> partial: array<f32, LANES>;
var<workgroup> sums: array<vec4<f32>, LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let h = group.x;
    let i = group.y;
    let n_keys = pass_.first + i + 1u;
    let q = i * 3u * (C / 4u) + h * (HS / 4u);
    let keys = h * (T / 4u) * HS;
    let d = lane % (HS / 4u);
    let split = lane / (HS / 4u);
    let splits = LANES / (HS / 4u);
    let values = T * (C / 4u) + h * T * (HS / 4u) + d;
    var max_score = LOWEST;
    var sum = 0.0;
    var y = vec4(0.0);
    for (var tile = 0u; tile < n_keys; tile += TILE) {
        let n = min(n_keys - tile, TILE);
        var tile_max = LOWEST;
        for (var key = lane; key < n; key += LANES) {
            let at = keys + (tile + key) / 4u * HS + key % 4u;
            var dots = vec4(0.0);
            for (var j = 0u; j < HS / 4u; j++) {
                dots += qkv[q + j] * cache[at + 4u * j];
            }
            let score = (dots.x + dots.y + dots.z + dots.w) * SCALE;
            scores[key] = score;
            tile_max = max(tile_max, score);
        }
        partial[lane] = tile_max;
        workgroupBarrier();
        let max_before = max_score;
        for (var j = 0u; j < min(LANES, n); j++) {
            max_score = max(max_score, partial[j]);
        }
        let carry = exp(max_before - max_score);
        sum *= carry;
        for (var key = lane; key < n; key += LANES) {
            let e = exp(scores[key] - max_score);
            scores[key] = e;
            sum += e;
        }
        workgroupBarrier();
        y *= carry;
        if split < splits {
            for (var key = split; key < n; key += splits) {
                y += scores[key] * cache[values + (tile + key) * (HS / 4u)];
            }
        }
        workgroupBarrier();
    }
    partial[lane] = sum;
    sums[lane] = y;
    workgroupBarrier();
    if lane < HS / 4u {
        var all = 0.0;
        for (var j = 0u; j < LANES; j++) {
            all += partial[j];
        }
        for (var s = 1u; s < splits; s++) {
            y += sums[lane + s * (HS / 4u)];
        }
        out[i * (C / 4u) + h * (HS / 4u) + lane] = y / all;
    }
}
