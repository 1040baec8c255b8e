// Linear layer over one row, for a single token's forward pass; bound by reading the weight once.
// Twin: reference/matvec_forward.rs.
//
// Shapes: inp (C), weight (OC, C) in blocks, bias (OC) or none -> out (OC). If the weight is split into pieces, each
// has its own dispatch, with ROWS rows from FIRST.
//
// An invocation processes one row of each of four adjacent blocks, so each read of `inp` serves four rows. Of those it
// processes every SPLITS-th group of eight columns. SPLITS is 1 if invocations are lanes of a CPU's vectors, which
// needs no barrier.
//
// With: parts/weights_*.wgsl, parts/after.wgsl, parts/linear.wgsl.

override LANES: u32 = 64u;
override SPLITS: u32 = 16u;

var<workgroup> partial: array<vec4<f32>, LANES>;

fn total(v: vec4<f32>) -> f32 {
    return v.x + v.y + v.z + v.w;
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = lane % 4u;
    let split = lane / 4u % SPLITS;
    let quads = LANES / (4u * SPLITS);
    let first = ((group.y * groups.x + group.x) * quads + lane / (4u * SPLITS)) * 4u;
    // Out of range, the last block is read again and nothing is written.
    let blocks = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(ROWS / 4u - 1u));
    var at = (blocks * (C / 8u) + split) * BLOCK + row;
    var sum0 = vec4(0.0);
    var sum1 = vec4(0.0);
    var sum2 = vec4(0.0);
    var sum3 = vec4(0.0);
    for (var i = split; i < C / 8u; i += SPLITS) {
        let low = inp[2u * i];
        let high = inp[2u * i + 1u];
        let w0 = columns(at.x);
        let w1 = columns(at.y);
        let w2 = columns(at.z);
        let w3 = columns(at.w);
        sum0 += w0.low * low + w0.high * high;
        sum1 += w1.low * low + w1.high * high;
        sum2 += w2.low * low + w2.high * high;
        sum3 += w3.low * low + w3.high * high;
        at += vec4(SPLITS * BLOCK);
    }
    var sums = vec4(total(sum0), total(sum1), total(sum2), total(sum3));
    if SPLITS > 1u {
        partial[lane] = sums;
        workgroupBarrier();
        if split == 0u {
            for (var s = 1u; s < SPLITS; s++) {
                sums += partial[lane + 4u * s];
            }
        }
    }
    if split == 0u {
        store_four(0u, first * 4u + row, 4u, sums);
    }
}
