//! Tests of the whole `cargo xtask gpu` on a machine with an emulated GPU and a fake NVML. They keep the command
//! working without a GPU.
//!
//! `HEADROOM_XTASK`, `HEADROOM_BIN`, `HEADROOM_OPS` and `HEADROOM_CUDA_OPS` name the programs that the test needs.
//! `cargo xtask test` sets them. Without them the test is counted as skipped.
#![cfg(target_os = "linux")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use headroom_fake_cuda::Scenario as CudaScenario;
use headroom_fake_nvml::{Scenario, Stage, code};
use headroom_harness::skip;
use serde_json::Value;
use tempfile::TempDir;

/// The reason for a skip.
const UNNAMED: &str = "HEADROOM_XTASK and what it measures with are not set; `cargo xtask test` sets them";

/// A fake `compute-sanitizer`. It runs the given program without NVIDIA's libraries, and prints the real tool's last
/// line.
const SANITIZER: &str = r#"#!/bin/sh
[ "$1" = --tool ] && [ "$3" = --error-exitcode ] && [ "$5 $6" = "--report-api-errors no" ] || exit 2
[ "$HEADROOM_CUBLASLT" = off ] || exit 2
tool=$2
shift 6
"$@" || exit
case $tool in
memcheck) echo "========= ERROR SUMMARY: 0 errors" ;;
racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
esac
"#;

/// A fake of llm.c's program. It divides by the evaluation interval, and prints the real program's lines of a step.
const LLMC: &str = r#"#!/bin/sh
every=20
while [ $# -gt 1 ]; do
  case $1 in
  -v) every=$2 ;;
  -x) steps=$2 ;;
  esac
  shift 2
done
echo $((1 % every)) || exit
step=0
while [ $step -lt "$steps" ]; do
  step=$((step + 1))
  echo "step    $step/$steps | loss 9.5 (+nanz)| norm 2.1 (+nanz)| lr 3e-06 | 2.00 ms | 44.4% bf16 MFU | 718000 tok/s"
done
"#;

/// A machine and the programs under test.
struct Machine {
    folder: TempDir,
    xtask: PathBuf,
    programs: [(&'static str, PathBuf); 3],
    stage: Stage,
}

impl Machine {
    /// Creates the machine. Returns `None` if a program is not named.
    fn new() -> Option<Self> {
        let named = |name: &str| env::var_os(name).map(PathBuf::from);
        let xtask = named("HEADROOM_XTASK")?;
        let programs = [
            ("--headroom", named("HEADROOM_BIN")?),
            ("--ops", named("HEADROOM_OPS")?),
            ("--cuda-ops", named("HEADROOM_CUDA_OPS")?),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let mut scenario = Scenario::of_gpus(1);
        // NVML cannot see the emulated GPU's memory, and no reading is better than a wrong one.
        for symbol in ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"] {
            scenario.gpus[0].errors.insert(symbol.to_owned(), code::NOT_SUPPORTED);
        }
        let stage = Stage::new(&folder.path().join("driver"), &[], &scenario).expect("a stage");
        let tools = folder.path().join("tools");
        fs::create_dir_all(&tools).expect("a folder");
        let sanitizer = tools.join("compute-sanitizer");
        fs::write(&sanitizer, SANITIZER).expect("a script");
        fs::set_permissions(&sanitizer, fs::Permissions::from_mode(0o755)).expect("ours");
        Some(Self { folder, xtask, programs, stage })
    }

    /// Runs the command on a GPU. Returns its output and the lines that it wrote.
    fn gpu(&self, scenario: &CudaScenario, args: &[&str]) -> (Output, Vec<Value>) {
        let out = self.folder.path().join("out");
        let path = env::var_os("PATH").unwrap_or_default();
        let tools = [self.folder.path().join("tools")].into_iter().chain(env::split_paths(&path));
        let mut command = Command::new(&self.xtask);
        command.args(["gpu", "--tiny", "--seed", "7", "--out"]).arg(&out).args(args);
        for (flag, program) in &self.programs {
            command.arg(flag).arg(program);
        }
        command.envs(scenario.play(self.folder.path()).expect("the library was built"));
        command.env("HEADROOM_NVML", self.stage.library()).env("HEADROOM_DATA_DIR", self.folder.path().join("data"));
        command.env("PATH", env::join_paths(tools).expect("a path")).env_remove("HEADROOM_CUDA_REQUIRED");
        let output = command.output().expect("xtask runs");
        (output, lines(&out))
    }
}

/// Returns all lines of the only result file.
fn lines(folder: &Path) -> Vec<Value> {
    let entries = fs::read_dir(folder).expect("it was made");
    let files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    let [file] = &files[..] else { panic!("one file: {files:?}") };
    assert!(file.display().to_string().contains("nvidia-geforce-rtx-4070-20"), "{}", file.display());
    let text = fs::read_to_string(file).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_step_works_on_the_emulated_gpu() {
    let Some(machine) = Machine::new() else {
        return skip("every_step_works_on_the_emulated_gpu", UNNAMED);
    };
    // The copied script is not executable.
    let llmc = machine.folder.path().join("llm.c");
    fs::create_dir_all(&llmc).expect("a folder");
    fs::write(llmc.join("train_gpt2cu"), LLMC).expect("a script");
    let (output, lines) = machine.gpu(&CudaScenario::default(), &["--llmc", &llmc.display().to_string()]);
    let said = errors(&output);
    assert!(output.status.success(), "{said}");
    let steps = of_kind(&lines, "step");
    assert_eq!(steps.len(), 6, "{steps:?}");
    assert!(steps.iter().all(|step| step["failed"].is_null()), "{steps:?}");
    assert!(
        of_kind(&lines, "kernel_test").iter().any(|test| test["passes"] == true && test["emulated_alone"] == false)
    );
    assert_eq!(of_kind(&lines, "sanitizer").iter().filter(|line| line["clean"] == true).count(), 2, "{said}");
    let [training] = of_kind(&lines, "training")[..] else { panic!("one headline: {said}") };
    assert!(
        training["allocated_bytes"].is_u64() && training["allocated_bytes"] == training["planned_bytes"],
        "{training}"
    );
    assert!(training["gemm_backend"].is_string(), "{training}");
    let [losses] = of_kind(&lines, "agreement_of_losses")[..] else { panic!("one comparison: {said}") };
    assert!(losses["off_max"].as_f64().is_some_and(|off| off < 0.01), "{losses}");
    let ops = of_kind(&lines, "op");
    assert!(ops.len() > 30 && ops.iter().any(|op| op["of_gemm_ceiling"].is_f64()), "{ops:?}");
    let ours = of_kind(&lines, "speed").into_iter().filter(|line| line["who"] == "headroom");
    assert_eq!(ours.filter(|line| line["tokens_per_second"].is_f64()).count(), 4, "{said}");
    let of = |who: &str| of_kind(&lines, "speed").into_iter().filter(|line| line["who"] == who).collect::<Vec<_>>();
    let theirs = of("llm.c");
    assert!(theirs.len() == 4 && theirs.iter().all(|line| line["iteration_ms"] == 2.0), "{theirs:?}");
    let theirs = of("nanogpt_compile");
    let is_absent =
        |line: &&Value| line["reason"].as_str().is_some_and(|text| text.starts_with("--nanogpt names no checkout"));
    assert!(theirs.len() == 2 && theirs.iter().all(is_absent), "{theirs:?}");
    let bars = of_kind(&lines, "bar");
    assert!(bars.len() >= 5 && bars.iter().all(|bar| bar["holds"] == true), "{bars:?}");
}

#[test]
fn faulty_kernel_fails_its_threshold_and_other_steps_run() {
    let Some(machine) = Machine::new() else {
        return skip("faulty_kernel_fails_its_threshold_and_other_steps_run", UNNAMED);
    };
    let mut scenario = CudaScenario::default();
    scenario.mutations.insert("losses_sum".to_owned(), "a_loss_less".to_owned());
    let (output, lines) = machine.gpu(&scenario, &["--only", "kernels,ceilings"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FAILS: kernels' tests that fail on the GPU"), "{said}");
    assert!(of_kind(&lines, "kernel_test").iter().any(|test| test["passes"] == false), "{said}");
    assert!(!of_kind(&lines, "op").is_empty(), "the step after it: {said}");
    // The same on a GPU without the fault. The new lines replace those of this step, and the lines of the other step
    // remain.
    let (output, lines) = machine.gpu(&CudaScenario::default(), &["--only", "kernels"]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(
        of_kind(&lines, "kernel_test").iter().all(|test| test["passes"] == true) && !of_kind(&lines, "op").is_empty()
    );
}

#[test]
fn a_gpu_is_demanded() {
    let Some(machine) = Machine::new() else {
        return skip("a_gpu_is_demanded", UNNAMED);
    };
    let none = CudaScenario { gpus: vec![], ..CudaScenario::default() };
    let (output, lines) = machine.gpu(&none, &["--only", "kernels"]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let tests = of_kind(&lines, "kernel_test");
    let wanting = |test: &&Value| test["why"].as_str().is_some_and(|why| why.contains("HEADROOM_CUDA_REQUIRED"));
    assert!(
        tests.iter().any(|test| test["passes"] == false)
            && tests.iter().filter(|test| test["passes"] == false).all(wanting),
        "{tests:?}"
    );
}
