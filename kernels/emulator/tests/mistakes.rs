//! The emulator detects each mistake of `mistakes.cu` under every order of threads, and reports none in correct
//! kernels.

use std::ffi::c_void;

use headroom_emulator::{Emulator, Fault, FaultKind, Kernel, Launch, kernel, kernels};

const THREADS: usize = 64;
const BLOCK: [u32; 3] = [64, 1, 1];
const SHARED_BYTES: u32 = 1024;

/// Elements of the input.
const N: usize = 128;

/// An emulated GPU with an input of `N` floats, element `i` being `i`, and an output of one float per thread.
struct Gpu {
    emulator: Emulator,
    out: u64,
    inp: u64,
}

impl Gpu {
    fn new(seed: u64) -> Self {
        let mut emulator = Emulator::new(seed);
        let [out, inp] = [THREADS, N].map(|n| emulator.allocate(4 * n as u64).expect("some bytes"));
        let numbers: Vec<u8> = (0..N).flat_map(|i| (i as f32).to_le_bytes()).collect();
        emulator.write(inp, &numbers).expect("it was allocated");
        Self { emulator, out, inp }
    }

    fn launch(&mut self, name: &str, blocks: u32, numbers: &[u32], with_input: bool) -> Result<Vec<f32>, Box<Fault>> {
        let (out, inp) = (self.out, self.inp);
        let mut arguments = vec![(&raw const out).cast::<c_void>()];
        if with_input {
            arguments.push((&raw const inp).cast());
        }
        arguments.extend(numbers.iter().map(|number| (&raw const *number).cast::<c_void>()));
        let kernel = kernel(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(kernel.parameter_bytes().len(), arguments.len(), "{name}");
        let launch = Launch { grid: [blocks, 1, 1], block: BLOCK, shared_bytes: SHARED_BYTES };
        // SAFETY: pointers are 8 bytes and numbers are 4, as the kernels declare.
        unsafe { self.emulator.launch(kernel, launch, &arguments) }?;
        let mut bytes = [0; 4 * THREADS];
        self.emulator.read(out, &mut bytes).expect("it was allocated");
        Ok(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect())
    }
}

/// The outcomes of a kernel under several orders of threads.
fn each(name: &str, blocks: u32, numbers: &[u32], with_input: bool) -> Vec<Result<Vec<f32>, Box<Fault>>> {
    (0..8).map(|seed| Gpu::new(seed).launch(name, blocks, numbers, with_input)).collect()
}

/// Asserts that a kernel has a given fault under every order.
#[track_caller]
fn is_wrong(name: &str, blocks: u32, numbers: &[u32], with_input: bool, how: impl Fn(&FaultKind) -> bool) {
    for (seed, outcome) in each(name, blocks, numbers, with_input).into_iter().enumerate() {
        let fault = outcome.expect_err(&format!("{name}, seed {seed}"));
        assert!(how(&fault.what), "{name}, seed {seed}: {fault}");
        assert!(fault.place.starts_with("mistakes.cu:") || fault.place.starts_with("device.cuh:"), "{fault}");
    }
}

/// Asserts that a kernel gives the expected result under every order.
#[track_caller]
fn is_right(name: &str, numbers: &[u32], with_input: bool, want: impl Fn(usize) -> f32) {
    for outcome in each(name, 1, numbers, with_input) {
        let out = outcome.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(out.iter().enumerate().all(|(i, &out)| out == want(i)), "{name}: {out:?}");
    }
}

#[test]
fn a_missing_barrier_of_a_block_is_a_race() {
    for barrier in [0, 1] {
        // Under some orders the neighbour has not written yet.
        is_wrong("neighbour", 1, &[barrier], true, |what| {
            matches!(what, FaultKind::Race { .. } | FaultKind::Unwritten { .. })
        });
    }
    is_right("neighbour", &[2], true, |i| ((i + 1) % THREADS) as f32);
}

#[test]
fn a_missing_barrier_of_a_warp_is_a_race() {
    is_wrong("neighbour_in_warp", 1, &[0], true, |what| {
        matches!(what, FaultKind::Race { .. } | FaultKind::Unwritten { .. })
    });
    is_right("neighbour_in_warp", &[1], true, |i| (i ^ 1) as f32);
}

#[test]
fn a_write_over_what_others_still_read_is_a_race() {
    is_wrong("overwritten", 1, &[0], false, |what| matches!(what, FaultKind::Race { .. }));
    is_right("overwritten", &[1], false, |_| 3.0);
}

#[test]
fn blocks_that_write_the_same_element_race() {
    is_wrong(
        "two_blocks",
        2,
        &[],
        false,
        |what| matches!(what, FaultKind::Race { other, .. } if other.contains("block 0")),
    );
}

#[test]
fn a_step_too_far_is_reported_with_its_allocation() {
    is_wrong("further", 1, &[65], true, |what| what.to_string().contains("byte 512 of an allocation of 512"));
    is_right("further", &[0], true, |i| i as f32);
}

#[test]
fn a_pair_has_to_begin_at_a_multiple_of_its_size() {
    is_wrong("pair_at", 1, &[4], true, |what| matches!(what, FaultKind::Misaligned { bytes: 8, .. }));
    is_right("pair_at", &[8], true, |_| 5.0);
}

#[test]
fn uninitialized_read_is_reported() {
    let mut gpu = Gpu::new(0);
    gpu.inp = gpu.emulator.allocate(256).expect("some bytes");
    let fault = gpu.launch("further", 1, &[0], true).expect_err("the memory is uninitialised");
    assert!(matches!(fault.what, FaultKind::Unwritten { offset: 0, .. }), "{fault}");
}

#[test]
fn a_barrier_that_half_of_a_block_reaches_is_reported() {
    is_wrong("divergent", 1, &[1], false, |what| matches!(what, FaultKind::OtherBarrier { .. }));
}

#[test]
fn a_lane_that_returned_cannot_take_part() {
    is_wrong("gone", 1, &[1], false, |what| matches!(what, FaultKind::NoLane { lane: 3 }));
    is_right("gone", &[0], false, |_| 32.0);
}

#[test]
fn a_copy_has_to_be_waited_for_and_met() {
    let numbers = |wait: u32, barrier: u32| [wait, barrier];
    is_wrong("copied", 1, &numbers(0, 1), true, |what| matches!(what, FaultKind::InFlight { .. }));
    is_wrong("copied", 1, &numbers(1, 0), true, |what| {
        matches!(what, FaultKind::Race { .. } | FaultKind::Unwritten { .. } | FaultKind::InFlight { .. })
    });
    let outcomes = each("copied", 1, &numbers(1, 1), true);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

#[test]
fn a_matrix_begins_at_a_multiple_of_sixteen() {
    is_wrong("crooked", 1, &[], false, |what| matches!(what, FaultKind::Misaligned { bytes: 16, .. }));
}

#[test]
fn too_little_shared_memory_is_reported() {
    let mut gpu = Gpu::new(0);
    let (out, barrier) = (gpu.out, 1_u32);
    let arguments = [(&raw const out).cast::<c_void>(), (&raw const barrier).cast()];
    let launch = Launch { grid: [1; 3], block: BLOCK, shared_bytes: 100 };
    let overwritten = kernel("overwritten").expect("a kernel");
    // SAFETY: a pointer and a number, as the kernel declares.
    let fault = unsafe { gpu.emulator.launch(overwritten, launch, &arguments) }.expect_err("it needs more");
    assert!(matches!(fault.what, FaultKind::SharedMemory { given_bytes: 100, .. }), "{fault}");
}

#[test]
fn a_product_is_that_of_its_matrices() {
    let mut emulator = Emulator::new(1);
    // Small whole numbers: exact in bfloat16, and their sums in float.
    let a: Vec<f32> = (0..256).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..128).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    let half = |values: &[f32]| -> Vec<u8> {
        values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect()
    };
    let [out, a_at, b_at] = [512, 512, 256].map(|bytes| emulator.allocate(bytes).expect("some bytes"));
    emulator.write(a_at, &half(&a)).expect("allocated");
    emulator.write(b_at, &half(&b)).expect("allocated");
    let arguments = [&raw const out, &raw const a_at, &raw const b_at].map(<*const u64>::cast::<c_void>);
    let launch = Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 };
    // SAFETY: three pointers, as the kernel declares.
    unsafe { emulator.launch(kernel("product").expect("a kernel"), launch, &arguments) }.expect("right");
    let mut bytes = [0; 512];
    emulator.read(out, &mut bytes).expect("allocated");
    for (i, bytes) in bytes.chunks_exact(4).enumerate() {
        let want: f32 = (0..16).map(|k| a[i / 8 * 16 + k] * b[i % 8 * 16 + k]).sum();
        assert_eq!(f32::from_le_bytes(bytes.try_into().expect("four")), want, "element {i}");
    }
}

#[test]
fn every_kernel_has_a_name_of_its_own() {
    let mut names: Vec<_> = kernels().map(Kernel::name).collect();
    let n = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n);
    assert!(kernel("global_norm_root").is_some() && kernel("global_norm_squared_forward__no_tail").is_some());
}
