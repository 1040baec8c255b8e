//! The calculator's whole input as a URL's fragment, and back: short, versioned, and open to keys of later versions.
//!
//! `1&batch_size=64&compile=True&gpu=RTX%204070`: the version, then each of nanoGPT's keys that is set, under its own
//! name, then the options that are not at their defaults. Comments of a config do not travel, nor do names and paths
//! that change no figure: a link is posted in forums. Every other value does. A key a reader does not know is kept and
//! named, so that an old page opens a new link and says what it left out.
//!
//! A value that could not be read is `unknown`, and a config file that was not read is executed by its name in `config=`: a
//! link to a run without a plan has none either.
//!
//! And `config=`, a whole text as a person would paste it, which is how a page that embeds the calculator hands over what
//! its author wrote, and the rig's page what a run printed. The link's other keys override it.

use crate::{
    memory::message::TorchVersion,
    nanogpt::{
        PastedKind, Problem, Settings, Source, UNREADABLE, Value, defaults, executed_line, from_pasted_text, is_name,
        read, stock,
    },
    session::{Options, SHAKESPEARE_CHAR},
    text::{self, Text},
    train_config::{Attention, CrossEntropy, Optimizer},
    units::parse_size,
};

/// The version written; a link of a later version is read as far as it is understood.
pub const VERSION: u32 = 1;

/// The longest fragment that is read; browsers and forums cut far below it.
pub const MAX_LINK_BYTES: usize = 64 * 1024;

/// The longest text in a link: each of its bytes may take three.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Keys that say where a run writes and what it is called, and nothing of what it takes.
const PRIVATE_KEYS: [&str; 4] = ["out_dir", "wandb_log", "wandb_project", "wandb_run_name"];

/// A text in which nothing is found either, in the place of one that does not travel.
const NOTHING: &str = "?";

/// What a link calls the options. A fork's key of the same name stays out: it would be read as the option.
const OPTIONS: [&str; 15] = [
    "gpu",
    "vram",
    "others",
    "context",
    "torch",
    "processes",
    "math",
    "expandable",
    "checkpointing",
    "del_eval_logits",
    "del_train_logits",
    "adamw_foreach",
    "adamw_8bit",
    "chunked_loss",
    "fused_loss",
];

/// Whether a key goes into a link. A fork's names and paths do not, whatever the keys are; its numbers do.
fn travels(settings: &Settings, key: &str, value: &Value) -> bool {
    match key {
        // A folder's name; it matters where the vocabulary follows from it.
        "dataset" => !settings.is_set("vocab_size") && *value == Value::Str(SHAKESPEARE_CHAR.to_owned()),
        _ if settings.is_set(key) => !PRIVATE_KEYS.contains(&key),
        _ if OPTIONS.contains(&key) || key == "config" || !is_name(key) => false,
        _ => !matches!(value, Value::Str(_) | Value::Opaque(_)),
    }
}

/// What a link says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// A config with the keys of the link, one a line; the text of `config=` as it came where no other key is set.
    pub config: String,
    /// The options.
    pub options: Options,
    /// Keys that were not understood, as they stand in the link.
    pub unknown: Vec<String>,
    /// The version the link was written with, where it is later than ours.
    pub later_version: Option<u32>,
}

impl Link {
    /// The config as a source.
    #[must_use]
    pub fn source(&self) -> Source {
        Source::File { name: "link".to_owned(), text: self.config.clone() }
    }
}

/// Writes a fragment, without the `#`.
#[must_use]
pub fn encode(settings: &Settings, options: &Options) -> String {
    let mut fragment = VERSION.to_string();
    let mut push = |key: &str, value: &str| push(&mut fragment, key, value);
    let is_unreadable = |name: &str| settings.unreadable().any(|unreadable| unreadable == name);
    let known = defaults::KEYS.iter().map(|key| (key.name, settings.values.get(key.name)));
    let unknown = settings.unknown.iter().map(|(name, setting)| (name.as_str(), Some(setting)));
    // Without these the link would be of another run, and have a plan. Of a path only the file's name travels.
    let names = settings.unread.iter().map(|path| path.rsplit(['/', '\\']).next().unwrap_or_default());
    let unread: String = names
        .map(|name| match stock::find(name) {
            // By its name alone it would be nanoGPT's own config, which is not the file that was not read.
            Some(_) => executed_line(&format!("unread/{name}")),
            None => executed_line(name),
        })
        .collect();
    match settings.found_nothing() {
        true => push("config", NOTHING),
        false if !unread.is_empty() => push("config", &unread),
        false => {}
    }
    for (name, setting) in known.chain(unknown) {
        // In its place among the keys, so that a link that is read and written again is the same link.
        if is_unreadable(name) {
            push(name, UNREADABLE);
            continue;
        }
        let Some(setting) = setting.filter(|setting| travels(settings, name, &setting.value)) else { continue };
        match &setting.value {
            // Strings go without quotes where that reads back as the same string.
            Value::Str(text) if plain(text) && takes_string(name) => push(name, text),
            value => push(name, &value.to_string()),
        }
    }
    encode_options(options, &mut push);
    fragment
}

/// Writes a fragment of a text as it is and the options, without the `#`; a text beyond `MAX_TEXT_BYTES` stays out. It is
/// read only where it is opened, so that whoever writes it needs no reader of configs.
#[must_use]
pub fn encode_text(config: &str, options: &Options) -> String {
    let mut fragment = VERSION.to_string();
    let mut push = |key: &str, value: &str| push(&mut fragment, key, value);
    if !config.trim().is_empty() && config.len() <= MAX_TEXT_BYTES {
        push("config", config);
    }
    encode_options(options, &mut push);
    fragment
}

fn push(fragment: &mut String, key: &str, value: &str) {
    fragment.push('&');
    percent_encode(key, fragment);
    fragment.push('=');
    percent_encode(value, fragment);
}

fn encode_options(options: &Options, push: &mut impl FnMut(&str, &str)) {
    let default = Options::default();
    push("gpu", &options.gpu);
    if let Some(bytes) = options.vram_bytes {
        push("vram", &bytes.to_string());
    }
    if options.other_processes_bytes != 0 {
        push("others", &options.other_processes_bytes.to_string());
    }
    if let Some(bytes) = options.context_bytes {
        push("context", &bytes.to_string());
    }
    if options.torch != default.torch {
        push("torch", &options.torch);
    }
    if options.world_size != default.world_size {
        push("processes", &options.world_size.to_string());
    }
    for (name, is_set) in [
        ("math", options.attention == Attention::Math),
        ("expandable", options.expandable_segments),
        ("checkpointing", options.activation_checkpointing),
        ("del_eval_logits", options.del_eval_logits),
        ("del_train_logits", options.del_train_logits),
        ("adamw_foreach", options.optimizer == Optimizer::AdamwForeach),
        ("adamw_8bit", options.optimizer == Optimizer::Adamw8bit),
        ("chunked_loss", options.cross_entropy == CrossEntropy::Chunked),
        ("fused_loss", options.cross_entropy == CrossEntropy::Fused),
    ] {
        if is_set {
            push(name, "1");
        }
    }
}

/// Whether a key takes a string, as all keys of forks may; only such a string goes without its quotes.
fn takes_string(key: &str) -> bool {
    defaults::find(key).is_none_or(|known| known.default.type_name() == "str")
}

/// Whether a string reads back as itself without quotes: no number, name of Python's or anything else that evaluates.
fn plain(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let names_a_value = matches!(text, "True" | "False" | "None");
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(word) && !names_a_value
}

/// Reads a fragment, with or without its `#`. Nothing fails: what is not understood is named in the result.
#[must_use]
pub fn decode(fragment: &str) -> Link {
    decode_within(fragment, 0)
}

/// Links inside each other that are read: a page that embeds the calculator hands over a link, and that may name a config.
const MAX_DEPTH: u32 = 2;

/// Reads a fragment; `depth` is the number of links around it.
fn decode_within(fragment: &str, depth: u32) -> Link {
    let mut link = Link::default();
    let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
    if fragment.len() > MAX_LINK_BYTES {
        link.unknown.push(shortened(fragment));
        return link;
    }
    let mut parts = fragment.split('&');
    let later = match parts.next().and_then(|version| version.parse::<u32>().ok()) {
        Some(version) => (version > VERSION).then_some(version),
        // Not a link of ours: an anchor of the page, say.
        None => return link,
    };
    let parts: Vec<(&str, String, String)> = parts
        .map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, "1"));
            (part, percent_decode(key), percent_decode(value))
        })
        .collect();
    let is_text = |key: &str| depth < MAX_DEPTH && key == "config";
    if let Some((.., text)) = parts.iter().rev().find(|(_, key, _)| is_text(key)) {
        link = of_text(text, depth + 1);
    }
    link.later_version = later.max(link.later_version);
    let mut keys = String::new();
    for (part, key, value) in parts.iter().filter(|(_, key, _)| !is_text(key)) {
        let is_understood = if OPTIONS.contains(&key.as_str()) {
            read_option(&mut link.options, key, value)
        } else {
            read_key(&mut keys, key, value)
        };
        if !is_understood {
            link.unknown.push(shortened(part));
            // Left out, it would be planned as nanoGPT's default, which is another run.
            if defaults::decides_memory(key) {
                keys.push_str(&format!("{key} = {UNREADABLE}\n"));
            }
        }
    }
    if !keys.is_empty() {
        link.config = as_config(&link.config) + &keys;
    }
    link
}

/// What a whole text says: a link, or what a person pastes.
fn of_text(text: &str, depth: u32) -> Link {
    let digits = text.trim_start().trim_start_matches('#');
    let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    if depth < MAX_DEPTH && after.len() < digits.len() && (after.is_empty() || after.starts_with('&')) {
        return decode_within(digits.trim_end(), depth);
    }
    let world_size = from_pasted_text("config", text).world_size;
    let mut options = Options::default();
    options.world_size = world_size.unwrap_or(options.world_size);
    Link { config: text.to_owned(), options, ..Link::default() }
}

/// A text that keys can follow, the later of two with one name winning: a config as it stands, anything else as the
/// config that it comes to.
fn as_config(text: &str) -> String {
    let pasted = from_pasted_text("config", text);
    match pasted.kind {
        PastedKind::Config if text.is_empty() || text.ends_with('\n') => text.to_owned(),
        PastedKind::Config => format!("{text}\n"),
        PastedKind::Command | PastedKind::Log | PastedKind::Words => pasted.read().to_config(),
    }
}

/// The beginning of what was not understood, to name it by.
fn shortened(part: &str) -> String {
    part.chars().take(80).collect()
}

/// What stands after a key's line to see whether that ends where it should.
const NEXT_LINE: &str = "headroom_next_line";

/// Takes a key of nanoGPT or of a fork: a line of a config, which sets that key and nothing else.
fn read_key(config: &mut String, key: &str, value: &str) -> bool {
    if !is_name(key) || value.contains(['\n', '\r']) {
        return false;
    }
    let mut value =
        if plain(value) && takes_string(key) { Value::Str(value.to_owned()).to_string() } else { value.to_owned() };
    let line = format!("{key} = {value}\n");
    // What could not be evaluated is written as it was understood, up to a semicolon: that has to stand by itself too.
    for _ in 0..2 {
        // A bracket that is left open would take the next line with it.
        let text = format!("{key} = {value}\n{NEXT_LINE} = 1\n");
        let read = read(&[Source::File { name: String::new(), text }]);
        let set = read.values.iter().chain(read.unknown.iter()).map(|(name, _)| name);
        let names = set.chain(read.unevaluated.iter().map(|(name, _)| name)).filter(|name| *name != NEXT_LINE);
        let is_broken = |problem: &Problem| {
            problem.message.is(&text::line_left_out("")) || problem.message == Text::from(text::NEVER_CLOSED)
        };
        let is_broken = read.problems.as_slice().iter().any(is_broken);
        if !read.unknown.contains_key(NEXT_LINE) || !names.eq([key]) || is_broken {
            return false;
        }
        match read.values.get(key).or_else(|| read.unknown.get(key)).map(|setting| &setting.value) {
            Some(Value::Opaque(text)) => text.clone_into(&mut value),
            _ => break,
        }
    }
    config.push_str(&line);
    true
}

fn read_option(options: &mut Options, key: &str, value: &str) -> bool {
    let on = value != "0";
    let size = |bytes: &mut u64| parse_size(value).map(|read| *bytes = read).is_ok();
    match key {
        "gpu" => value.clone_into(&mut options.gpu),
        "vram" => options.vram_bytes = parse_size(value).ok(),
        "others" => return size(&mut options.other_processes_bytes),
        "context" => options.context_bytes = parse_size(value).ok(),
        "torch" => match value.parse::<TorchVersion>() {
            Ok(torch) => options.torch = torch.to_string(),
            Err(_) => return false,
        },
        "processes" => match value.parse() {
            Ok(n) => options.world_size = n,
            Err(_) => return false,
        },
        "math" => options.attention = if on { Attention::Math } else { Attention::Flash },
        "expandable" => options.expandable_segments = on,
        "checkpointing" => options.activation_checkpointing = on,
        "del_eval_logits" => options.del_eval_logits = on,
        "del_train_logits" => options.del_train_logits = on,
        "adamw_foreach" if on => options.optimizer = Optimizer::AdamwForeach,
        "adamw_8bit" if on => options.optimizer = Optimizer::Adamw8bit,
        "chunked_loss" if on => options.cross_entropy = CrossEntropy::Chunked,
        "fused_loss" if on => options.cross_entropy = CrossEntropy::Fused,
        "adamw_foreach" | "adamw_8bit" | "chunked_loss" | "fused_loss" => {}
        _ => return false,
    }
    true
}

fn percent_encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            for nibble in [byte >> 4, byte & 15] {
                into.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
}

fn percent_decode(text: &str) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = (bytes[at] == b'%').then(|| Some((hex(*bytes.get(at + 1)?)?, hex(*bytes.get(at + 2)?)?)));
        match pair.flatten() {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests;
