//! Training on an emulated GPU. The program is unchanged, and the emulator runs its kernels.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use headroom_fake_cuda::{FakeGpu, FaultAt, Scenario};
use headroom_fake_nvml::Stage;
use headroom_protocol::printed::{PrintedInfo, Reader};
use serde_json::Value;
use tempfile::TempDir;

use crate::started::{finished, folder, headroom, losses, refused, said};

/// A model whose head size the kernels support.
const TINY: [&str; 15] = [
    "train",
    "--json",
    "--threads=1",
    "--dataset=fox",
    "--n_layer=2",
    "--n_head=2",
    "--n_embd=16",
    "--block_size=8",
    "--batch_size=2",
    "--gradient_accumulation_steps=1",
    "--eval_interval=1000",
    "--eval_iters=1",
    "--learning_rate=1e-2",
    "--warmup_iters=2",
    "--min_lr=1e-3",
];

/// A machine: a directory with a data set, and a driver. It has no NVML unless a test adds one.
pub struct Machine {
    folder: TempDir,
    drivers: TempDir,
}

impl Machine {
    pub fn of(scenario: &Scenario) -> Self {
        let machine = Self { folder: folder(), drivers: TempDir::new().expect("a folder") };
        machine.play(scenario);
        machine
    }

    pub fn play(&self, scenario: &Scenario) {
        scenario.play(self.drivers.path()).expect("the library was built");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn headroom(&self, args: &[&str]) -> Command {
        let mut command = headroom(self.folder.path(), args);
        command.env("HEADROOM_CUDA", headroom_fake_cuda::library().expect("it was built"));
        command.env(headroom_fake_cuda::VARIABLE, self.drivers.path().join("scenario.json"));
        command.env("HEADROOM_NVML", self.drivers.path().join("no-nvml.so"));
        // The host's cuBLASLt cannot use the emulated GPU.
        command.env("HEADROOM_CUBLASLT", "off");
        command
    }

    pub fn tiny(&self, more: &[&str]) -> Command {
        self.headroom(&[&TINY, more].concat())
    }

    /// Returns the plan of the tiny model as JSON.
    #[track_caller]
    pub fn plan(&self, more: &[&str]) -> Value {
        let output = finished(&mut self.tiny(&[more, &["--plan"]].concat()));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// Returns a scenario with one GPU of this memory, in bytes, of which other processes hold `others_bytes`.
fn gpu(total_bytes: u64, others_bytes: u64) -> Scenario {
    let gpu = FakeGpu { total_bytes, others_bytes, ..FakeGpu::default() };
    Scenario { gpus: vec![gpu], ..Scenario::default() }
}

pub const MIB: u64 = 1 << 20;

pub fn number(digits: &str) -> f64 {
    digits.parse().expect("a number")
}

#[test]
fn a_run_on_a_gpu_learns_in_the_memory_that_was_planned() {
    let machine = Machine::of(&Scenario::default());
    let plan = machine.plan(&["--device=cuda"]);
    assert_eq!((plan["device"].as_str(), plan["fits"].as_bool()), (Some("cuda:0"), Some(true)), "{plan}");
    assert_eq!(plan["recompute"], serde_json::json!(["none", "none"]));
    let FakeGpu { total_bytes, context_bytes, .. } = FakeGpu::default();
    assert_eq!(plan["free_bytes"].as_u64(), Some(total_bytes - context_bytes));
    assert_eq!(plan["reserve_bytes"].as_u64(), Some(256 * MIB));
    for buffer in plan["buffers"].as_array().expect("a list") {
        let end = buffer["offset"].as_u64().expect("a place") + buffer["bytes"].as_u64().expect("a size");
        assert!(end <= plan["bytes"].as_u64().expect("a size"), "{buffer}");
    }

    let output = finished(&mut machine.tiny(&["--device=cuda", "--max_iters=20", "--lr_decay_iters=20"]));
    let output_text = said(&output);
    assert!(output_text.contains("On NVIDIA GeForce RTX 4070 (cuda:0), bfloat16"), "{output_text}");
    assert!(output_text.contains(&format!("Allocated {} bytes, as planned.", plan["bytes"])), "{output_text}");
    let losses = losses(&output.stdout);
    assert_eq!(losses.len(), 21);
    let (first, last) = (number(&losses[&0]), number(&losses[&20]));
    assert!(last < 0.9 * first, "{last} after {first}");
    assert!(machine.path("out/ckpt.safetensors").exists());
    let lines = String::from_utf8(output.stdout).expect("text");
    let step: Value = lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|line: &Value| line["iter"] == 3 && line.get("loss").is_some())
        .expect("iteration 3");
    for key in ["lr", "gradient_norm", "tokens_per_second", "mfu"] {
        assert!(step[key].as_f64().is_some_and(|number| number > 0.0), "{key} of {step}");
    }
}

/// Compares fifty iterations on the CPU, on the GPU, and on both in turn. All draw the same batches and dropout masks.
#[test]
fn cpu_gpu_and_resumed_runs_have_the_same_losses() {
    let machine = Machine::of(&Scenario::default());
    let common = ["--n_layer=1", "--eval_interval=25", "--lr_decay_iters=50", "--dropout=0.1"];
    let run = |more: &[&str]| losses(&finished(&mut machine.tiny(&[&common, more].concat())).stdout);
    let whole = run(&["--device=cuda", "--max_iters=49", "--out_dir=card"]);
    assert_eq!(whole.len(), 50);

    let mut parts = run(&["--device=cuda", "--max_iters=24", "--out_dir=parts"]);
    let resume = |device, out| {
        let args = ["train", "--json", "--threads=1", "--init_from=resume", "--max_iters=49", device, out];
        losses(&finished(&mut machine.headroom(&args)).stdout)
    };
    let half = fs::read(machine.path("parts/ckpt.safetensors")).expect("a checkpoint");
    let rest = resume("--device=cuda", "--out_dir=parts");
    assert_eq!((rest.keys().next(), rest.len()), (Some(&25), 25));
    parts.extend(rest);
    assert_eq!(parts, whole, "a run resumed on its GPU equals an uninterrupted run");

    // bfloat16 rounds intermediate results to 3 digits, and the error of the losses grows during training. It is 0.4 %
    // at first and 2 % at the end.
    let near = |others: &BTreeMap<u64, String>| {
        assert!(!others.is_empty());
        for (iter, loss) in others {
            let (want, got) = (number(&whole[iter]), number(loss));
            let tolerance = if *iter < 5 { 0.004 } else { 0.02 };
            assert!((got - want).abs() <= tolerance * want, "iteration {iter}: {got}, and {want} on the GPU");
        }
    };
    let cpu = run(&["--device=cpu", "--max_iters=49", "--out_dir=cpu"]);
    assert_ne!(cpu, whole);
    near(&cpu);
    // A run that begins on the GPU resumes on the CPU.
    fs::write(machine.path("parts/ckpt.safetensors"), half).expect("a file");
    near(&resume("--device=cpu", "--out_dir=parts"));
    // A run that begins on the CPU resumes on the GPU.
    run(&["--device=cpu", "--max_iters=24", "--out_dir=began-on-cpu"]);
    near(&resume("--device=auto", "--out_dir=began-on-cpu"));
}

#[test]
fn levels_of_recomputation_train_alike_in_less_memory() {
    let machine = Machine::of(&Scenario::default());
    let mut before: Option<(u64, _)> = None;
    for level in ["none", "block"] {
        // The batch has more tokens than the vocabulary, whose size is not a multiple of any tile.
        let level = format!("--recompute={level}");
        let bytes = machine.plan(&["--device=cuda", "--batch_size=8", &level])["bytes"].as_u64().expect("a size");
        let run =
            machine.tiny(&["--device=cuda", "--batch_size=8", "--max_iters=2", &level]).output().expect("it runs");
        let losses = losses(&run.stdout);
        assert_eq!(losses.len(), 3, "{}", said(&run));
        if let Some((more_bytes, same_losses)) = &before {
            assert!(bytes < *more_bytes && losses == *same_losses, "{level}: {bytes} of {more_bytes}, {losses:?}");
        }
        before = Some((bytes, losses));
    }
}

#[test]
fn a_plan_is_made_for_what_is_free() {
    // The context takes 256 MiB, other processes hold 1 GiB, and a run leaves 256 MiB free.
    let machine = Machine::of(&gpu(4096 * MIB, 1024 * MIB));
    let gpt2 = ["--device=cuda", "--n_layer=12", "--n_head=12", "--n_embd=384", "--block_size=32", "--batch_size=64"];
    let gpt2 = |more: &[&'static str]| machine.plan(&[&gpt2[..], more].concat());
    let plan = gpt2(&[]);
    assert_eq!(plan["free_bytes"].as_u64(), Some((4096 - 1024 - 256) * MIB));
    assert!(plan["bytes"].as_u64().expect("a size") > 512 * MIB, "{}", plan["bytes"]);
    assert_eq!(plan["recompute"][0], "none");
    // With a smaller `--vram`, some activations must be recomputed.
    let less = gpt2(&["--vram=2GiB"]);
    let bytes = less["bytes"].as_u64().expect("a size");
    let free_bytes = less["free_bytes"].as_u64().expect("a size");
    assert_eq!(less["total_bytes"].as_u64(), Some(2048 * MIB));
    assert!(bytes + 256 * MIB <= free_bytes && less["recompute"][0] != "none", "{bytes} of {free_bytes}");
    // `--vram` cannot make a GPU larger than it is.
    assert_eq!(gpt2(&["--vram=80GiB"])["total_bytes"].as_u64(), Some(4096 * MIB));

    let small = ["train", "--dataset=fox", "--n_layer=2", "--n_embd=64", "--n_head=4", "--device=cuda", "--plan"];
    let text = finished(&mut machine.headroom(&small));
    let text = String::from_utf8(text.stdout).expect("text");
    for words in ["It will allocate ", "Recomputed in the backward pass: ", "Free GPU memory: 2.75 GiB of 4.00 GiB"] {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
}

/// PyTorch needs 40.7 GiB for this run.
#[test]
fn gpt2_with_64_sequences_is_planned_for_a_gpu_of_12_gb() {
    /// 11.69 GiB.
    const VRAM: u64 = 12_552_041_923;
    let machine = Machine::of(&gpu(80 << 30, 0));
    let gpt2 = ["train", "--json", "--plan", "--dataset=fox", "--vocab_size=50257", "--device=cuda"];
    let more = ["--batch_size=64", "--block_size=1024", "--vram=11.69GiB", "--dtype=bfloat16", "--compile=True"];
    // The exit status also depends on the free space of this machine's disk.
    let output = machine.headroom(&[&gpt2[..], &more].concat()).output().expect("it runs");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((plan["fits"].as_bool(), plan["total_bytes"].as_u64()), (Some(true), Some(VRAM)));
    let [bytes, free_bytes] = ["bytes", "free_bytes"].map(|key| plan[key].as_u64().expect("a size"));
    assert!(bytes + 256 * MIB <= free_bytes && free_bytes < VRAM, "{bytes} of {free_bytes}");
    let levels = plan["recompute"].as_array().expect("a list");
    assert!(levels.len() == 12 && levels.iter().all(|level| level != "none"), "{levels:?}");
}

#[test]
fn lines_are_read_as_nanogpts_and_a_gpu_that_is_not_known_has_no_utilisation() {
    let unknown = FakeGpu { name: "NVIDIA Prototype".to_owned(), ..FakeGpu::default() };
    let machine = Machine::of(&Scenario { gpus: vec![unknown], ..Scenario::default() });
    let args: Vec<&str> = TINY.into_iter().filter(|word| *word != "--json").chain(["--max_iters=1"]).collect();
    let output = finished(machine.headroom(&args).env("NO_COLOR", "1"));
    assert!(said(&output).contains("How fast NVIDIA Prototype could be is not known"), "{}", said(&output));
    let (mut reader, mut printed) = (Reader::default(), vec![]);
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().for_each(|line| reader.line(line, &mut |said| printed.push(said)));
    let iterations: Vec<_> = printed
        .iter()
        .filter_map(|said| if let PrintedInfo::Iteration(iteration) = said { Some(iteration) } else { None })
        .collect();
    assert_eq!(iterations.iter().map(|iteration| iteration.iter).collect::<Vec<_>>(), [0, 1], "{text}");
    for iteration in iterations {
        assert!(iteration.loss.is_some() && iteration.tokens_per_second.is_some(), "{text}");
        assert_eq!(iteration.mfu_printed_percent, None, "{text}");
    }
    assert!(text.contains(" tokens/s, lr 3.333e-3, norm ") && text.ends_with("saving checkpoint to out\n"), "{text}");
}

/// Adds an NVML in which another process holds memory of the GPU, and returns the library's path.
fn held_by_another(machine: &Machine) -> PathBuf {
    let mut scenario = headroom_fake_nvml::Scenario::of_gpus(1);
    scenario.gpus[0].uuid = FakeGpu::default().uuid;
    let held = headroom_fake_nvml::Process { pid: 1 << 30, memory_used_bytes: Some(1200 * MIB), graphics: false };
    scenario.gpus[0].processes = vec![held];
    Stage::new(&machine.drivers.path().join("nvml"), &[], &scenario).expect("a stage").library()
}

#[test]
fn oversized_run_is_refused_before_any_write() {
    let machine = Machine::of(&gpu(1536 * MIB, 1200 * MIB));
    let nvml = held_by_another(&machine);
    let large = ["--device=cuda", "--n_embd=256", "--batch_size=64", "--block_size=64"];
    let mut run = machine.tiny(&large);
    let words = [
        "the run needs",
        "with everything recomputed, but only 0 B of NVIDIA GeForce RTX 4070 (cuda:0) are available",
        "80 MiB free, minus a reserve of 256 MiB",
        "are missing; other processes on the GPU: process 1073741824 with 1.17 GiB",
        "hint: stop the processes that hold memory; --device=cpu",
    ];
    refused(run.env("HEADROOM_NVML", &nvml), 1, &words);
    assert!(!machine.path("out").exists(), "nothing was touched");
    // A plan reports the same shortfall and the levels of recomputation.
    let mut plan = machine.tiny(&[&large[..], &["--plan"]].concat());
    let output = plan.env("HEADROOM_NVML", &nvml).output().expect("it runs");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), plan["fits"].as_bool()), (Some(1), Some(false)), "{plan}");
    assert_eq!(plan["recompute"], serde_json::json!(["block", "block"]));
    assert!(said(&output).contains("are missing"));

    // If not even a context fits, `auto` does not silently fall back to the CPU.
    machine.play(&gpu(1536 * MIB, 1500 * MIB));
    let words = [
        "has no memory for another process",
        "; other processes on the GPU: process 1073741824 with 1.17 GiB",
        "hint: ",
    ];
    refused(machine.tiny(&["--device=auto"]).env("HEADROOM_NVML", &nvml), 1, &words);

    // A smaller batch would fit.
    machine.play(&gpu(1536 * MIB, 960 * MIB));
    let many = ["--device=cuda", "--n_embd=256", "--batch_size=4000", "--block_size=64"];
    let said = refused(&mut machine.tiny(&many), 1, &["hint: --batch_size="]);
    let fitting = said.split("--batch_size=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    assert!(number(fitting) >= 1.0 && number(fitting) < 4000.0, "{fitting}");
    let fitting = format!("--batch_size={fitting}");
    assert_eq!(machine.plan(&[&many[..], &[&fitting]].concat())["fits"], true);
    refused(&mut machine.tiny(&[&many[..], &["--recompute=none"]].concat()), 1, &["hint: --recompute=auto"]);
}

#[test]
fn memory_that_is_taken_between_plan_and_allocation_is_reported() {
    let machine = Machine::of(&Scenario { no_memory_at: Some(1), ..Scenario::default() });
    let nvml = held_by_another(&machine);
    let words = ["the planned ", "are no longer free", "process 1073741824 with 1.17 GiB"];
    refused(machine.tiny(&["--device=cuda"]).env("HEADROOM_NVML", nvml), 1, &words);
    assert!(!machine.path("out").exists(), "nothing was partially started");
}

/// Kernel code and the threads' local memory are allocated by the driver, outside the arena.
#[test]
fn later_memory_loss_is_reported_with_holders() {
    let machine = Machine::of(&Scenario { no_modules_after: Some(0), ..Scenario::default() });
    let nvml = held_by_another(&machine);
    let held = "the GPU ran out of memory; other processes on the GPU: process 1073741824 with 1.17 GiB";
    let run = |more: &[&str], words: &[&str]| {
        let mut command = machine.tiny(&[&["--device=cuda"], more].concat());
        command.env("HEADROOM_NVML", &nvml).env("HEADROOM_CUBLASLT", "off");
        refused(&mut command, 1, &[&[held, "hint: stop the processes that hold memory"], words].concat())
    };
    let said = run(&[], &["the driver refuses kernels/ptx/adamw_update.ptx with out of memory"]);
    assert!(!said.contains("as planned") && !machine.path("out").exists(), "nothing was partially started: {said}");

    // All kernels of a run are loaded before its first iteration.
    machine.play(&Scenario { no_modules_after: Some(1), ..Scenario::default() });
    let mut command = machine.tiny(&["--device=cuda", "--dropout=0.1", "--max_iters=3"]);
    finished(command.env("HEADROOM_CUBLASLT", "off"));

    machine.play(&Scenario { fault: Some(FaultAt { launch: 400, code: 2 }), ..Scenario::default() });
    let words = [
        "cannot compute iteration ",
        "hint: stop the processes that hold memory; the checkpoint of iteration 4 is intact",
    ];
    run(&["--init_from=resume", "--max_iters=1000"], &words);
}

#[test]
fn machine_without_usable_gpu_trains_on_cpu_with_reason() {
    let machine = Machine::of(&Scenario::default());
    let check = |more: &[&str], why: &str, hint: &str| {
        let output = finished(&mut machine.tiny(&[&["--max_iters=0"], more].concat()));
        let output_text = said(&output);
        assert!(output_text.contains(&format!("Trains on the CPU: {why}")), "{output_text}");
        assert!(output_text.contains("On the CPU, 1 thread, float32."), "{output_text}");
        let asked = [&["--device=cuda"], more].concat();
        refused(&mut machine.tiny(&asked), 1, &[why, hint]);
    };
    machine.play(&Scenario { driver_version: 12_020, ..Scenario::default() });
    check(&[], "the NVIDIA driver supports CUDA 12.2; the kernels need", "hint: install driver 550 or newer");
    machine.play(&Scenario { gpus: vec![], init: 100, ..Scenario::default() });
    check(&[], "the NVIDIA driver finds no GPU", "hint: --device=cpu");
    let turing = FakeGpu { name: "NVIDIA GeForce RTX 2080 Ti".to_owned(), capability: (7, 5), ..FakeGpu::default() };
    machine.play(&Scenario { gpus: vec![turing.clone()], ..Scenario::default() });
    check(&[], "NVIDIA GeForce RTX 2080 Ti has compute capability 7.5", "hint: --device=cpu");
    machine.play(&Scenario::default());
    check(&["--n_embd=8"], "training on a GPU: a head's size, n_embd / n_head, is 4", "hint: --device=cpu");
    check(&["--dtype=float32"], "dtype is float32; GPUs train in bfloat16", "hint: --dtype=bfloat16");
    refused(
        &mut machine.tiny(&["--device=cuda:1"]),
        1,
        &["GPU 1 does not exist: the driver lists 1", "headroom doctor"],
    );

    // The second GPU can train. A `dtype` that older configs set for older GPUs causes a message.
    machine.play(&Scenario { gpus: vec![turing, FakeGpu::default()], ..Scenario::default() });
    let output = finished(&mut machine.tiny(&["--max_iters=0", "--dtype=float16"]));
    let output_text = said(&output);
    assert!(
        output_text.contains("(cuda:1)") && output_text.contains("dtype is float16: the GPU trains in bfloat16"),
        "{output_text}"
    );
}

#[test]
fn unusable_device_is_refused_before_anything_is_written() {
    let machine = Machine::of(&Scenario::default());
    let empty = tempfile::tempdir().expect("a folder");
    for (more, why) in [
        (&["--device=cuda:99"][..], "GPU 99 does not exist: the driver lists 1"),
        (&["--device=cuda", "--dtype=float32"], "dtype is float32; GPUs train in bfloat16"),
    ] {
        let mut command = machine.headroom(&[&["train"], more].concat());
        refused(command.current_dir(empty.path()), 1, &[why]);
        assert_eq!(fs::read_dir(empty.path()).expect("a folder").count(), 0, "{more:?}");
    }
}

#[test]
fn without_a_driver_there_is_a_sentence() {
    let folder = folder();
    let none = |more: &[&str]| {
        let mut command = headroom(folder.path(), &[&TINY, more].concat());
        command.env("HEADROOM_CUDA", "/nowhere/libcuda.so.1");
        command
    };
    let output = finished(&mut none(&["--max_iters=0"]));
    assert!(
        said(&output).contains("Trains on the CPU: cannot use /nowhere/libcuda.so.1, named by HEADROOM_CUDA"),
        "{}",
        said(&output)
    );
    refused(
        &mut none(&["--device=cuda"]),
        1,
        &["/nowhere/libcuda.so.1, named by HEADROOM_CUDA, as the driver", "hint: "],
    );
    let output = finished(&mut none(&["--plan"]));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((plan["device"].as_str(), plan["fits"].as_bool()), (Some("cpu"), Some(true)), "{plan}");
    assert!(plan["free_bytes"].as_u64().is_some_and(|bytes| bytes > 0) && plan["reserve_bytes"] == 0, "{plan}");
}

#[test]
fn a_gpu_that_faults_is_reported_by_its_kernel_and_the_checkpoint_stays() {
    let machine = Machine::of(&Scenario::default());
    finished(&mut machine.tiny(&["--device=cuda", "--max_iters=3"]));
    let checkpoint = fs::read(machine.path("out/ckpt.safetensors")).expect("it was saved");
    // An illegal address in the middle of an iteration.
    machine.play(&Scenario { fault: Some(FaultAt { launch: 400, code: 700 }), ..Scenario::default() });
    let resume = ["--device=cuda", "--init_from=resume", "--max_iters=1000"];
    let words =
        ["cannot compute iteration ", "CUDA_ERROR_ILLEGAL_ADDRESS", "hint: the checkpoint of iteration 4 is intact"];
    let said = refused(&mut machine.tiny(&resume), 1, &words);
    assert!(said.contains("the latest being ") && said.contains("HEADROOM_CUDA_SYNC=1 shows which"), "{said}");
    // If each launch is awaited, the error names the kernel.
    let said = refused(machine.tiny(&resume).env("HEADROOM_CUDA_SYNC", "1"), 1, &words);
    assert!(said.contains("caused by the kernel "), "{said}");
    assert_eq!(fs::read(machine.path("out/ckpt.safetensors")).expect("it is there"), checkpoint);
    let is_left = |path: &Path| path.extension().is_none_or(|extension| extension != "safetensors");
    let left = fs::read_dir(machine.path("out")).expect("a folder").map(|entry| entry.expect("an entry").path());
    assert_eq!(left.filter(|path| is_left(path)).count(), 0, "no partial checkpoint is left");
}

#[test]
fn a_run_that_diverges_on_a_gpu_keeps_its_checkpoint() {
    let machine = Machine::of(&Scenario::default());
    finished(&mut machine.tiny(&["--device=cuda", "--max_iters=3"]));
    let checkpoint = fs::read(machine.path("out/ckpt.safetensors")).expect("it was saved");
    let wild = ["--init_from=resume", "--learning_rate=1e30", "--decay_lr=False", "--grad_clip=0.0", "--max_iters=50"];
    refused(&mut machine.tiny(&[&["--device=cuda"], &wild[..]].concat()), 1, &["the run has diverged", "hint: "]);
    assert_eq!(fs::read(machine.path("out/ckpt.safetensors")).expect("it is there"), checkpoint);
}
