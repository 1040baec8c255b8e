//! An open model and its text generation.

use headroom_kernels::sampling::Sampling;
use headroom_planner::gpt::GptConfig;
use headroom_protocol::demo::{
    End, Failure, FailureKind, GenerationRequest, Maps, PromptReport, Token, TokenAttention, TokenReport,
    WorkerResponse,
};
use headroom_text::{self as text, Text};

use crate::{
    asked_attention, asked_pace,
    engine::{Engine, EngineError},
    host, is_interrupted,
    tokenizer::{TokenDecoder, Tokenizer},
};

/// Number of candidates sent with each token. No backend returns more.
const N_CANDIDATES: u32 = 30;
/// Number of tokens in an attention map.
const MAP_TOKENS: usize = 20;
/// Time between attention maps.
const MAPS_EVERY_MILLIS: f64 = 100.0;
/// Maximum share of the time that attention maps take.
const MAPS_SHARE: f64 = 0.05;
/// Time for which tokens are batched before they are sent: two frames of a 60 Hz screen.
const TELL_EVERY_MILLIS: f64 = 33.0;

/// Converts a share from 0 to 1 into an integer from 0 to `whole`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the whole")]
fn share(of: f32, whole: f32) -> u32 {
    (of.clamp(0.0, 1.0) * whole).round() as u32
}

/// An open model with its tokenizer.
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    tokenizer: Tokenizer,
    vocab_size: u64,
}

/// Converts an engine error into a device failure.
fn broken(error: &EngineError) -> Failure {
    Failure { kind: FailureKind::Device, text: error.sentence(), hint: None }
}

impl Session {
    /// Creates a session for a model with loaded weights.
    pub const fn new(engine: Engine, tokenizer: Tokenizer, config: &GptConfig) -> Self {
        Self { engine, tokenizer, vocab_size: config.vocab_size() }
    }

    /// Generates a text and sends it piece by piece. An invalid prompt is reported and leaves the model unchanged.
    pub async fn write(&mut self, write: &GenerationRequest) -> Result<(), Failure> {
        let beginning = self.tokenizer.beginning().to_string();
        let prompt = if write.prompt.is_empty() { &beginning } else { &write.prompt };
        match self.tokenizer.encode(prompt).and_then(|prompt| self.known(prompt)) {
            Ok(prompt) => self.go_on_from(&prompt, write).await.map_err(|error| broken(&error)),
            Err(text) => {
                host::tell(&WorkerResponse::Failed(Failure { kind: FailureKind::Prompt, text, hint: None }));
                Ok(())
            }
        }
    }

    /// Checks that the model has every token of a prompt. A tokenizer may have more tokens than the model.
    fn known(&self, prompt: Vec<u32>) -> Result<Vec<u32>, Text> {
        match prompt.iter().find(|&&token| u64::from(token) >= self.vocab_size) {
            Some(&token) => Err(text::demo_unknown_token(self.tokenizer.name(token), text::count(self.vocab_size))),
            None => Ok(prompt),
        }
    }

    async fn go_on_from(&mut self, prompt: &[u32], write: &GenerationRequest) -> Result<(), EngineError> {
        let sampling = Sampling { temperature: write.temperature, top_k: write.top_k, seed: write.seed };
        let mut speller = TokenDecoder::default();
        // Only the part of the prompt within the context is sent. The page would have to draw the rest as well.
        let seen = self.engine.seen(prompt);
        let tokens = seen.iter().map(|&token| speller.add(&self.tokenizer, token)).collect();
        host::tell(&WorkerResponse::Began(PromptReport { tokens, n_tokens: prompt.len() as u64 }));
        self.engine.begin(prompt, if write.maps { MAP_TOKENS } else { 0 })?;
        let mut maps_at_millis = host::now_millis();
        let mut end = End::Length;
        let (mut tokens, mut millis, mut reported_millis) = (Vec::new(), 0.0, host::now_millis());
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
            if is_last || pause_millis > 0 || host::now_millis() - reported_millis > TELL_EVERY_MILLIS {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a clock's time is small")]
                let micros = (millis * 1000.0).round() as u64;
                host::tell(&WorkerResponse::Wrote(TokenReport {
                    tokens: std::mem::take(&mut tokens),
                    n_tokens: n + 1,
                    micros,
                }));
                host::pause(if is_last { 0 } else { pause_millis }).await;
                pause_millis = asked_pace().unwrap_or(pause_millis);
                if let Some(token) = asked_attention() {
                    self.tell_attention(token).await?;
                }
                let start = host::now_millis();
                if write.maps && start > maps_at_millis {
                    self.tell_maps().await?;
                    let took_millis = host::now_millis() - start;
                    maps_at_millis = start + MAPS_EVERY_MILLIS.max(took_millis / MAPS_SHARE);
                }
                reported_millis = host::now_millis();
                if is_interrupted() && !is_last {
                    end = End::Stopped;
                    break;
                }
            }
        }
        if write.maps {
            self.tell_maps().await?;
        }
        host::tell(&WorkerResponse::Ended(end));
        Ok(())
    }

    /// Sends the attention of a token of the text. Does nothing for a token beyond the text.
    pub async fn attention(&mut self, token: u64) -> Result<(), Failure> {
        self.tell_attention(token).await.map_err(|error| broken(&error))
    }

    async fn tell_attention(&mut self, token: u64) -> Result<(), EngineError> {
        let index = usize::try_from(token).unwrap_or(usize::MAX);
        if let Some((first, weights)) = self.engine.attention_of(index).await? {
            let weights = thousandths(&weights);
            host::tell(&WorkerResponse::Attention(TokenAttention { token, first: first as u64, weights }));
        }
        Ok(())
    }

    async fn tell_maps(&mut self) -> Result<(), EngineError> {
        let (tokens, weights) = self.engine.maps().await?;
        let tokens = tokens.iter().map(|&token| self.tokenizer.name(token)).collect();
        host::tell(&WorkerResponse::Maps(Maps { tokens, weights: thousandths(&weights) }));
        Ok(())
    }
}

fn thousandths(weights: &[f32]) -> Vec<u16> {
    weights.iter().map(|weight| u16::try_from(share(*weight, 1e3)).unwrap_or(1000)).collect()
}
