//! Generates a constant or a function for each key of `keys.txt`, so that a text that is missing or gets other
//! arguments does not compile; and tables of their names.
#![allow(clippy::disallowed_methods, reason = "it runs natively, also where the package is checked for the page")]

use std::{env, fmt::Write, fs, path::Path};

/// The word of a section whose texts agents send by name.
const SENT: &str = "agent";

/// A key of the list.
struct Key<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    is_sent: bool,
}

fn main() {
    println!("cargo::rerun-if-changed=keys.txt");
    let list = fs::read_to_string("keys.txt").expect("keys.txt is part of the package");
    let keys = keys(&list);
    let folder = env::var("OUT_DIR").expect("cargo sets the output directory");
    let write = |name: &str, code: String| {
        fs::write(Path::new(&folder).join(name), code).expect("cargo's output directory is writable");
    };
    write("keys.rs", keys.iter().enumerate().map(|(number, key)| item(number, key)).collect());
    let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
    write("names.rs", format!("&{names:?}"));
    let sent = keys.iter().enumerate().filter(|(_, key)| key.is_sent);
    let mut sent: Vec<_> = sent.map(|(number, key)| (key.name, number, key.arguments.len())).collect();
    sent.sort_unstable();
    write("sent.rs", format!("&{sent:?}"));
}

fn keys(list: &str) -> Vec<Key<'_>> {
    let mut is_sent = false;
    let mut keys = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[') {
            is_sent = section.trim_end_matches(']').split(' ').any(|word| word == SENT);
            continue;
        }
        let (name, arguments) = match line.split_once('(') {
            Some((name, arguments)) => (name, arguments.trim_end_matches(')').split(", ").collect()),
            None => (line, vec![]),
        };
        keys.push(Key { name, arguments, is_sent });
    }
    keys
}

fn item(number: usize, key: &Key<'_>) -> String {
    let Key { name, arguments, .. } = key;
    if arguments.is_empty() {
        return format!("/// `{name}`\npub const {}: Key = Key({number});\n", name.to_uppercase());
    }
    let (mut parameters, mut parts) = (String::new(), String::new());
    for argument in arguments {
        write!(parameters, "{argument}: impl Argument, ").expect("a string takes everything");
        write!(parts, "&{argument}, ").expect("a string takes everything");
    }
    format!(
        "/// `{name}`\n#[must_use]\npub fn {name}({parameters}) -> Text {{ Text::new(Key({number}), &[{parts}]) }}\n"
    )
}
