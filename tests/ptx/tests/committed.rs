//! The committed kernels, read: every entry and every form of an instruction is known, and every listed mistake can be
//! made.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use headroom_ptx::{Module, mutations};

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

/// The texts of all files, by their names without an ending.
fn files() -> BTreeMap<String, String> {
    let entries = fs::read_dir(kernels().join("ptx")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let ptx = paths.filter(|path| path.extension().is_some_and(|ending| ending == "ptx"));
    let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    ptx.map(|path| (name(&path), fs::read_to_string(&path).expect("a text"))).collect()
}

#[test]
fn every_entry_is_read_to_the_last_instruction() {
    let (mut entries, mut forms) = (vec![], BTreeSet::new());
    for (file, text) in files() {
        let module = Module::read(&text).unwrap_or_else(|error| panic!("{file}.ptx: {error}"));
        for entry in module.entries() {
            let instructions = module.instructions(entry);
            assert!(instructions.len() > 10, "{entry} has {} instructions", instructions.len());
            forms.extend(instructions.iter().map(|(_, opcode)| (*opcode).to_owned()));
            entries.push(entry.to_owned());
        }
        assert_eq!(text.matches(".visible .entry ").count(), module.entries().count(), "{file}.ptx");
    }
    assert_eq!(entries.len(), 44, "{entries:?}");
    assert!(forms.len() >= 100, "{} forms: {forms:?}", forms.len());
}

/// The mistakes of the emulator's list: the file that each is made in, and its name.
fn emulated_mistakes() -> Vec<(String, String)> {
    let text = fs::read_to_string(kernels().join("emulator/mutations.txt")).expect("a list");
    let values = |key: &str| {
        let start = format!("{key} = ");
        text.lines().filter_map(|line| line.strip_prefix(&start).map(str::to_owned)).collect::<Vec<_>>()
    };
    let (files, names) = (values("file"), values("name"));
    assert_eq!(files.len(), names.len());
    files.into_iter().zip(names).collect()
}

/// What the sources are tested for, the PTX is, too.
#[test]
fn every_mistake_of_the_sources_has_one_of_the_ptx() {
    let files = files();
    let has = |file: &str, entry: &str| files[file].contains(&format!(".visible .entry {entry}("));
    let mistakes = emulated_mistakes();
    assert!(mistakes.len() > 40, "{} mistakes", mistakes.len());
    for (file, name) in mistakes {
        let file = file.trim_end_matches(".cu");
        let found = mutations().iter().any(|mutation| mutation.name == name && has(file, &mutation.entry));
        assert!(found, "tests/ptx/mutations.txt has no {name} in an entry of {file}.ptx");
    }
}

#[test]
fn every_listed_mistake_can_be_made_and_is_still_ptx() {
    let files = files();
    let mut seen = BTreeSet::new();
    for mutation in mutations() {
        assert!(
            seen.insert((&mutation.entry, &mutation.name)),
            "{} with {} is listed twice",
            mutation.entry,
            mutation.name
        );
        let text = files.values().find(|text| text.contains(&format!(".visible .entry {}(", mutation.entry)));
        let text = text.unwrap_or_else(|| panic!("{} is not an entry", mutation.entry));
        let mutated = mutation.apply(text).unwrap_or_else(|error| panic!("{error}"));
        let n_changed = text.lines().zip(mutated.lines()).filter(|(before, after)| before != after).count();
        let expected = (mutation.n_lines(), text.lines().count());
        assert_eq!((n_changed, mutated.lines().count()), expected, "{mutation:?}");
        Module::read(&mutated).unwrap_or_else(|error| panic!("{mutation:?}: {error}"));
    }
}
