//! The language that a viewer reads, and what is said to it of the agent's English sentences; and whether it reads the
//! secrets of commands and configs (`secrets.rs`), which only the scope control does.
//!
//! History and the hub hold English, and numbers beside it. A sentence is put in another language where it leaves, so
//! that what was kept yesterday is read in the language of today.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{FromRequestParts, ws::Utf8Bytes},
    http::{HeaderMap, header, request::Parts},
};
use headroom_shared::{
    protocol::{
        Scope, ServerMessage,
        event::{Event, What},
        run::{PlanSummary, Run, Training},
        state::{DriverState, HistoryState, State},
    },
    text::{LANGUAGES, table},
};
use serde::Serialize;

use super::{hub::encoded, secrets::Redact};

/// Languages of one `Accept-Language` that are looked at: browsers send a handful.
const ACCEPTED_MAX: usize = 32;

/// A language of ours, by its place among [`LANGUAGES`], and whether secrets are redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoken {
    language: usize,
    scope: Scope,
}

impl Default for Spoken {
    fn default() -> Self {
        Self::ENGLISH
    }
}

impl Spoken {
    /// The one that everything is kept in, for the scope view.
    pub const ENGLISH: Self = Self::of(0);

    const fn of(language: usize) -> Self {
        Self { language, scope: Scope::View }
    }

    /// It for a viewer of that scope.
    pub const fn of_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Whether it is the language that everything is kept in.
    pub const fn is_english(self) -> bool {
        self.language == 0
    }

    /// Of a code, as `de` or `zh-Hans-CN`; `None` where it is none of ours.
    pub fn of_code(code: &str) -> Option<Self> {
        let primary = code.split('-').next().unwrap_or_default();
        LANGUAGES.iter().position(|language| language.code.eq_ignore_ascii_case(primary)).map(Self::of)
    }

    /// What a request would rather read: of ours the one with the highest weight, else English.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
        let mut best = (0.0, Self::ENGLISH);
        for accepted in values.flat_map(|value| value.split(',')).take(ACCEPTED_MAX) {
            let (code, weight) = accepted.split_once(';').unwrap_or((accepted, "q=1"));
            let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f64>().ok()).unwrap_or(0.0);
            // Of two that are as welcome the first counts.
            if weight > best.0
                && let Some(spoken) = Self::of_code(code.trim())
            {
                best = (weight, spoken);
            }
        }
        best.1
    }

    /// Puts what is said into this language, without the secrets that its scope does not read.
    pub fn say<T: Worded>(self, mut said: T) -> T {
        if self.scope < Scope::Control {
            said.redact();
        }
        if !self.is_english() {
            said.word(self);
        }
        said
    }

    /// A sentence, or several.
    pub fn sentence(self, english: &mut String) {
        *english = table(LANGUAGES[self.language].code).translated(english);
    }
}

impl<S: Sync> FromRequestParts<S> for Spoken {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // The check before all routes put it there; where there is none, nothing but the least is read.
        let scope = parts.extensions.get().copied().unwrap_or(Scope::View);
        Ok(Self::of_headers(&parts.headers).of_scope(scope))
    }
}

/// What has sentences of the agent's in it.
pub trait Worded: Redact {
    /// Whether it has any: what has none is encoded once for all.
    fn has_words(&self) -> bool;
    /// Puts them into a language.
    fn word(&mut self, spoken: Spoken);
}

impl<T: Worded> Worded for Vec<T> {
    fn has_words(&self) -> bool {
        self.iter().any(Worded::has_words)
    }

    fn word(&mut self, spoken: Spoken) {
        self.iter_mut().for_each(|said| said.word(spoken));
    }
}

impl Redact for PlanSummary {
    fn redact(&mut self) {}
}

impl Redact for Training {
    fn redact(&mut self) {}
}

impl Redact for State {
    fn redact(&mut self) {}
}

impl Redact for ServerMessage {
    fn redact(&mut self) {
        match self {
            Self::Hello(hello) => hello.runs.redact(),
            Self::Event(event) => event.redact(),
            Self::Past(past) => past.events.redact(),
            Self::State(_)
            | Self::Inventory { .. }
            | Self::Telemetry(_)
            | Self::Slow(_)
            | Self::Lost { .. }
            | Self::Refused(_) => {}
        }
    }
}

impl Worded for PlanSummary {
    fn has_words(&self) -> bool {
        self.recompute.is_some()
    }

    fn word(&mut self, spoken: Spoken) {
        if let Some(levels) = &mut self.recompute {
            *levels = table(LANGUAGES[spoken.language].code).translated_list(levels);
        }
    }
}

impl Worded for Run {
    fn has_words(&self) -> bool {
        self.explanation.is_some() || !self.config_notes.is_empty() || self.plan.as_ref().is_some_and(Worded::has_words)
    }

    fn word(&mut self, spoken: Spoken) {
        self.explanation.iter_mut().chain(&mut self.config_notes).for_each(|said| spoken.sentence(said));
        if let Some(plan) = &mut self.plan {
            plan.word(spoken);
        }
    }
}

impl Worded for Training {
    fn has_words(&self) -> bool {
        self.unavailable.is_some() || self.devices.iter().any(|device| device.unavailable.is_some())
    }

    fn word(&mut self, spoken: Spoken) {
        let of_devices = self.devices.iter_mut().filter_map(|device| device.unavailable.as_mut());
        self.unavailable.iter_mut().chain(of_devices).for_each(|why| spoken.sentence(why));
    }
}

impl Worded for Event {
    fn has_words(&self) -> bool {
        match &self.what {
            What::RunStarted { run } => run.has_words(),
            What::RunPlanned { plan } => plan.has_words(),
            What::RunExplained { .. } | What::RunNotSaved { .. } | What::HistoryPaused { .. } => true,
            _ => false,
        }
    }

    fn word(&mut self, spoken: Spoken) {
        match &mut self.what {
            What::RunStarted { run } => run.word(spoken),
            What::RunPlanned { plan } => plan.word(spoken),
            What::RunExplained { message, .. } | What::RunNotSaved { message, .. } => spoken.sentence(message),
            What::HistoryPaused { reason } => spoken.sentence(reason),
            _ => {}
        }
    }
}

impl Worded for State {
    fn has_words(&self) -> bool {
        matches!(self.driver, DriverState::NoDriver { .. } | DriverState::Gone { .. })
            || matches!(self.history, HistoryState::Paused { .. })
    }

    fn word(&mut self, spoken: Spoken) {
        if let DriverState::NoDriver { reason } | DriverState::Gone { reason } = &mut self.driver {
            spoken.sentence(reason);
        }
        if let HistoryState::Paused { reason, .. } = &mut self.history {
            spoken.sentence(reason);
        }
    }
}

impl Worded for ServerMessage {
    fn has_words(&self) -> bool {
        match self {
            Self::Hello(hello) => hello.runs.has_words() || hello.state.has_words(),
            Self::State(state) => state.has_words(),
            Self::Event(event) => event.has_words(),
            Self::Past(past) => past.events.has_words(),
            Self::Inventory { .. } | Self::Telemetry(_) | Self::Slow(_) | Self::Lost { .. } | Self::Refused(_) => false,
        }
    }

    fn word(&mut self, spoken: Spoken) {
        match self {
            Self::Hello(hello) => {
                hello.runs.word(spoken);
                hello.state.word(spoken);
            }
            Self::State(state) => state.word(spoken),
            Self::Event(event) => event.word(spoken),
            Self::Past(past) => past.events.word(spoken),
            // A page has words of its own for each code of a refusal.
            Self::Inventory { .. } | Self::Telemetry(_) | Self::Slow(_) | Self::Lost { .. } | Self::Refused(_) => {}
        }
    }
}

/// A message as it goes to viewers: encoded once, or once for each language where it has sentences, and apart for each
/// scope where it has secrets.
#[derive(Clone, Debug)]
pub struct Texts {
    /// With secrets redacted.
    view: Arc<[Utf8Bytes; LANGUAGES.len()]>,
    control: Arc<[Utf8Bytes; LANGUAGES.len()]>,
}

impl Texts {
    /// Of a message.
    pub fn of<T: Clone + PartialEq + Serialize + Worded>(message: &T) -> Self {
        let control = Self::of_languages(message);
        let mut redacted = message.clone();
        redacted.redact();
        let view = if redacted == *message { Arc::clone(&control) } else { Self::of_languages(&redacted) };
        Self { view, control }
    }

    fn of_languages<T: Clone + Serialize + Worded>(message: &T) -> Arc<[Utf8Bytes; LANGUAGES.len()]> {
        let english = encoded(message);
        let has_words = message.has_words();
        Arc::new(std::array::from_fn(|language| {
            if language == 0 || !has_words {
                return english.clone();
            }
            let mut said = message.clone();
            said.word(Spoken::of(language));
            encoded(&said)
        }))
    }

    /// It in a language, as its scope reads it.
    pub fn of_language(&self, spoken: Spoken) -> Utf8Bytes {
        let texts = if spoken.scope < Scope::Control { &self.view } else { &self.control };
        texts[spoken.language].clone()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[track_caller]
    fn read(accepted: &str, code: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_str(accepted).expect("a header"));
        assert_eq!(LANGUAGES[Spoken::of_headers(&headers).language].code, code, "{accepted}");
    }

    #[test]
    fn the_language_that_is_most_welcome_is_spoken() {
        assert_eq!(Spoken::of_headers(&HeaderMap::new()), Spoken::ENGLISH);
        for (accepted, code) in [
            ("de", "de"),
            ("zh-Hans-CN,en;q=0.5", "zh"),
            ("fr-FR,fr;q=0.9,ja;q=0.4, DE;q=0.7", "de"),
            ("de;q=0, ja ; q=0.1", "ja"),
            ("fr, *;q=0.1", "en"),
            ("de;q=x", "en"),
            ("", "en"),
            (";;,,q=1;q", "en"),
        ] {
            read(accepted, code);
        }
    }

    #[test]
    fn what_has_no_sentence_is_encoded_once() {
        let event = |what| ServerMessage::Event(Event { id: 1, time_ms: 2, run: None, what });
        let texts = Texts::of(&event(What::CardLost { gpu: "GPU-1".to_owned() }));
        let mut all = texts.view.iter().chain(&*texts.control);
        assert!(all.all(|text| text.as_ptr() == texts.view[0].as_ptr()), "it is the same place");
        let message = "The driver reported Xid 79 of its card: the GPU has fallen off the bus.".to_owned();
        let texts = Texts::of(&event(What::RunExplained { message, xid: Some(79) }));
        let german = Spoken::of_code("de-AT").expect("it is one of ours");
        assert!(texts.of_language(Spoken::ENGLISH).contains("fallen off the bus"));
        assert!(texts.of_language(german).contains("vom Bus verschwunden"));
        assert!(texts.of_language(german).contains("\"xid\":79"), "figures stay");
    }
}
