//! `cargo xtask gpu`: what only a real card can show, as lines of JSON in `bench/results`.
//!
//! Every reading present or missing with its reason, agreement with `nvidia-smi` to the digit it prints, the cost of each
//! reading and the agent's share of a core while something computes on the card. Runs with a program that was built
//! elsewhere too, on a machine without Rust.

mod agreement;
mod readings;
mod when;

use crate::{
    args::Args,
    failure::{Doing, Failure, Result},
    page::Build,
    run,
    shell::{Shell, note, step},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
};

/// A load where none is named and PyTorch is there: products of large matrices until it is stopped.
const TORCH_LOAD: &str = "import torch\na = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\nwhile True:\n    \
                          for _ in range(50):\n        b = a @ a\n    torch.cuda.synchronize()";
const TORCH_PROBE: &str = "import torch, sys; sys.exit(not torch.cuda.is_available())";
/// How often the two are compared: values that change between two calls agree seldom in one try.
const COMPARISONS: usize = 5;

/// Looks at the cards of this machine and writes what was seen.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let built = args.value("--headroom")?.map(PathBuf::from);
    let load = args.value("--load")?;
    let folder = args.value("--out")?.map_or_else(|| shell.root.join("bench/results"), PathBuf::from);
    args.finish()?;
    let headroom = match built {
        Some(path) => path,
        None => run::build_headroom(shell, Build::Release)?,
    };
    let doctor = doctor(shell, &headroom)?;
    let mut lines = vec![readings::machine(&doctor, &when::today())];
    lines.extend(readings::lines(&doctor));
    lines.extend(step("compare with nvidia-smi", "its printed digits are ours", || {
        agreement::lines(shell, COMPARISONS, || self::doctor(shell, &headroom))
    })?);
    for loaded in [false, true] {
        let mut running = if loaded { start_load(shell, load.as_deref())? } else { None };
        if loaded && running.is_none() {
            lines.push(json!({ "kind": "telemetry", "loaded": true, "available": false, "reason": NO_LOAD }));
            note(NO_LOAD);
            continue;
        }
        let why = if loaded { "with a load on the card" } else { "with an idle card" };
        let measured = step("measure what telemetry costs", why, || telemetry(shell, &headroom, loaded));
        if let Some(running) = &mut running {
            // It ends by no other way; one that ended by itself says so below.
            let _ = running.kill();
            let _ = running.wait();
        }
        lines.extend(measured?);
    }
    write(&folder, &doctor, &lines)
}

const NO_LOAD: &str = "no load: --load names a command that computes on the card, and PyTorch with CUDA is not there";

/// What the program says of the cards now.
fn doctor(shell: &Shell, headroom: &Path) -> Result<Value> {
    let text = shell
        .cmd(headroom)
        .args(["doctor", "--json"])
        .read()
        .ok_or_else(|| Failure::new("no card answers").hint(format!("`{} doctor` says why", headroom.display())))?;
    serde_json::from_str(&text).doing(|| "read what `headroom doctor --json` prints".into())
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
        None if shell.cmd("python3").args(["-c", TORCH_PROBE]).read().is_some() => {
            shell.cmd("python3").args(["-c", TORCH_LOAD])
        }
        None => return Ok(None),
    };
    command.start().map(Some)
}

fn write(folder: &Path, doctor: &Value, lines: &[Value]) -> Result<()> {
    let path = folder.join(readings::file_name(doctor, &when::today()));
    fs::create_dir_all(folder).doing(|| format!("make {}", folder.display()))?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    let n = |kind: &str, key: &str, value: bool| {
        lines.iter().filter(|line| line["kind"] == kind && line[key] == value).count()
    };
    note(&format!(
        "{} readings present, {} missing with a reason; nvidia-smi agrees on {}, and not on {}",
        n("reading", "present", true),
        n("reading", "present", false),
        n("agreement", "agrees", true),
        n("agreement", "agrees", false),
    ));
    println!("{}", path.display());
    if n("agreement", "agrees", false) > 0 {
        return Err(Failure::new("nvidia-smi prints other digits").hint("the lines with \"agrees\":false have both"));
    }
    Ok(())
}
