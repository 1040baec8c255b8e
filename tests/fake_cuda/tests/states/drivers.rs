//! Whether there is a driver, and which.

use headroom_fake_cuda::Scenario;
use headroom_kernels::cuda::{Device, cards, driver::Driver};
use insta::assert_snapshot;

use crate::child::Child;

/// What opening the first card comes to.
#[track_caller]
fn opened(child: &Child) -> String {
    let said = child.run(|tell| {
        tell(match Device::open(0) {
            Ok(device) => device.card().name.clone(),
            Err(error) => error.to_string(),
        });
    });
    said.told
}

#[test]
fn without_driver_there_is_a_sentence() {
    let child = Child::of("drivers::without_driver_there_is_a_sentence");
    let told = opened(&child);
    // On a machine with one it is that one's card.
    if !told.starts_with("NVIDIA ") {
        assert_snapshot!(told, @"there is no NVIDIA driver here (libcuda.so.1: cannot open shared object file: No such file or directory)");
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let child =
        Child::of("drivers::a_library_that_is_not_there_is_named").with("HEADROOM_CUDA", "/nowhere/libcuda.so.1");
    assert_snapshot!(opened(&child), @"HEADROOM_CUDA names /nowhere/libcuda.so.1, which cannot be the driver: /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory");
}

#[test]
fn a_library_that_is_no_driver_is_named() {
    let child = Child::of("drivers::a_library_that_is_no_driver_is_named").with("HEADROOM_CUDA", "libc.so.6");
    let told = opened(&child);
    let (start, end) = ("HEADROOM_CUDA names libc.so.6, which cannot be the driver: ", "undefined symbol: cuInit\n");
    assert!(told.starts_with(start) && told.ends_with(end), "{told}");
}

#[test]
fn an_old_driver_is_told_what_is_needed() {
    let scenario = Scenario { driver_version: 12_020, ..Scenario::default() };
    let child = Child::on("drivers::an_old_driver_is_told_what_is_needed", &scenario);
    assert_snapshot!(opened(&child), @"the NVIDIA driver here is for CUDA 12.2; the kernels need one for CUDA 12.4 or newer, which is driver 550 or newer");
}

#[test]
fn the_oldest_driver_that_is_taken_loads_the_kernels() {
    let scenario = Scenario { driver_version: 12_040, ..Scenario::default() };
    let said = Child::on("drivers::the_oldest_driver_that_is_taken_loads_the_kernels", &scenario).run(|tell| {
        let version = Driver::get().expect("it is new enough").version();
        let device = Device::open(0).expect("a card");
        tell(format!("CUDA {version}: the norm of 3 and 4 is {}", crate::faults::norm(&device).expect("it runs")));
    });
    assert_snapshot!(said.told, @"CUDA 12.4: the norm of 3 and 4 is 5");
}

#[test]
fn a_driver_that_does_not_match_the_kernel_module_says_so() {
    let scenario = Scenario { init: 803, ..Scenario::default() };
    let child = Child::on("drivers::a_driver_that_does_not_match_the_kernel_module_says_so", &scenario);
    assert_snapshot!(opened(&child), @"cuInit at kernels/src/cuda/driver.rs:LINE: system has unsupported display driver / cuda driver combination (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)");
}

#[test]
fn without_cards_the_driver_is_told_from_none() {
    let scenario = Scenario { cards: vec![], ..Scenario::default() };
    let said = Child::on("drivers::without_cards_the_driver_is_told_from_none", &scenario).run(|tell| {
        tell(Device::open(0).expect_err("no card").to_string());
        tell(cards().expect_err("no card").to_string());
    });
    assert_snapshot!(said.told, @r#"
    the NVIDIA driver finds no card; CUDA_VISIBLE_DEVICES, where it is set, has to name one
    the NVIDIA driver finds no card; CUDA_VISIBLE_DEVICES, where it is set, has to name one
    "#);
}
