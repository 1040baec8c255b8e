//! Compares the committed PTX with the CUDA sources as text, without compiler or GPU.
//!
//! `cargo xtask kernels --check` recompiles the kernels and detects what these tests cannot.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The contents of all files with an extension in a directory below kernels, by their names without extension.
fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a readable entry").path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == ending));
    let texts: BTreeMap<String, String> = wanted
        .map(|path| {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            (name.to_owned(), fs::read_to_string(&path).expect("a text"))
        })
        .collect();
    assert!(!texts.is_empty(), "{} has .{ending}", folder.display());
    texts
}

/// Names of the kernels that CUDA C++ declares: `KERNEL name(` and `KERNEL BOUNDS(…) name(`.
fn declared(source: &str) -> Vec<String> {
    let code: String = source.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let after = code.split("KERNEL").skip(1).map(str::trim_start);
    after
        .map(|rest| {
            let bounded = rest.strip_prefix("BOUNDS(").and_then(|rest| rest.split_once(')'));
            let name = bounded.map_or(rest, |(_, rest)| rest).split('(').next().unwrap_or("").trim();
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "`{name}` is not an entry name");
            name.to_owned()
        })
        .collect()
}

/// The kernels of a PTX file, each with the types of its parameters.
fn compiled(ptx: &str) -> BTreeMap<String, Vec<String>> {
    let entries = ptx.split(".visible .entry ").skip(1).map(|rest| rest.split_once(')').expect("parameters end").0);
    entries
        .map(|head| {
            let (name, parameters) = head.split_once('(').expect("parameters begin");
            let types = parameters.split(".param ").skip(1).map(|rest| rest.split_whitespace().next().expect("a type"));
            (name.to_owned(), types.map(str::to_owned).collect())
        })
        .collect()
}

/// Atomic floating-point instructions, whose result depends on the order of threads.
fn float_atomics(ptx: &str) -> Vec<&str> {
    let is_atomic = |line: &&str| ["atom.", "red."].iter().any(|start| line.starts_with(start));
    let of_floats = |line: &&str| {
        let instruction = line.split_whitespace().next().unwrap_or("");
        instruction
            .split('.')
            .any(|part| part.starts_with("f16") || part.starts_with("bf16") || part.starts_with("f32"))
    };
    let instructions = ptx.lines().map(|line| {
        let line = line.trim_start();
        // The instruction may follow a predicate: `@%p1 red.global.add.f32`.
        if line.starts_with('@') { line.split_once(' ').map_or("", |(_, rest)| rest.trim_start()) } else { line }
    });
    instructions.filter(|line| is_atomic(line) && of_floats(line)).collect()
}

#[test]
fn every_entry_is_in_the_ptx_of_its_file_and_in_the_manifest() {
    let (sources, compiled_files) = (files("cuda", "cu"), files("ptx", "ptx"));
    let manifest: Value = serde_json::from_str(&files("ptx", "json")["manifest"]).expect("JSON");
    let listed: BTreeSet<&String> = manifest["kernels"].as_object().expect("kernels").keys().collect();
    assert_eq!(sources.keys().collect::<BTreeSet<_>>(), compiled_files.keys().collect(), "cargo xtask kernels");
    assert_eq!(listed, sources.keys().collect(), "cargo xtask kernels");
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (op, source) in &sources {
        let declared = declared(source);
        assert!(!declared.is_empty(), "{op}.cu has an entry");
        let names: BTreeSet<&String> = declared.iter().collect();
        assert_eq!(names.len(), declared.len(), "{op}.cu declares an entry twice");
        assert_eq!(names, compiled(&compiled_files[op]).keys().collect(), "{op}: cargo xtask kernels");
        let entries = manifest["kernels"][op]["entries"].as_object().expect("entries");
        assert_eq!(names, entries.keys().collect(), "{op}: cargo xtask kernels");
        for name in declared {
            // A host that loads all files finds a kernel by its name alone.
            if let Some(other) = seen.insert(name.clone(), op) {
                panic!("{name} is in {op}.cu and in {other}.cu");
            }
        }
    }
}

/// The host and the emulator's driver support no other parameter types.
#[test]
fn parameters_are_pointers_whole_numbers_and_floats() {
    let mut n_parameters = 0;
    for (op, ptx) in files("ptx", "ptx") {
        for (entry, types) in compiled(&ptx) {
            for of in &types {
                assert!([".u64", ".u32", ".f32"].contains(&of.as_str()), "{op}: {entry} has a parameter of {of}");
            }
            n_parameters += types.len();
        }
    }
    assert!(n_parameters > 0);
}

/// The order of additions would differ between runs.
#[test]
fn no_floats_are_added_in_an_order_of_chance() {
    for (op, ptx) in files("ptx", "ptx") {
        assert_eq!(float_atomics(&ptx), [""; 0], "{op}.ptx");
    }
}

/// The PTX version of CUDA 12.4's driver, and no information about the build machine.
#[test]
fn the_ptx_is_of_one_version_and_of_no_machine() {
    for (op, ptx) in files("ptx", "ptx") {
        for line in [".version 8.4", ".target sm_80", ".address_size 64"] {
            assert!(ptx.lines().any(|found| found == line), "{op}.ptx lacks {line}");
        }
        assert!(!ptx.contains(".file") && !ptx.contains(".loc\t"), "{op}.ptx has line information");
    }
}

// Tests of the parsers above.

#[test]
fn entries_are_found_in_sources() {
    let source =
        "// KERNEL commented(\nKERNEL a(float* out) {}\nKERNEL BOUNDS(THREADS, 2) b_forward(\n    float* out) {}\n";
    assert_eq!(declared(source), ["a", "b_forward"]);
}

#[test]
fn entries_are_found_in_ptx() {
    let ptx = ".visible .entry a(\n\t.param .u64 a_param_0,\n\t.param .f32 a_param_1\n)\n{\n\tld.param.u64 %rd1;\n}\n\
               .visible .entry b()\n{\n}\n";
    let found = compiled(ptx);
    assert_eq!(found["a"], [".u64", ".f32"]);
    assert_eq!(found["b"], [""; 0]);
}

#[test]
fn float_atomics_are_found_in_ptx() {
    let found = "\tred.global.add.f32 \t[%rd1], %f1;\n\tatom.add.noftz.bf16x2 \t%r1, [%rd1], %r2;\n\
                 @%p1 atom.global.add.f32 %f1;\n";
    assert_eq!(float_atomics(found).len(), 3);
    assert_eq!(float_atomics("\tatom.global.add.u32 %r1, [%rd1], 1;\n\tadd.f32 %f1, %f2, %f3;\n"), [""; 0]);
}
