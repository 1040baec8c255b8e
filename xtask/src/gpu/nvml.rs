//! NVML measurements: every reading, agreement with `nvidia-smi`, the cost of telemetry, and a process's memory.

use super::{agreement, readings, results::LineWriter};
use crate::{
    failure::{Failure, IoContext, Result},
    shell::{Shell, note, step},
};
use serde_json::{Value, json};
use std::{path::Path, process::Child};

/// The default load if PyTorch is installed: large GEMMs until it is stopped.
const TORCH_LOAD: &str = "import torch\na = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\nwhile True:\n    \
                          for _ in range(50):\n        b = a @ a\n    torch.cuda.synchronize()";
const TORCH_PROBE: &str = "import torch, sys; sys.exit(not torch.cuda.is_available())";
/// Number of comparisons: values that change between two calls rarely match in one.
const COMPARISONS: usize = 5;
const NO_LOAD: &str = "no load: --load names a command that computes on the GPU, and PyTorch with CUDA is not there";

/// Returns whether PyTorch with CUDA is installed.
pub fn has_torch(shell: &Shell) -> bool {
    shell.cmd("python3").args(["-c", TORCH_PROBE]).read().is_some()
}

/// Returns the current output of `headroom doctor --json`.
pub fn doctor(shell: &Shell, headroom: &Path) -> Result<Value> {
    let text = shell
        .cmd(headroom)
        .args(["doctor", "--json"])
        .read()
        .ok_or_else(|| Failure::new("no GPU answers").hint(format!("`{} doctor` says why", headroom.display())))?;
    serde_json::from_str(&text).doing(|| "read what `headroom doctor --json` prints".into())
}

/// Runs all measurements of this step.
pub fn measure(
    shell: &Shell,
    headroom: &Path,
    doctor: &Value,
    load: Option<&str>,
    found: &mut LineWriter<'_>,
) -> Result<()> {
    found.extend(readings::lines(doctor))?;
    match shell.which("nvidia-smi") {
        Some(_) => found.extend(step("compare with nvidia-smi", "its printed digits are ours", || {
            agreement::lines(shell, COMPARISONS, || self::doctor(shell, headroom))
        })?)?,
        None => found.add(json!({
            "kind": "agreement", "available": false, "reason": "nvidia-smi is not on PATH; it comes with NVIDIA's driver",
        }))?,
    }
    for loaded in [false, true] {
        let mut running = if loaded { start_load(shell, load)? } else { None };
        if loaded && running.is_none() {
            found.add(json!({ "kind": "telemetry", "loaded": true, "available": false, "reason": NO_LOAD }))?;
            note(NO_LOAD);
            continue;
        }
        let why = if loaded { "with a load on the GPU" } else { "with an idle GPU" };
        let measured = step("measure what telemetry costs", why, || telemetry(shell, headroom, loaded));
        if let Some(running) = &mut running {
            // The load never ends by itself; if it did, that is reported below.
            let _ = running.kill();
            let _ = running.wait();
        }
        found.extend(measured?)?;
    }
    Ok(())
}

fn telemetry(shell: &Shell, headroom: &Path, loaded: bool) -> Result<Vec<Value>> {
    let text = shell.cmd(headroom).args(["bench", "--only", "telemetry"]).read();
    let text = text.ok_or_else(|| Failure::new("`headroom bench --only telemetry` failed"))?;
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).doing(|| format!("read {line:?}"))?;
        line["loaded"] = loaded.into();
        Ok(line)
    });
    lines.collect()
}

/// Starts a load on the GPU; `None` if there is no command for one.
fn start_load(shell: &Shell, load: Option<&str>) -> Result<Option<Child>> {
    let command = match load {
        Some(load) => shell.cmd("sh").args(["-c", &format!("exec {load}")]),
        None if has_torch(shell) => shell.cmd("python3").args(["-c", TORCH_LOAD]),
        None => return Ok(None),
    };
    command.start().map(Some)
}

/// The first GPU's memory while a process runs; each value is the largest seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeakMemory {
    /// Used memory of the GPU before the process started.
    pub before_bytes: Option<u64>,
    /// Used memory of the GPU while it ran.
    pub gpu_bytes: Option<u64>,
    /// Memory of the process, if the driver reports it. It does not if process ids differ, as in some containers.
    pub process_bytes: Option<u64>,
}

impl PeakMemory {
    /// Reads the memory before the process starts.
    pub fn before(shell: &Shell, headroom: &Path) -> Self {
        let before_bytes = doctor(shell, headroom).ok().and_then(|doctor| gpu_bytes(&doctor));
        Self { before_bytes, ..Self::default() }
    }

    /// Reads the memory now. A failed reading is ignored.
    pub fn look(&mut self, shell: &Shell, headroom: &Path, pid: u32) {
        if let Ok(doctor) = doctor(shell, headroom) {
            self.gpu_bytes = self.gpu_bytes.max(gpu_bytes(&doctor));
            self.process_bytes = self.process_bytes.max(process_bytes(&doctor, pid));
        }
    }

    /// Returns the process's memory: by its id, otherwise the increase since before. The latter is correct if no other
    /// process started or ended.
    pub fn of_process(&self) -> Option<(u64, &'static str)> {
        let more = self.gpu_bytes.zip(self.before_bytes).map(|(now, before)| now.saturating_sub(before));
        self.process_bytes.map(|bytes| (bytes, "process")).or(more.map(|bytes| (bytes, "card, less before")))
    }
}

fn gpu_bytes(doctor: &Value) -> Option<u64> {
    doctor["telemetry"]["gpus"][0]["memory_used_bytes"].as_u64()
}

fn process_bytes(doctor: &Value, pid: u32) -> Option<u64> {
    let processes = doctor["slow"]["gpus"][0]["processes"].as_array()?;
    processes.iter().find(|process| process["pid"] == pid)?["memory_used_bytes"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_number() {
        let doctor = json!({
            "telemetry": { "gpus": [{ "gpu": 0, "memory_used_bytes": 900 }] },
            "slow": { "gpus": [{ "processes": [
                { "pid": 7, "memory_used_bytes": { "missing": "hidden_by_windows" } }, { "pid": 8, "memory_used_bytes": 300 },
            ] }] },
        });
        assert_eq!([7, 8, 9].map(|pid| process_bytes(&doctor, pid)), [None, Some(300), None]);
        assert_eq!(gpu_bytes(&doctor), Some(900));
        let mut seen = PeakMemory { before_bytes: Some(500), gpu_bytes: Some(900), process_bytes: None };
        assert_eq!(seen.of_process(), Some((400, "card, less before")));
        seen.process_bytes = Some(300);
        assert_eq!(seen.of_process(), Some((300, "process")));
        assert_eq!(PeakMemory::default().of_process(), None);
    }
}
