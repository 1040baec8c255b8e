//! Tokens a second of the engine on WebGPU: `cargo bench -p headroom-kernels --features wgpu --bench wgpu [-- SHAPE…]`.
//!
//! Shapes: `tiny` (4 layers of 128 channels, 4 heads, 65 tokens), `tiny50257` (the same with GPT-2's vocabulary) and
//! `gpt2` (124M). Weights are random. Prints JSON lines: adapter, shape, how weights are stored, milliseconds and
//! tokens a second of a prompt of 64 tokens and of tokens after it (the median), and the bytes that a token reads as a
//! share of the bandwidth that a copy between two buffers has here (read and written bytes counted).
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::time::Instant;

use headroom_kernels::{
    layout::Layout,
    rng::Stream,
    sampling::Sampling,
    wgpu::{Generator, Gpu, GpuError, Options, Request, block_on},
};
use headroom_shared::gpt::{
    GptConfig, GptShape,
    buffers::inference::Inference,
    tensors::{Category, Tensor},
};

const PROMPT: u32 = 64;

fn shape(name: &str) -> Option<GptShape> {
    let tiny =
        GptShape { n_layer: 4, n_head: 4, n_embd: 128, block_size: 256, vocab_size: 65, dropout: 0.0, bias: true };
    match name {
        "tiny" => Some(tiny),
        "tiny50257" => Some(GptShape { vocab_size: 50257, ..tiny }),
        "gpt2" => Some(GptShape { n_layer: 12, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50257, ..tiny }),
        _ => None,
    }
}

fn main() -> Result<(), GpuError> {
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| shape(arg).is_some()).collect();
    let names = if named.is_empty() { ["tiny", "tiny50257", "gpt2"].map(str::to_owned).to_vec() } else { named };
    let gpu = block_on(Gpu::request(Request::default()))?;
    let copied = copy_bytes_per_second(&gpu);
    println!(
        "{{\"adapter\": {:?}, \"software\": {}, \"f16\": {}, \"copy_gb_per_s\": {:.2}}}",
        gpu.name(),
        gpu.is_software(),
        gpu.has_f16(),
        copied / 1e9
    );
    for name in names {
        let shape = shape(&name).expect("only known names are left");
        for half in [false, true] {
            run(&gpu, &name, &GptConfig::new(shape).expect("a valid shape"), half, copied)?;
        }
    }
    Ok(())
}

/// Bytes read and written by a copy, a second; the best of some.
fn copy_bytes_per_second(gpu: &Gpu) -> f64 {
    let size = 64 << 20;
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let buffer = || {
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        gpu.device().create_buffer(&descriptor)
    };
    let (from, to) = (buffer(), buffer());
    let copy = || {
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&from, 0, &to, 0, size);
        let start = Instant::now();
        gpu.queue().submit([encoder.finish()]);
        gpu.device().poll(wgpu::PollType::wait_indefinitely()).expect("the device goes on");
        2.0 * size as f64 / start.elapsed().as_secs_f64()
    };
    (0..8).map(|_| copy()).fold(0.0, f64::max)
}

fn run(gpu: &Gpu, name: &str, config: &GptConfig, half: bool, copied: f64) -> Result<(), GpuError> {
    let options = Options { inference: Inference { half, attention: false }, ..Options::default() };
    let start = Instant::now();
    let mut generator = block_on(Generator::new(gpu, config, options))?;
    let start_ms = start.elapsed().as_secs_f64() * 1e3;
    write_random(&generator, config)?;
    let sampling = Sampling { temperature: 0.8, top_k: 200, seed: 1 };
    let prompt: Vec<u32> = (0..PROMPT).map(|i| i * 7 % 65).collect();
    // Once to warm up; a choice ends a prompt, as only then it is known to be done.
    let mut prefill_ms = Vec::new();
    for _ in 0..3 {
        generator.reset();
        let start = Instant::now();
        generator.prefill(&prompt)?;
        block_on(generator.step(&sampling, 0))?;
        prefill_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let mut decode_ms = Vec::new();
    for _ in 0..if config.n_embd() > 256 { 10 } else { 60 } {
        let start = Instant::now();
        block_on(generator.step(&sampling, 0))?;
        decode_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let (prefill, decode) = (median(&mut prefill_ms), median(&mut decode_ms));
    let read: u64 = generator
        .buffers()
        .iter()
        .filter(|buffer| {
            buffer.planned.category() == Category::Parameters && buffer.planned.stored.tensor != Tensor::Wpe
        })
        .map(|buffer| buffer.bytes)
        .sum();
    let share = read as f64 / (decode / 1e3) / copied;
    println!(
        "{{\"shape\": {name:?}, \"weights\": {:?}, \"dispatches\": {}, \"start_ms\": {start_ms:.0}, \"prompt\": {PROMPT}, \"prefill_ms\": {prefill:.1}, \
         \"prefill_tokens_per_s\": {:.1}, \"decode_ms\": {decode:.2}, \"decode_best_ms\": {:.2}, \"decode_tokens_per_s\": {:.1}, \"bytes_a_token\": {read}, \
         \"share_of_copy_bandwidth\": {share:.3}}}",
        if half { "f16" } else { "f32" },
        generator.n_dispatches(),
        f64::from(PROMPT) / (prefill / 1e3),
        decode_ms[0],
        1e3 / decode,
    );
    Ok(())
}

/// Small normal numbers, the same piece again and again: what they are does not matter, but that they are no zeros.
fn write_random(generator: &Generator, config: &GptConfig) -> Result<(), GpuError> {
    let layout = Layout::new(config)?;
    let mut stream = Stream::new(1, 0);
    #[expect(clippy::cast_possible_truncation, reason = "random numbers in the type of weights")]
    let piece: Vec<f32> = (0..65_537).map(|_| 0.02 * stream.normal() as f32).collect();
    for entry in layout.entries() {
        let values: Vec<f32> = piece.iter().copied().cycle().take(entry.range.len()).collect();
        generator.write_parameter(entry.parameter.tensor, entry.parameter.layer, &values)?;
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
