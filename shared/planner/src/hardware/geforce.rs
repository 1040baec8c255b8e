//! GeForce 10 to 30 and the TITANs of these generations. One row per GPU and memory size.
//!
//! A total without a source is estimated by the rule in `row`. Laptops of the 10, 16 and 20 series report the desktop
//! GPU's name, or that name "with Max-Q Design". They are aliases if chip and memory equal the desktop's at a lower
//! clock, and rows if the number of multiprocessors differs. GTX 1060 with 3 or 5 GB and other GPUs under 4 GB are
//! excluded: they cannot train a 124M GPT.

use super::row::TotalSource::{CentiGib, Estimated, Mib};
use super::row::{AMPERE_GEFORCE, Chip, GTX_16, PASCAL, Row, TITAN_V, TURING_FULL, TURING_GEFORCE, gpu, variant};

pub(super) static ROWS: &[Row] = &[
    // GeForce 10 and its TITAN: no tensor cores.
    gpu(
        "GeForce GTX 1050 Ti",
        &["GTX 1050 Ti Laptop GPU", "GTX 1050 Ti with Max-Q Design"],
        &Chip { class: &PASCAL, sm: 6, mhz: 1392, gib: 4, mb_per_s: 112_000 },
        &Estimated,
    ),
    gpu(
        "GeForce GTX 1060 6GB",
        &["GTX 1060", "GTX 1060 Laptop GPU", "GTX 1060 with Max-Q Design"],
        &Chip { class: &PASCAL, sm: 10, mhz: 1708, gib: 6, mb_per_s: 192_000 },
        &Mib(6_063, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.6.0")),
    ),
    gpu(
        "GeForce GTX 1070",
        &[],
        &Chip { class: &PASCAL, sm: 15, mhz: 1683, gib: 8, mb_per_s: 256_000 },
        &CentiGib(793, cite!("svip-lab/impersonator#19")),
    ),
    gpu(
        "GeForce GTX 1070 with Max-Q Design",
        &["GTX 1070 Laptop GPU"],
        &Chip { class: &PASCAL, sm: 16, mhz: 1645, gib: 8, mb_per_s: 256_000 },
        &Estimated,
    ),
    gpu("GeForce GTX 1070 Ti", &[], &Chip { class: &PASCAL, sm: 19, mhz: 1683, gib: 8, mb_per_s: 256_000 }, &Estimated),
    gpu(
        "GeForce GTX 1080",
        &["GTX 1080 Laptop GPU", "GTX 1080 with Max-Q Design"],
        &Chip { class: &PASCAL, sm: 20, mhz: 1733, gib: 8, mb_per_s: 320_000 },
        &Mib(8_119, cite!("torch.cuda.get_device_properties in a public log: two cards of 8116 and 8119 MB")),
    ),
    gpu(
        "GeForce GTX 1080 Ti",
        &[],
        &Chip { class: &PASCAL, sm: 28, mhz: 1582, gib: 11, mb_per_s: 484_000 },
        &Mib(11_178, cite!("BachiLi/redner#97")),
    ),
    gpu(
        "TITAN Xp",
        &[],
        &Chip { class: &PASCAL, sm: 30, mhz: 1582, gib: 12, mb_per_s: 547_700 },
        &Mib(12_186, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.3.1")),
    ),
    gpu(
        "TITAN V",
        &[],
        &Chip { class: &TITAN_V, sm: 80, mhz: 1455, gib: 12, mb_per_s: 652_800 },
        &Mib(12_064, cite!("Ultralytics or YOLOv5 banner in a public log: torch 1.12.0")),
    ),
    // GeForce 16: Turing without tensor cores.
    gpu("GeForce GTX 1650", &[], &Chip { class: &GTX_16, sm: 14, mhz: 1665, gib: 4, mb_per_s: 128_000 }, &Estimated),
    gpu(
        "GeForce GTX 1650 with Max-Q Design",
        &["GTX 1650 Laptop GPU"],
        &Chip { class: &GTX_16, sm: 16, mhz: 1560, gib: 4, mb_per_s: 128_000 },
        &Estimated,
    ),
    gpu(
        "GeForce GTX 1650 Ti",
        &["GTX 1650 Ti Laptop GPU", "GTX 1650 Ti with Max-Q Design"],
        &Chip { class: &GTX_16, sm: 16, mhz: 1485, gib: 4, mb_per_s: 192_000 },
        &Estimated,
    ),
    gpu(
        "GeForce GTX 1650 SUPER",
        &[],
        &Chip { class: &GTX_16, sm: 20, mhz: 1725, gib: 4, mb_per_s: 192_000 },
        &Estimated,
    ),
    gpu("GeForce GTX 1660", &[], &Chip { class: &GTX_16, sm: 22, mhz: 1785, gib: 6, mb_per_s: 192_000 }, &Estimated),
    gpu(
        "GeForce GTX 1660 SUPER",
        &[],
        &Chip { class: &GTX_16, sm: 22, mhz: 1785, gib: 6, mb_per_s: 336_000 },
        &Estimated,
    ),
    gpu(
        "GeForce GTX 1660 Ti",
        &["GTX 1660 Ti Laptop GPU", "GTX 1660 Ti with Max-Q Design"],
        &Chip { class: &GTX_16, sm: 24, mhz: 1770, gib: 6, mb_per_s: 288_000 },
        &CentiGib(581, cite!("zhou13/lcnn#23")),
    ),
    // GeForce 20.
    variant(
        "GeForce RTX 2060 6GB",
        "GeForce RTX 2060",
        &["RTX 2060 Laptop GPU", "RTX 2060 with Max-Q Design"],
        &Chip { class: &TURING_GEFORCE, sm: 30, mhz: 1680, gib: 6, mb_per_s: 336_000 },
        &CentiGib(579, cite!("facebookresearch/meshrcnn#92")),
    ),
    variant(
        "GeForce RTX 2060 12GB",
        "GeForce RTX 2060",
        &[],
        &Chip { class: &TURING_GEFORCE, sm: 34, mhz: 1650, gib: 12, mb_per_s: 336_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 2060 SUPER",
        &[],
        &Chip { class: &TURING_GEFORCE, sm: 34, mhz: 1650, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 2070",
        &["RTX 2070 Laptop GPU", "RTX 2070 with Max-Q Design"],
        &Chip { class: &TURING_GEFORCE, sm: 36, mhz: 1620, gib: 8, mb_per_s: 448_000 },
        &Mib(7_949, cite!("torch.cuda.get_device_properties in a public log: YOLOv3 training")),
    ),
    gpu(
        "GeForce RTX 2070 SUPER",
        &["RTX 2070 SUPER Laptop GPU", "RTX 2070 SUPER with Max-Q Design"],
        &Chip { class: &TURING_GEFORCE, sm: 40, mhz: 1770, gib: 8, mb_per_s: 448_000 },
        &Mib(7_972, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.1.1")),
    ),
    gpu(
        "GeForce RTX 2080",
        &["RTX 2080 Laptop GPU", "RTX 2080 with Max-Q Design"],
        &Chip { class: &TURING_GEFORCE, sm: 46, mhz: 1710, gib: 8, mb_per_s: 448_000 },
        &CentiGib(760, cite!("out-of-memory message in a public cluster log, recent driver")),
    ),
    gpu(
        "GeForce RTX 2080 SUPER",
        &["RTX 2080 SUPER Laptop GPU", "RTX 2080 SUPER with Max-Q Design"],
        &Chip { class: &TURING_GEFORCE, sm: 48, mhz: 1815, gib: 8, mb_per_s: 496_000 },
        &Mib(7_982, cite!("Ultralytics or YOLOv5 banner in a public log: torch 1.13.1")),
    ),
    gpu(
        "GeForce RTX 2080 Ti",
        &[],
        &Chip { class: &TURING_GEFORCE, sm: 68, mhz: 1545, gib: 11, mb_per_s: 616_000 },
        &CentiGib(1_076, cite!("ispc-lab/TMA#5")),
    ),
    gpu(
        "TITAN RTX",
        &["RTX Titan"],
        &Chip { class: &TURING_FULL, sm: 72, mhz: 1770, gib: 24, mb_per_s: 672_000 },
        &Mib(24_212, cite!("Ultralytics or YOLOv5 banner in a public log: torch 1.13.1")),
    ),
    // GeForce 30.
    variant(
        "GeForce RTX 3050 6GB",
        "GeForce RTX 3050",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 18, mhz: 1470, gib: 6, mb_per_s: 168_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 3050 8GB",
        "GeForce RTX 3050",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 20, mhz: 1777, gib: 8, mb_per_s: 224_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 3060 8GB",
        "GeForce RTX 3060",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 28, mhz: 1777, gib: 8, mb_per_s: 240_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 3060 12GB",
        "GeForce RTX 3060",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 28, mhz: 1777, gib: 12, mb_per_s: 360_000 },
        &Mib(
            12_042,
            cite!(
                "Ultralytics or YOLOv5 banner in a public log: torch 2.0.1; 11910 with torch 2.10 and a newer driver"
            ),
        ),
    ),
    gpu(
        "GeForce RTX 3060 Ti",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 38, mhz: 1665, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3070",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 46, mhz: 1725, gib: 8, mb_per_s: 448_000 },
        &CentiGib(778, cite!("meta-llama/codellama#82; 7753 MiB with a newer driver")),
    ),
    gpu(
        "GeForce RTX 3070 Ti",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 48, mhz: 1770, gib: 8, mb_per_s: 608_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 3080 10GB",
        "GeForce RTX 3080",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 68, mhz: 1710, gib: 10, mb_per_s: 760_000 },
        &CentiGib(978, cite!("zai-org/CogVideo#34")),
    ),
    variant(
        "GeForce RTX 3080 12GB",
        "GeForce RTX 3080",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 70, mhz: 1710, gib: 12, mb_per_s: 912_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3080 Ti",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 80, mhz: 1665, gib: 12, mb_per_s: 912_000 },
        &Mib(12_054, cite!("Ultralytics or YOLOv5 banner in a public log: torch 1.12.0; 11910 elsewhere")),
    ),
    gpu(
        "GeForce RTX 3090",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 82, mhz: 1695, gib: 24, mb_per_s: 936_000 },
        &Mib(
            24_257,
            cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.3.1, 23.69 GiB; 23.56 with a newer driver"),
        ),
    ),
    gpu(
        "GeForce RTX 3090 Ti",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 84, mhz: 1860, gib: 24, mb_per_s: 1_008_000 },
        &Mib(24_142, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.2.2")),
    ),
    // GeForce 30 in laptops, and the RTX 2050, which belongs to that generation.
    gpu(
        "GeForce RTX 2050",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 16, mhz: 1477, gib: 4, mb_per_s: 112_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3050 Laptop GPU",
        &["RTX 3050 Laptop GPU 4GB"],
        &Chip { class: &AMPERE_GEFORCE, sm: 16, mhz: 1740, gib: 4, mb_per_s: 192_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3050 6GB Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 20, mhz: 1492, gib: 6, mb_per_s: 168_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3050 Ti Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 20, mhz: 1695, gib: 4, mb_per_s: 192_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3060 Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 30, mhz: 1703, gib: 6, mb_per_s: 336_000 },
        &CentiGib(580, cite!("JiehongLin/SAM-6D#13 (the only RTX 3060 with 6 GB)")),
    ),
    gpu(
        "GeForce RTX 3070 Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 40, mhz: 1620, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    gpu(
        "GeForce RTX 3070 Ti Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 46, mhz: 1485, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 3080 Laptop GPU 8GB",
        "GeForce RTX 3080 Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 48, mhz: 1710, gib: 8, mb_per_s: 448_000 },
        &Estimated,
    ),
    variant(
        "GeForce RTX 3080 Laptop GPU 16GB",
        "GeForce RTX 3080 Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 48, mhz: 1710, gib: 16, mb_per_s: 448_000 },
        &Mib(16_110, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.3.0")),
    ),
    gpu(
        "GeForce RTX 3080 Ti Laptop GPU",
        &[],
        &Chip { class: &AMPERE_GEFORCE, sm: 58, mhz: 1590, gib: 16, mb_per_s: 512_000 },
        &Estimated,
    ),
];
