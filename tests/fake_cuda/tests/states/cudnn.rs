//! Attention by cuDNN: which library is taken, what is said where it is not, and that the next run does alike.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use headroom_fake_cuda::{Cudnn as Library, Determinism, Engine, FaultAt, Scenario, library};
use headroom_kernels::{
    cpu::gpt::{DropoutPass, Micro},
    cuda::{CudaError, Cudnn, Device, Own, Trainer},
};
use headroom_shared::gpt::{
    GptConfig, GptShape,
    buffers::cuda::{Attender, CudaTraining, Libraries, Recompute},
};
use insta::assert_snapshot;

use crate::child::{Child, Said};

/// Names the folder that choices are kept in.
const KEEP: &str = "HEADROOM_STATES_KEEP";
const MICRO: Micro = Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE };

/// Which repeats itself and needs no room.
const ENGINE: Engine =
    Engine { workspace_bytes: 0, millis: 0, determinism: Determinism::Repeats, wrong: false, plan: 0 };

fn with(engine: Engine) -> Library {
    Library { engines: vec![engine], ..Library::default() }
}

fn named(test: &'static str, library: Library) -> Child {
    let scenario = Scenario { cudnn: library, ..Scenario::default() };
    Child::on(test, &scenario).with("HEADROOM_CUDNN", self::library().expect("it was built"))
}

/// A trainer of a small model, with the library that is found.
fn trainer(dropout: f64, keep_in: Option<&Path>) -> Result<Trainer, CudaError> {
    let device = Device::open(0)?;
    let attention = Cudnn::find(&device, keep_in).expect("it is named");
    let shape = GptShape { n_layer: 1, n_head: 2, n_embd: 32, block_size: 24, vocab_size: 11, dropout, bias: true };
    let config = GptConfig::new(shape).expect("valid");
    let libraries = Libraries { attender: Attender::Cudnn, ..Libraries::NONE };
    let plan = CudaTraining::with_libraries(&config, 2, vec![Recompute::None], libraries).expect("small");
    Trainer::with(&device, &config, plan, Box::new(Own), Box::new(attention))
}

/// What is said of attention before a run, and its loss.
#[track_caller]
fn said(child: &Child, dropout: f64) -> String {
    let Said { told, .. } = child.run(|tell| {
        let keep_in = env::var_os(KEEP).map(PathBuf::from);
        let mut trainer = trainer(dropout, keep_in.as_deref()).expect("it begins");
        trainer.attention().notes().into_iter().for_each(&mut *tell);
        let loss = trainer.micro_step(MICRO).expect("it runs");
        tell(format!("a loss of {loss:.3}"));
    });
    told.replace(&library().expect("it was built").display().to_string(), "LIBRARY")
}

/// What looking for the library comes to.
#[track_caller]
fn found(child: &Child) -> String {
    let said = child.run(|tell| {
        let device = Device::open(0).expect("a card");
        tell(match Cudnn::find(&device, None) {
            Ok(library) => format!("cuDNN {}", library.found().version),
            Err(absent) => format!("{}{absent}", if absent.is_error() { "error: " } else { "" }),
        });
    });
    said.told.replace(&library().expect("it was built").display().to_string(), "LIBRARY")
}

#[test]
fn the_library_that_is_named_is_taken() {
    assert_snapshot!(found(&named("cudnn::the_library_that_is_named_is_taken", Library::default())), @"cuDNN 9.19.0");
}

#[test]
fn an_old_library_is_told_what_is_needed() {
    let library = Library { version: 90_100, ..Library::default() };
    assert_snapshot!(found(&named("cudnn::an_old_library_is_told_what_is_needed", library)), @"error: HEADROOM_CUDNN names a library that cannot be used: LIBRARY: it is version 9.1.0, and 9.10.0 or newer is needed");
}

#[test]
fn a_library_that_does_not_begin_is_not_taken() {
    let library = Library { create: 1001, ..Library::default() };
    assert_snapshot!(found(&named("cudnn::a_library_that_does_not_begin_is_not_taken", library)), @"error: HEADROOM_CUDNN names a library that cannot be used: LIBRARY: cudnnCreate at kernels/src/cuda/cudnn/find.rs:LINE: refused (CUDNN_STATUS_NOT_INITIALIZED, 1001)");
}

#[test]
fn what_computes_the_same_is_taken() {
    assert_snapshot!(said(&named("cudnn::what_computes_the_same_is_taken", with(ENGINE)), 0.0), @r#"
    attention is computed by cuDNN 9.19.0 (LIBRARY)
    a loss of 2.398
    "#);
}

#[test]
fn attention_that_drops_is_our_kernels() {
    assert_snapshot!(said(&named("cudnn::attention_that_drops_is_our_kernels", with(ENGINE)), 0.2), @r#"
    attention drops, which is by own kernels: cuDNN's random numbers are others
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn what_is_wrong_is_not_taken() {
    let library = with(Engine { wrong: true, ..ENGINE });
    assert_snapshot!(said(&named("cudnn::what_is_wrong_is_not_taken", library), 0.0), @r#"
    attention is by own kernels, as cuDNN's is not taken: its results differ from ours by 80.8 %
    attention's gradient is by own kernels, as cuDNN's is not taken: its gradients of queries differ from ours by 2872.8 %
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn what_does_not_repeat_itself_is_not_taken() {
    let library = with(Engine { determinism: Determinism::Hidden, ..ENGINE });
    assert_snapshot!(said(&named("cudnn::what_does_not_repeat_itself_is_not_taken", library), 0.0), @r#"
    attention is by own kernels, as cuDNN's is not taken: its results do not repeat themselves
    attention's gradient is by own kernels, as cuDNN's is not taken: its gradients do not repeat themselves
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
    let told = said(&named(test, library), 0.0);
    assert!(told.starts_with("attention is computed by cuDNN 9.19.0"), "{told}");
}

#[test]
fn a_library_without_an_engine_leaves_it_to_our_kernels() {
    let library = with(Engine { workspace_bytes: 1 << 30, ..ENGINE });
    let test = "cudnn::a_library_without_an_engine_leaves_it_to_our_kernels";
    assert_snapshot!(said(&named(test, library), 0.0), @r#"
    attention is by own kernels, as cuDNN's is not taken: no engine of it can, with the room that there is
    attention's gradient is by own kernels, as cuDNN's is not taken: no engine of it can, with the room that there is
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn a_library_that_knows_no_such_graph_leaves_it_to_our_kernels() {
    let library = Library { heuristics: 3000, ..with(ENGINE) };
    let test = "cudnn::a_library_that_knows_no_such_graph_leaves_it_to_our_kernels";
    assert_snapshot!(said(&named(test, library), 0.0), @r#"
    attention is by own kernels, as cuDNN's is not taken: cudnnBackendFinalize at kernels/src/cuda/cudnn/tried.rs:LINE: refused (CUDNN_STATUS_NOT_SUPPORTED, 3000)
    attention's gradient is by own kernels, as cuDNN's is not taken: cudnnBackendFinalize at kernels/src/cuda/cudnn/tried.rs:LINE: refused (CUDNN_STATUS_NOT_SUPPORTED, 3000)
    attention is computed by own kernels
    a loss of 2.398
    "#);
}

#[test]
fn what_is_refused_as_it_is_tried_is_not_taken() {
    let library = Library { refused: Some(FaultAt { launch: 1, code: 5000 }), ..with(ENGINE) };
    let test = "cudnn::what_is_refused_as_it_is_tried_is_not_taken";
    assert_snapshot!(said(&named(test, library), 0.0), @r#"
    attention is by own kernels, as cuDNN's is not taken: cudnnBackendExecute at kernels/src/cuda/cudnn/tried.rs:LINE: refused (CUDNN_STATUS_EXECUTION_FAILED, 5000)
    attention is computed by own kernels, and its gradient by cuDNN 9.19.0 (LIBRARY)
    a loss of 2.398
    "#);
}

/// What takes long is not taken, and what was taken once is taken again, whoever is faster by then.
#[test]
fn the_next_run_does_as_the_first() {
    const TEST: &str = "cudnn::the_next_run_does_as_the_first";
    let folder = |path: &Path| {
        let files = fs::read_dir(path).expect("a folder").map(|file| file.expect("a file").file_name());
        files.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let run = |millis: u64, keep: &Path| {
        let told = said(&named(TEST, with(Engine { millis, ..ENGINE })).with(KEEP, keep), 0.0);
        let times = |line: &&str| line.contains(" ms by cuDNN, ");
        let by = told.lines().find(|line| line.starts_with("attention is computed by ")).unwrap_or_default();
        (told.lines().filter(times).count(), by.contains("cuDNN"))
    };
    let (slow, fast) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    assert_eq!(run(100_000, slow.path()), (2, false));
    assert_eq!(run(0, slow.path()), (0, false));
    assert_eq!(run(0, fast.path()), (2, true));
    assert_eq!(run(100_000, fast.path()), (0, true));
    assert_eq!(folder(fast.path()), ["cudnn-nvidia-geforce-rtx-4070-46-12080-91900.json"]);
}
