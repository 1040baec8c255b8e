//! Workspace of cuDNN's attention on GPUs that are not present, as JSON lines: `cudnn_room LIBRARY > FILE`.
//!
//! The library plans for a described GPU ("deviceless", cuDNN 9.8 and newer) and compiles its kernels. For this, a
//! libcuda must be loadable, though it need not find a GPU. A line contains `null` if no engine supports the sizes.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints")]

use std::{env, path::Path, process::ExitCode};

use headroom_kernels::cuda::cudnn::room_elsewhere;
use serde_json::{Value as Json, json};

/// GPUs with the properties that the library considers. These are compute capability, multiprocessors, maximum shared
/// memory per block, threads and blocks per multiprocessor, and memory in GiB. Source: CUDA C++ programming guide,
/// technical specifications by compute capability, and the GPUs' data sheets.
const GPUS: [(&str, u32, u32, u32, u32, u32, u64); 6] = [
    ("NVIDIA A100-SXM4-40GB", 80, 108, 166_912, 2048, 32, 40),
    ("NVIDIA GeForce RTX 3060", 86, 28, 101_376, 1536, 16, 12),
    ("NVIDIA GeForce RTX 4070", 89, 46, 101_376, 1536, 24, 12),
    ("NVIDIA H200", 90, 132, 232_448, 2048, 32, 140),
    ("NVIDIA B200", 100, 148, 232_448, 2048, 32, 180),
    ("NVIDIA GeForce RTX 5070", 120, 48, 101_376, 1536, 24, 12),
];

/// B, NH, T, HS.
const SIZES: [[u64; 4]; 10] = [
    [8, 12, 1024, 64],
    [6, 12, 1024, 64],
    [1, 12, 1024, 64],
    [1, 25, 1024, 64],
    [4, 6, 256, 64],
    [2, 3, 37, 32],
    [2, 3, 100, 40],
    [3, 5, 257, 128],
    [1, 2, 2048, 96],
    [2, 4, 8, 8],
];

fn properties(
    (name, capability, multiprocessors, shared, threads, blocks, gib): (&str, u32, u32, u32, u32, u32, u64),
) -> Json {
    json!({
        "smVersion": capability,
        "deviceVer": capability * 10,
        "driverVer": 13_000,
        "cudaDeviceId": 0,
        "deviceId": 0,
        "maxGridSize": [2_147_483_647, 65_535, 65_535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65_536,
        "multiProcessorCount": multiprocessors,
        "smCountOrigin": 0,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 49_152,
        "maxSharedMemoryPerBlockOptin": shared,
        "oversizedSharedMemoryPerBlock": 0,
        "reservedSharedMemoryPerBlock": 1024,
        "maxRegistersPerSM": 65_536,
        "maxCtasPerSM": blocks,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": threads,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": 1_980_000,
        "memClockRateKHz": 2_619_000,
        "memoryBusWidth": 192,
        "l2CacheSize": 50_331_648,
        "totalGlobalMem": gib << 30,
        "deviceName": name,
    })
}

fn main() -> ExitCode {
    let Some(library) = env::args_os().nth(1) else {
        eprintln!("usage: cudnn_room LIBRARY");
        return ExitCode::from(2);
    };
    for gpu in GPUS {
        let properties = properties(gpu).to_string();
        for [b, nh, t, hs] in SIZES {
            match room_elsewhere(Path::new(&library), &properties, [b, nh, t, hs]) {
                Ok([forward, backward]) => println!(
                    "{}",
                    json!({"card": gpu.0, "capability": gpu.1, "b": b, "nh": nh, "t": t, "hs": hs,
                        "forward_bytes": forward, "backward_bytes": backward})
                ),
                Err(error) => {
                    eprintln!("{}, B {b}, NH {nh}, T {t}, HS {hs}: {error}", gpu.0);
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}
