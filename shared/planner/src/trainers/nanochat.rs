//! The command line of nanochat's `scripts.base_train`.
//!
//! Source: karpathy/nanochat at commit 92d63d4.

pub mod launch;

use headroom_text as text;
use serde_json::{Map, Value};

use super::{
    arguments::{ArgumentError, Key, Kind, Values, memory, other},
    fixes::{Move, Options},
};
use crate::{
    advice::{Effect, Knob},
    gpt::tensors::TensorTooLarge,
    hardware::ComputeCapability,
    memory::{context::GpuProperties, message::TorchVersion, program::Program},
    models::nanochat::{Args, Lengths, run},
    plan::basis::RunKind,
    torch::Recorder,
};

const INTEGER: Kind = Kind::Integer(i64::MIN, i64::MAX);

/// The keys of the script, and two of Headroom: `compile`, since the script always compiles, and `vocab-size`, which the
/// script reads from its tokenizer.
pub const KEYS: &[Key] = &[
    other("run", "dummy", Kind::Text),
    memory("device-type", "", Kind::Choice(&["", "cuda", "cpu", "mps"])),
    memory("fp8", "False", Kind::Switch),
    memory("fp8-recipe", "tensorwise", Kind::Choice(&["rowwise", "tensorwise"])),
    memory("depth", "20", Kind::Integer(1, 512)),
    memory("aspect-ratio", "64", Kind::Integer(1, 1 << 14)),
    memory("head-dim", "128", Kind::Integer(8, 1 << 14)),
    memory("max-seq-len", "2048", Kind::Integer(2, 1 << 24)),
    memory("window-pattern", "SSSL", Kind::Text),
    memory("num-iterations", "-1", INTEGER),
    memory("target-flops", "-1.0", Kind::Float),
    memory("target-param-data-ratio", "12", Kind::Float),
    memory("device-batch-size", "32", Kind::Integer(1, 1 << 20)),
    memory("total-batch-size", "-1", Kind::Integer(-1, 1 << 40)),
    other("embedding-lr", "0.3", Kind::Float),
    other("unembedding-lr", "0.008", Kind::Float),
    other("weight-decay", "0.28", Kind::Float),
    other("matrix-lr", "0.02", Kind::Float),
    other("scalar-lr", "0.5", Kind::Float),
    other("warmup-steps", "40", INTEGER),
    other("warmdown-ratio", "0.65", Kind::Float),
    other("final-lr-frac", "0.05", Kind::Float),
    memory("resume-from-step", "-1", INTEGER),
    memory("eval-every", "250", INTEGER),
    memory("eval-tokens", "41943040", Kind::Integer(0, 1 << 50)),
    other("core-metric-every", "2000", INTEGER),
    other("core-metric-max-per-task", "500", INTEGER),
    other("sample-every", "2000", INTEGER),
    other("save-every", "-1", INTEGER),
    other("model-tag", "", Kind::Text),
    memory("compile", "True", Kind::Switch),
    memory("vocab-size", "32768", Kind::Integer(1, 1 << 24)),
];

/// What the figures include.
pub const REMARKS: [text::Key; 3] =
    [text::REMARK_NANOCHAT_EAGER, text::REMARK_NANOCHAT_SEGMENTS, text::REMARK_NANOCHAT_CORE];

/// Why the optimizer takes much memory.
pub(super) const OPTIMIZER_REMARK: text::Key = text::TRAINER_MUON_ADAMW;

/// Why the script's run on a GPU cannot be planned, if so.
pub(super) fn obstacle(gpu: GpuProperties) -> Option<text::Key> {
    (gpu.compute_capability.major < 8).then_some(text::OBSTACLE_FLOAT32)
}

/// Whether the script's `PYTORCH_ALLOC_CONF=expandable_segments:True` has an effect. Before PyTorch 2.10 the variable
/// had another name.
pub(super) const fn sets_expandable_segments(torch: TorchVersion) -> bool {
    torch.major > 2 || (torch.major == 2 && torch.minor >= 10)
}

/// A run of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    args: Args,
    lengths: Lengths,
    /// `--total-batch-size`, in tokens; computed if it is -1.
    total_batch_size: u64,
    values: Values,
}

impl Run {
    /// Reads the words of a command line after the script's name.
    ///
    /// # Errors
    /// A key is unknown, its value is invalid, or Headroom does not plan such a run.
    pub fn read(words: &[String]) -> Result<Self, ArgumentError> {
        Self::new(Values::read("scripts.base_train", KEYS, words)?)
    }

    fn new(values: Values) -> Result<Self, ArgumentError> {
        let args = args(&values)?;
        refuse_unsupported(&values)?;
        let total_batch_size = total_batch_size(&values, &args)?;
        let lengths = lengths(&values, &args, total_batch_size)?;
        Ok(Self { args, lengths, total_batch_size, values })
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    pub(super) fn config(&self) -> Map<String, Value> {
        let Args { depth, aspect_ratio, head_dim, max_seq_len, device_batch_size, vocab_size, .. } = self.args;
        let Lengths { eval_steps, grad_accum_steps, .. } = self.lengths;
        let numbers = [
            ("depth", depth),
            ("aspect_ratio", aspect_ratio),
            ("head_dim", head_dim),
            ("max_seq_len", max_seq_len),
            ("device_batch_size", device_batch_size),
            ("total_batch_size", self.total_batch_size),
            ("vocab_size", vocab_size),
            ("grad_accum_steps", grad_accum_steps),
            ("eval_steps", eval_steps),
        ];
        let numbers = numbers.map(|(key, number)| (key.to_owned(), number.into()));
        let pattern = ("window_pattern".to_owned(), self.values.text("window-pattern").to_uppercase().into());
        numbers.into_iter().chain([pattern, ("compile".to_owned(), false.into())]).collect()
    }

    pub(super) const fn eval_batches(&self) -> u64 {
        self.lengths.eval_steps
    }

    pub(super) const fn n_micro_steps(&self) -> u64 {
        self.lengths.grad_accum_steps
    }

    pub(super) fn program(&self, gpu: GpuProperties) -> Result<Program, TensorTooLarge> {
        run(&self.args, self.lengths, gpu, Recorder::Gpu).program()
    }

    /// Only runs on a GPU of capability 9.0 were measured.
    pub(super) fn kind(&self, gpu: GpuProperties) -> RunKind {
        if gpu.compute_capability == ComputeCapability::new(9, 0) { RunKind::Eager } else { RunKind::FollowsCode }
    }

    pub(super) fn knobs(&self) -> Vec<Knob> {
        let Args { depth, max_seq_len, device_batch_size, .. } = self.args;
        vec![
            Knob { key: "device-batch-size", value: device_batch_size, step: 1, max: 1 << 12 },
            Knob { key: "max-seq-len", value: max_seq_len, step: 128, max: 1 << 17 },
            Knob { key: "depth", value: depth, step: 1, max: 64 },
        ]
    }

    /// The same command line with another value of a knob. `None` if the script stops with it.
    pub(super) fn with(&self, key: &'static str, value: u64) -> Option<Self> {
        self.with_options(&[(key, value.to_string())])
    }

    pub(super) fn with_steps(&self, steps: u64) -> Self {
        let mut run = self.clone();
        run.lengths.num_iterations = run.lengths.num_iterations.min(steps);
        run
    }

    pub(super) fn with_options(&self, options: &[(&'static str, String)]) -> Option<Self> {
        Self::new(self.values.with(options)).ok()
    }

    /// Changes that reduce the memory of the run. `smaller` has the smaller values of a knob.
    pub(super) fn moves(&self, smaller: impl Fn(Knob) -> Vec<Options>) -> Vec<Move> {
        let moves = self.knobs().into_iter().map(|knob| match knob.key {
            "device-batch-size" => Move::to("micro_batch", smaller(knob), text::TRAINER_WHY_MICRO_BATCH).slower(),
            "max-seq-len" => {
                Move::to("max_seq_len", smaller(knob), text::TRAINER_WHY_SEQ_LEN).with_effect(Effect::ChangesModel)
            }
            _ => Move::to("depth", smaller(knob), text::TRAINER_WHY_DEPTH).with_effect(Effect::ChangesModel),
        });
        moves.collect()
    }
}

fn args(values: &Values) -> Result<Args, ArgumentError> {
    let pattern = values.text("window-pattern").to_uppercase();
    if pattern.is_empty() || pattern.len() > 512 || !pattern.chars().all(|letter| matches!(letter, 'S' | 'L')) {
        return Err(ArgumentError::invalid("window-pattern", &pattern, "the letters S and L"));
    }
    let args = Args {
        depth: values.count("depth"),
        aspect_ratio: values.count("aspect-ratio"),
        head_dim: values.count("head-dim"),
        max_seq_len: values.count("max-seq-len"),
        device_batch_size: values.count("device-batch-size"),
        vocab_size: values.count("vocab-size"),
        window_pattern: pattern.chars().map(|letter| letter == 'S').collect(),
    };
    if !args.head_dim.is_multiple_of(8) {
        return Err(ArgumentError::invalid("head-dim", values.text("head-dim"), "a multiple of 8"));
    }
    if args.n_embd() < 24 {
        return Err(values.unsupported("depth", "the smear gate reads 24 channels, and the model has fewer"));
    }
    Ok(args)
}

/// Refuses runs whose events the engine does not derive.
fn refuse_unsupported(values: &Values) -> Result<(), ArgumentError> {
    let refuse = |key, cause| Err(values.unsupported(key, cause));
    if matches!(values.text("device-type"), "cpu" | "mps") {
        return refuse("device-type", "the run uses no CUDA GPU");
    }
    if values.is_on("fp8") {
        return refuse("fp8", "FP8 layers are not derived yet");
    }
    if values.integer("resume-from-step") != -1 {
        return refuse("resume-from-step", "a resumed run of nanochat is not derived yet");
    }
    if values.is_on("compile") {
        return refuse(
            "compile",
            "the script compiles its model, and Headroom does not derive nanochat's compiled memory yet\n\
             hint: --compile=False plans the eager run. On an H200, the compiled peak of two runs was 34 and 54 % of the eager one",
        );
    }
    Ok(())
}

/// `total_batch_size`: the given number of tokens, or the power of two next to the optimum that the script computes.
fn total_batch_size(values: &Values, args: &Args) -> Result<u64, ArgumentError> {
    if values.integer("total-batch-size") != -1 {
        return Ok(values.count("total-batch-size"));
    }
    if values.float("target-param-data-ratio") <= 0.0 {
        let cause = "without a ratio of tokens to parameters, the script needs --total-batch-size";
        return Err(values.unsupported("target-param-data-ratio", cause));
    }
    let reference = Args { depth: 12, ..args.clone() };
    let ratio = args.n_scaling_parameters() / reference.n_scaling_parameters();
    let optimum = f64::from(1 << 19) * ratio.powf(0.383);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the exponent is about 20")]
    let exponent = optimum.log2().round_ties_even().clamp(0.0, 40.0) as u32;
    Ok(1 << exponent)
}

fn lengths(values: &Values, args: &Args, total_batch_size: u64) -> Result<Lengths, ArgumentError> {
    let tokens = args.device_batch_size * args.max_seq_len;
    if total_batch_size == 0 || !total_batch_size.is_multiple_of(tokens) {
        return Err(ArgumentError::Unsupported {
            key: "total-batch-size",
            value: total_batch_size.to_string(),
            cause: format!(
                "it is not a multiple of device-batch-size x max-seq-len, {tokens} tokens, so the script stops"
            ),
        });
    }
    // The events of a run repeat from its third step at the latest.
    let positive = |key| Some(values.count(key)).filter(|&n| n > 0);
    let eval_every = positive("eval-every");
    Ok(Lengths {
        eval_steps: if eval_every.is_some() { values.count("eval-tokens") / tokens } else { 0 },
        grad_accum_steps: total_batch_size / tokens,
        num_iterations: positive("num-iterations").unwrap_or(u64::MAX),
        eval_every: eval_every.unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Run, ArgumentError> {
        Run::read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_are_those_of_the_script() {
        let run = read("--compile=False").expect("a run");
        assert_eq!((run.args.depth, run.args.n_embd(), run.args.device_batch_size), (20, 1280, 32));
        // 12 * 20 * 1280^2 + 10 gates of 12 x 10 + 32768 * 1280 parameters scale the batch by 3.4^0.383.
        assert_eq!(run.total_batch_size, 1 << 20);
        assert_eq!(run.lengths.grad_accum_steps, (1 << 20) / (32 * 2048));
        assert_eq!(run.lengths.eval_steps, 80 * 524_288 / (32 * 2048));
        assert_eq!(read("--compile=False --depth=12").expect("a run").total_batch_size, 1 << 19);
    }

    #[test]
    fn values_follow_their_key_with_or_without_an_equals_sign() {
        let run = read("--depth 4 --device_batch_size=4 --compile False --max-seq-len 512 --run x").expect("a run");
        assert_eq!((run.args.depth, run.args.device_batch_size, run.args.max_seq_len), (4, 4, 512));
        assert_eq!(run.values().without_effect().collect::<Vec<_>>(), ["run"]);
    }

    #[test]
    fn errors_name_the_key() {
        for (words, expected) in [
            (
                "--deph=4",
                "cannot read --deph=4: it is not an option of scripts.base_train\nhint: did you mean --depth?",
            ),
            ("--depth", "cannot read --depth: a value is missing; it is an integer of 1 to 512"),
            ("--depth=many", "cannot read --depth=many: expected an integer of 1 to 512"),
            ("--head-dim=100", "cannot read --head-dim=100: expected a multiple of 8"),
            ("--window-pattern=SX", "cannot read --window-pattern=SX: expected the letters S and L"),
            ("--compile=False --fp8", "cannot plan --fp8=True: FP8 layers are not derived yet"),
            (
                "--compile=False --total-batch-size=1000",
                "cannot plan --total-batch-size=1000: it is not a multiple of device-batch-size x max-seq-len, 65536 \
                 tokens, so the script stops",
            ),
        ] {
            assert_eq!(read(words).expect_err(words).to_string(), expected);
        }
        assert!(read("").expect_err("the script compiles").to_string().contains("--compile=False"));
    }
}
