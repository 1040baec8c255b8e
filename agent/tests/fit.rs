//! `headroom fit`: the answer, its exit status and its JSON, by the real binary.

use std::process::{Command, Output};

use serde_json::Value;

fn headroom(words: &[&str]) -> Output {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    Command::new(program).args(words).env("NO_COLOR", "1").env_remove("COLUMNS").output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn json(words: &[&str]) -> Value {
    let output = headroom(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

const NANOGPT: [&str; 4] = ["config/train_gpt2.py", "--batch_size=8", "--gpu", "RTX 4070"];
const NANOCHAT: [&str; 7] =
    ["nanochat", "--compile=False", "--depth=6", "--max-seq-len=1024", "--device-batch-size=16", "--gpu", "RTX 3060"];

/// The largest values and the smallest GPU, as `headroom plan` confirms.
#[test]
fn plans_confirm_the_answer() {
    for run in [&NANOGPT[..], &NANOCHAT] {
        let answer = json(&[&["fit"], run].concat());
        let plan = |extra: &[&str]| json(&[&["plan"], run, extra].concat());
        let limits = answer["limits"].as_array().expect("limits");
        assert_eq!(limits.len(), 3, "{answer}");
        for limit in limits {
            let (key, largest) = (limit["key"].as_str().expect("a key"), &limit["largest"]);
            let setting = format!("--{key}={largest}");
            assert_eq!(plan(&[&setting])["fits"], true, "{setting}");
        }
        let smallest = answer["smallest_gpu"]["name"].as_str().expect("a GPU");
        assert_eq!(plan(&["--gpu", smallest])["headroom_bytes"], answer["smallest_gpu"]["headroom_bytes"]);
        let given = plan(&[]);
        assert_eq!((&answer["fits"], &answer["headroom_bytes"]), (&given["fits"], &given["headroom_bytes"]));
        let status = |command: &str| headroom(&[&[command], run].concat()).status.code();
        assert_eq!(status("fit"), status("plan"));
    }
}

#[test]
fn the_text_has_at_most_100_columns() {
    for run in [&NANOGPT[..], &NANOCHAT] {
        let output =
            headroom(&[&["fit"], run, &["--batch_size=512"][..usize::from(run == NANOGPT)], &["--gpus=all"]].concat());
        let answer = text(&output.stdout);
        let tables =
            answer.split_once("GiB left").expect("the table").1.split_once("* as given").expect("the legend").0;
        assert!(tables.lines().all(|line| line.chars().count() <= 100), "{answer}");
        assert!(tables.contains("RTX 4060 Laptop GPU") && answer.contains("Largest value that fits on "), "{answer}");
    }
}

#[test]
fn a_list_of_gpus_replaces_the_table() {
    let answer = json(&[&["fit"], &NANOGPT[..], &["--gpus", "rtx3090, A100 40GB"]].concat());
    let names: Vec<&str> =
        answer["gpus"].as_array().expect("rows").iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["GeForce RTX 4070", "GeForce RTX 3090", "A100-SXM4-40GB"]);
    let given: Vec<&Value> = answer["gpus"].as_array().expect("rows").iter().map(|row| &row["given"]).collect();
    assert_eq!(given, [&Value::from(true), &false.into(), &false.into()]);
}

#[test]
fn a_gpu_that_is_not_planned_has_its_reason() {
    let answer = json(&[&["fit"], &NANOCHAT[..], &["--gpus=T4"]].concat());
    let obstacle = |at: usize| &answer["gpus"][at]["obstacle"];
    assert_eq!(obstacle(0), &Value::Null);
    assert!(obstacle(1).as_str().is_some_and(|cause| cause.contains("compute capability 8.0")), "{answer}");
    let output = headroom(&[&["fit"], &NANOCHAT[..], &["--gpus=T4"]].concat());
    assert!(text(&output.stdout).contains("1 GPU is not planned: below compute capability 8.0"));
}

#[test]
fn errors_name_the_option() {
    for (words, expected) in [
        (&["--gpus=RTX 9999"][..], "--gpus"),
        (&["--gpus="], "--gpus"),
        (&["--gpu=all"], "--gpus all"),
        (&["--bacth_size=3"], "did you mean --batch_size=3?"),
        (&["nanochat"], "hint: --compile=False plans the eager run"),
        (&["nanochat", "--compile=False", "--gpu=T4"], "cannot plan nanochat on Tesla T4"),
        (&["hf"], "its config.json or its name is missing"),
        (&["--link"], "--link"),
    ] {
        let output = headroom(&[&["fit"], words].concat());
        let (answer, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), answer), (Some(2), ""), "{words:?}: {error}");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}
