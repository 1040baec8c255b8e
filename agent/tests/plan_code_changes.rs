//! The verdict of `headroom plan`, and what the run needs besides its config: changes to nanoGPT's code, which the plan
//! names with their patch, and a CUDA GPU. With `--gpu all`, the verdict on every known GPU.

use std::process::{Command, Output};

fn command(options: &[&str]) -> Command {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let run = ["plan", "--batch_size=20", "--compile=False", "--gpu", "RTX 4070"];
    let mut command = Command::new(program);
    command.args(run).args(options).env("NO_COLOR", "1");
    command
}

fn headroom(options: &[&str]) -> Output {
    command(options).output().expect("headroom runs")
}

fn plan(options: &[&str]) -> String {
    String::from_utf8(headroom(options).stdout).expect("text")
}

#[test]
fn an_answer_that_counts_on_other_code_says_so_first() {
    let stock = plan(&[]);
    assert!(stock.starts_with("Does not fit on RTX 4070: "), "{stock}");
    assert!(!stock.contains("Still to do"), "{stock}");

    let chunked = plan(&["--cross-entropy=chunked", "--activation-checkpointing"]);
    assert!(chunked.starts_with("Fits on RTX 4070 with 2 changes to model.py: "), "{chunked}");
    let words = chunked.split_whitespace().collect::<Vec<_>>().join(" ");
    let lead = "Still to do This plan assumes 2 changes to model.py: activation checkpointing, chunked cross-entropy. \
        Unchanged code takes more memory than planned here.";
    assert!(words.contains(lead), "{chunked}");
    for line in ["--- a/model.py", "+++ b/model.py", "-            x = block(x)", "+            logits = None"] {
        assert!(chunked.lines().any(|other| other == line), "{line}\n{chunked}");
    }

    let both = plan(&["--batch_size=64", "--del-eval-logits", "--optimizer=adamw-8bit"]);
    let words = both.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("Does not fit on RTX 4070, even with 2 changes to model.py, train.py: "), "{both}");
}

/// The verdict is narrow as on the page: where the upper end of the estimate exceeds the GPU.
#[test]
fn verdict_within_the_uncertainty_is_narrow() {
    for (batch_size, is_narrow) in [("--batch_size=12", false), ("--batch_size=13", true), ("--batch_size=15", true)] {
        let text = plan(&[batch_size, "--compile=True"]);
        let verdict = if is_narrow { "Fits narrowly on RTX 4070: " } else { "Fits on RTX 4070: " };
        assert!(text.starts_with(verdict), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&plan(&[batch_size, "--compile=True", "--json"])).expect("JSON");
        let [high, total] =
            [&json["basis"]["band_bytes"][1], &json["device"]["total_bytes"]].map(serde_json::Value::as_u64);
        assert_eq!(high > total, is_narrow, "{batch_size}");
    }
}

#[test]
fn json_plan_names_what_the_run_needs() {
    let needs = |options: &[&str]| {
        let json: serde_json::Value = serde_json::from_str(&plan(&[&["--json"], options].concat())).expect("JSON");
        json["needs"].clone()
    };
    let nothing = serde_json::json!({ "code_changes": [], "device": null, "environment": null, "vocab_size": null });
    assert_eq!(needs(&[]), nothing);
    assert_eq!(needs(&["--device=cuda:1"]), nothing);
    assert_eq!(needs(&["--device=cpu"])["device"], "cuda");
    assert_eq!(
        needs(&["--cross-entropy=chunked", "--del-eval-logits", "--expandable-segments"]),
        serde_json::json!({
            "code_changes": [
                { "id": "chunked_cross_entropy", "file": "model.py" },
                { "id": "del_eval_logits", "file": "train.py" },
            ],
            "device": null,
            "environment": "PYTORCH_ALLOC_CONF=expandable_segments:True",
            "vocab_size": null,
        })
    );
}

#[test]
fn plan_of_a_run_on_the_cpu_says_so_first() {
    let on_gpu = plan(&["--device=cuda"]);
    for device in ["cpu", "mps"] {
        let answer = plan(&[&format!("--device={device}")]);
        let (first, rest) = answer.split_once(".\n").expect("a sentence");
        let first = first.split_whitespace().collect::<Vec<_>>().join(" ");
        let said =
            format!("This run needs no memory of a CUDA GPU: device is \"{device}\"; the plan is for a CUDA GPU");
        assert!(first.starts_with(&said), "{answer}");
        assert_eq!(
            rest.trim_start(),
            on_gpu,
            "the answer is that of the same run on a CUDA GPU, without a second warning"
        );
    }
}

/// The comments are those that the page writes, in two of its languages.
#[test]
fn config_written_for_changed_code_gets_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.py");
    let note = |text: &str, options: &[&str]| {
        std::fs::write(&path, text).expect("a writable folder");
        let output = headroom(&[&[path.to_str().expect("text")], options].concat());
        String::from_utf8(output.stderr).expect("text")
    };
    let config = "batch_size = 20  # headroom: fits RTX 4070, needs 1 change to model.py: chunked cross-entropy\n";
    let said = note(config, &[]);
    assert!(
        said.contains("c.py: written with 1 change to model.py (chunked cross-entropy), which this plan "),
        "{said}"
    );
    assert!(said.contains("\nhint: --cross-entropy=chunked plans the changed code\n"), "{said}");
    assert_eq!(note(config, &["--cross-entropy=chunked"]), "", "the plan assumes the change");
    let german = "# headroom (checkpointing chunked_loss): braucht 2 Änderungen an model.py: Activation Checkpointing, Cross-Entropy in Chunks\n";
    let said = note(german, &["--json"]);
    assert!(said.contains("hint: --activation-checkpointing --cross-entropy=chunked plans"), "{said}");
    assert_eq!(note("batch_size = 20  # chunked cross-entropy, see model.py\n", &[]), "", "no comment of Headroom");
    assert_eq!(note(config, &["--gpu", "all"]), note(config, &[]));
}

fn on_all_gpus(options: &[&str]) -> Output {
    headroom(&[&["--gpu", "all"], options].concat())
}

#[test]
fn every_gpu_has_the_verdict_of_its_own_plan() {
    let output = on_all_gpus(&["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = all["gpus"].as_array().expect("a list");
    let fits = |row: &&serde_json::Value| row["outcome"] == "fits";
    assert_eq!(all["n_fit"].as_u64(), Some(rows.iter().filter(fits).count() as u64));
    assert!(rows.len() > 80 && rows.iter().filter(fits).count() > 10);
    let smallest = rows.iter().filter(fits).min_by_key(|row| row["total_bytes"].as_u64()).expect("it fits an H100");
    let bytes_of = |name: &serde_json::Value| {
        rows.iter().find(|row| row["name"] == *name).and_then(|row| row["total_bytes"].as_u64())
    };
    assert_eq!(bytes_of(&all["smallest"]), smallest["total_bytes"].as_u64());
    for name in ["GeForce RTX 3060 12GB", "Tesla T4", "GeForce RTX 4090", "GeForce GTX 1060 6GB"] {
        let row = rows.iter().find(|row| row["name"] == name).expect(name);
        let one: serde_json::Value = serde_json::from_str(&plan(&["--gpu", name, "--json"])).expect("JSON");
        assert_eq!(row["headroom_bytes"], one["headroom_bytes"], "{name}");
        assert_eq!(row["outcome"] != "fails", one["fits"].as_bool().expect("a verdict"), "{name}");
    }

    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect("it is in the table");
    let figure = |name: &str, key: &str| row(name)[key].as_f64();
    assert_eq!(figure("Tesla T4", "board_power_watts"), Some(70.0));
    let (seconds, watt_hours) = ("iteration_seconds", "max_iteration_watt_hours");
    let expected = figure("Tesla T4", seconds).expect("a time") * 70.0 / 3600.0;
    assert!((figure("Tesla T4", watt_hours).expect("an energy") / expected - 1.0).abs() < 1e-9);
    let laptop = row("GeForce RTX 4060 Laptop GPU");
    assert!(laptop[seconds].is_number() && laptop["board_power_watts"].is_null() && laptop[watt_hours].is_null());

    let table = String::from_utf8(on_all_gpus(&[]).stdout).expect("text");
    let n_fit = all["n_fit"].as_u64().expect("a number");
    assert!(table.starts_with(&format!("Fits {n_fit} of {} GPUs. The smallest is ", rows.len())), "{table}");
    assert_eq!(table.lines().filter(|line| line.contains("Fits: ") || line.contains(" short")).count(), {
        rows.iter().filter(|row| row["outcome"] == "fits" || row["outcome"] == "fails").count()
    });
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).expect("a row").to_owned();
    assert!(line("Tesla T4").contains("Wh  ") && !line("GeForce RTX 4060 Laptop GPU").contains("Wh"), "{table}");
    assert!(table.contains("\nEnergy: upper bound for 1,000 iterations"), "{table}");
}

#[test]
fn narrow_terminal_lists_gpus_without_energy() {
    for (columns, shows_energy) in [("99", false), ("100", true)] {
        let output = command(&["--gpu", "all"]).env("COLUMNS", columns).output().expect("headroom runs");
        let table = String::from_utf8(output.stdout).expect("text");
        assert_eq!(table.contains("Wh  "), shows_energy, "{columns}: {table}");
        assert_eq!(table.contains("Energy: "), shows_energy, "{columns}: {table}");
        let widest = table.lines().skip(2).take(100).map(|line| line.chars().count()).max().expect("rows");
        assert!(widest <= columns.parse().expect("a number"), "{widest} of {columns}");
    }
}

#[test]
fn run_that_fits_no_gpu_fails_on_all() {
    let output = on_all_gpus(&["--batch_size=100000"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("Fits no GPU in the table."));
    for (options, message) in [
        (&["--vram=8GiB"][..], "--gpu all and --vram exclude each other"),
        (&["--link"], "--gpu all and --link exclude each other"),
        (&["--compile=maybe"], "--compile=maybe"),
    ] {
        let output = on_all_gpus(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(message), "{options:?}");
    }
}
