//! What the worker tells a page that shows no more than words, as the rig's does: sentences in its language, made by the
//! worker. Such a page needs neither the worker's texts nor code that reads what the demo's page is told.

use super::Remote;

/// What the words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How far the weights are.
    Progress,
    /// The iteration that the checkpoint is of, in digits.
    Iteration,
    /// What runs the model, and why that.
    Ready,
    /// The prompt, as the model sees it: a text begins.
    Began,
    /// What was written since.
    Adds,
    /// How fast.
    Rate,
    /// Why the text ended.
    Ended,
    /// Why a prompt cannot be read; the model stays.
    Refused,
    /// Why there is no model.
    Failed,
    /// The same, where a newer checkpoint is why.
    Replaced,
}

/// Each with the character that it is told by.
const KINDS: [(Kind, char); 10] = [
    (Kind::Progress, 'p'),
    (Kind::Iteration, 'i'),
    (Kind::Ready, 'r'),
    (Kind::Began, 'b'),
    (Kind::Adds, 'a'),
    (Kind::Rate, 's'),
    (Kind::Ended, 'e'),
    (Kind::Refused, 'q'),
    (Kind::Failed, 'f'),
    (Kind::Replaced, 'n'),
];

/// A message of these words.
#[must_use]
pub fn told(kind: Kind, words: &str) -> String {
    let mark = KINDS.iter().find(|(known, _)| *known == kind).map_or(' ', |(_, mark)| *mark);
    format!("{mark}{words}")
}

/// The words of a message; none of one that is not understood.
#[must_use]
pub fn heard(message: &str) -> Option<(Kind, &str)> {
    let mut chars = message.chars();
    let mark = chars.next()?;
    let (kind, _) = KINDS.iter().find(|(_, known)| *known == mark)?;
    Some((*kind, chars.as_str()))
}

/// The ask that opens a checkpoint, as JSON.
#[must_use]
pub fn open(remote: &Remote) -> String {
    let Remote { address, token, words } = remote;
    let [address, token, words] = [address, token, words].map(|words| quoted(words));
    format!(
        r#"{{"Open":{{"source":{{"Remote":{{"address":{address},"token":{token},"words":{words}}}}},"way":null,"gpu_bytes":null}}}}"#
    )
}

/// The ask that lets it write, as JSON, in the way of nanoGPT's sample.py. Made by hand: to write fractions takes a program
/// ten kilobytes.
#[must_use]
pub fn write(prompt: &str, seed: u64) -> String {
    let prompt = quoted(prompt);
    format!(
        r#"{{"Write":{{"prompt":{prompt},"temperature":0.8,"top_k":200,"seed":{seed},"n_tokens":500,"pause_millis":0,"head":{{"layer":0,"head":0}}}}}}"#
    )
}

/// The ask that ends a text, as JSON.
pub const STOP: &str = r#""Stop""#;

fn quoted(words: &str) -> String {
    serde_json::to_string(words).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{Ask, Head, Source, Write};

    fn asked(json: &str) -> Ask {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn what_is_made_by_hand_reads_back() {
        let words = "\"\\\n\u{1}é".to_owned();
        let remote =
            Remote { address: "http://127.0.0.1:1/api".to_owned(), token: words.clone(), words: words.clone() };
        let expected = Ask::Open { source: Source::Remote(remote.clone()), way: None, gpu_bytes: None };
        assert_eq!(asked(&open(&remote)), expected);
        let write_ = Write {
            prompt: words.clone(),
            temperature: 0.8,
            top_k: 200,
            seed: u64::MAX,
            n_tokens: 500,
            pause_millis: 0,
            head: Head::default(),
        };
        assert_eq!(asked(&write(&words, u64::MAX)), Ask::Write(write_));
        assert_eq!(asked(STOP), Ask::Stop);
    }

    #[test]
    fn a_message_has_its_kind_and_its_words() {
        for (at, (kind, mark)) in KINDS.into_iter().enumerate() {
            assert!(KINDS[..at].iter().all(|(other, known)| *other != kind && *known != mark), "{kind:?}");
            for words in ["", "a", "é\nf"] {
                assert_eq!(heard(&told(kind, words)), Some((kind, words)));
            }
        }
        assert_eq!((heard(""), heard("?"), heard("{}")), (None, None, None));
    }

    #[test]
    fn a_token_is_not_seen_in_what_is_printed() {
        let remote = Remote { address: "a".to_owned(), token: "secret".to_owned(), words: "w".to_owned() };
        let printed = format!("{:?}", Source::Remote(remote));
        assert!(printed.contains("address") && !printed.contains("secret"), "{printed}");
    }
}
