//! Reads the recorded rows of tests/golden/truth and makes runs of them.
use headroom_shared::{
    dtype::Dtype,
    gpt::{GptConfig, GptShape},
    hardware::ComputeCapability,
    memory::{
        allocator::SegmentKind,
        run::{Card, program},
        simulate::{Outcome, simulate},
    },
    train_config::{Attention, TrainConfig},
};
use std::collections::HashMap;
pub struct Row {
    fields: HashMap<String, String>,
    file: String,
}
pub fn rows(file: &str) -> Vec<Row> {
    let path = format!("{}/golden/truth/{file}.csv", env!("CARGO_MANIFEST_DIR"));
    let mut reader = csv::Reader::from_path(path).expect("the rows are there");
    reader.deserialize().map(|r| Row { fields: r.expect("a row"), file: file.into() }).collect()
}
impl Row {
    pub const PHASES: &[(&str, &str)] = &[
        ("after_init", "init"),
        ("eval_first_peak", "eval_first"),
        ("eval_peak", "eval"),
        ("it0_fwd_peak", "first_forward"),
        ("it0_bwd_peak", "first_backward"),
        ("it0_opt_peak", "first_optimizer"),
        ("later_eval_first_peak", "later_eval_first"),
        ("later_eval_peak", "later_eval"),
        ("steady_fwd_peak", "steady_forward"),
        ("steady_bwd_peak", "steady_backward"),
        ("steady_opt_peak", "steady_optimizer"),
        ("rest", "rest"),
    ];
    pub fn tag(&self) -> &str {
        &self.fields["tag"]
    }
    pub fn bytes(&self, c: &str) -> Option<u64> {
        self.fields.get(c)?.parse().ok()
    }
    fn n(&self, c: &str) -> u64 {
        self.bytes(c).unwrap_or_else(|| panic!("{c} of {}", self.tag()))
    }
    fn is(&self, c: &str) -> bool {
        self.fields.get(c).is_some_and(|v| v == "True")
    }
    pub fn config(&self) -> (GptConfig, TrainConfig, Card) {
        let config = GptConfig::new(GptShape {
            n_layer: self.n("n_layer"),
            n_head: self.n("n_head"),
            n_embd: self.n("n_embd"),
            block_size: self.n("block_size"),
            vocab_size: self.n("vocab_size"),
            dropout: self.fields["dropout"].parse().unwrap(),
            bias: self.is("bias"),
        })
        .unwrap();
        let later = self.fields.contains_key("later_eval_peak");
        let train = TrainConfig {
            batch_size: self.n("batch_size"),
            gradient_accumulation_steps: self.n("gradient_accumulation_steps"),
            dtype: match self.fields["dtype"].as_str() {
                "bfloat16" => Dtype::Bfloat16,
                "float16" => Dtype::Float16,
                _ => Dtype::Float32,
            },
            compile: self.file.contains("compile"),
            eval_iters: if self.is("eval_only") { 3 } else { 2 },
            eval_only: self.is("eval_only"),
            max_iters: if later { 2 } else { 1 },
            eval_interval: 2,
            attention: if self.is("flash_attention") { Attention::Flash } else { Attention::Math },
            activation_checkpointing: self.is("activation_checkpointing"),
            eval_batch_size: self.bytes("eval_batch_size"),
            del_eval_logits: self.is("del_eval_logits"),
            del_train_logits: self.is("del_train_logits"),
            ..TrainConfig::default()
        }
        .check()
        .unwrap();
        let card = if self.file.contains("sm90") {
            Card { compute_capability: ComputeCapability { major: 9, minor: 0 }, sm_count: 132 }
        } else {
            Card { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 46 }
        };
        (config, train, card)
    }
    pub fn replay(&self) -> Outcome {
        let (c, t, k) = self.config();
        simulate(&program(&c, &t, k).unwrap(), SegmentKind::Native, u64::MAX)
    }
    pub fn replay_expandable(&self) -> Outcome {
        let (c, t, k) = self.config();
        simulate(&program(&c, &t, k).unwrap(), SegmentKind::Expandable, u64::MAX)
    }
}
