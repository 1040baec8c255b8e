//! Workstation GPUs: Quadro RTX, RTX A, RTX Ada and RTX PRO.
//!
//! They accumulate in float32 at full rate, unlike GeForce GPUs with the same chip. A total without a source is
//! estimated by the rule in `row`.

use super::row::TotalSource::{CentiGib, Estimated, Mib};
use super::row::{ADA_FULL, AMPERE_FULL, BLACKWELL_FULL, Chip, Row, TURING_FULL, gpu};

pub(super) static ROWS: &[Row] = &[
    // Turing: twice the GeForce rate with float32 accumulation.
    gpu(
        "Quadro RTX 6000",
        &[],
        &Chip { class: &TURING_FULL, sm: 72, mhz: 1770, gib: 24, mb_per_s: 672_000 },
        &Estimated,
    ),
    gpu(
        "Quadro RTX 8000",
        &["RTX 8000"],
        &Chip { class: &TURING_FULL, sm: 72, mhz: 1770, gib: 48, mb_per_s: 672_000 },
        &Estimated,
    ),
    // Ampere.
    gpu(
        "RTX A2000",
        &["RTX A2000 6GB"],
        &Chip { class: &AMPERE_FULL, sm: 26, mhz: 1200, gib: 6, mb_per_s: 288_000 },
        &Estimated,
    ),
    gpu(
        "RTX A2000 12GB",
        &[],
        &Chip { class: &AMPERE_FULL, sm: 26, mhz: 1200, gib: 12, mb_per_s: 288_000 },
        &Mib(12_017, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.1.0")),
    ),
    gpu(
        "RTX A4000",
        &[],
        &Chip { class: &AMPERE_FULL, sm: 48, mhz: 1560, gib: 16, mb_per_s: 448_000 },
        &CentiGib(1_561, cite!("DengKaiCQ/VGGT-Long#6")),
    ),
    gpu("RTX A4500", &[], &Chip { class: &AMPERE_FULL, sm: 56, mhz: 1650, gib: 20, mb_per_s: 640_000 }, &Estimated),
    gpu(
        "RTX A5000",
        &[],
        &Chip { class: &AMPERE_FULL, sm: 64, mhz: 1695, gib: 24, mb_per_s: 768_000 },
        &Mib(24_114, cite!("torch.cuda.get_device_properties in a public log: 24138 in another")),
    ),
    gpu(
        "RTX A6000",
        &[],
        &Chip { class: &AMPERE_FULL, sm: 84, mhz: 1800, gib: 48, mb_per_s: 768_000 },
        &Mib(48_676, cite!("torch.cuda.get_device_properties in a public log: ECC off")),
    ),
    // Ada. Totals are with ECC off; ECC uses a sixteenth of the nominal size.
    gpu(
        "RTX 2000 Ada Generation",
        &[],
        &Chip { class: &ADA_FULL, sm: 22, mhz: 2130, gib: 16, mb_per_s: 224_000 },
        &Estimated,
    ),
    gpu(
        "RTX 4000 Ada Generation",
        &[],
        &Chip { class: &ADA_FULL, sm: 48, mhz: 2175, gib: 20, mb_per_s: 360_000 },
        &Estimated,
    ),
    gpu(
        "RTX 4500 Ada Generation",
        &[],
        &Chip { class: &ADA_FULL, sm: 60, mhz: 2580, gib: 24, mb_per_s: 432_000 },
        &Estimated,
    ),
    gpu(
        "RTX 5000 Ada Generation",
        &[],
        &Chip { class: &ADA_FULL, sm: 100, mhz: 2550, gib: 32, mb_per_s: 576_000 },
        &Estimated,
    ),
    gpu(
        "RTX 6000 Ada Generation",
        &[],
        &Chip { class: &ADA_FULL, sm: 142, mhz: 2505, gib: 48, mb_per_s: 960_000 },
        &Mib(
            48_539,
            cite!("Ultralytics or YOLOv5 banner in a public log, ECC off; 44.43 GiB with ECC, DINGYANB/MTVCrafter#21"),
        ),
    ),
    // Blackwell.
    gpu(
        "RTX PRO 6000 Blackwell Workstation Edition",
        &["RTX PRO 6000"],
        &Chip { class: &BLACKWELL_FULL, sm: 188, mhz: 2617, gib: 96, mb_per_s: 1_792_000 },
        &CentiGib(9_497, cite!("antirez/ds4#431")),
    ),
    gpu(
        "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        &["RTX PRO 6000 Max-Q"],
        &Chip { class: &BLACKWELL_FULL, sm: 188, mhz: 2288, gib: 96, mb_per_s: 1_792_000 },
        &Estimated,
    ),
    gpu(
        "RTX PRO 6000 Blackwell Server Edition",
        &["RTX PRO 6000 Server"],
        &Chip { class: &BLACKWELL_FULL, sm: 188, mhz: 2497, gib: 96, mb_per_s: 1_597_000 },
        &Mib(97_250, cite!("torch.cuda.get_device_properties in a public log: torch 2.7.1")),
    ),
];
