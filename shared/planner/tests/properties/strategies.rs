//! Strategies for small runs of every kind.

use headroom_planner::{
    dtype::Dtype,
    gpt::{GptConfig, GptShape},
    hardware::ComputeCapability,
    memory::allocator::SegmentKind,
    optimizer_spec::Optimizer,
    train_config::{Attention, CrossEntropy, TrainConfig},
};
use proptest::{prelude::*, sample::select};

/// Returns the model of a shape.
pub fn gpt(shape: GptShape) -> GptConfig {
    GptConfig::new(shape).expect("the strategy makes valid shapes")
}

/// Small models of any kind with the given head sizes.
pub fn shapes(head_sizes: &'static [u64]) -> impl Strategy<Value = GptShape> {
    let sizes = (1..4_u64, 1..5_u64, select(head_sizes), 1..300_u64, 2..3000_u64);
    (sizes, select(vec![0.0, 0.1]), any::<bool>()).prop_map(
        |((n_layer, n_head, head_size, block_size, vocab_size), dropout, bias)| GptShape {
            n_layer,
            n_head,
            n_embd: n_head * head_size,
            block_size,
            vocab_size,
            dropout,
            bias,
        },
    )
}

/// Head sizes for which every attention kernel works without padding.
pub const EVEN_HEAD_SIZES: &[u64] = &[8, 16, 32, 64, 128];
/// Head sizes including those that need padding.
pub const ANY_HEAD_SIZES: &[u64] = &[1, 3, 8, 11, 20, 32, 64, 100, 128, 160, 257, 320];

/// Every combination of training options that are not counts, with the given dtypes.
pub fn kinds(dtypes: Vec<Dtype>) -> impl Strategy<Value = (Dtype, Attention, Optimizer, CrossEntropy)> {
    (
        select(dtypes),
        select(vec![Attention::Flash, Attention::Math]),
        select(Optimizer::ALL),
        select(vec![CrossEntropy::Whole, CrossEntropy::Chunked, CrossEntropy::Fused]),
    )
}

/// Training settings of any kind, with every option.
pub fn trainings() -> impl Strategy<Value = TrainConfig> {
    let counts = (1..9_u64, 1..4_u64, 0..3_u64, 0..4_u64, 1..3_u64);
    let kinds = kinds(vec![Dtype::Bfloat16, Dtype::Float16, Dtype::Float32]);
    let patches = (1..3_u64, proptest::option::of(1..9_u64), any::<[bool; 6]>());
    (counts, kinds, patches).prop_map(|(counts, kinds, patches)| {
        let (batch_size, gradient_accumulation_steps, eval_iters, max_iters, eval_interval) = counts;
        let (dtype, attention, optimizer, cross_entropy) = kinds;
        let (world_size, eval_batch_size, [compile, clips, resumes, checkpointing, del_eval, del_train]) = patches;
        TrainConfig {
            batch_size,
            gradient_accumulation_steps,
            dtype,
            compile,
            eval_iters,
            eval_interval,
            eval_only: false,
            max_iters,
            clips_gradients: clips,
            resumes,
            attention,
            optimizer,
            cross_entropy,
            activation_checkpointing: checkpointing,
            world_size,
            eval_batch_size,
            del_eval_logits: del_eval,
            del_train_logits: del_train,
        }
    })
}

/// One compute capability of each generation that differs.
pub fn gpus() -> impl Strategy<Value = ComputeCapability> {
    select(vec![(6, 1), (7, 5), (8, 0), (8, 9), (9, 0), (12, 0)])
        .prop_map(|(major, minor)| ComputeCapability { major, minor })
}

/// Both kinds of segments.
pub fn segment_kinds() -> impl Strategy<Value = SegmentKind> {
    select(vec![SegmentKind::Native, SegmentKind::Expandable])
}
