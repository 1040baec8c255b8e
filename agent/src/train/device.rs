//! On what a run is to be computed: nanoGPT's `device`, with a word more.

use std::fmt;

/// Cards that a driver can number, and more.
const CARDS_MAX: u32 = 1024;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The first card that can, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A card, by its number as the driver counts; the first that can where none is said.
    Cuda(Option<u32>),
}

impl Wanted {
    /// Reads nanoGPT's key; none where it is none of those that `device_words` says.
    #[must_use]
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(None)),
            _ => {
                let digits = word.strip_prefix("cuda:")?;
                let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let index = digits.parse().ok().filter(|index| is_plain && *index < CARDS_MAX)?;
                Some(Self::Cuda(Some(index)))
            }
        }
    }
}

impl fmt::Display for Wanted {
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
            assert_eq!(Wanted::read(word).expect(word).to_string(), word);
        }
        for word in ["", "mps", "cuda:", "cuda:-1", "cuda:+1", "cuda:99999999999", "cuda:1024", "CPU", "gpu"] {
            assert_eq!(Wanted::read(word), None, "{word}");
        }
    }
}
