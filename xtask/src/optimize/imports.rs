//! Shortens the names of a program's imports. wasm-bindgen ends each with a random hash, which hardly compresses and is
//! sent twice: in the program and in its script.

use std::collections::BTreeMap;

/// Number of the section with the imports.
const IMPORT_SECTION: u8 = 2;
/// Length of the header: magic number and version.
const HEADER_BYTES: usize = 8;
/// Length of wasm-bindgen's hash in hexadecimal digits.
const HASH_DIGITS: usize = 16;

/// Returns the program and its script with short names of the imports. Returns `None` if the program imports anything
/// but functions, or if its sections cannot be read.
pub fn shortened(program: &[u8], script: &str) -> Option<(Vec<u8>, String)> {
    let mut at = HEADER_BYTES;
    loop {
        let start = at;
        let id = *program.get(at)?;
        at += 1;
        let size = number(program, &mut at)?;
        let end = at.checked_add(size)?;
        if id != IMPORT_SECTION {
            at = end;
            continue;
        }
        let (section, names) = section(program.get(at..end)?)?;
        let mut short = program.get(..start)?.to_vec();
        short.push(IMPORT_SECTION);
        push_number(&mut short, section.len());
        short.extend(section);
        short.extend(program.get(end..)?);
        let script = names.iter().fold(script.to_owned(), |script, (long, short)| script.replace(long, short));
        return Some((short, script));
    }
}

/// Returns the import section with short names, and the short name of each long one.
fn section(section: &[u8]) -> Option<(Vec<u8>, BTreeMap<String, String>)> {
    let (mut at, mut short, mut names) = (0, Vec::new(), BTreeMap::new());
    let n_imports = number(section, &mut at)?;
    push_number(&mut short, n_imports);
    for index in 0..n_imports {
        let (module, name) = (text(section, &mut at)?, text(section, &mut at)?);
        push_text(&mut short, module);
        if has_hash(name) {
            let new = format!("i{index}");
            push_text(&mut short, &new);
            names.insert(name.to_owned(), new);
        } else {
            push_text(&mut short, name);
        }
        // The kind of a function, then its type.
        if *section.get(at)? != 0 {
            return None;
        }
        short.push(0);
        at += 1;
        push_number(&mut short, number(section, &mut at)?);
    }
    Some((short, names))
}

fn has_hash(name: &str) -> bool {
    let hash = name.rsplit('_').next().unwrap_or_default();
    name.starts_with("__wb") && hash.len() == HASH_DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Reads an unsigned LEB128 number.
fn number(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut number = 0;
    for shift in (0..32).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits")]
fn push_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push((number & 0x7f) as u8);
}

fn text<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a str> {
    let length = number(bytes, at)?;
    let text = bytes.get(*at..at.checked_add(length)?)?;
    *at += length;
    str::from_utf8(text).ok()
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    push_number(bytes, text.len());
    bytes.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(imports: &[(&str, u8)]) -> Vec<u8> {
        let mut section = Vec::new();
        push_number(&mut section, imports.len());
        for (name, kind) in imports {
            push_text(&mut section, "./a_bg.js");
            push_text(&mut section, name);
            section.extend([*kind, 3]);
        }
        // A section before, with two bytes, and one behind.
        let mut program = b"\0asm\x01\0\0\0\x01\x02ab\x02".to_vec();
        push_number(&mut program, section.len());
        program.extend(section);
        program.extend(b"\x03\x01c");
        program
    }

    #[test]
    fn hashed_names_become_short_in_both_files() {
        let long = "__wbg_get_d7176cfb76d71114";
        let before = program(&[("__wbindgen_init_externref_table", 0), (long, 0)]);
        let (after, script) = shortened(&before, &format!("{{ {long}: f, get: g }}")).expect("a program");
        assert_eq!(after, program(&[("__wbindgen_init_externref_table", 0), ("i1", 0)]));
        assert_eq!(script, "{ i1: f, get: g }");
    }

    #[test]
    fn a_program_that_is_not_understood_stays() {
        assert_eq!(shortened(&program(&[("memory", 2)]), ""), None);
        assert_eq!(shortened(b"\0asm\x01\0\0\0", ""), None);
    }
}
