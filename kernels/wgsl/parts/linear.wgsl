// Shared part of the linear layers: inp (n, C), weight (OC, C) in blocks, bias (OC) or none -> out (n, OC). If the
// weight is split into pieces, each has its own dispatch, with ROWS rows from FIRST. Preceded by after.wgsl.

override C: u32 = 64u;
override FIRST: u32 = 0u;
override ROWS: u32 = 4u;
override BIAS: bool = true;

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> inp: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

// Writes a row's product to the output, whose token begins at `start`.
fn store(start: u32, row: u32, y: f32) {
    if row < ROWS {
        let o = FIRST + row;
        var sum = y;
        if BIAS {
            sum += bias[o];
        }
        var there = 0.0;
        if AFTER == 3u {
            there = out[start + o];
        }
        out[start + o] = after(sum, there);
    }
}

// Writes the products of four rows, `stride` apart.
fn store_four(start: u32, row: u32, stride: u32, y: vec4<f32>) {
    store(start, row, y.x);
    store(start, row + stride, y.y);
    store(start, row + 2u * stride, y.z);
    store(start, row + 3u * stride, y.w);
}
