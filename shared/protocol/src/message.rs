//! An agent's message: its English wording, and the text that a page renders in its own language.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use headroom_text::{self as text, Key, NOT_FETCHED, NamedText, Table, Text};

/// A message of one or more sentences.
///
/// In JSON, the field `message` has the English wording. If the message has a text, `message_text` is beside it.
/// Messages from history of earlier versions and from systems and drivers exist only in English. Inside another value,
/// the field may have another name, as in [`Run::explanation`](super::run::Run::explanation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The English wording.
    pub en: String,
    /// The message as a text, if it has one.
    pub text: Option<NamedText>,
}

impl Message {
    /// Creates a message without a text.
    #[must_use]
    pub fn plain(en: impl Into<String>) -> Self {
        Self { en: en.into(), text: None }
    }

    /// Returns the message as a text; the English wording if this build does not have the message's text.
    #[must_use]
    pub fn text(&self) -> Text {
        self.known_text().unwrap_or_else(|| text::as_is(self.en.as_str()))
    }

    fn known_text(&self) -> Option<Text> {
        self.text.as_ref().and_then(NamedText::text)
    }

    /// Renders the message in a table's language; in English if this build or the table does not have the text.
    #[must_use]
    pub fn render(&self, table: &Table) -> String {
        let said = self.known_text().map(|text| table.say(&text)).filter(|said| !said.contains(NOT_FETCHED));
        said.unwrap_or_else(|| self.en.clone())
    }

    /// Whether the message has this text, with any arguments.
    #[must_use]
    pub fn is(&self, key: Key) -> bool {
        self.known_text().is_some_and(|text| text.is(&key.into()))
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl From<Text> for Message {
    fn from(text: Text) -> Self {
        Self { en: text.to_string(), text: NamedText::of(&text) }
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl From<Key> for Message {
    fn from(key: Key) -> Self {
        Text::from(key).into()
    }
}

/// Formats the English wording.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.en)
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        message::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        message::deserialize(deserializer)
    }
}

/// A field that contains an optional or required message.
pub trait MessageField: Sized {
    /// Returns the message.
    fn message(&self) -> Option<&Message>;
    /// Creates the field; `None` if a required message is missing.
    fn of(message: Option<Message>) -> Option<Self>;
}

impl MessageField for Message {
    fn message(&self) -> Option<&Message> {
        Some(self)
    }

    fn of(message: Option<Message>) -> Option<Self> {
        message
    }
}

impl MessageField for Option<Message> {
    fn message(&self) -> Option<&Message> {
        self.as_ref()
    }

    fn of(message: Option<Message>) -> Option<Self> {
        Some(message)
    }
}

/// Serialization of a message field, for `#[serde(flatten, with = "message::NAME")]`. The English wording is a string of
/// that name, so that programs written before messages had texts can still read it.
macro_rules! message_field {
    ($name:ident, $en:literal, $text:literal) => {
        pub(super) mod $name {
            use super::*;

            #[derive(Serialize)]
            struct SerializedForm<'a> {
                #[serde(rename = $en, skip_serializing_if = "Option::is_none")]
                en: Option<&'a str>,
                #[serde(rename = $text, skip_serializing_if = "Option::is_none")]
                text: Option<&'a NamedText>,
            }

            #[derive(Deserialize)]
            struct DeserializedForm {
                #[serde(rename = $en)]
                en: Option<String>,
                #[serde(rename = $text)]
                text: Option<NamedText>,
            }

            pub fn serialize<T: MessageField, S: Serializer>(field: &T, serializer: S) -> Result<S::Ok, S::Error> {
                let message = field.message();
                let en = message.map(|message| message.en.as_str());
                SerializedForm { en, text: message.and_then(|message| message.text.as_ref()) }.serialize(serializer)
            }

            pub fn deserialize<'de, T: MessageField, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
                let DeserializedForm { en, text } = DeserializedForm::deserialize(deserializer)?;
                T::of(en.map(|en| Message { en, text })).ok_or_else(|| D::Error::missing_field($en))
            }
        }
    };
}

message_field!(message, "message", "message_text");
message_field!(reason, "reason", "reason_text");
message_field!(explanation, "explanation", "explanation_text");
message_field!(unavailable, "unavailable", "unavailable_text");
message_field!(recompute, "recompute", "recompute_text");

/// Serialization of [`Run::config_notes`](super::run::Run::config_notes): a list of wordings as strings, and a parallel
/// list of texts.
pub(super) mod config_notes {
    use super::*;

    #[derive(Serialize)]
    struct SerializedForm<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        config_notes: Vec<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        config_notes_text: Vec<Option<&'a NamedText>>,
    }

    #[derive(Deserialize)]
    struct DeserializedForm {
        #[serde(default)]
        config_notes: Vec<String>,
        #[serde(default)]
        config_notes_text: Vec<Option<NamedText>>,
    }

    pub fn serialize<S: Serializer>(notes: &[Message], serializer: S) -> Result<S::Ok, S::Error> {
        let mut config_notes_text: Vec<_> = notes.iter().map(|note| note.text.as_ref()).collect();
        if config_notes_text.iter().all(Option::is_none) {
            config_notes_text.clear();
        }
        let config_notes = notes.iter().map(|note| note.en.as_str()).collect();
        SerializedForm { config_notes, config_notes_text }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Message>, D::Error> {
        let DeserializedForm { config_notes, config_notes_text } = DeserializedForm::deserialize(deserializer)?;
        let texts = config_notes_text.into_iter().chain(std::iter::repeat(None));
        Ok(config_notes.into_iter().zip(texts).map(|(en, text)| Message { en, text }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::EventKind,
        run::{Run, Training},
        state::DriverState,
    };
    use headroom_languages::table;
    use headroom_text::size;

    #[track_caller]
    fn reads_back<T: Serialize + for<'de> Deserialize<'de> + PartialEq + fmt::Debug>(value: &T, part: &str) {
        let json = serde_json::to_string(value).expect("JSON");
        assert!(json.contains(part), "{json}");
        assert_eq!(&serde_json::from_str::<T>(&json).expect("JSON"), value);
    }

    #[test]
    fn message_is_english_with_its_text_beside_it() {
        let message = || Message::from(text::run_none("ab"));
        let both = r#""there is no run ab","NAME_text":{"key":"run_none","args":[{"text":"ab"}]}"#;
        reads_back(
            &EventKind::RunExplained { message: message(), xid: None },
            &format!(r#""message":{}"#, both.replace("NAME", "message")),
        );
        reads_back(
            &DriverState::Gone { reason: message() },
            &format!(r#""reason":{}"#, both.replace("NAME", "reason")),
        );
        reads_back(
            &Training { unavailable: Some(message()), ..Training::default() },
            &format!(r#""unavailable":{}"#, both.replace("NAME", "unavailable")),
        );
        let notes = vec![Message::plain("one"), message()];
        reads_back(
            &Run { explanation: Some(message()), config_notes: notes, ..Run::default() },
            r#""config_notes":["one","there is no run ab"],"config_notes_text":[null,{"key":"run_none""#,
        );
    }

    #[test]
    fn message_of_an_earlier_version_is_its_english_words() {
        let json = r#"{"kind":"run_explained","message":"The card fell off.","xid":79}"#;
        let read: EventKind = serde_json::from_str(json).expect("an event");
        assert_eq!(read, EventKind::RunExplained { message: Message::plain("The card fell off."), xid: Some(79) });
        assert_eq!(serde_json::to_string(&read).expect("JSON"), json);
        let json = r#"{"kind":"run_explained","xid":79}"#;
        assert!(serde_json::from_str::<EventKind>(json).is_err());
    }

    #[test]
    fn message_of_a_later_version_is_said_in_english() {
        let german = table("de");
        let mut message = Message::from(text::shortage_missing(size(3 << 29)));
        assert_eq!(message.en, "1.50 GiB are missing");
        assert!(message.render(german).contains("1,50 GiB") && message.render(german) != message.en);
        "of_a_later_version".clone_into(&mut message.text.as_mut().expect("a text").key);
        assert_eq!(message.render(german), message.en);
        let message = Message::from(text::CARD_NONE);
        assert_eq!(message.render(&Table::unpacked("")), message.en, "a page that did not fetch it");
        assert!(message.is(text::CARD_NONE) && !message.is(text::TRY_CPU) && !Message::plain("x").is(text::CARD_NONE));
    }
}
