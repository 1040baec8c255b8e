//! The steps, which `--only` selects.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Readings, and their cost.
    Nvml,
    /// Tests of every kernel against the reference.
    Kernels,
    /// The same tests under compute-sanitizer.
    Sanitizer,
    /// Training: the main run, and a small model compared with the CPU.
    Train,
    /// Each kernel's time relative to the GPU's ceilings.
    Ceilings,
    /// Tokens per second compared with nanoGPT and llm.c.
    Speed,
}

impl Step {
    /// All steps in order: correctness before speed.
    pub const ALL: [Self; 6] = [Self::Nvml, Self::Kernels, Self::Sanitizer, Self::Train, Self::Ceilings, Self::Speed];

    /// Returns its name, for `--only` and in lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Kernels => "kernels",
            Self::Sanitizer => "sanitizer",
            Self::Train => "train",
            Self::Ceilings => "ceilings",
            Self::Speed => "speed",
        }
    }

    /// Its purpose, as printed.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Nvml => "every reading, agreement with nvidia-smi, what telemetry costs",
            Self::Kernels => "each against the reference, on fresh random inputs",
            Self::Sanitizer => "memcheck and racecheck over the same tests",
            Self::Train => "the headline's config, its bytes and losses, and the CPU's beside",
            Self::Ceilings => "each kernel's share of the bandwidth or of the products' ceiling",
            Self::Speed => "tokens a second beside nanoGPT and llm.c",
        }
    }
}
