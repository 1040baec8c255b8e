//! Attention by cuDNN: the choice of the library, messages when it is not used, and reuse of choices in the next run.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use headroom_fake_cuda::{Cudnn as Library, Determinism, Engine, FaultAt, Scenario, library};
use headroom_kernels::{
    cuda::{BuiltinKernels, CudaError, Cudnn, Device, Trainer},
    reference::gpt::{DropoutPass, Micro},
};
use headroom_planner::gpt::{
    GptConfig, GptShape,
    buffers::cuda::{AttentionBackend, Backends, CudaTraining, Recompute},
};
use insta::assert_snapshot;

use crate::child::{Child, ChildOutput};

/// The environment variable with the directory of saved choices.
const KEEP: &str = "HEADROOM_STATES_KEEP";
const MICRO: Micro = Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE };

/// A deterministic engine without a workspace.
const ENGINE: Engine =
    Engine { workspace_bytes: 0, millis: 0, determinism: Determinism::Repeats, wrong: false, plan: 0 };

fn with(engine: Engine) -> Library {
    Library { engines: vec![engine], ..Library::default() }
}

fn named(test: &'static str, library: Library) -> Child {
    let scenario = Scenario { cudnn: library, ..Scenario::default() };
    Child::on(test, &scenario).with("HEADROOM_CUDNN", self::library().expect("it was built"))
}

/// Creates a trainer of a small model with the library that is found.
fn trainer(dropout: f64, keep_in: Option<&Path>) -> Result<Trainer, CudaError> {
    let device = Device::open(0)?;
    let attention = Cudnn::find(&device, keep_in).expect("it is named");
    let shape = GptShape { n_layer: 1, n_head: 2, n_embd: 32, block_size: 24, vocab_size: 11, dropout, bias: true };
    let config = GptConfig::new(shape).expect("valid");
    let libraries = Backends { attention_backend: AttentionBackend::Cudnn, ..Backends::NONE };
    let plan = CudaTraining::with_libraries(&config, 2, vec![Recompute::None], libraries).expect("small");
    Trainer::with(&device, &config, plan, Box::new(BuiltinKernels), Box::new(attention))
}

/// Returns the notes about attention before a run, and its loss.
#[track_caller]
fn said(child: &Child, dropout: f64) -> String {
    let ChildOutput { output, .. } = child.run(|tell| {
        let keep_in = env::var_os(KEEP).map(PathBuf::from);
        let mut trainer = trainer(dropout, keep_in.as_deref()).expect("it begins");
        trainer.attention().notes().into_iter().for_each(&mut *tell);
        let loss = trainer.micro_step(MICRO).expect("it runs");
        tell(format!("a loss of {loss:.3}"));
    });
    output.replace(&library().expect("it was built").display().to_string(), "LIBRARY")
}

/// Returns the result of searching for the library.
#[track_caller]
fn found(child: &Child) -> String {
    let said = child.run(|tell| {
        let device = Device::open(0).expect("a GPU");
        tell(match Cudnn::find(&device, None) {
            Ok(library) => format!("cuDNN {}", library.found().version),
            Err(absent) => format!("{}{absent}", if absent.is_error() { "error: " } else { "" }),
        });
    });
    said.output.replace(&library().expect("it was built").display().to_string(), "LIBRARY")
}

#[test]
fn the_library_that_is_named_is_taken() {
    assert_snapshot!(found(&named("cudnn::the_library_that_is_named_is_taken", Library::default())), @"cuDNN 9.19.0");
}

#[test]
fn an_old_library_is_reported_what_is_needed() {
    let library = Library { version: 90_100, ..Library::default() };
    assert_snapshot!(found(&named("cudnn::an_old_library_is_reported_what_is_needed", library)), @"error: HEADROOM_CUDNN names a library that cannot be used: LIBRARY: it is version 9.1.0, and 9.10.0 or newer is needed");
}

#[test]
fn a_library_that_does_not_begin_is_not_taken() {
    let library = Library { create: 1001, ..Library::default() };
    assert_snapshot!(found(&named("cudnn::a_library_that_does_not_begin_is_not_taken", library)), @"error: HEADROOM_CUDNN names a library that cannot be used: LIBRARY: cudnnCreate at kernels/src/cuda/cudnn/find.rs:LINE: refused (CUDNN_STATUS_NOT_INITIALIZED, 1001)");
}

#[test]
fn equal_engine_is_accepted() {
    assert_snapshot!(said(&named("cudnn::equal_engine_is_accepted", with(ENGINE)), 0.0), @r#"
    attention is computed by cuDNN 9.19.0 (LIBRARY)
    a loss of 2.398
    "#);
}

#[test]
fn attention_that_drops_is_our_kernels() {
    assert_snapshot!(said(&named("cudnn::attention_that_drops_is_our_kernels", with(ENGINE)), 0.2), @r#"
    cannot use cuDNN for attention with dropout: its random numbers differ; own kernels are used
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn wrong_engine_is_rejected() {
    let library = with(Engine { wrong: true, ..ENGINE });
    assert_snapshot!(said(&named("cudnn::wrong_engine_is_rejected", library), 0.0), @r#"
    cannot use cuDNN for attention: its results differ from ours by 80.8 %; own kernels are used
    cannot use cuDNN for attention's gradient: its gradients of queries differ from ours by 2872.8 %; own kernels are used
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn nondeterministic_engine_is_rejected() {
    let library = with(Engine { determinism: Determinism::Hidden, ..ENGINE });
    assert_snapshot!(said(&named("cudnn::nondeterministic_engine_is_rejected", library), 0.0), @r#"
    cannot use cuDNN for attention: its results do not repeat themselves; own kernels are used
    cannot use cuDNN for attention's gradient: its gradients do not repeat themselves; own kernels are used
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn an_engine_without_room_or_a_plan_is_passed_over() {
    let large = Engine { workspace_bytes: 1 << 30, ..ENGINE };
    let broken = Engine { plan: 3000, ..ENGINE };
    let library = Library { engines: vec![large.clone(), broken.clone(), ENGINE], ..Library::default() };
    let test = "cudnn::an_engine_without_room_or_a_plan_is_passed_over";
    let output = said(&named(test, library), 0.0);
    assert!(output.starts_with("attention is computed by cuDNN 9.19.0"), "{output}");
}

#[test]
fn a_library_without_an_engine_leaves_it_to_our_kernels() {
    let library = with(Engine { workspace_bytes: 1 << 30, ..ENGINE });
    let test = "cudnn::a_library_without_an_engine_leaves_it_to_our_kernels";
    assert_snapshot!(said(&named(test, library), 0.0), @r#"
    cannot use cuDNN for attention: no engine runs in the available workspace; own kernels are used
    cannot use cuDNN for attention's gradient: no engine runs in the available workspace; own kernels are used
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn unsupported_graph_falls_back_to_own_kernels() {
    let library = Library { heuristics: 3000, ..with(ENGINE) };
    let test = "cudnn::unsupported_graph_falls_back_to_own_kernels";
    assert_snapshot!(said(&named(test, library), 0.0), @r#"
    cannot use cuDNN for attention: cudnnBackendFinalize at kernels/src/cuda/cudnn/autotune.rs:LINE: refused (CUDNN_STATUS_NOT_SUPPORTED, 3000); own kernels are used
    cannot use cuDNN for attention's gradient: cudnnBackendFinalize at kernels/src/cuda/cudnn/autotune.rs:LINE: refused (CUDNN_STATUS_NOT_SUPPORTED, 3000); own kernels are used
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn engine_that_fails_trial_is_rejected() {
    let library = Library { refused: Some(FaultAt { launch: 1, code: 5000 }), ..with(ENGINE) };
    let test = "cudnn::engine_that_fails_trial_is_rejected";
    assert_snapshot!(said(&named(test, library), 0.0), @r#"
    cannot use cuDNN for attention: cudnnBackendExecute at kernels/src/cuda/cudnn/autotune.rs:LINE: refused (CUDNN_STATUS_EXECUTION_FAILED, 5000); own kernels are used
    attention is computed by own kernels, and its gradient by cuDNN 9.19.0 (LIBRARY)
    a loss of 2.398
    "#);
}

/// A slow engine is not chosen, and a choice is reused even if another engine is faster by then.
#[test]
fn the_next_run_does_as_the_first() {
    const TEST: &str = "cudnn::the_next_run_does_as_the_first";
    let folder = |path: &Path| {
        let files = fs::read_dir(path).expect("a folder").map(|file| file.expect("a file").file_name());
        files.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let run = |millis: u64, keep: &Path| {
        let output = said(&named(TEST, with(Engine { millis, ..ENGINE })).with(KEEP, keep), 0.0);
        let times = |line: &&str| line.contains(" ms by cuDNN, ");
        let by = output.lines().find(|line| line.starts_with("attention is computed by ")).unwrap_or_default();
        (output.lines().filter(times).count(), by.contains("cuDNN"))
    };
    let (slow, fast) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    assert_eq!(run(100_000, slow.path()), (2, false));
    assert_eq!(run(0, slow.path()), (0, false));
    assert_eq!(run(0, fast.path()), (2, true));
    assert_eq!(run(100_000, fast.path()), (0, true));
    assert_eq!(folder(fast.path()), ["cudnn-nvidia-geforce-rtx-4070-46-12080-91900.json"]);
}
