//! Parser for client messages. Every input gives a message or a refusal with a reason.

use serde::Deserialize;

use super::{CLIENT_MESSAGE_BYTES_MAX, ClientMessage, PROTOCOL_VERSION, Refusal, RefusalCode, message::Message};

/// Fields that the greeting of every version has. The version is checked before the rest, so a page of another version
/// gets a version error instead of a field error.
#[derive(Deserialize)]
struct Greeting {
    #[serde(rename = "type")]
    kind: String,
    protocol: u32,
}

impl Refusal {
    /// A refusal with the versions that this side speaks.
    #[must_use]
    pub fn new(code: RefusalCode, message: Message) -> Self {
        Self { code, message, supported: vec![PROTOCOL_VERSION] }
    }
}

/// Parses a client's message.
///
/// # Errors
/// The message is too long, is not a greeting, or has another protocol version.
pub fn read_client_message(text: &str) -> Result<ClientMessage, Refusal> {
    let bad = |message: &str| Refusal::new(RefusalCode::BadHello, Message::plain(message));
    if text.len() > CLIENT_MESSAGE_BYTES_MAX {
        return Err(bad("The message is longer than any that a client says."));
    }
    let greeting: Greeting = serde_json::from_str(text)
        .map_err(|_| bad("The first message has to be a hello with the version of the protocol."))?;
    if greeting.kind != "hello" {
        return Err(bad("The first message has to be a hello."));
    }
    if greeting.protocol != PROTOCOL_VERSION {
        return Err(Refusal::new(
            RefusalCode::UnknownVersion,
            Message::plain(format!(
                "This agent speaks version {PROTOCOL_VERSION} of the protocol, and the page version {}.",
                greeting.protocol
            )),
        ));
    }
    serde_json::from_str(text).map_err(|_| bad("The hello lacks its token, or something in it has another form."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str) -> RefusalCode {
        let refusal = read_client_message(text).expect_err(text);
        assert_eq!(refusal.supported, [PROTOCOL_VERSION]);
        assert!(!refusal.message.en.is_empty());
        refusal.code
    }

    #[test]
    fn a_greeting_is_read() {
        for after in [None, Some(super::super::ResumePoint { time_ms: u64::MAX, event: 7 })] {
            let hello =
                ClientMessage::Hello { protocol: PROTOCOL_VERSION, token: "0".repeat(64), after, language: None };
            let text = serde_json::to_string(&hello).expect("a message");
            assert_eq!(read_client_message(&text), Ok(hello));
        }
        // An unknown field of a later minor form is accepted.
        read_client_message(r#"{"type":"hello","protocol":1,"token":"x","zone":"JST"}"#).expect("a greeting");
    }

    #[test]
    fn another_version_is_distinguished_from_nonsense() {
        assert_eq!(refused(r#"{"type":"hello","protocol":2,"ticket":"x"}"#), RefusalCode::UnknownVersion);
        assert_eq!(refused(r#"{"type":"hello","protocol":0}"#), RefusalCode::UnknownVersion);
        let deep = format!(r#"{{"type":"hello","protocol":1,"token":{}"x"{}}}"#, "[".repeat(900), "]".repeat(900));
        for text in [
            "",
            "null",
            "[]",
            "hello",
            r#"{"type":"hello"}"#,
            r#"{"type":"bye","protocol":1}"#,
            r#"{"type":"hello","protocol":-1,"token":"x"}"#,
            r#"{"type":"hello","protocol":1}"#,
            r#"{"type":"hello","protocol":1,"token":7}"#,
            r#"{"type":"hello","protocol":1,"token":"x","after":{"time_ms":-1,"event":0}}"#,
            &deep,
            &format!(r#"{{"type":"hello","protocol":1,"token":"{}"}}"#, "x".repeat(CLIENT_MESSAGE_BYTES_MAX)),
        ] {
            assert_eq!(refused(text), RefusalCode::BadHello, "{text}");
        }
    }
}
