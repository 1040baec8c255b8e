//! Runs that are refused, with the option and the cause.

use super::{QUANTIZATIONS, modules_to_save, savable, targets};
use crate::{
    dtype::Dtype,
    models::hf::{Args, AttentionKind, Config, Family},
    trainers::arguments::{ArgumentError, Values},
};

/// Refuses runs whose events the engine does not derive.
pub(super) fn refuse_unsupported(values: &Values) -> Result<(), ArgumentError> {
    let switches = [
        ("torch_compile", "compiled runs of Hugging Face models are not derived yet"),
        ("use_liger_kernel", "Liger's kernels are not derived yet"),
    ];
    for (key, cause) in switches {
        if values.is_on(key) {
            return Err(values.unsupported(key, cause));
        }
    }
    if values.is_on("fp16") && values.is_on("bf16") {
        return Err(values.unsupported("fp16", "--bf16 is set too, and TrainingArguments accepts one of them"));
    }
    let batches = ["per_device_eval_batch_size", "per_device_train_batch_size"].map(|key| values.count(key));
    if values.text("eval_strategy") != "no" && batches[0] != batches[1] {
        let cause = "an evaluation is derived only if per_device_eval_batch_size is per_device_train_batch_size";
        return Err(values.unsupported("eval_strategy", cause));
    }
    Ok(())
}

/// Refuses a model whose weights are all quantized, as `Trainer` does.
pub(super) fn check_quantization(values: &Values) -> Result<(), ArgumentError> {
    let Some(key) = QUANTIZATIONS.into_iter().find(|key| values.is_on(key)) else { return Ok(()) };
    if values.count("lora_r") == 0 {
        return Err(values.unsupported(key, "Trainer does not train quantized weights; --lora_r adds adapters"));
    }
    if QUANTIZATIONS.iter().all(|key| values.is_on(key)) {
        return Err(values.unsupported(key, "--load_in_8bit is set too, and BitsAndBytesConfig accepts one of them"));
    }
    Ok(())
}

pub(super) fn check_targets(values: &Values, family: Family) -> Result<(), ArgumentError> {
    let (targets, linears) = (targets(values, family), family.linears());
    if targets != "all-linear" && !targets.split(',').all(|name| linears.contains(&name.trim())) {
        let expected = format!("all-linear, or names of {}", linears.join(", "));
        return Err(ArgumentError::invalid("lora_target_modules", targets, expected));
    }
    Ok(())
}

pub(super) fn check_modules_to_save(values: &Values, family: Family) -> Result<(), ArgumentError> {
    let savable = savable(family);
    if modules_to_save(values).all(|name| savable.contains(&name)) {
        return Ok(());
    }
    Err(values.unsupported("lora_modules_to_save", format!("copies of {} are derived", savable.join(" and "))))
}

/// Refuses sequences that are longer than the model's position embeddings, with which training fails.
pub(super) fn check_length(values: &Values, model: &Config) -> Result<(), ArgumentError> {
    match model.positions {
        Some(positions) if values.count("max_length") > positions => {
            let expected = format!("at most {positions}, the positions of the model");
            Err(ArgumentError::invalid("max_length", values.text("max_length"), expected))
        }
        _ => Ok(()),
    }
}

/// Refuses runs that flash-attn does not support, and heads that it pads.
pub(super) fn check_flash_attention(values: &Values, args: &Args) -> Result<(), ArgumentError> {
    let head = args.config.head_dim;
    let cause = match args.autocast.unwrap_or(args.weights) {
        _ if args.config.attention != AttentionKind::FlashAttention2 => return Ok(()),
        Dtype::Float32 => "flash-attn has no float32; --bf16, --fp16 or --dtype=bfloat16 changes it".to_owned(),
        _ if args.quantization.is_some() && args.autocast.is_none() => {
            "with quantized weights, only runs with --bf16 or --fp16 are derived".to_owned()
        }
        _ if head > 256 => format!("flash-attn supports heads of 256 channels at most, and the model's have {head}"),
        _ if !head.is_multiple_of(8) => {
            format!("heads of {head} channels, which flash-attn pads to a multiple of 8, are not derived yet")
        }
        _ => return Ok(()),
    };
    Err(values.unsupported("attn_implementation", cause))
}
