//! The device that a run computes on: nanoGPT's `device`, plus `auto`.

use std::fmt;

/// Upper bound of a GPU's index, above what any driver assigns.
const GPUS_MAX: u32 = 1024;

/// The requested device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceSpec {
    /// The first usable GPU, otherwise the CPU.
    #[default]
    Auto,
    Cpu,
    /// A GPU by the driver's index, or the first usable one without an index.
    Cuda(Option<u32>),
}

impl DeviceSpec {
    /// Parses nanoGPT's key. Returns `None` for words that `text::DEVICE_WORDS` does not list.
    #[must_use]
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(None)),
            _ => {
                let digits = word.strip_prefix("cuda:")?;
                let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let index = digits.parse().ok().filter(|index| is_plain && *index < GPUS_MAX)?;
                Some(Self::Cuda(Some(index)))
            }
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in ["auto", "cpu", "cuda", "cuda:0", "cuda:15"] {
            assert_eq!(DeviceSpec::read(word).expect(word).to_string(), word);
        }
        for word in ["", "mps", "cuda:", "cuda:-1", "cuda:+1", "cuda:99999999999", "cuda:1024", "CPU", "gpu"] {
            assert_eq!(DeviceSpec::read(word), None, "{word}");
        }
    }
}
