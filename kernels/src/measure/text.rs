//! How fast an engine reads a prompt and writes a text: the same rounds for every engine.

use std::time::Instant;

use serde::Serialize;

use super::{Effort, Model, median, significant};

/// Tokens of the prompt.
pub const PROMPT: u32 = 64;

/// How fast an engine writes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TextSpeed {
    /// How often the text was begun anew.
    pub rounds: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of the prompt, in the median round.
    #[serde(serialize_with = "significant")]
    pub prompt_tokens_per_second: f64,
    /// A token of the prompt, in the median round.
    #[serde(serialize_with = "significant")]
    pub prompt_millis_a_token: f64,
    /// Tokens behind the prompt, in each round.
    pub tokens_a_round: u32,
    /// Of tokens behind the prompt, by the median one.
    #[serde(serialize_with = "significant")]
    pub tokens_per_second: f64,
    /// The median token, chosen and run.
    #[serde(serialize_with = "significant")]
    pub millis_a_token: f64,
    /// The quickest token.
    #[serde(serialize_with = "significant")]
    pub best_millis_a_token: f64,
}

/// What writes text.
pub(super) trait Writer {
    /// Why it cannot go on.
    type Error;

    /// Begins the text with these tokens, and returns once they are computed.
    fn prompt(&mut self, tokens: &[u32]) -> Result<(), Self::Error>;

    /// Chooses a token and returns once it is known.
    fn token(&mut self) -> Result<(), Self::Error>;
}

/// Lets it write.
pub(super) fn speed<W: Writer>(model: &Model, effort: Effort, writer: &mut W) -> Result<TextSpeed, W::Error> {
    let rounds = match effort {
        Effort::Full => 5,
        Effort::Quick => 3,
    };
    // Of the smallest vocabulary.
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
