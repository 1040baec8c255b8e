//! Text protocol for pages without the demo's texts, such as the rig page. Each message is a tag and words; the first
//! one contains the worker's texts. Such a page therefore loads neither these texts nor the parser of the demo's
//! messages before a text is requested.

/// A message to such a page. `web/demo/remote.js` creates it from the demo's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerMessage<'a> {
    /// The texts used by all other messages, packed. It is the first message.
    Texts(&'a str),
    /// Iteration of the checkpoint.
    Iteration(u64),
    /// Loaded share of the weights in percent.
    Progress(u64),
    /// Device that runs the model: the adapter's name, which may be empty, or the CPU's instruction set.
    /// [`Self::Ready`] follows.
    Device(&'a str),
    /// The model is ready: whether it runs on WebGPU, and the reason as a packed text.
    Ready(bool, &'a str),
    /// A text begins with this prompt, as the model sees it.
    Began(&'a str),
    /// Text generated since the last message.
    Adds(&'a str),
    /// Speed in tenths of a token per second.
    Rate(u64),
    /// The text ended: whether it was complete or stopped, and its number of tokens.
    Ended(bool, u64),
    /// Suggested next step for the following error, a packed text.
    Hint(&'a str),
    /// Reason why a prompt was rejected, a packed text. The model stays loaded.
    Refused(&'a str),
    /// Reason why no model could be loaded, a packed text.
    Failed(&'a str),
    /// Failure to fetch the checkpoint: its kind, and the words of the server or the browser.
    Unfetched(&'a str, &'a str),
}

/// Parses a message. Returns `None` for an unknown one.
#[must_use]
pub fn heard(message: &str) -> Option<WorkerMessage<'_>> {
    let mut chars = message.chars();
    let mark = chars.next()?;
    let words = chars.as_str();
    let number = || words.parse().ok();
    Some(match mark {
        't' => WorkerMessage::Texts(words),
        'i' => WorkerMessage::Iteration(number()?),
        'p' => WorkerMessage::Progress(number()?),
        'd' => WorkerMessage::Device(words),
        'g' | 'c' => WorkerMessage::Ready(mark == 'g', words),
        'b' => WorkerMessage::Began(words),
        'a' => WorkerMessage::Adds(words),
        's' => WorkerMessage::Rate(number()?),
        'l' | 'e' => WorkerMessage::Ended(mark == 'l', number()?),
        'h' => WorkerMessage::Hint(words),
        'q' => WorkerMessage::Refused(words),
        'f' => WorkerMessage::Failed(words),
        'x' => {
            let (kind, words) = words.split_once(' ')?;
            WorkerMessage::Unfetched(kind, words)
        }
        _ => return None,
    })
}

/// JSON request that opens a checkpoint from files, which `remote.js` creates.
pub const OPEN: &str = r#"{"Open":{"source":"Files","way":null,"gpu_bytes":null}}"#;

/// Returns the JSON request that generates text with the parameters of nanoGPT's sample.py. It is formatted by hand,
/// because formatting fractions adds ten kilobytes to a program.
#[must_use]
pub fn write(prompt: &str, seed: u64) -> String {
    let prompt = quoted(prompt);
    format!(
        r#"{{"Write":{{"prompt":{prompt},"temperature":0.8,"top_k":200,"seed":{seed},"n_tokens":500,"pause_millis":0,"maps":false}}}}"#
    )
}

/// JSON request that stops a text.
pub const STOP: &str = r#""Stop""#;

fn quoted(words: &str) -> String {
    serde_json::to_string(words).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{GenerationRequest, Source, WorkerRequest};

    fn asked(json: &str) -> WorkerRequest {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn handwritten_file_reads_back() {
        let words = "\"\\\n\u{1}é".to_owned();
        let expected = WorkerRequest::Open { source: Source::Files, way: None, gpu_bytes: None };
        assert_eq!(asked(OPEN), expected);
        let write_ = GenerationRequest {
            prompt: words.clone(),
            temperature: 0.8,
            top_k: 200,
            seed: u64::MAX,
            n_tokens: 500,
            pause_millis: 0,
            maps: false,
        };
        assert_eq!(asked(&write(&words, u64::MAX)), WorkerRequest::Write(write_));
        assert_eq!(asked(STOP), WorkerRequest::Stop);
    }

    #[test]
    fn a_message_is_understood_or_ignored() {
        assert_eq!(heard("i250"), Some(WorkerMessage::Iteration(250)));
        assert_eq!(heard("cé\nf"), Some(WorkerMessage::Ready(false, "é\nf")));
        assert_eq!(heard("g"), Some(WorkerMessage::Ready(true, "")));
        assert_eq!(heard("l12"), Some(WorkerMessage::Ended(true, 12)));
        assert_eq!(heard("xrefused Not now."), Some(WorkerMessage::Unfetched("refused", "Not now.")));
        assert_eq!(heard("e0"), Some(WorkerMessage::Ended(false, 0)));
        for other in ["", "?", "{}", "i", "ix", "é", "s-1", "x"] {
            assert_eq!(heard(other), None, "{other}");
        }
    }
}
