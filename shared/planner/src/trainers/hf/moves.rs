//! Changes that reduce the memory of `Trainer`'s run.

use headroom_text::{self as text, Key};

use super::{Run, bitsandbytes};
use crate::{
    advice::{Effect, Knob},
    dtype::Dtype,
    models::hf::{Checkpointing, Optimizer, Quantization},
    trainers::fixes::{Move, Options},
};

/// `adamw_8bit`.
const ADAMW_8BIT: Optimizer = bitsandbytes(2, true, false);

/// Limit of `gradient_accumulation_steps` that is planned.
const MAX_ACCUMULATION: u64 = 256;

/// The changes, least harmful first. `smaller` has the smaller values of a knob.
pub(super) fn moves(run: &Run, has_bfloat16: bool, smaller: impl Fn(Knob) -> Vec<Options>) -> Vec<Move> {
    let args = run.args();
    let mut moves = Vec::new();
    let mut offer = |applies: bool, step: Move| {
        if applies {
            moves.push(step);
        }
    };
    let is_adamw = matches!(args.optimizer, Optimizer::AdamwTorch | Optimizer::AdamwTorchFused);
    let is_float32 = args.weights == Dtype::Float32;
    let is_bf16_offered = has_bfloat16 && is_float32 && args.autocast.is_none();
    let note = text::TRAINER_WHY_MICRO_BATCH;
    offer(true, Move::to("micro_batch", micro_batches(run), note).slower());
    let note = text::TRAINER_WHY_CHECKPOINTING;
    let checkpointing = to("gradient_checkpointing", &[("gradient_checkpointing", "True")], note).slower();
    offer(args.checkpointing.is_none(), checkpointing);
    let note = text::TRAINER_WHY_FUSED;
    offer(args.optimizer == Optimizer::AdamwTorch, to("fused_optimizer", &[("optim", "adamw_torch_fused")], note));
    let note = text::TRAINER_WHY_BF16;
    offer(is_bf16_offered, to("bf16", &[("bf16", "True")], note).with_effect(Effect::Small));
    let note = text::TRAINER_WHY_BF16_WEIGHTS;
    offer(
        has_bfloat16 && is_float32,
        to("bfloat16_weights", &[("dtype", "bfloat16")], note).with_effect(Effect::Small),
    );
    let note = text::TRAINER_WHY_REENTRANT;
    let holds_inputs =
        args.quantization == Some(Quantization::EightBit) && args.checkpointing == Some(Checkpointing::NonReentrant);
    offer(holds_inputs, to("use_reentrant", &[("use_reentrant", "True")], note));
    let note = text::TRAINER_WHY_8BIT_OPTIMIZER;
    offer(is_adamw, to("8bit_optimizer", &[("optim", "adamw_8bit")], note).with_effect(Effect::Small));
    let note = text::TRAINER_WHY_PAGED_OPTIMIZER;
    let paged = to("paged_optimizer", &[("optim", "paged_adamw_8bit")], note).slower();
    offer(is_adamw || args.optimizer == ADAMW_8BIT, paged.with_effect(Effect::Small));
    let note = text::TRAINER_WHY_ADAFACTOR;
    offer(is_adamw, to("adafactor", &[("optim", "adafactor")], note).with_effect(Effect::ChangesModel));
    let note = text::TRAINER_WHY_LORA;
    let adapters = [("lora_r", "16"), ("lora_target_modules", "all-linear")];
    offer(args.lora.is_none(), to("lora", &adapters, note).with_effect(Effect::ChangesModel));
    let note = text::TRAINER_WHY_4BIT;
    let four_bit = [
        ("load_in_4bit", "True"),
        ("bnb_4bit_quant_type", "nf4"),
        ("bnb_4bit_use_double_quant", "True"),
        ("bnb_4bit_compute_dtype", if has_bfloat16 { "bfloat16" } else { "float16" }),
    ];
    let added: &[_] = if args.lora.is_none() { &adapters } else { &[] };
    let four_bit = to("load_in_4bit", &[added, &four_bit].concat(), note).slower();
    offer(args.quantization.is_none(), four_bit.with_effect(Effect::ChangesModel));
    for knob in run.knobs() {
        let note = text::TRAINER_WHY_LENGTH;
        let shorter = || Move::to("max_length", smaller(knob), note).with_effect(Effect::ChangesModel);
        offer(knob.key == "max_length", shorter());
    }
    moves
}

fn to(id: &'static str, options: &[(&'static str, &str)], note: Key) -> Move {
    Move::to(id, vec![options.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()], note)
}

/// Smaller micro-batches with as many sequences in each step, ascending.
fn micro_batches(run: &Run) -> Vec<Options> {
    let args = run.args();
    let sequences = args.batch * args.accumulation;
    let is_kept = |size: &u64| sequences.is_multiple_of(*size) && sequences / size <= MAX_ACCUMULATION;
    let settings = |size: u64| {
        let mut options = vec![
            ("per_device_train_batch_size", size.to_string()),
            ("gradient_accumulation_steps", (sequences / size).to_string()),
        ];
        if args.evaluation_batches > 0 {
            options.push(("per_device_eval_batch_size", size.to_string()));
        }
        options
    };
    (1..args.batch).filter(is_kept).map(settings).collect()
}
