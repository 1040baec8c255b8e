//! nanoGPT on the same GPU: its model.py from the user's checkout, timed by Headroom's own script.

use super::{nvml, options::Options, programs::Scratch, results::absent};
use crate::{failure::Result, shell::Shell};
use serde_json::{Value, json};
use std::time::Duration;

/// Time limit; torch.compile takes a minute or two.
const TIME_MAX: Duration = Duration::from_secs(400);
const DRIVER: &str = include_str!("../../gpu/nanogpt.py");
/// The name in the lines, and whether it is compiled.
const WAYS: [(&str, bool); 2] = [("nanogpt_eager", false), ("nanogpt_compile", true)];

/// Adds a line per mode and batch size.
pub fn measure(
    shell: &Shell,
    options: &Options,
    scratch: &Scratch,
    add: &mut dyn FnMut(Value) -> Result<()>,
) -> Result<()> {
    let size = &options.size;
    let missing = match &options.nanogpt {
        None => Some("--nanogpt names no checkout of it".to_owned()),
        Some(folder) if !folder.join("model.py").is_file() => Some(format!("{} has no model.py", folder.display())),
        Some(_) if !nvml::has_torch(shell) => Some("python3 has no PyTorch with CUDA".to_owned()),
        Some(_) => None,
    };
    let driver = scratch.write("nanogpt.py", DRIVER.as_bytes())?.display().to_string();
    for batch_size in size.speeds {
        for (who, compiled) in WAYS {
            let (Some(folder), None) = (&options.nanogpt, &missing) else {
                add(absent(who, batch_size, missing.as_deref().unwrap_or_default()))?;
                continue;
            };
            let numbers = [batch_size, size.warm_up, size.timed].map(|number| number.to_string());
            let command = shell.cmd("python3").args([&driver, &folder.display().to_string()]);
            let command = command.args([if compiled { "compile" } else { "eager" }]);
            let command = command.args(size.model.arguments()).args(numbers);
            let ended = command.limited(TIME_MAX, |_| {})?;
            let printed = ended.out.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
            add(match printed.filter(|printed| printed["tokens_per_second"].is_f64()) {
                Some(printed) => json!({
                    "kind": "speed", "who": who, "available": true, "batch_size": batch_size,
                    "iteration_ms": printed["iteration_ms"], "tokens_per_second": printed["tokens_per_second"],
                    "allocated_bytes": printed["allocated_bytes"], "torch": printed["torch"],
                }),
                None => absent(who, batch_size, &ended.why().unwrap_or_else(|| "it prints no speed".to_owned())),
            })?;
        }
    }
    Ok(())
}
