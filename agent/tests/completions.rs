//! Completions and manual pages, checked by the shells and by groff.

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

/// Runs a program on a script. Returns `None` if the program is not installed.
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

/// Returns bash's completions of the last word.
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
    let output = fed("bash", &["--norc"], &script).expect("bash is installed");
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
        (&["headroom", "plan", "--gpu", "RTX"], "rtx-4070"),
        (&["headroom", "plan", "--gpu", "RTX 40"], "rtx-4070"),
        (&["headroom", "plan", "--compile", "F"], "False"),
        (&["headroom", "plan", "--optimizer", "adamw-8"], "adamw-8bit"),
        (&["headroom", "runs", "list", "--status", "fa"], "failed"),
        (&["headroom", "completions", "f"], "fish"),
        (&["headroom", "help", "diag"], "diagnose"),
        (&["headroom", "help", "runs", "ex"], "export"),
        (&["headroom", "serve", "--color", "al"], "always"),
        (&["headroom", "serve", "--log-format", ""], "json"),
        (&["headroom", "serve", "--log", "de"], "debug"),
        (&["headroom", "train", "--device", "=", ""], "auto"),
        (&["headroom", "train", "config.py", "--device", ""], "cuda"),
        (&["headroom", "plan", "config.py", "--"], "--batch_size"),
        (&["headroom", "watch", "--", "unam"], "uname"),
        (&["headroom", "watch", "--name", "a", "--", "unam"], "uname"),
    ] {
        let offers = bash_offers(words);
        assert!(offers.iter().any(|offer| offer == offered), "{words:?}: {offers:?}");
    }
    // No words, so that bash completes files.
    for words in [
        &["headroom", "plan", ""][..],
        &["headroom", "plan", "config.py", ""],
        &["headroom", "train", "--seed", "7", ""],
        &["headroom", "train", ""],
        &["headroom", "diagnose", ""],
        &["headroom", "data", "prepare", ""],
        &["headroom", "runs", "backup", ""],
        &["headroom", "watch", "--", "sh", ""],
        &["headroom", "watch", "--name", "a", "--", "python", "train.py", "--batch"],
    ] {
        assert_eq!(bash_offers(words), [""], "{words:?}");
    }
    assert!(!bash_offers(&["headroom", "watch", "--ru"]).iter().any(|offer| offer == "--run-id"));
}

/// Records a run, and returns the data folder and the run's ID.
#[cfg(unix)]
fn history(name: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("text");
    headroom(&["watch", "--data-dir", data, "--name", name, "--", "true"]);
    let runs: serde_json::Value =
        serde_json::from_str(&headroom(&["runs", "--json", "--data-dir", data])).expect("JSON");
    let id = runs["runs"][0]["id"].as_str().expect("an ID").to_owned();
    (folder, id)
}

/// Shell function that prints the arguments of a completed command instead of running it.
#[cfg(unix)]
const ECHO: &str = r#"headroom() { if [ "$1" = run-words ]; then command headroom "$@"; else echo "RAN<$*>"; fi; }"#;

/// Types a line and the tab key in an interactive bash, and returns the arguments of the completed command.
#[cfg(target_os = "linux")]
fn completed_in_bash(line: &str, data: &str) -> String {
    let place = std::path::Path::new(env!("CARGO_BIN_EXE_headroom")).parent().expect("a folder").display();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("completions"), headroom(&["completions", "bash"])).expect("a file");
    // A file that bash must not complete.
    std::fs::write(folder.path().join("cu-file"), "").expect("a file");
    let start = format!("cd {}; PATH={place}:$PATH; . ./completions; {ECHO}", folder.path().display());
    // Util-linux's `script` provides the terminal.
    let mut shell = Command::new("script");
    shell.args(["-qfec", "bash --norc --noprofile -i", "/dev/null"]).env("TERM", "dumb").env("HEADROOM_DATA_DIR", data);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("script");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(format!("{start}\n{line}\t\necho END''\nexit\n").as_bytes()).expect("it reads");
    let mut said = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::Read::read_to_string(&mut stdout, &mut said).expect("text");
    drop(stdin);
    child.wait().expect("it ends");
    let ran = said.lines().find_map(|line| line.trim_end().strip_prefix("RAN<")?.strip_suffix('>').map(str::to_owned));
    ran.unwrap_or_else(|| panic!("{line}: {said:?}"))
}

#[cfg(target_os = "linux")]
#[test]
fn interactive_bash_completes_values_after_an_equals_sign_and_runs() {
    let (folder, id) = history("my-run");
    let data = folder.path().to_str().expect("text");
    for (line, completed) in [
        ("headroom train --attention=cu", "train --attention=cudnn".to_owned()),
        ("headroom plan --optimizer=adamw-8", "plan --optimizer=adamw-8bit".to_owned()),
        ("headroom --color=al", "--color=always".to_owned()),
        ("headroom plan --compile=F", "plan --compile=False".to_owned()),
        ("headroom runs show my", "runs show my-run".to_owned()),
        ("headroom runs export -q my", "runs export -q my-run".to_owned()),
        (&format!("headroom runs delete {}", &id[..4]), format!("runs delete {id}")),
        ("headroom plan cu", "plan cu-file".to_owned()),
        ("headroom data prepare cu", "data prepare cu-file".to_owned()),
        ("headroom watch -- unam", "watch -- uname".to_owned()),
        ("headroom watch -- sh cu", "watch -- sh cu-file".to_owned()),
        ("headroom serve --log-format=js", "serve --log-format=json".to_owned()),
        ("headroom train --device=au", "train --device=auto".to_owned()),
    ] {
        assert_eq!(completed_in_bash(line, data), completed);
    }
}

#[cfg(unix)]
#[test]
fn bash_completes_values_in_both_forms_of_the_words() {
    for words in [
        // Bash splits at `=` unless COMP_WORDBREAKS lacks it.
        &["headroom", "train", "--attention", "=", "cu"][..],
        &["headroom", "train", "--attention", "cu"],
    ] {
        assert_eq!(bash_offers(words), ["cudnn"], "{words:?}");
    }
    assert_eq!(bash_offers(&["headroom", "train", "--attention=cu"]), ["--attention=cudnn"]);
    assert!(bash_offers(&["headroom", "train", "--attention", "="]).contains(&"cudnn".to_owned()));
}

#[cfg(unix)]
#[test]
fn fish_and_zsh_complete_runs() {
    let (folder, id) = history("my-run");
    let data = folder.path().to_str().expect("text");
    let place = std::path::Path::new(env!("CARGO_BIN_EXE_headroom")).parent().expect("a folder").display().to_string();
    for command in ["show", "export", "delete"] {
        let script = format!(
            "set -x PATH {place} $PATH\nset -x HEADROOM_DATA_DIR {data}\n{}\ncomplete -C 'headroom runs {command} '\n",
            headroom(&["completions", "fish"])
        );
        if let Some(output) = fed("fish", &["--no-config"], &script) {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains(&format!("{id}\tmy-run, done")) && said.contains("my-run\t"), "{command}: {said}");
        }
        // Completion in zsh needs a terminal, which its module zpty provides.
        std::fs::write(folder.path().join("_headroom"), headroom(&["completions", "zsh"])).expect("a file");
        std::fs::write(folder.path().join("echo"), ECHO).expect("a file");
        let script = format!(
            "zmodload zsh/zpty || exit 9\nexport HEADROOM_DATA_DIR={data} PATH={place}:$PATH\nzpty z zsh -f -i\n\
             zpty -w z 'fpath=({data} $fpath); autoload -U compinit; compinit -u -d {data}/dump; . {data}/echo'\n\
             zpty -w -n z $'headroom runs {command} my\\t\\n'\nzpty -r -m z text '*RAN<*>*'\nprint -r -- $text\nzpty -d z\n"
        );
        if let Some(output) = fed("zsh", &["-f"], &script) {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let ran = format!("RAN<runs {command} my-run");
            assert!(said.contains(&ran), "{said:?} {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn runs_are_offered_silently_and_only_if_there_are_some() {
    let folder = tempfile::tempdir().expect("a folder");
    for place in [folder.path().join("none"), "/proc/none".into(), folder.path().to_owned()] {
        assert_eq!(headroom(&["run-words", "--data-dir", place.to_str().expect("text")]), "");
    }
    assert!(!folder.path().join("history.sqlite").exists(), "nothing is created");
    assert!(!headroom(&["--help"]).contains("run-words"));
    let script = headroom(&["completions", "powershell"]);
    assert_eq!(script.matches("headroom run-words").count(), 3);
}

#[test]
fn unknown_shell_has_a_suggestion() {
    let binary = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    for (given, meant) in [("bsh", "bash"), ("Fish", "fish"), ("pwershell", "powershell")] {
        let output = Command::new(&binary).args(["completions", given]).output().expect("headroom runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2));
        assert!(said.contains(&format!("hint: did you mean {meant}?")), "{said}");
    }
}

/// Returns fish's completions of a command line, or `None` if fish is not installed.
#[cfg(unix)]
fn fish_offers(line: &str) -> Option<Vec<String>> {
    let script = format!("{}\ncomplete -C '{line}'\n", headroom(&["completions", "fish"]));
    let output = fed("fish", &["--no-config"], &script)?;
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8_lossy(&output.stdout);
    Some(stdout.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect())
}

#[cfg(unix)]
#[test]
fn fish_completes_commands_options_and_gpus() {
    for (line, offered) in [
        ("headroom pl", "plan"),
        ("headroom runs ex", "export"),
        ("headroom plan --gpu rtx-407", "rtx-4070"),
        ("headroom train --see", "--seed"),
        ("headroom plan --optimizer adamw-8", "adamw-8bit"),
        ("headroom serve --log-format ", "json"),
        ("headroom watch -- unam", "uname"),
        ("headroom watch -- sh /dev/nul", "/dev/null"),
        ("headroom plan /dev/nul", "/dev/null"),
        ("headroom data prepare /dev/nul", "/dev/null"),
    ] {
        let Some(offers) = fish_offers(line) else { return };
        assert!(offers.iter().any(|offer| offer.trim_end_matches('=') == offered), "{line}: {offers:?}");
    }
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

/// Returns the words that a help lists below a heading: commands or options.
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

/// groff warns about requests that it does not support. Skipped if groff is not installed.
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
