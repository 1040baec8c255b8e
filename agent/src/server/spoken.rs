//! The language that a viewer reads, and what is said to it of the agent's English sentences.
//!
//! History and the hub hold English, and numbers beside it. A sentence is put in another language where it leaves, so
//! that what was kept yesterday is read in the language of today.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, ws::Utf8Bytes},
    http::{HeaderMap, header, request::Parts},
};
use headroom_shared::{
    protocol::{
        ServerMessage,
        event::{Event, What},
        run::{PlanSummary, Run, Training},
        state::{DriverState, HistoryState, State},
    },
    text::{LANGUAGES, table},
};
use serde::Serialize;

use super::hub::encoded;

/// Languages of one `Accept-Language` that are looked at: browsers send a handful.
const ACCEPTED_MAX: usize = 32;

/// A language of ours, by its place among [`LANGUAGES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spoken(usize);

impl Spoken {
    /// The one that everything is kept in.
    pub const ENGLISH: Self = Self(0);

    /// Of a code, as `de` or `zh-Hans-CN`; `None` where it is none of ours.
    pub fn of_code(code: &str) -> Option<Self> {
        let primary = code.split('-').next().unwrap_or_default();
        LANGUAGES.iter().position(|language| language.code.eq_ignore_ascii_case(primary)).map(Self)
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

    /// Puts what is said into this language.
    pub fn say<T: Worded>(self, mut said: T) -> T {
        if self != Self::ENGLISH {
            said.word(self);
        }
        said
    }

    /// A sentence, or several.
    pub fn sentence(self, english: &mut String) {
        *english = table(LANGUAGES[self.0].code).translated(english);
    }
}

impl<S: Sync> FromRequestParts<S> for Spoken {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of_headers(&parts.headers))
    }
}

/// What has sentences of the agent's in it.
pub trait Worded {
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

impl Worded for PlanSummary {
    fn has_words(&self) -> bool {
        self.recompute.is_some()
    }

    fn word(&mut self, spoken: Spoken) {
        if let Some(levels) = &mut self.recompute {
            *levels = table(LANGUAGES[spoken.0].code).translated_list(levels);
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

/// A message as it goes to viewers: encoded once, or once for each language where it has sentences.
#[derive(Clone, Debug)]
pub struct Texts([Utf8Bytes; LANGUAGES.len()]);

impl Texts {
    /// Of a message.
    pub fn of<T: Clone + Serialize + Worded>(message: &T) -> Self {
        let english = encoded(message);
        let has_words = message.has_words();
        Self(std::array::from_fn(|at| match Spoken(at) {
            Spoken::ENGLISH => english.clone(),
            spoken if has_words => encoded(&spoken.say(message.clone())),
            _ => english.clone(),
        }))
    }

    /// It in a language.
    pub fn of_language(&self, spoken: Spoken) -> Utf8Bytes {
        self.0[spoken.0].clone()
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
        assert_eq!(LANGUAGES[Spoken::of_headers(&headers).0].code, code, "{accepted}");
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
        assert!(texts.0.iter().all(|text| text.as_ptr() == texts.0[0].as_ptr()), "it is the same place");
        let message = "The driver reported Xid 79 of its card: the GPU has fallen off the bus.".to_owned();
        let texts = Texts::of(&event(What::RunExplained { message, xid: Some(79) }));
        let german = Spoken::of_code("de-AT").expect("it is one of ours");
        assert!(texts.of_language(Spoken::ENGLISH).contains("fallen off the bus"));
        assert!(texts.of_language(german).contains("vom Bus verschwunden"));
        assert!(texts.of_language(german).contains("\"xid\":79"), "figures stay");
    }
}
