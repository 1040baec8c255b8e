//! Tests: a message that the planner predicts is solved by the run that it was predicted for.

use super::*;
use crate::{
    oom::{explain::as_in_message, read},
    trainers::{
        input::{Input, Trainer},
        plan, presets,
    },
};

/// Runs that do not fit: the GPU, the model (`None` for nanochat), the options, and the frame of a traceback.
const RUNS: [(&str, Option<&str>, &str, &str); 4] = [
    (
        "RTX 4070",
        Some("Qwen2.5-0.5B"),
        "--dtype=float32 --bf16 --per_device_train_batch_size=8 --max_length=1024",
        "transformers/models/qwen2/modeling_qwen2.py",
    ),
    (
        "RTX 3090",
        Some("Qwen3-0.6B"),
        "--dtype=bfloat16 --bf16 --per_device_train_batch_size=4 --max_length=2048",
        "transformers/models/qwen3/modeling_qwen3.py",
    ),
    (
        "RTX 3090",
        Some("Qwen2.5-7B"),
        "--dtype=bfloat16 --bf16 --per_device_train_batch_size=16 --max_length=1024 --lora_r=16 \
         --lora_target_modules=all-linear --gradient_checkpointing",
        "site-packages/peft/peft_model.py\", line 1\n  File \"transformers/models/qwen2/modeling_qwen2.py",
    ),
    ("RTX 4070", None, "--compile=False --depth=12 --device-batch-size=16 --max-seq-len=2048", "nanochat/gpt.py"),
];

fn input(model: Option<&str>, command: &str) -> Input {
    let config = model.map(|name| presets::find(name).expect("a preset").config().to_string());
    let trainer = if model.is_some() { Trainer::Hf } else { Trainer::Nanochat };
    Input { trainer, command: command.to_owned(), config: config.unwrap_or_default() }
}

/// The message that a run prints on a GPU.
fn message_of(gpu: &str, input: &Input) -> String {
    let machine = Options { gpu: gpu.to_owned(), ..Options::default() }.machine().expect("a known GPU");
    let request = TrainerRequest::new(input.read().expect("a run"), machine).expect("a supported GPU");
    plan(request).expect("a plan").oom.expect(&input.command).message
}

/// Searches the run of a message on the message's GPU.
fn solved(text: &str) -> Vec<TrainerSolution> {
    let report = read(text);
    let message = report.first.as_ref().expect("a message");
    let mut options = Options::default();
    as_in_message(&mut options, message, false);
    TrainerSearch::new(message, report.phase_hint, &options).expect("every figure").finish()
}

#[test]
fn predicted_messages_are_solved_by_their_runs() {
    for (gpu, model, command, frame) in RUNS {
        let input = input(model, command);
        let message = message_of(gpu, &input);
        let solutions = solved(&format!("Traceback (most recent call last):\n  File \"{frame}\", line 1\n{message}"));
        let config = input.read().expect("a run").config();
        let is_run = |solution: &TrainerSolution| solution.input.read().is_ok_and(|run| run.config() == config);
        assert!(solutions.iter().any(|solution| solution.is_exact() && is_run(solution)), "{command}: {solutions:?}");
        // An exact run prints the same figures when it is planned.
        for solution in solutions.iter().filter(|solution| solution.is_exact()) {
            let oom = solution.plan().and_then(|plan| plan.oom).expect("a failure");
            let [found, expected] = [&oom.message, &message].map(|text| read(text).first.expect("a message"));
            assert_eq!((found.requested, found.allocated), (expected.requested, expected.allocated), "{solution:?}");
            assert_eq!(oom.phase, solution.phase);
        }
    }
}

#[test]
fn a_message_of_no_common_run_has_no_exact_one() {
    let input = input(Some("Qwen2.5-0.5B"), "--dtype=float32 --bf16 --per_device_train_batch_size=7 --max_length=1400");
    let frame = "  File \"transformers/models/qwen2/modeling_qwen2.py\", line 1\n";
    let solutions = solved(&format!("{frame}{}", message_of("RTX 4070", &input)));
    assert!(solutions.iter().all(|solution| !solution.is_exact()), "{solutions:?}");
}

#[test]
fn a_search_is_bounded() {
    let message = "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 10.00 \
        MiB is free. Including non-PyTorch memory, this process has 23.68 GiB memory in use. Of the allocated memory 22.50 \
        GiB is allocated by PyTorch, and 700.00 MiB is reserved by PyTorch but unallocated.";
    let report = read(message);
    let message = report.first.as_ref().expect("a message");
    let mut options = Options::default();
    as_in_message(&mut options, message, false);
    let mut search = TrainerSearch::new(message, report.phase_hint, &options).expect("every figure");
    let mut largest = 0;
    loop {
        let before = search.n_events;
        if !search.advance() {
            break;
        }
        largest = largest.max(search.n_events - before);
    }
    assert!(search.n_events <= MAX_EVENTS + largest, "{} {largest}", search.n_events);
}
