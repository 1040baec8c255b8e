//! Packages import each other as the table of layers permits.

use super::{Package, package, packages, tidy};

/// Permitted dependencies between folders. The longest matching folder applies. Tests may import everything.
const EDGES: &[(&str, &[&str])] = &[
    ("shared/text", &[]),
    ("shared/languages", &["shared/text"]),
    ("shared/planner", &["shared/text", "shared/languages"]),
    ("shared/tokenizer", &["shared/text", "shared/languages"]),
    ("shared/protocol", &["shared/text", "shared/languages", "shared/planner"]),
    ("kernels", &["shared/text", "shared/languages", "shared/planner", "shared/tokenizer"]),
    ("kernels/emulator", &[]),
    ("web", &["shared/text", "shared/languages", "shared/planner", "shared/protocol"]),
    (
        "web/demo",
        &["shared/text", "shared/languages", "shared/planner", "shared/tokenizer", "shared/protocol", "kernels"],
    ),
    (
        "agent/core",
        &[
            "shared/text",
            "shared/languages",
            "shared/planner",
            "shared/protocol",
            "tests/fake_clock",
            "tests/fake_nvml",
            "tests/harness",
        ],
    ),
    (
        "agent/train",
        &[
            "agent/core",
            "shared/text",
            "shared/languages",
            "shared/planner",
            "shared/tokenizer",
            "shared/protocol",
            "kernels",
            "tests/harness",
        ],
    ),
    (
        "agent/watch",
        &["agent/core", "agent/train", "shared/text", "shared/languages", "shared/planner", "shared/protocol"],
    ),
    (
        "agent/server",
        &[
            "agent/core",
            "agent/train",
            "agent/watch",
            "shared/text",
            "shared/languages",
            "shared/planner",
            "shared/tokenizer",
            "shared/protocol",
            "kernels",
            "tests/harness",
        ],
    ),
    (
        "agent",
        &[
            "agent/core",
            "agent/train",
            "agent/watch",
            "agent/server",
            "shared/text",
            "shared/languages",
            "shared/planner",
            "shared/tokenizer",
            "shared/protocol",
            "kernels",
            "tests/fake_clock",
            "tests/fake_cuda",
            "tests/fake_nvml",
            "tests/harness",
        ],
    ),
    (
        "tests",
        &[
            "shared/text",
            "shared/languages",
            "shared/planner",
            "shared/tokenizer",
            "shared/protocol",
            "kernels",
            "web",
            "web/demo",
            "agent",
            "tests",
            "tests/fake_cuda",
            "tests/fake_nvml",
            "tests/harness",
        ],
    ),
    ("tests/built_library", &[]),
    (
        "tests/fake_cuda",
        &["shared/languages", "shared/planner", "kernels", "kernels/emulator", "tests/ptx", "tests/built_library"],
    ),
    ("tests/fake_clock", &["tests/built_library"]),
    ("tests/ptx", &[]),
    ("tests/fake_nvml", &["tests/built_library"]),
    ("tests/harness", &[]),
    ("xtask", &["shared/text", "shared/languages", "shared/planner", "shared/protocol"]),
    ("fuzz", &["shared/text", "shared/languages", "shared/planner", "shared/tokenizer", "shared/protocol", "kernels"]),
];

/// The package with the wording of texts, and the layers whose programs contain it. Elsewhere only tests and programs
/// outside of WebAssembly may depend on it, so that a changed wording recompiles neither the planner nor a page.
const WORDING: (&str, &[&str]) = ("headroom-languages", &["agent", "tests", "xtask", "fuzz"]);

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

/// Returns the row of the longest folder in [`EDGES`] that contains a folder.
pub(super) fn layer(folder: &str) -> Option<(&'static str, &'static [&'static str])> {
    let fits = |layer: &str| folder == layer || folder.strip_prefix(layer).is_some_and(|rest| rest.starts_with('/'));
    EDGES.iter().filter(|(layer, _)| fits(layer)).max_by_key(|(layer, _)| layer.len()).copied()
}

fn misplaced_wording(packages: &[Package]) -> Vec<String> {
    let (wording, layers) = WORDING;
    let has = packages.iter().filter(|package| package.built_from.iter().any(|name| name == wording));
    has.filter(|package| !layer(&package.folder).is_some_and(|(layer, _)| layers.contains(&layer)))
        .map(|package| format!("{} contains the wording of texts, which belongs to {layers:?}", package.folder))
        .collect()
}

#[test]
fn our_crates_import_one_way() {
    tidy(wrong_edges(&packages()));
}

#[test]
fn wording_is_only_in_programs_that_show_it() {
    let packages = packages();
    assert!(packages.iter().any(|package| package.name == WORDING.0), "{} is a package", WORDING.0);
    tidy(misplaced_wording(&packages));
}

#[test]
fn must_find_a_wrong_edge() {
    let planner = package("headroom-planner", "shared/planner", &["serde"]);
    let kernels = package("headroom-kernels", "kernels", &["headroom-planner"]);
    let demo = package("headroom-demo", "web/demo", &["headroom-kernels"]);
    assert_eq!(wrong_edges(&[planner, kernels, demo]), [""; 0]);

    for (importer, imported) in [
        ("shared/planner", "shared/protocol"),
        ("shared/text", "shared/planner"),
        ("kernels", "shared/protocol"),
        ("web", "kernels"),
        ("agent", "tests"),
        ("agent/core", "agent"),
        ("agent/core", "agent/train"),
        ("agent/train", "agent"),
        ("agent/watch", "agent/server"),
        ("agent/server", "agent"),
        ("xtask", "kernels"),
        ("fuzz", "agent"),
    ] {
        let wrong = [package("importer", importer, &["imported"]), package("imported", imported, &[])];
        assert_eq!(wrong_edges(&wrong).len(), 1, "{importer} must not import {imported}");
    }
    assert_eq!(wrong_edges(&[package("new", "new", &[])]).len(), 1, "a new folder needs a line of its own");
    assert_eq!(wrong_edges(&[package("other", "webshop", &[])]).len(), 1, "webshop is not below web");
}

#[test]
fn must_find_misplaced_wording() {
    let wording = &[WORDING.0];
    assert_eq!(misplaced_wording(&[package("a", "agent", wording), package("x", "xtask", wording)]), [""; 0]);
    for folder in ["shared/planner", "shared/protocol", "kernels", "web", "web/demo"] {
        assert_eq!(misplaced_wording(&[package("p", folder, wording)]).len(), 1, "{folder}");
    }
    let mut tested = package("p", "shared/planner", wording);
    tested.built_from.clear();
    assert_eq!(misplaced_wording(&[tested]), [""; 0], "tests read wording");
}
