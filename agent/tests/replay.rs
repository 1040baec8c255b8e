//! `headroom record` and `headroom replay` with the real binary. The recordings are in tests/golden/recordings.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn headroom(words: &[&str]) -> Output {
    let program = env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    Command::new(program).args(words).env("NO_COLOR", "1").stdin(Stdio::null()).output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
}

fn recording(name: &str) -> String {
    golden("recordings").join(name).with_extension("headroom").to_string_lossy().into_owned()
}

fn json(words: &[&str]) -> Value {
    let output = headroom(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn replay(name: &str, gpu: &str) -> Value {
    json(&["replay", &recording(name), "--gpu", gpu])
}

/// Live, allocated and reserved bytes at the peak.
fn peak(answer: &Value) -> [u64; 3] {
    ["live_bytes", "max_memory_allocated", "max_memory_reserved"]
        .map(|name| answer["peak"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {answer}")))
}

const NANOGPT: [&str; 7] = [
    "plan",
    "--compile=False",
    "--eval_iters=2",
    "--eval_interval=2",
    "--max_iters=2",
    "--gradient_accumulation_steps=2",
    "--gpu=RTX 4070",
];

#[test]
fn replays_of_nanogpt_are_their_plans() {
    let plan = json(&[&NANOGPT[..], &["--batch_size=4"]].concat());
    let (planned, replayed) = (peak(&plan), peak(&replay("nanogpt_124m", "RTX 4070")));
    assert_eq!((replayed[0], replayed[2]), (planned[0], planned[2]));
    let compiled = [&["plan"], &NANOGPT[2..], &["--batch_size=4"]].concat();
    assert_eq!(peak(&replay("nanogpt_compiled", "RTX 4070")), peak(&json(&compiled)));
    let small = ["--batch_size=2", "--n_layer=2", "--n_head=4", "--n_embd=256", "--block_size=128", "--dtype=float32"];
    let plan = json(&[&NANOGPT[..], &small].concat());
    assert_eq!(peak(&replay("nanogpt_float32", "RTX 4070")), peak(&plan));
}

/// Rows of tests/golden/recorded, by file and line, whose runs the recordings repeat with scripts of their own.
#[test]
fn replays_take_what_pytorchs_allocator_took() {
    for (name, file, line) in [
        ("hf_llama_lora", "hf_held_out", 5),
        ("hf_gpt2", "hf_held_out", 6),
        ("hf_qwen3_lora", "hf_held_out", 16),
        ("nanochat", "nanochat_held_out", 4),
    ] {
        let rows = fs::read_to_string(golden("recorded").join(file).with_extension("jsonl")).expect("rows");
        let row: Value = serde_json::from_str(rows.lines().nth(line - 1).expect("a row")).expect("JSON");
        let phases = row["phases"].as_array().expect("phases");
        let largest = |key: &str| phases.iter().filter_map(|phase| phase[key].as_u64()).max().expect("bytes");
        let recorded = ["phase_peak_live", "max_memory_allocated", "max_memory_reserved"].map(largest);
        assert_eq!(peak(&replay(name, "RTX 4090")), recorded, "{name}");
    }
}

/// The same run as a line of the H200, in every phase that both have.
#[test]
fn a_replay_of_compiled_nanochat_takes_what_the_gpu_took() {
    let rows = fs::read_to_string(golden("measured/models/H200-nanochat.jsonl")).expect("rows");
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let row = rows.into_iter().find(|row| row["compile"] == true && row["depth"] == 12).expect("the row");
    let answer = json(&["replay", &recording("nanochat_compiled"), "--gpu", "H200", "--expandable-segments"]);
    for (name, measured) in [
        ("init", "init"),
        ("eval", "eval"),
        ("first_forward", "first_forward"),
        ("first_backward", "step0_backward"),
        ("first_optimizer", "step0_optimizer"),
        ("steady_backward", "step1_backward"),
        ("steady_optimizer", "step1_optimizer"),
    ] {
        let found = |value: &Value, name: &str| {
            let phases = value["phases"].as_array().expect("phases");
            phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
        };
        let (replayed, measured) = (found(&answer, name), found(&row, measured));
        assert_eq!(replayed["live_bytes_peak"], measured["phase_peak_allocated"], "{name}");
        assert_eq!(replayed["max_memory_reserved"], measured["max_memory_reserved"], "{name}");
    }
}

#[test]
fn a_gpt_of_124_million_parameters_has_a_small_recording() {
    assert!(fs::metadata(recording("nanogpt_124m")).expect("the recording").len() < 200_000);
}

#[test]
fn a_replay_names_modules_and_source_lines() {
    let answer = replay("nanogpt_124m", "RTX 4070");
    let tensors = answer["tensors"].as_array().expect("tensors");
    let found = tensors.iter().find(|tensor| tensor["module"] == "transformer.h.*.mlp.c_fc" && tensor["count"] == 12);
    let found = found.expect("the products of all blocks");
    assert_eq!(found["source"], "model.py:88 forward");
    assert_eq!(found["shape"], serde_json::json!([4096, 3072]));
    assert_eq!(answer["recording"]["program"], "train.py");
    let output = headroom(&["replay", &recording("nanogpt_124m"), "--gpu", "RTX 4070"]);
    assert_eq!(output.status.code(), Some(0));
    let row = "transformer.h.0–11.mlp.c_fc): 12 × (4096, 3072) bfloat16, model.py:88 forward";
    assert!(text(&output.stdout).contains(row), "{}", text(&output.stdout));
}

#[test]
fn a_run_that_does_not_fit_has_pytorchs_message_and_a_source_line() {
    let words = ["replay", &recording("nanogpt_124m"), "--vram", "4GiB"];
    let output = headroom(&words);
    assert_eq!(output.status.code(), Some(1));
    let answer = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(answer.contains("The tensor is that of "), "{answer}");
    assert!(answer.contains("CUDA out of memory. Tried to allocate"), "{answer}");
    let answer = json(&words);
    assert_eq!(answer["fits"], false);
    assert!(answer["oom_source"].as_str().is_some_and(|source| source.contains(".py:")), "{answer}");
}

#[test]
fn the_allocator_is_that_of_the_options() {
    let reserved = |words: &[&str]| peak(&json(&[&["replay", &recording("nanogpt_124m")], words].concat()))[2];
    let expandable = reserved(&["--expandable-segments"]);
    assert_ne!(expandable, reserved(&[]));
    assert_eq!(expandable, reserved(&["--alloc-conf", "expandable_segments:True"]));
    assert_eq!(expandable, reserved(&["--alloc-conf", "expandable_segments:False", "--expandable-segments"]));
    let split = reserved(&["--alloc-conf", "max_split_size_mb:64"]);
    assert_ne!(split, reserved(&[]));
}

#[test]
fn settings_of_the_allocator_are_refused_as_pytorch_refuses_them() {
    for (settings, cause) in [
        (
            "max_split_size_mb:5",
            "PyTorch refuses it: CachingAllocator option max_split_size_mb too small, must be >= 20",
        ),
        ("max_split_size_mb:5", "did you mean --alloc-conf max_split_size_mb:20?"),
        ("max_split_size:64", "did you mean --alloc-conf max_split_size_mb:64?"),
        ("max_split_size_mb=64", "did you mean --alloc-conf max_split_size_mb:64?"),
        ("backend:cudaMallocAsync", "backend:cudaMallocAsync is another allocator, which is not simulated"),
        (
            "backend:cudaMallocAsync,expandable_segments:true",
            "did you mean --alloc-conf backend:native,expandable_segments:True?",
        ),
    ] {
        let refused = headroom(&["replay", &recording("hf_gpt2"), "--alloc-conf", settings]);
        assert_eq!(refused.status.code(), Some(2), "{settings}");
        assert!(text(&refused.stderr).contains(cause), "{settings}: {}", text(&refused.stderr));
    }
}

/// A memory fraction limits the run on a large GPU, and PyTorch's message names the limit.
#[test]
fn a_memory_fraction_is_a_limit_with_a_message() {
    let words =
        ["replay", &recording("nanogpt_124m"), "--gpu", "H200", "--alloc-conf", "per_process_memory_fraction:0.01"];
    let answer = json(&words);
    assert_eq!(answer["fits"], false);
    assert!(answer["headroom_bytes"].as_i64().is_some_and(|bytes| bytes < 0), "{answer}");
    let message = answer["oom"]["message"].as_str().expect("a message");
    assert!(message.contains(" memory in use. 1.40 GiB allowed; Of the allocated memory "), "{message}");
    let collects = ["replay", &recording("nanogpt_124m"), "--alloc-conf", "garbage_collection_threshold:0.5"];
    let answer = text(&headroom(&collects).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(answer.contains("garbage_collection_threshold has no effect"), "{answer}");
}

/// On the smallest GPU on which the run fits with expandable segments, a replay without them lists the variable.
#[test]
fn a_replay_lists_settings_with_which_the_run_fits() {
    let recording = recording("nanogpt_124m");
    let used = |words: &[&str]| {
        let answer = json(&[&["replay", &recording, "--gpu", "H200", "--context-bytes", "500MiB"], words].concat());
        answer["peak"]["device_used_bytes"].as_u64().expect("bytes")
    };
    let (plain, expandable) = (used(&[]), used(&["--expandable-segments"]));
    assert!(expandable < plain, "{expandable} {plain}");
    let vram = expandable.to_string();
    let answer = json(&["replay", &recording, "--vram", &vram, "--context-bytes", "500MiB"]);
    if answer["fits"] == false {
        let listed: Vec<_> = answer["fits_with"].as_array().expect("a list").iter().collect();
        assert!(listed.contains(&&Value::from("PYTORCH_ALLOC_CONF=expandable_segments:True")), "{answer}");
    }
    for variable in answer["fits_with"].as_array().expect("a list") {
        let settings = variable.as_str().and_then(|text| text.split_once('=')).expect("a variable").1;
        let with =
            json(&["replay", &recording, "--vram", &vram, "--context-bytes", "500MiB", "--alloc-conf", settings]);
        assert_eq!(with["fits"], true, "{settings}");
    }
}

#[test]
fn a_file_that_is_no_recording_is_refused_with_its_offset() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = fs::read(recording("hf_gpt2")).expect("a recording");
    let cut = folder.path().join("cut.headroom");
    fs::write(&cut, &whole[..whole.len() - 1]).expect("a file");
    let output = headroom(&["replay", &cut.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the file is cut off (byte "), "{}", text(&output.stderr));
    fs::write(&cut, b"print('hello')").expect("a file");
    let output = headroom(&["replay", &cut.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it is not a recording of Headroom (byte 0)"), "{}", text(&output.stderr));
    assert_eq!(headroom(&["replay", "missing.headroom"]).status.code(), Some(3));
    assert_eq!(headroom(&["replay"]).status.code(), Some(2));
}

#[test]
fn commands_that_cannot_be_recorded_are_refused() {
    for (words, cause) in [
        (&["record"][..], "a command behind `--`"),
        (&["record", "--", "torchrun", "train.py"], "is not Python with a script or a module"),
        (&["record", "--capability", "7.5", "--", "python", "train.py"], "attention kernels are known from 8.0 on"),
        (&["record", "--capability", "8.1", "--", "python", "train.py"], "no known GPU has it"),
        (&["record", "--steps", "0", "--", "python", "train.py"], "1 to 1000"),
    ] {
        let output = headroom(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(cause), "{words:?}: {}", text(&output.stderr));
    }
}

/// A Python with PyTorch: that of `HEADROOM_PYTHON`, or `python3`.
fn python() -> Option<OsString> {
    let python = env::var_os("HEADROOM_PYTHON").unwrap_or_else(|| "python3".into());
    let output = Command::new(&python).args(["-c", "import torch"]).output().ok()?;
    output.status.success().then_some(python)
}

/// A training of a plain CNN, with lines that a test adds.
const CNN: &str = "\
import torch
from torch import nn
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(100):
    x, y = torch.randn(4, 3, 32, 32).cuda(), torch.randint(10, (4,)).cuda()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
";

/// Records a script in a folder of its own. `None` without PyTorch.
fn recorded(test: &str, script: &str, words: &[&str]) -> Option<(tempfile::TempDir, Output)> {
    let Some(python) = python() else {
        headroom_harness::skip(test, "no Python with PyTorch; HEADROOM_PYTHON names one");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("cnn.py"), script).expect("a script");
    let program = env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(program);
    command.arg("record").args(words).arg("--").arg(python).arg("cnn.py");
    let output = command.current_dir(folder.path()).stdin(Stdio::null()).output().expect("headroom runs");
    Some((folder, output))
}

#[test]
fn a_cnn_is_recorded_without_a_gpu() {
    let Some((folder, output)) = recorded("a_cnn_is_recorded_without_a_gpu", CNN, &[]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = folder.path().join("cnn.headroom").to_string_lossy().into_owned();
    let answer = json(&["replay", &file]);
    assert_eq!(answer["recording"]["steps"], 2);
    let phase = |name: &str| {
        let phases = answer["phases"].as_array().expect("phases");
        let found = phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        found["live_bytes_peak"].as_u64().expect("bytes")
    };
    let rounded = |bytes: u64| bytes.div_ceil(512) * 512;
    let parameters: u64 = [8 * 3 * 9, 8, 72_000, 10].map(|elements| rounded(4 * elements)).iter().sum();
    assert_eq!(phase("init"), parameters + rounded(4 * 4 * 3 * 32 * 32) + 512);
    // Gradients and momentum have the size of the parameters.
    assert!(phase("first_optimizer") >= 3 * parameters);
    let remarks = answer["remarks"].to_string();
    assert!(remarks.contains("cnn.py:11 <module>"), "{remarks}");
}

/// The phases of a training with a compiled part, and its answer.
fn compiled(test: &str, script: &str) -> Option<Value> {
    let (folder, output) = recorded(test, script, &[])?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(json(&["replay", &folder.path().join("cnn.headroom").to_string_lossy()]))
}

/// Live bytes at the peak of a phase.
fn live(answer: &Value, name: &str) -> u64 {
    let phases = answer["phases"].as_array().expect("phases");
    let found = phases.iter().find(|phase| phase["name"] == name).unwrap_or_else(|| panic!("no {name}: {answer}"));
    found["live_bytes_peak"].as_u64().expect("bytes")
}

#[test]
fn a_compiled_model_is_recorded_without_a_gpu() {
    const TEST: &str = "a_compiled_model_is_recorded_without_a_gpu";
    // PyTorch compiles no module of its own in place.
    let class = "class Net(nn.Sequential):\n    def forward(self, x):\n        return super().forward(x)\nmodel = Net(";
    let eager = CNN.replacen("model = nn.Sequential(", class, 1);
    let model = eager.replacen("optimizer = ", "model = torch.compile(model)\noptimizer = ", 1);
    let Some(answer) = compiled(TEST, &model) else { return };
    let tensors = answer["tensors"].as_array().expect("tensors");
    let activation = tensors.iter().find(|tensor| tensor["shape"] == serde_json::json!([4, 8, 30, 30]));
    let activation = activation.unwrap_or_else(|| panic!("no result of the convolution: {answer}"));
    // Backward gets the convolution's result, into which the fused kernel has written.
    assert_eq!(activation["source"], "cnn.py:5 forward", "{activation}");
    // The other form of compilation has the same buffers.
    let in_place = eager.replacen("optimizer = ", "model.compile()\noptimizer = ", 1);
    let Some(other) = compiled(TEST, &in_place) else { return };
    let phases = ["first_forward", "first_backward", "steady_forward", "steady_backward", "steady_optimizer"];
    for name in phases {
        assert_eq!(live(&other, name), live(&answer, name), "{name}");
    }
    let Some(eager) = compiled(TEST, &eager) else { return };
    // The kernel of ReLU's backward writes into its input, and forward keeps a byte for each element instead.
    let elements = 4 * 8 * 30 * 30;
    assert!(live(&answer, "first_forward") >= live(&eager, "first_forward") + elements);
    assert!(live(&answer, "first_backward") < live(&eager, "first_backward"));
}

#[test]
fn a_compiled_optimizer_has_its_state_and_no_temporaries() {
    const TEST: &str = "a_compiled_optimizer_has_its_state_and_no_temporaries";
    let eager = CNN.replacen("SGD(model.parameters(), lr=0.1, momentum=0.9)", "AdamW(model.parameters())", 1);
    let step = eager.replacen("for step", "update = torch.compile(lambda: optimizer.step())\nfor step", 1);
    let step = step.replacen("    optimizer.step()", "    update()", 1);
    let Some(answer) = compiled(TEST, &step) else { return };
    let Some(eager) = compiled(TEST, &eager) else { return };
    assert_eq!(answer["recording"]["steps"], 2);
    let parameters: u64 =
        [8 * 3 * 9, 8, 72_000, 10].map(|elements: u64| (4 * elements).div_ceil(512) * 512).iter().sum();
    // AdamW's `foreach` has a temporary of the parameters' size.
    assert!(live(&answer, "steady_optimizer") >= 4 * parameters);
    assert!(live(&answer, "steady_optimizer") < live(&eager, "steady_optimizer"));
}

#[test]
fn a_stripped_recording_has_no_names() {
    const TEST: &str = "a_stripped_recording_has_no_names";
    let names = ["cnn.py", "weight", "<module>"];
    let recording = |words: &[&str]| {
        let (folder, output) = recorded(TEST, CNN, words)?;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = folder.path().join("cnn.headroom");
        let bytes = fs::read(&file).expect("a recording");
        let found = names.map(|name| bytes.windows(name.len()).any(|bytes| bytes == name.as_bytes()));
        Some((found, peak(&json(&["replay", &file.to_string_lossy()]))))
    };
    let Some((found, with_names)) = recording(&[]) else { return };
    assert_eq!(found, [true; 3]);
    assert_eq!(recording(&["--strip"]), Some(([false; 3], with_names)));
}

#[test]
fn the_package_installs_into_a_fresh_environment() {
    const TEST: &str = "the_package_installs_into_a_fresh_environment";
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder");
    let about = fs::read_to_string(package.join("pyproject.toml")).expect("a manifest");
    assert!(about.contains(&format!("version = \"{}\"", env!("CARGO_PKG_VERSION"))), "{about}");
    let base = env::var_os("HEADROOM_PYTHON").unwrap_or_else(|| "python3".into());
    let folder = tempfile::tempdir().expect("a folder");
    let environment = folder.path().join("venv");
    let created = Command::new(&base).args(["-m", "venv"]).arg(&environment).output();
    if !created.is_ok_and(|output| output.status.success()) {
        headroom_harness::skip(TEST, "no Python that creates environments; HEADROOM_PYTHON names one");
        return;
    }
    let run = |python: &Path, words: &[&str]| {
        let mut command = Command::new(python);
        command.args(words).current_dir(folder.path()).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
        command
    };
    let own = environment.join("bin/python");
    // The backend is in the folder, so nothing is downloaded.
    let install = ["-m", "pip", "install", "--quiet", "--no-index", &*package.to_string_lossy()];
    let output = run(&own, &install).output().expect("pip runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    fs::write(folder.path().join("cnn.py"), CNN).expect("a script");
    let words = ["-m", "headroom_recorder", "--", "cnn.py"];
    let output = run(&own, &words).output().expect("Python runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(" has no PyTorch\n\nhint: "), "{}", text(&output.stderr));
    let Some(python) = python() else {
        headroom_harness::skip(TEST, "no Python with PyTorch; HEADROOM_PYTHON names one");
        return;
    };
    let place = "import headroom_recorder as r; print(r.__path__[0].rpartition('/')[0], end='')";
    let place = run(&own, &["-c", place]).output().expect("Python runs").stdout;
    let output = run(Path::new(&python), &words).env("PYTHONPATH", text(&place)).output().expect("Python runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let installed = json(&["replay", &folder.path().join("cnn.headroom").to_string_lossy()]);
    let Some(embedded) = compiled(TEST, CNN) else { return };
    assert_eq!(peak(&installed), peak(&embedded));
}

#[test]
fn a_step_that_runs_backward_itself_has_all_phases() {
    const TEST: &str = "a_step_that_runs_backward_itself_has_all_phases";
    let script = CNN.replace("    loss = nn.", "    def closure():\n        loss = nn.").replace(
        "    loss.backward()\n    optimizer.step()\n",
        "        loss.backward()\n        return loss\n    loss = optimizer.step(closure)\n",
    );
    let Some((folder, output)) = recorded(TEST, &script, &["-o", "closure.headroom"]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer = json(&["replay", &folder.path().join("closure.headroom").to_string_lossy()]);
    let names: Vec<&str> =
        answer["phases"].as_array().expect("phases").iter().filter_map(|phase| phase["name"].as_str()).collect();
    let first = ["init", "first_forward", "first_backward", "first_optimizer"];
    assert_eq!(names[..4], first);
    assert!(names.contains(&"steady_optimizer"), "{names:?}");
}

#[test]
fn a_program_that_needs_values_is_refused_with_its_line() {
    const TEST: &str = "a_program_that_needs_values_is_refused_with_its_line";
    for (line, cause) in [
        ("x = x[:y.max().item()]", "cnn.py:7 <module> reads a whole number of a GPU tensor"),
        ("x = x[torch.nonzero(y)[:, 0]]", "cnn.py:7 <module> depends on the values of a GPU tensor"),
        (
            "model = torch.compile(model, mode='reduce-overhead')",
            "compiled at cnn.py:8 <module> has Inductor's setting triton.cudagraphs",
        ),
        ("model = torch.compile(model, mode='max-autotune-no-cudagraphs')", "has Inductor's setting max_autotune"),
        (
            "model = torch.compile(model, backend=lambda graph, inputs: graph)",
            "cnn.py:7 <module> calls torch.compile with",
        ),
        ("raise ValueError('no data')", "cnn.py:7: ValueError: no data"),
    ] {
        let script = CNN.replacen("    loss = ", &format!("    {line}\n    loss = "), 1);
        let Some((folder, output)) = recorded(TEST, &script, &[]) else { return };
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(stderr.contains(cause), "{line}: {stderr}");
        assert!(stderr.contains("\nhint: "), "{line}: {stderr}");
        assert!(!folder.path().join("cnn.headroom").exists(), "{line}");
    }
    let Some((_folder, output)) = recorded(TEST, CNN, &["-o", "missing/cnn.headroom"]) else { return };
    assert_eq!(output.status.code(), Some(1));
    let cause = "cannot write missing/cnn.headroom: ";
    assert!(text(&output.stderr).contains(cause), "{}", text(&output.stderr));
    let script = CNN.replacen("    loss = ", "    x, y = x[:y.max().item()], y[:2]\n    loss = ", 1);
    let Some((_folder, output)) = recorded(TEST, &script, &["--assume", "2"]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
}
