//! `cargo xtask gpu`: what only a card can show, as lines of JSON in `bench/results`.
//!
//! First the readings, each held against what nvidia-smi prints; then what reading costs, while a load runs where one is
//! given.

mod agreement;

use crate::{
    args::Args,
    failure::{Doing, Failure, Result},
    page::Build,
    run,
    shell::{Shell, note, step},
};
use serde_json::{Value, json};
use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

/// Runs it all, writes the lines, and fails where a reading does not agree.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let load = args.value("--load")?;
    args.finish()?;
    let headroom = match env::var_os("HEADROOM_BIN") {
        Some(program) => PathBuf::from(program),
        None => run::build_headroom(shell, Build::Release)?,
    };
    let mut lines = Vec::new();
    let read = step("read the card", "each reading beside nvidia-smi's", || {
        let before = agreement::query(shell)?;
        let line = bench(shell, &headroom, &["--quick"])?;
        let after = agreement::query(shell)?;
        lines.extend(agreement::compare(&line, &before, &after));
        Ok(line)
    })?;
    let card = read["device"].as_str().unwrap_or("card").to_owned();
    lines.push(with_load(read, None));
    let why = load.as_deref().unwrap_or("no load; --load COMMAND runs one meanwhile");
    step("measure what reading costs", why, || {
        let _load = load.as_deref().map(Load::start).transpose()?;
        lines.push(with_load(bench(shell, &headroom, &[])?, load.as_deref()));
        Ok(())
    })?;
    let file = write(shell, &card, &lines)?;
    note(&format!("{} lines in {}", lines.len(), file.display()));
    let wrong: Vec<_> = lines.iter().filter(|line| line["agrees"] == false).map(Value::to_string).collect();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::new(format!("nvidia-smi differs:\n{}", wrong.join("\n")))) }
}

/// The line of telemetry; a machine without a card has none.
fn bench(shell: &Shell, headroom: &PathBuf, more: &[&str]) -> Result<Value> {
    let command = shell.cmd(headroom).args(["bench", "--only", "telemetry"]).args(more);
    let text = command.read().ok_or_else(|| Failure::new("headroom bench failed"))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.into_iter().find(|line| line["kind"] == "telemetry");
    let line = line.ok_or_else(|| Failure::new("headroom bench has no line of telemetry"))?;
    match line["reason"].as_str() {
        Some(reason) => Err(Failure::new(format!("no card to measure: {reason}"))),
        None => Ok(line),
    }
}

fn with_load(mut line: Value, load: Option<&str>) -> Value {
    line["load"] = json!(load);
    line
}

/// A command that keeps the card busy, until this is dropped.
struct Load(Child);

impl Load {
    fn start(command: &str) -> Result<Self> {
        // In the shell's place, so that to end it ends the command.
        let child = Command::new("sh").args(["-c", &format!("exec {command}")]).stdin(Stdio::null()).spawn();
        child.map(Self).doing(|| format!("start `{command}`"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(shell: &Shell, card: &str, lines: &[Value]) -> Result<PathBuf> {
    let folder = shell.root.join("bench").join("results");
    fs::create_dir_all(&folder).doing(|| format!("create {}", folder.display()))?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let file = folder.join(format!("{}-{}.jsonl", file_name(card), date(seconds)));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&file, text).doing(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// `NVIDIA H100 80GB HBM3` is `nvidia-h100-80gb-hbm3`.
fn file_name(card: &str) -> String {
    let words = card.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// The day of a time, as `2026-11-22`: days are counted from March on, so that the leap day is a year's last.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_card_and_day() {
        assert_eq!(file_name("NVIDIA H100 80GB HBM3"), "nvidia-h100-80gb-hbm3");
        let day = 86_400;
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (59 * day - 1, "1970-02-28"),
            (951_782_400, "2000-02-29"),
            (1_795_305_600, "2026-11-22"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }
}
