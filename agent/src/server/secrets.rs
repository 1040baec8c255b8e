//! Secrets in command lines, configs and printed text: redacted in what leaves for a token of the scope view.
//!
//! History keeps commands and configs as they were given, in a file of the user's own, and a token of the scope control
//! reads them so: a run is resumed by hand with the very same words.

use std::{borrow::Cow, sync::LazyLock};

use headroom_shared::protocol::{
    event::{Event, What},
    run::{Diagnosis, Run},
};
use regex::{Captures, Regex};

/// What is read in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Parts of a name that make its value a secret.
const SECRET_PARTS: [&str; 19] = [
    "password",
    "passwd",
    "passphrase",
    "pass",
    "pwd",
    "secret",
    "secrets",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authtoken",
    "accesstoken",
    "credential",
    "credentials",
    "auth",
    "authorization",
    "cookie",
    "sig",
];
/// Names that are those of secrets before a `=`, and words of a sentence before a colon.
const WEAK: [&str; 3] = ["pass", "auth", "sig"];
/// Parts before `token` that make it one of a tokenizer.
const OF_TOKENIZER: [&str; 14] =
    ["bos", "eos", "pad", "unk", "sep", "cls", "mask", "start", "end", "stop", "special", "new", "per", "next"];

/// A name, as of an option, a variable or a field.
static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"-{0,2}[A-Za-z_][A-Za-z0-9_.\-]*").ok());
/// What follows a secret's name: how it is set apart from the value, and the value.
static VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"^(?P<apart>["']?[ \t]*(?:=>|:=|==?|:)[ \t]*|[ \t]+)(?P<scheme>(?i-u:bearer|basic|token)[ \t]+)?(?:"(?P<double>[^"\n]*)"|'(?P<single>[^'\n]*)'|(?P<bare>[^\s"';&)\]}]+))"#,
    )
    .ok()
});
/// Secrets that are known by their form: user and password in an address, tokens of services, JSON web tokens, private
/// keys, and the 40 hexadecimal digits of Weights & Biases.
static KNOWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?P<before>[A-Za-z][A-Za-z0-9+.\-]*://)[^\s/@'\x22]+@",
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"|\bhf_[A-Za-z0-9]{16,}",
        r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}|\bglpat-[A-Za-z0-9_\-]{16,}",
        r"|\bsk-[A-Za-z0-9_\-]{16,}|\bxox[a-z]-[A-Za-z0-9\-]{10,}|\bAIza[0-9A-Za-z_\-]{30,}|\bwandb_v1_[A-Za-z0-9_\-]+",
        r"|\beyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]*",
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
        r"|\b[0-9a-f]{40}\b",
    ))
    .ok()
});

/// Whether a value of that name is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    let parts = parts(name);
    if parts.iter().any(|part| SECRET_PARTS.contains(&part.as_str())) {
        return true;
    }
    let (last, before) = match parts.as_slice() {
        [before @ .., last] => (last.as_str(), before.last().map(String::as_str)),
        [] => return false,
    };
    match last {
        "token" => before.is_none_or(|before| !OF_TOKENIZER.contains(&before)),
        "key" => before.is_some(),
        _ => false,
    }
}

/// The words of a name, as `api` and `key` of `--api-key`, `API_KEY` and `apiKey`, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for char in name.chars() {
        let is_end = !char.is_ascii_alphanumeric() || (was_lower && char.is_ascii_uppercase());
        if is_end {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| char.is_ascii_alphanumeric()) {
            part.push(char.to_ascii_lowercase());
        }
        was_lower = char.is_ascii_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// A text with its secrets redacted; borrowed where it has none.
pub fn text(text: &str) -> Cow<'_, str> {
    match (named(text), KNOWN.as_ref()) {
        // Patterns of ours compile, which tests see; were it otherwise, nothing may leave.
        (None, _) | (_, None) => Cow::Borrowed(REDACTED),
        (Some(Cow::Borrowed(text)), Some(known)) => known.replace_all(text, redacted),
        (Some(Cow::Owned(text)), Some(known)) => Cow::Owned(known.replace_all(&text, redacted).into_owned()),
    }
}

fn redacted(found: &Captures<'_>) -> String {
    match found.name("before") {
        Some(scheme) => format!("{}{REDACTED}@", scheme.as_str()),
        None => REDACTED.to_owned(),
    }
}

/// Redacts what has a secret's name before it.
fn named(text: &str) -> Option<Cow<'_, str>> {
    let (names, values) = (NAME.as_ref()?, VALUE.as_ref()?);
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(name) = names.find_at(text, at) {
        at = name.end();
        if !is_secret(name.as_str()) {
            continue;
        }
        let Some(found) = values.captures(&text[name.end()..]) else { continue };
        let apart = found.name("apart").map_or("", |apart| apart.as_str());
        // A blank alone is between an option and its value, and between any two words.
        let is_option = name.as_str().starts_with("--");
        if !is_option && (apart.trim().is_empty() || apart.trim() == ":" && WEAK.contains(&name.as_str())) {
            continue;
        }
        let value = ["double", "single", "bare"].into_iter().find_map(|form| found.name(form));
        let Some(value) = value.filter(|value| !value.is_empty() && !value.as_str().starts_with("--")) else {
            continue;
        };
        let begin = name.end() + value.start();
        if text[begin..].starts_with(REDACTED) {
            at = begin + REDACTED.len();
            continue;
        }
        out.push_str(&text[copied..begin]);
        out.push_str(REDACTED);
        copied = name.end() + value.end();
        at = copied;
    }
    if copied == 0 {
        return Some(Cow::Borrowed(text));
    }
    out.push_str(&text[copied..]);
    Some(Cow::Owned(out))
}

/// Redacts a command's words: an option's value may be the word after it.
fn command(words: &mut [String]) {
    let (mut is_value, mut is_script) = (false, false);
    for word in words {
        let was_script = std::mem::replace(&mut is_script, word == "-c");
        if is_value && !word.starts_with("--") {
            REDACTED.clone_into(word);
            is_value = false;
            continue;
        }
        is_value = word.starts_with('-') && !word.contains(['=', ' ']) && is_secret(word);
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        match word.split_once('=') {
            // The whole of it, whatever stands in it.
            Some((name, _)) if !was_script && is_name(name) && is_secret(name) => *word = format!("{name}={REDACTED}"),
            _ => in_place(word),
        }
    }
}

/// Redacts a text where it is.
pub fn in_place(said: &mut String) {
    if let Cow::Owned(redacted) = text(said) {
        *said = redacted;
    }
}

/// What may have secrets in it.
pub trait Redact {
    /// Redacts them.
    fn redact(&mut self);
}

impl<T: Redact> Redact for Vec<T> {
    fn redact(&mut self) {
        self.iter_mut().for_each(Redact::redact);
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
        command(&mut self.command);
        let texts = [&mut self.config, &mut self.oom, &mut self.explanation].into_iter().flatten();
        texts.chain(&mut self.config_notes).for_each(in_place);
        self.diagnosis.iter_mut().for_each(Redact::redact);
    }
}

impl Redact for Event {
    fn redact(&mut self) {
        match &mut self.what {
            What::RunStarted { run } => run.redact(),
            What::RunConfig { config: text, .. }
            | What::RunOom { message: text }
            | What::RunExplained { message: text, .. }
            | What::RunNotSaved { message: text, .. }
            | What::RunCheckpoint { folder: text }
            | What::RunDeleted { name: Some(text) } => in_place(text),
            What::RunCommand { command: words } | What::RunResumed { command: words, .. } => command(words),
            What::RunDiagnosed { diagnosis } => diagnosis.redact(),
            What::RunRetried { changes, .. } => {
                for (key, value) in changes {
                    if is_secret(key) {
                        REDACTED.clone_into(value);
                    }
                    in_place(value);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        assert_eq!(text(given), expected);
        assert_eq!(text(expected), expected, "once is enough");
    }

    #[test]
    fn secrets_are_redacted_wherever_they_stand() {
        check("WANDB_API_KEY=local-abc python train.py", "WANDB_API_KEY=[redacted] python train.py");
        check("export HF_TOKEN='a b'; python x", "export HF_TOKEN='[redacted]'; python x");
        check("wandb_api_key = \"abc\"  # mine", "wandb_api_key = \"[redacted]\"  # mine");
        check("{\"apiKey\": \"abc\", \"n_layer\": 12}", "{\"apiKey\": \"[redacted]\", \"n_layer\": 12}");
        check("train.py --password hunter2 --compile=False", "train.py --password [redacted] --compile=False");
        check("train.py --api_key=abc,def", "train.py --api_key=[redacted]");
        check("-H 'Authorization: Bearer abc.def'", "-H 'Authorization: Bearer [redacted]'");
        check("git clone https://ada:pw@example.org/x", "git clone https://[redacted]@example.org/x");
        check(
            "pip install git+https://ghp_0123456789abcdef0123@github.com/x",
            "pip install git+https://[redacted]@github.com/x",
        );
        check("AKIAIOSFODNN7EXAMPLE", "[redacted]");
        check("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key=[redacted]");
        check("wandb login 0123456789abcdef0123456789abcdef01234567", "wandb login [redacted]");
        check("login(token='hf_x')", "login(token='[redacted]')");
        check("use hf_abcdefghijklmnopqrstuvwxyz now", "use [redacted] now");
        check("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a [redacted] b");
        check(
            "https://x.blob.core.windows.net/a?sv=1&sig=abc%3D&se=2",
            "https://x.blob.core.windows.net/a?sv=1&sig=[redacted]&se=2",
        );
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "python train.py config/train_gpt2.py --batch_size=12 --learning_rate=6e-4",
            "tokens per iteration will be: 491,520",
            "number of parameters: 123.59M",
            "eos_token = '<|endoftext|>'\nmax_new_tokens = 500\ntokenizer = 'gpt2'",
            "PWD=/home/ada nice python train.py",
            "KeyError: 'author'",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.76 GiB",
            "out_dir = 'out'\neval_interval = 2000\nwandb_log = False # a comment\nwandb_project = 'owt'",
            "https://example.org/a@b",
            "a key, a token and a password",
            "--auth --compile=False",
            "forward pass: 3.2 ms",
        ] {
            assert!(matches!(super::text(text), Cow::Borrowed(_)), "{text}: {}", super::text(text));
        }
    }

    #[test]
    fn the_word_after_an_option_is_its_value() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut given =
            words("python train.py --wandb-key abc --lr 1 -password x --auth --dtype=float16 --token=a;b)c");
        command(&mut given);
        assert_eq!(
            given.join(" "),
            "python train.py --wandb-key [redacted] --lr 1 -password [redacted] --auth --dtype=float16 \
             --token=[redacted]"
        );
        let mut shell =
            vec!["sh".to_owned(), "-c".to_owned(), "HF_TOKEN=x exec python train.py --password y".to_owned()];
        command(&mut shell);
        assert_eq!(shell[2], "HF_TOKEN=[redacted] exec python train.py --password [redacted]");
    }

    #[test]
    fn no_text_panics_and_twice_is_once() {
        let parts = [
            "--password",
            "token",
            "=",
            ":",
            " ",
            "'",
            "\"",
            "ä",
            "\n",
            "[redacted]",
            "https://",
            "@",
            "x",
            "-",
            "sig=",
        ];
        let mut chance: u64 = 7;
        for _ in 0..20_000 {
            let mut given = String::new();
            for _ in 0..8 {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                given.push_str(parts[usize::try_from(chance >> 33).expect("small") % parts.len()]);
            }
            let once = text(&given).into_owned();
            assert_eq!(text(&once), once, "{given:?}");
        }
    }
}
