//! CPU inference compared with the reference: logits, attention, tokens, and texts longer than the context.

use headroom_kernels::{
    decode::{DecodeError, Decoder, Storage},
    layout::Layout,
    reference::{
        RealNumber as _,
        gpt::{DropoutPass, Gpt},
    },
    rng::Stream,
    sampling::{Sampling, sample},
};
use headroom_languages as _;
use headroom_planner::gpt::{GptConfig, GptShape, tensors::Tensor};

/// Logits are about 1. f32 sums of a hundred products have rounding errors in the seventh digit, which add up over
/// layers.
const TOLERANCE: f32 = 2e-5;
/// Steps of 16-bit integers are 1e-4 of a weight's standard deviation, and some hundred add up as their square root.
const INT16_TOLERANCE: f32 = 1e-3;

fn config(n_layer: u64, n_head: u64, n_embd: u64, block_size: u64, vocab_size: u64, bias: bool) -> GptConfig {
    let shape = GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias };
    GptConfig::new(shape).expect("valid")
}

/// Prime and odd sizes, sizes of one, and sizes that fill whole vectors.
fn shapes() -> Vec<GptConfig> {
    vec![
        config(1, 1, 1, 1, 1, true),
        config(2, 3, 15, 7, 13, true),
        config(2, 1, 37, 33, 101, false),
        config(3, 5, 55, 19, 67, true),
        config(2, 4, 128, 40, 97, true),
        config(1, 2, 64, 70, 31, false),
        config(2, 7, 119, 21, 61, true),
    ]
}

/// Weights as large as a trained model's, so that attention is not uniform and every layer matters.
#[expect(clippy::cast_possible_truncation, reason = "random weights")]
fn weights(config: &GptConfig) -> Vec<f32> {
    let layout = Layout::new(config).expect("small");
    let mut stream = Stream::new(11, 3);
    let mut flat = vec![0.0; layout.len()];
    for entry in layout.entries() {
        let is_norm = matches!(entry.parameter.tensor, Tensor::Ln1W | Tensor::Ln2W | Tensor::LnfW);
        let deviation = if entry.shape.len() > 1 { 1.0 / (entry.shape[1] as f64).sqrt() } else { 0.1 };
        for weight in &mut flat[entry.range.clone()] {
            *weight = (f64::from(u8::from(is_norm)) + stream.normal() * deviation) as f32;
        }
    }
    flat
}

fn text(config: &GptConfig, n: usize) -> Vec<u32> {
    let mut stream = Stream::new(23, 1);
    (0..n).map(|_| u32::try_from(stream.below(config.vocab_size())).expect("small")).collect()
}

/// The reference's logits at every position of a text, as one sequence.
fn reference(config: &GptConfig, weights: &[f32], text: &[u32]) -> Vec<f32> {
    let gpt = Gpt::new(config, text.len()).expect("small");
    gpt.forward(weights, text, text, DropoutPass::NONE).logits
}

#[track_caller]
fn check(got: &[f32], want: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        // Written such that NaN fails.
        assert!((got - want).abs() <= tolerance * (1.0 + want.abs()), "{what}, logit {i}: {got} instead of {want}");
    }
}

fn full(config: &GptConfig) -> usize {
    usize::try_from(config.block_size()).expect("small")
}

#[test]
fn logits_of_every_position_equal_the_reference() {
    for config in shapes() {
        let (weights, text) = (weights(&config), text(&config, full(&config)));
        let want = reference(&config, &weights, &text);
        for (storage, tolerance) in [(Storage::F32, TOLERANCE), (Storage::Int16, INT16_TOLERANCE)] {
            let mut decoder = Decoder::new(&config, &weights, storage).expect("small");
            for (position, (&token, want)) in text.iter().zip(want.chunks(want.len() / text.len())).enumerate() {
                let got = decoder.step(token).expect("of the vocabulary");
                check(got, want, tolerance, &format!("{:?} {storage:?}, position {position}", config.shape()));
            }
        }
    }
}

#[test]
fn a_prompt_in_pieces_gives_the_very_logits_of_its_tokens_one_by_one() {
    for config in shapes() {
        let (weights, text) = (weights(&config), text(&config, full(&config)));
        for storage in [Storage::F32, Storage::Int16] {
            let mut by_one = Decoder::new(&config, &weights, storage).expect("small");
            for &token in &text {
                by_one.step(token).expect("of the vocabulary");
            }
            for cut in [0, text.len() / 2, text.len()] {
                let mut in_pieces = Decoder::new(&config, &weights, storage).expect("small");
                if cut > 0 {
                    in_pieces.prefill(&text[..cut]).expect("of the vocabulary");
                }
                let got = in_pieces.prefill(&text[cut..]).expect("of the vocabulary");
                assert_eq!(got, by_one.logits(), "{:?} {storage:?} cut at {cut}", config.shape());
            }
        }
    }
}

#[test]
fn past_the_context_the_last_block_size_tokens_count() {
    for config in shapes() {
        let (weights, t) = (weights(&config), full(&config));
        let text = text(&config, t + t.min(9) + 3);
        let mut decoder = Decoder::new(&config, &weights, Storage::F32).expect("small");
        decoder.prefill(&text[..t]).expect("of the vocabulary");
        for (i, &token) in text.iter().enumerate().skip(t) {
            let got = decoder.step(token).expect("of the vocabulary");
            let want = reference(&config, &weights, &text[i + 1 - t..=i]);
            check(got, &want[want.len() - got.len()..], TOLERANCE, &format!("{:?}, token {i}", config.shape()));
            assert_eq!(decoder.n_tokens(), t);
        }
        let mut at_once = Decoder::new(&config, &weights, Storage::F32).expect("small");
        assert_eq!(at_once.prefill(&text).expect("of the vocabulary"), decoder.logits(), "{:?}", config.shape());
        at_once.reset();
        at_once.prefill(&text[..t / 2 + 1]).expect("of the vocabulary");
        let got = at_once.prefill(&text[t / 2 + 1..]).expect("of the vocabulary");
        assert_eq!(got, decoder.logits(), "{:?}", config.shape());
    }
}

#[test]
fn the_same_seed_gives_the_tokens_of_the_reference() {
    let config = config(2, 4, 128, 24, 97, true);
    let weights = weights(&config);
    let prompt = text(&config, 3);
    let mut texts = Vec::new();
    for sampling in [
        Sampling { temperature: 0.8, top_k: 20, seed: 1337 },
        Sampling { temperature: 1.0, top_k: 0, seed: 1338 },
        Sampling { temperature: 0.0, top_k: 0, seed: 1 },
    ] {
        let mut want = prompt.clone();
        for draw in 0..40 {
            let logits = reference(&config, &weights, &want[want.len().saturating_sub(full(&config))..]);
            want.push(sample(&logits[logits.len() - 97..], &sampling, draw, &mut Vec::new()));
        }
        for storage in [Storage::F32, Storage::Int16] {
            let mut decoder = Decoder::new(&config, &weights, storage).expect("small");
            decoder.prefill(&prompt).expect("of the vocabulary");
            let got: Vec<_> = (0..40).map(|draw| decoder.next(&sampling, draw).expect("a text")).collect();
            assert_eq!(got, want[prompt.len()..], "{sampling:?} {storage:?}");
        }
        texts.push(want);
    }
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "other settings give other texts");
}

#[test]
fn attention_is_a_softmax_over_the_positions_so_far() {
    let config = config(2, 4, 32, 16, 31, true);
    let weights = weights(&config);
    let text = text(&config, 16);
    let mut decoder = Decoder::new(&config, &weights, Storage::F32).expect("small");
    assert_eq!(decoder.attention(0, 0), Some(&[][..]));
    for (i, &token) in text.iter().enumerate() {
        decoder.step(token).expect("of the vocabulary");
        for (layer, head) in [(0, 0), (0, 3), (1, 2)] {
            let att = decoder.attention(layer, head).expect("there");
            assert_eq!(att.len(), i + 1);
            assert!((att.iter().sum::<f32>() - 1.0).abs() < 1e-6 && att.iter().all(|&weight| weight >= 0.0), "{att:?}");
        }
    }
    assert!(decoder.attention(2, 0).is_none() && decoder.attention(0, 4).is_none());

    // Looking back at a token changes neither the cache nor the logits.
    let (logits, last) = (decoder.logits().to_vec(), decoder.attention(1, 2).map(<[f32]>::to_vec));
    let mut other = Decoder::new(&config, &weights, Storage::F32).expect("small");
    for (i, &token) in text.iter().enumerate() {
        other.step(token).expect("of the vocabulary");
        let rows = (0..2).flat_map(|layer| (0..4).map(move |head| (layer, head)));
        let want: Vec<f32> =
            rows.flat_map(|(layer, head)| other.attention(layer, head).expect("there").to_vec()).collect();
        assert_eq!(decoder.attention_of(i), Some(want), "token {i}");
        assert_eq!(decoder.attention(1, 2).map(<[f32]>::to_vec), last);
        assert_eq!(decoder.logits(), logits);
    }
    assert_eq!(decoder.attention_of(16), None);

    // The first layer's attention, computed from the definition.
    let layout = Layout::new(&config).expect("small");
    let part = |tensor, layer| &weights[layout.range(tensor, layer).expect("there")];
    let (wte, wpe) = (part(Tensor::Wte, None), part(Tensor::Wpe, None));
    let qkv_of = |position: usize| {
        let token = text[position] as usize;
        let x: Vec<f64> = (0..32).map(|c| f64::from(wte[token * 32 + c] + wpe[position * 32 + c])).collect();
        let mean = x.iter().sum::<f64>() / 32.0;
        let rstd = 1.0 / (x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 32.0 + 1e-5).sqrt();
        let (w, b) = (part(Tensor::Ln1W, Some(0)), part(Tensor::Ln1B, Some(0)));
        let ln: Vec<f64> = (0..32).map(|c| (x[c] - mean) * rstd * f64::from(w[c]) + f64::from(b[c])).collect();
        let (w, b) = (part(Tensor::QkvW, Some(0)), part(Tensor::QkvB, Some(0)));
        let row = |o: usize| (0..32).map(|c| ln[c] * f64::from(w[o * 32 + c])).sum::<f64>() + f64::from(b[o]);
        (0..96).map(row).collect::<Vec<_>>()
    };
    let all: Vec<_> = (0..16).map(qkv_of).collect();
    for head in 0..4 {
        let dot = |key: &Vec<f64>| (head * 8..head * 8 + 8).map(|d| all[15][d] * key[32 + d]).sum::<f64>();
        let weights: Vec<f64> = all.iter().map(|key| (dot(key) / 8.0_f64.sqrt()).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (got, want) in decoder.attention(0, head).expect("there").iter().zip(&weights) {
            assert!((got.wide() - want / sum).abs() < 1e-6, "head {head}: {got} instead of {}", want / sum);
        }
    }
}

#[test]
fn the_likeliest_tokens_come_first_with_their_probabilities() {
    let config = config(1, 2, 16, 8, 53, true);
    let mut decoder = Decoder::new(&config, &weights(&config), Storage::Int16).expect("small");
    let mut likeliest = vec![(1, 1.0)];
    decoder.likeliest(5, &mut likeliest);
    assert!(likeliest.is_empty(), "an empty text has no next token");
    decoder.prefill(&[3, 1, 4]).expect("of the vocabulary");
    decoder.likeliest(100, &mut likeliest);
    assert_eq!(likeliest.len(), 53);
    assert!((likeliest.iter().map(|(_, p)| p).sum::<f32>() - 1.0).abs() < 1e-5);
    let mut want: Vec<u32> = (0..53).collect();
    want.sort_by(|&a, &b| decoder.logits()[b as usize].total_cmp(&decoder.logits()[a as usize]));
    assert!(likeliest.iter().map(|&(token, _)| token).eq(want));
    let all = likeliest.clone();
    decoder.likeliest(5, &mut likeliest);
    assert_eq!(likeliest, all[..5]);
}

#[test]
fn oversized_model_is_refused_without_change() {
    let config = config(1, 2, 16, 8, 53, false);
    let mut weights = weights(&config);
    let wrong = Decoder::new(&config, &weights[1..], Storage::F32).expect_err("one weight is missing");
    assert!(matches!(wrong, DecodeError::WrongLength { .. }), "{wrong}");
    let mut decoder = Decoder::new(&config, &weights, Storage::F32).expect("small");
    let sampling = Sampling { temperature: 1.0, top_k: 3, seed: 1 };
    assert_eq!(decoder.prefill(&[]).expect_err("no text"), DecodeError::NoTokens);
    assert_eq!(decoder.next(&sampling, 0).expect_err("no text"), DecodeError::NoTokens);
    decoder.prefill(&[1, 2]).expect("of the vocabulary");
    let before = decoder.logits().to_vec();
    let beyond = decoder.prefill(&[1, 53]).expect_err("beyond the vocabulary");
    assert_eq!(beyond, DecodeError::NoSuchToken { token: 53, vocab_size: 53 });
    assert_eq!((decoder.n_tokens(), decoder.prefill(&[]).expect("a text")), (2, &before[..]));
    let no_bias = decoder.load(Tensor::LnfB, None, &[0.0; 16]).expect_err("no bias");
    assert_eq!(no_bias.to_string(), "the model has no transformer.ln_f.bias");
    assert!(decoder.load(Tensor::Ln1W, Some(1), &[0.0; 16]).is_err(), "no second block");
    weights[5] = f32::NAN;
    let nan = Decoder::new(&config, &weights, Storage::Int16).expect_err("a weight is NaN");
    assert_eq!(nan, DecodeError::NotFinite { tensor: "transformer.wte.weight".to_owned() });
}

#[test]
#[should_panic(expected = "instead of")]
fn a_model_of_other_weights_does_not_pass() {
    let config = config(2, 3, 15, 7, 13, true);
    let mut weights = weights(&config);
    let want = reference(&config, &weights, &[1, 2, 3]);
    let layout = Layout::new(&config).expect("small");
    // Changes one weight of the last block's last matrix.
    weights[layout.range(Tensor::FcProjW, Some(1)).expect("there").start] += 0.05;
    let mut decoder = Decoder::new(&config, &weights, Storage::Int16).expect("small");
    check(decoder.prefill(&[1, 2, 3]).expect("of the vocabulary"), &want[26..], INT16_TOLERANCE, "other weights");
}
