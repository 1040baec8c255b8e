//! The card that ops are tested on.

use std::{
    env,
    io::{self, Write},
    sync::OnceLock,
};

use headroom_fake_cuda::{Here, library};
use headroom_kernels::{
    cuda::{Allocation, Bf16, CublasLt, CudaError, Cudnn, Device, Own, Products, driver},
    rng::Stream,
};

/// Orders in which the emulator's threads run: by their numbers, and at random.
/// The interpreter's warps have nothing to interleave between barriers but their order.
const SEEDS: &[u64] = if crate::COMPILED { &[0, 1] } else { &[0, 1, 2, 3] };

/// What a check comes to: what is wrong, or what the card says.
pub type Outcome = Result<(), Wrong>;

/// What is wrong.
#[derive(Debug)]
pub enum Wrong {
    /// The numbers.
    Numbers(String),
    /// The card says so.
    Card(CudaError),
}

impl From<CudaError> for Wrong {
    fn from(error: CudaError) -> Self {
        Self::Card(error)
    }
}

/// With the value 1 a test that finds no card fails: where a card is to be measured, the emulated one would pass unseen.
const REQUIRED_VARIABLE: &str = "HEADROOM_CUDA_REQUIRED";
/// A number that inputs are made of instead of their own, so that a card is tried with other ones each time.
const SEED_VARIABLE: &str = "HEADROOM_OPS_SEED";
/// What a test that only the emulated card can run prints on another: the two words that `cargo xtask gpu` looks for.
const EMULATED_ALONE: &str = "emulated alone";

/// Whether this machine has a card that is to be used; `HEADROOM_CUDA` names another library where it is not. It is asked
/// once: when the emulated one is open, it is what answers.
fn has_card() -> bool {
    // The PTX is interpreted whatever this machine has: a card's driver would compile it.
    if crate::COMPILED {
        return false;
    }
    static HAS_CARD: OnceLock<bool> = OnceLock::new();
    *HAS_CARD.get_or_init(|| {
        let required = env::var_os(REQUIRED_VARIABLE).is_some_and(|value| value == "1");
        let named = env::var_os(driver::VARIABLE).is_some();
        decide(required, named, || Device::open(0).map(drop)).unwrap_or_else(|why| panic!("{why}"))
    })
}

/// Whether tests run on the card. The emulated one stands in only where there is nothing to open: a card that is there
/// and does not open is a failure, as nobody would see that the tests ran elsewhere.
fn decide(required: bool, named: bool, open: impl FnOnce() -> Result<(), CudaError>) -> Result<bool, String> {
    if named && !required {
        return Ok(false);
    }
    match open() {
        Ok(()) => Ok(true),
        Err(error) if required => Err(format!("{REQUIRED_VARIABLE} asks for a card, and none opens: {error}")),
        Err(CudaError::NoDriver { .. } | CudaError::NoCard) => Ok(false),
        Err(error) => Err(format!(
            "this machine's card does not open: {error}; with any value of {} the emulated card is tested",
            driver::VARIABLE
        )),
    }
}

/// Says something past the test runner, which keeps what a test prints.
fn write_note(text: &str) {
    // Whoever does not read it misses nothing.
    let _: io::Result<()> = writeln!(io::stdout(), "{text}");
}

/// The emulated card, for this thread, with an order of threads.
fn emulated(seed: u64) -> io::Result<(Device, Here)> {
    let here = if crate::COMPILED { Here::compiled(seed)? } else { Here::seeded(seed)? };
    let device = Device::open_with(&library()?, 0).map_err(io::Error::other)?;
    Ok((device, here))
}

/// Holds that a check finds nothing wrong: on the card, or on the emulated one in each order of threads.
#[track_caller]
pub fn holds(check: impl Fn(&Device) -> Outcome) {
    holds_in(SEEDS, check);
}

/// The same in one order that is not that of their numbers, for checks of many launches whose ops are held in every order.
#[track_caller]
pub fn holds_in_an_order(check: impl Fn(&Device) -> Outcome) {
    holds_in(&SEEDS[1..2], check);
}

#[track_caller]
fn holds_in(seeds: &[u64], check: impl Fn(&Device) -> Outcome) {
    if has_card() {
        return check(&Device::open(0).expect("it was opened just now")).expect("on the card");
    }
    for &seed in seeds {
        let (device, here) = emulated(seed).expect("cargo builds the library with this test");
        if let Err(wrong) = check(&device) {
            let fault = here.fault().expect("it is our library").unwrap_or_default();
            panic!("by the order of seed {seed}: {wrong:?} {fault}");
        }
    }
}

/// Somebody who multiplies matrices, with the room that it needs.
#[derive(Debug)]
pub struct Way {
    /// Who.
    pub products: Box<dyn Products>,
    _workspace: Allocation<u8>,
}

/// Our kernels, and cuBLASLt: the emulated one, or the host's where a card is used and has one.
pub fn ways(device: &Device) -> Result<Vec<Way>, Wrong> {
    let mut all: Vec<Box<dyn Products>> = vec![Box::new(Own)];
    all.extend(cublaslt(device).map(|library| Box::new(library) as Box<dyn Products>));
    let ready = |mut products: Box<dyn Products>| {
        let workspace = device.allocate(products.multiplier().workspace_bytes())?;
        products.begin(workspace.slice());
        Ok(Way { products, _workspace: workspace })
    };
    all.into_iter().map(ready).collect()
}

/// The library, which the emulated card always has.
pub fn cublaslt(device: &Device) -> Option<CublasLt> {
    if has_card() {
        return CublasLt::find(device, None).ok();
    }
    let path = library().expect("cargo builds the library with this test");
    Some(CublasLt::at(device, &path, None).expect("it is the library of products too"))
}

/// The library of attention, likewise.
pub fn cudnn(device: &Device) -> Option<Cudnn> {
    if has_card() {
        return Cudnn::find(device, None).ok();
    }
    let path = library().expect("cargo builds the library with this test");
    Some(Cudnn::at(device, &path, None).expect("it is the library of attention too"))
}

/// Holds that a check finds a mistake of `mutations.txt`, by one of the orders at least: as a fault or as wrong numbers.
/// A card has no kernels with mistakes.
#[track_caller]
pub fn catches(kernel: &str, mutation: &str, check: impl Fn(&Device) -> Outcome) {
    if has_card() {
        write_note(EMULATED_ALONE);
        return;
    }
    assert!(is_noticed(kernel, mutation, check), "nobody notices {mutation} in {kernel}");
}

/// Whether a check finds a mistake on the emulated card, in one of the orders at least.
pub fn is_noticed(kernel: &str, mutation: &str, check: impl Fn(&Device) -> Outcome) -> bool {
    SEEDS.iter().any(|&seed| {
        let (device, here) = emulated(seed).expect("cargo builds the library with this test");
        here.mutate(kernel, mutation).expect("it is our library");
        match check(&device) {
            Err(Wrong::Card(CudaError::Fault { .. }) | Wrong::Numbers(_)) => true,
            Err(Wrong::Card(other)) => panic!("{kernel} with {mutation}: {other}"),
            Ok(()) => false,
        }
    })
}

/// The stream of random numbers that a check's inputs come from, by its own seed where [`SEED_VARIABLE`] has none.
pub fn inputs(seed: u64, name: u64) -> Stream {
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    let given = SEED.get_or_init(|| {
        let text = env::var(SEED_VARIABLE).ok()?;
        Some(text.parse().unwrap_or_else(|error| panic!("{SEED_VARIABLE} is {text:?}: {error}")))
    });
    Stream::new(given.map_or(seed, |given| given.wrapping_add(seed)), name)
}

/// Normal numbers, of a stream by its name.
pub fn normals(name: u64, n: usize) -> Vec<f32> {
    let mut stream = inputs(1337, name);
    #[expect(clippy::cast_possible_truncation, reason = "inputs are f32")]
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// The same as the card keeps them; what is compared starts from these.
pub fn normals_bf16(name: u64, n: usize) -> Vec<Bf16> {
    normals(name, n).into_iter().map(Bf16::from_f32).collect()
}

#[test]
fn the_emulated_card_stands_in_for_none_and_for_no_other() {
    let no_driver = || CudaError::NoDriver { reason: "no library".to_owned() };
    let no_context = || CudaError::NoRoomForContext { name: "a card".to_owned(), total_bytes: 1 << 30 };
    assert_eq!(decide(false, false, || Ok(())), Ok(true));
    assert_eq!(decide(false, true, || Ok(())), Ok(false), "another library is named");
    assert_eq!(decide(true, true, || Ok(())), Ok(true), "a card is asked for, and what is named opens as one");
    assert_eq!(decide(false, false, || Err(no_driver())), Ok(false));
    assert_eq!(decide(false, false, || Err(CudaError::NoCard)), Ok(false));
    for (required, error) in
        [(true, no_driver()), (true, CudaError::NoCard), (false, no_context()), (true, no_context())]
    {
        let told = decide(required, false, || Err(error.clone())).expect_err("it does not open");
        assert!(told.contains(&error.to_string()), "{told}");
    }
}
