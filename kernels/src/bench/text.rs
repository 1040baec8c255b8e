//! The speed at which an engine processes a prompt and generates text, with the same rounds for every engine.

use std::time::Instant;

use serde::Serialize;

use super::{Effort, Model, median, significant};

/// Tokens of the prompt.
pub const PROMPT: u32 = 64;

/// The speed of text generation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TextSpeed {
    /// The number of rounds, each of which starts a new text.
    pub rounds: usize,
    pub prompt_tokens: u32,
    /// Tokens of the prompt per second, in the median round.
    #[serde(serialize_with = "significant")]
    pub prompt_tokens_per_second: f64,
    /// Milliseconds per token of the prompt, in the median round.
    #[serde(serialize_with = "significant")]
    pub prompt_millis_a_token: f64,
    /// Tokens generated after the prompt in each round.
    pub tokens_a_round: u32,
    /// Generated tokens per second, from the median token.
    #[serde(serialize_with = "significant")]
    pub tokens_per_second: f64,
    /// Milliseconds of the median token, including sampling.
    #[serde(serialize_with = "significant")]
    pub millis_a_token: f64,
    /// Milliseconds of the fastest token.
    #[serde(serialize_with = "significant")]
    pub best_millis_a_token: f64,
}

/// An engine that generates text.
pub(super) trait Writer {
    /// The engine's error.
    type Error;

    /// Starts a new text with these tokens, and returns when they are processed.
    fn prompt(&mut self, tokens: &[u32]) -> Result<(), Self::Error>;

    /// Samples a token and returns when its value is known.
    fn token(&mut self) -> Result<(), Self::Error>;
}

/// Measures the speed of an engine.
pub(super) fn speed<W: Writer>(model: &Model, effort: Effort, writer: &mut W) -> Result<TextSpeed, W::Error> {
    let rounds = match effort {
        Effort::Full => 5,
        Effort::Quick => 3,
    };
    // Token ids of the smallest vocabulary.
    let prompt: Vec<u32> = (0..PROMPT).map(|i| i * 7 % 65).collect();
    let (mut prompts, mut tokens) = (Vec::new(), Vec::new());
    writer.prompt(&prompt)?;
    writer.token()?;
    for _ in 0..rounds {
        let start = Instant::now();
        writer.prompt(&prompt)?;
        prompts.push(start.elapsed().as_secs_f64());
        for _ in 0..model.tokens {
            let start = Instant::now();
            writer.token()?;
            tokens.push(start.elapsed().as_secs_f64());
        }
    }
    let (prompt, token) = (median(&mut prompts) / f64::from(PROMPT), median(&mut tokens));
    Ok(TextSpeed {
        rounds,
        prompt_tokens: PROMPT,
        prompt_tokens_per_second: 1.0 / prompt,
        prompt_millis_a_token: 1e3 * prompt,
        tokens_a_round: model.tokens,
        tokens_per_second: 1.0 / token,
        millis_a_token: 1e3 * token,
        best_millis_a_token: 1e3 * tokens[0],
    })
}
