//! Training on a GPU from the page to the end. A real agent detects a GPU by a fake NVML and trains a tiny model on the
//! emulator. The page starts, follows, stops and resumes the run.

use crate::{
    environment::Means,
    page::{Page, tell_of},
    rig::{go, until_state},
    rig_training::{PATIENCE, control, order, until, until_says, until_there},
};
use headroom_fake_cuda::FakeGpu;
use headroom_fake_nvml::{Course, Process, Scenario, Stage};
use headroom_tests::{server::Server, training_root::TrainingRoot};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A model whose head size the kernels support.
const MODEL: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 16\nblock_size = 8\nbatch_size = 2\n\
    dropout = 0.0\ngradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e-2\nwarmup_iters = 2\n\
    min_lr = 1e-3\nlog_interval = 1\n";
/// Iterations of the run that ends by itself.
const STEPS: u64 = 20;
/// The loss of a uniform guess over a text's 28 characters, less a tenth.
const LEARNT: f64 = 3.0;
/// Poll interval that stays within a token's rate limit.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// A machine whose driver and NVML show the same GPU.
struct Machine {
    _folder: TempDir,
    stage: Stage,
    scenario: Scenario,
    environment: Vec<(&'static str, OsString)>,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut scenario = Scenario::of_gpus(1);
        scenario.gpus[0].uuid = FakeGpu::default().uuid;
        let stage = Stage::new(&folder.path().join("nvml"), &[], &scenario).expect("a stage");
        let driver = headroom_fake_cuda::Scenario::default().play(folder.path()).expect("the library was built");
        let mut environment = driver.to_vec();
        environment.push(("HEADROOM_NVML", stage.library().into()));
        // The host's cuBLASLt cannot use the emulated GPU.
        environment.push(("HEADROOM_CUBLASLT", "off".into()));
        Self { _folder: folder, stage, scenario, environment }
    }

    fn set(&self, command: &mut Command) {
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("JOURNAL_STREAM").envs(self.environment.clone());
    }

    /// Makes NVML list this process on the GPU, or none.
    fn holds(&mut self, process: Option<(u32, u64)>) {
        let gpu = &mut self.scenario.gpus[0];
        gpu.memory_used_bytes = Course::Stays(process.map_or(0.0, |(_, bytes)| bytes as f64));
        gpu.processes = process
            .map(|(pid, bytes)| Process { pid, memory_used_bytes: Some(bytes), graphics: false })
            .into_iter()
            .collect();
        self.stage.play(&self.scenario).expect("the folder is there");
    }

    /// Returns the command line's plan for a config.
    fn plan(&self, headroom: &Path, grounds: &TrainingRoot, config: &str) -> Value {
        let mut command = Command::new(headroom);
        command.args(["train", config, "--device=cuda:0", "--plan", "--json"]).current_dir(grounds.path());
        self.set(&mut command);
        let output = command.stdin(Stdio::null()).output().expect("headroom runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

/// Waits until the agent's run of this name satisfies `is`, and returns the run.
async fn run(page: &Page, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let runs = page
            .promise(
                "(await fetch('/api/runs', { headers: { authorization: \
                 `Bearer ${localStorage.getItem('headroom.token')}` } })).json()",
            )
            .await;
        let all = runs.as_array().unwrap_or_else(|| panic!("no list: {runs}"));
        let run = all.iter().find(|run| run["name"] == name).unwrap_or(&Value::Null);
        if is(run) {
            return run.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{name} is not {what}: {run}");
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn iter(run: &Value) -> Option<u64> {
    run["last"]["iter"].as_u64()
}

/// Returns a JavaScript expression for a fact, by its name, of the run that the page shows.
fn fact(name: &str) -> String {
    format!(
        "([...document.querySelectorAll('[data-testid=facts] dt')].find((dt) => dt.textContent === {name:?})\
         ?.nextElementSibling.textContent ?? '').replaceAll('\\u00a0', ' ')"
    )
}

#[test]
fn a_model_is_trained_on_a_gpu_from_the_page() {
    let test = "a_model_is_trained_on_a_gpu_from_the_page";
    let Some(means) = Means::of(test) else { return };
    let twenty = format!("{MODEL}max_iters = {STEPS}\nlr_decay_iters = {STEPS}\neval_interval = {STEPS}\n");
    // This run ends only when it is stopped.
    let endless = format!("{MODEL}max_iters = 3000000\neval_interval = 1000000\n");
    let grounds = TrainingRoot::new(&means.headroom, &[("twenty.py", &twenty), ("endless.py", &endless)]);
    let mut machine = Machine::new();
    machine.holds(None);
    let server = Server::start_with(&means.headroom, |command| {
        machine.set(command);
        command.arg("--train").arg(grounds.path());
    });
    let token = control(&means.headroom, &server);
    let address = format!("http://{}/", server.host());
    let socket = format!("ws://{}/", server.host());
    let planned = machine.plan(&means.headroom, &grounds, "config/endless.py");
    let checkpoint = |run: &Value| {
        let id = run["id"].as_str().expect("a number");
        grounds.path().join(format!("out-{id}")).join("ckpt.safetensors")
    };
    tell_of(test, &means, &address, &[socket], Some(server), async |page| {
        go(page, "diagnose").await;
        page.script(&format!("localStorage.setItem('headroom.token', '{token}')")).await;
        go(page, "rig").await;
        until_state(page, "Live").await;
        // The list shows the GPU's name.
        let offered = "document.querySelector('#start-device option[value=\"cuda:0\"]')?.textContent.trim()";
        until(page, "the GPU is offered", &format!("{offered} === 'NVIDIA GeForce RTX 4070'")).await;
        order(page, "endless.py", "cuda:0", "red").await;
        until_says(page, "[data-testid=run-name]", "red").await;
        until_says(page, "[data-testid=run-status]", "running").await;

        // The run allocated what the command line plans, and NVML lists its process on the GPU.
        let red = run(page, "red", "planned", |run| run["plan"].is_object() && run["pid"].is_u64()).await;
        let plan = &red["plan"];
        assert_eq!((&plan["is_builtin"], &plan["card"]), (&json!(true), &json!("GeForce RTX 4070")), "{red}");
        assert_eq!(plan["max_memory_allocated"], planned["bytes"], "{red}");
        let pid = |run: &Value| run["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process");
        let on_gpu_bytes = FakeGpu::default().context_bytes + planned["bytes"].as_u64().expect("a number");
        machine.holds(Some((pid(&red), on_gpu_bytes)));
        let row = format!("[data-testid=processes] tr[data-pid='{}']", pid(&red));
        until_says(page, &row, "red").await;
        until(page, "its memory is reported", &format!("{}.includes('predicted')", fact("Peak memory"))).await;
        until(page, "as planned", &format!("{}.includes('exact to the byte')", fact("Planned memory"))).await;
        let seen = run(page, "red", "seen on its GPU", |run| run["gpu_memory_peak_bytes"].is_u64()).await;
        assert_eq!(seen["gpu_memory_peak_bytes"], on_gpu_bytes, "{seen}");
        assert_eq!(seen["gpus"], json!([FakeGpu::default().uuid]), "{seen}");

        // At least twenty losses arrive.
        until(page, "its losses are drawn", "document.querySelector('.rig-chart__iterations')?.getAttribute('d')")
            .await;
        let iteration = fact("Iteration");
        let many = format!("Number({iteration}.split(' ')[0].replaceAll(',', '')) >= {STEPS}");
        until(page, "it made its steps", &many).await;
        // The run finishes its iteration, saves, and resumes from there as another process.
        until_there(page, "#act-stop").await;
        page.click("#act-stop").await;
        until_there(page, "#act-goon").await;
        let stopped = run(page, "red", "saved", |run| run["checkpoint"]["iter"].is_u64()).await;
        let saved = stopped["checkpoint"]["iter"].as_u64().expect("a number");
        assert!(Some(saved) >= iter(&stopped) && saved >= STEPS, "{stopped}");
        assert_eq!(stopped["status"], json!({ "state": "exited", "code": 130, "cause": "stopped" }), "{stopped}");
        assert!(checkpoint(&stopped).is_file());
        machine.holds(None);
        page.click("#act-goon").await;
        until_there(page, "#act-stop").await;
        let again = run(page, "red", "going on", |run| iter(run) > Some(saved + 1)).await;
        assert_ne!(again["pid"], red["pid"]);
        machine.holds(Some((pid(&again), on_gpu_bytes)));
        until_says(page, &format!("[data-testid=processes] tr[data-pid='{}']", pid(&again)), "red").await;
        page.click("#act-stop").await;
        until_there(page, "#act-goon").await;
        machine.holds(None);

        // A run of twenty iterations to the end.
        order(page, "twenty.py", "cuda:0", "blue").await;
        until_says(page, "[data-testid=run-name]", "blue").await;
        until_says(page, "[data-testid=run-status]", "done").await;
        until(page, "it made its steps", &format!("{iteration}.startsWith('{STEPS} of {STEPS}')")).await;
        let blue = run(page, "blue", "saved", |run| run["checkpoint"]["iter"].is_u64()).await;
        assert!(blue["last"]["loss"].as_f64().is_some_and(|loss| loss < LEARNT), "{blue}");
        assert!(checkpoint(&blue).is_file());
        until_there(page, "#act-delete").await;
        page.click("#act-delete").await;
        until_says(page, "[data-testid=acts]", "its checkpoint of").await;
        page.click("#act-delete").await;
        until(page, "red is shown", "document.querySelector('[data-testid=run-name]')?.textContent === 'red'").await;
        assert!(!checkpoint(&blue).exists());
    });
    // The processes exit by themselves. The watcher of the last run exits a moment after the run.
    let begun = Instant::now();
    while !grounds.at_work().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "processes are still running: {:?}", grounds.at_work());
        sleep(ASK_EVERY);
    }
}
