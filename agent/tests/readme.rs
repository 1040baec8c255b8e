//! The output of README's example is what the program prints.

use std::{fs, path::Path, process::Command};

/// Returns the command's words and the output of README's first block with a prompt.
fn example(readme: &str) -> (Vec<String>, Vec<String>) {
    let block = readme.split("```text\n$ ").nth(1).and_then(|rest| rest.split("\n```").next()).expect("an example");
    let (command, lines) = block.split_once('\n').expect("output below the command");
    let parts = command.split('"').enumerate();
    let words = parts.flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    (words.collect(), lines.lines().map(str::to_owned).collect())
}

/// Returns the first line that the output lacks, in the example's order. `…` matches any lines.
fn missing_line<'a>(shown: &'a [String], output: &str) -> Option<&'a str> {
    let mut printed = output.lines();
    let mut skips = false;
    for line in shown {
        if line == "…" {
            skips = true;
        } else if if skips { printed.any(|found| found == line) } else { printed.next() == Some(line) } {
            skips = false;
        } else {
            return Some(line);
        }
    }
    None
}

#[test]
fn readme_shows_what_the_program_prints() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let (words, shown) = example(&fs::read_to_string(readme).expect("README"));
    assert_eq!(words[0], "headroom");
    assert!(shown.len() > 5, "{shown:?}");
    let binary = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(binary);
    command.args(&words[1..]).current_dir(env!("CARGO_TARGET_TMPDIR")).env("LC_ALL", "C.UTF-8").env_remove("COLUMNS");
    let output = String::from_utf8(command.output().expect("headroom runs").stdout).expect("text");
    assert_eq!(missing_line(&shown, &output), None, "in\n{output}");
}

#[test]
fn must_find_a_line_that_is_not_printed() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(missing_line(&lines("a\n…\nc\nd"), "a\nb\nb\nc\nd\ne"), None);
    assert_eq!(missing_line(&lines("a\nc"), "a\nb\nc"), Some("c"), "b is not elided");
    assert_eq!(missing_line(&lines("…\nc\n…\nb"), "a\nb\nc"), Some("b"), "out of order");
    assert_eq!(example("```text\n$ x \"a b\" c\nout\n```\n"), (lines("x\na b\nc"), lines("out")));
}
