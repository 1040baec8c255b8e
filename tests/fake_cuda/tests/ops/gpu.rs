//! The GPU that ops are tested on.

use std::{
    env,
    io::{self, Write},
    sync::OnceLock,
};

use headroom_fake_cuda::{LaunchSettingsGuard, library};
use headroom_kernels::{
    cuda::{Allocation, Bf16, BuiltinKernels, CublasLt, CudaError, Cudnn, Device, Gemm, driver},
    rng::Stream,
};

/// Seeds of the emulator's thread order: 0 is the order of indices, the others are random. The interpreter needs fewer:
/// only the order of its warps between barriers varies.
const SEEDS: &[u64] = if crate::COMPILED { &[0, 1] } else { &[0, 1, 2, 3] };

/// The result of a check: success, or wrong numbers, or an error of the GPU.
pub type Outcome = Result<(), CheckFailure>;

#[derive(Debug)]
pub enum CheckFailure {
    /// Wrong numbers.
    Numbers(String),
    /// An error of the GPU or its driver.
    FakeGpu(CudaError),
}

impl From<CudaError> for CheckFailure {
    fn from(error: CudaError) -> Self {
        Self::FakeGpu(error)
    }
}

/// With the value 1, a test without a GPU fails. Without this, measurements meant for a GPU would silently pass on the
/// emulated one.
const REQUIRED_VARIABLE: &str = "HEADROOM_CUDA_REQUIRED";
/// A seed for inputs in place of their own, so that a GPU can be tested with different inputs each time.
const SEED_VARIABLE: &str = "HEADROOM_OPS_SEED";
/// The note of a test that only the emulated GPU can run: the two words that `cargo xtask gpu` searches for.
const EMULATED_ALONE: &str = "emulated alone";

/// Returns whether this machine has a GPU to test on; not if `HEADROOM_CUDA` names another library. The check runs
/// once, because later the emulated GPU is the loaded driver.
fn has_gpu() -> bool {
    // The PTX is always interpreted, because a real driver would compile it.
    if crate::COMPILED {
        return false;
    }
    static HAS_GPU: OnceLock<bool> = OnceLock::new();
    *HAS_GPU.get_or_init(|| {
        let required = env::var_os(REQUIRED_VARIABLE).is_some_and(|value| value == "1");
        let named = env::var_os(driver::VARIABLE).is_some();
        decide(required, named, || Device::open(0).map(drop)).unwrap_or_else(|why| panic!("{why}"))
    })
}

/// Decides whether tests run on the GPU. The emulated one is used only if there is no driver to open. A GPU that fails
/// to open is an error, because otherwise the fallback would go unnoticed.
fn decide(required: bool, named: bool, open: impl FnOnce() -> Result<(), CudaError>) -> Result<bool, String> {
    if named && !required {
        return Ok(false);
    }
    match open() {
        Ok(()) => Ok(true),
        Err(error) if required => Err(format!("{REQUIRED_VARIABLE} asks for a GPU, and none opens: {error}")),
        Err(CudaError::NoDriver { .. } | CudaError::NoGpu) => Ok(false),
        Err(error) => Err(format!(
            "this machine's GPU does not open: {error}; with any value of {} the emulated GPU is tested",
            driver::VARIABLE
        )),
    }
}

/// Prints a note that the test runner does not capture.
fn write_note(text: &str) {
    // The note is optional, so errors are ignored.
    let _: io::Result<()> = writeln!(io::stdout(), "{text}");
}

/// Opens the emulated GPU for this thread, with an order of threads.
fn emulated(seed: u64) -> io::Result<(Device, LaunchSettingsGuard)> {
    let here = if crate::COMPILED { LaunchSettingsGuard::compiled(seed)? } else { LaunchSettingsGuard::seeded(seed)? };
    let device = Device::open_with(&library()?, 0).map_err(io::Error::other)?;
    Ok((device, here))
}

/// Asserts that a check passes: on the GPU, or on the emulated one for each order of threads.
#[track_caller]
pub fn holds(check: impl Fn(&Device) -> Outcome) {
    holds_in(SEEDS, check);
}

/// Asserts that a check passes for one order of threads, not that of indices. For checks with many launches whose ops
/// are each tested in every order.
#[track_caller]
pub fn holds_in_an_order(check: impl Fn(&Device) -> Outcome) {
    holds_in(&SEEDS[1..2], check);
}

#[track_caller]
fn holds_in(seeds: &[u64], check: impl Fn(&Device) -> Outcome) {
    if has_gpu() {
        return check(&Device::open(0).expect("it was opened just now")).expect("on the GPU");
    }
    for &seed in seeds {
        let (device, here) = emulated(seed).expect("cargo builds the library with this test");
        if let Err(wrong) = check(&device) {
            let fault = here.fault().expect("it is our library").unwrap_or_default();
            panic!("by the order of seed {seed}: {wrong:?} {fault}");
        }
    }
}

/// A GEMM backend with its workspace.
#[derive(Debug)]
pub struct GemmBackendUnderTest {
    /// The backend.
    pub gemm: Box<dyn Gemm>,
    _workspace: Allocation<u8>,
}

/// Returns the built-in kernels and cuBLASLt: the emulated one, or on a real GPU the host's, if any.
pub fn ways(device: &Device) -> Result<Vec<GemmBackendUnderTest>, CheckFailure> {
    let mut all: Vec<Box<dyn Gemm>> = vec![Box::new(BuiltinKernels)];
    all.extend(cublaslt(device).map(|library| Box::new(library) as Box<dyn Gemm>));
    let ready = |mut gemm: Box<dyn Gemm>| {
        let workspace = device.allocate(gemm.gemm_backend().workspace_bytes())?;
        gemm.begin(workspace.slice());
        Ok(GemmBackendUnderTest { gemm, _workspace: workspace })
    };
    all.into_iter().map(ready).collect()
}

/// Returns cuBLASLt, which the emulated GPU always has.
pub fn cublaslt(device: &Device) -> Option<CublasLt> {
    if has_gpu() {
        return CublasLt::find(device, None).ok();
    }
    let path = library().expect("cargo builds the library with this test");
    Some(CublasLt::at(device, &path, None).expect("it is the library of products too"))
}

/// Returns cuDNN, which the emulated GPU always has.
pub fn cudnn(device: &Device) -> Option<Cudnn> {
    if has_gpu() {
        return Cudnn::find(device, None).ok();
    }
    let path = library().expect("cargo builds the library with this test");
    Some(Cudnn::at(device, &path, None).expect("it is the library of attention too"))
}

/// Asserts that a check detects a mutation of `mutations.txt` in at least one order of threads, as a fault or as wrong
/// numbers. A real GPU has no mutated kernels.
#[track_caller]
pub fn catches(kernel: &str, mutation: &str, check: impl Fn(&Device) -> Outcome) {
    if has_gpu() {
        write_note(EMULATED_ALONE);
        return;
    }
    assert!(is_noticed(kernel, mutation, check), "no test detects {mutation} in {kernel}");
}

/// Returns whether a check detects a mutation on the emulated GPU in at least one order of threads.
pub fn is_noticed(kernel: &str, mutation: &str, check: impl Fn(&Device) -> Outcome) -> bool {
    SEEDS.iter().any(|&seed| {
        let (device, here) = emulated(seed).expect("cargo builds the library with this test");
        here.mutate(kernel, mutation).expect("it is our library");
        match check(&device) {
            Err(CheckFailure::FakeGpu(CudaError::Fault { .. }) | CheckFailure::Numbers(_)) => true,
            Err(CheckFailure::FakeGpu(other)) => panic!("{kernel} with {mutation}: {other}"),
            Ok(()) => false,
        }
    })
}

/// Returns the random stream of a check's inputs. [`SEED_VARIABLE`] shifts its seed.
pub fn inputs(seed: u64, name: u64) -> Stream {
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    let given = SEED.get_or_init(|| {
        let text = env::var(SEED_VARIABLE).ok()?;
        Some(text.parse().unwrap_or_else(|error| panic!("{SEED_VARIABLE} is {text:?}: {error}")))
    });
    Stream::new(given.map_or(seed, |given| given.wrapping_add(seed)), name)
}

/// Returns normally distributed numbers from the stream of this name.
pub fn normals(name: u64, n: usize) -> Vec<f32> {
    let mut stream = inputs(1337, name);
    #[expect(clippy::cast_possible_truncation, reason = "inputs are f32")]
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// Returns the same numbers rounded to bfloat16; references start from these.
pub fn normals_bf16(name: u64, n: usize) -> Vec<Bf16> {
    normals(name, n).into_iter().map(Bf16::from_f32).collect()
}

#[test]
fn emulated_gpu_replaces_only_missing_gpu() {
    let no_driver = || CudaError::NoDriver { reason: "no library".to_owned() };
    let no_context = || CudaError::NoRoomForContext { name: "a GPU".to_owned(), total_bytes: 1 << 30 };
    assert_eq!(decide(false, false, || Ok(())), Ok(true));
    assert_eq!(decide(false, true, || Ok(())), Ok(false), "another library is named");
    assert_eq!(decide(true, true, || Ok(())), Ok(true), "a GPU is required, and the named library opens");
    assert_eq!(decide(false, false, || Err(no_driver())), Ok(false));
    assert_eq!(decide(false, false, || Err(CudaError::NoGpu)), Ok(false));
    for (required, error) in
        [(true, no_driver()), (true, CudaError::NoGpu), (false, no_context()), (true, no_context())]
    {
        let message = decide(required, false, || Err(error.clone())).expect_err("it does not open");
        assert!(message.contains(&error.to_string()), "{message}");
    }
}
