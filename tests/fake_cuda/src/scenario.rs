//! Scenarios: the machine's driver and GPUs, and the calls that fail.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{VARIABLE, library};

/// A machine. The default has an RTX 4070 that no other process uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The driver's CUDA version, such as 12080 for 12.8.
    pub driver_version: i32,
    /// The code that `cuInit` returns.
    pub init: u32,
    /// The GPUs by the driver's index.
    pub gpus: Vec<FakeGpu>,
    /// The seed of the order in which a kernel's threads run; 0 for the order of their indices.
    pub seed: u64,
    /// The mutation that a kernel runs with, by the kernel's name: one of `kernels/emulator/mutations.txt`.
    pub mutations: BTreeMap<String, String>,
    /// The launch that fails, counted from 1, and its code.
    pub fault: Option<FaultAt>,
    /// The allocation, counted from 1, that fails although memory is free.
    pub no_memory_at: Option<u64>,
    /// The number of launches after which loading a module runs out of memory.
    pub no_modules_after: Option<u64>,
    /// The emulated cuBLASLt.
    pub cublaslt: CublasLt,
    /// The emulated cuDNN.
    pub cudnn: Cudnn,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver_version: 12_080,
            init: 0,
            gpus: vec![FakeGpu::default()],
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
    /// Writes the scenario to a directory, and returns the environment variables with which a program uses it.
    ///
    /// # Errors
    /// The directory cannot be written, or cargo did not build the library beside this test.
    pub fn play(&self, folder: &Path) -> io::Result<[(&'static str, OsString); 2]> {
        let path: PathBuf = folder.join("scenario.json");
        // Renamed, so that no reader sees a partial file.
        let new = folder.join("scenario.new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(new, &path)?;
        Ok([("HEADROOM_CUDA", library()?.into()), (VARIABLE, path.into())])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FakeGpu {
    pub name: String,
    /// Its UUID, as NVML reports it.
    pub uuid: String,
    /// Its compute capability: 8 and 9 for 8.9.
    pub capability: (i32, i32),
    /// All of its memory, as the driver reports it, in bytes.
    pub total_bytes: u64,
    /// Memory that a process's context takes, in bytes.
    pub context_bytes: u64,
    /// Memory of other processes, in bytes.
    pub others_bytes: u64,
    pub multiprocessors: i32,
    /// Largest opt-in shared memory per block, in bytes.
    pub shared_bytes_max: u32,
}

impl Default for FakeGpu {
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

/// The emulated cuBLASLt, which is this library under another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CublasLt {
    /// The version, such as 120803 for 12.8.3.
    pub version: usize,
    /// The status that `cublasLtCreate` returns.
    pub create: u32,
    /// Its algorithms, in the order in which heuristics propose them.
    pub algorithms: Vec<Algorithm>,
    /// Row counts of results, in the library's convention, for which there is no algorithm.
    pub none_for_rows: Vec<u64>,
    /// The GEMM that fails, counted from 1, and its status.
    pub refused: Option<FaultAt>,
}

impl Default for CublasLt {
    fn default() -> Self {
        let one = |parts, scheme, workspace_bytes, millis| Algorithm { parts, scheme, workspace_bytes, millis };
        // The fastest are those that the host must not use: one without a fixed order, and one that needs more
        // workspace than there is.
        let algorithms = vec![one(1, 0, 0, 3000), one(2, 2, 1 << 20, 1000), one(2, 1, 0, 10), one(3, 2, 64 << 20, 1)];
        Self { version: 120_803, create: 0, algorithms, none_for_rows: vec![], refused: None }
    }
}

/// An algorithm for a GEMM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Algorithm {
    /// Number of parts that a sum is split into.
    pub parts: u64,
    /// The reduction scheme: 0 for a single part, 2 in a workspace, and 1 in place in the order of completion.
    pub scheme: u32,
    pub workspace_bytes: u64,
    /// Its time on the emulated GPU's clock, in milliseconds; no real time passes.
    pub millis: u64,
}

/// The emulated cuDNN, which is this library under another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cudnn {
    /// The version, such as 91900 for 9.19.0.
    pub version: usize,
    /// The status that `cudnnCreate` returns.
    pub create: u32,
    /// The status with which heuristics are finalized.
    pub heuristics: u32,
    /// Its engines, in the order in which heuristics propose them.
    pub engines: Vec<Engine>,
    /// The execution that fails, counted from 1, and its status.
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
        // The fastest is nondeterministic, and its notes state it.
        let engines = vec![
            one(1 << 20, 1000, Determinism::Repeats),
            one(0, 3000, Determinism::Repeats),
            one(0, 10, Determinism::Noted),
        ];
        Self { version: 91_900, create: 0, heuristics: 0, engines, refused: None }
    }
}

/// An engine for a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    pub workspace_bytes: u64,
    /// Its time on the emulated GPU's clock, in milliseconds; no real time passes.
    pub millis: u64,
    /// Whether its results repeat.
    pub determinism: Determinism,
    /// Whether its results are wrong: every selection returns the first value, which ignores a mask.
    pub wrong: bool,
    /// The status with which its plan is finalized.
    pub plan: u32,
}

/// Whether an engine is deterministic. Otherwise every second execution of a graph differs in one element by one unit
/// of bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Determinism {
    /// Deterministic.
    Repeats,
    /// Nondeterministic, as the engine's numerical notes state.
    Noted,
    /// Nondeterministic without a note.
    Hidden,
}

/// A call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultAt {
    /// The number of the call, from 1.
    pub launch: u64,
    /// Its code, such as 700 for an illegal address.
    pub code: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_scenario_fields_take_defaults() {
        let read = |text: &str| serde_json::from_str::<Scenario>(text).expect("a scenario");
        assert_eq!(read("{}"), Scenario::default());
        assert_eq!(read(r#"{"gpus": [{"capability": [7, 5]}]}"#).gpus[0].name, FakeGpu::default().name);
        serde_json::from_str::<Scenario>(r#"{"gpu": []}"#).expect_err("a typing error is reported");
    }
}
