//! Training on the CPU: its output, resuming where a run stopped, and no loss of checkpoints.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use headroom_kernels::rng::Stream;
use serde_json::Value;

use crate::started::{CPU_FLOPS, TINY, finished, folder, headroom, losses, refused, tiny};

#[test]
fn a_run_learns_prints_json_and_saves() {
    let folder = folder();
    let output = finished(&mut tiny(folder.path(), &["--max_iters=30", "--warmup_iters=2", "--lr_decay_iters=30"]));
    let losses = losses(&output.stdout);
    assert_eq!(losses.len(), 31);
    let [first, last] = [losses[&0].parse::<f64>(), losses[&30].parse::<f64>()].map(|loss| loss.expect("a number"));
    assert!(last < first, "{last} after {first}");
    assert!(folder.path().join("out/ckpt.safetensors").exists());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("bytes, as planned."), "{said}");
}

#[test]
fn peak_rate_of_the_cpu_is_measured_or_given() {
    let folder = folder();
    let utilization = |rate: Option<&str>| {
        let mut command = tiny(folder.path(), &["--max_iters=1", "--force"]);
        match rate {
            Some(rate) => command.env(CPU_FLOPS, rate),
            None => command.env_remove(CPU_FLOPS),
        };
        let stdout = finished(&mut command).stdout;
        let lines = stdout.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let values: Vec<f64> = lines.filter_map(|line| line["mfu"].as_f64()).collect();
        values.into_iter().reduce(f64::max).expect("an iteration")
    };
    // A fraction of 1e40 FLOP/s that no machine reaches.
    let least = 1e-20;
    assert!(utilization(Some("1e40")) < least);
    for rate in [None, Some("fast"), Some("0"), Some("-1e9"), Some("inf"), Some("")] {
        let measured = utilization(rate);
        assert!((least..=1.0).contains(&measured), "{rate:?}: {measured}");
    }
}

#[test]
fn a_run_that_is_resumed_is_the_run_that_was_not() {
    let folder = folder();
    let whole = losses(&finished(&mut tiny(folder.path(), &["--max_iters=12", "--out_dir=whole"])).stdout);
    let mut parts = losses(&finished(&mut tiny(folder.path(), &["--max_iters=5", "--out_dir=parts"])).stdout);
    // The checkpoint contains all other keys.
    let resume = [
        "train",
        "--json",
        "--threads",
        "1",
        "--device=cpu",
        "--init_from=resume",
        "--out_dir=parts",
        "--max_iters=12",
    ];
    let rest = losses(&finished(&mut headroom(folder.path(), &resume)).stdout);
    assert_eq!(rest.keys().next(), Some(&6));
    parts.extend(rest);
    assert_eq!(parts, whole);
}

#[test]
fn another_seed_is_another_run() {
    let folder = folder();
    let run = |seed| losses(&finished(&mut tiny(folder.path(), &["--max_iters=2", seed])).stdout);
    assert_eq!(run("--seed=1"), run("--seed=1"));
    assert_ne!(run("--seed=1"), run("--seed=2"));
}

/// Starts a run and reads its first line.
fn started(folder: &Path, more: &[&str]) -> (Child, Vec<u8>) {
    let mut child = tiny(folder, more).stderr(Stdio::inherit()).spawn().expect("it starts");
    let mut first = Vec::new();
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut byte = [0];
    while !first.ends_with(b"\n") && stdout.read(&mut byte).expect("it can be read") == 1 {
        first.push(byte[0]);
    }
    child.stdout = Some(stdout);
    (child, first)
}

#[cfg(unix)]
#[test]
fn the_interrupt_key_finishes_the_iteration_saves_and_says_how_to_go_on() {
    let folder = folder();
    let (child, mut out) = started(folder.path(), &["--max_iters=1000000"]);
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "`train && export` stops here");
    out.extend(&output.stdout);
    // No iteration was trained if the interrupt came before the first.
    let next = losses(&out).keys().last().map_or(0, |last| last + 1);
    let more = ["--init_from=resume", &format!("--max_iters={}", next + 2)];
    let resumed = losses(&finished(&mut tiny(folder.path(), &more)).stdout);
    assert_eq!(resumed.keys().next(), Some(&next), "every iteration runs exactly once");
}

#[cfg(unix)]
#[test]
fn a_run_that_cannot_save_as_it_is_stopped_says_which_checkpoint_is_the_last() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let more = ["--init_from=resume", "--max_iters=100000000", "--eval_interval=1000000000"];
    let mut command = tiny(folder.path(), &more);
    let mut child = command.spawn().expect("it starts");
    // The run resumes from iteration 4, so its first line shows that the checkpoint was read.
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    // No file can replace a directory, whichever user runs the test.
    let place = folder.path().join("out/ckpt.safetensors");
    fs::remove_file(&place).expect("it is there");
    fs::create_dir(&place).expect("the path is free");
    let reads = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(status.success());
    let output = child.wait_with_output().expect("it ends");
    reads.join().expect("it ends").expect("it can be read");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    for words in ["checkpoint not saved at iteration ", "the last checkpoint is from iteration 4."] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// The number of times the program is killed.
const KILLS: u64 = 200;

#[test]
fn a_run_that_is_killed_at_any_moment_loses_no_checkpoint_and_changes_no_loss() {
    let folder = folder();
    let mut moments = Stream::new(1337, 0);
    let (mut seen, mut survived) = (BTreeMap::new(), 0);
    for kill in 0..KILLS {
        let has_checkpoint = folder.path().join("out/ckpt.safetensors").exists();
        let from = if has_checkpoint { "--init_from=resume" } else { "--init_from=scratch" };
        let (mut child, first) = started(folder.path(), &["--max_iters=1000000", from]);
        assert!(!first.is_empty(), "kill {kill}: it did not resume from the previous checkpoint");
        std::thread::sleep(Duration::from_micros(moments.below(30_000)));
        child.kill().expect("it runs");
        let output = child.wait_with_output().expect("it ended");
        for (iter, loss) in losses(&output.stdout) {
            let before = seen.entry(iter).or_insert_with(|| loss.clone());
            assert_eq!(*before, loss, "kill {kill}: iteration {iter} has a different loss");
        }
        survived += u64::from(has_checkpoint);
    }
    assert!(survived > KILLS / 2, "most started from a checkpoint: {survived}");
    let iterations = *seen.keys().last().expect("something was trained");
    let undisturbed = tiny(folder.path(), &["--out_dir=undisturbed", &format!("--max_iters={iterations}")]).output();
    let undisturbed = losses(&undisturbed.expect("it runs").stdout);
    assert!(undisturbed.len() > 20, "{iterations} iterations are too few to tell");
    for (iter, loss) in &seen {
        assert_eq!(undisturbed.get(iter), Some(loss), "iteration {iter}");
    }
}

#[test]
fn a_plan_is_what_is_allocated() {
    let folder = folder();
    let plan = finished(&mut tiny(folder.path(), &["--plan"]));
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let run = finished(&mut tiny(folder.path(), &["--max_iters=0"]));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains(&format!("Allocated {} bytes, as planned.", plan["bytes"])), "{said}");
    let parts: u64 =
        plan["buffers"].as_array().expect("a list").iter().filter_map(|buffer| buffer["bytes"].as_u64()).sum();
    assert_eq!(plan["bytes"].as_u64(), Some(parts));
}

#[test]
fn untrainable_config_is_reported() {
    let folder = folder();
    let refused = |more: &[&str], code, words: &[&str]| refused(&mut tiny(folder.path(), more), code, words);
    refused(&["--device=mps"], 2, &["device is \"mps\"", "auto, cpu, cuda, or cuda:1", "hint: --device=cpu"]);
    refused(&["--dtype=int8"], 2, &["dtype is \"int8\"", "bfloat16"]);
    refused(&["--recompute=all"], 2, &["\"all\" is not one of auto, none, gelu, attention, block"]);
    refused(&["--vram=12"], 2, &["12 bytes", "--vram 12GiB"]);
    refused(&["--n_head=3"], 2, &["n_embd (8) must be divisible by n_head (3)"]);
    refused(&["--beta1=1.5"], 2, &["beta1 is 1.5", "below 1"]);
    refused(&["--eval_interval=0"], 2, &["eval_interval is 0"]);
    refused(&["--seed=-1"], 2, &["seed"]);
    refused(&["--no_such_key=1"], 2, &["no_such_key"]);
    refused(&["--init_from=resume", "--out_dir=nowhere"], 3, &["nowhere"]);
    refused(&["--init_from=gpt3"], 3, &["gpt3", "hint:"]);
    refused(&["--dataset=cats"], 3, &["cats", "headroom data prepare"]);
    refused(&["--vocab_size=3"], 1, &["3 tokens"]);
    refused(&["--block_size=100000"], 1, &["train.bin", "--block_size="]);
    refused(&["--batch_size=1000000000"], 1, &["needs", "this machine has", "--batch_size="]);
}

#[test]
fn a_run_that_diverges_keeps_its_checkpoint() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let checkpoint = fs::read(folder.path().join("out/ckpt.safetensors")).expect("it was saved");
    let wild = [
        "--init_from=resume",
        "--max_iters=200",
        "--learning_rate=1e30",
        "--decay_lr=False",
        "--grad_clip=0.0",
        "--eval_interval=1000",
    ];
    let output = tiny(folder.path(), &wild).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("diverged") && said.contains("hint:"), "{said}");
    assert_eq!(fs::read(folder.path().join("out/ckpt.safetensors")).expect("it is there"), checkpoint);
}

#[test]
fn diverging_run_stops_and_keeps_its_checkpoint() {
    let folder = folder();
    let learnt = ["--max_iters=300", "--eval_interval=300", "--warmup_iters=10", "--decay_lr=False", "--dropout=0.0"];
    finished(&mut tiny(folder.path(), &learnt));
    // The run begins with trained weights and a growing learning rate. Gradients are clipped, so that no value
    // overflows.
    let wild = [
        "--init_from=resume",
        "--max_iters=100000",
        "--learning_rate=50.0",
        "--decay_lr=True",
        "--warmup_iters=200000",
        "--lr_decay_iters=200001",
        "--grad_clip=1.0",
        "--eval_interval=150",
        "--eval_iters=20",
        "--always_save_checkpoint=True",
    ];
    let output = tiny(folder.path(), &wild).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in [": the loss is above", "checkpoint not saved at iteration ", "the run has diverged", "hint:"] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    let is_number = |loss: &String| loss.parse::<f64>().is_ok_and(f64::is_finite);
    assert!(losses(&output.stdout).values().all(is_number), "no value overflowed");
    // The model still learned while the rate was low. The kept checkpoint is of that time, and still predicts the text.
    let number = |before: &str| {
        let rest = said.rsplit_once(before).expect("it is printed").1;
        rest.split(' ').next().and_then(|word| word.parse::<f64>().ok()).expect("a number")
    };
    let kept = number("the checkpoint of iteration ");
    assert!(kept >= 300.0, "{said}");
    let more = ["--init_from=resume", &format!("--max_iters={kept}"), "--eval_interval=1", "--eval_iters=20"];
    let resumed = finished(&mut tiny(folder.path(), &more)).stdout;
    let first: Value =
        serde_json::from_slice(resumed.split(|&byte| byte == b'\n').next().expect("a line")).expect("JSON");
    assert_eq!(first["iter"].as_f64(), Some(kept));
    let (loss, guess) = (first["train_loss"].as_f64().expect("an evaluation"), 29.0_f64.ln());
    assert!(loss < 0.8 * guess, "{loss}, and {guess} by guessing among 29 characters");
}

#[cfg(unix)]
#[test]
fn the_interrupt_key_ends_an_evaluation() {
    let folder = folder();
    // The evaluation would take hours. The first line reports its progress.
    let (child, first) = started(folder.path(), &["--eval_iters=1000000000"]);
    let first: Value = serde_json::from_slice(&first).expect("JSON");
    assert!(first["evaluated_batches"].as_u64().is_some_and(|done| done > 0), "{first}");
    assert_eq!(first["of_batches"], 2_000_000_000_u64);
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let more = ["--init_from=resume", "--eval_iters=1", "--max_iters=2"];
    let resumed = losses(&finished(&mut tiny(folder.path(), &more)).stdout);
    assert_eq!(resumed.keys().next(), Some(&0), "it had done nothing yet");
}

#[test]
fn a_model_that_learnt_writes_what_it_learnt() {
    let folder = folder();
    let learn = [
        "--max_iters=300",
        "--eval_interval=300",
        "--n_embd=32",
        "--dropout=0.0",
        "--batch_size=8",
        "--learning_rate=1e-2",
    ];
    finished(&mut tiny(folder.path(), &[&learn[..], &["--warmup_iters=10", "--lr_decay_iters=300"]].concat()));
    let sample = |more: &[&str]| {
        let args = [&["sample", "--ckpt", "out", "--prompt", "The quick", "--max-new-tokens", "30"], more].concat();
        String::from_utf8(finished(&mut headroom(folder.path(), &args)).stdout).expect("text")
    };
    let text = sample(&["--temperature", "0"]);
    assert!(text.starts_with("The quick brown fox"), "{text:?}");
    assert_eq!(text.chars().count(), "The quick".len() + 30 + 1);
    assert_eq!(sample(&["--seed", "5", "--temperature", "2"]), sample(&["--seed", "5", "--temperature", "2"]));
    assert_ne!(sample(&["--seed", "5", "--temperature", "2"]), sample(&["--seed", "6", "--temperature", "2"]));
    // The data contain no newline to begin with, and only one capital.
    let unasked = finished(&mut headroom(folder.path(), &["sample", "--ckpt", "out", "--temperature", "0"])).stdout;
    assert!(unasked.starts_with(b"The "), "{:?}", String::from_utf8_lossy(&unasked));
    let refused = |args: &[&str], code, words: &[&str]| refused(&mut headroom(folder.path(), args), code, words);
    refused(&["sample", "--ckpt", "out", "--prompt", "1"], 1, &["--prompt", "'1'"]);
    refused(&["sample", "--ckpt", "nowhere"], 3, &["nowhere"]);
    refused(&["sample"], 2, &["--ckpt"]);
}

#[test]
fn a_run_that_is_done_says_what_writes_only_where_something_was_saved() {
    let folder = folder();
    let said = |more: &[&str]| {
        let output = finished(&mut tiny(folder.path(), &[&["--max_iters=2"], more].concat()));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for more in [&["--eval_only=True"][..], &["--always_save_checkpoint=False", "--eval_interval=9"]] {
        let said = said(more);
        assert!(said.ends_with("Done, and nothing was saved.\n"), "{said}");
        assert!(!folder.path().join("out/ckpt.safetensors").exists());
    }
    // The data contain only one capital.
    let said = said(&["--always_save_checkpoint=True"]);
    assert!(said.ends_with("Training complete. Generate text with:\n  headroom sample --ckpt out\n"), "{said}");
}

#[test]
fn lines_without_json_are_those_of_nanogpt() {
    let folder = folder();
    let args: Vec<&str> = TINY.into_iter().filter(|word| *word != "--json").chain(["--max_iters=1"]).collect();
    let output = finished(&mut headroom(folder.path(), &args));
    let lines: Vec<String> = BufReader::new(&output.stdout[..]).lines().map(|line| line.expect("text")).collect();
    assert!(lines[0].starts_with("step 0: train loss "), "{lines:?}");
    assert!(
        lines[1].starts_with("iter 0: loss ") && lines[1].contains("ms, mfu ") && lines[1].contains(" tokens/s"),
        "{lines:?}"
    );
}
