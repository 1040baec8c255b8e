//! Runs started by a config: its keys apply, the end is classified correctly, and two agents do not train on one
//! device.

use std::{fs, process::Command};

use serde_json::{Value, json};

use super::{MODEL, OwnerData, eventually, has_ended, headroom, is_saved, iter, out, was_stopped};

#[test]
fn an_order_means_what_its_config_says() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let refused = |order: &Value, status: u16, says: &[&str]| {
        let answer = agent.json("POST", "/api/runs", order, status);
        let message = answer["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(says.iter().all(|word| message.contains(word)), "{order}: {message}");
    };
    refused(&json!({ "config": "bad.py" }), 422, &["bad.py:12:", "n_head"]);
    refused(&json!({ "config": "tuned.py" }), 422, &["tuned.py:11:", "weights \"gpt2-xl\" not found"]);
    refused(&json!({ "config": "broken.py" }), 422, &["broken.py:12:"]);
    fs::write(owner.train.path().join("config/loop.py"), format!("{MODEL}for i in range(3):\n    n_layer = i\n"))
        .expect("a config");
    refused(&json!({ "config": "loop.py" }), 422, &["loop.py:11:", "n_layer"]);
    refused(&json!({ "config": "short.py", "out_dir": "/tmp/x" }), 400, &["out_dir"]);
    refused(&json!({ "config": "short.py", "args": ["--batch_size=1"] }), 400, &["args"]);
    assert_eq!(agent.json("GET", "/api/runs", &Value::Null, 200), json!([]), "none of them is a run");

    // Lines that are not understood are in the response, and stay with the run.
    let order = json!({ "config": "odd.py", "device": "cpu" });
    let answer = agent.json("POST", "/api/runs", &order, 201);
    let notes = answer["config_notes"].as_array().expect("notes").clone();
    assert!(notes.len() == 2 && notes[0].as_str().is_some_and(|note| note.starts_with("odd.py:11:1: ")), "{answer}");
    let odd = answer["id"].as_str().expect("a number").to_owned();
    let done = agent.comes(&odd, "done", has_ended(0));
    assert_eq!(done["config_notes"], json!(notes));

    // A config's `init_from` makes the run start from weights.
    fs::write(
        owner.train.path().join("config/tuned.py"),
        format!("{MODEL}init_from = 'out-{odd}'\nmax_iters = 3\nlog_interval = 1\n"),
    )
    .expect("a config");
    let tuned = agent.order(&json!({ "config": "tuned.py", "device": "cpu" }));
    let done = agent.comes(&tuned, "done", has_ended(0));
    let words = done["command"].as_array().expect("words");
    assert!(words.iter().all(|word| !word.as_str().unwrap_or_default().contains("init_from")), "{done}");
    assert!(agent.log(&tuned).contains("Weights: "), "{}", agent.log(&tuned));
}

#[test]
fn a_checkpoint_that_is_not_saved_is_reported_while_the_run_goes_on() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let run = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    agent.comes(&run, "saved", is_saved);
    // No file can replace a directory, whichever user runs the test.
    let place = out(&owner, &run).join("ckpt.safetensors");
    eventually("a folder in its place", || {
        let _ = fs::remove_file(&place);
        fs::create_dir(&place).ok()
    });
    let reported = agent.comes(&run, "reported of", |run| run["explanation"].is_string());
    assert!(reported["explanation"].as_str().is_some_and(|why| why.contains("was not saved: ")), "{reported}");
    assert_eq!(reported["status"]["state"], "running");
    fs::remove_dir(&place).expect("it is empty");
    let saved = agent.comes(&run, "saved again", |run| run["explanation"].is_null());
    assert_eq!(saved["status"]["state"], "running");
    agent.stop(&run);
    agent.comes(&run, "stopped", was_stopped);
}

/// Like a full disk: nothing can be saved, but the run was stopped on request.
#[test]
fn a_run_that_cannot_save_as_it_is_stopped_is_called_stopped_and_says_what_is_left() {
    let owner = OwnerData::new();
    fs::write(
        owner.train.path().join("config/unsaved.py"),
        format!("{MODEL}max_iters = 100000000\neval_interval = 1000000000\nlog_interval = 20\n"),
    )
    .expect("a config");
    let agent = owner.serve();
    let run = agent.order(&json!({ "config": "unsaved.py", "device": "cpu" }));
    agent.comes(&run, "at work", |run| iter(run) > 20);
    fs::create_dir(out(&owner, &run).join("ckpt.safetensors")).expect("it saved nothing yet");
    agent.stop(&run);
    let ended = agent.comes(&run, "stopped", was_stopped);
    let why = ended["explanation"].as_str().unwrap_or_default();
    assert!(why.contains("was not saved: ") && why.contains("There is no earlier checkpoint."), "{ended}");
    let said = agent.log(&run);
    assert!(said.contains("Stopped and not saved, and there is no checkpoint."), "{said}");
}

#[test]
fn a_run_whose_checkpoints_cannot_be_saved_fails_before_it_trains_and_says_why() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    agent.comes(&first, "saved", is_saved);
    // While the run is queued, a directory takes its checkpoint's name.
    let second = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    fs::create_dir(out(&owner, &second).join("ckpt.safetensors")).expect("it waits");
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    let failed = agent.comes(&second, "failed", has_ended(3));
    let why = failed["explanation"].as_str().unwrap_or_default();
    assert!(why.starts_with("cannot save checkpoints in ") && why.contains("is a directory"), "{failed}");
    assert!(!agent.log(&second).contains("iter 0: "), "{}", agent.log(&second));

    // It has no checkpoint, so a resume starts it over.
    fs::remove_dir(out(&owner, &second).join("ckpt.safetensors")).expect("it is empty");
    let resumed = agent.json("POST", &format!("/api/runs/{second}/resume"), &Value::Null, 202);
    let words = resumed["command"].as_array().expect("words");
    assert!(!words.contains(&json!("--init_from=resume")), "{resumed}");
    let done = agent.comes(&second, "done", has_ended(0));
    assert!(done["checkpoint"]["iter"].is_u64(), "{done}");
}

#[test]
fn two_agents_of_a_user_share_its_devices() {
    let (owner, other) = (OwnerData::new(), OwnerData::new());
    let share = |command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", owner.history.path());
    };
    let (agent, beside) = (owner.serve(), other.serve_with(share));
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    agent.comes(&first, "saved", is_saved);
    let second = beside.order(&json!({ "config": "short.py", "device": "cpu" }));
    let before = iter(&agent.run(&first));
    // If the device were free for the other run, that run would start now.
    agent.comes(&first, "further", |run| iter(run) > before + 1000);
    assert_eq!(beside.run(&second)["status"]["state"], "queued");
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    beside.comes(&second, "done", has_ended(0));
}

/// Stops before the signal handler is installed, during startup, during an evaluation and between iterations.
#[test]
fn a_run_that_is_stopped_at_any_moment_is_called_so() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    for _ in 0..6 {
        let run = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
        agent.comes(&run, "begun", |run| run["status"]["state"] == "running");
        agent.stop(&run);
        let ended = agent.comes(&run, "ended", |run| run["ended_ms"].is_u64());
        assert_eq!(ended["status"]["cause"], "stopped", "{ended}");
    }
}

#[test]
fn a_run_that_diverges_is_called_so() {
    let owner = OwnerData::new();
    let wild = "learning_rate = 1e30\ndecay_lr = False\ngrad_clip = 0.0\nwarmup_iters = 0\nmax_iters = 200\n";
    fs::write(owner.train.path().join("config/wild.py"), format!("{MODEL}{wild}")).expect("a config");
    let agent = owner.serve();
    let run = agent.order(&json!({ "config": "wild.py", "device": "cpu" }));
    let ended = agent.comes(&run, "ended", |run| run["ended_ms"].is_u64());
    assert_eq!(ended["status"], json!({ "state": "exited", "code": 1, "cause": "diverged" }));
    assert!(
        ended["explanation"].as_str().is_some_and(|why| why.contains("hint: use a smaller --learning_rate=")),
        "{ended}"
    );
    assert!(owner.table().contains("diverged"), "{}", owner.table());
}

/// Programs that read losses do so in one way.
#[test]
fn losses_from_the_api_are_those_from_the_command_line() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let run = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    agent.comes(&run, "done", has_ended(0));
    let (status, served) = agent.asked("GET", &format!("/api/runs/{run}/export.csv"), "", "");
    assert_eq!(status, 200);
    let mut export = headroom();
    let export = export.args(["runs", "export", &run]).env("HEADROOM_DATA_DIR", owner.history.path()).output();
    let exported = String::from_utf8(export.expect("it runs").stdout).expect("text");
    assert!(exported.starts_with("kind,") && exported.lines().count() > 2, "{exported}");
    // Sizes of chunks and their contents alternate.
    let served = String::from_utf8(served).expect("text");
    assert_eq!(served.split("\r\n").skip(1).step_by(2).collect::<String>(), exported);
}
