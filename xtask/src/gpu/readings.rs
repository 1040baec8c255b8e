//! The readings that a GPU supports: the values of `headroom doctor --json`, one by one.

use serde_json::{Value, json};

/// Returns the first line: the machine.
pub fn machine(doctor: &Value, date: &str) -> Value {
    let names = doctor["gpus"].as_array().into_iter().flatten().map(|gpu| gpu["name"].clone());
    json!({ "kind": "machine", "date": date, "driver": doctor["driver"], "gpus": names.collect::<Vec<_>>() })
}

/// Returns a line per reading of every GPU; a missing one has its reason.
pub fn lines(doctor: &Value) -> Vec<Value> {
    let mut lines = Vec::new();
    for (place, entries) in
        [("gpu", &doctor["gpus"]), ("telemetry", &doctor["telemetry"]["gpus"]), ("slow", &doctor["slow"]["gpus"])]
    {
        for entry in entries.as_array().into_iter().flatten() {
            let gpu = entry.get("gpu").or_else(|| entry.get("index")).cloned().unwrap_or_default();
            let readings = entry.as_object().into_iter().flatten();
            for (name, value) in readings.filter(|(name, _)| !matches!(name.as_str(), "gpu" | "index")) {
                let missing = value.get("missing");
                lines.push(json!({
                    "kind": "reading", "gpu": gpu, "of": place, "name": name, "present": missing.is_none(),
                    "value": if missing.is_none() { value.clone() } else { Value::Null }, "missing": missing,
                }));
            }
        }
    }
    lines
}

/// Returns the name of the results' file, such as `nvidia-h200-2026-11-22.jsonl`.
pub fn file_name(doctor: &Value, date: &str) -> String {
    let name = doctor["gpus"][0]["name"].as_str().unwrap_or("no GPU").to_lowercase();
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    format!("{}-{date}.jsonl", words.collect::<Vec<_>>().join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_reading_is_a_line_with_its_reason() {
        let doctor = json!({
            "gpus": [{ "index": 0, "name": "NVIDIA H200", "power_limit_watts": { "missing": "not_supported" } }],
            "telemetry": { "gpus": [{ "gpu": 0, "power_watts": 71.5 }] },
            "slow": null,
        });
        let lines = lines(&doctor);
        assert_eq!(lines.len(), 3);
        let of = |name: &str| lines.iter().find(|line| line["name"] == name).expect("a line").clone();
        assert_eq!(of("power_watts")["value"], 71.5);
        assert_eq!(
            (of("power_limit_watts")["present"].clone(), of("power_limit_watts")["missing"].clone()),
            (json!(false), json!("not_supported"))
        );
        assert_eq!(file_name(&doctor, "2026-11-22"), "nvidia-h200-2026-11-22.jsonl");
    }
}
