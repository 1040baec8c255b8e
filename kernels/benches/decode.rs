//! Inference on the CPU: one token of a text of up to 256, and a token of a prompt; the tiny shape and GPT-2 124M, matrices in
//! f32 and in 16-bit integers.

#![allow(missing_docs, reason = "criterion's macros write a function without any")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headroom_kernels::{
    decode::{Decoder, Storage},
    layout::Layout,
    rng::Stream,
};
use headroom_shared::gpt::{GptConfig, GptShape};

const CACHED: usize = 64;

fn config(n_layer: u64, n_head: u64, n_embd: u64, block_size: u64, vocab_size: u64) -> GptConfig {
    let shape = GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias: true };
    GptConfig::new(shape).expect("valid")
}

#[expect(clippy::cast_possible_truncation, reason = "random weights")]
fn decoder(config: &GptConfig, storage: Storage) -> Decoder {
    let mut decoder = Decoder::empty(config, storage).expect("it fits");
    let mut stream = Stream::new(1, 1);
    for entry in Layout::new(config).expect("it fits").entries() {
        let layer = entry.parameter.layer.and_then(|layer| usize::try_from(layer).ok());
        let weights: Vec<f32> = entry.range.clone().map(|_| (stream.uniform() as f32 - 0.5) * 0.08).collect();
        decoder.load(entry.parameter.tensor, layer, &weights).expect("of this model");
    }
    decoder
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.sample_size(10);
    let tokens: Vec<u32> = (0..96).take(CACHED).collect();
    for (name, config) in [
        ("tiny", config(4, 4, 128, 256, 96)),
        ("tiny, 50257 tokens", config(4, 4, 128, 256, 50257)),
        ("GPT-2 124M", config(12, 12, 768, 1024, 50257)),
    ] {
        for storage in [Storage::F32, Storage::Int16] {
            let mut decoder = decoder(&config, storage);
            group.throughput(Throughput::Elements(1));
            group.bench_function(format!("{name}, {storage:?}, {}", decoder.instructions()), |bencher| {
                bencher.iter(|| {
                    // From an empty cache on again: the mean text is 128 long.
                    if decoder.n_tokens() == 256 {
                        decoder.reset();
                    }
                    black_box(decoder.step(7).expect("of the vocabulary")[0])
                });
            });
            group.throughput(Throughput::Elements(CACHED as u64));
            group.bench_function(format!("{name}, {storage:?}, a prompt of {CACHED}"), |bencher| {
                bencher.iter(|| {
                    decoder.reset();
                    black_box(decoder.prefill(&tokens).expect("of the vocabulary")[0])
                });
            });
        }
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
