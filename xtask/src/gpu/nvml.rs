//! What NVML tells: every reading, agreement with `nvidia-smi`, what telemetry costs, and a process's bytes.

use super::{agreement, book::Found, readings};
use crate::{
    failure::{Doing, Failure, Result},
    shell::{Shell, note, step},
};
use serde_json::{Value, json};
use std::{path::Path, process::Child};

/// A load where none is named and PyTorch is there: products of large matrices until it is stopped.
const TORCH_LOAD: &str = "import torch\na = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\nwhile True:\n    \
                          for _ in range(50):\n        b = a @ a\n    torch.cuda.synchronize()";
const TORCH_PROBE: &str = "import torch, sys; sys.exit(not torch.cuda.is_available())";
/// How often the two are compared: values that change between two calls agree seldom in one try.
const COMPARISONS: usize = 5;
const NO_LOAD: &str = "no load: --load names a command that computes on the card, and PyTorch with CUDA is not there";

/// Whether there is a PyTorch that computes on the card.
pub fn has_torch(shell: &Shell) -> bool {
    shell.cmd("python3").args(["-c", TORCH_PROBE]).read().is_some()
}

/// What the program says of the cards now.
pub fn doctor(shell: &Shell, headroom: &Path) -> Result<Value> {
    let text = shell
        .cmd(headroom)
        .args(["doctor", "--json"])
        .read()
        .ok_or_else(|| Failure::new("no card answers").hint(format!("`{} doctor` says why", headroom.display())))?;
    serde_json::from_str(&text).doing(|| "read what `headroom doctor --json` prints".into())
}

/// All of this section.
pub fn measure(
    shell: &Shell,
    headroom: &Path,
    doctor: &Value,
    load: Option<&str>,
    found: &mut Found<'_>,
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
        let why = if loaded { "with a load on the card" } else { "with an idle card" };
        let measured = step("measure what telemetry costs", why, || telemetry(shell, headroom, loaded));
        if let Some(running) = &mut running {
            // It ends by no other way; one that ended by itself says so below.
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

/// Starts what computes on the card; none where there is nothing to start.
fn start_load(shell: &Shell, load: Option<&str>) -> Result<Option<Child>> {
    let command = match load {
        Some(load) => shell.cmd("sh").args(["-c", &format!("exec {load}")]),
        None if has_torch(shell) => shell.cmd("python3").args(["-c", TORCH_LOAD]),
        None => return Ok(None),
    };
    command.start().map(Some)
}

/// The first card's memory while a process runs, each the most that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Of the whole card before the process began.
    pub before_bytes: Option<u64>,
    /// Of the whole card while it ran.
    pub card_bytes: Option<u64>,
    /// Of the process, where the driver tells it: not where processes have other numbers, as in some containers.
    pub process_bytes: Option<u64>,
}

impl Seen {
    /// Looks before the process begins.
    pub fn before(shell: &Shell, headroom: &Path) -> Self {
        let before_bytes = doctor(shell, headroom).ok().and_then(|doctor| card_bytes(&doctor));
        Self { before_bytes, ..Self::default() }
    }

    /// Looks now. A driver that does not answer once has said nothing.
    pub fn look(&mut self, shell: &Shell, headroom: &Path, pid: u32) {
        if let Ok(doctor) = doctor(shell, headroom) {
            self.card_bytes = self.card_bytes.max(card_bytes(&doctor));
            self.process_bytes = self.process_bytes.max(process_bytes(&doctor, pid));
        }
    }

    /// What the process has: by its number, else by how much more the card has than before, which is right where
    /// nobody else came or went.
    pub fn of_process(&self) -> Option<(u64, &'static str)> {
        let more = self.card_bytes.zip(self.before_bytes).map(|(now, before)| now.saturating_sub(before));
        self.process_bytes.map(|bytes| (bytes, "process")).or(more.map(|bytes| (bytes, "card, less before")))
    }
}

fn card_bytes(doctor: &Value) -> Option<u64> {
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
        assert_eq!(card_bytes(&doctor), Some(900));
        let mut seen = Seen { before_bytes: Some(500), card_bytes: Some(900), process_bytes: None };
        assert_eq!(seen.of_process(), Some((400, "card, less before")));
        seen.process_bytes = Some(300);
        assert_eq!(seen.of_process(), Some((300, "process")));
        assert_eq!(Seen::default().of_process(), None);
    }
}
