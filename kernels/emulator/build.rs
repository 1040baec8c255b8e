//! Compiles the CUDA kernels for the CPU, instrumented to report each load and store to the emulator, and generates
//! their table.
//!
//! Also compiles the mutations of `mutations.txt`: kernels with one deliberate mistake each, which the tests must
//! detect.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The maximum number of a kernel's parameters.
const PARAMETERS_MAX: u32 = 32;

/// A kernel source with one deliberate mistake.
struct Mutation {
    /// The source file's name.
    file: String,
    /// The mutation's name, appended to the kernel's name after two underscores.
    name: String,
    find: String,
    replace: String,
}

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to"));
    let sources = here.parent().expect("kernels").join("cuda");
    for watched in
        ["include", "mutations.txt", "src/callbacks.cpp", "tests"].map(|name| here.join(name)).iter().chain([&sources])
    {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let mutations = mutations(&read(&here.join("mutations.txt")));
    // The emulator's own test kernels have one mistake each.
    let mut files: Vec<PathBuf> = [&sources, &here.join("tests")]
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).expect("kernels"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "cu"))
        .collect();
    files.sort();
    for mutation in &mutations {
        assert!(
            files.iter().any(|file| file.ends_with(&mutation.file)),
            "mutations.txt: there is no {}",
            mutation.file
        );
    }

    let mut kernels = Vec::new();
    let mut instrumented = compiler(&here, &sources);
    instrumented.flag("-fsanitize=thread,alignment");
    for file in &files {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8").to_owned();
        let text = read(file);
        let mut unit = |text: &str, suffix: &str| {
            let path = out.join(format!("{}{suffix}.cpp", name.trim_end_matches(".cu")));
            fs::write(&path, translation_unit(text, file, suffix, &mut kernels)).expect("a file of ours");
            instrumented.file(path);
        };
        unit(&text, "");
        for mutation in mutations.iter().filter(|mutation| mutation.file == name) {
            assert_eq!(
                text.matches(&mutation.find).count(),
                1,
                "mutations.txt, {}: the replaced text must occur exactly once in {name}",
                mutation.name
            );
            unit(&text.replacen(&mutation.find, &mutation.replace, 1), &format!("__{}", mutation.name));
        }
    }
    instrumented.compile("headroom_emulated_kernels");
    compiler(&here, &sources).file(here.join("src/callbacks.cpp")).compile("headroom_emulator_callbacks");
    fs::write(out.join("kernels.rs"), table(&kernels)).expect("a file of ours");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn compiler(here: &Path, sources: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).debug(false).warnings(true).extra_warnings(true);
    // A fault reports its source line. The other debug information takes a quarter of the compilation.
    build.flag("-g1");
    build.define("HEADROOM_EMULATOR", None).include(sources).include(here.join("include"));
    // A kernel's exceptions could not be caught, and vectorised accesses would not be reported per element.
    build.flag("-fno-exceptions").flag("-fno-tree-vectorize").flag("-fno-strict-aliasing");
    build.flag_if_supported("-Wno-unknown-pragmas");
    build
}

/// Parses blocks of `file = …`, `name = …`, `find = …` and `replace = …`, separated by empty lines.
fn mutations(text: &str) -> Vec<Mutation> {
    let blocks =
        text.split("\n\n").filter(|block| block.lines().any(|line| !line.starts_with('#') && !line.is_empty()));
    let of = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" ="));
        line.unwrap_or_else(|| panic!("mutations.txt: no {key} in\n{block}")).trim_start_matches(' ').to_owned()
    };
    blocks
        .map(|block| Mutation {
            file: of(block, "file"),
            name: of(block, "name"),
            find: of(block, "find"),
            replace: of(block, "replace"),
        })
        .collect()
}

/// The source to compile: the kernels with `suffix` appended to their names, and a function that calls each.
fn translation_unit(text: &str, file: &Path, suffix: &str, kernels: &mut Vec<String>) -> String {
    let mut calls = String::new();
    let mut unit = format!("#line 1 \"{}\"\n", file.file_name().and_then(|name| name.to_str()).expect("UTF-8"));
    for line in text.lines() {
        // The name may follow a `BOUNDS(…)`.
        let named = line.strip_prefix("KERNEL ").and_then(|rest| {
            let rest = if rest.starts_with("BOUNDS(") { rest.split_once(") ")?.1 } else { rest };
            Some(rest.split_once('(')?.0.trim())
        });
        let Some(name) = named.filter(|name| !name.is_empty()) else {
            unit += line;
            unit += "\n";
            continue;
        };
        let suffixed = format!("{name}{suffix}");
        unit += &line.replacen(&format!("{name}("), &format!("{suffixed}("), 1);
        unit += "\n";
        calls += &format!(
            "extern \"C\" __attribute__((no_sanitize(\"thread\"))) void emulator_call_{suffixed}(void* const* arguments) \
             {{ call_kernel(&{suffixed}, arguments); }}\n\
             extern \"C\" u32 emulator_parameters_{suffixed}(u32* out, u32 n_max) {{ return \
             parameter_bytes(&{suffixed}, out, n_max); }}\n"
        );
        kernels.push(suffixed);
    }
    unit + &calls
}

/// The table of kernels, as Rust source.
fn table(kernels: &[String]) -> String {
    let mut declared = String::new();
    let mut listed = String::new();
    for name in kernels {
        declared += &format!(
            "    fn emulator_call_{name}(arguments: *const *const c_void);\n    fn emulator_parameters_{name}(out: *mut \
             u32, n_max: u32) -> u32;\n"
        );
        listed += &format!(
            "    Kernel {{ name: \"{name}\", call: emulator_call_{name}, parameters: emulator_parameters_{name} }},\n"
        );
    }
    format!(
        "unsafe extern \"C\" {{\n{declared}}}\n\n/// Parameters of a kernel at most.\nconst PARAMETERS_MAX: u32 = \
         {PARAMETERS_MAX};\n\nstatic KERNELS: &[Kernel] = &[\n{listed}];\n"
    )
}
