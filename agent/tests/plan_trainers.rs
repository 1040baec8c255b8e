//! `headroom plan TRAINER`, for trainers other than nanoGPT.

use std::process::{Command, Output};

use serde_json::Value;

fn headroom(words: &[&str]) -> Output {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    Command::new(program).arg("plan").args(words).env("NO_COLOR", "1").output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn json(words: &[&str]) -> Value {
    let output = headroom(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

const NANOCHAT: [&str; 4] = ["nanochat", "--compile=False", "--depth", "6"];

/// The run of depth 6 in tests/golden/measured/models/H200-nanochat.jsonl, measured on an H200.
#[test]
fn nanochat_has_the_peaks_that_were_measured() {
    let run = ["--device-batch-size=8", "--max-seq-len=1024", "--window-pattern=L", "--total-batch-size=8192"];
    let plan = json(&[&NANOCHAT[..], &run, &["--gpu", "H200"]].concat());
    let peak = |phase: &str| {
        let phases = plan["phases"].as_array().expect("phases");
        let found = phases.iter().find(|found| found["name"] == phase).unwrap_or_else(|| panic!("no {phase}"));
        found["max_memory_allocated"].as_u64().expect("bytes")
    };
    let lines = include_str!("../../tests/golden/measured/models/H200-nanochat.jsonl").lines();
    let rows = lines.map(|line| -> Value { serde_json::from_str(line).expect("JSON") });
    let is_run = |row: &Value| {
        (&row["depth"], &row["compile"], &row["grad_accum_steps"]) == (&6.into(), &false.into(), &1.into())
            && row["window_pattern"] == "L"
    };
    let row = rows.into_iter().find(is_run).expect("the row");
    let measured = |name: &str| {
        let phases = row["phases"].as_array().expect("phases");
        let found = phases.iter().find(|phase| phase["name"] == name).expect(name);
        found["max_memory_allocated"].as_u64().expect("bytes")
    };
    assert_eq!(peak("init"), measured("init"));
    assert_eq!(peak("first_forward"), measured("first_forward"));
    assert_eq!(peak("first_backward"), measured("step0_backward"));
    assert_eq!(peak("steady_backward"), measured("step1_backward"));
    assert_eq!(plan["basis"]["allocated"], "exact");
    assert_eq!((&plan["trainer"], &plan["config"]["device_batch_size"]), (&"nanochat".into(), &8.into()));
}

#[test]
fn the_largest_values_fit_and_the_next_do_not() {
    const RUN: [&str; 4] = ["--vram=8GiB", "--total-batch-size=1048576", "--max-seq-len=1024", "--device-batch-size=1"];
    let fits = |key: &str, value: u64| {
        let value = format!("--{key}={value}");
        headroom(&[&NANOCHAT[..], &RUN, &[&value]].concat()).status.code()
    };
    let plan = json(&[&NANOCHAT[..], &RUN].concat());
    let largest = |key: &str| plan["largest"][key].as_u64().unwrap_or_else(|| panic!("{key} in {}", plan["largest"]));
    let depth = largest("depth");
    assert_eq!((fits("depth", depth), fits("depth", depth + 1)), (Some(0), Some(1)), "depth {depth}");
    assert!(largest("device-batch-size") >= 1 && largest("max-seq-len").is_multiple_of(128));
}

#[test]
fn a_run_that_does_not_fit_names_its_tensor() {
    let output = headroom(&[&NANOCHAT[..], &["--depth=20", "--device-batch-size=1", "--gpu", "RTX 4070"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let answer = text(&output.stdout);
    assert!(answer.starts_with("Does not fit on RTX 4070: fails in the first optimizer step on "), "{answer}");
    assert!(answer.contains("Tried to allocate"), "{answer}");
}

#[test]
fn depth_20_of_nanochat_fits_12_gb_with_no_batch_size() {
    let plan = json(&[&NANOCHAT[..], &["--depth=20", "--device-batch-size=1", "--gpu", "RTX 4070"]].concat());
    assert_eq!(plan["largest"]["device-batch-size"], Value::Null);
}

#[test]
fn a_run_that_does_not_fit_has_fixes_that_do() {
    let run = [&NANOCHAT[..], &["--device-batch-size=16", "--gpu=RTX 3060"]].concat();
    let plan = json(&run);
    let fix = &plan["fixes"][0];
    assert_eq!((&fix["id"], &fix["effect_on_training"]), (&"micro_batch".into(), &"none".into()), "{fix}");
    let argument = fix["arguments"][0].as_str().expect("an option");
    let after = json(&[&run[..], &[argument]].concat());
    assert_eq!((&after["fits"], &after["headroom_bytes"]), (&true.into(), &fix["headroom_bytes"]));
    assert_eq!(
        (&after["peak"]["device_used_bytes"], &after["fixes"]),
        (&fix["device_used_bytes"], &Value::Array(vec![]))
    );
    let output = headroom(&run);
    let answer = text(&output.stdout);
    assert!(answer.contains(&format!("1  {argument}\n   the same training, slower; takes ")), "{answer}");
}

#[test]
fn depth_20_on_12_gb_has_a_reason() {
    let output = headroom(&["nanochat", "--compile=False", "--device-batch-size=2", "--gpu=RTX 4070"]);
    let answer = text(&output.stdout);
    assert!(answer.contains("No change that keeps the training makes it fit on this GPU."), "{answer}");
    assert!(answer.contains("20 bytes per matrix parameter"), "{answer}");
}

/// A command, a script with it, and the log of the run have the plan of their options.
#[test]
fn a_run_may_come_from_a_command_a_script_or_a_log() {
    let options = ["--depth=6", "--device-batch-size=4", "--total-batch-size=65536"];
    // A link has the options in their order.
    let without_link = |mut plan: Value| {
        plan.as_object_mut().expect("an object").remove("link");
        plan
    };
    let expected = without_link(json(&[&["nanochat", "--compile=False", "--gpu=RTX 4090"], &options[..]].concat()));
    let command = format!("torchrun --standalone --nproc_per_node=1 -m scripts.base_train -- {}", options.join(" "));
    let words: Vec<&str> = command.split(' ').collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path").to_owned()
    };
    let script = file("run.sh", &format!("#!/bin/bash\n{command} 2>&1 | tee log.txt\n"));
    let log = "GPU: NVIDIA GeForce RTX 4090 | Peak FLOPS (BF16): 1.65e+14\nModel config:\n\
               {\"sequence_len\": 2048, \"vocab_size\": 32768, \"n_layer\": 6, \"n_head\": 3, \"n_kv_head\": 3, \
               \"n_embd\": 384, \"window_pattern\": \"SSSL\"}\nTokens / micro-batch / rank: 4 x 2048 = 8,192\n\
               Tokens / micro-batch: 8,192\nTotal batch size 65,536 => gradient accumulation steps: 8\n";
    let log = file("log.txt", log);
    let gpu = "--gpu=RTX 4090";
    for run in [
        [&["nanochat", gpu, "--compile=False", "--"], &words[..]].concat(),
        vec!["nanochat", gpu, "--compile=False", "--", &command],
        vec!["nanochat", gpu, "--compile=False", &script],
        vec!["nanochat", "--compile=False", &log],
    ] {
        let run: Vec<&str> = [&["nanochat", "--json"], &run[1..]].concat();
        let output = headroom(&run);
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        assert_eq!(without_link(plan), expected, "{run:?}");
    }
    let other = json(&["nanochat", "--compile=False", "--depth=4", &log]);
    assert_eq!((&other["config"]["depth"], &other["config"]["device_batch_size"]), (&4.into(), &4.into()));
    let missing = headroom(&["nanochat", "--compile=False", "no/run.sh"]);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("cannot read no/run.sh"));
}

#[test]
fn errors_name_the_option_and_the_remedy() {
    for (words, expected) in [
        (&["nanochat"][..], "hint: --compile=False plans the eager run"),
        (&["nanochat", "--compile=False", "--deph=4"], "hint: did you mean --depth?"),
        (&["nanochat", "--compile=False", "--depth=0"], "cannot read --depth=0: expected an integer of 1 to 512"),
        (&["nanochat", "--compile=False", "--gpu", "RTX 9999"], "--gpu: "),
        (
            &["nanochat", "--compile=False", "--gpu", "T4"],
            "cannot plan nanochat on Tesla T4: below compute capability 8.0",
        ),
        (&["nanochat", "--compile=False", "--", "python", "train.py"], "no command that starts scripts.base_train"),
        (
            &["nanochat", "--", "torchrun", "--nproc_per_node=8", "-m", "scripts.base_train", "--", "--depth=12"],
            "cannot plan 8 processes: an optimizer that is sharded over GPUs is not derived yet",
        ),
        (
            &["nanochat", "--", "python", "-m", "scripts.base_train", "--depth=12"],
            "--compile=False plans the eager run",
        ),
    ] {
        let output = headroom(words);
        let (answer, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), answer), (Some(2), ""), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

/// The config of the row with this number in tests/golden/measured/models/H200-hf.jsonl, in a file.
fn model(row: usize) -> tempfile::NamedTempFile {
    let line = include_str!("../../tests/golden/measured/models/H200-hf.jsonl").lines().nth(row).expect("the row");
    let row: Value = serde_json::from_str(line).expect("JSON");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), row["config"].to_string()).expect("the config");
    file
}

#[test]
fn a_lora_run_is_planned_from_the_model_and_the_options() {
    let file = model(17);
    let path = file.path().to_str().expect("a path");
    let options = ["--bf16", "--dtype=bfloat16", "--per_device_train_batch_size", "2", "--max_length=2048"];
    let run = [&["hf", path][..], &options, &["--gradient_checkpointing", "--gpu", "RTX 4070"]].concat();
    let plan = json(&[&run[..], &["--lora_r=16", "--lora_target_modules=all-linear"]].concat());
    assert_eq!((&plan["fits"], &plan["trainer"]), (&true.into(), &"hf".into()));
    assert!(plan["largest"]["lora_r"].as_u64() >= Some(16), "{}", plan["largest"]);
    // Full training has two moments of two bytes for each of 1.1 billion weights.
    let full = json(&run);
    let bytes = |plan: &Value| plan["peak"]["live_bytes"].as_u64().expect("bytes");
    assert!(bytes(&full) > bytes(&plan) + (4 << 30), "{} and {}", bytes(&full), bytes(&plan));
    let output = headroom(&[&run[..], &["--vram=4GiB", "--lora_r=16"]].concat());
    let answer = text(&output.stdout);
    assert!(output.status.code() == Some(1) && answer.contains("log_softmax (4096, 32000)"), "{answer}");
}

#[test]
fn quantized_weights_and_optimizers_save_their_bytes() {
    let llama = model(12);
    let llama = llama.path().to_str().expect("a path");
    let run =
        ["hf", llama, "--bf16", "--dtype=bfloat16", "--lora_r=16", "--lora_target_modules=all-linear", "--gpu=H200"];
    let peak = |options: &[&str]| {
        let plan = json(&[&run[..], options].concat());
        plan["peak"]["max_memory_allocated"].as_u64().unwrap_or_else(|| panic!("{options:?}: {plan}"))
    };
    let nf4 = ["--load_in_4bit", "--bnb_4bit_quant_type=nf4", "--bnb_4bit_compute_dtype=bfloat16"];
    let four_bit = peak(&nf4);
    let whole = peak(&[&nf4[..], &["--gradient_checkpointing=False"]].concat());
    assert!(four_bit < whole, "layers are checkpointed by default: {four_bit} and {whole}");
    assert!(peak(&[&nf4[..], &["--bnb_4bit_use_double_quant"]].concat()) < four_bit);
    assert!(peak(&["--load_in_8bit", "--use_reentrant"]) < peak(&["--load_in_8bit"]));
    let full = ["--lora_r=0", "--dtype=float32", "--optim"];
    let optimizer = |name| peak(&[&full[..], &[name]].concat());
    let [fused, bits8, paged] = ["adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit"].map(optimizer);
    assert!(paged < bits8 && bits8 < fused, "{paged}, {bits8}, {fused}");
    assert!(peak(&["--lora_modules_to_save=embed_tokens,lm_head"]) > peak(&[]));
    let answer = headroom(&[&run[..], &["--optim=paged_adamw_8bit"]].concat());
    assert!(text(&answer.stdout).contains("managed memory"), "{}", text(&answer.stdout));
}

#[test]
fn a_model_that_is_not_known_is_refused() {
    let [llama, gpt2] = [model(13), model(20)];
    let moe = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(moe.path(), r#"{"model_type": "mixtral"}"#).expect("the config");
    let [moe, llama, gpt2] = [&moe, &llama, &gpt2].map(|file| file.path().to_str().expect("a path"));
    for (words, code, expected) in [
        (&["hf", moe][..], 2, "`model_type` is mixtral, a mixture of experts"),
        (&["hf", llama, "--fp16", "--bf16"], 2, "cannot plan --fp16=True: --bf16 is set too"),
        (&["hf", llama, "--fp16", "--dtype=bfloat16"], 2, "cannot plan --fp16=True: the weights are bfloat16"),
        (&["hf", llama, "--attn_implementation=flash_attention_2", "--dtype=float32"], 2, "flash-attn has no float32"),
        (&["hf", llama, "--lora_target_modules=c_attn"], 2, "expected all-linear, or names of q_proj, k_proj"),
        (&["hf", gpt2, "--lora_r=8", "--lora_target_modules=q_proj"], 2, "expected all-linear, or names of c_attn"),
        (&["hf", gpt2, "--max_length=1025"], 2, "expected at most 1024, the positions of the model"),
        (&["hf", llama, "--load_in_4bit"], 2, "cannot plan --load_in_4bit=True: Trainer does not train quantized"),
        (&["hf", llama, "--load_in_4bit", "--load_in_8bit", "--lora_r=8"], 2, "--load_in_8bit is set too"),
        (&["hf", llama, "--lora_r=8", "--lora_modules_to_save=norm"], 2, "copies of embed_tokens and lm_head"),
        (&["hf", llama, "--bf16", "--gpu", "T4"], 2, "cannot plan hf on Tesla T4"),
        (&["hf", llama, "--per_device_train_batchsize=2"], 2, "hint: did you mean --per_device_train_batch_size?"),
        (&["hf", "--bf16"], 2, "its config.json or its name is missing"),
        (&["hf", "no/config.json"], 3, "cannot find the model no/config.json"),
        (&["hf", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 2, "expected value at line 1"),
    ] {
        let output = headroom(words);
        let (answer, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), answer), (Some(code), ""), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn a_known_model_needs_no_file() {
    let output = headroom(&["hf", "Qwen/Qwen3-0.6B", "--bf16", "--lora_r=16", "--json"]);
    let plan: Value = serde_json::from_slice(&output.stdout).expect("a plan as JSON");
    assert_eq!((&plan["config"]["hidden_size"], &plan["config"]["dtype"]), (&1024.into(), &"bfloat16".into()));
    let output = headroom(&["hf", "Qwen3-0.7B"]);
    let error = text(&output.stderr);
    assert!(output.status.code() == Some(3) && error.contains("Qwen3-0.6B, Qwen3-1.7B"), "{error}");
}

#[test]
fn options_without_effect_are_listed() {
    let output = headroom(&[&NANOCHAT[..], &["--matrix-lr=0.1", "--run=x", "--gpu=H200"]].concat());
    let answer = text(&output.stdout);
    assert!(answer.contains("These options do not affect memory: --matrix-lr, --run."), "{answer}");
}

#[test]
fn a_link_has_the_options_without_paths_and_the_model() {
    let of_nanochat = headroom(&["nanochat", "--compile=False", "--depth=4", "--run=mine", "--gpu", "L4", "--link"]);
    let link = "http://127.0.0.1:8420/#1&trainer=nanochat&options=--compile%3DFalse%20--depth%3D4&gpu=L4\n";
    assert_eq!(text(&of_nanochat.stdout), link);
    let arguments = ["hf", "Qwen3-0.6B", "--bf16", "--lora_r=8", "--per_device_train_batch_size=1", "--gpu", "L4"];
    let plan = json(&arguments);
    let link = plan["link"].as_str().expect("a link");
    assert!(link.starts_with("http://127.0.0.1:8420/#1&trainer=hf&options=--bf16%20--lora_r%3D8"), "{link}");
    assert!(link.contains("config=%7B") && link.ends_with("&gpu=L4"), "{link}");
    assert_eq!(text(&headroom(&[&arguments[..], &["--link"]].concat()).stdout).trim_end(), link);
    assert_eq!(headroom(&[&arguments[..], &["--link", "--json"]].concat()).status.code(), Some(2));
}

#[test]
fn every_gpu_has_the_verdict_of_its_own_plan() {
    const RUNS: [&[&str]; 2] = [
        &["nanochat", "--compile=False", "--depth=6", "--device-batch-size=8"],
        &["hf", "Qwen3-0.6B", "--bf16", "--lora_r=16", "--gradient_checkpointing"],
    ];
    for run in RUNS {
        let list = json(&[run, &["--gpu=all"]].concat());
        let gpus = list["gpus"].as_array().expect("GPUs");
        assert!(gpus.len() > 100, "{}", gpus.len());
        let n_fits = gpus.iter().filter(|gpu| gpu["outcome"] == "fits").count();
        assert!(n_fits > 0 && n_fits < gpus.len(), "{n_fits}");
        // nanochat has no plan below compute capability 8.0.
        for gpu in gpus.iter().filter(|gpu| gpu["outcome"].is_string()).step_by(23) {
            let plan = json(&[run, &["--gpu", gpu["name"].as_str().expect("a name")]].concat());
            assert_eq!(Some(gpu["outcome"] != "fails"), plan["fits"].as_bool(), "{gpu}");
            assert_eq!(gpu["headroom_bytes"], plan["headroom_bytes"], "{gpu}");
            assert!(gpu["iteration_seconds"].is_null());
        }
    }
    let output = headroom(&[&NANOCHAT[..], &["--gpu=all", "--vram=8GiB"]].concat());
    assert!(text(&output.stderr).contains("--gpu all and --vram exclude each other"), "{}", text(&output.stderr));
}
