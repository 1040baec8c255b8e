//! Generation settings: the user's values, and the parsing of typed input.

use crate::{
    state::entry::{self, Fault},
    text::{self, Key},
};

/// Generation settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The divisor of the logits.
    pub temperature: f32,
    /// The number of most probable tokens to sample from; 0 for all.
    pub top_k: u32,
    /// The random seed.
    pub seed: u64,
    /// The number of tokens to generate.
    pub n_tokens: u32,
    /// Whether to pause after each token.
    pub slowly: bool,
}

/// The most tokens of one text: a page with more becomes slow.
const N_TOKENS_MAX: i64 = 2000;
/// The pause after each token in slow mode, in milliseconds.
const PAUSE_MILLIS: u32 = 150;

impl Default for Settings {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, seed: 1337, n_tokens: 300, slowly: false }
    }
}

impl Settings {
    /// The pause after each token, in milliseconds.
    pub const fn pause_millis(&self) -> u32 {
        if self.slowly { PAUSE_MILLIS } else { 0 }
    }

    /// Sets the temperature, from 0 to 100, or returns the expected format.
    pub fn take_temperature(&mut self, typed: &str) -> Fault {
        #[expect(clippy::cast_possible_truncation, reason = "logits are f32")]
        let parsed = entry::number(typed).map(|value| value as f32).filter(|value| (0.0..=100.0).contains(value));
        put(&mut self.temperature, parsed, text::EXPECTS_TEMPERATURE)
    }

    /// Sets `top_k`, from 0, or returns the expected format.
    pub fn take_top_k(&mut self, typed: &str) -> Fault {
        put(&mut self.top_k, entry::count(typed, 0).and_then(|n| n.try_into().ok()), text::EXPECTS_TOP_K)
    }

    /// Sets the seed, or returns the expected format.
    pub fn take_seed(&mut self, typed: &str) -> Fault {
        put(&mut self.seed, typed.trim().parse().ok(), text::EXPECTS_SEED)
    }

    /// Sets the number of tokens, from 1, or returns the expected format.
    pub fn take_n_tokens(&mut self, typed: &str) -> Fault {
        let parsed = entry::count(typed, 1).filter(|n| *n <= N_TOKENS_MAX).and_then(|n| n.try_into().ok());
        put(&mut self.n_tokens, parsed, text::EXPECTS_N_TOKENS)
    }
}

fn put<T>(to: &mut T, parsed: Option<T>, expected: Key) -> Fault {
    match parsed {
        Some(parsed) => {
            *to = parsed;
            None
        }
        None => Some(expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_people_write_them_and_bounded() {
        let mut settings = Settings::default();
        for (typed, value) in [("0,5", 0.5), (" 0 ", 0.0), ("1.25", 1.25)] {
            assert_eq!((settings.take_temperature(typed), settings.temperature), (None, value));
        }
        for bad in ["", "-1", "nan", "1e99", "x"] {
            assert_eq!(settings.take_temperature(bad), Some(text::EXPECTS_TEMPERATURE), "{bad}");
        }
        assert_eq!(settings.temperature, 1.25);
        assert_eq!((settings.take_n_tokens("2000"), settings.n_tokens), (None, 2000));
        assert!(settings.take_n_tokens("0").is_some() && settings.take_n_tokens("2001").is_some());
        assert!(settings.take_top_k("-1").is_some() && settings.take_top_k("0").is_none());
        assert_eq!((settings.take_seed("18446744073709551615"), settings.seed), (None, u64::MAX));
    }
}
