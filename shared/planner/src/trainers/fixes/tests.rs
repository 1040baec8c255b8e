//! Tests of fixes against plans of the changed runs.

use headroom_text::Text;
use serde_json::json;

use super::{TrainerAdvice, advise};
use crate::{
    advice::Effect,
    plan::Fit,
    session::Options,
    trainers::{Run, TrainerRequest, hf, nanochat, plan},
};

fn advice(run: Run, gpu: &str) -> TrainerAdvice {
    let options = Options { gpu: gpu.to_owned(), ..Options::default() };
    let machine = options.machine().expect("a machine");
    advise(&plan(TrainerRequest::new(run, machine).expect("a request")).expect("a plan"))
}

fn words(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn nanochat_on(options: &str, gpu: &str) -> TrainerAdvice {
    let run = nanochat::Run::read(&words(&format!("--compile=False {options}"))).expect("a run");
    advice(Run::Nanochat(run), gpu)
}

/// A Llama of 1.2 billion weights.
fn llama_on(options: &str, gpu: &str) -> TrainerAdvice {
    let config = json!({
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "hidden_act": "silu",
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    });
    advice(Run::Hf(hf::Run::read(&config, &words(options)).expect("a run")), gpu)
}

#[test]
fn a_smaller_micro_batch_keeps_the_tokens_of_a_step() {
    let advice = nanochat_on("--depth=12 --device-batch-size=8", "RTX 4070");
    let first = advice.fixes.first().expect("a fix");
    assert_eq!((first.arguments(), first.effect), (vec!["--device-batch-size=4".to_owned()], Effect::None));
    assert!(first.fits() && first.is_slower && advice.obstacle.is_empty(), "{first:?}");
    let ids: Vec<&str> = advice.fixes.iter().flat_map(|fix| fix.ids.clone()).collect();
    assert_eq!(ids, ["micro_batch", "depth", "max_seq_len"]);
}

#[test]
fn depth_20_fits_12_gb_only_as_another_model() {
    let advice = nanochat_on("--depth=20 --device-batch-size=4", "RTX 4070");
    assert!(advice.fixes.iter().all(|fix| !fix.fits() || fix.effect == Effect::ChangesModel));
    let obstacle: Vec<String> = advice.obstacle.iter().map(Text::to_string).collect();
    assert_eq!(obstacle.len(), 2, "{obstacle:?}");
    assert!(obstacle[0].contains("for optimizer state"), "{obstacle:?}");
    assert!(obstacle[1].contains("20 bytes per matrix parameter"), "{obstacle:?}");
}

#[test]
fn accumulation_rises_as_the_micro_batch_falls() {
    let advice =
        llama_on("--bf16 --dtype=bfloat16 --per_device_train_batch_size=8 --gradient_accumulation_steps=3", "RTX 4090");
    let fix = advice.fixes.iter().find(|fix| fix.ids == ["micro_batch"]).expect("a fix");
    let value = |key: &str| {
        let (_, text) = fix.options.iter().find(|(known, _)| *known == key).expect(key);
        text.parse::<u64>().expect("a number")
    };
    assert_eq!(value("per_device_train_batch_size") * value("gradient_accumulation_steps"), 24);
    assert_eq!((fix.room.fit, fix.effect), (Fit::Fits, Effect::None));
    let ranked: Vec<_> = advice.fixes.iter().map(|fix| (!fix.fits(), fix.effect)).filter(|(fails, _)| !fails).collect();
    assert!(ranked.is_sorted(), "{ranked:?}");
}

#[test]
fn two_changes_together_fit_where_none_does_alone() {
    let advice = llama_on("--bf16 --dtype=float32 --per_device_train_batch_size=8 --max_length=2048", "RTX 4090");
    let alone = |fits: bool| advice.fixes.iter().filter(move |fix| fix.ids.len() == 1 && fix.fits() == fits);
    assert!(alone(true).all(|fix| fix.effect == Effect::ChangesModel));
    let pair = advice.fixes.iter().find(|fix| fix.ids.len() == 2 && fix.effect != Effect::ChangesModel);
    let pair = pair.expect("two changes");
    assert!(pair.fits() && pair.ids.iter().all(|id| alone(false).any(|fix| fix.ids == [*id])), "{pair:?}");
    let row = pair.json();
    assert_eq!((&row["fits"], &row["effect_on_training"]), (&json!(true), &json!(pair.effect.name())));
}

#[test]
fn a_fix_has_the_memory_of_its_own_plan() {
    let options = "--bf16 --dtype=bfloat16 --per_device_train_batch_size=16 --max_length=2048";
    for fix in llama_on(options, "RTX 4090").fixes.iter().filter(|fix| !fix.expandable) {
        let after = llama_on(&format!("{options} {}", fix.arguments().join(" ")), "RTX 4090");
        assert_eq!(after.fixes.is_empty(), fix.fits(), "{fix:?}");
    }
}

#[test]
fn a_model_that_is_too_large_gets_adapters_with_all_that_keeps_the_sequences() {
    let advice = llama_on("--bf16 --dtype=float32 --per_device_train_batch_size=8 --max_length=2048", "RTX 4060");
    assert!(!advice.obstacle.is_empty());
    let lora = advice.fixes.iter().find(|fix| fix.fits() && fix.ids.contains(&"lora")).expect("adapters");
    assert!(lora.ids.len() > 1 && !lora.ids.contains(&"max_length"), "{lora:?}");
}
