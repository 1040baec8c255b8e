//! Whether there is a cuBLASLt, which, and what is said where there is none or it does not do its work.

use std::{fs, path::Path};

use headroom_fake_cuda::{CublasLt as Library, FaultAt, Scenario, library};
use headroom_kernels::{
    cpu::gpt::{DropoutPass, Micro},
    cuda::{CublasLt, CudaError, Device, Own, Products, Trainer},
};
use headroom_shared::gpt::{
    GptConfig, GptShape,
    buffers::cuda::{CudaTraining, Recompute},
};
use insta::assert_snapshot;

use crate::{child::Child, drivers::renamed};

/// A machine whose library is another than the usual one.
pub fn machine(library: Library) -> Scenario {
    Scenario { cublaslt: library, ..Scenario::default() }
}

/// With the library named.
fn named(test: &'static str, library: Library) -> Child {
    Child::on(test, &machine(library)).with("HEADROOM_CUBLASLT", self::library().expect("it was built"))
}

/// What looking for the library comes to.
#[track_caller]
fn found(child: &Child) -> String {
    let said = child.run(|tell| {
        let device = Device::open(0).expect("a card");
        tell(match CublasLt::find(&device, None) {
            Ok(library) => format!("cuBLASLt {}", library.found().version),
            Err(absent) => format!("{}{absent}", if absent.is_error() { "error: " } else { "" }),
        });
    });
    said.told.replace(&library().expect("it was built").display().to_string(), "LIBRARY")
}

/// A trainer of the smallest model, with the library that is found.
pub fn trainer(keep_in: Option<&Path>) -> Result<Trainer, CudaError> {
    let device = Device::open(0)?;
    let products = CublasLt::find(&device, keep_in).expect("it is named");
    let shape = GptShape { n_layer: 1, n_head: 1, n_embd: 32, block_size: 8, vocab_size: 11, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("valid");
    let (recompute, multiplier) = (vec![Recompute::None], products.multiplier());
    let plan = CudaTraining::with_libraries(&config, 1, recompute, multiplier.into()).expect("small");
    Trainer::with(&device, &config, plan, Box::new(products), Box::new(Own))
}

const MICRO: Micro = Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE };

#[test]
fn a_host_without_a_library_says_where_to_get_one() {
    let told = found(&Child::on("cublaslt::a_host_without_a_library_says_where_to_get_one", &Scenario::default()));
    // On a machine with one it is that one, or why it does not go with the fake driver.
    if !told.starts_with("cuBLASLt ") && !told.contains("not used") {
        assert_snapshot!(told, @"no cuBLASLt is found here (pip has it as nvidia-cublas for CUDA 13, nvidia-cublas-cu12 for 12)");
    }
}

#[test]
fn no_library_is_looked_for_where_nobody_wants_one() {
    let test = "cublaslt::no_library_is_looked_for_where_nobody_wants_one";
    let child = || Child::on(test, &Scenario::default());
    let told = found(&child().with("HEADROOM_CUBLASLT", "off"));
    assert_eq!(told, found(&child().with("HEADROOM_CUBLASLT", "")));
    assert_snapshot!(told, @"HEADROOM_CUBLASLT says that there is to be no cuBLASLt");
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
fn an_old_library_is_told_what_is_needed() {
    let library = Library { version: 110_304, ..Library::default() };
    assert_snapshot!(found(&named("cublaslt::an_old_library_is_told_what_is_needed", library)), @"error: HEADROOM_CUBLASLT names a library that cannot be used: LIBRARY: it is version 11.3.4, and 12.0.0 or newer is needed");
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
fn a_broken_library_is_passed_over_and_told() {
    let mut child = Child::on("cublaslt::a_broken_library_is_passed_over_and_told", &Scenario::default());
    let packages = child.folder().join("venv/lib/python3.12/site-packages/nvidia");
    let (broken, whole) = (packages.join("cu13/lib"), packages.join("cublas/lib"));
    for folder in [&broken, &whole] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(broken.join("libcublasLt.so.13"), "half of a download").expect("a file");
    child.set("VIRTUAL_ENV", child.folder().join("venv"));
    let told = found(&child);
    // A machine may have one in another place.
    if !told.starts_with("cuBLASLt ") {
        assert_snapshot!(told.split("; ").nth(1).unwrap_or_default(), @"not used: FOLDER/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13: file too short");
    }
    // A link, so that the loader knows it for the driver that is open.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(library().expect("it was built"), whole.join("libcublasLt.so.12")).expect("a link");
        assert_eq!(found(&child), "cuBLASLt 12.8.3\n");
    }
}

/// The head's product has 16 rows, as the library counts: eleven tokens, padded.
#[test]
fn what_the_library_has_no_algorithm_for_is_multiplied_all_the_same() {
    let library = Library { none_for_rows: vec![16], ..Library::default() };
    let test = "cublaslt::what_the_library_has_no_algorithm_for_is_multiplied_all_the_same";
    let said = named(test, library).run(|tell| {
        let mut trainer = trainer(None).expect("it begins");
        let loss = trainer.micro_step(MICRO).expect("it runs");
        tell(format!("a loss of {loss:.3}"));
        trainer.micro_step(MICRO).expect("it runs");
        trainer.products().notes().into_iter().for_each(tell);
    });
    assert_snapshot!(said.told, @r#"
    a loss of 2.398
    cuBLASLt has no algorithm for forward, N 8, C 32, OC 16 (the functionality requested is not supported (CUBLAS_STATUS_NOT_SUPPORTED, 15)): own kernels multiply there
    "#);
}

#[test]
fn a_library_that_has_no_algorithms_leaves_all_to_our_kernels() {
    let library = Library { algorithms: vec![], ..Library::default() };
    let test = "cublaslt::a_library_that_has_no_algorithms_leaves_all_to_our_kernels";
    let said = named(test, library).run(|tell| {
        let mut trainer = trainer(None).expect("it begins");
        let loss = trainer.micro_step(MICRO).expect("it runs");
        let notes = trainer.products().notes();
        let all = notes.iter().all(|note| note.starts_with("cuBLASLt has no algorithm for "));
        tell(format!("a loss of {loss:.3}, {} notes, {all}", notes.len()));
    });
    assert_snapshot!(said.told, @"a loss of 2.398, 15 notes, true");
}

#[test]
fn a_product_that_is_refused_is_told_with_its_code() {
    // The first of the rehearsal, and one of the run.
    for launch in [1, 20] {
        let library = Library { refused: Some(FaultAt { launch, code: 13 }), ..Library::default() };
        let test = "cublaslt::a_product_that_is_refused_is_told_with_its_code";
        let said = named(test, library).run(|tell| {
            let run = trainer(None).and_then(|mut trainer| trainer.micro_step(MICRO));
            tell(run.expect_err("a product was refused").to_string());
        });
        assert!(said.told.contains("cublasLtMatmul at kernels/src/cuda/"), "{}", said.told);
        assert!(said.told.contains("(CUBLAS_STATUS_EXECUTION_FAILED, 13)"), "{}", said.told);
    }
}
