//! The steps, each of which can be asked for alone.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Readings, and what they cost.
    Nvml,
    /// Every kernel against the reference.
    Kernels,
    /// The same under NVIDIA's checkers.
    Sanitizer,
    /// Training: the headline, and a small model beside the CPU.
    Train,
    /// Each kernel's time beside what the card gives.
    Ceilings,
    /// Tokens a second beside nanoGPT and llm.c.
    Speed,
}

impl Step {
    /// All, in their order: what is right comes before what is fast.
    pub const ALL: [Self; 6] = [Self::Nvml, Self::Kernels, Self::Sanitizer, Self::Train, Self::Ceilings, Self::Speed];

    /// Its name, for `--only` and in lines.
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

    /// What a person is told that it is for.
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
