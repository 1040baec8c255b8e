//! Secrets among the words of a command, recognised by the program and the option before them: `mysql -phunter2`, `curl
//! -u ada:hunter2`, `wandb login KEY`.

use std::{ops::Range, sync::LazyLock};

use regex::Regex;

use super::{REDACTED, names::Name};

/// Options that take a password, and their programs.
const PASSWORD_OPTIONS: [(&str, &[&str]); 7] = [
    ("-p", &["mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump", "sshpass", "7z", "7za"]),
    ("-P", &["zip", "unzip"]),
    ("-w", &["ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami"]),
    ("-a", &["redis-cli"]),
    ("-b", &["curl"]),
    ("-u", &["curl", "wget"]),
    ("-U", &["curl"]),
];
/// Programs whose `-p` does not take a password.
const OTHER_P: [&str; 29] = [
    "mkdir", "cp", "ssh", "nc", "ncat", "rsync", "tar", "patch", "pytest", "xargs", "ps", "read", "lsof", "git",
    "perl", "sed", "nginx", "tmux", "taskset", "chrt", "ionice", "renice", "gdb", "perf", "srun", "sbatch", "salloc",
    "sinfo", "squeue",
];
/// Programs, and their subcommands that take a key as an argument.
const LOGINS: [(&str, &[&str]); 4] = [
    ("wandb", &["login"]),
    ("ngrok", &["authtoken", "add-authtoken"]),
    ("clearml", &["login"]),
    ("huggingface-cli", &["login"]),
];
/// Options whose value has the form `USER:PASSWORD`.
const USER_OPTIONS: [&str; 6] = ["-u", "-U", "--user", "--proxy-user", "--ftp-user", "--http-user"];
/// Options and subcommands whose next two words are a name and its value, without dashes.
const SETTERS: [&str; 3] = ["set", "set-string", "setx"];
/// The minimum length of a key in characters, for words without an option.
const KEY_CHARS_MIN: usize = 12;
/// The minimum entropy of a key in bits per character.
const KEY_BITS_MIN: f64 = 2.75;

/// The words of a shell, and the separators of commands.
static WORD: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"[;|&()\n]|(?:"[^"\n]*"|'[^'\n]*'|[^\s"';|&()])+"#).ok());

/// Returns the ranges of secrets in a text that may contain command lines; `None` if the pattern does not compile.
pub fn in_text(text: &str) -> Option<Vec<Range<usize>>> {
    let found: Vec<_> = WORD.as_ref()?.find_iter(text).collect();
    let words: Vec<&str> = found.iter().map(regex::Match::as_str).collect();
    let at = |(i, range): (usize, Range<usize>)| found[i].start() + range.start..found[i].start() + range.end;
    Some(in_words(&words).into_iter().map(at).collect())
}

/// Returns the secrets among words: each word's index and the range of bytes within it.
pub fn in_words(words: &[&str]) -> Vec<(usize, Range<usize>)> {
    let mut found = vec![];
    let mut first = 0;
    for (i, word) in words.iter().enumerate() {
        if matches!(*word, ";" | "|" | "&" | "&&" | "||" | "(" | ")" | "\n") {
            first = i + 1;
            continue;
        }
        let bare = unquoted(word);
        if let Some(range) = secret(&words[first..i], &word[bare.clone()]) {
            let range = bare.start + range.start..bare.start + range.end;
            if !range.is_empty() && word[range.clone()] != *REDACTED {
                found.push((i, range));
            }
        }
    }
    found
}

/// Returns the range of a word within its quotes.
fn unquoted(word: &str) -> Range<usize> {
    let is_quoted = |quote| word.len() >= 2 && word.starts_with(quote) && word.ends_with(quote);
    if is_quoted('"') || is_quoted('\'') { 1..word.len() - 1 } else { 0..word.len() }
}

/// Returns the range of the secret in a word, given the previous words of the command.
fn secret(before: &[&str], word: &str) -> Option<Range<usize>> {
    let last = before.last().copied().unwrap_or_default();
    let whole = Some(0..word.len());
    if attached(before, word) {
        return Some(2..word.len());
    }
    if word.starts_with('-') {
        let (name, value) = word.split_once('=')?;
        let begin = name.len() + 1;
        return (USER_OPTIONS.contains(&name) && has_password(value)).then_some(begin..word.len());
    }
    if takes_password(before, last, word) || (USER_OPTIONS.contains(&last) && has_password(word)) {
        return whole;
    }
    if is_login(before) && !last.starts_with("--host") && (word.len() >= 16 || word.contains(digit)) {
        return if word.contains("://") { None } else { whole };
    }
    // A secret's name, followed by a word that looks like a key.
    let last = &last[unquoted(last)];
    let is_name = last.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_secret = is_key(word) || is_set(before, last);
    if is_name && is_secret && Name::of(last) != Name::Other { whole } else { None }
}

/// Returns whether a name is the one that a word before it sets. Prose differs: `set the password`.
fn is_set(before: &[&str], name: &str) -> bool {
    let Some(setter) = before.len().checked_sub(2).map(|at| before[at]) else { return false };
    let is_compound = name.contains(['.', '_']) || name.bytes().all(|byte| byte.is_ascii_uppercase());
    SETTERS.contains(&setter.trim_start_matches('-')) && (setter.starts_with('-') || is_compound)
}

fn digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Returns whether any of the words names one of the programs.
fn names(words: &[&str], programs: &[&str]) -> bool {
    words.iter().any(|word| programs.contains(&program(word)))
}

/// Returns a word without quotes and leading directories.
fn program(word: &str) -> &str {
    let word = &word[unquoted(word)];
    word.rsplit(['/', '\\']).next().unwrap_or(word)
}

/// Returns whether a word is an option with its password attached, as in `-phunter2`.
fn attached(before: &[&str], word: &str) -> bool {
    let Some((option, value)) = word.split_at_checked(2) else { return false };
    let is_of = |(name, programs): &(&str, &[&str])| *name == option && names(before, programs);
    let has_form = if option.eq_ignore_ascii_case("-u") { has_password(value) } else { !value.is_empty() };
    has_form && option != "-b" && PASSWORD_OPTIONS.iter().any(is_of)
}

/// Returns whether a short option takes `word` as its password.
fn takes_password(before: &[&str], option: &str, word: &str) -> bool {
    let known = PASSWORD_OPTIONS.iter().find(|(name, programs)| *name == option && names(before, programs));
    match (known, option) {
        (Some(("-u" | "-U", _)), _) => has_password(word),
        (Some(("-b", _)), _) => word.contains('='),
        (Some(_), _) => true,
        // For other programs: a password unless it is a number, port or path, or the program is known not to take one.
        (None, "-p") => {
            let is_port = word.bytes().all(|byte| byte.is_ascii_digit() || b":.-,/".contains(&byte));
            let is_container = names(before, &["docker", "podman"]) && !names(before, &["login"]);
            !before[..before.len() - 1].is_empty()
                && !is_port
                && !is_container
                && !word.contains(['/', '\\'])
                && !names(before, &OTHER_P)
        }
        (None, _) => false,
    }
}

/// Returns whether a value has a user and a password, unlike a pair of numbers such as docker's `1000:1000`.
fn has_password(value: &str) -> bool {
    let Some((user, password)) = value.split_once(':') else { return false };
    let are_numbers = user.chars().all(digit) && password.chars().all(digit);
    let is_address = password.is_empty() || password.starts_with("//");
    !are_numbers && !is_address
}

fn is_login(before: &[&str]) -> bool {
    let is_it = |(program, commands): &(&str, &[&str])| names(before, &[program]) && names(before, commands);
    LOGINS.iter().any(is_it)
}

/// Returns whether a word looks like a key: letters and digits of high entropy.
pub fn is_key(word: &str) -> bool {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=_-.~".contains(&byte));
    let has_both = word.contains(digit) && word.contains(|c: char| c.is_ascii_alphabetic());
    is_plain && has_both && word.len() >= KEY_CHARS_MIN && bits(word) >= KEY_BITS_MIN
}

/// Returns Shannon's entropy in bits per byte.
fn bits(word: &str) -> f64 {
    let mut counts = [0_u32; 256];
    word.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let share = |count: u32| f64::from(count) / word.len() as f64;
    counts.into_iter().filter(|count| *count > 0).map(|count| -share(count) * share(count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{command, text};

    /// Commands with a secret, and their redacted forms.
    const WITH_SECRET: [(&str, &str); 33] = [
        ("mysql -u ada -pSECRET db", "mysql -u ada -p[redacted] db"),
        ("mysql -u ada -p SECRET db", "mysql -u ada -p [redacted] db"),
        ("/usr/bin/mysqldump -pSECRET db", "/usr/bin/mysqldump -p[redacted] db"),
        ("sshpass -p SECRET ssh host", "sshpass -p [redacted] ssh host"),
        ("sshpass -pSECRET ssh host", "sshpass -p[redacted] ssh host"),
        ("python train.py -p SECRET --lr 1", "python train.py -p [redacted] --lr 1"),
        ("docker login -u ada -p SECRET", "docker login -u ada -p [redacted]"),
        ("docker login --password SECRET", "docker login --password [redacted]"),
        ("unzip -P SECRET data.zip", "unzip -P [redacted] data.zip"),
        ("ldapsearch -x -w SECRET", "ldapsearch -x -w [redacted]"),
        ("redis-cli -a SECRET ping", "redis-cli -a [redacted] ping"),
        ("curl -u ada:SECRET https://example.org", "curl -u [redacted] https://example.org"),
        ("curl -uada:SECRET https://example.org", "curl -u[redacted] https://example.org"),
        ("curl --user ada:SECRET x", "curl --user [redacted] x"),
        ("curl --user=ada:SECRET x", "curl --user=[redacted] x"),
        ("curl -b session=SECRET x", "curl -b [redacted] x"),
        ("curl --cookie session=SECRET x", "curl --cookie [redacted] x"),
        ("wandb login SECRET", "wandb login [redacted]"),
        ("wandb login --host https://w.example.org SECRET", "wandb login --host https://w.example.org [redacted]"),
        ("python -m wandb login SECRET", "python -m wandb login [redacted]"),
        ("huggingface-cli login --token SECRET", "huggingface-cli login --token [redacted]"),
        ("hf auth login --token SECRET", "hf auth login --token [redacted]"),
        ("ngrok authtoken SECRET", "ngrok authtoken [redacted]"),
        ("ngrok config add-authtoken SECRET", "ngrok config add-authtoken [redacted]"),
        ("aws configure set aws_secret_access_key SECRET", "aws configure set aws_secret_access_key [redacted]"),
        ("python train.py --token SECRET", "python train.py --token [redacted]"),
        ("python train.py --token=SECRET", "python train.py --token=[redacted]"),
        ("python train.py --api-key SECRET", "python train.py --api-key [redacted]"),
        ("python train.py --api_key=SECRET", "python train.py --api_key=[redacted]"),
        ("env WANDB_API_KEY=SECRET python train.py", "env WANDB_API_KEY=[redacted] python train.py"),
        ("tool -password SECRET", "tool -password [redacted]"),
        ("tool api_key SECRET", "tool api_key [redacted]"),
        ("cd x && mysql -pSECRET; wandb login SECRET", "cd x && mysql -p[redacted]; wandb login [redacted]"),
    ];

    const WITHOUT_SECRET: [&str; 22] = [
        "mkdir -p out-shakespeare",
        "ssh -p 2222 host",
        "docker run -p 8080:80 -u 1000:1000 image",
        "docker run --user 1000:1000 image",
        "patch -p1",
        "pytest -p no:cacheprovider",
        "python train.py -p 12",
        "python train.py -p data/openwebtext",
        "mysql -u ada db",
        "curl -u ada https://example.org",
        "curl -H 'Accept: text/html' -o out https://example.org",
        "wandb login --relogin",
        "wandb offline",
        "huggingface-cli download gpt2",
        "torchrun --nproc_per_node=2 train.py config/train_gpt2.py",
        "srun -p gpu_long --gres=gpu:2 python train.py",
        "sbatch -p a100-partition-2 job.sh",
        "the token count of iteration 12 is 491520",
        "each key has 64 values",
        "tokens per iteration will be: 491,520",
        "python -u train.py --out_dir=out-2026-11-23",
        "max_new_tokens 500",
    ];

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn redacted(line: &str) -> String {
        let mut words = words(line);
        command(&mut words);
        words.join(" ")
    }

    const KEY: &str = "hunter23xK9qLm4Z";

    #[test]
    fn options_of_common_tools_are_redacted() {
        for (form, expected) in WITH_SECRET {
            let given = form.replace("SECRET", KEY);
            assert_eq!(text(&given), expected, "as a text");
            assert_eq!(text(expected), expected, "twice");
            // A shell receives the script as one word, whose operators separate commands.
            let mut script = vec!["sh".to_owned(), "-c".to_owned(), given.clone()];
            command(&mut script);
            assert_eq!(script[2], expected, "as a script");
            if !form.contains(';') {
                // The redaction of words covers a whole word with its name attached.
                let said = redacted(&given);
                assert!(!said.contains(KEY) && said.contains("[redacted]"), "{said}");
            }
        }
        assert_eq!(redacted("python train.py -p hunter23"), "python train.py -p [redacted]");
        assert_eq!(redacted("mysql -phunter2 db"), "mysql -p[redacted] db");
    }

    #[test]
    fn other_options_stay() {
        for given in WITHOUT_SECRET {
            assert_eq!(text(given), given);
            assert_eq!(redacted(given), given);
        }
    }

    proptest! {
        #[test]
        fn no_key_passes_in_any_form(
            key in "[A-Za-z0-9]{11,40}7",
            form in 0..WITH_SECRET.len(),
            before in "(|HF_HOME=/x |sudo |time |nohup |/usr/bin/env )",
            quote in "(|'|\")",
        ) {
            // A word of low entropy is recognised as a key only by its position.
            prop_assume!(super::bits(&key) >= super::KEY_BITS_MIN && key.contains(|c: char| c.is_ascii_alphabetic()));
            let given = format!("{before}{}", WITH_SECRET[form].0.replace("SECRET", &key));
            for said in [text(&given).into_owned(), redacted(&given)] {
                prop_assert!(!said.contains(&key), "{said}");
                prop_assert_eq!(text(&said).into_owned(), said.clone());
            }
            let quoted = format!("mysql -p {quote}{key}{quote} db");
            prop_assert!(!text(&quoted).contains(&key));
        }

        #[test]
        fn no_text_panics_and_twice_is_once(parts in proptest::collection::vec(
            "(-p|-u|-puä|--user=|mysql|wandb|login|a:b|'|\"|;|&&|\n|[a-zä]{0,3}|token|\\[redacted\\]|curl| |  )", 0..14,
        )) {
            let given = parts.join(" ");
            let once = text(&given).into_owned();
            prop_assert_eq!(text(&once).into_owned(), once.clone(), "{:?}", given);
        }
    }
}
