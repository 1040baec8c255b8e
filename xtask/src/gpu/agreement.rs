//! Comparison of the agent's readings with `nvidia-smi`.
//!
//! Most values change, so the agent is queried before and after `nvidia-smi`. Its value must be one of the two, or
//! between them.

use crate::{
    failure::{Failure, Result},
    shell::Shell,
};
use headroom_protocol::metric::{Group, Metric, Unit};
use serde_json::{Value, json};

/// A value that both report.
struct Field {
    /// Its name in `nvidia-smi --help-query-gpu`.
    smi: &'static str,
    /// Its place in `headroom doctor --json`: the part of the document, and the path in it.
    of: &'static str,
    name: &'static str,
    /// Formats the agent's value as nvidia-smi prints it.
    print: fn(f64) -> String,
}

/// Formats mebibytes, rounded up: `nvidia-smi` of driver 580 prints 616 for 615.06, on an H200.
fn mebibytes(bytes: f64) -> String {
    format!("{:.0}", (bytes / f64::from(1 << 20)).ceil())
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

/// Values of a GPU's description, and readings that are more than one number.
const OWN_FIELDS: [Field; 7] = [
    Field { smi: "memory.total", of: "gpus", name: "memory_total_bytes", print: mebibytes },
    Field { smi: "enforced.power.limit", of: "gpus", name: "power_limit_watts", print: hundredths },
    Field { smi: "power.max_limit", of: "gpus", name: "power_limit_max_watts", print: hundredths },
    Field { smi: "clocks.max.sm", of: "gpus", name: "clock_sm_max_mhz", print: whole },
    Field { smi: "clocks.max.memory", of: "gpus", name: "clock_memory_max_mhz", print: whole },
    Field { smi: "pcie.link.gen.gpucurrent", of: "slow", name: "pcie_link/0", print: whole },
    Field { smi: "pcie.link.width.current", of: "slow", name: "pcie_link/1", print: whole },
];

/// Returns all values that both report: [`OWN_FIELDS`], and the readings of the protocol's registry.
fn fields() -> Vec<Field> {
    let readings = Metric::ALL.into_iter().filter_map(|metric| {
        let of = match metric.group() {
            Group::Fast => "telemetry",
            Group::Slow => "slow",
            Group::Host => return None,
        };
        let print = match metric.unit() {
            Unit::Bytes => mebibytes,
            Unit::Watts => hundredths,
            _ => whole,
        };
        Some(Field { smi: metric.nvidia_smi()?, of, name: metric.name(), print })
    });
    OWN_FIELDS.into_iter().chain(readings).collect()
}

/// Returns a line per field and GPU. The values are compared `n_times`, and one match suffices.
pub fn lines(shell: &Shell, n_times: usize, mut doctor: impl FnMut() -> Result<Value>) -> Result<Vec<Value>> {
    let mut lines: Vec<Value> = Vec::new();
    let mut before = doctor()?;
    for _ in 0..n_times {
        let smi = smi(shell)?;
        let after = doctor()?;
        for (idx, line) in compare(&smi, &before, &after).into_iter().enumerate() {
            match lines.get_mut(idx) {
                None => lines.push(line),
                Some(known) if known["agrees"] == false => *known = line,
                Some(_) => {}
            }
        }
        before = after;
    }
    Ok(lines)
}

/// Returns nvidia-smi's output, a row per GPU.
fn smi(shell: &Shell) -> Result<Vec<Vec<String>>> {
    let query: Vec<&str> = fields().iter().map(|field| field.smi).collect();
    let query = format!("--query-gpu=uuid,{}", query.join(","));
    let text = shell.cmd("nvidia-smi").args([&query, "--format=csv,noheader,nounits"]).read();
    let text = text.ok_or_else(|| Failure::new("nvidia-smi failed").hint("it comes with NVIDIA's driver"))?;
    Ok(text.lines().map(|line| line.split(',').map(|word| word.trim().to_owned()).collect()).collect())
}

fn compare(smi: &[Vec<String>], before: &Value, after: &Value) -> Vec<Value> {
    let mut lines = Vec::new();
    for row in smi {
        let Some((uuid, printed)) = row.split_first() else { continue };
        for (field, printed) in fields().iter().zip(printed) {
            let [first, second] = [before, after].map(|doctor| read(doctor, uuid, field));
            lines.push(json!({
                "kind": "agreement", "uuid": uuid, "name": field.name, "nvidia_smi": printed,
                "before": first, "after": second, "agrees": agrees(printed, first, second, field),
            }));
        }
    }
    lines
}

/// Returns the agent's value by the GPU's UUID; `None` if it is missing.
fn read(doctor: &Value, uuid: &str, field: &Field) -> Option<f64> {
    let gpu = doctor["gpus"].as_array()?.iter().find(|gpu| gpu["uuid"] == uuid)?;
    if field.of == "gpus" {
        return value(gpu, field);
    }
    let samples = doctor[field.of]["gpus"].as_array()?;
    value(samples.iter().find(|sample| sample["gpu"] == gpu["index"])?, field)
}

fn value(of: &Value, field: &Field) -> Option<f64> {
    of.pointer(&format!("/{}", field.name))?.as_f64()
}

fn agrees(printed: &str, before: Option<f64>, after: Option<f64>, field: &Field) -> bool {
    // `[N/A]`, `[Not Supported]`, `[Unknown Error]`.
    let Ok(number) = printed.parse::<f64>() else { return before.is_none() && after.is_none() };
    let ours: Vec<f64> = [before, after].into_iter().flatten().collect();
    let as_printed: Vec<f64> = ours.iter().filter_map(|value| (field.print)(*value).parse().ok()).collect();
    let [first, second] = as_printed[..] else { return false };
    first.min(second) <= number && number <= first.max(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Field {
        fields().into_iter().find(|field| field.name == name).expect("a field")
    }

    #[test]
    fn printed_digits_are_ours_or_lie_between() {
        let memory = &field("memory_used_bytes");
        let mib = f64::from(1 << 20);
        assert!(agrees("616", Some(615.0625 * mib), Some(615.0625 * mib), memory), "as measured");
        assert!(agrees("513", Some(512.9 * mib), Some(512.0 * mib), memory), "it is rounded up");
        assert!(!agrees("511", Some(512.9 * mib), Some(512.0 * mib), memory));
        let power = &field("power_watts");
        assert!(agrees("71.23", Some(70.0), Some(72.0), power));
        assert!(agrees("71.23", Some(71.234), Some(71.234), power));
        assert!(!agrees("71.24", Some(71.234), Some(71.234), power));
        assert!(agrees("[N/A]", None, None, power));
        assert!(!agrees("[N/A]", Some(1.0), None, power) && !agrees("1.00", None, Some(1.0), power));
    }

    #[test]
    fn gpus_are_found_by_their_uuids() {
        let doctor = json!({
            "gpus": [{ "index": 0, "uuid": "GPU-a" }, { "index": 1, "uuid": "GPU-b", "memory_total_bytes": 1_048_576 }],
            "telemetry": { "gpus": [{ "gpu": 1, "power_watts": 5.0 }, { "gpu": 0, "power_watts": 6.0 }] },
            "slow": null,
        });
        assert_eq!(read(&doctor, "GPU-b", &field("memory_total_bytes")), Some(1_048_576.0));
        assert_eq!(read(&doctor, "GPU-a", &field("power_watts")), Some(6.0));
        assert_eq!(read(&doctor, "GPU-b", &field("fan_percent")), None);
        let row = std::iter::once("GPU-b".to_owned()).chain(fields().iter().map(|_| "[N/A]".to_owned())).collect();
        let lines = compare(&[row], &doctor, &doctor);
        assert_eq!(lines.len(), fields().len());
        assert_eq!(lines.iter().filter(|line| line["agrees"] == false).count(), 2, "two have values");
    }
}
