//! Makes a constant or a function of each text of `text/en.txt`, so that a text that is missing or gets other arguments
//! does not compile.

#[path = "src/text/source.rs"]
mod source;

use std::{env, fmt::Write, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=text");
    println!("cargo::rerun-if-changed=src/text/source.rs");
    let english = fs::read_to_string("text/en.txt").expect("text/en.txt is part of the package");
    let entries = source::entries(&english).unwrap_or_else(|error| panic!("text/en.txt, {error}"));
    let mut code = String::new();
    for (index, entry) in entries.iter().enumerate() {
        let (name, constant) = (entry.name, entry.name.to_uppercase());
        source::numbered(entry.text, &entry.arguments).unwrap_or_else(|error| panic!("text/en.txt, {name}: {error}"));
        let parameters: Vec<String> =
            entry.arguments.iter().map(|argument| format!("{argument}: impl Argument")).collect();
        let parts: Vec<String> = entry.arguments.iter().map(|argument| format!("&{argument}")).collect();
        let item = match entry.arguments.is_empty() {
            true => format!("pub const {constant}: Key = Key({index});"),
            false => format!(
                "#[must_use]\npub fn {name}({}) -> Text {{ Text::new(Key({index}), &[{}]) }}",
                parameters.join(", "),
                parts.join(", ")
            ),
        };
        writeln!(code, "/// `{}`\n{item}", entry.text).expect("a string takes everything");
    }
    let path = Path::new(&env::var("OUT_DIR").expect("cargo says where")).join("keys.rs");
    fs::write(path, code).expect("the folder is cargo's own");
}
