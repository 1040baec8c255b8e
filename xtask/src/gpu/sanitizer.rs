//! NVIDIA's compute-sanitizer over the kernels' tests: what is read and written outside of memory, and races in shared
//! memory. Each tool sees a group of tests at a time, so that one which takes too long costs no other.

use super::{book::Found, kernels, options::Size};
use crate::{
    failure::Result,
    shell::{Ended, Shell, note},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    time::Duration,
};

/// racecheck takes a hundred times the time of a kernel.
const TIME_MAX: Duration = Duration::from_secs(240);
/// The exit status where the tool found something: none that a test's program has.
const FOUND: &str = "86";
/// The library's kernels are its maker's to check: they would take the time, and what a tool says of them is no fault of
/// ours.
const LIBRARY: (&str, &str) = ("HEADROOM_CUBLASLT", "off");
const TOOLS: [&str; 2] = ["memcheck", "racecheck"];

/// A line a tool and group of tests; where the tool is not to be had, one that says why.
pub fn measure(shell: &Shell, ops: &Path, size: &Size, seed: u64, found: &mut Found<'_>) -> Result<()> {
    let Some(sanitizer) = find(shell) else {
        let reason = "compute-sanitizer is neither on PATH nor in CUDA_HOME/bin nor in /usr/local/cuda/bin";
        note(reason);
        return found.extend(TOOLS.map(|tool| absent(tool, reason)));
    };
    let names = kernels::names(shell, ops, size)?;
    let groups: BTreeSet<&str> =
        names.iter().filter_map(|name| name.split_once("::")).map(|(group, _)| group).collect();
    for tool in TOOLS {
        for group in &groups {
            let command = shell.cmd(&sanitizer).args(["--tool", tool, "--error-exitcode", FOUND]);
            let command = command.args([ops.display().to_string()]).env(LIBRARY.0, LIBRARY.1);
            let command = kernels::demanding(command, seed);
            // Colons, as a group's name may be in another's.
            let command = command.args([&format!("{group}::"), "--test-threads=1"]);
            let ended = command.limited(TIME_MAX, |_| {})?;
            if let Some(reason) = refused(&ended) {
                note(&format!("{tool}: {reason}"));
                found.add(absent(tool, &reason))?;
                break;
            }
            let line = line(tool, group, &ended);
            if line["clean"] == false {
                note(&format!("{tool} {group}: {}", line["why"].as_str().unwrap_or_default()));
            }
            found.add(line)?;
        }
    }
    Ok(())
}

fn find(shell: &Shell) -> Option<PathBuf> {
    let home = env::var_os("CUDA_HOME").or_else(|| env::var_os("CUDA_PATH")).map(PathBuf::from);
    let folders = home.into_iter().chain([PathBuf::from("/usr/local/cuda")]).map(|home| home.join("bin"));
    shell
        .which("compute-sanitizer")
        .or_else(|| folders.map(|folder| folder.join("compute-sanitizer")).find(|file| file.is_file()))
}

fn absent(tool: &str, reason: &str) -> Value {
    json!({ "kind": "sanitizer", "tool": tool, "available": false, "reason": reason })
}

fn line(tool: &str, group: &str, ended: &Ended) -> Value {
    let errors = errors(&ended.out).or_else(|| errors(&ended.err));
    let clean = ended.success && errors == Some(0);
    let why = ended.why().or_else(|| errors.is_none().then(|| "it says nothing at its end".to_owned()));
    json!({
        "kind": "sanitizer", "tool": tool, "available": true, "tests": group, "errors": errors, "clean": clean,
        "seconds": ended.seconds, "why": if clean { None } else { why },
    })
}

/// What the tool says where it cannot work with this card at all, as in some virtual machines.
fn refused(ended: &Ended) -> Option<String> {
    let said = [&ended.out, &ended.err];
    let lines = said
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.starts_with("=========") || line.starts_with("Error"));
    lines
        .into_iter()
        .find(|line| line.to_lowercase().contains("not supported"))
        .map(|line| line.trim_matches(['=', ' ']).to_owned())
}

/// The sum of what processes ended with: `ERROR SUMMARY: 2 errors`, `RACECHECK SUMMARY: 1 hazard displayed (…)`.
fn errors(text: &str) -> Option<u64> {
    let summaries = text.lines().filter(|line| line.starts_with("========="));
    let numbers =
        summaries.filter_map(|line| line.split_once("SUMMARY:")?.1.split_whitespace().next()?.parse::<u64>().ok());
    numbers.fold(None, |sum, n| Some(sum.unwrap_or(0) + n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(out: &str, success: bool) -> Ended {
        Ended { out: out.to_owned(), success, ..Ended::default() }
    }

    #[test]
    fn summaries_are_read() {
        let clean = ended("========= COMPUTE-SANITIZER\ntest result: ok.\n========= ERROR SUMMARY: 0 errors\n", true);
        assert_eq!(line("memcheck", "adamw", &clean)["clean"], true);
        let hazard = ended("========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n", false);
        let line_of = line("racecheck", "matmul", &hazard);
        assert_eq!((line_of["clean"].clone(), line_of["errors"].clone()), (false.into(), 3.into()));
        assert_eq!(line("memcheck", "adamw", &ended("test result: ok.\n", true))["clean"], false, "no summary");
        let failed = ended("test result: FAILED.\n========= ERROR SUMMARY: 0 errors\n", false);
        assert_eq!(line("memcheck", "adamw", &failed)["clean"], false, "a test that fails by itself");
    }

    #[test]
    fn a_card_that_the_tool_refuses_is_told() {
        let text =
            "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n========= ERROR SUMMARY: 1 error\n";
        assert_eq!(refused(&ended(text, false)).as_deref(), Some("Error: Device not supported"));
        assert_eq!(refused(&ended("a test says: not supported\n========= ERROR SUMMARY: 0 errors\n", true)), None);
    }
}
