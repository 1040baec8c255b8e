//! Whether headroom reads what nvidia-smi prints, to its printed digit.

use crate::{
    failure::{Failure, Result},
    shell::Shell,
};
use serde_json::{Value, json};

const MIB: f64 = 1_048_576.0;

/// nvidia-smi's name of a reading, where it stands in the line of `headroom bench`, and by what it has to be divided.
const FIELDS: &[(&str, &str, f64)] = &[
    ("memory.total", "/card/memory_total_bytes", MIB),
    ("enforced.power.limit", "/card/power_limit_watts", 1.0),
    ("power.max_limit", "/card/power_limit_max_watts", 1.0),
    ("clocks.max.sm", "/card/clock_sm_max_mhz", 1.0),
    ("clocks.max.memory", "/card/clock_memory_max_mhz", 1.0),
    ("memory.used", "/sample/memory_used_bytes", MIB),
    ("memory.free", "/sample/memory_free_bytes", MIB),
    ("memory.reserved", "/sample/memory_reserved_bytes", MIB),
    ("utilization.gpu", "/sample/utilization_percent", 1.0),
    ("utilization.memory", "/sample/memory_utilization_percent", 1.0),
    ("power.draw", "/sample/power_watts", 1.0),
    ("clocks.sm", "/sample/clock_sm_mhz", 1.0),
    ("clocks.mem", "/sample/clock_memory_mhz", 1.0),
    ("temperature.gpu", "/sample/temperature_celsius", 1.0),
    ("fan.speed", "/slow/fan_percent", 1.0),
    ("pcie.link.gen.gpucurrent", "/slow/pcie_link/0", 1.0),
    ("pcie.link.width.current", "/slow/pcie_link/1", 1.0),
    ("ecc.errors.corrected.volatile.total", "/slow/ecc_corrected", 1.0),
    ("ecc.errors.uncorrected.volatile.total", "/slow/ecc_uncorrected", 1.0),
];

/// What nvidia-smi prints of the first card, in the order of the fields.
pub fn query(shell: &Shell) -> Result<Vec<String>> {
    let names: Vec<&str> = FIELDS.iter().map(|(name, ..)| *name).collect();
    let query = format!("--query-gpu={}", names.join(","));
    let command = shell.cmd("nvidia-smi").args(["--id=0", &query, "--format=csv,noheader,nounits"]);
    let text = command.read().ok_or_else(|| Failure::new("nvidia-smi failed").hint("it comes with the driver"))?;
    let values: Vec<String> = text.lines().next().unwrap_or("").split(',').map(|value| value.trim().into()).collect();
    if values.len() == FIELDS.len() {
        return Ok(values);
    }
    Err(Failure::new(format!("nvidia-smi printed {} values of {}: {text}", values.len(), FIELDS.len())))
}

/// A line a field: what headroom read, what nvidia-smi printed before and after, and whether they agree.
pub fn compare(line: &Value, before: &[String], after: &[String]) -> Vec<Value> {
    let printed = before.iter().zip(after);
    let lines = FIELDS.iter().zip(printed).map(|((name, pointer, divisor), (before, after))| {
        let own = line.pointer(pointer).and_then(Value::as_f64).map(|value| value / divisor);
        json!({
            "schema": 1,
            "kind": "nvidia_smi",
            "device": line["device"],
            "reading": name,
            "headroom": own,
            "nvidia_smi": [before, after],
            "agrees": agrees(own, before, after),
        })
    });
    lines.collect()
}

/// A value that changes lies between what is printed before and after; of the last digit one is given, as some are
/// rounded and others cut off. What one does not have the other must not have either.
fn agrees(own: Option<f64>, before: &str, after: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let (Some(first), Some(last)) = (number(before), number(after)) else {
        return own.is_none() && number(before).is_none() && number(after).is_none();
    };
    let digits = before.split_once('.').map_or(0, |(_, digits)| digits.len());
    let unit = 10_f64.powi(-i32::try_from(digits).unwrap_or(0));
    own.is_some_and(|own| own > first.min(last) - unit && own < first.max(last) + unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_to_the_printed_digit() {
        for (own, before, after, expected) in [
            (Some(81_559.6), "81559", "81559", true),
            (Some(81_559.6), "81560", "81560", true),
            (Some(81_559.6), "81561", "81561", false),
            (Some(70.123), "70.12", "70.12", true),
            (Some(70.14), "70.12", "70.12", false),
            (Some(75.0), "70.12", "80.50", true),
            (Some(81.0), "70.12", "80.50", false),
            (None, "[N/A]", "[N/A]", true),
            (None, "38", "38", false),
            (Some(38.0), "[N/A]", "[N/A]", false),
            (Some(38.0), "38", "[N/A]", false),
            (Some(f64::NAN), "38", "38", false),
        ] {
            assert_eq!(agrees(own, before, after), expected, "{own:?} {before} {after}");
        }
    }

    #[test]
    fn every_field_is_a_line() {
        let line = json!({"device": "H100", "sample": {"memory_used_bytes": 7 * (1 << 20), "power_watts": {"missing": "failed"}}});
        let printed: Vec<String> =
            FIELDS.iter().map(|(name, ..)| if *name == "memory.used" { "7" } else { "[N/A]" }.to_owned()).collect();
        let lines = compare(&line, &printed, &printed);
        assert_eq!(lines.len(), FIELDS.len());
        assert!(lines.iter().all(|line| line["agrees"] == true), "{lines:?}");
        let none = vec!["0".to_owned(); FIELDS.len()];
        assert!(compare(&line, &none, &none).iter().all(|line| line["agrees"] == false));
    }
}
