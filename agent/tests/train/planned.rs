//! Plans without a run, for a GPU that is not installed and data that are not present.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::started::{finished, folder, headroom, refused};

const VRAM: &str = "--vram=11.69GiB";

/// Returns a command without a driver. The plans are of GPT-2 124M with 64 x 1024 tokens per micro-batch.
fn command(folder: &TempDir, words: &[&str]) -> std::process::Command {
    let mut command = headroom(folder.path(), words);
    command.env("HEADROOM_CUDA", "no-driver.so").env("HEADROOM_NVML", "no-nvml.so");
    command
}

#[test]
fn a_plan_needs_neither_a_gpu_nor_data() {
    let folder = TempDir::new().expect("a folder");
    let output =
        finished(&mut command(&folder, &["train", "--plan", "--json", "--dataset=none", "--batch_size=64", VRAM]));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for words in ["an unused GPU with 11.69 GiB", "The data set none is not here", "50304 tokens"] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    assert_eq!((&plan["device"], &plan["gpu"], &plan["fits"]), (&"cuda".into(), &Value::Null, &true.into()));
    let levels: Vec<_> = plan["recompute"].as_array().expect("a level a block").iter().collect();
    assert!(levels.len() == 12 && levels.contains(&&"attention".into()), "{levels:?}");

    // The calculator's plan of the same run.
    let asked = ["plan", "--json", "--batch_size=64", "--dtype=bfloat16", VRAM];
    let calculated = command(&folder, &asked).output().expect("it runs");
    let calculated: Value = serde_json::from_slice(&calculated.stdout).expect("JSON");
    assert_eq!(plan["bytes"], calculated["builtin"]["allocated_bytes"]);

    let words = finished(&mut command(&folder, &["train", "--plan", "--batch_size=64", "--dataset=none", VRAM]));
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(words.starts_with("On a GPU with 11.69 GiB.\nIt will allocate "), "{words}");

    refused(
        &mut command(&folder, &["train", "--plan", "--batch_size=64", "--dataset=none", "--vram=4GiB"]),
        1,
        &["the run needs", "of a GPU with 4.00 GiB are available", "hint: --batch_size="],
    );
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "a plan leaves nothing");
}

#[test]
fn a_stock_config_is_known_by_its_name() {
    let folder = folder();
    let config = "config/train_shakespeare_char.py";
    let planned = finished(&mut command(&folder, &["train", "--plan", "--json", config, "--device=cpu"]));
    let notes = String::from_utf8_lossy(&planned.stderr).into_owned();
    assert!(notes.contains(&format!("{config}: nanoGPT's own config of this name is used")), "{notes}");
    let small = ["--dataset=fox", "--n_layer=1", "--block_size=8", "--batch_size=1", "--max_iters=1", "--eval_iters=1"];
    let trained = finished(&mut command(&folder, &[&["train", config, "--device=cpu"][..], &small].concat()));
    let summary = String::from_utf8_lossy(&trained.stderr).into_owned();
    assert!(summary.contains("n_layer 1, n_head 6, n_embd 384, block_size 8"), "{summary}");
    assert!(summary.contains("Checkpoints are written to out-shakespeare-char."), "{summary}");

    // A config that is neither on disk nor built in.
    refused(&mut command(&folder, &["train", "config/train_gtp2.py"]), 3, &["did you mean config/train_gpt2.py?"]);
}

/// Weights may have gigabytes, but a plan reads only the header.
#[test]
fn a_plan_reads_the_head_of_a_checkpoint_and_of_weights_alone() {
    let folder = folder();
    let shape = ["--n_layer=1", "--n_head=2", "--n_embd=8", "--block_size=8", "--batch_size=2", "--device=cpu"];
    let learn = ["train", "--dataset=fox", "--max_iters=1", "--eval_interval=1", "--eval_iters=1", "--log_interval=1"];
    finished(&mut command(&folder, &[&learn[..], &shape].concat()));
    let path = folder.path().join("out/ckpt.safetensors");
    let mut file = fs::read(&path).expect("it was saved");
    let header = u64::from_le_bytes(file[..8].try_into().expect("eight bytes"));
    let first = 8 + usize::try_from(header).expect("it is in memory");
    file[first] ^= 1;
    fs::write(&path, file).expect("it is written");
    for from in [["--init_from=resume", "--max_iters=9"], ["--init_from=out", "--dataset=fox"]] {
        let train = [&["train", "--device=cpu"][..], &from].concat();
        refused(&mut command(&folder, &train), 1, &["is damaged"]);
        let planned = finished(&mut command(&folder, &[&train[..], &["--plan", "--json"]].concat()));
        let plan: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
        // Embeddings of 29 characters and 8 positions with 8 channels, a block of 12 x 8 x 8 with its norms, and the
        // last norm.
        assert_eq!(plan["parameters"], 29 * 8 + 8 * 8 + 12 * 64 + 2 * 8 + 8, "{plan}");
    }
}

/// A named GPU may be missing if its memory is given. Weights of a known name have a known shape.
#[test]
fn a_plan_for_a_gpu_needs_neither_the_gpu_nor_its_weights() {
    let folder = TempDir::new().expect("a folder");
    let plan = |words: &[&str]| {
        let given = ["train", "--plan", "--json", "--dataset=none", "--batch_size=1"];
        let output = finished(&mut command(&folder, &[&given[..], words].concat()));
        let mut plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // Other processes change the disk's free space meanwhile.
        assert!(plan["disk"]["free_bytes"].take().is_u64(), "{plan}");
        (plan, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (of_none, _) = plan(&["--vram=16GiB"]);
    for device in ["--device=cuda", "--device=cuda:1"] {
        let (of_gpu, said) = plan(&["--vram=16GiB", device]);
        assert_eq!(of_gpu, of_none);
        assert!(said.contains("an unused GPU with 16.00 GiB") && said.contains("no-driver.so"), "{said}");
    }
    let given = ["train", "--plan", "--dataset=none", "--device=cuda"];
    refused(&mut command(&folder, &given), 1, &["no-driver.so", "hint: "]);

    // GPT-2 XL, also with shorter sequences.
    for (block_size, parameters) in [("--block_size=1024", 1_557_611_200_u64), ("--block_size=256", 1_556_382_400)] {
        let (of_weights, said) = plan(&["--init_from=gpt2-xl", "--vram=80GiB", block_size]);
        assert_eq!(of_weights["parameters"], parameters, "{said}");
        assert!(said.contains("The weights gpt2-xl are not here: planned with their shape."), "{said}");
    }
    let other = ["train", "--plan", "--dataset=none", "--init_from=gone.safetensors"];
    refused(&mut command(&folder, &other), 3, &["weights \"gone.safetensors\" not found"]);
}

/// With a single block, recomputing all of it can need more memory than recomputing less.
#[test]
fn least_memory_of_oversized_run_equals_calculator() {
    let folder = TempDir::new().expect("a folder");
    let shape = ["--n_layer=1", "--n_head=16", "--n_embd=1920", "--block_size=1024", "--batch_size=64", "--vram=4GiB"];
    let of = |words: &[&str]| -> Value {
        let output = command(&folder, &[words, &shape].concat()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let trained = of(&["train", "--plan", "--json", "--dataset=none"]);
    let calculated = of(&["plan", "--json", "--dtype=bfloat16"]);
    assert_eq!(trained["bytes"], calculated["builtin"]["allocated_bytes"]);
    assert_eq!((&trained["recompute"], &trained["fits"]), (&serde_json::json!(["gelu"]), &false.into()));
}

#[test]
fn without_a_size_the_cpu_is_planned_and_said() {
    let folder = TempDir::new().expect("a folder");
    let output = finished(&mut command(&folder, &["train", "--plan"]));
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(words.starts_with("On the CPU, "), "{words}");
    assert_eq!(
        fs::read_dir(folder.path()).expect("a folder").count(),
        0,
        "the built-in stories are not created for it"
    );
}
