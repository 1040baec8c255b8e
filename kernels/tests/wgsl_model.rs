//! Compares the WebGPU engine with the reference: logits, tokens, attention weights and memory. Also checks its errors.
#![cfg(feature = "wgpu")]

mod gpu;

use gpu::{check, config, gpu, normals, tokens};
use headroom_kernels::{
    layout::Layout,
    reference::{
        gpt::{DropoutPass, Gpt},
        pack::{half_bits, half_value},
    },
    sampling::{Sampling, sample},
    wgpu::{Generator, Gpu, GpuError, Options, Request, block_on},
};
use headroom_languages as _;
use headroom_planner::gpt::{GptConfig, buffers::inference::Inference, tensors::Tensor};

/// Parameters larger than a new model's, so that logits differ from each other.
fn parameters(config: &GptConfig) -> Vec<f32> {
    let layout = Layout::new(config).expect("small");
    let mut flat = normals(layout.len(), 0.15, 21);
    for entry in layout.entries() {
        if entry.name.contains("ln_") && entry.name.ends_with("weight") {
            flat[entry.range.clone()].iter_mut().for_each(|x| *x += 1.0);
        }
    }
    flat
}

/// The reference's logits for the last token of a text.
fn reference(config: &GptConfig, flat: &[f32], text: &[u32]) -> Vec<f32> {
    let gpt = Gpt::new(config, text.len()).expect("small");
    let pass = gpt.forward(flat, text, text, DropoutPass::NONE);
    let v = usize::try_from(config.vocab_size()).expect("small");
    pass.logits[(text.len() - 1) * v..].to_vec()
}

/// The parameters after rounding of matrices to half precision.
fn rounded(config: &GptConfig, flat: &[f32]) -> Vec<f32> {
    let mut flat = flat.to_vec();
    let layout = Layout::new(config).expect("small");
    for entry in layout.entries().iter().filter(|entry| entry.shape.len() > 1 && entry.parameter.tensor != Tensor::Wpe)
    {
        flat[entry.range.clone()].iter_mut().for_each(|x| *x = half_value(half_bits(*x)));
    }
    flat
}

fn generator(gpu: &Gpu, config: &GptConfig, options: Options, flat: &[f32]) -> Generator {
    let generator = block_on(Generator::new(gpu, config, options)).expect("a small model fits");
    generator.write_parameters(flat).expect("parameters of that shape");
    generator
}

/// Compares the logits and tokens of a prompt and the generated text with the reference.
#[track_caller]
fn follow(gpu: &Gpu, config: &GptConfig, options: Options, prompt: usize, steps: usize) {
    let flat = parameters(config);
    let mut generator = generator(gpu, config, options, &flat);
    let flat = if options.inference.half { rounded(config, &flat) } else { flat };
    let mut text = tokens(prompt, config.vocab_size(), 3);
    generator.prefill(&text).expect("room for the prompt");
    let scratch = &mut Vec::new();
    for (step, draw) in (0..steps).zip(0..) {
        let sampling = [
            Sampling { temperature: 1.0, top_k: 5, seed: 7 },
            Sampling { temperature: 0.0, top_k: 0, seed: 7 },
            Sampling { temperature: 0.9, top_k: 0, seed: 7 },
        ][step % 3];
        let want = reference(config, &flat, &text);
        let got = block_on(generator.step(&sampling, 3)).expect("room for a token");
        check("logits", &block_on(generator.logits()).expect("logits"), &want);
        assert_eq!(got.token, sample(&want, &sampling, draw, scratch), "step {step}");
        assert!(got.candidates.len() <= 3 && !got.candidates.is_empty());
        text.push(got.token);
    }
    assert_eq!(generator.n_tokens(), text.len() as u64);
}

#[test]
fn a_small_model_goes_on_as_the_reference_does() {
    follow(&gpu(), &config(2, 4, 64, 24, 65, true), Options::default(), 5, 12);
}

#[test]
fn shapes_of_primes_and_ones_too() {
    for config in [
        config(1, 1, 1, 1, 1, true),
        config(1, 7, 35, 13, 101, false),
        config(3, 1, 13, 11, 2, true),
        config(2, 5, 60, 17, 97, false),
        config(1, 2, 256, 9, 53, true),
    ] {
        let steps = usize::try_from(config.block_size()).expect("small").min(6);
        follow(&gpu(), &config, Options::default(), 1, steps);
    }
}

#[test]
fn a_prompt_longer_than_a_pass_takes_turns() {
    follow(&gpu(), &config(1, 2, 16, 600, 31, true), Options::default(), 561, 3);
}

#[test]
fn half_precision_is_that_of_rounded_weights() {
    let options = Options { inference: Inference { half: true, attention: false }, ..Options::default() };
    let config = config(2, 3, 72, 20, 67, true);
    follow(&gpu(), &config, options, 4, 6);
    let packed = block_on(Gpu::request(Request { without_f16: true, ..Request::default() })).expect("an adapter");
    assert!(!packed.has_f16());
    follow(&packed, &config, options, 4, 6);
}

/// The kernels for GPUs: prompt tiles in workgroup memory, split rows for a token, and larger workgroups.
#[test]
fn the_ways_of_hardware_are_the_same_model() {
    let request = Request { as_hardware: true, ..Request::default() };
    let hardware = block_on(Gpu::request(request)).expect("an adapter");
    follow(&hardware, &config(2, 4, 64, 48, 101, true), Options::default(), 37, 4);
    let options = Options { inference: Inference { half: true, attention: false }, ..Options::default() };
    follow(&hardware, &config(1, 3, 72, 20, 67, false), options, 4, 3);
}

#[test]
fn matrices_in_pieces_change_nothing() {
    // A row of 64 channels has 256 bytes, so that a binding holds at most 56 rows, or 12 of the wide ones.
    let options = Options { binding_bytes_max: Some(14 << 10), ..Options::default() };
    let config = config(1, 4, 64, 12, 101, true);
    follow(&gpu(), &config, options, 5, 6);
    let pieces = generator(&gpu(), &config, options, &parameters(&config)).buffers();
    assert!(pieces.iter().any(|allocated| allocated.n_pieces > 2));
}

#[test]
fn text_can_be_added_in_the_middle() {
    let config = config(2, 2, 32, 24, 41, true);
    let flat = parameters(&config);
    let mut generator = generator(&gpu(), &config, Options::default(), &flat);
    let sampling = Sampling { temperature: 0.0, top_k: 0, seed: 1 };
    let mut text = tokens(3, 41, 5);
    generator.prefill(&text).expect("room");
    for _ in 0..2 {
        text.push(block_on(generator.step(&sampling, 0)).expect("room").token);
    }
    let more = tokens(4, 41, 6);
    generator.prefill(&more).expect("room");
    text.extend(more);
    check("logits", &block_on(generator.logits()).expect("logits"), &reference(&config, &flat, &text));
    generator.reset();
    assert_eq!(block_on(generator.step(&sampling, 0)), Err(GpuError::NoTokens));
    generator.prefill(&text[..3]).expect("room");
    check("logits", &block_on(generator.logits()).expect("logits"), &reference(&config, &flat, &text[..3]));
}

#[test]
fn the_tanh_form_is_another_model() {
    let config = config(1, 2, 32, 8, 41, true);
    let flat = parameters(&config);
    let logits = |gelu_tanh| {
        let mut generator = generator(&gpu(), &config, Options { gelu_tanh, ..Options::default() }, &flat);
        generator.prefill(&[1, 2, 3]).expect("room");
        block_on(generator.logits()).expect("logits")
    };
    let (exact, tanh) = (logits(false), logits(true));
    check("logits", &exact, &reference(&config, &flat, &[1, 2, 3]));
    assert_ne!(exact, tanh);
    let near = exact.iter().zip(&tanh).all(|(exact, tanh)| (exact - tanh).abs() < 0.02);
    assert!(near, "the two forms are near each other");
}

#[test]
fn attention_weights_of_every_head_are_a_causal_map() {
    let config = config(2, 3, 48, 16, 41, true);
    let flat = parameters(&config);
    let options = Options { inference: Inference { half: false, attention: true }, ..Options::default() };
    let mut generator = generator(&gpu(), &config, options, &flat);
    generator.prefill(&tokens(9, 41, 8)).expect("room");
    for _ in 0..3 {
        block_on(generator.step(&Sampling { temperature: 1.0, top_k: 0, seed: 2 }, 0)).expect("room");
    }
    // The six maps exceed the buffer that is read, which has 16 x 16 weights.
    let all = block_on(generator.attention(0..11, 0..11)).expect("queries are kept");
    assert_eq!(all.len(), 2 * 3 * 11 * 11);
    let maps: Vec<_> = all.chunks_exact(11 * 11).collect();
    for (index, map) in maps.iter().enumerate() {
        for (query, row) in map.chunks_exact(11).enumerate() {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{row:?}");
            assert!(
                row[..=query].iter().all(|&weight| weight > 0.0)
                    && row[query + 1..].iter().all(|&weight| weight == 0.0)
            );
        }
        assert!(maps[..index].iter().all(|other| other != map), "heads differ");
    }
    // Parts of the maps, which fit the buffer together.
    let part = block_on(generator.attention(9..11, 4..8)).expect("two rows");
    let rows = maps.iter().flat_map(|map| map.chunks_exact(11).skip(9));
    assert_eq!(part, rows.flat_map(|row| &row[4..8]).copied().collect::<Vec<_>>());
    for (queries, keys) in [(11..12, 0..1), (10..11, 0..12), (3..3, 0..1), (0..1, 2..2)] {
        assert!(matches!(block_on(generator.attention(queries, keys)), Err(GpuError::NoAttention { .. })));
    }
}

#[test]
fn plan_equals_allocation() {
    for half in [false, true] {
        for attention in [false, true] {
            let config = config(2, 3, 45, 20, 101, true);
            let inference = Inference { half, attention };
            let options = Options { inference, ..Options::default() };
            let generator = block_on(Generator::new(&gpu(), &config, options)).expect("small");
            let planned = inference.buffers(&config).expect("small");
            let allocated = generator.buffers();
            assert_eq!(allocated.len(), planned.all().len());
            for (allocated, planned) in allocated.iter().zip(planned.all()) {
                assert_eq!((allocated.planned, allocated.bytes), (*planned, planned.bytes), "{}", planned.name());
            }
            assert_eq!(allocated.iter().map(|allocated| allocated.bytes).sum::<u64>(), planned.bytes());
        }
    }
}

#[test]
fn impossible_request_is_refused_with_message() {
    let config = config(1, 2, 16, 4, 11, false);
    let mut generator = generator(&gpu(), &config, Options::default(), &parameters(&config));
    let sampling = Sampling { temperature: 1.0, top_k: 0, seed: 1 };
    assert_eq!(block_on(generator.step(&sampling, 0)), Err(GpuError::NoTokens));
    assert_eq!(generator.prefill(&[]), Err(GpuError::NoTokens));
    assert_eq!(generator.prefill(&[3, 11]), Err(GpuError::NoSuchToken { token: 11, vocab_size: 11 }));
    assert_eq!(generator.prefill(&[0; 5]), Err(GpuError::ContextFull { block_size: 4, tokens: 5 }));
    assert_eq!(
        generator.write_parameter(Tensor::FcB, Some(0), &[0.0; 64]),
        Err(GpuError::NoSuchParameter { name: "transformer.h.0.mlp.c_fc.bias".into() })
    );
    assert!(matches!(
        generator.write_parameter(Tensor::LnfW, None, &[0.0; 17]),
        Err(GpuError::WrongLength { expected: 16, given: 17, .. })
    ));
    assert!(matches!(block_on(generator.attention(0..1, 0..1)), Err(GpuError::NoAttention { .. })));
    generator.prefill(&[1, 2, 3, 4]).expect("as many as it sees");
    block_on(generator.step(&sampling, 0)).expect("the token behind the last");
    assert_eq!(block_on(generator.step(&sampling, 0)), Err(GpuError::ContextFull { block_size: 4, tokens: 5 }));
    let wide = gpu::config(1, 1, 2048, 4, 11, false);
    let error = block_on(Generator::new(&gpu(), &wide, Options::default())).expect_err("a head of 2048 channels");
    assert!(
        error.to_string().starts_with("a head of 2048 channels needs maxComputeInvocationsPerWorkgroup"),
        "{error}"
    );
}

#[test]
fn a_model_beyond_the_adapters_memory_is_refused() {
    // Embeddings of 12 TiB would be divided into many pieces, but a cache cannot be divided and exceeds its limit.
    let config = config(1, 1, 4096, 1 << 20, 11, false);
    let error = block_on(Generator::new(&gpu(), &config, Options::default())).expect_err("16 GiB in one binding");
    assert!(matches!(error, GpuError::LimitTooSmall { .. }), "{error}");
}

#[test]
fn a_lost_device_is_reported() {
    let gpu = block_on(Gpu::request(Request::default())).expect("an adapter");
    let config = config(1, 2, 16, 8, 11, true);
    let mut generator = generator(&gpu, &config, Options::default(), &parameters(&config));
    generator.prefill(&[1, 2]).expect("room");
    gpu.destroy();
    let error = block_on(generator.step(&Sampling { temperature: 1.0, top_k: 0, seed: 1 }, 0)).expect_err("no device");
    assert!(matches!(error, GpuError::DeviceLost { .. }), "{error}");
}
