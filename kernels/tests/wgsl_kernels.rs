//! Compares every WGSL kernel with its CPU reference, on any adapter.
#![cfg(feature = "wgpu")]

mod gpu;
#[path = "gpu/kernel.rs"]
mod kernel;

use gpu::{check, gpu, normals, tokens};
use headroom_kernels::{
    reference::{
        cached::{Cache, attention_cached, attention_weights, cache_append},
        encoder::{Positions, encoder_forward},
        layernorm_forward::{self, layernorm_forward},
        matvec_forward::{Epilogue, matvec_forward},
    },
    sampling::{Sampling, candidates, sample},
    wgpu::shader::{Kernel, Weights},
};
use kernel::{Run, bits, matrix, numbers, stored};

/// The weight formats that the adapter supports: packed words everywhere, f16 only with support.
fn ways() -> Vec<Weights> {
    Weights::ALL.into_iter().filter(|&weights| weights != Weights::F16 || gpu().has_f16()).collect()
}

fn pass(first: usize, n: usize) -> [u32; 8] {
    let [first, n] = [first, n].map(|n| u32::try_from(n).expect("small"));
    [first, n, 0, 0, 0, 0, 0, 0]
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).expect("small")
}

#[test]
fn encoder_adds_the_two_embeddings() {
    for weights in ways() {
        for (first, n, v, c) in [(0, 1, 4, 8), (3, 5, 12, 24), (0, 17, 104, 56), (1000, 24, 52, 768)] {
            let inp = tokens(first + n, v as u64, 1);
            let wte = normals(v * c, 1.0, 2);
            let wpe = normals((first + n) * c, 1.0, 3);
            let mut want = vec![0.0; n * c];
            encoder_forward(&mut want, &inp[first..], &stored(&wte, weights), &wpe, Positions { t: n, first }, c);
            let run = |first_row: usize, rows: usize, out: &[f32]| Run {
                kernel: Kernel::Encoder,
                weights,
                constants: vec![("LANES", 16.0), ("C", c as f64), ("FIRST", first_row as f64), ("ROWS", rows as f64)],
                buffers: vec![
                    (0, bits(out)),
                    (1, inp.clone()),
                    (2, matrix(&wte[first_row * c..(first_row + rows) * c], c, weights)),
                    (3, bits(&wpe)),
                ],
                pass: Some(pass(first, n)),
                groups: (narrow((c / 8).div_ceil(16)), narrow(n)),
            };
            check("encoder", &run(0, v, &vec![0.0; n * c]).numbers(&gpu(), 0), &want);
            // In two passes, each of which writes its own tokens only.
            let split = v / 2 / 4 * 4;
            if split > 0 {
                let half = run(0, split, &vec![0.0; n * c]).numbers(&gpu(), 0);
                check("encoder", &run(split, v - split, &half).numbers(&gpu(), 0), &want);
            }
        }
    }
}

#[test]
fn layernorm_normalises_the_channels_before_the_padding() {
    for (n, channels, bias) in
        [(1, 1, true), (3, 13, true), (2, 64, false), (7, 127, true), (2, 768, true), (1, 1600, false)]
    {
        for (last, large) in [(false, 1.0), (true, 1.0), (false, 1e4)] {
            let c = channels + (8 - channels % 8) % 8;
            let mut inp = normals(n * channels, large, 4);
            inp.iter_mut().for_each(|x| *x += 3.0 * large);
            let (weight, shift) = (normals(channels, 1.0, 5), normals(channels, 1.0, 6));
            let mut want = vec![0.0; n * channels];
            let (mut mean, mut rstd) = (vec![0.0; n], vec![0.0; n]);
            let output = layernorm_forward::Output { out: &mut want, mean: &mut mean, rstd: &mut rstd };
            layernorm_forward(output, &inp, &weight, bias.then_some(&shift[..]));
            let padded = |rows: &[f32]| -> Vec<f32> {
                let pad = vec![0.0; c - channels];
                rows.chunks_exact(channels).flat_map(|row| [row, &pad[..]].concat()).collect()
            };
            let run = Run {
                kernel: Kernel::Layernorm,
                weights: Weights::F32,
                constants: vec![
                    ("LANES", 16.0),
                    ("C", c as f64),
                    ("CHANNELS", channels as f64),
                    ("BIAS", f64::from(u8::from(bias))),
                    ("LAST", f64::from(u8::from(last))),
                ],
                buffers: vec![
                    (0, vec![0; n * c]),
                    (1, bits(&padded(&inp))),
                    (2, bits(&padded(&weight))),
                    (3, bits(&padded(&shift))),
                ],
                pass: Some(pass(0, n)),
                groups: (if last { 1 } else { narrow(n) }, 1),
            };
            let got = run.numbers(&gpu(), 0);
            let want = padded(&want);
            if last {
                check("layernorm", &got[..c], &want[(n - 1) * c..]);
            } else {
                check("layernorm", &got, &want);
            }
        }
    }
}

/// Checks both kernels of a linear layer, over rows, with and without division into pieces.
fn linear(
    kernel: Kernel,
    weights: Weights,
    (n, oc, c): (usize, usize, usize),
    bias: bool,
    after: Epilogue,
    tuning: (u32, u32),
) {
    let deviation = 1.0 / (c as f32).sqrt();
    let (inp, weight) = (normals(n * c, 1.0, 7), normals(oc * c, deviation, 8));
    let (shift, there) = (normals(oc, 1.0, 9), normals(n * oc, 1.0, 10));
    let mut want = there.clone();
    matvec_forward(&mut want, &inp, &stored(&weight, weights), bias.then_some(&shift[..]), after, c);
    let mut out = bits(&there);
    let split = if oc >= 8 { oc / 8 * 4 } else { oc };
    for (first, rows) in [(0, split), (split, oc - split)] {
        if rows == 0 {
            continue;
        }
        let after = match after {
            Epilogue::Nothing => 0.0,
            Epilogue::Gelu => 1.0,
            Epilogue::GeluTanh => 2.0,
            Epilogue::Residual => 3.0,
        };
        let mut constants = vec![
            ("C", c as f64),
            ("FIRST", first as f64),
            ("ROWS", rows as f64),
            ("BIAS", f64::from(u8::from(bias))),
            ("AFTER", after),
        ];
        let (lanes, splits) = tuning;
        if kernel == Kernel::MatmulDirect {
            constants.push(("LANES", f64::from(lanes)));
        }
        let is_matvec = kernel == Kernel::Matvec;
        if is_matvec {
            constants.extend([("LANES", f64::from(lanes)), ("SPLITS", f64::from(splits))]);
        } else {
            constants.push(("OC", oc as f64));
        }
        let run = Run {
            kernel,
            weights,
            constants,
            buffers: vec![
                (0, out.clone()),
                (1, bits(&inp)),
                (2, matrix(&weight[first * c..(first + rows) * c], c, weights)),
                (3, bits(&shift)),
            ],
            pass: (!is_matvec).then(|| pass(0, n)),
            groups: if is_matvec {
                (narrow(rows).div_ceil(16 * lanes / (4 * splits)), 1)
            } else {
                let (rows_a_group, tokens) = if kernel == Kernel::Matmul { (64, 32) } else { (4 * lanes, 4) };
                (narrow(rows).div_ceil(rows_a_group), narrow(n).div_ceil(tokens))
            },
        };
        out = run.read(&gpu(), &[0]).remove(0);
    }
    check("linear", &numbers(&out), &want);
}

const AFTERS: [Epilogue; 4] = [Epilogue::Nothing, Epilogue::Gelu, Epilogue::GeluTanh, Epilogue::Residual];

#[test]
fn matvec_is_a_linear_layer_with_what_follows() {
    for weights in ways() {
        for (oc, c) in [(4, 8), (12, 24), (100, 56), (64, 136), (2304, 768), (768, 3072)] {
            for (i, tuning) in [(16, 1), (64, 16), (64, 4)].into_iter().enumerate() {
                linear(Kernel::Matvec, weights, (1, oc, c), i % 2 == 0, AFTERS[(i + oc / 4) % 4], tuning);
            }
        }
    }
}

#[test]
fn matmul_is_a_linear_layer_with_what_follows() {
    for weights in ways() {
        for (i, shape) in [(1, 4, 8), (7, 12, 24), (33, 100, 56), (32, 64, 136), (13, 2304, 768), (5, 768, 3072)]
            .into_iter()
            .enumerate()
        {
            linear(Kernel::Matmul, weights, shape, i % 2 == 0, AFTERS[i % 4], (0, 0));
            linear(Kernel::MatmulDirect, weights, shape, i % 2 == 0, AFTERS[i % 4], (16, 1));
        }
    }
}

/// GELU over the range of values in a model, in both forms.
#[test]
fn gelu_is_the_twins() {
    let (oc, c) = (4000, 8);
    for after in [Epilogue::Gelu, Epilogue::GeluTanh] {
        let inp = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let weight: Vec<f32> = (0..oc * c).map(|i| (i / c) as f32 * 0.006 - 12.0).collect();
        let mut want = vec![0.0; oc];
        matvec_forward(&mut want, &inp, &weight, None, after, c);
        let run = Run {
            kernel: Kernel::Matvec,
            weights: Weights::F32,
            constants: vec![
                ("LANES", 16.0),
                ("SPLITS", 1.0),
                ("C", 8.0),
                ("ROWS", oc as f64),
                ("BIAS", 0.0),
                ("AFTER", if after == Epilogue::Gelu { 1.0 } else { 2.0 }),
            ],
            buffers: vec![(0, vec![0; oc]), (1, bits(&inp)), (2, matrix(&weight, c, Weights::F32)), (3, vec![0; 4])],
            pass: None,
            groups: (narrow(oc.div_ceil(64)), 1),
        };
        check("linear", &run.numbers(&gpu(), 0), &want);
    }
}

#[test]
fn attention_over_the_cache_is_the_twins() {
    // The last two have more keys than a tile, and the very last has large scores.
    for (first, n, nh, hs, t, lanes, large) in [
        (0, 1, 1, 8, 4, 16_u32, 1.0),
        (6, 1, 3, 16, 8, 16, 1.0),
        (0, 7, 2, 24, 12, 64, 1.0),
        (5, 11, 2, 128, 16, 32, 1.0),
        (100, 1, 12, 64, 128, 128, 1.0),
        (1030, 3, 1, 8, 1040, 64, 4.0),
    ] {
        let c = nh * hs;
        let shape = Cache { nh, hs, t, queries: true };
        let scale = 1.0 / f64::from(u32::try_from(hs).expect("small")).sqrt();
        let before = normals(first * 3 * c, large, 11);
        let qkv = normals(n * 3 * c, large, 12);
        let mut cache = vec![0.0; shape.len()];
        cache_append(&mut cache, &before, 0, shape);
        let cached = cache.clone();
        cache_append(&mut cache, &qkv, first, shape);
        let constants = [("C", c as f64), ("HS", hs as f64), ("T", t as f64), ("LANES", f64::from(lanes))];
        let append = Run {
            kernel: Kernel::CacheAppend,
            weights: Weights::F32,
            constants: [&constants[..], &[("QUERIES", 1.0)]].concat(),
            buffers: vec![(0, bits(&cached)), (1, bits(&qkv))],
            pass: Some(pass(first, n)),
            groups: (narrow(c / 4).div_ceil(lanes), narrow(n)),
        };
        check("copy", &append.numbers(&gpu(), 0), &cache);

        let mut want = vec![0.0; n * c];
        attention_cached(&mut want, &qkv, &cache, first, scale, shape);
        let attention = Run {
            kernel: Kernel::AttentionCached,
            weights: Weights::F32,
            constants: [&constants[..], &[("SCALE", scale), ("TILE", if t < 1000 { 64.0 } else { 1024.0 })]].concat(),
            buffers: vec![(0, vec![0; n * c]), (1, bits(&qkv)), (2, bits(&cache))],
            pass: Some(pass(first, n)),
            groups: (narrow(nh), narrow(n)),
        };
        check("attention", &attention.numbers(&gpu(), 0), &want);

        // The attention weights of this pass's queries only.
        let queries = first..first + n;
        let columns = t;
        let mut want = vec![0.0; columns * columns];
        attention_weights(&mut want, &cache, queries.clone(), nh - 1, scale, shape, columns);
        let mut asked = pass(first, n);
        asked[2] = narrow(nh - 1);
        let weights = Run {
            kernel: Kernel::AttentionWeights,
            weights: Weights::F32,
            constants: [&constants[..], &[("SCALE", scale), ("COLUMNS", columns as f64)]].concat(),
            buffers: vec![(0, vec![0; columns * columns]), (1, bits(&cache))],
            pass: Some(asked),
            groups: (narrow(n), 1),
        };
        let got = weights.numbers(&gpu(), 0);
        let rows = queries.start * columns..queries.end * columns;
        check("attention", &got[rows.clone()], &want[rows]);
    }
}

/// Runs the sampling kernel. Returns the token, the token after the text, and the candidates.
fn choice(logits: &[f32], sampling: &Sampling, draw: u32, n_top: u32, lanes: u32) {
    let v = logits.len();
    let mut asked = pass(2, 1);
    asked[3..7].copy_from_slice(&[sampling.key(draw), sampling.top_k, n_top, sampling.temperature.to_bits()]);
    let run = Run {
        kernel: Kernel::Sample,
        weights: Weights::F32,
        constants: vec![("LANES", f64::from(lanes)), ("V", v as f64), ("T", 4.0)],
        buffers: vec![(0, vec![0; 64]), (1, vec![9; 4]), (2, bits(logits))],
        pass: Some(asked),
        groups: (1, 1),
    };
    let [output, text] = &run.read(&gpu(), &[0, 1])[..] else { panic!("two buffers") };
    let scratch = &mut Vec::new();
    let want = sample(logits, sampling, draw, scratch);
    assert_eq!(
        output[0], want,
        "{sampling:?} draw {draw} of {v}: {} instead of {}",
        logits[output[0] as usize], logits[want as usize]
    );
    assert_eq!(text[..], [9, 9, 9, want]);
    let wanted = candidates(logits, sampling, n_top as usize, scratch);
    let output: Vec<(u32, f32)> =
        (0..n_top as usize).map(|i| (output[2 + 2 * i], f32::from_bits(output[3 + 2 * i]))).collect();
    let output: Vec<_> = output.into_iter().take_while(|&(token, _)| token != u32::MAX).collect();
    assert_eq!(output.len(), wanted.len());
    if wanted.is_empty() {
        return;
    }
    let tokens: Vec<u32> = wanted.iter().map(|candidate| candidate.token).collect();
    assert_eq!(output.iter().map(|&(token, _)| token).collect::<Vec<_>>(), tokens);
    let probabilities: Vec<f32> = wanted.iter().map(|candidate| candidate.probability).collect();
    check("probability", &output.iter().map(|&(_, p)| p).collect::<Vec<_>>(), &probabilities);
}

#[test]
fn the_next_token_is_the_twins() {
    for (v, lanes) in [(1, 64), (2, 64), (65, 64), (101, 256), (1009, 64), (50257, 256)] {
        let logits = normals(v, 3.0, 13);
        for (temperature, top_k) in
            [(0.0, 0), (1.0, 0), (0.8, 200), (1.3, 1), (1.0, 7), (0.5, u32::try_from(v).expect("small"))]
        {
            let draws = if v > 10_000 { 2 } else { 6 };
            for draw in 0..draws {
                let sampling = Sampling { temperature, top_k, seed: 1337 };
                choice(&logits, &sampling, draw, if draw == 0 { 10 } else { 0 }, lanes);
            }
        }
    }
}

#[test]
fn ties_are_kept_and_the_smaller_token_comes_first() {
    let mut logits = vec![-1.0, 2.0, 0.0, -0.0, 2.0, 2.0, -7.5, 1.0];
    for top_k in [0, 1, 2, 3, 4, 5] {
        for temperature in [0.0, 1.0] {
            for draw in 0..4 {
                choice(&logits, &Sampling { temperature, top_k, seed: 5 }, draw, 5, 64);
            }
        }
    }
    logits.iter_mut().for_each(|logit| *logit = -3.0);
    choice(&logits, &Sampling { temperature: 0.0, top_k: 3, seed: 5 }, 0, 8, 64);
    choice(&logits, &Sampling { temperature: 1.0, top_k: 3, seed: 5 }, 0, 8, 64);
}

#[test]
#[should_panic(expected = "instead of")]
fn another_seed_is_another_choice() {
    let logits = normals(1009, 0.1, 13);
    for seed in 0..8 {
        let theirs = sample(&logits, &Sampling { temperature: 1.0, top_k: 0, seed: seed + 100 }, 0, &mut Vec::new());
        let ours = sample(&logits, &Sampling { temperature: 1.0, top_k: 0, seed }, 0, &mut Vec::new());
        assert_eq!(theirs, ours, "{theirs} instead of {ours}");
    }
}
