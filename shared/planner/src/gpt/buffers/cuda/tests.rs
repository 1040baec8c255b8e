//! Tests of the arena: buffers do not overlap, recompute levels save the documented tensors, and the README's example
//! fits.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{gpt::GptShape, hardware::ComputeCapability};

const GIB: u64 = 1 << 30;

fn gpt2(n_layer: u64, dropout: f64) -> GptConfig {
    let shape =
        GptShape { n_layer, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50257, dropout, bias: false };
    GptConfig::new(shape).expect("valid")
}

fn arena(level: Recompute, dropout: f64) -> CudaTraining {
    CudaTraining::new(&gpt2(12, dropout), 64, vec![level; 12]).expect("small")
}

#[test]
fn live_buffers_do_not_overlap() {
    for level in Recompute::ALL {
        for dropout in [0.0, 0.1] {
            let arena = arena(level, dropout);
            for (i, one) in arena.slots.iter().enumerate() {
                assert!(one.offset + one.buffer.bytes <= arena.bytes);
                for other in &arena.slots[i + 1..] {
                    let together = one.alive.0 <= other.alive.1 && other.alive.0 <= one.alive.1;
                    let apart = one.offset + one.buffer.bytes <= other.offset
                        || other.offset + other.buffer.bytes <= one.offset;
                    assert!(apart || !together, "{level:?}: {} and {}", one.buffer.name(), other.buffer.name());
                }
            }
        }
    }
}

/// 124,337,664 parameters and 7 padded rows of 768, with 18 bytes each: two copies of the weights, gradient and
/// moments.
#[test]
fn parameters_take_eighteen_bytes_each() {
    let arena = arena(Recompute::None, 0.0);
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for slot in &arena.slots {
        *bytes.entry(slot.buffer.category().name()).or_default() += slot.buffer.bytes;
    }
    let n = gpt2(12, 0.0).n_parameters().expect("small") + 7 * 768;
    assert_eq!(bytes["parameters"], 6 * n);
    // The norm of the gradients adds 4 bytes.
    assert_eq!(bytes["gradients"], 4 * n + 4);
    assert_eq!(bytes["optimizer_state"], 8 * n);
}

/// A stream of 65,536 rows of 768 in bfloat16 is 96 MiB. A block saves 16 of them, 10, 6 or 1, and statistics.
#[test]
fn a_level_keeps_what_it_says() {
    let streams = |level| {
        let arena = arena(level, 0.0);
        let kept = arena.slots.iter().filter(|slot| slot.buffer.layer == Some(5));
        let bytes: u64 = kept
            .filter(|slot| slot.buffer.category().name() == "activations")
            .filter(|slot| slot.buffer.bytes >= 96 << 20)
            .map(|slot| slot.buffer.bytes)
            .sum();
        bytes / (96 << 20)
    };
    assert_eq!(Recompute::ALL.map(streams), [16, 10, 6, 1]);
}

/// The README's example: PyTorch needs 40.7 GiB for it.
#[test]
fn gpt2_with_64_sequences_fits_a_gpu_of_12_gb() {
    // 11.69 GiB, less about 300 MiB for a CUDA context; the desktop uses none.
    let free_bytes = 11_69 * GIB / 100 - 300 * (1 << 20);
    let arena = plan(&gpt2(12, 0.0), 64, free_bytes).expect("small").expect("it fits");
    assert!(arena.bytes <= free_bytes);
    // The plan does not recompute everything.
    assert!(arena.recompute.contains(&Recompute::Attention), "{:?}", arena.recompute);
}

#[test]
fn categories_in_the_fullest_moment_are_nearly_all_of_the_arena() {
    for level in Recompute::ALL {
        let arena = arena(level, 0.1);
        let categories = arena.fullest();
        let sum: u64 = categories.iter().map(|(_, bytes)| bytes).sum();
        assert!(sum <= arena.bytes && sum >= arena.bytes / 100 * 97, "{level:?}: {sum} of {}", arena.bytes);
        assert!(categories.iter().all(|(_, bytes)| *bytes > 0) && categories.len() > 3);
    }
}

#[test]
fn a_level_is_found_by_its_name() {
    for level in Recompute::ALL {
        assert_eq!(Recompute::named(level.name()), Some(level));
    }
    assert_eq!(Recompute::named("all"), None);
}

#[test]
fn more_room_never_computes_more_again() {
    let config = gpt2(4, 0.1);
    let mut before: Option<CudaTraining> = None;
    for tenths in 10..80 {
        let free_bytes = tenths * GIB / 10;
        let Ok(arena) = plan(&config, 16, free_bytes).expect("small") else {
            assert!(before.is_none(), "{tenths}");
            continue;
        };
        assert!(arena.bytes <= free_bytes);
        let sum = |arena: &CudaTraining| arena.recompute.iter().map(|&level| level as u64).sum::<u64>();
        assert!(before.as_ref().is_none_or(|before| sum(&arena) <= sum(before)), "{tenths}");
        before = Some(arena);
    }
    let most = before.expect("8 GB are enough");
    assert!(most.recompute.iter().all(|&level| level == Recompute::None), "{:?}", most.recompute);
}

#[test]
fn oversized_plan_reports_needed_bytes() {
    let free_bytes = GIB;
    let error = plan(&gpt2(12, 0.0), 64, free_bytes).expect("small").expect_err("a gigabyte is too little");
    let least = arena(Recompute::Block, 0.0).bytes;
    assert!(error.needed_bytes <= least && error.needed_bytes > 4 * GIB, "{error}");
}

/// A whole number of allocator blocks, so that the arena grows by exactly this workspace.
#[test]
fn the_librarys_room_is_planned_to_the_byte() {
    let config = gpt2(12, 0.0);
    let recompute = vec![Recompute::None; 12];
    let own = CudaTraining::new(&config, 4, recompute.clone()).expect("small");
    for (major, mebibytes) in [(8, 4), (9, 32), (12, 32)] {
        let gemm_backend = GemmBackend::cublaslt(ComputeCapability::new(major, 0));
        let with = CudaTraining::with_libraries(&config, 4, recompute.clone(), gemm_backend.into()).expect("small");
        assert_eq!(with.bytes - own.bytes, mebibytes << 20, "{major}.x");
        assert_eq!(with.slots.len(), own.slots.len() + 1);
        let room =
            with.slots.iter().find(|slot| slot.buffer.stored.tensor == Tensor::CublasWorkspace).expect("planned");
        assert_eq!((room.buffer.bytes, room.alive), (mebibytes << 20, (PlanTime::FIRST, PlanTime::LAST)));
    }
    assert!(own.slots.iter().all(|slot| slot.buffer.stored.tensor != Tensor::CublasWorkspace));
    let fits = |free_bytes| {
        plan_with(&config, 4, free_bytes, GemmBackend::cublaslt(ComputeCapability::new(9, 0)).into())
            .expect("small")
            .expect("it fits")
    };
    assert!(fits(own.bytes).recompute > own.recompute, "the room is not there for nothing");
    assert_eq!(fits(own.bytes + (32 << 20)).recompute, own.recompute);
}

/// The workspace of cuDNN's attention backward reuses the memory of the logits, which are dead by then. With attention
/// recomputed, but not the whole block, no other moment has more live bytes.
#[test]
fn attention_by_cudnn_takes_room_in_its_moment_alone() {
    let config = gpt2(12, 0.0);
    let libraries = Backends { attention_backend: AttentionBackend::Cudnn, ..Backends::NONE };
    for level in Recompute::ALL {
        let own = CudaTraining::new(&config, 64, vec![level; 12]).expect("small");
        let with = CudaTraining::with_libraries(&config, 64, vec![level; 12], libraries).expect("small");
        let rooms = with.slots.iter().filter(|slot| slot.buffer.stored.tensor == Tensor::CudnnWorkspace);
        let rooms: Vec<_> = rooms.map(|slot| (slot.buffer.bytes, slot.alive)).collect();
        let backward_bytes = (192 << 20) + (64 << 10);
        let backward = (backward_bytes, (PlanTime::DAttention, PlanTime::DAttention));
        assert_eq!(rooms, [(64 << 10, (PlanTime::FIRST, PlanTime::LAST)), backward]);
        let is_again = level == Recompute::Attention;
        let more_bytes = (64 << 10) + if is_again { backward_bytes } else { 0 };
        assert_eq!(with.bytes - own.bytes, more_bytes, "{level:?}");
    }
}

/// `size` computes the arena's size without its buffer list, and both agree for every choice.
#[test]
fn a_size_is_that_of_the_arena() {
    for (n_layer, batch_size, dropout) in [(1, 1, 0.0), (2, 3, 0.1), (12, 64, 0.0), (12, 64, 0.2), (5, 12, 0.0)] {
        let config = gpt2(n_layer, dropout);
        let (most, least) = (size(&config, batch_size, u64::MAX).expect("small"), size(&config, batch_size, 0));
        let least = least.expect("small");
        assert!(most.recompute.iter().all(|&level| level == Recompute::None) && least.bytes <= most.bytes);
        let mut seen = BTreeSet::new();
        for share in 0..=50 {
            let free_bytes = least.bytes + (most.bytes - least.bytes) / 50 * share;
            let sized = size(&config, batch_size, free_bytes).expect("small");
            let arena = CudaTraining::new(&config, batch_size, sized.recompute.clone()).expect("small");
            assert_eq!((sized.bytes, &sized.recompute), (arena.bytes, &arena.recompute));
            seen.insert(sized.recompute);
            let libraries = Backends {
                gemm_backend: GemmBackend::cublaslt(ComputeCapability::new(9, 0)),
                attention_backend: AttentionBackend::Cudnn,
            };
            match plan_with(&config, batch_size, free_bytes, libraries).expect("small") {
                Ok(arena) => assert!(arena.bytes <= free_bytes),
                Err(error) => assert!(error.needed_bytes > free_bytes),
            }
        }
        assert!(seen.len() as u64 > n_layer, "{}", seen.len());
    }
}

/// Planning the maximum number of blocks costs no more than planning twelve, except for their parameters.
#[test]
fn a_thousand_blocks_are_planned() {
    let config = gpt2(crate::gpt::MAX_N_LAYER, 0.0);
    let sized = size(&config, 64, 0).expect("small");
    assert_eq!(sized.recompute.len(), 1024);
    assert!(size(&config, 64, sized.bytes).expect("small").bytes <= sized.bytes);
}
