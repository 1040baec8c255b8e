//! Conversion between the calculator's input and a URL fragment: short, versioned and extensible.
//!
//! `1&batch_size=64&compile=True&gpu=RTX%204070`: the version, then each nanoGPT key that is set, under its own name,
//! then the non-default options. Links are posted in forums, so a config's comments are omitted, and so are names and
//! paths that affect no figure. Every other value is included. Unknown keys are kept and reported, so that an old page
//! opens a new link and lists what it ignored.
//!
//! A value that could not be read is included as written, or as `unknown` if it could have a meaning elsewhere. The
//! command that names a config file that was not read is included in `config=`. So a link to a run without a plan has
//! no plan either.
//!
//! `config=` contains a whole text as a user would paste it. A page that embeds the calculator passes its author's text
//! in it, and the rig page a run's output. The link's other keys override it.
//!
//! `against=`, at the end, contains the link of another run, with which the page Compare compares this one.

mod compared;
mod percent;
pub mod trainer;

pub use self::compared::{AGAINST, split_compared, with_compared};
use self::percent::{percent_decode, percent_encode};
use crate::{
    memory::message::TorchVersion,
    nanogpt::{
        PastedKind, Problem, Settings, Source, UNREADABLE, Value, defaults, executed_line, from_pasted_text, is_name,
        read, stock,
    },
    optimizer_spec::Optimizer,
    session::{Options, SHAKESPEARE_CHAR},
    train_config::{Attention, CrossEntropy},
};
use headroom_text::{self as text, Text, units::parse_size};

/// Version that is written. Links with a later version are read as far as they are known.
pub const VERSION: u32 = 1;

/// Maximum length of a fragment in bytes. Browsers and forums have much lower limits.
pub const MAX_LINK_BYTES: usize = 64 * 1024;

/// Maximum length of a text in a link. Each of its bytes may take three when encoded.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Keys for a run's output and names, which do not affect its memory.
const PRIVATE_KEYS: [&str; 4] = ["out_dir", "wandb_log", "wandb_project", "wandb_run_name"];

/// A text without settings. It replaces a text that is not included and has none either.
const NOTHING: &str = "?";

/// Names of the options in a link. A fork's key with the same name is omitted, because it would be read as the option.
const OPTIONS: [&str; 13] = [
    "gpu",
    "vram",
    "others",
    "context",
    "torch",
    "processes",
    "math",
    EXPANDABLE,
    "checkpointing",
    "del_eval_logits",
    "del_train_logits",
    "chunked_loss",
    "fused_loss",
];

/// Number of the options that have a value. The others are flags.
const N_VALUES: usize = 6;

/// Returns whether a key is an option's name.
fn is_option(key: &str) -> bool {
    OPTIONS.contains(&key) || optimizer(key).is_some()
}

/// Returns the optimizer that an option of this name selects. The default has no option.
fn optimizer(key: &str) -> Option<Optimizer> {
    let others = Optimizer::ALL.iter().filter(|other| **other != Optimizer::default());
    others.copied().find(|optimizer| optimizer.spec().id == key)
}

/// Key of the moment in the page's chart that a link pins. Only the page uses it; it does not affect the run.
pub const PIN: &str = "pin";

/// Returns whether a key belongs to a page and not to the run.
fn is_of_page(key: &str) -> bool {
    key == PIN || key == AGAINST
}

/// Returns whether a key is a name or a path of the run, which no link contains unless it determines memory.
#[must_use]
pub fn is_private(key: &str) -> bool {
    key == "dataset" || PRIVATE_KEYS.contains(&key)
}

/// Returns whether a key is included in a link. Of a fork's own keys, names and paths are omitted; numbers are
/// included.
fn travels(settings: &Settings, key: &str, value: &Value) -> bool {
    match key {
        // A directory name, which matters only if it determines the vocabulary.
        "dataset" => match value {
            Value::Str(name) => !settings.is_set("vocab_size") && name == SHAKESPEARE_CHAR,
            // An error of the run.
            _ => true,
        },
        _ if settings.is_set(key) => !PRIVATE_KEYS.contains(&key),
        _ if is_option(key) || key == "config" || is_of_page(key) || !is_name(key) => false,
        _ => !matches!(value, Value::Str(_) | Value::Opaque(_)),
    }
}

/// Returns whether a key is included as unreadable: one that determines memory, or any of nanoGPT's in a text that sets
/// nothing, which has no plan because of them.
fn travels_unread(settings: &Settings, key: &str) -> bool {
    let keeps_error = settings.found_nothing() && defaults::find(key).is_some() && !PRIVATE_KEYS.contains(&key);
    settings.unreadable().any(|other| other == key) || keeps_error && settings.is_unevaluated(key)
}

/// A decoded link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Config with the link's keys, one per line. If only `config=` is set, its text unchanged.
    pub config: String,
    /// Options of the link.
    pub options: Options,
    /// Unknown keys, as written in the link.
    pub unknown: Vec<String>,
    /// The link's version, if it is later than [`VERSION`].
    pub later_version: Option<u32>,
}

impl Link {
    /// Reads the config, or the command that names a config without its text.
    #[must_use]
    pub fn settings(&self) -> Settings {
        from_pasted_text("link", &self.config).read()
    }
}

/// Encodes a fragment, without the `#`.
#[must_use]
pub fn encode(settings: &Settings, options: &Options) -> String {
    let mut fragment = encode_once(settings, options);
    let has_error = !settings.is_complete() || settings.stop_statement().is_some();
    let mut rounds = if has_error { MAX_ROUNDS } else { 0 };
    // The text of an error may have another meaning in a link. What it is read as has a link that stays the same.
    while rounds > 0 && fragment.len() <= MAX_LINK_BYTES {
        let again = encode_once(&decode(&fragment).settings(), options);
        rounds = if again == fragment { 0 } else { rounds - 1 };
        fragment = again;
    }
    fragment
}

/// Maximum number of times that a link with an error is decoded and encoded again.
const MAX_ROUNDS: u32 = 3;

fn encode_once(settings: &Settings, options: &Options) -> String {
    let mut keys = String::new();
    let known = defaults::KEYS.iter().map(|key| (key.name, settings.values.get(key.name)));
    let unknown = settings.unknown.iter().map(|(name, setting)| (name.as_str(), Some(setting)));
    for (name, setting) in known.chain(unknown) {
        // In the usual order of keys, so that decoding and encoding gives the same link.
        if travels_unread(settings, name) {
            let text = settings.unreadable_text(name).unwrap_or(UNREADABLE);
            let text = if read_key(&mut String::new(), name, text) { text } else { UNREADABLE };
            // Without the parentheses, a word would be read as a string.
            let is_string = plain(text) && takes_string(name);
            push(&mut keys, name, &if is_string { format!("({text})") } else { text.to_owned() });
            continue;
        }
        let Some(setting) = setting.filter(|setting| travels(settings, name, &setting.value)) else { continue };
        match &setting.value {
            // Strings are written without quotes if that reads back as the same string.
            Value::Str(text) if plain(text) && takes_string(name) => push(&mut keys, name, text),
            value => push(&mut keys, name, &value.to_string()),
        }
    }
    let mut fragment = VERSION.to_string();
    // Without these, the link would describe another run, which has a plan.
    let unread: Vec<String> = settings.unread.iter().map(|file| public_name(&file.name)).collect();
    match settings.found_nothing() {
        true if keys.is_empty() => push(&mut fragment, "config", NOTHING),
        // A fork's keys are a text without nanoGPT's settings, too.
        true => {}
        false if unread.is_empty() => {
            // Without the error, the link would describe a run that has a plan.
            if let Some(stop) = settings.stop_statement() {
                push(&mut fragment, "config", &stop);
            }
        }
        false => push(&mut fragment, "config", &config_of_unread(settings, &unread)),
    }
    fragment.push_str(&keys);
    encode_options(options, &mut fragment);
    fragment
}

/// The name of an unread config in a link: its path, without the folders of an absolute one, which may contain a user's
/// name.
fn public_name(path: &str) -> String {
    let is_absolute = path.starts_with(['/', '\\', '~']) || path.contains(':');
    let name = if is_absolute { path.rsplit(['/', '\\', ':']).next().unwrap_or_default() } else { path };
    match stock::find(name) {
        // The bare name would mean nanoGPT's stock config instead of the file that was not read.
        Some(_) => format!("unread/{name}"),
        None => name.to_owned(),
    }
}

/// A text that names the unread configs as the given one did: a command, or else a config that executes them.
fn config_of_unread(settings: &Settings, unread: &[String]) -> String {
    let command = unread.iter().fold("python train.py".to_owned(), |command, name| command + " " + name);
    // As an argument, an unknown name may be taken for a misspelt key.
    let is_command =
        settings.unread.iter().all(|file| file.statement.is_empty()) && settings.unknown.iter().next().is_none();
    // A name that a shell would split or expand is read as other names.
    let is_same = || from_pasted_text("link", &command).read().unread.iter().map(|file| &file.name).eq(unread);
    if is_command && unread.iter().all(|name| is_shell_word(name)) && is_same() {
        return command;
    }
    unread.iter().map(|name| executed_line(name)).collect()
}

/// Returns whether a text is one word of a command without quotes.
fn is_shell_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./+".contains(c))
}

/// Encodes a text unchanged, and the options, as a fragment without the `#`. A text beyond `MAX_TEXT_BYTES` is omitted.
/// The text is parsed only when the link is opened, so the caller needs no config parser.
#[must_use]
pub fn encode_text(config: &str, options: &Options) -> String {
    let mut fragment = VERSION.to_string();
    if !config.trim().is_empty() && config.len() <= MAX_TEXT_BYTES {
        push(&mut fragment, "config", config);
    }
    encode_options(options, &mut fragment);
    fragment
}

fn push(fragment: &mut String, key: &str, value: &str) {
    fragment.push('&');
    percent_encode(key, fragment);
    fragment.push('=');
    percent_encode(value, fragment);
}

fn encode_options(options: &Options, fragment: &mut String) {
    let default = Options::default();
    push(fragment, "gpu", &options.gpu);
    if let Some(bytes) = options.vram_bytes {
        push(fragment, "vram", &bytes.to_string());
    }
    if options.other_processes_bytes != 0 {
        push(fragment, "others", &options.other_processes_bytes.to_string());
    }
    if let Some(bytes) = options.context_bytes {
        push(fragment, "context", &bytes.to_string());
    }
    if options.torch != default.torch {
        push(fragment, "torch", &options.torch);
    }
    if options.world_size != default.world_size {
        push(fragment, "processes", &options.world_size.to_string());
    }
    if options.attention == Attention::Math {
        push(fragment, "math", "1");
    }
    if options.expandable_segments {
        push(fragment, EXPANDABLE, "1");
    }
    for name in code_flags(options) {
        push(fragment, name, "1");
    }
}

/// The option for expandable segments.
pub const EXPANDABLE: &str = "expandable";

/// The options that are set and stand for changes to nanoGPT's code.
pub fn code_flags(options: &Options) -> impl Iterator<Item = &'static str> {
    let optimizer = options.optimizer;
    let all = [
        ("checkpointing", options.activation_checkpointing),
        ("del_eval_logits", options.del_eval_logits),
        ("del_train_logits", options.del_train_logits),
        (optimizer.spec().id, optimizer != Optimizer::default()),
        ("chunked_loss", options.cross_entropy == CrossEntropy::Chunked),
        ("fused_loss", options.cross_entropy == CrossEntropy::Fused),
    ];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name)
}

/// Sets an option of [`code_flags`], or [`EXPANDABLE`]. Another name has no effect.
pub fn set_flag(options: &mut Options, name: &str) {
    let is_flag = is_option(name) && !OPTIONS[..N_VALUES].contains(&name);
    if is_flag {
        read_option(options, name, "1");
    }
}

/// Returns whether a key takes a string, as any key of a fork may. Only such a string is written without quotes.
fn takes_string(key: &str) -> bool {
    defaults::find(key).is_none_or(|known| known.default.type_name() == "str")
}

/// Returns whether an unquoted string reads back as itself: not a number, a Python name or another expression.
fn plain(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let names_a_value = matches!(text, "True" | "False" | "None");
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(word) && !names_a_value
}

/// Decodes a fragment, with or without its `#`. Never fails; the result lists what was not understood.
#[must_use]
pub fn decode(fragment: &str) -> Link {
    decode_within(fragment, 0)
}

/// Maximum nesting of links: a page that embeds the calculator passes a link, which may contain a config.
const MAX_DEPTH: u32 = 2;

/// Decodes a fragment; `depth` is the number of enclosing links.
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
        // Not a calculator link, for example an anchor of the page.
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
    let mut arguments = String::new();
    for (part, key, value) in parts.iter().filter(|(_, key, _)| !is_text(key) && !is_of_page(key)) {
        let is_understood = if is_option(key) {
            read_option(&mut link.options, key, value)
        } else {
            // A shell has no escapes in single quotes: a quote is written outside of them.
            let quoted = || format!("'{}'", value.replace('\'', r"'\''"));
            let argument = if is_shell_word(value) { value.clone() } else { quoted() };
            arguments.push_str(&format!(" --{key}={argument}"));
            read_key(&mut keys, key, value)
        };
        if !is_understood {
            link.unknown.push(shortened(part));
            // If it were omitted, nanoGPT's default would be planned, which is another run.
            if defaults::decides_memory(key) {
                keys.push_str(&format!("{key} = {UNREADABLE}\n"));
            }
        }
    }
    if !keys.is_empty() {
        link.config = match names_unread(&link.config) {
            true => [link.config.trim_end(), &arguments].concat(),
            false => as_config(&link.config) + &keys,
        };
    }
    link
}

/// Returns whether a text is a command that names a config without its text.
fn names_unread(text: &str) -> bool {
    let pasted = from_pasted_text("link", text);
    pasted.kind == PastedKind::Command
        && pasted.sources.iter().any(|source| matches!(source, Source::Named { name } if stock::find(name).is_none()))
}

/// Decodes a whole text: a link, or text as a user pastes it.
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

/// Converts a text to a config that further keys can follow and override: a config unchanged, any other text as the
/// settings read from it.
fn as_config(text: &str) -> String {
    let pasted = from_pasted_text("config", text);
    match pasted.kind {
        PastedKind::Config if text.is_empty() || text.ends_with('\n') => text.to_owned(),
        PastedKind::Config => format!("{text}\n"),
        _ => pasted.read().to_config(),
    }
}

/// Returns the start of an unknown part, for display.
fn shortened(part: &str) -> String {
    part.chars().take(80).collect()
}

/// Name assigned on the line after a key, to check that the key's line is complete.
const NEXT_LINE: &str = "headroom_next_line";

/// Parses a key of nanoGPT or a fork as a config line, which must set only that key.
fn read_key(config: &mut String, key: &str, value: &str) -> bool {
    if !is_name(key) || value.contains(['\n', '\r']) {
        return false;
    }
    let mut value =
        if plain(value) && takes_string(key) { Value::Str(value.to_owned()).to_string() } else { value.to_owned() };
    let line = format!("{key} = {value}\n");
    // A value that could not be evaluated is written as it was understood, up to a semicolon. That part must be valid
    // on its own, too.
    for _ in 0..2 {
        // An open bracket would include the next line.
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

/// Sets an option. Returns whether the value has a meaning; another one has no effect, except that a `vram` that is not
/// a size becomes the GPU's name, so that no GPU's memory is planned instead.
fn read_option(options: &mut Options, key: &str, value: &str) -> bool {
    let is_on = matches!(value, "1" | "true" | "True");
    let is_flag = is_on || matches!(value, "0" | "false" | "False");
    let size = parse_size(value).ok();
    match (key, size) {
        ("gpu", _) => value.clone_into(&mut options.gpu),
        ("vram", Some(_)) => options.vram_bytes = size,
        // An unknown GPU has no plan, and its field shows the text.
        ("vram", None) => {
            value.clone_into(&mut options.gpu);
            return false;
        }
        ("others", Some(bytes)) => options.other_processes_bytes = bytes,
        ("context", Some(_)) => options.context_bytes = size,
        ("torch", _) => match value.parse::<TorchVersion>() {
            Ok(torch) => options.torch = torch.to_string(),
            Err(_) => return false,
        },
        ("processes", _) => match value.parse() {
            Ok(n) => options.world_size = n,
            Err(_) => return false,
        },
        _ if !is_flag => return false,
        ("math", _) => options.attention = if is_on { Attention::Math } else { Attention::Flash },
        (EXPANDABLE, _) => options.expandable_segments = is_on,
        ("checkpointing", _) => options.activation_checkpointing = is_on,
        ("del_eval_logits", _) => options.del_eval_logits = is_on,
        ("del_train_logits", _) => options.del_train_logits = is_on,
        ("chunked_loss", _) if is_on => options.cross_entropy = CrossEntropy::Chunked,
        ("fused_loss", _) if is_on => options.cross_entropy = CrossEntropy::Fused,
        // 0 is the default. The loss and the optimizer have several keys, of which another may be 1.
        ("chunked_loss" | "fused_loss", _) => {}
        _ => match optimizer(key) {
            Some(optimizer) if is_on => options.optimizer = optimizer,
            found => return found.is_some(),
        },
    }
    true
}

#[cfg(test)]
mod tests;
