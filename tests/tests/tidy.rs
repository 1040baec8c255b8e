//! House rules that a compiler does not check. Each rule is a function from inputs to findings. Each rule has a test
//! case that must produce a finding, so that a rule cannot stop working unnoticed.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/commits.rs"]
mod commits;
#[path = "tidy/ignored.rs"]
mod ignored;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/map.rs"]
mod map;
#[path = "tidy/words.rs"]
mod words;

use layers::layer;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// External crates that only one place may use: the package's name, the folder of the packages that may depend on it,
/// and the path prefixes that may name it.
const KEPT_APART: &[(&str, &[&str], &[&str])] = &[
    ("axum", &["agent/server"], &["agent/server/"]),
    ("wgpu", &["kernels", "web/demo"], &["kernels/src/wgpu", "kernels/tests/", "kernels/benches/", "web/demo/"]),
    // Its functions return driver codes as a Rust enum. A code that only a newer driver has is then undefined behavior.
    ("cudarc", &[], &[]),
    ("rusqlite", &["agent/core", "agent"], &["agent/core/src/store", "agent/tests/"]),
    ("tiktoken-rs", &["agent/train"], &["agent/train/src/data/tokenizer.rs"]),
    ("libfuzzer-sys", &["fuzz"], &["fuzz/"]),
    ("nvml-wrapper", &["agent/core"], &["agent/core/src/telemetry"]),
];

/// Folders of build outputs and downloads.
const NOT_OURS: &[&str] = &["target", "dist", "node_modules", ".git", ".tools", ".scratch"];
/// A longer file usually holds a second idea.
const LINES_MAX: usize = 500;
/// The first line that marks a file as a table. A table may have any length.
const TABLE: &str = "//! Table of ";

/// The parts of a workspace package that the rules check.
#[derive(Debug, Clone)]
struct Package {
    name: String,
    /// Relative to the workspace, with forward slashes.
    folder: String,
    /// Dependencies of every kind, as a test must not depend on a higher layer either.
    dependencies: Vec<String>,
    /// Dependencies of the package itself on every platform.
    built_from: Vec<String>,
}

/// One file of the repository.
#[derive(Debug, Clone)]
struct File {
    /// Relative to the workspace, with forward slashes.
    path: String,
    text: String,
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

/// Returns whether code, outside comments, has a path that begins with the crate. `ours::wgpu::` is another module of
/// that name.
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

/// Returns code blocks of documentation that are not text. Documentation tests are not run: an example is a test of its
/// own.
fn untested_examples(file: &File) -> Vec<String> {
    let is_doc = |line: &str| line.starts_with("//!") || line.starts_with("///");
    let mut is_inside = false;
    let mut findings = Vec::new();
    for (idx, line) in file.text.lines().map(str::trim_start).enumerate() {
        let fence = is_doc(line).then(|| line[3..].trim().strip_prefix("```")).flatten();
        if let Some(language) = fence {
            if !is_inside && language != "text" {
                findings.push(format!("{}:{} begins a code block that is not ```text", file.path, idx + 1));
            }
            is_inside = !is_inside;
        }
    }
    findings
}

fn too_long(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines <= LINES_MAX || file.text.starts_with(TABLE) {
        return vec![];
    }
    vec![format!("{} has {lines} lines, over {LINES_MAX}; a table begins with `{TABLE}`", file.path)]
}

/// Suffixes of C++ and CUDA C++ files, which no formatter checks.
const CPP: &[&str] = &[".cu", ".cuh", ".h", ".cpp"];
/// rustfmt's limit. In a comment only the words count, as in rustfmt.
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

/// A kernel consists of its file and of `device.cuh`, and the hash of its PTX covers only these two.
fn foreign_includes(file: &File) -> Vec<String> {
    let includes: Vec<&str> = file.text.lines().filter(|line| line.trim_start().starts_with("#include")).collect();
    if includes == ["#include \"device.cuh\""] {
        return vec![];
    }
    vec![format!("{} includes device.cuh and nothing else: {includes:?}", file.path)]
}

/// Finds hosts of package registries and mirrors. Such hosts belong in the user's own configuration.
fn registry_hosts(file: &File) -> Vec<String> {
    // Each is in two halves, so that this file has no finding.
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

// The rules applied to this repository.

/// Finds texts of the table that no source uses. A used text is a constant or a function of its name.
fn texts_not_said(table: &str, sources: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = sources.split(|c| !is_part(c)).collect();
    let entries = table.lines().filter(|line| !line.starts_with(['#', '['])).filter_map(|line| line.split_once(" = "));
    let names = entries.map(|(head, _)| match head.split_once('(') {
        Some((name, _)) => name.to_owned(),
        None => head.to_uppercase(),
    });
    // web/boot.js shows these, when a program or a script does not load.
    let of_boot = ["COULD_NOT_START", "PART_NOT_LOADED"];
    names.filter(|name| !of_boot.contains(&name.as_str()) && !words.contains(&**name)).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a directory of the workspace")
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string().replace('\\', "/")
}

/// The workspaces' manifests. `fuzz` is a workspace of its own.
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
            built_from: package["dependencies"]
                .as_array()
                .expect("a list")
                .iter()
                .filter(|d| d["kind"] != "dev" && d["target"].is_null())
                .map(|d| text(&d["name"]))
                .collect(),
        })
        .collect()
}

/// Every text file of the repository.
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
    assert!(files.iter().any(|file| file.path == "shared/planner/src/lib.rs"), "the walk finds the sources");
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
fn documentation_has_no_untested_example() {
    tidy(sources(&[".rs"]).iter().flat_map(untested_examples));
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
    let table = fs::read_to_string(root().join("shared/languages/en.txt")).expect("the table of texts");
    let sources: String = sources(&["rs"])
        .into_iter()
        .filter(|file| !file.path.contains("languages/src/tests"))
        .map(|file| file.text)
        .collect();
    tidy(
        texts_not_said(&table, &sources)
            .into_iter()
            .map(|name| format!("shared/languages/en.txt: nothing says {name}")),
    );
}

#[test]
fn must_find_a_text_that_nothing_says() {
    let table = "[all]\nfits(left) = Fits: {left}\nname = Headroom\ngone = x\ngone_too(n) = {n}\n";
    assert_eq!(texts_not_said(table, "text::fits(1); t(text::NAME); NOT_GONE gone"), ["GONE", "gone_too"]);
}

#[test]
fn no_registry_is_named() {
    // Tools write lock files.
    let written_by_hand = |file: &File| !file.path.ends_with("Cargo.lock") && !file.path.ends_with("package-lock.json");
    tidy(files().into_iter().filter(written_by_hand).flat_map(|file| registry_hosts(&file)));
}

// Tests that each rule finds its violation.

fn package(name: &str, folder: &str, dependencies: &[&str]) -> Package {
    Package {
        name: name.into(),
        folder: folder.into(),
        dependencies: dependencies.iter().map(|d| (*d).into()).collect(),
        built_from: dependencies.iter().map(|d| (*d).into()).collect(),
    }
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

#[test]
fn must_find_a_misplaced_dependency() {
    assert_eq!(
        misplaced_dependencies(&[package("s", "agent/server", &["axum"]), package("k", "kernels", &["wgpu"])]),
        [""; 0]
    );
    for (folder, outside) in [
        ("shared/planner", "axum"),
        ("agent", "axum"),
        ("web", "wgpu"),
        ("kernels", "cudarc"),
        ("kernels", "nvml-wrapper"),
    ] {
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
    assert_eq!(
        misplaced_imports(&file("agent/core/src/telemetry/nvml.rs", concat!("use rusqlite", "::Row;"))).len(),
        1
    );
    let innocent = ["// axum::Router is in server", "use crate::wgpu::Device;", "use headroom_kernels::{cuda, wgpu};"];
    for code in innocent {
        assert_eq!(misplaced_imports(&file("agent/src/main.rs", code)), [""; 0], "{code}");
    }
    assert_eq!(misplaced_imports(&file("agent/server/src/ws.rs", concat!("use axum", "::Router;"))), [""; 0]);
}

#[test]
fn must_find_a_missing_module_doc() {
    assert_eq!(missing_module_doc(&file("a.rs", "//! What it is.\n")), [""; 0]);
    assert_eq!(missing_module_doc(&file("a.rs", "use std::fs;\n//! Too late.\n")).len(), 1);
}

#[test]
fn must_find_an_untested_example() {
    let example =
        |fence: &str| file("a.rs", &format!("/// Adds.\n///\n/// ```{fence}\n/// add(1, 2)\n/// ```\nfn add() {{}}\n"));
    assert_eq!(untested_examples(&example("text")), [""; 0]);
    assert_eq!(untested_examples(&example("")), ["a.rs:3 begins a code block that is not ```text"]);
    assert_eq!(untested_examples(&example("rust")).len(), 1);
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
