//! Kernels that fail, and launches that are rejected.

use headroom_fake_cuda::{FakeGpu, FaultAt, Scenario};
use headroom_kernels::cuda::{
    CudaError, Device, Grid, Kernel, Module,
    ops::global_norm::{N_SUMS, global_norm},
};
use insta::assert_snapshot;

use crate::child::Child;

/// Computes the norm of 3 and 4 with two kernels.
pub fn norm(device: &Device) -> Result<f32, CudaError> {
    let (grads, sums) = (device.upload(&[3.0_f32, 4.0])?, device.allocate(N_SUMS)?);
    let norm = device.allocate(1)?;
    global_norm(device, norm.slice(), sums.slice(), grads.slice())?;
    Ok(device.download(norm.slice())?[0])
}

fn fails_at(launch: u64, code: u32) -> Scenario {
    Scenario { fault: Some(FaultAt { launch, code }), ..Scenario::default() }
}

#[test]
fn fault_is_reported_by_first_wait_and_all_later_calls() {
    let test = "faults::fault_is_reported_by_first_wait_and_all_later_calls";
    let said = Child::on(test, &fails_at(3, 700)).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        tell(norm(&device).expect("the first two launches").to_string());
        tell(norm(&device).expect_err("the third").to_string());
        tell(device.synchronize().expect_err("it stays").to_string());
        tell(device.memory().expect_err("it stays").to_string());
        tell(Device::open(0).expect_err("it stays").to_string());
    });
    assert_snapshot!(said.output, @r#"
    5
    an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700): caused by one of the 2 kernels since the last synchronization, the latest being global_norm_root (HEADROOM_CUDA_SYNC=1 shows which), detected at kernels/src/cuda/ops/global_norm.rs:LINE
    an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700): caused by one of the 2 kernels since the last synchronization, the latest being global_norm_root (HEADROOM_CUDA_SYNC=1 shows which), detected at tests/fake_cuda/tests/states/faults.rs:LINE
    an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700): caused by one of the 2 kernels since the last synchronization, the latest being global_norm_root (HEADROOM_CUDA_SYNC=1 shows which), detected at tests/fake_cuda/tests/states/faults.rs:LINE
    cuStreamCreate at kernels/src/cuda/device.rs:LINE: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)
    "#);
}

/// Drivers since CUDA 12.8 return codes that older headers lack. A code without a description is shown as its number.
#[test]
fn codes_of_newer_drivers_are_reported_by_their_numbers() {
    let test = "faults::codes_of_newer_drivers_are_reported_by_their_numbers";
    let output = [721, 916, 917, 918, 919, 12345].map(|code| {
        let said = Child::on(test, &fails_at(2, code)).run(|tell| {
            let device = Device::open(0).expect("a GPU");
            tell(norm(&device).expect_err("the second launch").to_string());
        });
        said.output
    });
    assert_snapshot!(output.concat(), @r#"
    Tensor Memory not completely freed (CUDA_ERROR_TENSOR_MEMORY_LEAK, 721): caused by one of the 2 kernels since the last synchronization, the latest being global_norm_root (HEADROOM_CUDA_SYNC=1 shows which), detected at tests/fake_cuda/tests/states/faults.rs:LINE
    cuMemcpyDtoHAsync_v2 at tests/fake_cuda/tests/states/faults.rs:LINE: key rotation in progress (CUDA_ERROR_KEY_ROTATION, 916)
    cuMemcpyDtoHAsync_v2 at tests/fake_cuda/tests/states/faults.rs:LINE: the driver returned an error code that it does not describe (no name, 917)
    cuMemcpyDtoHAsync_v2 at tests/fake_cuda/tests/states/faults.rs:LINE: the driver returned an error code that it does not describe (no name, 918)
    cuMemcpyDtoHAsync_v2 at tests/fake_cuda/tests/states/faults.rs:LINE: the driver returned an error code that it does not describe (no name, 919)
    cuMemcpyDtoHAsync_v2 at tests/fake_cuda/tests/states/faults.rs:LINE: the driver returned an error code that it does not describe (no name, 12345)
    "#);
}

#[test]
fn an_unknown_code_of_the_first_call_is_reported_by_its_number() {
    let test = "faults::an_unknown_code_of_the_first_call_is_reported_by_its_number";
    let said = Child::on(test, &Scenario { init: 9999, ..Scenario::default() }).run(|tell| {
        tell(Device::open(0).expect_err("an unknown code is an error").to_string());
    });
    assert_snapshot!(said.output, @"cuInit at kernels/src/cuda/driver.rs:LINE: the driver returned an error code that it does not describe (no name, 9999)");
}

#[test]
fn a_launch_that_is_waited_for_is_the_one_that_failed() {
    let test = "faults::a_launch_that_is_waited_for_is_the_one_that_failed";
    let said = Child::on(test, &fails_at(3, 719)).with("HEADROOM_CUDA_SYNC", "1").run(|tell| {
        let device = Device::open(0).expect("a GPU");
        tell(norm(&device).expect("the first two launches").to_string());
        tell(norm(&device).expect_err("the third").to_string());
    });
    assert_snapshot!(said.output, @r#"
    5
    unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED, 719): caused by the kernel global_norm_squared_forward, detected at kernels/src/cuda/ops/global_norm.rs:LINE
    "#);
}

#[test]
fn use_after_free_is_an_illegal_address_with_kernel_line() {
    let test = "faults::use_after_free_is_an_illegal_address_with_kernel_line";
    let child = Child::on(test, &Scenario::default()).with("HEADROOM_CUDA_SYNC", "1");
    let said = child.run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let [norm, sums, grads] = [1, N_SUMS, 1000].map(|n| device.allocate::<f32>(n).expect("it is free"));
        let gone = grads.slice();
        drop(grads);
        tell(global_norm(&device, norm.slice(), sums.slice(), gone).expect_err("it is gone").to_string());
    });
    assert_snapshot!(said.output, @"an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700): caused by the kernel global_norm_squared_forward, detected at kernels/src/cuda/ops/global_norm.rs:LINE");
    let line = "fake libcuda: global_norm_squared_forward, global_norm.cu:";
    assert!(said.errors.contains(line) && said.errors.contains("where nothing is allocated"), "{}", said.errors);
}

static MODULE: Module = Module { name: "global_norm", ptx: include_str!("../../../../kernels/ptx/global_norm.ptx") };

const fn root(threads: u32, shared_bytes: u32) -> Kernel {
    Kernel { module: &MODULE, name: "global_norm_root", threads, shared_bytes }
}

#[test]
fn launches_that_no_gpu_would_take_are_refused() {
    let gpu = FakeGpu { shared_bytes_max: 49_152, ..FakeGpu::default() };
    let scenario = Scenario { gpus: vec![gpu], ..Scenario::default() };
    let said = Child::on("faults::launches_that_no_gpu_would_take_are_refused", &scenario).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let [out, inp] = [0, 1].map(|_| device.upload(&[0.0_f32; 512]).expect("it is free"));
        let (out, inp) = (out.slice(), inp.slice());
        let one = Grid::x(1).expect("it can");
        let none = Grid { x: 0, y: 1, z: 1 };
        let mut refused = |result: Result<(), CudaError>| tell(result.expect_err("no GPU would").to_string());
        refused(device.launch(&root(512, 65_536), one, &[&out, &inp, &512_u32]));
        refused(device.launch(&root(512, 64), one, &[&out, &inp]));
        refused(device.launch(&root(512, 64), one, &[&out, &inp, &512_u64]));
        refused(device.launch(&root(2048, 64), one, &[&out, &inp, &512_u32]));
        refused(device.launch(&root(512, 64), none, &[&out, &inp, &512_u32]));
        device.launch(&root(512, 64), one, &[&out, &inp, &512_u32]).expect("a GPU would");
        device.synchronize().expect("nothing failed");
    });
    assert_snapshot!(said.output, @r#"
    global_norm_root needs 65536 bytes of shared memory a block, and this GPU has 49152
    global_norm_root takes arguments of [8, 8, 4] bytes and was given [8, 8], at tests/fake_cuda/tests/states/faults.rs:LINE
    global_norm_root takes arguments of [8, 8, 4] bytes and was given [8, 8, 8], at tests/fake_cuda/tests/states/faults.rs:LINE
    cuLaunchKernel at tests/fake_cuda/tests/states/faults.rs:LINE: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)
    cuLaunchKernel at tests/fake_cuda/tests/states/faults.rs:LINE: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)
    "#);
}

#[test]
fn ptx_that_is_not_of_the_sources_is_refused_with_the_reason() {
    static STALE: Module = Module {
        name: "stale",
        ptx: ".version 8.4\n.target sm_80\n.visible .entry global_norm_root(.param .u64 a) { ret; }\n",
    };
    static NEWER: Module = Module { name: "newer", ptx: ".version 9.9\n.target sm_80\n.visible .entry a() { ret; }\n" };
    static TORN: Module = Module { name: "torn", ptx: ".version 8.4\n.target sm_80\n" };
    static WITHOUT: Kernel = Kernel { module: &MODULE, name: "global_norm_gone", threads: 32, shared_bytes: 0 };
    let test = "faults::ptx_that_is_not_of_the_sources_is_refused_with_the_reason";
    let said = Child::on(test, &Scenario::default()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        for module in [&STALE, &NEWER, &TORN] {
            let kernel = Kernel { module, name: "a", threads: 32, shared_bytes: 0 };
            tell(device.launch(&kernel, Grid::x(1).expect("it can"), &[]).expect_err("it is refused").to_string());
        }
        tell(device.launch(&WITHOUT, Grid::x(1).expect("it can"), &[]).expect_err("it is refused").to_string());
    });
    assert_snapshot!(said.output, @r#"
    the driver refuses kernels/ptx/stale.ptx with device kernel image is invalid (CUDA_ERROR_INVALID_IMAGE, 200): global_norm_root takes parameters of [8] bytes in the PTX and of [8, 8, 4] in its source: it is of an older one
    the driver refuses kernels/ptx/newer.ptx with the provided PTX was compiled with an unsupported toolchain. (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222): PTX of version 9.9, newer than this driver
    the driver refuses kernels/ptx/torn.ptx with a PTX JIT compilation failed (CUDA_ERROR_INVALID_PTX, 218): it has no .entry
    cuModuleGetFunction at tests/fake_cuda/tests/states/faults.rs:LINE: named symbol not found (CUDA_ERROR_NOT_FOUND, 500)
    "#);
}
