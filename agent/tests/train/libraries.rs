//! NVIDIA libraries in runs on a GPU: their workspace is planned, their use is reported, and a resumed run uses the
//! same library.

use std::fs;

use headroom_fake_cuda::{Determinism, Engine, Scenario};
use serde_json::Value;

use crate::{
    cuda::{MIB, Machine, number},
    started::{finished, losses, refused, said},
};

/// The library's workspace is planned. A resumed run uses the same GEMM algorithms, even if others are faster by then.
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
    assert_eq!(own["gemm_backend"], "own kernels");
    let name = plan["gemm_backend"].as_str().expect("a name");
    assert!(name.starts_with("cuBLASLt 12.8.3 ("), "{name}");
    // The plan has a whole number of blocks more, on a GPU before Hopper.
    assert_eq!(plan["bytes"].as_u64(), own["bytes"].as_u64().map(|bytes| bytes + 4 * MIB));
    assert!(!machine.path("out").exists(), "a plan touches nothing");

    let output = with(&["--max_iters=5", "--out_dir=whole"]);
    let output_text = said(&output);
    assert!(output_text.contains(&format!("Matrix multiplication: {name}.")), "{output_text}");
    assert!(output_text.contains(&format!("Allocated {} bytes, as planned.", plan["bytes"])), "{output_text}");
    assert!(!output_text.contains("are not kept"), "{output_text}");
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
        // The first algorithm is now the fastest.
        algorithm.millis = 5000 - algorithm.millis;
    }
    machine.play(&other);
    parts.extend(losses(&with(&["--init_from=resume", "--max_iters=5", "--out_dir=parts"]).stdout));
    assert_eq!(parts, whole);
}

/// The cuDNN backend is planned to the byte and tested before the run. Its losses agree with those of the built-in
/// kernels.
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
    assert!(said(&own).contains("Attention: own kernels."), "{}", said(&own));

    let plan: Value = serde_json::from_slice(&with(&["--attention=cudnn", "--plan"]).stdout).expect("JSON");
    let name = plan["attention_backend"].as_str().expect("a name");
    assert!(name.starts_with("cuDNN 9.19.0 (") && name.ends_with(") as far as that is faster, else own kernels"));
    let output = with(&["--attention=cudnn", "--max_iters=4"]);
    let output_text = said(&output);
    assert!(output_text.contains(&format!("Attention: {name}.")), "{output_text}");
    assert!(output_text.contains(&format!("Allocated {} bytes, as planned.", plan["bytes"])), "{output_text}");
    assert!(
        output_text.contains(" ms by cuDNN, ") && output_text.contains("attention is computed by cuDNN 9.19.0 ("),
        "{output_text}"
    );
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
    let output_text = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text.contains("HEADROOM_CUDNN names a library that cannot be used: /nowhere/libcudnn.so.9"),
        "{output_text}"
    );
    assert!(output_text.contains("--attention=own"), "{output_text}");
}

#[test]
fn named_file_that_is_not_a_library_is_an_error() {
    let machine = Machine::of(&Scenario::default());
    let mut command = machine.tiny(&["--device=cuda"]);
    let words = [
        "HEADROOM_CUBLASLT names a library that cannot be used",
        "HEADROOM_CUBLASLT=off multiplies with our own kernels",
    ];
    refused(command.env("HEADROOM_CUBLASLT", machine.path("data/fox/train.bin")), 1, &words);
    assert!(!machine.path("out").exists());
}
