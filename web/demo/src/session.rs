//! A model that is open, and the text that it writes.

use headroom_kernels::sampling::Sampling;
use headroom_shared::{
    demo::{Began, End, Failure, FailureKind, Head, Map, Tell, Token, Write, Wrote},
    gpt::GptConfig,
    text::{self, Text},
};

use crate::{
    asked_pace,
    engine::{Engine, EngineError},
    host, is_interrupted,
    tokenizer::{Speller, Tokenizer},
};

/// Candidates that come with a token; an engine tells no more.
const N_CANDIDATES: u32 = 30;
/// Tokens that a map of attention shows.
const MAP_TOKENS: usize = 24;
/// How long tokens are kept back before they are told: as often as a screen shows anything new, twice.
const TELL_EVERY_MILLIS: f64 = 33.0;

/// A share as so many parts of a whole.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the whole")]
fn share(of: f32, whole: f32) -> u32 {
    (of.clamp(0.0, 1.0) * whole).round() as u32
}

/// The model, its tokenizer and its text.
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    tokenizer: Tokenizer,
    n_layer: u64,
    n_head: u64,
    vocab_size: u64,
}

/// What a device or an engine says that does not go on.
fn broken(error: &EngineError) -> Failure {
    Failure { kind: FailureKind::Device, text: error.sentence(), hint: None }
}

impl Session {
    /// With a model that can write.
    pub const fn new(engine: Engine, tokenizer: Tokenizer, config: &GptConfig) -> Self {
        Self { engine, tokenizer, n_layer: config.n_layer(), n_head: config.n_head(), vocab_size: config.vocab_size() }
    }

    /// Writes a text, and tells it as it comes. A prompt that cannot be read is told, and leaves the model as it is.
    pub async fn write(&mut self, write: &Write) -> Result<(), Failure> {
        let beginning = self.tokenizer.beginning().to_string();
        let prompt = if write.prompt.is_empty() { &beginning } else { &write.prompt };
        match self.tokenizer.encode(prompt).and_then(|prompt| self.known(prompt)) {
            Ok(prompt) => {
                self.go_on_from(&prompt, write).await.map_err(|error| broken(&error))?;
                self.attention(write.head).await
            }
            Err(text) => {
                host::tell(&Tell::Failed(Failure { kind: FailureKind::Prompt, text, hint: None }));
                Ok(())
            }
        }
    }

    /// A prompt's tokens, where the model has them all: a tokenizer may have more.
    fn known(&self, prompt: Vec<u32>) -> Result<Vec<u32>, Text> {
        match prompt.iter().find(|&&token| u64::from(token) >= self.vocab_size) {
            Some(&token) => Err(text::demo_unknown_token(self.tokenizer.name(token), text::count(self.vocab_size))),
            None => Ok(prompt),
        }
    }

    async fn go_on_from(&mut self, prompt: &[u32], write: &Write) -> Result<(), EngineError> {
        let sampling = Sampling { temperature: write.temperature, top_k: write.top_k, seed: write.seed };
        let mut speller = Speller::default();
        // Nobody looks at what the model does not see, and a page has to draw it.
        let seen = self.engine.seen(prompt);
        let tokens = seen.iter().map(|&token| speller.add(&self.tokenizer, token)).collect();
        host::tell(&Tell::Began(Began { tokens, n_tokens: prompt.len() as u64 }));
        self.engine.begin(prompt)?;
        let mut end = End::Length;
        let (mut tokens, mut millis, mut told) = (Vec::new(), 0.0, host::now_millis());
        let mut pause_millis = write.pause_millis;
        for n in 0..write.n_tokens {
            let start = host::now_millis();
            let chosen = self.engine.next(&sampling, N_CANDIDATES).await?;
            millis += host::now_millis() - start;
            tokens.push(Token {
                id: chosen.token,
                adds: speller.add(&self.tokenizer, chosen.token),
                candidates: chosen
                    .candidates
                    .iter()
                    .map(|candidate| {
                        (candidate.token, self.tokenizer.name(candidate.token), share(candidate.probability, 1e6))
                    })
                    .collect(),
            });
            let is_last = n + 1 == write.n_tokens;
            if is_last || pause_millis > 0 || host::now_millis() - told > TELL_EVERY_MILLIS {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a clock's time is small")]
                let micros = (millis * 1000.0).round() as u64;
                host::tell(&Tell::Wrote(Wrote { tokens: std::mem::take(&mut tokens), n_tokens: n + 1, micros }));
                host::pause(if is_last { 0 } else { pause_millis }).await;
                pause_millis = asked_pace().unwrap_or(pause_millis);
                told = host::now_millis();
                if is_interrupted() && !is_last {
                    end = End::Stopped;
                    break;
                }
            }
        }
        host::tell(&Tell::Ended(end));
        Ok(())
    }

    /// Tells how the text's last tokens attend to each other.
    pub async fn attention(&mut self, head: Head) -> Result<(), Failure> {
        let Head { layer, head: index } = head;
        if layer >= self.n_layer || index >= self.n_head {
            return Ok(());
        }
        let attention = self.engine.attention(layer, index, MAP_TOKENS).await.map_err(|error| broken(&error))?;
        let thousandths = |weight: &f32| u16::try_from(share(*weight, 1e3)).unwrap_or(1000);
        host::tell(&Tell::Attention(Map {
            head,
            tokens: attention.tokens.iter().map(|&token| self.tokenizer.name(token)).collect(),
            weights: attention.weights.iter().map(thousandths).collect(),
            earlier: attention.earlier.iter().map(thousandths).collect(),
        }));
        Ok(())
    }
}
