// Appends a pass's keys and values to the cache, and its queries if QUERIES. Twin: reference/cached.rs.
//
// Shapes: qkv (n, 3, NH, HS) -> cache: keys (NH, T / 4, HS / 4, 4) as groups of four channels, so that adjacent keys
// are contiguous; then values (NH, T, HS); then queries (NH, T, HS) if QUERIES.
//
// One invocation copies four channels of a token. With: parts/pass.wgsl.

override LANES: u32 = 64u;
override C: u32 = 64u;
// Channels per head.
override HS: u32 = 8u;
// Capacity of the cache in tokens, a multiple of 4.
override T: u32 = 4u;
override QUERIES: bool = false;

@group(0) @binding(0) var<storage, read_write> cache: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> pass_: Pass;

@compute @workgroup_size(LANES)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let channel = id.x;
    let i = id.y;
    let position = pass_.first + i;
    if channel < C / 4u && i < pass_.n && position < T {
        let h = channel / (HS / 4u);
        let d = channel % (HS / 4u);
        let from_q = i * 3u * (C / 4u) + channel;
        let row = (h * T + position) * (HS / 4u) + d;
        cache[((h * (T / 4u) + position / 4u) * (HS / 4u) + d) * 4u + position % 4u] = qkv[from_q + C / 4u];
        cache[T * (C / 4u) + row] = qkv[from_q + 2u * (C / 4u)];
        if QUERIES {
            cache[2u * T * (C / 4u) + row] = qkv[from_q];
        }
    }
}
