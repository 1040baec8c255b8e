//! House rules that a compiler does not check. Each rule is a function from inputs to findings, and each has a case
//! that must find something, so that a rule cannot fall silent unnoticed.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Who may import whom, by folder; the longest folder that fits counts. Tests may import everything.
const EDGES: &[(&str, &[&str])] = &[
    ("shared", &[]),
    ("kernels", &["shared"]),
    ("kernels/emulator", &[]),
    ("web", &["shared"]),
    ("web/demo", &["shared", "kernels"]),
    ("agent", &["shared", "kernels", "tests/fake_clock", "tests/fake_cuda", "tests/fake_nvml"]),
    ("tests", &["shared", "kernels", "web", "web/demo", "agent", "tests", "tests/fake_cuda", "tests/fake_nvml"]),
    ("tests/fake_cuda", &["shared", "kernels", "kernels/emulator", "tests/ptx"]),
    ("tests/fake_clock", &[]),
    ("tests/ptx", &[]),
    ("tests/fake_nvml", &[]),
    ("xtask", &["shared"]),
    ("fuzz", &["shared", "kernels"]),
];

/// Crates from outside that only one place knows: the package's name, the folder of the packages that may depend on
/// it, and the beginnings of the paths that may name it.
const KEPT_APART: &[(&str, &[&str], &[&str])] = &[
    ("axum", &["agent"], &["agent/src/server", "agent/tests/"]),
    ("wgpu", &["kernels", "web/demo"], &["kernels/src/wgpu", "kernels/tests/", "kernels/benches/", "web/demo/"]),
    // Its functions return a driver's codes as a Rust enum, which a newer driver's code makes undefined behavior.
    ("cudarc", &[], &[]),
    ("rusqlite", &["agent"], &["agent/src/store", "agent/tests/"]),
    ("tiktoken-rs", &["agent"], &["agent/src/data/tokenizer.rs"]),
    ("libfuzzer-sys", &["fuzz"], &["fuzz/"]),
    ("nvml-wrapper", &["agent"], &["agent/src/telemetry", "agent/tests/"]),
];

/// Folders that hold what is built or fetched.
const NOT_OURS: &[&str] = &["target", "dist", "node_modules", ".git", ".tools", ".scratch"];
/// Past this a file usually holds a second idea.
const LINES_MAX: usize = 500;
/// How a file says that it is a table, which may be as long as it has to be.
const TABLE: &str = "//! Table of ";

/// One package of the workspace, as far as the rules look.
#[derive(Debug, Clone)]
struct Package {
    name: String,
    /// Relative to the workspace, with forward slashes.
    folder: String,
    /// Every kind of dependency: a test that reaches upwards is a wrong edge too.
    dependencies: Vec<String>,
}

/// One file of the repository.
#[derive(Debug, Clone)]
struct File {
    /// Relative to the workspace, with forward slashes.
    path: String,
    text: String,
}

fn wrong_edges(packages: &[Package]) -> Vec<String> {
    let folder_of = |name: &str| packages.iter().find(|package| package.name == *name).map(|package| &package.folder);
    let mut findings = Vec::new();
    for package in packages {
        let Some((_, allowed)) = layer(&package.folder) else {
            findings.push(format!("{}: nothing says what {} may import", package.name, package.folder));
            continue;
        };
        for target in package.dependencies.iter().filter_map(|name| folder_of(name)) {
            if !layer(target).is_some_and(|(target, _)| allowed.contains(&target)) {
                findings.push(format!("{} imports {target}, and may import only {allowed:?}", package.folder));
            }
        }
    }
    findings
}

fn layer(folder: &str) -> Option<(&'static str, &'static [&'static str])> {
    let fits = |layer: &str| folder == layer || folder.strip_prefix(layer).is_some_and(|rest| rest.starts_with('/'));
    EDGES.iter().filter(|(layer, _)| fits(layer)).max_by_key(|(layer, _)| layer.len()).copied()
}

fn misplaced_dependencies(packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        for (outside, folders, _) in KEPT_APART {
            let here = layer(&package.folder).is_some_and(|(layer, _)| folders.contains(&layer));
            if !here && package.dependencies.iter().any(|name| name == outside) {
                findings.push(format!("{} depends on {outside}, which belongs to {folders:?}", package.folder));
            }
        }
    }
    findings
}

fn misplaced_imports(file: &File) -> Vec<String> {
    let kept_elsewhere =
        KEPT_APART.iter().filter(|(_, _, paths)| !paths.iter().any(|path| file.path.starts_with(path)));
    kept_elsewhere
        .filter(|(outside, ..)| names_crate(&file.text, &outside.replace('-', "_")))
        .map(|(outside, _, paths)| format!("{} names {outside}, which belongs to {paths:?}", file.path))
        .collect()
}

/// Whether code, not a comment, has a path that begins with the crate. `ours::wgpu::` is another module of that name.
fn names_crate(text: &str, name: &str) -> bool {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(""));
    code.into_iter().any(|line| {
        line.match_indices(name).any(|(start, _)| {
            let before = line[..start].chars().next_back();
            let begins = !before.is_some_and(|char| char.is_alphanumeric() || char == '_' || char == ':');
            let after = line[start + name.len()..].trim_start();
            let used =
                line[..start].trim_end().ends_with("use") && (after.starts_with(';') || after.starts_with("as "));
            begins && (after.starts_with("::") || used)
        })
    })
}

fn missing_module_doc(file: &File) -> Vec<String> {
    if file.text.starts_with("//!") { vec![] } else { vec![format!("{} does not begin with a `//!` line", file.path)] }
}

fn too_long(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines <= LINES_MAX || file.text.starts_with(TABLE) {
        return vec![];
    }
    vec![format!("{} has {lines} lines, over {LINES_MAX}; a table begins with `{TABLE}`", file.path)]
}

/// Files of C++ and CUDA C++, which no formatter looks after.
const CPP: &[&str] = &[".cu", ".cuh", ".h", ".cpp"];
/// As rustfmt has it; of a comment, as there, its words alone.
const COLUMNS_MAX: usize = 120;

fn badly_formatted(file: &File) -> Vec<String> {
    let mut findings = Vec::new();
    if !file.text.starts_with("// ") {
        findings.push(format!("{} does not begin with a `//` line that says what it is for", file.path));
    }
    if !file.text.ends_with('\n') {
        findings.push(format!("{} does not end with a line's end", file.path));
    }
    for (idx, line) in file.text.split('\n').enumerate() {
        let columns = line.strip_prefix("// ").unwrap_or(line).chars().count();
        let faults = [
            (line.contains('\t'), "has a tab".to_owned()),
            (line.ends_with([' ', '\t', '\r']), "ends in blanks".to_owned()),
            (columns > COLUMNS_MAX, format!("is {columns} wide, over {COLUMNS_MAX}")),
        ];
        let place = |what| format!("{}:{} {what}", file.path, idx + 1);
        findings.extend(faults.into_iter().filter(|(is_fault, _)| *is_fault).map(|(_, what)| place(what)));
    }
    findings
}

/// A kernel is made of its file and of `device.cuh`: the hash of its PTX is of these two.
fn foreign_includes(file: &File) -> Vec<String> {
    let includes: Vec<&str> = file.text.lines().filter(|line| line.trim_start().starts_with("#include")).collect();
    if includes == ["#include \"device.cuh\""] {
        return vec![];
    }
    vec![format!("{} includes device.cuh and nothing else: {includes:?}", file.path)]
}

/// The addresses of package registries and mirrors: they belong into the person's own configuration.
fn registry_hosts(file: &File) -> Vec<String> {
    // In two halves, or this file would find itself.
    let hosts = [
        ("crates", "io"),
        ("static.rust-lang", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy.golang", "org"),
        ("deb.debian", "org"),
        ("archive.ubuntu", "com"),
    ];
    let names = hosts.map(|(name, ending)| format!("{name}.{ending}"));
    names.iter().filter(|host| file.text.contains(*host)).map(|host| format!("{} names {host}", file.path)).collect()
}

/// Paths in backticks; `{a,b}` stands for both. Not those that are routes, types, globs or commands.
fn paths_named(markdown: &str) -> Vec<String> {
    let code = markdown.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2));
    code.filter(|code| {
        let is_path =
            code.contains('/') || [".rs", ".toml", ".md", ".wgsl", ".cu"].iter().any(|end| code.ends_with(end));
        is_path && !code.starts_with(['/', '.', '-']) && !code.contains(|char| " <>*:$=#".contains(char))
            || code.starts_with(".ci/")
    })
    .flat_map(expanded)
    .collect()
}

fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{}{after}", choice.trim()))).collect()
}

fn missing_paths(markdown: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let missing = paths_named(markdown).into_iter().filter(|path| !exists(path));
    missing.map(|path| format!("ARCHITECTURE.md names `{path}`, which does not exist")).collect()
}

// The repository under the rules.

/// Texts of the table that nothing says: each is a constant or a function of its name.
fn texts_not_said(table: &str, sources: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = sources.split(|c| !is_part(c)).collect();
    let entries = table.lines().filter(|line| !line.starts_with(['#', '['])).filter_map(|line| line.split_once(" = "));
    let names = entries.map(|(head, _)| match head.split_once('(') {
        Some((name, _)) => name.to_owned(),
        None => head.to_uppercase(),
    });
    // The first is said where no program runs yet.
    names.filter(|name| name != "COULD_NOT_START" && !words.contains(&**name)).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the workspace")
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string().replace('\\', "/")
}

/// The workspaces: `fuzz` is one of its own.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

fn packages() -> Vec<Package> {
    let packages: Vec<_> = MANIFESTS.iter().flat_map(|manifest| packages_of(manifest)).collect();
    assert!(packages.len() >= 7, "the workspaces have seven packages or more: {packages:?}");
    packages
}

fn packages_of(manifest: &str) -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", manifest];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |json: &Value| json.as_str().expect("a string").to_owned();
    metadata["packages"]
        .as_array()
        .expect("a list of packages")
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            folder: relative(Path::new(&text(&package["manifest_path"])).parent().expect("a folder")),
            dependencies: package["dependencies"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|d| text(&d["name"]))
                .collect(),
        })
        .collect()
}

/// Every text file that is ours.
fn files() -> Vec<File> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = vec![root().to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !NOT_OURS.contains(&name) {
                open.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                files.push(File { path: relative(&path), text });
            }
        }
    }
    assert!(files.iter().any(|file| file.path == "shared/src/lib.rs"), "the walk finds the sources");
    files
}

fn sources(endings: &[&str]) -> Vec<File> {
    let mut files = files();
    files.retain(|file| endings.iter().any(|ending| file.path.ends_with(ending)));
    files
}

#[track_caller]
fn tidy(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<_> = findings.into_iter().collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn our_crates_import_one_way() {
    tidy(wrong_edges(&packages()));
}

#[test]
fn outside_crates_are_declared_where_they_belong() {
    tidy(misplaced_dependencies(&packages()));
}

#[test]
fn outside_crates_are_named_where_they_belong() {
    tidy(sources(&[".rs"]).iter().flat_map(misplaced_imports));
}

#[test]
fn every_file_says_what_lives_in_it() {
    tidy(sources(&[".rs"]).iter().flat_map(missing_module_doc));
}

#[test]
fn files_are_short() {
    tidy(sources(&[&[".rs", ".wgsl"], CPP].concat()).iter().flat_map(too_long));
}

#[test]
fn cpp_is_formatted() {
    let files = sources(CPP);
    assert!(files.iter().any(|file| file.path.ends_with(".cu")), "the walk finds the kernels");
    tidy(files.iter().flat_map(badly_formatted));
}

#[test]
fn kernels_include_one_file() {
    tidy(sources(&[".cu"]).iter().flat_map(foreign_includes));
}

#[test]
fn every_text_is_said_somewhere() {
    let table = fs::read_to_string(root().join("shared/text/en.txt")).expect("the table of texts");
    let sources: String =
        sources(&["rs"]).into_iter().filter(|file| !file.path.contains("text/tests")).map(|file| file.text).collect();
    tidy(texts_not_said(&table, &sources).into_iter().map(|name| format!("shared/text/en.txt: nothing says {name}")));
}

#[test]
fn must_find_a_text_that_nothing_says() {
    let table = "[all]\nfits(left) = Fits: {left}\nname = Headroom\ngone = x\ngone_too(n) = {n}\n";
    assert_eq!(texts_not_said(table, "text::fits(1); t(text::NAME); NOT_GONE gone"), ["GONE", "gone_too"]);
}

#[test]
fn no_registry_is_named() {
    // Lock files are written by their tools.
    let written_by_hand = |file: &File| !file.path.ends_with("Cargo.lock") && !file.path.ends_with("package-lock.json");
    tidy(files().into_iter().filter(written_by_hand).flat_map(|file| registry_hosts(&file)));
}

#[test]
fn the_map_matches_the_territory() {
    let Ok(markdown) = fs::read_to_string(root().join("ARCHITECTURE.md")) else { return };
    assert!(!paths_named(&markdown).is_empty(), "a map names paths");
    tidy(missing_paths(&markdown, |path| root().join(path).exists()));
}

// Each rule finds what it is for.

fn package(name: &str, folder: &str, dependencies: &[&str]) -> Package {
    Package {
        name: name.into(),
        folder: folder.into(),
        dependencies: dependencies.iter().map(|d| (*d).into()).collect(),
    }
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

#[test]
fn must_find_a_wrong_edge() {
    let shared = package("headroom-shared", "shared", &["serde"]);
    let kernels = package("headroom-kernels", "kernels", &["headroom-shared"]);
    let demo = package("headroom-demo", "web/demo", &["headroom-kernels"]);
    assert_eq!(wrong_edges(&[shared.clone(), kernels.clone(), demo]), [""; 0]);

    for (importer, imported) in
        [("shared", "kernels"), ("web", "kernels"), ("agent", "tests"), ("xtask", "kernels"), ("fuzz", "agent")]
    {
        let wrong = [package("importer", importer, &["imported"]), package("imported", imported, &[])];
        assert_eq!(wrong_edges(&wrong).len(), 1, "{importer} must not import {imported}");
    }
    assert_eq!(wrong_edges(&[package("new", "new", &[])]).len(), 1, "a new folder needs a line of its own");
    assert_eq!(wrong_edges(&[package("other", "webshop", &[])]).len(), 1, "webshop is not below web");
}

#[test]
fn must_find_a_misplaced_dependency() {
    assert_eq!(
        misplaced_dependencies(&[package("a", "agent", &["axum"]), package("k", "kernels", &["wgpu"])]),
        [""; 0]
    );
    for (folder, outside) in [("shared", "axum"), ("web", "wgpu"), ("kernels", "cudarc"), ("kernels", "nvml-wrapper")] {
        assert_eq!(misplaced_dependencies(&[package("p", folder, &[outside])]).len(), 1, "{outside} in {folder}");
    }
}

#[test]
fn must_find_a_misplaced_import() {
    for code in
        [concat!("use axum", "::Router;"), concat!("let x = wgpu", "::Limits::default();"), concat!("use ", "cudarc;")]
    {
        assert_eq!(misplaced_imports(&file("agent/src/main.rs", code)).len(), 1, "{code}");
    }
    assert_eq!(misplaced_imports(&file("agent/src/telemetry/nvml.rs", concat!("use rusqlite", "::Row;"))).len(), 1);
    let innocent = ["// axum::Router is in server", "use crate::wgpu::Device;", "use headroom_kernels::{cuda, wgpu};"];
    for code in innocent {
        assert_eq!(misplaced_imports(&file("agent/src/main.rs", code)), [""; 0], "{code}");
    }
    assert_eq!(misplaced_imports(&file("agent/src/server/ws.rs", concat!("use axum", "::Router;"))), [""; 0]);
}

#[test]
fn must_find_a_missing_module_doc() {
    assert_eq!(missing_module_doc(&file("a.rs", "//! What it is.\n")), [""; 0]);
    assert_eq!(missing_module_doc(&file("a.rs", "use std::fs;\n//! Too late.\n")).len(), 1);
}

#[test]
fn must_find_a_long_file() {
    let lines = |n: usize| "x\n".repeat(n);
    assert_eq!(too_long(&file("a.rs", &lines(LINES_MAX))), [""; 0]);
    assert_eq!(too_long(&file("a.rs", &lines(LINES_MAX + 1))).len(), 1);
    assert_eq!(too_long(&file("a.rs", &format!("{TABLE}devices.\n{}", lines(LINES_MAX)))), [""; 0]);
}

#[test]
fn must_find_bad_format() {
    let findings = |text: &str| badly_formatted(&file("a.cu", text)).len();
    let wide = format!("// {0}\n{0}\n", "x".repeat(COLUMNS_MAX));
    assert_eq!(findings(&wide), 0);
    for text in [
        "#pragma once\n",
        "// No end",
        "// Tab.\n\tint a;\n",
        "// Blank. \n",
        "// Carriage.\r\n",
        &wide.replacen("x\n", "xx\n", 1),
        &format!("{wide}{wide}").replace("x\n//", "xx\n//"),
    ] {
        assert_eq!(findings(text), 1, "{text:?}");
    }
}

#[test]
fn must_find_a_foreign_include() {
    let findings = |text: &str| foreign_includes(&file("a.cu", text)).len();
    assert_eq!(findings("// Kernel.\n#include \"device.cuh\"\n"), 0);
    for text in ["// Kernel.\n", "#include \"device.cuh\"\n#include <cuda_bf16.h>\n", "  #include \"other.cuh\"\n"] {
        assert_eq!(findings(text), 1, "{text:?}");
    }
}

#[test]
fn must_find_a_registry() {
    assert_eq!(registry_hosts(&file("a.toml", "version = \"1\"")), [""; 0]);
    assert_eq!(registry_hosts(&file("a.toml", &["https://index.crates", "io/x"].join("."))).len(), 1);
    assert_eq!(registry_hosts(&file(".npmrc", &["registry=https://registry.npmjs", "org"].join("."))).len(), 1);
}

#[test]
fn must_find_a_path_that_is_gone() {
    let markdown = "`shared/src/{gpt,gone}.rs`, `Trunk.toml` and `.ci/run`; the route `/api/runs`, `GptConfig::new`, \
                    `cargo xtask run`, `f32/f16 <T>`\n```text\nnot `looked/at`\n```\n`kernels/old/`";
    let named = paths_named(markdown);
    assert_eq!(named, ["shared/src/gpt.rs", "shared/src/gone.rs", "Trunk.toml", ".ci/run", "kernels/old/"]);
    let there = ["shared/src/gpt.rs", "Trunk.toml", ".ci/run"];
    assert_eq!(missing_paths(markdown, |path| there.contains(&path)).len(), 2);
}
