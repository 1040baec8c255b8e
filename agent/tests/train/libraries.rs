//! Libraries of NVIDIA's that a run on a card takes: planned with their room, told, and the same in a run that goes on.

use std::fs;

use headroom_fake_cuda::{Determinism, Engine, Scenario};
use serde_json::Value;

use crate::{
    cuda::{MIB, Machine, number, said},
    started::{finished, losses, refused},
};

/// The library's room is planned, and a run that goes on multiplies as the one before, whatever is fastest by then.
#[test]
fn a_library_multiplies_where_there_is_one() {
    let machine = Machine::of(&Scenario::default());
    let library = headroom_fake_cuda::library().expect("it was built");
    let with = |args: &[&str]| {
        let mut command = machine.tiny(&[&["--device=cuda"], args].concat());
        finished(command.env("HEADROOM_CUBLASLT", &library))
    };
    let own = machine.plan(&["--device=cuda"]);
    let plan: Value = serde_json::from_slice(&with(&["--plan"]).stdout).expect("JSON");
    assert_eq!(own["multiplied_by"], "own kernels");
    let name = plan["multiplied_by"].as_str().expect("a name");
    assert!(name.starts_with("cuBLASLt 12.8.3 ("), "{name}");
    // A whole number of blocks more, on a card before Hopper.
    assert_eq!(plan["bytes"].as_u64(), own["bytes"].as_u64().map(|bytes| bytes + 4 * MIB));
    assert!(!machine.path("out").exists(), "a plan touches nothing");

    let output = with(&["--max_iters=5", "--out_dir=whole"]);
    let told = said(&output);
    assert!(told.contains(&format!("Matrices are multiplied by {name}.")), "{told}");
    assert!(told.contains(&format!("Allocated {} bytes, as planned.", plan["bytes"])), "{told}");
    assert!(!told.contains("are not kept"), "{told}");
    let whole = losses(&output.stdout);
    assert_eq!(whole.len(), 6);

    let first = with(&["--max_iters=2", "--out_dir=parts"]);
    let kept: Vec<_> = fs::read_dir(machine.path("parts"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .filter(|name| name.starts_with("cublaslt-") && name.ends_with(".json"))
        .collect();
    assert_eq!(kept.len(), 1, "the first run keeps what it chose: {kept:?}");
    let mut parts = losses(&first.stdout);
    let mut other = Scenario::default();
    for algorithm in &mut other.cublaslt.algorithms {
        // The first is the fastest now.
        algorithm.millis = 5000 - algorithm.millis;
    }
    machine.play(&other);
    parts.extend(losses(&with(&["--init_from=resume", "--max_iters=5", "--out_dir=parts"]).stdout));
    assert_eq!(parts, whole);
}

/// Attention by the library: planned to the byte, tried before the run, and the losses are those of our kernels.
#[test]
fn attention_is_the_librarys_where_that_is_asked() {
    let mut scenario = Scenario::default();
    scenario.cudnn.engines =
        vec![Engine { workspace_bytes: 0, millis: 0, determinism: Determinism::Repeats, wrong: false, plan: 0 }];
    let machine = Machine::of(&scenario);
    let library = headroom_fake_cuda::library().expect("it was built");
    let with = |args: &[&str]| {
        let mut command = machine.tiny(&[&["--device=cuda", "--dropout=0.0"], args].concat());
        finished(command.env("HEADROOM_CUDNN", &library))
    };
    let own = with(&["--max_iters=4", "--out_dir=own"]);
    assert!(said(&own).contains("Attention is computed by own kernels."), "{}", said(&own));

    let plan: Value = serde_json::from_slice(&with(&["--attention=cudnn", "--plan"]).stdout).expect("JSON");
    let name = plan["attention_by"].as_str().expect("a name");
    assert!(name.starts_with("cuDNN 9.19.0 (") && name.ends_with(") as far as that is faster, else own kernels"));
    let output = with(&["--attention=cudnn", "--max_iters=4"]);
    let told = said(&output);
    assert!(told.contains(&format!("Attention is computed by {name}.")), "{told}");
    assert!(told.contains(&format!("Allocated {} bytes, as planned.", plan["bytes"])), "{told}");
    assert!(told.contains(" ms by cuDNN, ") && told.contains("attention is computed by cuDNN 9.19.0 ("), "{told}");
    let (ours, theirs) = (losses(&own.stdout), losses(&output.stdout));
    assert_eq!(ours.len(), theirs.len());
    for (iter, loss) in &theirs {
        let (loss, own) = (number(loss), number(&ours[iter]));
        assert!((loss - own).abs() <= 4e-3 * own, "{loss} and {own} at {iter}");
    }
}

#[test]
fn an_attention_library_that_is_not_there_is_an_error() {
    let machine = Machine::of(&Scenario::default());
    let mut command = machine.tiny(&["--device=cuda", "--attention=cudnn", "--plan"]);
    let output = command.env("HEADROOM_CUDNN", "/nowhere/libcudnn.so.9").output().expect("it runs");
    let told = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("HEADROOM_CUDNN names a library that cannot be used: /nowhere/libcudnn.so.9"), "{told}");
    assert!(told.contains("--attention=own"), "{told}");
}

#[test]
fn a_library_that_is_named_and_is_none_is_an_error() {
    let machine = Machine::of(&Scenario::default());
    let mut command = machine.tiny(&["--device=cuda"]);
    let words = [
        "HEADROOM_CUBLASLT names a library that cannot be used",
        "HEADROOM_CUBLASLT=off multiplies with our own kernels",
    ];
    refused(command.env("HEADROOM_CUBLASLT", machine.path("data/fox/train.bin")), 1, &words);
    assert!(!machine.path("out").exists());
}
