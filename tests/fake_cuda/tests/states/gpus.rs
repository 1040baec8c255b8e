//! Detection of GPUs, and which of them can be used.

use headroom_fake_cuda::{FakeGpu, Scenario};
use headroom_kernels::cuda::{Device, gpus};
use insta::assert_snapshot;

use crate::child::Child;

fn turing_and_hopper() -> Scenario {
    let turing = FakeGpu {
        name: "NVIDIA GeForce RTX 2080 Ti".to_owned(),
        uuid: "GPU-01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        capability: (7, 5),
        ..FakeGpu::default()
    };
    let hopper =
        FakeGpu { name: "NVIDIA H200".to_owned(), capability: (9, 0), multiprocessors: 132, ..FakeGpu::default() };
    Scenario { gpus: vec![turing, hopper], ..Scenario::default() }
}

#[test]
fn gpus_are_reported_with_what_they_can() {
    let said = Child::on("gpus::gpus_are_reported_with_what_they_can", &turing_and_hopper()).run(|tell| {
        for gpu in gpus().expect("two") {
            tell(format!("{gpu:?}"));
        }
    });
    assert_snapshot!(said.output, @r#"
    Gpu { index: 0, name: "NVIDIA GeForce RTX 2080 Ti", uuid: "GPU-01234567-89ab-cdef-0123-456789abcdef", capability: ComputeCapability { major: 7, minor: 5 }, total_bytes: 12878086144, multiprocessors: 46, shared_bytes_max: 101376 }
    Gpu { index: 1, name: "NVIDIA H200", uuid: "GPU-00000000-0000-4000-8000-000000000000", capability: ComputeCapability { major: 9, minor: 0 }, total_bytes: 12878086144, multiprocessors: 132, shared_bytes_max: 101376 }
    "#);
}

#[test]
fn a_gpu_that_is_too_old_is_refused_by_its_name() {
    let said = Child::on("gpus::a_gpu_that_is_too_old_is_refused_by_its_name", &turing_and_hopper()).run(|tell| {
        tell(Device::open(0).expect_err("too old").to_string());
        let device = Device::open(1).expect("new enough");
        tell(format!(
            "{}: the norm of 3 and 4 is {}",
            device.gpu().name,
            crate::faults::norm(&device).expect("it runs")
        ));
    });
    assert_snapshot!(said.output, @r#"
    NVIDIA GeForce RTX 2080 Ti has compute capability 7.5; the kernels need 8.0 (Ampere) or newer
    NVIDIA H200: the norm of 3 and 4 is 5
    "#);
}

#[test]
fn missing_gpu_is_distinguished_from_present_ones() {
    let test = "gpus::missing_gpu_is_distinguished_from_present_ones";
    let said = Child::on(test, &turing_and_hopper()).run(|tell| {
        tell(Device::open(2).expect_err("two GPUs").to_string());
        tell(Device::open(u32::MAX).expect_err("two GPUs").to_string());
    });
    assert_snapshot!(said.output, @r#"
    GPU 2 does not exist: the driver lists 2, numbered from 0
    GPU 4294967295 does not exist: the driver lists 2, numbered from 0
    "#);
}
