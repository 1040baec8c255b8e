//! GeForce 40 and 50. One row per GPU and memory size.
//!
//! A total without a source is estimated by the rule in `row`.

use super::row::TotalSource::{CentiGib, Estimated, Mib};
use super::row::{ADA_GEFORCE, BLACKWELL_GEFORCE, Chip, Row, gpu, variant};

pub(super) static ROWS: &[Row] = &[
    // GeForce 40.
    gpu(
        "GeForce RTX 4060",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 24, mhz: 2460, gib: 8, mb_per_s: 272_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 4060 Ti 8GB",
        "GeForce RTX 4060 Ti",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 34, mhz: 2535, gib: 8, mb_per_s: 288_000 },
        &Mib(7_806, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.12.1")),
    ),
    variant(
        "GeForce RTX 4060 Ti 16GB",
        "GeForce RTX 4060 Ti",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 34, mhz: 2535, gib: 16, mb_per_s: 288_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 4070",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 46, mhz: 2475, gib: 12, mb_per_s: 504_000 },
        &CentiGib(1_169, cite!("a nanoGPT user's message (12 GB Ada card); public logs have 12002 to 11903 MiB")),
    ),
    gpu(
        "GeForce RTX 4070 SUPER",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 56, mhz: 2475, gib: 12, mb_per_s: 504_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 4070 Ti",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 60, mhz: 2610, gib: 12, mb_per_s: 504_000 },
        &CentiGib(1_170, cite!("Kwai-Kolors/Kolors#11")),
    ),
    gpu(
        "GeForce RTX 4070 Ti SUPER",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 66, mhz: 2610, gib: 16, mb_per_s: 672_000 },
        &Mib(
            15_974,
            cite!("torch.cuda.get_device_properties in a public log: driver 560.35.03; 16069 before, 15934 after"),
        ),
    ),
    gpu(
        "GeForce RTX 4080",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 76, mhz: 2505, gib: 16, mb_per_s: 716_800 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 4080 SUPER",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 80, mhz: 2550, gib: 16, mb_per_s: 736_000 },
        &Mib(15_944, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.12.1")),
    ),
    gpu(
        "GeForce RTX 4090",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 128, mhz: 2520, gib: 24, mb_per_s: 1_008_000 },
        &CentiGib(2_364, cite!("ali-vilab/VGen#104; 23.52 with a newer driver")),
    ),
    // GeForce 40 in laptops.
    gpu(
        "GeForce RTX 4050 Laptop GPU",
        &["RTX 4050"],
        &Chip { class: &ADA_GEFORCE, sm: 20, mhz: 2370, gib: 6, mb_per_s: 192_000 },
        &CentiGib(565, cite!("out-of-memory message in a public training log")),
    ),
    gpu(
        "GeForce RTX 4060 Laptop GPU",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 24, mhz: 2370, gib: 8, mb_per_s: 256_000 },
        &CentiGib(775, cite!("ESRSchao/EdgeRegNet#2 (a laptop, by its Core Ultra 9 185H)")),
    ),
    gpu(
        "GeForce RTX 4070 Laptop GPU",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 36, mhz: 2175, gib: 8, mb_per_s: 256_000 },
        &Mib(7_806, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.7.1")),
    ),
    gpu(
        "GeForce RTX 4080 Laptop GPU",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 58, mhz: 2280, gib: 12, mb_per_s: 432_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 4090 Laptop GPU",
        &[],
        &Chip { class: &ADA_GEFORCE, sm: 76, mhz: 2040, gib: 16, mb_per_s: 576_000 },
        &Estimated,
    ),
    // GeForce 50.
    gpu(
        "GeForce RTX 5050",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 20, mhz: 2572, gib: 8, mb_per_s: 320_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5060",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 30, mhz: 2497, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 5060 Ti 8GB",
        "GeForce RTX 5060 Ti",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 36, mhz: 2572, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 5060 Ti 16GB",
        "GeForce RTX 5060 Ti",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 36, mhz: 2572, gib: 16, mb_per_s: 448_000 },
        &Mib(15_816, cite!("Luce-Org/lucebox#407")),
    ),
    gpu(
        "GeForce RTX 5070",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 48, mhz: 2512, gib: 12, mb_per_s: 672_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5070 Ti",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 70, mhz: 2452, gib: 16, mb_per_s: 896_000 },
        &Mib(15_842, cite!("ggml_cuda_init line in a public llama.cpp log")),
    ),
    gpu(
        "GeForce RTX 5080",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 84, mhz: 2617, gib: 16, mb_per_s: 960_000 },
        &Mib(15_840, cite!("Ultralytics or YOLOv5 banner in a public log: 15.47 GiB")),
    ),
    gpu(
        "GeForce RTX 5090",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 170, mhz: 2407, gib: 32, mb_per_s: 1_792_000 },
        &CentiGib(3_136, cite!("TrajectoryCrafter/TrajectoryCrafter#20")),
    ),
    // GeForce 50 in laptops.
    gpu(
        "GeForce RTX 5050 Laptop GPU",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 20, mhz: 2662, gib: 8, mb_per_s: 384_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5060 Laptop GPU",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 26, mhz: 2497, gib: 8, mb_per_s: 384_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5070 Laptop GPU",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 36, mhz: 2347, gib: 8, mb_per_s: 384_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5070 Ti Laptop GPU",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 46, mhz: 2220, gib: 12, mb_per_s: 672_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5080 Laptop GPU",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 60, mhz: 2287, gib: 16, mb_per_s: 896_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 5090 Laptop GPU",
        &[],
        &Chip { class: &BLACKWELL_GEFORCE, sm: 82, mhz: 2160, gib: 24, mb_per_s: 896_000 },
        &Estimated,
    ),
];
