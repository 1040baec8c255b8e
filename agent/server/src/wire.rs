//! Encoded messages, each encoded once for all viewers of a scope.

use axum::extract::ws::Utf8Bytes;
use headroom_protocol::Scope;
use serde::Serialize;

use super::secrets::Redact;
use headroom_agent_core::logging::HTTP;

/// Encodes a message as JSON.
pub fn encoded<T: Serialize>(message: &T) -> Utf8Bytes {
    // The protocol has no maps with keys that JSON cannot represent.
    serde_json::to_string(message).inspect_err(log_failure).unwrap_or_default().into()
}

/// Encodes a message of about `bytes` bytes with a single allocation.
pub fn encoded_in<T: Serialize>(bytes: usize, message: &T) -> Utf8Bytes {
    let mut text = Vec::with_capacity(bytes);
    let written = serde_json::to_writer(&mut text, message).inspect_err(log_failure);
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default().into()
}

fn log_failure(error: &serde_json::Error) {
    tracing::error!(target: HTTP, %error, "cannot encode a message");
}

/// A message for viewers of each scope: encoded once, or once per scope if it contains secrets.
#[derive(Clone, Debug)]
pub struct EncodedMessage {
    /// The text with secrets redacted.
    view: Utf8Bytes,
    control: Utf8Bytes,
}

impl EncodedMessage {
    /// Encodes a message.
    pub fn new<T: Clone + PartialEq + Serialize + Redact>(message: &T) -> Self {
        let control = encoded(message);
        let mut redacted = message.clone();
        redacted.redact();
        let view = if redacted == *message { control.clone() } else { encoded(&redacted) };
        Self { view, control }
    }

    /// Returns the text for a viewer of the scope.
    pub fn of_scope(&self, scope: Scope) -> Utf8Bytes {
        if scope < Scope::Control { self.view.clone() } else { self.control.clone() }
    }
}

#[cfg(test)]
mod tests {
    use headroom_protocol::{
        ServerMessage,
        event::{Event, EventKind},
    };
    use headroom_text as text;

    use super::*;

    #[test]
    fn message_without_secrets_is_encoded_once() {
        let what = EventKind::RunExplained { message: text::xid_reported(79_u64, text::XID_79).into(), xid: Some(79) };
        let encoded = EncodedMessage::new(&ServerMessage::Event(Event { id: 1, time_ms: 2, run: None, what }));
        assert_eq!(encoded.view.as_ptr(), encoded.control.as_ptr());
        let text = encoded.of_scope(Scope::View);
        assert!(text.contains("fallen off the bus") && text.contains(r#""key":"xid_reported""#), "{text}");
    }
}
