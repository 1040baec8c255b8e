//! Search for the driver.

use std::fs;

use headroom_fake_cuda::{Scenario, library};
use headroom_kernels::cuda::{Device, driver::Driver, gpus};
use insta::assert_snapshot;

use crate::child::Child;

/// Returns the result of opening the first GPU.
#[track_caller]
fn opened(child: &Child) -> String {
    let said = child.run(|tell| {
        tell(match Device::open(0) {
            Ok(device) => device.gpu().name.clone(),
            Err(error) => error.to_string(),
        });
    });
    said.output
}

#[test]
fn without_driver_there_is_a_sentence() {
    let child = Child::of("drivers::without_driver_there_is_a_sentence");
    let output = opened(&child);
    // On a machine with a driver, it is that driver's GPU.
    if !output.starts_with("NVIDIA ") {
        assert_snapshot!(output, @"no NVIDIA driver found (libcuda.so.1: cannot open shared object file: No such file or directory)");
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let child =
        Child::of("drivers::a_library_that_is_not_there_is_named").with("HEADROOM_CUDA", "/nowhere/libcuda.so.1");
    assert_snapshot!(opened(&child), @"cannot use /nowhere/libcuda.so.1, named by HEADROOM_CUDA, as the driver: /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory");
}

#[test]
fn a_library_that_is_no_driver_is_named() {
    let child = Child::of("drivers::a_library_that_is_no_driver_is_named").with("HEADROOM_CUDA", "libc.so.6");
    let output = opened(&child);
    let (start, end) = ("cannot use libc.so.6, named by HEADROOM_CUDA, as the driver: ", "undefined symbol: cuInit\n");
    assert!(output.starts_with(start) && output.ends_with(end), "{output}");
}

/// Returns the library with one name in it replaced.
pub fn renamed(name: &str, other: &str) -> Vec<u8> {
    let [name, other] = [name, other].map(|name| format!("\0{name}\0").into_bytes());
    let mut bytes = fs::read(library().expect("it was built")).expect("a file");
    let places: Vec<usize> =
        bytes.windows(name.len()).enumerate().filter(|(_, window)| **window == name).map(|(place, _)| place).collect();
    assert!(!places.is_empty() && name.len() == other.len(), "{}", String::from_utf8_lossy(&name));
    for place in places {
        bytes[place..place + other.len()].copy_from_slice(&other);
    }
    bytes
}

/// Places a library in the loader's default search path, before any real driver.
fn beside(mut child: Child, library: &[u8]) -> Child {
    let folder = child.folder().join("usual");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("libcuda.so.1"), library).expect("a file");
    child.set("LD_LIBRARY_PATH", folder);
    child
}

/// Places a CUDA toolkit's stub library beside the machine's driver. A stub has the symbols, but no call works.
fn with_stub(child: Child) -> Child {
    let folder = child.folder().join("usual");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("libcuda.so"), renamed("cuInit", "cuTini")).expect("a file");
    child.with("LD_LIBRARY_PATH", folder)
}

#[test]
fn a_named_driver_goes_before_the_machines() {
    let child = Child::on("drivers::a_named_driver_goes_before_the_machines", &Scenario::default());
    // It lacks the first call, so it cannot be used.
    let child = beside(child, &renamed("cuInit", "cuTini"));
    assert_snapshot!(opened(&child), @"NVIDIA GeForce RTX 4070");
}

#[test]
fn a_named_driver_is_called_whatever_name_it_has_in_itself() {
    let test = "drivers::a_named_driver_is_called_whatever_name_it_has_in_itself";
    let mut child = beside(Child::of(test), &renamed("cuInit", "cuTini"));
    let named = child.folder().join("named.so");
    fs::write(&named, renamed("libcuda.so.1", "libcudx.so.1")).expect("a file");
    child.set("HEADROOM_CUDA", named);
    assert_snapshot!(opened(&child), @"NVIDIA GeForce RTX 4070");
}

#[test]
fn the_driver_goes_before_a_toolkits_stub() {
    let child = Child::of("drivers::the_driver_goes_before_a_toolkits_stub");
    let child = with_stub(beside(child, &fs::read(library().expect("it was built")).expect("a file")));
    assert_snapshot!(opened(&child), @"NVIDIA GeForce RTX 4070");
}

#[test]
fn a_toolkits_stub_is_no_driver() {
    let output = opened(&with_stub(Child::of("drivers::a_toolkits_stub_is_no_driver")));
    // On a machine with a driver, it is that driver's GPU.
    if !output.starts_with("NVIDIA ") {
        assert_snapshot!(output, @"no NVIDIA driver found (libcuda.so.1: cannot open shared object file: No such file or directory)");
    }
}

#[test]
fn the_machines_driver_needs_no_name() {
    let child = Child::of("drivers::the_machines_driver_needs_no_name");
    let child = beside(child, &renamed("cuInit", "cuInit"));
    assert_snapshot!(opened(&child), @"NVIDIA GeForce RTX 4070");
}

#[test]
fn an_old_driver_is_reported_what_is_needed() {
    let scenario = Scenario { driver_version: 12_020, ..Scenario::default() };
    let child = Child::on("drivers::an_old_driver_is_reported_what_is_needed", &scenario);
    assert_snapshot!(opened(&child), @"the NVIDIA driver supports CUDA 12.2; the kernels need CUDA 12.4 or newer, which is driver 550 or newer");
}

#[test]
fn the_oldest_driver_that_is_taken_loads_the_kernels() {
    let scenario = Scenario { driver_version: 12_040, ..Scenario::default() };
    let said = Child::on("drivers::the_oldest_driver_that_is_taken_loads_the_kernels", &scenario).run(|tell| {
        let version = Driver::get().expect("it is new enough").version();
        let device = Device::open(0).expect("a GPU");
        tell(format!("CUDA {version}: the norm of 3 and 4 is {}", crate::faults::norm(&device).expect("it runs")));
    });
    assert_snapshot!(said.output, @"CUDA 12.4: the norm of 3 and 4 is 5");
}

#[test]
fn driver_mismatching_kernel_module_is_reported() {
    let scenario = Scenario { init: 803, ..Scenario::default() };
    let child = Child::on("drivers::driver_mismatching_kernel_module_is_reported", &scenario);
    assert_snapshot!(opened(&child), @"cuInit at kernels/src/cuda/driver.rs:LINE: system has unsupported display driver / cuda driver combination (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)");
}

#[test]
fn without_gpus_the_driver_is_distinguished_from_none() {
    let scenario = Scenario { gpus: vec![], ..Scenario::default() };
    let said = Child::on("drivers::without_gpus_the_driver_is_distinguished_from_none", &scenario).run(|tell| {
        tell(Device::open(0).expect_err("no GPU").to_string());
        tell(gpus().expect_err("no GPU").to_string());
    });
    assert_snapshot!(said.output, @r#"
    the NVIDIA driver finds no GPU; if CUDA_VISIBLE_DEVICES is set, it must name one
    the NVIDIA driver finds no GPU; if CUDA_VISIBLE_DEVICES is set, it must name one
    "#);
}
