//! Memory of CPU inference: allocations equal the plan to the byte, and none occur after creation.

use std::{
    alloc::{GlobalAlloc, Layout as Bytes, System},
    cell::Cell,
};

use headroom_kernels::{
    decode::{Decoder, Storage},
    layout::Layout,
    sampling::Sampling,
};
use headroom_planner::gpt::{GptConfig, GptShape, buffers};

/// An allocator that counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: i64) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: every call is forwarded to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, bytes: Bytes) -> *mut u8 {
        count(1, signed(bytes.size()));
        // SAFETY: promised by the caller.
        unsafe { System.alloc(bytes) }
    }
    unsafe fn dealloc(&self, at: *mut u8, bytes: Bytes) {
        count(0, -signed(bytes.size()));
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(at, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn config(block_size: u64, n_embd: u64, vocab_size: u64) -> GptConfig {
    let shape = GptShape { n_layer: 3, n_head: 2, n_embd, block_size, vocab_size, dropout: 0.0, bias: true };
    GptConfig::new(shape).expect("valid")
}

/// A decoder, and the bytes that it holds.
fn decoder(config: &GptConfig, storage: Storage) -> (Decoder, i64) {
    let weights = vec![0.01; Layout::new(config).expect("small").len()];
    let before = LIVE_BYTES.get();
    let decoder = Decoder::new(config, &weights, storage).expect("small");
    (decoder, LIVE_BYTES.get() - before)
}

#[test]
fn planned_bytes_equal_allocated_bytes() {
    for storage in [Storage::F32, Storage::Int16] {
        // The decoder's memory besides its buffers depends only on the number of tensors.
        let mut besides = Vec::new();
        for config in [config(1, 2, 1), config(64, 48, 301), config(33, 34, 77), config(12, 26, 5003)] {
            let planned = buffers::decoder(&config, storage).expect("small");
            let (decoder, live_bytes) = decoder(&config, storage);
            for buffer in decoder.buffers() {
                assert_eq!(buffer.planned.bytes, buffer.allocated_bytes, "{}", buffer.planned.name());
            }
            let all: u64 = decoder.buffers().iter().map(|buffer| buffer.allocated_bytes).sum();
            assert_eq!(all, planned.bytes());
            besides.push(live_bytes - i64::try_from(planned.bytes()).expect("small"));
        }
        assert!(besides.iter().all(|&bytes| bytes == besides[0]), "{besides:?}");
        assert!((0..16_384).contains(&besides[0]), "{besides:?}");
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let config = config(20, 32, 101);
    for storage in [Storage::F32, Storage::Int16] {
        let (mut decoder, _) = decoder(&config, storage);
        let mut likeliest = Vec::with_capacity(8);
        let before = ALLOCATIONS.get();
        decoder.prefill(&[1, 2, 3, 4, 5]).expect("of the vocabulary");
        for draw in 0..40 {
            let top_k = if draw % 2 == 0 { 7 } else { 0 };
            decoder.next(&Sampling { temperature: 0.9, top_k, seed: 1 }, draw).expect("a text");
            decoder.likeliest(5, &mut likeliest);
        }
        assert_eq!(ALLOCATIONS.get(), before, "{storage:?}");
        assert_eq!((decoder.n_tokens(), likeliest.len()), (20, 5));
    }
}

#[test]
fn the_counter_counts() {
    let (allocations, live_bytes) = (ALLOCATIONS.get(), LIVE_BYTES.get());
    let vec = std::hint::black_box(vec![1_u8; 1000]);
    assert_eq!((ALLOCATIONS.get() - allocations, LIVE_BYTES.get() - live_bytes), (1, 1000));
    drop(vec);
    assert_eq!(LIVE_BYTES.get(), live_bytes);
}
