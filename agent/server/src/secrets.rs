//! Redaction of secrets in command lines, configs and printed text for tokens of scope `view`.
//!
//! The history stores commands and configs unchanged, in a file that only the user can read. Tokens of scope `control`
//! read them unchanged too, because resuming a run by hand requires the exact words.

mod names;
#[cfg(test)]
pub mod tests;
mod value;
mod words;

use std::{borrow::Cow, sync::LazyLock};

use headroom_protocol::{
    ServerMessage,
    event::{Event, EventKind},
    message::Message,
    run::{Diagnosis, Run, RunRequest, Training},
    state::State,
};
use headroom_text::{Arg, NamedText};
use names::Name;
use regex::{Captures, Regex};
use serde_json::Value as Json;
use value::Separator;

/// The replacement of a secret.
pub const REDACTED: &str = "[redacted]";

/// A name of an option, a variable or a field.
static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"-{0,2}[A-Za-z_][A-Za-z0-9_.\-]*").ok());
/// Secrets recognised by their form.
static KNOWN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&names::FORMS.join("|")).ok());
/// Positional arguments of a login.
static LOGIN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(names::LOGIN).ok());

/// Redacts the secrets of a text; borrows a text without any.
pub fn text(text: &str) -> Cow<'_, str> {
    // The patterns are tested to compile. If one did not, the whole text would be redacted.
    all(text).unwrap_or(Cow::Borrowed(REDACTED))
}

fn all(text: &str) -> Option<Cow<'_, str>> {
    let text = chained(named(text)?, |text| Some(KNOWN.as_ref()?.replace_all(text, redacted)))?;
    let text = chained(text, |text| Some(LOGIN.as_ref()?.replace_all(text, redacted)))?;
    chained(text, |text| {
        let found = words::in_text(text)?;
        if found.is_empty() {
            return Some(Cow::Borrowed(text));
        }
        let mut out = text.to_owned();
        for range in found.into_iter().rev() {
            out.replace_range(range, REDACTED);
        }
        Some(Cow::Owned(out))
    })
}

/// Applies the next step of a redaction; the result is borrowed if no step has found anything.
fn chained<'a>(text: Cow<'a, str>, step: impl FnOnce(&str) -> Option<Cow<'_, str>>) -> Option<Cow<'a, str>> {
    let changed = match step(&text)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(changed) => Some(changed),
    };
    Some(changed.map_or(text, Cow::Owned))
}

fn redacted(found: &Captures<'_>) -> String {
    let start = |name| found.name(name).map(|start| start.as_str());
    match (start("before"), start("hook").or_else(|| start("call"))) {
        (Some(scheme), _) => format!("{scheme}{REDACTED}@"),
        (None, Some(start)) => format!("{start}{REDACTED}"),
        (None, None) => REDACTED.to_owned(),
    }
}

/// Redacts values after the name of a secret.
fn named(text: &str) -> Option<Cow<'_, str>> {
    let names = NAME.as_ref()?;
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(name) = names.find_at(text, at) {
        at = name.end();
        let kind = Name::of(name.as_str());
        if kind == Name::Other {
            continue;
        }
        let Some(found) = value::find(&text[name.end()..])? else { continue };
        let before = &text[..name.start()];
        let is_option = name.as_str().starts_with("--")
            || name.as_str().starts_with('-') && !before.ends_with(|c: char| !c.is_whitespace() && !"\"'`".contains(c));
        let is_named = match found.separator {
            Separator::Operator => true,
            Separator::Colon => is_option || !Name::is_weak(name.as_str()),
            Separator::Comma => value::is_argument(before),
            // A space also separates ordinary words.
            Separator::Space => is_option,
        };
        let (begin, end) = (name.end() + found.range.start, name.end() + found.range.end);
        let value = &text[begin..end];
        if !is_named || value.starts_with("--") {
            continue;
        }
        // Help texts have `--key=value`.
        let is_meant = if is_option { value != "value" } else { words::is_key(value) };
        if kind == Name::Key && !is_meant {
            continue;
        }
        if text[begin..].starts_with(REDACTED) {
            at = begin + REDACTED.len();
            continue;
        }
        out.push_str(&text[copied..begin]);
        out.push_str(REDACTED);
        copied = end;
        at = copied;
    }
    if copied == 0 {
        return Some(Cow::Borrowed(text));
    }
    out.push_str(&text[copied..]);
    Some(Cow::Owned(out))
}

/// Redacts the words of a command. An option's value may be the next word.
fn command(words: &mut [String]) {
    let plain: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = words::in_words(&plain);
    for (i, range) in found {
        words[i].replace_range(range, REDACTED);
    }
    let (mut is_value, mut is_script) = (false, false);
    for word in words {
        let was_script = std::mem::replace(&mut is_script, word == "-c");
        if is_value && !word.starts_with("--") {
            REDACTED.clone_into(word);
            is_value = false;
            continue;
        }
        is_value = word.starts_with('-') && !word.contains(['=', ' ']) && Name::of(word) != Name::Other;
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        match word.split_once('=') {
            // Redacts the whole value, whatever it contains.
            Some((name, _)) if !was_script && is_name(name) && Name::of(name) == Name::Secret => {
                *word = format!("{name}={REDACTED}");
            }
            _ => in_place(word),
        }
    }
}

/// Redacts a text in place.
pub fn in_place(said: &mut String) {
    if let Cow::Owned(redacted) = text(said) {
        *said = redacted;
    }
}

/// Redacts the strings of a JSON value, and the values of keys that name a secret.
pub fn in_json(value: &mut Json) {
    match value {
        Json::String(text) => in_place(text),
        Json::Array(values) => values.iter_mut().for_each(in_json),
        Json::Object(entries) => {
            for (key, value) in entries {
                let is_secret = match Name::of(key) {
                    Name::Secret => value.as_str() != Some("") && !matches!(value, Json::Null | Json::Bool(_)),
                    Name::Key => value.as_str().is_some_and(words::is_key),
                    Name::Other => false,
                };
                if is_secret {
                    *value = REDACTED.into();
                } else {
                    in_json(value);
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// A value that may contain secrets.
pub trait Redact {
    /// Redacts the secrets.
    fn redact(&mut self);
}

impl<T: Redact> Redact for Vec<T> {
    fn redact(&mut self) {
        self.iter_mut().for_each(Redact::redact);
    }
}

/// Drops the translatable text if the English wording contains a secret: an argument may be a secret only because of
/// the words before it.
impl Redact for Message {
    fn redact(&mut self) {
        if let Cow::Owned(redacted) = text(&self.en) {
            *self = Self::plain(redacted);
        }
        if let Some(text) = &mut self.text {
            text.redact();
        }
    }
}

impl Redact for NamedText {
    fn redact(&mut self) {
        self.args.redact();
    }
}

impl Redact for Arg {
    fn redact(&mut self) {
        match self {
            Self::Text { text } | Self::Decimal { decimal: text } => in_place(text),
            Self::List { list, .. } => list.redact(),
            Self::Named(text) => text.redact(),
            Self::Number { .. } | Self::Count { .. } | Self::Bytes { .. } | Self::Unknown => {}
        }
    }
}

/// Contains only names of files that the owner allowed, and messages of the agent.
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

impl Redact for Diagnosis {
    fn redact(&mut self) {
        [&mut self.change, &mut self.command].into_iter().flatten().for_each(in_place);
        for wording in &mut self.others {
            wording.change.iter_mut().for_each(in_place);
        }
    }
}

impl Redact for Run {
    fn redact(&mut self) {
        in_place(&mut self.name);
        self.order.iter_mut().for_each(Redact::redact);
        command(&mut self.command);
        [&mut self.config, &mut self.oom].into_iter().flatten().for_each(in_place);
        self.explanation.iter_mut().chain(&mut self.config_notes).for_each(Redact::redact);
        self.diagnosis.iter_mut().for_each(Redact::redact);
    }
}

/// The other fields are names of files and devices that the owner allowed.
impl Redact for RunRequest {
    fn redact(&mut self) {
        self.name.iter_mut().for_each(in_place);
    }
}

impl Redact for Event {
    fn redact(&mut self) {
        match &mut self.what {
            EventKind::RunStarted { run } => run.redact(),
            EventKind::RunConfig { config: text, .. }
            | EventKind::RunOom { message: text }
            | EventKind::RunCheckpoint { folder: text }
            | EventKind::RunDeleted { name: Some(text) } => in_place(text),
            EventKind::RunExplained { message, .. } | EventKind::RunNotSaved { message, .. } => message.redact(),
            EventKind::RunCommand { command: words } | EventKind::RunResumed { command: words, .. } => command(words),
            EventKind::RunDiagnosed { diagnosis } => diagnosis.redact(),
            EventKind::RunRetried { changes, .. } => {
                for (key, value) in changes {
                    if Name::of(key) == Name::Secret {
                        REDACTED.clone_into(value);
                    }
                    in_place(value);
                }
            }
            _ => {}
        }
    }
}
