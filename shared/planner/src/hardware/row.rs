//! The rows of the GPU table: throughput per class of chips, and the rule for unpublished totals.
//!
//! A row has the data-sheet values only. The products are computed when the table is first used: as constants, they
//! would add kilobytes that hardly compress to every page.
//!
//! NVIDIA's peak rates are multiprocessors × boost clock × operations per multiprocessor and clock. Rows store the
//! first two and refer to a [`Class`] for the third, so a typing error cannot hide in one of five rates. The tests
//! compare the products with the figures of the data sheets.

use std::borrow::Cow;

use super::{ComputeCapability, Device, Provenance, Rates};

/// The rule behind every estimated `total_bytes`, fitted to the measured rows.
pub const ESTIMATE_RULE: &str = "nominal size less 0.66 % and a fixed part for the architecture's driver and firmware: \
    20 MiB Pascal, 100 Volta, 160 Turing, 150 Ampere and Hopper, 210 Ada, 440 Blackwell, 500 B200 and GB200";

/// Chips of one architecture whose multiprocessors have the same throughput.
pub(super) struct Class {
    pub capability: ComputeCapability,
    /// float32 operations per clock (a fused multiply-add counts two).
    pub fp32: u64,
    /// Dense tensor-core float16 operations per clock with float32 accumulation; 0 without tensor cores.
    pub tensor: u64,
    /// Published rates, if they do not follow from one clock.
    pub published: Option<Rates>,
    /// The data sheet or whitepaper.
    pub source: &'static str,
}

/// Data-sheet values of one GPU.
#[derive(Clone, Copy)]
pub(super) struct Chip {
    pub class: &'static Class,
    pub sm: u32,
    /// Boost clock in MHz; for a laptop, the top of NVIDIA's range, which few laptops sustain.
    pub mhz: u64,
    /// Nominal memory in GiB.
    pub gib: u64,
    /// Bandwidth in 10⁶ bytes per second.
    pub mb_per_s: u64,
}

/// Source of a total.
#[derive(Clone, Copy)]
pub(super) enum TotalSource {
    /// Printed in MiB, with the source thread or log.
    Mib(u64, &'static str),
    /// Printed in GiB with two decimals, stored times 100, with the source thread or log.
    CentiGib(u64, &'static str),
    /// No printed value found: [`ESTIMATE_RULE`] applies.
    Estimated,
}

const fn class(major: u8, minor: u8, per_clock: [u64; 2], source: &'static str) -> Class {
    let [fp32, tensor] = per_clock;
    let capability = ComputeCapability::new(major, minor);
    Class { capability, fp32, tensor, published: None, source }
}

/// A class with published rates: float32, TF32 and float16, in 10⁹ FLOP/s, 0 for none.
const fn published(major: u8, gflops: [u64; 3], source: &'static str) -> Class {
    const fn rate(gflops: u64) -> Option<u64> {
        if gflops == 0 { None } else { Some(gflops * 1_000_000_000) }
    }
    let [fp32, tf32, fp16] = gflops;
    let capability = ComputeCapability::new(major, 0);
    let bf16 = if capability.architecture().has_bfloat16 { rate(fp16) } else { None };
    let rates = Rates { fp32: rate(fp32), tf32: rate(tf32), fp16: rate(fp16), bf16 };
    Class { capability, fp32: 0, tensor: 0, published: Some(rates), source }
}

// GeForce GPUs halve the float32-accumulate rate from Turing on; workstation and data centre GPUs with the same chip do
// not. Exceptions by their data sheets: A10G and L40 halve it too.
pub(super) static PASCAL: Class =
    class(6, 1, [256, 0], cite!("NVIDIA GeForce GTX 1080 whitepaper and GeForce 10 specifications"));
pub(super) static GP100: Class = class(6, 0, [128, 0], cite!("NVIDIA Tesla P100 whitepaper and PCIe data sheet"));
pub(super) static VOLTA: Class =
    class(7, 0, [128, 1024], cite!("NVIDIA Tesla V100 GPU Architecture whitepaper and data sheet"));
pub(super) static TITAN_V: Class = published(7, [14_900, 0, 110_000], cite!("NVIDIA TITAN V product page"));
pub(super) static GTX_16: Class = class(7, 5, [128, 0], cite!("NVIDIA GeForce GTX 16 series specifications"));
pub(super) static TURING_GEFORCE: Class =
    class(7, 5, [128, 512], cite!("NVIDIA Turing GPU Architecture whitepaper, appendix A"));
pub(super) static TURING_FULL: Class =
    class(7, 5, [128, 1024], cite!("NVIDIA Turing GPU Architecture whitepaper and board data sheet"));
pub(super) static GA100: Class =
    class(8, 0, [128, 2048], cite!("NVIDIA A100 Tensor Core GPU Architecture whitepaper and board data sheet"));
pub(super) static AMPERE_GEFORCE: Class =
    class(8, 6, [256, 512], cite!("NVIDIA Ampere GA102 GPU Architecture whitepaper v2 and GeForce 30 specifications"));
pub(super) static AMPERE_FULL: Class =
    class(8, 6, [256, 1024], cite!("NVIDIA Ampere GA102 GPU Architecture whitepaper v2 and board data sheet"));
pub(super) static A10G: Class =
    class(8, 6, [256, 512], cite!("Amazon EC2 G5 / NVIDIA A10G data sheet (70 TFLOPS FP16, 35 FP32)"));
pub(super) static ADA_GEFORCE: Class =
    class(8, 9, [256, 512], cite!("NVIDIA Ada GPU Architecture whitepaper v2.1 and GeForce 40 specifications"));
pub(super) static ADA_FULL: Class =
    class(8, 9, [256, 1024], cite!("NVIDIA Ada GPU Architecture whitepaper v2.1 and board data sheet"));
pub(super) static L40: Class = class(8, 9, [256, 512], cite!("NVIDIA L40 data sheet (181 TFLOPS FP16 dense)"));
pub(super) static BLACKWELL_GEFORCE: Class = class(
    12,
    0,
    [256, 512],
    cite!("NVIDIA RTX Blackwell GPU Architecture whitepaper v1.1 and GeForce 50 specifications"),
);
pub(super) static BLACKWELL_FULL: Class =
    class(12, 0, [256, 1024], cite!("NVIDIA RTX PRO Blackwell GPU Architecture whitepaper and board data sheet"));
pub(super) static H100_PCIE: Class = published(9, [51_200, 378_000, 756_000], cite!("NVIDIA H100 data sheet, PCIe"));
pub(super) static H100_SXM: Class =
    published(9, [66_900, 494_700, 989_400], cite!("NVIDIA H100 Tensor Core GPU Architecture whitepaper, SXM5"));
pub(super) static H100_NVL: Class = published(9, [60_000, 417_500, 835_000], cite!("NVIDIA H100 data sheet, NVL"));
pub(super) static H200: Class = published(9, [66_900, 494_700, 989_400], cite!("NVIDIA H200 data sheet, SXM"));
pub(super) static B200: Class =
    published(10, [75_000, 1_125_000, 2_250_000], cite!("NVIDIA HGX B200 data sheet, one of eight"));
pub(super) static GB200: Class = published(
    10,
    [80_000, 1_250_000, 2_500_000],
    cite!("NVIDIA GB200 NVL72 data sheet, one of two GPUs of a superchip"),
);

/// One row of the table.
pub(super) struct Row {
    name: &'static str,
    reported_name: &'static str,
    aliases: &'static [&'static str],
    chip: Chip,
    total: TotalSource,
}

/// Builds a row whose reported name is its name.
pub(super) const fn gpu(name: &'static str, aliases: &'static [&'static str], chip: &Chip, total: &TotalSource) -> Row {
    variant(name, name, aliases, chip, total)
}

/// Builds a row for one memory size of a GPU that reports the same name with several sizes.
pub(super) const fn variant(
    name: &'static str,
    reported_name: &'static str,
    aliases: &'static [&'static str],
    chip: &Chip,
    total: &TotalSource,
) -> Row {
    Row { name, reported_name, aliases, chip: *chip, total: *total }
}

impl Row {
    /// Computes the row's figures.
    pub(super) fn device(&self) -> Device {
        let chip = &self.chip;
        let (total_bytes, total_provenance) = total_of(chip, self.total);
        Device {
            name: Cow::Borrowed(self.name),
            reported_name: Cow::Borrowed(self.reported_name),
            aliases: self.aliases,
            vram_bytes_nominal: chip.gib << 30,
            total_bytes,
            total_provenance,
            compute_capability: chip.class.capability,
            sm_count: Some(chip.sm),
            memory_bandwidth: Some(chip.mb_per_s * 1_000_000),
            rates: rates_of(chip),
            source: chip.class.source,
        }
    }
}

fn total_of(chip: &Chip, total: TotalSource) -> (u64, Provenance) {
    match total {
        TotalSource::Mib(mib, source) => (mib << 20, Provenance::Measured { source }),
        TotalSource::CentiGib(hundredths, source) => ((hundredths << 30) / 100, Provenance::Measured { source }),
        TotalSource::Estimated => {
            let nominal_mib = chip.gib << 10;
            let mib = nominal_mib - nominal_mib * 66 / 10_000 - chip.class.capability.architecture().reserve_mib;
            (mib << 20, Provenance::Estimated { rule: ESTIMATE_RULE })
        }
    }
}

fn rates_of(chip: &Chip) -> Rates {
    if let Some(rates) = chip.class.published {
        return rates;
    }
    let clocks_per_second = chip.sm as u64 * chip.mhz * 1_000_000;
    let tensor = chip.class.tensor * clocks_per_second;
    let fp16 = if tensor == 0 { None } else { Some(tensor) };
    let (tf32, bf16) =
        if chip.class.capability.architecture().has_bfloat16 { (Some(tensor / 2), fp16) } else { (None, None) };
    Rates { fp32: Some(chip.class.fp32 * clocks_per_second), tf32, fp16, bf16 }
}
