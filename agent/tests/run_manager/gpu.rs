//! Tests of runs that the agent starts on an emulated GPU: one that faults, and one whose memory other processes hold.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use headroom_fake_cuda::{FakeGpu, FaultAt, Scenario};
use headroom_fake_nvml::{Course, Process, Stage};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Agent, DEADLINE, OwnerData, has_ended, is, is_saved, out, was_stopped};

/// A model whose head size the kernels support.
const MODEL: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nblock_size = 8\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e-2\nlog_interval = 1\n";
const MIB: u64 = 1 << 20;

/// A machine with a GPU, and an owner whose agent may train on it.
struct Rig {
    owner: OwnerData,
    drivers: TempDir,
    nvml: Stage,
    shown: headroom_fake_nvml::Scenario,
}

impl Rig {
    /// Creates the machine. NVML shows another process that holds the scenario's `others_bytes`.
    fn new(scenario: &Scenario) -> Self {
        let drivers = tempfile::tempdir().expect("a folder");
        let FakeGpu { uuid, others_bytes, .. } = scenario.gpus[0].clone();
        let mut shown = headroom_fake_nvml::Scenario::of_gpus(1);
        let gpu = &mut shown.gpus[0];
        (gpu.uuid, gpu.memory_used_bytes) = (uuid, Course::Stays(others_bytes as f64));
        if others_bytes > 0 {
            gpu.processes = vec![Process { pid: 1 << 30, memory_used_bytes: Some(others_bytes), graphics: false }];
        }
        let nvml = Stage::new(&drivers.path().join("nvml"), &[], &shown).expect("a stage");
        let rig = Self { owner: OwnerData::new(), drivers, nvml, shown };
        rig.play(scenario);
        rig
    }

    fn play(&self, scenario: &Scenario) {
        scenario.play(self.drivers.path()).expect("the library was built");
    }

    fn config(&self, name: &str, more: &str) {
        let path = self.owner.train.path().join("config").join(name);
        fs::write(path, format!("{MODEL}{more}")).expect("a config");
    }

    /// Starts the agent. The driver's library is also its cuBLASLt, unless `variables` turn that off.
    fn serve(&self, variables: &[(&str, &str)]) -> Agent<'_> {
        let agent = self.owner.serve_with(|command| {
            let library = headroom_fake_cuda::library().expect("it was built");
            command.env("HEADROOM_CUDA", &library).env("HEADROOM_CUBLASLT", &library);
            command.env(headroom_fake_cuda::VARIABLE, self.drivers.path().join("scenario.json"));
            command.env("HEADROOM_NVML", self.nvml.library()).envs(variables.iter().copied());
        });
        // The agent detects GPUs while it already answers.
        crate::eventually("the GPU", || {
            let training = agent.json("GET", "/api/training", &Value::Null, 200);
            (training["devices"][0] == json!({ "name": "cuda:0", "label": "NVIDIA GeForce RTX 4070" })).then_some(())
        });
        agent
    }
}

/// Checks that the run's explanation contains all words.
#[track_caller]
fn explained(run: &Value, words: &[&str]) {
    let why = run["explanation"].as_str().unwrap_or_default();
    for word in words {
        assert!(why.contains(word), "{word:?} is not in {why:?}: {run}");
    }
}

#[test]
fn gpu_fault_ends_only_its_run() {
    let small = "n_embd = 16\nbatch_size = 2\n";
    // An iteration has about forty launches. The long run meets the fault, and the brief one ends before it.
    let fault = Some(FaultAt { launch: 2000, code: 700 });
    let faulty = Scenario { fault, ..Scenario::default() };
    let rig = Rig::new(&faulty);
    rig.config("long.py", &format!("{small}max_iters = 100000000\neval_interval = 5\nalways_save_checkpoint = True\n"));
    rig.config("brief.py", &format!("{small}max_iters = 1\neval_interval = 1\n"));
    let mut agent = rig.serve(&[("HEADROOM_CUBLASLT", "off")]);
    let first = agent.order(&json!({ "config": "long.py", "device": "cuda:0" }));
    let next = agent.order(&json!({ "config": "brief.py", "device": "cuda:0" }));
    let faulted = agent.comes(&first, "explained", |run| run["explanation"].is_string());
    let words =
        ["cannot compute iteration ", "CUDA_ERROR_ILLEGAL_ADDRESS", "the latest being ", "HEADROOM_CUDA_SYNC=1"];
    explained(&faulted, &words);
    let faulted = agent.comes(&first, "failed", has_ended(1));
    let saved = faulted["checkpoint"]["iter"].as_u64();
    assert!(saved > Some(0), "its checkpoint exists: {faulted}");
    agent.comes(&next, "done", has_ended(0));
    assert!(agent.process.try_wait().expect("it is ours").is_none(), "the agent lives");

    // If every kernel is awaited, the explanation names the one that faulted.
    drop(agent);
    let agent = rig.serve(&[("HEADROOM_CUBLASLT", "off"), ("HEADROOM_CUDA_SYNC", "1")]);
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    let faulted = agent.comes(&first, "explained", |run| run["explanation"].is_string() && has_ended(1)(run));
    explained(&faulted, &["CUDA_ERROR_ILLEGAL_ADDRESS", "caused by the kernel "]);

    // After the fault is removed, the run resumes from its checkpoint.
    rig.play(&Scenario::default());
    let saved = faulted["checkpoint"]["iter"].as_u64();
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    agent.comes(&first, "going on", |run| is_saved(run) && run["checkpoint"]["iter"].as_u64() > saved);
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
}

#[test]
fn run_on_full_gpu_names_other_processes_and_queue_continues() {
    let gpu = FakeGpu { total_bytes: 1536 * MIB, others_bytes: 960 * MIB, ..FakeGpu::default() };
    let rig = Rig::new(&Scenario { gpus: vec![gpu], ..Scenario::default() });
    rig.config("large.py", "n_embd = 256\nbatch_size = 4000\nmax_iters = 1\n");
    rig.config("small.py", "n_embd = 16\nbatch_size = 2\nmax_iters = 2\neval_interval = 1\n");
    rig.config("exact.py", "n_embd = 16\ndtype = 'float32'\n");
    rig.config("narrow.py", "batch_size = 2\nn_embd = 8\n");
    let agent = rig.serve(&[]);
    for (config, says) in
        [("exact.py", "exact.py:11:9: dtype is float32"), ("narrow.py", "narrow.py:11:10: training on a GPU")]
    {
        let order = json!({ "config": config, "device": "cuda:0" });
        let message = agent.json("POST", "/api/runs", &order, 422)["message"].to_string();
        assert!(message.contains(says), "{message}");
        // The CPU can train both configs. Free memory of the GPU is checked only when a run starts.
        let run = agent.order(&json!({ "config": config, "device": "cpu" }));
        agent.stop(&run);
    }
    let large = agent.order(&json!({ "config": "large.py", "device": "cuda:0" }));
    let small = agent.order(&json!({ "config": "small.py", "device": "cuda:0" }));
    let refused = agent.comes(&large, "refused", is("exited"));
    let words = ["the run needs", "are missing", "process 1073741824 with 960 MiB", "hint: --batch_size="];
    assert_eq!(refused["status"], json!({ "state": "exited", "code": 1, "cause": "out_of_gpu_memory" }));
    explained(&refused, &words);
    assert!(refused["last"].is_null() && refused["checkpoint"].is_null(), "nothing was begun: {refused}");
    assert!(!out(&rig.owner, &large).join("ckpt.safetensors").exists());
    let done = agent.comes(&small, "done", has_ended(0));
    assert_eq!(done["plan"]["is_builtin"], true, "{done}");

    // The chosen GEMM algorithms are stored beside the checkpoint, and deleted with the run.
    let files = fs::read_dir(out(&rig.owner, &small)).expect("a folder");
    let names: Vec<_> = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("cublaslt-")), "{names:?}");
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{small}"), "", "").0, 204);
    assert!(!out(&rig.owner, &small).exists(), "its folder is deleted too");

    // If not even a context fits, the run ends with that message, and the queue is empty.
    rig.play(&Scenario {
        gpus: vec![FakeGpu { total_bytes: 1536 * MIB, others_bytes: 1500 * MIB, ..FakeGpu::default() }],
        ..Scenario::default()
    });
    let none = agent.order(&json!({ "config": "small.py", "device": "cuda:0" }));
    let refused = agent.comes(&none, "refused", is("exited"));
    assert_eq!(refused["status"], json!({ "state": "exited", "code": 1, "cause": "out_of_gpu_memory" }));
    explained(&refused, &["has no memory for another process", "process 1073741824 with 960 MiB"]);
    // Memory that runs out after the run's own allocation has the same cause.
    rig.play(&Scenario { fault: Some(FaultAt { launch: 60, code: 2 }), ..Scenario::default() });
    let later = agent.order(&json!({ "config": "small.py", "device": "cuda:0" }));
    let refused = agent.comes(&later, "refused", is("exited"));
    assert_eq!(refused["status"], json!({ "state": "exited", "code": 1, "cause": "out_of_gpu_memory" }));
    explained(&refused, &["the GPU ran out of memory", "process 1073741824 with 960 MiB"]);
}

/// No run is active on the GPU.
#[cfg(target_os = "linux")]
#[test]
fn an_error_of_a_gpu_is_an_event_of_its_own_and_counted() {
    let rig = Rig::new(&Scenario::default());
    let mut shown = rig.shown.clone();
    let agent = rig.serve(&[]);
    let counted = || {
        let (_, text) = agent.asked("GET", "/metrics", "", "");
        let text = String::from_utf8(text).expect("text");
        let of = |name: &str| {
            let line =
                text.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains("xid=\"31\""))?;
            line.rsplit_once(' ')?.1.parse::<f64>().ok()
        };
        of("headroom_gpu_xid_errors_total").zip(of("headroom_gpu_xid_error_timestamp_seconds"))
    };
    // Errors before the driver's events are subscribed are lost, so the scenario repeats the error.
    let start = Instant::now();
    let (n, last_s) = loop {
        if let Some(found) = counted() {
            break found;
        }
        assert!(start.elapsed() < DEADLINE, "it is not counted");
        shown.gpus[0].xids.push((0.0, 31));
        rig.nvml.play(&shown).expect("the folder is there");
        thread::sleep(Duration::from_millis(500));
    };
    assert!(n >= 1.0 && last_s > 1.7e9, "{n} at {last_s}");
    let file = rig.owner.history.path().join("history.sqlite");
    let event = crate::eventually("the event", || {
        let history = rusqlite::Connection::open(&file).expect("the file");
        let sql = "SELECT what FROM events WHERE what LIKE '{\"kind\":\"card_fault\"%'";
        history.query_row(sql, [], |row| row.get::<_, String>(0)).ok()
    });
    let event: Value = serde_json::from_str(&event).expect("JSON");
    assert_eq!(event, json!({ "kind": "card_fault", "gpu": FakeGpu::default().uuid, "xid": 31 }));
}
