//! What the worker tells a page that shows no more than words, as the rig's does: a mark and words. The first message has the
//! worker's texts. So such a page has neither these texts nor code that reads what the demo's page is told, before it is
//! asked for a text.

/// A message to such a page. `web/demo/remote.js` makes them of what the demo's page would be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The texts that all others are in, packed; first of all.
    Texts(&'a str),
    /// The iteration that the checkpoint is of.
    Iteration(u64),
    /// How many hundredths of the weights are there.
    Progress(u64),
    /// What runs the model: an adapter's name, which may be empty, or the CPU's instructions. [`Self::Ready`] follows.
    Device(&'a str),
    /// It can write, on WebGPU or not; and why so, a packed text.
    Ready(bool, &'a str),
    /// The prompt, as the model sees it: a text begins.
    Began(&'a str),
    /// What was written since.
    Adds(&'a str),
    /// Tenths of tokens a second.
    Rate(u64),
    /// The text is as long as it was to be, or was stopped; and its tokens.
    Ended(bool, u64),
    /// What to do about what follows, a packed text.
    Hint(&'a str),
    /// Why a prompt cannot be read, a packed text; the model stays.
    Refused(&'a str),
    /// Why there is no model, a packed text.
    Failed(&'a str),
    /// The same where the checkpoint did not arrive: a kind, and the words of who says so.
    Unfetched(&'a str, &'a str),
}

/// What a message says; nothing where it is not understood.
#[must_use]
pub fn heard(message: &str) -> Option<Told<'_>> {
    let mut chars = message.chars();
    let mark = chars.next()?;
    let words = chars.as_str();
    let number = || words.parse().ok();
    Some(match mark {
        't' => Told::Texts(words),
        'i' => Told::Iteration(number()?),
        'p' => Told::Progress(number()?),
        'd' => Told::Device(words),
        'g' | 'c' => Told::Ready(mark == 'g', words),
        'b' => Told::Began(words),
        'a' => Told::Adds(words),
        's' => Told::Rate(number()?),
        'l' | 'e' => Told::Ended(mark == 'l', number()?),
        'h' => Told::Hint(words),
        'q' => Told::Refused(words),
        'f' => Told::Failed(words),
        'x' => {
            let (kind, words) = words.split_once(' ')?;
            Told::Unfetched(kind, words)
        }
        _ => return None,
    })
}

/// The ask that opens a checkpoint, as JSON: files, which `remote.js` makes of it.
pub const OPEN: &str = r#"{"Open":{"source":"Files","way":null,"gpu_bytes":null}}"#;

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
        let expected = Ask::Open { source: Source::Files, way: None, gpu_bytes: None };
        assert_eq!(asked(OPEN), expected);
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
    fn a_message_is_understood_or_ignored() {
        assert_eq!(heard("i250"), Some(Told::Iteration(250)));
        assert_eq!(heard("cé\nf"), Some(Told::Ready(false, "é\nf")));
        assert_eq!(heard("g"), Some(Told::Ready(true, "")));
        assert_eq!(heard("l12"), Some(Told::Ended(true, 12)));
        assert_eq!(heard("xrefused Not now."), Some(Told::Unfetched("refused", "Not now.")));
        assert_eq!(heard("e0"), Some(Told::Ended(false, 0)));
        for other in ["", "?", "{}", "i", "ix", "é", "s-1", "x"] {
            assert_eq!(heard(other), None, "{other}");
        }
    }
}
