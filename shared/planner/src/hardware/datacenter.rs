//! Data centre GPUs, from P100 to Blackwell.
//!
//! If a GPU exists as SXM and PCIe with the same memory, SXM comes first: `find` returns the first. GDDR GPUs (T4, A10,
//! A40, L4, L40) lose a sixteenth of their memory to ECC before CUDA sees it. A total without a source is estimated by
//! the rule in `row`.

use super::row::TotalSource::{CentiGib, Estimated, Mib};
use super::row::{
    A10G, ADA_FULL, AMPERE_FULL, B200, Chip, GA100, GB200, GP100, H100_NVL, H100_PCIE, H100_SXM, H200, L40, Row,
    TURING_FULL, VOLTA, gpu,
};

pub(super) static ROWS: &[Row] = &[
    // Pascal and Volta.
    gpu(
        "Tesla P100-PCIE-16GB",
        &["P100"],
        &Chip { class: &GP100, sm: 56, mhz: 1303, gib: 16, mb_per_s: 732_000 },
        &Mib(16_280, cite!("torch.cuda.get_device_properties in a public log: CUDA 10.1")),
    ),
    gpu(
        "Tesla V100-SXM2-16GB",
        &[],
        &Chip { class: &VOLTA, sm: 80, mhz: 1530, gib: 16, mb_per_s: 900_000 },
        &CentiGib(1_577, cite!("nomic-ai/gpt4all#544")),
    ),
    gpu(
        "Tesla V100-PCIE-16GB",
        &[],
        &Chip { class: &VOLTA, sm: 80, mhz: 1380, gib: 16, mb_per_s: 900_000 },
        &Estimated,
    ),
    gpu(
        "Tesla V100-SXM2-32GB",
        &[],
        &Chip { class: &VOLTA, sm: 80, mhz: 1530, gib: 32, mb_per_s: 900_000 },
        &CentiGib(3_174, cite!("liucongg/ChatGLM-Finetuning#73 (V100 32GB, form not stated)")),
    ),
    gpu(
        "Tesla V100-PCIE-32GB",
        &[],
        &Chip { class: &VOLTA, sm: 80, mhz: 1380, gib: 32, mb_per_s: 900_000 },
        &Estimated,
    ),
    // Turing.
    gpu(
        "Tesla T4",
        &["Colab T4", "Kaggle T4"],
        &Chip { class: &TURING_FULL, sm: 40, mhz: 1590, gib: 16, mb_per_s: 320_000 },
        &CentiGib(1_456, cite!("Zheng-Chong/CatVTON#133; 14.75 in older messages, FoundationVision/GenerateU#10")),
    ),
    // Ampere. The A10G differs from the A10: more multiprocessors, with half the tensor rate each.
    gpu(
        "A100-SXM4-40GB",
        &[],
        &Chip { class: &GA100, sm: 108, mhz: 1410, gib: 40, mb_per_s: 1_555_000 },
        &Mib(40_514, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.3.0")),
    ),
    gpu(
        "A100-PCIE-40GB",
        &[],
        &Chip { class: &GA100, sm: 108, mhz: 1410, gib: 40, mb_per_s: 1_555_000 },
        &Mib(40_377, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.3.0")),
    ),
    gpu(
        "A100-SXM4-80GB",
        &[],
        &Chip { class: &GA100, sm: 108, mhz: 1410, gib: 80, mb_per_s: 2_039_000 },
        &Mib(81_153, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.7.0")),
    ),
    gpu(
        "A100 80GB PCIe",
        &[],
        &Chip { class: &GA100, sm: 108, mhz: 1410, gib: 80, mb_per_s: 1_935_000 },
        &CentiGib(7_914, cite!("lianqi1008/Control-GIC#6 (A100, form not stated)")),
    ),
    gpu(
        "A30",
        &[],
        &Chip { class: &GA100, sm: 56, mhz: 1440, gib: 24, mb_per_s: 933_000 },
        &CentiGib(2_353, cite!("google/RB-Modulation#5")),
    ),
    gpu(
        "A10",
        &[],
        &Chip { class: &AMPERE_FULL, sm: 72, mhz: 1695, gib: 24, mb_per_s: 600_000 },
        &CentiGib(2_199, cite!("zai-org/CogVLM#236")),
    ),
    gpu(
        "A10G",
        &[],
        &Chip { class: &A10G, sm: 80, mhz: 1710, gib: 24, mb_per_s: 600_000 },
        &CentiGib(2_206, cite!("out-of-memory messages in a public cluster report, g5.2xlarge")),
    ),
    gpu(
        "A40",
        &[],
        &Chip { class: &AMPERE_FULL, sm: 84, mhz: 1740, gib: 48, mb_per_s: 696_000 },
        &Mib(45_416, cite!("torch.cuda.get_device_properties in a public log: ECC on")),
    ),
    // Ada.
    gpu(
        "L4",
        &[],
        &Chip { class: &ADA_FULL, sm: 58, mhz: 2040, gib: 24, mb_per_s: 300_000 },
        &CentiGib(2_203, cite!("ArcInstitute/evo2#190")),
    ),
    gpu(
        "L40",
        &[],
        &Chip { class: &L40, sm: 142, mhz: 2490, gib: 48, mb_per_s: 864_000 },
        &CentiGib(4_440, cite!("QwenLM/Qwen3-VL#2097")),
    ),
    gpu(
        "L40S",
        &[],
        &Chip { class: &ADA_FULL, sm: 142, mhz: 2490, gib: 48, mb_per_s: 864_000 },
        &Mib(45_495, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.2.2")),
    ),
    // Hopper.
    gpu(
        "H100 80GB HBM3",
        &["H100 SXM5", "H100 SXM"],
        &Chip { class: &H100_SXM, sm: 132, mhz: 1980, gib: 80, mb_per_s: 3_350_000 },
        &Mib(81_089, cite!("torch.cuda.get_device_properties in a public log: torch 2.7.0")),
    ),
    gpu(
        "H100 PCIe",
        &[],
        &Chip { class: &H100_PCIE, sm: 114, mhz: 1755, gib: 80, mb_per_s: 2_039_000 },
        &Mib(81_008, cite!("torch.cuda.get_device_properties in a public log")),
    ),
    gpu(
        "H100 NVL",
        &[],
        &Chip { class: &H100_NVL, sm: 132, mhz: 1785, gib: 94, mb_per_s: 3_938_000 },
        &Mib(95_320, cite!("Ultralytics or YOLOv5 banner in a public log: torch 2.13.0")),
    ),
    gpu(
        "H200",
        &["H200 SXM"],
        &Chip { class: &H200, sm: 132, mhz: 1980, gib: 141, mb_per_s: 4_800_000 },
        &Mib(143_156, cite!("torch.cuda.get_device_properties in a public log: 139.80 GiB")),
    ),
    // Blackwell.
    gpu(
        "B200",
        &["B200 SXM"],
        &Chip { class: &B200, sm: 148, mhz: 1965, gib: 180, mb_per_s: 7_700_000 },
        &Mib(182_631, cite!("torch.cuda.get_device_properties in a public log: 178.35 GiB, stas00/ml-engineering")),
    ),
    gpu("GB200", &[], &Chip { class: &GB200, sm: 152, mhz: 2062, gib: 186, mb_per_s: 8_000_000 }, &Estimated),
];
