//! NVIDIA's compute-sanitizer over the kernels' tests: accesses outside of memory, and races in shared memory. Each
//! tool runs a group of tests at a time, so that a timeout affects only one group.

use super::{kernels, options::Size, results::LineWriter};
use crate::{
    failure::Result,
    shell::{CommandResult, Shell, note},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    time::Duration,
};

/// Time limit; racecheck takes a hundred times as long as the kernels.
const TIME_MAX: Duration = Duration::from_secs(240);
/// The tool's exit status for findings, distinct from those of the tests' program.
const FOUND: &str = "86";
/// Disables cuBLASLt: checking its kernels would take the time, and findings in them are not Headroom's errors.
const LIBRARY: (&str, &str) = ("HEADROOM_CUBLASLT", "off");
/// Reports no error statuses of driver calls. `cuFuncGetParamInfo` returns one beyond the last parameter, which is how
/// Headroom counts a kernel's parameters. Errors in kernels are always reported.
const API_ERRORS: [&str; 2] = ["--report-api-errors", "no"];
/// Lines kept of an error.
const LINES_REPORTED: usize = 4;
/// Printed for a group of tests that does not use the GPU.
const UNUSED: &str = "Target application terminated before first instrumented API call";
const TOOLS: [&str; 2] = ["memcheck", "racecheck"];

/// Adds a line per tool and group of tests, or a line with the reason if a tool is missing.
pub fn measure(shell: &Shell, ops: &Path, size: &Size, seed: u64, found: &mut LineWriter<'_>) -> Result<()> {
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
            let command = command.args(API_ERRORS);
            let command = command.args([ops.display().to_string()]).env(LIBRARY.0, LIBRARY.1);
            let command = kernels::demanding(command, seed);
            // With colons, because a group's name may be part of another's.
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

fn line(tool: &str, group: &str, ended: &CommandResult) -> Value {
    let unused = [&ended.out, &ended.err].iter().any(|text| text.contains(UNUSED));
    let errors = errors(&ended.out).or_else(|| errors(&ended.err)).or(unused.then_some(0));
    let clean = (ended.success || unused) && errors == Some(0);
    let first = first_error(&ended.out).or_else(|| first_error(&ended.err));
    let why =
        first.or_else(|| ended.why()).or_else(|| errors.is_none().then(|| "it says nothing at its end".to_owned()));
    json!({
        "kind": "sanitizer", "tool": tool, "available": true, "tests": group, "errors": errors, "clean": clean,
        "seconds": ended.seconds, "why": if clean { None } else { why },
    })
}

/// Returns the tool's message if it does not support this GPU, as in some virtual machines.
fn refused(ended: &CommandResult) -> Option<String> {
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

/// Returns the tool's first error with its place: the lines between its header and the host's frames.
fn first_error(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("========= ")).map(str::trim);
    let found = lines.skip_while(|line| line.starts_with("COMPUTE-SANITIZER") || line.is_empty());
    let shown: Vec<&str> =
        found.take_while(|line| !line.starts_with("Host") && !line.contains("SUMMARY:")).take(LINES_REPORTED).collect();
    (!shown.is_empty() && !shown[0].contains(UNUSED)).then(|| shown.join(" | "))
}

/// Returns the sum over all processes of `ERROR SUMMARY: 2 errors` or `RACECHECK SUMMARY: 1 hazard displayed (…)`.
fn errors(text: &str) -> Option<u64> {
    let summaries = text.lines().filter(|line| line.starts_with("========="));
    let numbers =
        summaries.filter_map(|line| line.split_once("SUMMARY:")?.1.split_whitespace().next()?.parse::<u64>().ok());
    numbers.fold(None, |sum, n| Some(sum.unwrap_or(0) + n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(out: &str, success: bool) -> CommandResult {
        CommandResult { out: out.to_owned(), success, ..CommandResult::default() }
    }

    #[test]
    fn summaries_are_read() {
        let clean = ended("========= COMPUTE-SANITIZER\ntest result: ok.\n========= ERROR SUMMARY: 0 errors\n", true);
        assert_eq!(line("memcheck", "adamw", &clean)["clean"], true);
        let hazard = ended("========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n", false);
        let line_of = line("racecheck", "matmul", &hazard);
        assert_eq!((line_of["clean"].clone(), line_of["errors"].clone()), (false.into(), 3.into()));
        assert_eq!(line("memcheck", "adamw", &ended("test result: ok.\n", true))["clean"], false, "no summary");
        let out_of_bounds = ended(
            "========= COMPUTE-SANITIZER\nrunning 1 test\n========= Invalid __global__ read of size 4 bytes\n\
             =========     at adamw_update+0x90\n=========     Saved host backtrace\n=========         Host Frame: [0x1]\n\
             ========= ERROR SUMMARY: 1 error\n",
            false,
        );
        let line_of = line("memcheck", "adamw", &out_of_bounds);
        assert_eq!(
            line_of["why"],
            "Invalid __global__ read of size 4 bytes | at adamw_update+0x90 | Saved host backtrace"
        );
        let without_gpu = ended(
            "========= COMPUTE-SANITIZER\ntest result: ok.\n\
             ========= Error: Target application terminated before first instrumented API call\n",
            false,
        );
        assert_eq!(line("memcheck", "compare", &without_gpu)["clean"], true, "it computes nothing on the GPU");
        let failed = ended("test result: FAILED.\n========= ERROR SUMMARY: 0 errors\n", false);
        assert_eq!(line("memcheck", "adamw", &failed)["clean"], false, "a test that fails by itself");
    }

    #[test]
    fn a_gpu_that_the_tool_refuses_is_reported() {
        let text =
            "========= COMPUTE-SANITIZER\n========= Error: Device not supported\n========= ERROR SUMMARY: 1 error\n";
        assert_eq!(refused(&ended(text, false)).as_deref(), Some("Error: Device not supported"));
        assert_eq!(refused(&ended("a test says: not supported\n========= ERROR SUMMARY: 0 errors\n", true)), None);
    }
}
