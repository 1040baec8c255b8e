//! Reads the recorded rows of tests/golden and converts them to runs.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use headroom_planner::{
    dtype::Dtype,
    gpt::{
        GptConfig, GptShape,
        tensors::{Tensor, TensorId},
    },
    hardware::ComputeCapability,
    memory::{
        allocator::SegmentKind,
        context::GpuProperties,
        program::{Action, Program},
        schedule::program,
        simulate::{Outcome, simulate},
    },
    optimizer_spec::Optimizer,
    train_config::{Attention, TrainConfig},
};

/// Recorded files of eager runs.
pub const EAGER: [&str; 3] = ["truth/eager_sm89", "truth/eager_sm90", "truth/variants_eager_sm89"];
/// Recorded files of compiled runs.
pub const COMPILED: [&str; 3] = ["truth/compile_sm89", "truth/compile_sm90", "truth/variants_compile_sm89"];

/// An RTX 4070.
pub const SM89: GpuProperties =
    GpuProperties { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 46 };
/// An H100.
pub const SM90: GpuProperties =
    GpuProperties { compute_capability: ComputeCapability { major: 9, minor: 0 }, sm_count: 132 };

/// The GPU of a row by its name, with its number of multiprocessors.
#[track_caller]
fn gpu(name: &str) -> GpuProperties {
    let (major, minor, sm_count) = match name {
        "RTX 3060" => (8, 6, 28),
        "RTX 4090" => (8, 9, 128),
        "RTX 5090" => (12, 0, 170),
        "A100" => (8, 0, 108),
        "H100" => (9, 0, 132),
        _ => panic!("{name} is not a GPU of a recorded run"),
    };
    GpuProperties { compute_capability: ComputeCapability { major, minor }, sm_count }
}

/// A path under tests/golden.
pub fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(path)
}

/// One recorded run.
#[derive(Clone, Debug)]
pub struct Row {
    /// File under tests/golden, without the extension.
    pub file: String,
    fields: HashMap<String, String>,
}

/// The rows of a file under tests/golden; panics if there are none.
#[track_caller]
pub fn rows(file: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_path(golden(&format!("{file}.csv"))).expect("the recorded rows are there");
    let rows: Vec<_> = reader
        .deserialize()
        .map(|fields| Row { file: file.to_owned(), fields: fields.expect("a row has every column") })
        .collect();
    assert!(!rows.is_empty(), "{file} has no rows");
    rows
}

impl Row {
    /// Name of the row, unique in its file.
    pub fn tag(&self) -> &str {
        self.text("tag")
    }

    /// Raw value of a column.
    #[track_caller]
    pub fn text(&self, column: &str) -> &str {
        self.fields.get(column).unwrap_or_else(|| panic!("{} has no column {column}", self.file))
    }

    /// A column of bytes; `None` if the file lacks the column or the field is empty.
    pub fn bytes(&self, column: &str) -> Option<u64> {
        self.fields.get(column)?.parse().ok()
    }

    /// The row with a falsified column, for negative controls.
    pub fn with(mut self, column: &str, bytes: u64) -> Self {
        self.fields.insert(column.to_owned(), bytes.to_string());
        self
    }

    /// Whether the run used `torch.compile`.
    pub fn is_compiled(&self) -> bool {
        self.file.contains("compile")
    }

    fn count(&self, column: &str) -> u64 {
        self.bytes(column).unwrap_or_else(|| panic!("{} of {} is not a count", column, self.tag()))
    }

    fn is(&self, column: &str) -> bool {
        self.fields.get(column).is_some_and(|value| value == "True")
    }

    fn is_not(&self, column: &str) -> bool {
        self.fields.get(column).is_some_and(|value| value == "False")
    }

    /// Model, training and GPU of the row.
    pub fn config(&self) -> (GptConfig, TrainConfig, GpuProperties) {
        let shape = GptShape {
            n_layer: self.count("n_layer"),
            n_head: self.count("n_head"),
            n_embd: self.count("n_embd"),
            block_size: self.count("block_size"),
            vocab_size: self.count("vocab_size"),
            dropout: self.fields["dropout"].parse().expect("dropout is a number"),
            bias: self.is("bias"),
        };
        // Files of variants ran three iterations and evaluated again before the last. The others ran two iterations;
        // rows that only evaluate ran three batches per split.
        let evaluates_again = self.fields.contains_key("later_eval_peak");
        // Long recordings, recognised by their columns, have 16 evaluation batches instead of four.
        let is_long = self.fields.contains_key("max_memory_allocated_expandable");
        let eval_only = self.is("eval_only");
        let train = TrainConfig {
            batch_size: self.count("batch_size"),
            gradient_accumulation_steps: self.count("gradient_accumulation_steps"),
            dtype: dtype(&self.fields["dtype"]),
            compile: self.is_compiled(),
            eval_iters: match (eval_only, is_long) {
                (true, _) => 3,
                (false, true) => 8,
                (false, false) => 2,
            },
            eval_only,
            max_iters: if evaluates_again { 2 } else { 1 },
            eval_interval: 2,
            clips_gradients: !self.tag().contains("nograd clip") && !self.is_not("clips_gradients"),
            optimizer: if self.tag().contains("foreach adamw") || self.is("foreach") {
                Optimizer::AdamwForeach
            } else {
                Optimizer::AdamwFused
            },
            attention: if self.is("flash_attention") { Attention::Flash } else { Attention::Math },
            activation_checkpointing: self.is("activation_checkpointing"),
            eval_batch_size: self.bytes("eval_batch_size"),
            del_eval_logits: self.is("del_eval_logits"),
            del_train_logits: self.is("del_train_logits"),
            ..TrainConfig::default()
        };
        let gpu = match self.fields.get("card") {
            Some(name) => gpu(name),
            None if self.file.contains("sm90") => SM90,
            None if is_long => gpu("RTX 4090"),
            None => SM89,
        };
        (GptConfig::new(shape).expect("a recorded shape"), train.check().expect("a recorded training"), gpu)
    }

    /// The events of the run that the recorder sees.
    pub fn program(&self) -> Program {
        let (gpt, train, gpu) = self.config();
        let program = program(&gpt, &train, gpu).expect("a recorded run is within the planner's limits");
        if self.file.starts_with("random/") { without_lt_workspace(program) } else { as_traced(program) }
    }

    /// Replays the run with unlimited memory.
    pub fn replay(&self, segments: SegmentKind) -> Outcome {
        simulate(&self.program(), segments, u64::MAX)
    }
}

/// A program without cuBLASLt's workspace, which no recorder sees. A GPU allocates it.
pub fn without_lt_workspace(program: Program) -> Program {
    without(program, &[Tensor::CublasLtWorkspace])
}

/// A program without the memory that only a GPU and the recorder of the random rows show: the scratch memory of
/// memory-efficient attention's backward, and cuBLASLt's workspace.
pub fn as_traced(program: Program) -> Program {
    use Tensor::{CublasLtWorkspace, EffCast, EffDelta, EffProducts, EffRowSums, EffWorkspace};
    without(program, &[CublasLtWorkspace, EffCast, EffProducts, EffRowSums, EffDelta, EffWorkspace])
}

fn without(mut program: Program, unseen: &[Tensor]) -> Program {
    let is_scratch = |action| {
        let Action::Alloc(code, _) = action else { return false };
        unseen.contains(&TensorId::from_code(code).expect("a tensor of the table").tensor)
    };
    for section in &mut program.sections {
        let mut held = HashSet::new();
        section.events.retain(|event| {
            let slot = event.slot().index();
            if event.action() == Action::Free {
                !held.remove(&slot)
            } else {
                !is_scratch(event.action()) || !held.insert(slot)
            }
        });
    }
    program
}

/// A dtype by nanoGPT's name.
#[track_caller]
pub fn dtype(name: &str) -> Dtype {
    match name {
        "bfloat16" => Dtype::Bfloat16,
        "float16" => Dtype::Float16,
        "float32" => Dtype::Float32,
        _ => panic!("{name} is not a dtype of a recorded run"),
    }
}
