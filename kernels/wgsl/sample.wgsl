// Selects the next token, and optionally the most likely candidates with their probabilities. Twin: sampling.rs.
//
// Shapes: logits (V) -> out: the token, the number of candidates, and for each its token and the bits of its
// probability; tokens (T), where the token is appended after the pass's last.
//
// One workgroup. The top-k threshold is found by a radix selection over the logits' bits, eight bits at a time.
//
// With: parts/pass.wgsl.

override LANES: u32 = 256u;
override V: u32 = 4u;
override T: u32 = 4u;

@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> logits: array<f32>;
@group(0) @binding(4) var<uniform> pass_: Pass;

const LOWEST: f32 = -3.4028234e38;
const NONE: u32 = 0xffffffffu;

var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> digits: u32;
var<workgroup> missing: u32;
var<workgroup> values: array<f32, LANES>;
var<workgroup> owners: array<u32, LANES>;
var<workgroup> chosen: u32;
var<workgroup> chosen_value: f32;

// Maps a number to bits that have the order of the numbers.
fn ordered(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn number(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

fn mix_bits(bits: u32) -> u32 {
    var h = bits;
    h ^= h >> 16u;
    h *= 0x85ebca6bu;
    h ^= h >> 13u;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16u);
}

// Same as `hash` in rng.rs.
fn hash(key: u32, index: u32) -> u32 {
    return mix_bits(mix_bits((index * 0x9e3779b9u) ^ key) + ((key << 16u) | (key >> 16u)));
}

// Natural logarithm of a normal number, to a few units in the last place. WGSL's `log` may be inaccurate near 1. With x
// = m 2^e and m near 1, ln m = 2 artanh((m - 1) / (m + 1)).
fn ln(x: f32) -> f32 {
    let bits = bitcast<u32>(x) - 0x3f3504f3u;
    let e = f32(bitcast<i32>(bits) >> 23u);
    let m = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = 2.0 * s + 2.0 * s * z * (0.33333333 + z * (0.2 + z * (0.14285714 + z * 0.11111111)));
    return e * 0.69314718 + series;
}

fn gumbel(key: u32, token: u32) -> f32 {
    let u = (f32(hash(key, token) >> 9u) + 0.5) * (1.0 / 8388608.0);
    return -ln(-ln(u));
}

// The threshold of top-k sampling: the k-th largest logit.
fn threshold(lane: u32, k: u32) -> f32 {
    var known = 0u;
    if lane == 0u {
        digits = 0u;
        missing = k;
    }
    for (var digit = 0u; digit < 4u; digit++) {
        let shift = 24u - 8u * digit;
        for (var i = lane; i < 256u; i += LANES) {
            atomicStore(&counts[i], 0u);
        }
        workgroupBarrier();
        for (var token = lane; token < V; token += LANES) {
            let key = ordered(logits[token]);
            if digit == 0u || (key ^ known) >> ((shift + 8u) & 31u) == 0u {
                atomicAdd(&counts[(key >> shift) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if lane == 0u {
            var left = missing;
            var value = 255u;
            for (; value > 0u; value--) {
                let count = atomicLoad(&counts[value]);
                if count >= left {
                    break;
                }
                left -= count;
            }
            missing = left;
            digits |= value << shift;
        }
        known = workgroupUniformLoad(&digits);
    }
    return number(known);
}

// Of all invocations' tokens, returns the one with the largest value; of equal values, the smallest token.
fn choose(lane: u32, value: f32, token: u32) -> u32 {
    values[lane] = value;
    owners[lane] = token;
    workgroupBarrier();
    if lane == 0u {
        var best = value;
        var owner = token;
        for (var i = 1u; i < LANES; i++) {
            if owners[i] != NONE && (owner == NONE || values[i] > best || (values[i] == best && owners[i] < owner)) {
                best = values[i];
                owner = owners[i];
            }
        }
        chosen = owner;
        chosen_value = best;
    }
    return workgroupUniformLoad(&chosen);
}

// The next candidate of an invocation: its largest kept logit after the given candidate in descending order. Equal
// logits are in order of their tokens; NONE precedes all.
fn next_candidate(lane: u32, kept: f32, after_value: f32, after_token: u32) -> vec2<u32> {
    var best = LOWEST;
    var owner = NONE;
    for (var token = lane; token < V; token += LANES) {
        let logit = logits[token];
        let follows = after_token == NONE || logit < after_value || (logit == after_value && token > after_token);
        if logit >= kept && follows && (owner == NONE || logit > best) {
            best = logit;
            owner = token;
        }
    }
    return vec2(bitcast<u32>(best), owner);
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    var kept = LOWEST;
    if pass_.top_k > 0u && pass_.top_k < V {
        kept = threshold(lane, pass_.top_k);
    }
    var best = LOWEST;
    var owner = NONE;
    for (var token = lane; token < V; token += LANES) {
        let logit = logits[token];
        if logit >= kept {
            var score = logit;
            if pass_.temperature > 0.0 {
                score = logit / pass_.temperature + gumbel(pass_.key, token);
            }
            if score > best {
                best = score;
                owner = token;
            }
        }
    }
    let next = choose(lane, best, owner);
    if lane == 0u {
        let token = select(next, 0u, next == NONE);
        out[0] = token;
        out[1] = pass_.n_top;
        if pass_.first + pass_.n < T {
            tokens[pass_.first + pass_.n] = token;
        }
    }
    if pass_.n_top > 0u {
        let temperature = select(1.0, pass_.temperature, pass_.temperature > 0.0);
        var own = next_candidate(lane, kept, 0.0, NONE);
        var largest = 0.0;
        var sum = 0.0;
        for (var place = 0u; place < pass_.n_top; place++) {
            let token = choose(lane, bitcast<f32>(own.x), own.y);
            let value = workgroupUniformLoad(&chosen_value);
            if place == 0u {
                largest = value;
                var part = 0.0;
                for (var i = lane; i < V; i += LANES) {
                    let logit = logits[i];
                    if logit >= kept {
                        part += exp((logit - largest) / temperature);
                    }
                }
                values[lane] = part;
                workgroupBarrier();
                for (var i = 0u; i < LANES; i++) {
                    sum += values[i];
                }
                workgroupBarrier();
            }
            if lane == 0u {
                out[2u + 2u * place] = token;
                out[3u + 2u * place] = bitcast<u32>(exp((value - largest) / temperature) / sum);
            }
            if token == own.y && token != NONE {
                own = next_candidate(lane, kept, value, token);
            }
        }
    }
}
