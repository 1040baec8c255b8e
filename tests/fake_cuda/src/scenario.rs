//! What a scenario says: the machine's driver and cards, and what fails.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{VARIABLE, library};

/// A machine. What a file does not say is that of one with an RTX 4070 that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// As 12080 for 12.8.
    pub driver_version: i32,
    /// The code that `cuInit` answers.
    pub init: u32,
    /// The cards, as the driver counts them.
    pub cards: Vec<Card>,
    /// The order in which a kernel's threads run; 0 is that of their numbers.
    pub seed: u64,
    /// By a kernel's name, the mistake that it is run with: one of `kernels/emulator/mutations.txt`.
    pub mutations: BTreeMap<String, String>,
    /// The launch, counted from 1, that fails, and as what.
    pub fault: Option<FaultAt>,
    /// The allocation, counted from 1, that finds no memory though it was free before.
    pub no_memory_at: Option<u64>,
    /// After so many launches no file of kernels finds memory.
    pub no_modules_after: Option<u64>,
    /// The library of products.
    pub cublaslt: CublasLt,
    /// The library of graphs.
    pub cudnn: Cudnn,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver_version: 12_080,
            init: 0,
            cards: vec![Card::default()],
            seed: 1,
            mutations: BTreeMap::new(),
            fault: None,
            no_memory_at: None,
            no_modules_after: None,
            cublaslt: CublasLt::default(),
            cudnn: Cudnn::default(),
        }
    }
}

impl Scenario {
    /// Writes it into a folder; gives what to start a program with, so that it finds this machine.
    ///
    /// # Errors
    /// The folder cannot be written, or cargo built no library beside this test.
    pub fn play(&self, folder: &Path) -> io::Result<[(&'static str, OsString); 2]> {
        let path: PathBuf = folder.join("scenario.json");
        // Renamed into its place, so that nobody reads half of one.
        let new = folder.join("scenario.new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, &path)?;
        Ok([("HEADROOM_CUDA", library()?.into()), (VARIABLE, path.into())])
    }
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// As NVML has it.
    pub uuid: String,
    /// What it can: 8 and 9 for 8.9.
    pub capability: (i32, i32),
    /// The whole of its memory, as the driver tells it.
    pub total_bytes: u64,
    /// What a process's context takes of it.
    pub context_bytes: u64,
    /// What other processes have.
    pub others_bytes: u64,
    /// Its multiprocessors.
    pub multiprocessors: i32,
    /// Shared memory that a block can have where its kernel asks for it.
    pub shared_bytes_max: u32,
}

impl Default for Card {
    fn default() -> Self {
        Self {
            name: "NVIDIA GeForce RTX 4070".to_owned(),
            uuid: "GPU-00000000-0000-4000-8000-000000000000".to_owned(),
            capability: (8, 9),
            total_bytes: 12_878_086_144,
            context_bytes: 256 << 20,
            others_bytes: 0,
            multiprocessors: 46,
            shared_bytes_max: 101_376,
        }
    }
}

/// The library of products: this one too, under its own name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CublasLt {
    /// As 120803 for 12.8.3.
    pub version: usize,
    /// What `cublasLtCreate` answers.
    pub create: u32,
    /// What it can do, the one first that it proposes first.
    pub algorithms: Vec<Algorithm>,
    /// Products whose result has so many rows, as the library counts, have no algorithm.
    pub none_for_rows: Vec<u64>,
    /// The product, counted from 1, that is refused, and what is answered.
    pub refused: Option<FaultAt>,
}

impl Default for CublasLt {
    fn default() -> Self {
        let one = |parts, scheme, workspace_bytes, millis| Algorithm { parts, scheme, workspace_bytes, millis };
        // Those that go unasked for are the fastest: one without an order, and one that needs more than there is.
        let algorithms = vec![one(1, 0, 0, 3000), one(2, 2, 1 << 20, 1000), one(2, 1, 0, 10), one(3, 2, 64 << 20, 1)];
        Self { version: 120_803, create: 0, algorithms, none_for_rows: vec![], refused: None }
    }
}

/// A way of computing a product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Algorithm {
    /// Parts that a sum is cut into.
    pub parts: u64,
    /// How they are added up: 0 where there is one, 2 in a workspace, and 1 in the result, as they come.
    pub scheme: u32,
    /// Room that it needs.
    pub workspace_bytes: u64,
    /// What it takes, by the card's clock; nobody waits for it.
    pub millis: u64,
}

/// The library of graphs: this one too, under its own name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cudnn {
    /// As 91900 for 9.19.0.
    pub version: usize,
    /// What `cudnnCreate` answers.
    pub create: u32,
    /// What heuristics answer when they are finalized.
    pub heuristics: u32,
    /// What it can do, the one first that heuristics propose first.
    pub engines: Vec<Engine>,
    /// The execution, counted from 1, that is refused, and what is answered.
    pub refused: Option<FaultAt>,
}

impl Default for Cudnn {
    fn default() -> Self {
        let one = |workspace_bytes, millis, determinism| Engine {
            workspace_bytes,
            millis,
            determinism,
            wrong: false,
            plan: 0,
        };
        // The fastest is the one whose results do not repeat, and it says so.
        let engines = vec![
            one(1 << 20, 1000, Determinism::Repeats),
            one(0, 3000, Determinism::Repeats),
            one(0, 10, Determinism::Noted),
        ];
        Self { version: 91_900, create: 0, heuristics: 0, engines, refused: None }
    }
}

/// A way of computing a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Room that it needs.
    pub workspace_bytes: u64,
    /// What it takes, by the card's clock; nobody waits for it.
    pub millis: u64,
    /// Whether its results repeat.
    pub determinism: Determinism,
    /// Whether its results are wrong: every choice between two values is of the first, which leaves a mask out.
    pub wrong: bool,
    /// What its plan answers when it is finalized.
    pub plan: u32,
}

/// Whether results repeat: else every second execution of a graph ends one unit of bfloat16 away in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Determinism {
    /// They do.
    Repeats,
    /// They do not, and the engine's numerical notes say so.
    Noted,
    /// They do not, and nothing says so.
    Hidden,
}

/// A launch that fails, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultAt {
    /// Counted from 1.
    pub launch: u64,
    /// As 700, an illegal address.
    pub code: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_does_not_say_is_the_usual() {
        let read = |text: &str| serde_json::from_str::<Scenario>(text).expect("a scenario");
        assert_eq!(read("{}"), Scenario::default());
        assert_eq!(read(r#"{"cards": [{"capability": [7, 5]}]}"#).cards[0].name, Card::default().name);
        serde_json::from_str::<Scenario>(r#"{"card": []}"#).expect_err("a slip of the pen is told");
    }
}
