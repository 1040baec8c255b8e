//! Completions and manual: what the shells and man themselves make of them.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn headroom(args: &[&str]) -> String {
    let binary = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let output = Command::new(binary).args(args).stdin(Stdio::null()).output().expect("headroom runs");
    assert_eq!(output.status.code(), Some(0), "{args:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a program on a script; none where this machine does not have it.
fn fed(program: &str, args: &[&str], script: &str) -> Option<Output> {
    let spawned =
        Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.ok()?;
    let mut stdin = child.stdin.take().expect("piped");
    let script = script.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let _ = writer.join();
    Some(output)
}

/// What bash offers for the last of the words.
fn bash_offers(words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let previous = last.checked_sub(1).map_or("", |at| words[at]);
    let script = format!(
        "{}\ncomplete -p headroom >/dev/null || exit 9\nCOMP_WORDS=({})\nCOMP_CWORD={last}\n_headroom headroom '{}' \
         '{previous}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        headroom(&["completions", "bash"]),
        quoted.join(" "),
        words[last],
    );
    let output = fed("bash", &["--norc"], &script).expect("every system of ours has bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[cfg(unix)]
#[test]
fn bash_completes_commands_options_gpus_and_settings() {
    for (words, offered) in [
        (&["headroom", "pl"][..], "plan"),
        (&["headroom", "runs", "ex"], "export"),
        (&["headroom", "token", "p"], "pair"),
        (&["headroom", "plan", "--act"], "--activation-checkpointing"),
        (&["headroom", "plan", "--batch"], "--batch_size"),
        (&["headroom", "train", "--see"], "--seed"),
        (&["headroom", "plan", "--gpu", "rtx-407"], "rtx-4070"),
        (&["headroom", "plan", "--compile", "F"], "False"),
        (&["headroom", "plan", "--optimizer", "adamw-8"], "adamw-8bit"),
        (&["headroom", "runs", "list", "--status", "fa"], "failed"),
        (&["headroom", "completions", "f"], "fish"),
        (&["headroom", "help", "diag"], "diagnose"),
        (&["headroom", "serve", "--color", "al"], "always"),
    ] {
        let offers = bash_offers(words);
        assert!(offers.iter().any(|offer| offer == offered), "{words:?}: {offers:?}");
    }
    assert!(!bash_offers(&["headroom", "watch", "--ru"]).iter().any(|offer| offer == "--run-id"));
}

#[cfg(unix)]
#[test]
fn the_shells_that_are_here_can_read_their_completions() {
    let mut n_read = 0;
    for (shell, args) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        let Some(output) = fed(shell, args, &headroom(&["completions", shell])) else { continue };
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{shell}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        n_read += 1;
    }
    assert!(n_read >= 1, "no shell is here");
}

/// The words that follow "Commands:" or the options of a help.
fn listed(help: &str, heading: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.is_empty());
    match heading {
        "Commands:" => lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect(),
        _ => lines
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")))
            .map(str::to_owned)
            .collect(),
    }
}

#[test]
fn completions_and_manual_have_what_the_help_has() {
    let scripts = ["bash", "zsh", "fish", "powershell"].map(|shell| (shell, headroom(&["completions", shell])));
    let mut n_options = 0;
    let top = listed(&headroom(&["--help"]), "Commands:");
    let mut pages: Vec<Vec<String>> = vec![vec![]];
    for command in top {
        let below = listed(&headroom(&["help", &command]), "Commands:");
        pages.extend(below.into_iter().map(|word| vec![command.clone(), word]));
        pages.push(vec![command]);
    }
    for words in &pages {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = headroom(&[&["help"], &words[..]].concat());
        let manual = headroom(&[&["man"], &words[..]].concat()).replace("\\-", "-");
        for command in listed(&help, "Commands:") {
            assert!(manual.contains(&format!("-{command}")), "{words:?}: {command}");
            assert!(scripts.iter().all(|(_, script)| script.contains(&command)), "{command}");
        }
        for option in listed(&help, "Options:") {
            n_options += 1;
            assert!(manual.contains(&option), "{words:?}: {option}\n{manual}");
            for (shell, script) in &scripts {
                // fish writes options without their dashes.
                let fish = format!("-l {}", option.trim_start_matches('-'));
                assert!(script.contains(&option) || script.contains(&fish), "{shell}: {option}");
            }
        }
    }
    assert!(n_options > 100, "{n_options}");
}

/// groff warns of what it does not understand, where this machine has it.
#[cfg(unix)]
#[test]
fn man_can_set_every_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    let written = headroom(&["man", "--out", out.to_str().expect("text")]);
    let pages: Vec<&str> = written.lines().collect();
    assert!(pages.len() >= 25 && pages[0].ends_with("/headroom.1"), "{pages:?}");
    for page in pages {
        let source = std::fs::read_to_string(page).expect("a page");
        let Some(output) = fed("groff", &["-man", "-Tutf8", "-ww", "-Kutf8"], &source) else { return };
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{page}: {warnings}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("headroom"), "{page}");
    }
}
