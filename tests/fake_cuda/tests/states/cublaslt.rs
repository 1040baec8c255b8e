//! Search for cuBLASLt, and messages when it is missing or fails.

use std::{fs, path::Path};

use headroom_fake_cuda::{CublasLt as Library, FaultAt, Scenario, library};
use headroom_kernels::{
    cuda::{BuiltinKernels, CublasLt, CudaError, Device, Gemm, Trainer},
    reference::gpt::{DropoutPass, Micro},
};
use headroom_planner::gpt::{
    GptConfig, GptShape,
    buffers::cuda::{CudaTraining, Recompute},
};
use insta::assert_snapshot;

use crate::{child::Child, drivers::renamed};

/// Returns a machine with this cuBLASLt.
pub fn machine(library: Library) -> Scenario {
    Scenario { cublaslt: library, ..Scenario::default() }
}

/// Creates a child with the library named by its variable.
fn named(test: &'static str, library: Library) -> Child {
    Child::on(test, &machine(library)).with("HEADROOM_CUBLASLT", self::library().expect("it was built"))
}

/// Returns the result of searching for the library.
#[track_caller]
fn found(child: &Child) -> String {
    let said = child.run(|tell| {
        let device = Device::open(0).expect("a GPU");
        tell(match CublasLt::find(&device, None) {
            Ok(library) => format!("cuBLASLt {}", library.found().version),
            Err(absent) => format!("{}{absent}", if absent.is_error() { "error: " } else { "" }),
        });
    });
    said.output.replace(&library().expect("it was built").display().to_string(), "LIBRARY")
}

/// Creates a trainer of the smallest model with the library that is found.
pub fn trainer(keep_in: Option<&Path>) -> Result<Trainer, CudaError> {
    let device = Device::open(0)?;
    let gemm = CublasLt::find(&device, keep_in).expect("it is named");
    let shape = GptShape { n_layer: 1, n_head: 1, n_embd: 32, block_size: 8, vocab_size: 11, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("valid");
    let (recompute, gemm_backend) = (vec![Recompute::None], gemm.gemm_backend());
    let plan = CudaTraining::with_libraries(&config, 1, recompute, gemm_backend.into()).expect("small");
    Trainer::with(&device, &config, plan, Box::new(gemm), Box::new(BuiltinKernels))
}

const MICRO: Micro = Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE };

#[test]
fn a_host_without_a_library_says_where_to_get_one() {
    let output = found(&Child::on("cublaslt::a_host_without_a_library_says_where_to_get_one", &Scenario::default()));
    // On a machine with a library, the result is that library or why it does not match the emulated driver.
    if !output.starts_with("cuBLASLt ") && !output.contains("not used") {
        assert_snapshot!(output, @"no cuBLASLt is found here (pip has it as nvidia-cublas for CUDA 13, nvidia-cublas-cu12 for 12)");
    }
}

#[test]
fn disabled_library_is_not_searched() {
    let test = "cublaslt::disabled_library_is_not_searched";
    let child = || Child::on(test, &Scenario::default());
    let output = found(&child().with("HEADROOM_CUBLASLT", "off"));
    assert_eq!(output, found(&child().with("HEADROOM_CUBLASLT", "")));
    assert_snapshot!(output, @"HEADROOM_CUBLASLT says that there is to be no cuBLASLt");
}

#[test]
fn the_library_that_is_named_is_taken() {
    assert_snapshot!(found(&named("cublaslt::the_library_that_is_named_is_taken", Library::default())), @"cuBLASLt 12.8.3");
}

#[test]
fn a_named_library_that_is_not_there_is_an_error() {
    let test = "cublaslt::a_named_library_that_is_not_there_is_an_error";
    let child = Child::on(test, &Scenario::default()).with("HEADROOM_CUBLASLT", "/nowhere/libcublasLt.so.12");
    assert_snapshot!(found(&child), @"error: HEADROOM_CUBLASLT names a library that cannot be used: /nowhere/libcublasLt.so.12: cannot open shared object file: No such file or directory");
}

#[test]
fn a_named_library_that_lacks_a_function_is_an_error() {
    let test = "cublaslt::a_named_library_that_lacks_a_function_is_an_error";
    let mut child = Child::on(test, &Scenario::default());
    let library = child.folder().join("libcublasLt.so.12");
    fs::write(&library, renamed("cublasLtMatmulAlgoCheck", "cublasLtMatmulAlgoChess")).expect("a file");
    child.set("HEADROOM_CUBLASLT", library);
    assert_snapshot!(found(&child), @"error: HEADROOM_CUBLASLT names a library that cannot be used: FOLDER/libcublasLt.so.12: undefined symbol: cublasLtMatmulAlgoCheck");
}

#[test]
fn an_old_library_is_reported_what_is_needed() {
    let library = Library { version: 110_304, ..Library::default() };
    assert_snapshot!(found(&named("cublaslt::an_old_library_is_reported_what_is_needed", library)), @"error: HEADROOM_CUBLASLT names a library that cannot be used: LIBRARY: it is version 11.3.4, and 12.0.0 or newer is needed");
}

#[test]
fn a_library_for_a_newer_driver_is_not_taken() {
    let library = Library { version: 130_002, ..Library::default() };
    assert_snapshot!(found(&named("cublaslt::a_library_for_a_newer_driver_is_not_taken", library)), @"error: HEADROOM_CUBLASLT names a library that cannot be used: LIBRARY: it is for CUDA 13, and the driver is for CUDA 12.8");
}

#[test]
fn a_library_that_does_not_begin_is_not_taken() {
    let library = Library { create: 1, ..Library::default() };
    assert_snapshot!(found(&named("cublaslt::a_library_that_does_not_begin_is_not_taken", library)), @"error: HEADROOM_CUBLASLT names a library that cannot be used: LIBRARY: cublasLtCreate at kernels/src/cuda/cublaslt/find.rs:LINE: the library was not initialized (CUBLAS_STATUS_NOT_INITIALIZED, 1)");
}

#[test]
fn a_broken_library_is_passed_over_and_reported() {
    let mut child = Child::on("cublaslt::a_broken_library_is_passed_over_and_reported", &Scenario::default());
    let packages = child.folder().join("venv/lib/python3.12/site-packages/nvidia");
    let (broken, whole) = (packages.join("cu13/lib"), packages.join("cublas/lib"));
    for folder in [&broken, &whole] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(broken.join("libcublasLt.so.13"), "half of a download").expect("a file");
    child.set("VIRTUAL_ENV", child.folder().join("venv"));
    let output = found(&child);
    // The machine may have a library in another place.
    if !output.starts_with("cuBLASLt ") {
        assert_snapshot!(output.split("; ").nth(1).unwrap_or_default(), @"not used: FOLDER/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13: file too short");
    }
    // A link, so that the loader recognises the driver that is already open.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(library().expect("it was built"), whole.join("libcublasLt.so.12")).expect("a link");
        assert_eq!(found(&child), "cuBLASLt 12.8.3\n");
    }
}

/// The head's product has 16 rows in the library's convention: eleven tokens, padded.
#[test]
fn product_without_algorithm_falls_back_to_own_kernels() {
    let library = Library { none_for_rows: vec![16], ..Library::default() };
    let test = "cublaslt::product_without_algorithm_falls_back_to_own_kernels";
    let said = named(test, library).run(|tell| {
        let mut trainer = trainer(None).expect("it begins");
        let loss = trainer.micro_step(MICRO).expect("it runs");
        tell(format!("a loss of {loss:.3}"));
        trainer.micro_step(MICRO).expect("it runs");
        trainer.gemm().notes().into_iter().for_each(tell);
    });
    assert_snapshot!(said.output, @r#"
    a loss of 2.398
    cannot use cuBLASLt for forward, N 8, C 32, OC 16: the functionality requested is not supported (CUBLAS_STATUS_NOT_SUPPORTED, 15); own kernels are used
    "#);
}

#[test]
fn a_library_that_has_no_algorithms_leaves_all_to_our_kernels() {
    let library = Library { algorithms: vec![], ..Library::default() };
    let test = "cublaslt::a_library_that_has_no_algorithms_leaves_all_to_our_kernels";
    let said = named(test, library).run(|tell| {
        let mut trainer = trainer(None).expect("it begins");
        let loss = trainer.micro_step(MICRO).expect("it runs");
        let notes = trainer.gemm().notes();
        let all = notes
            .iter()
            .all(|note| note.starts_with("cannot use cuBLASLt for ") && note.ends_with("; own kernels are used"));
        tell(format!("a loss of {loss:.3}, {} notes, {all}", notes.len()));
    });
    assert_snapshot!(said.output, @"a loss of 2.398, 15 notes, true");
}

#[test]
fn a_product_that_is_refused_is_reported_with_its_code() {
    // The first GEMM of the rehearsal, and one of the run.
    for launch in [1, 20] {
        let library = Library { refused: Some(FaultAt { launch, code: 13 }), ..Library::default() };
        let test = "cublaslt::a_product_that_is_refused_is_reported_with_its_code";
        let said = named(test, library).run(|tell| {
            let run = trainer(None).and_then(|mut trainer| trainer.micro_step(MICRO));
            tell(run.expect_err("a product was refused").to_string());
        });
        assert!(said.output.contains("cublasLtMatmul at kernels/src/cuda/"), "{}", said.output);
        assert!(said.output.contains("(CUBLAS_STATUS_EXECUTION_FAILED, 13)"), "{}", said.output);
    }
}
