//! The paths and tests that ARCHITECTURE names exist.

use super::{root, sources, tidy};
use std::fs;

/// Returns paths in backticks, with `{a,b}` expanded to both. Routes, types, globs and commands are not paths.
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

/// Returns tests that ARCHITECTURE names after "Test:" or "Tests:" and that no source defines.
fn missing_tests(markdown: &str, sources: &str) -> Vec<String> {
    let named = markdown.lines().filter_map(|line| {
        let (_, tests) = line.split_once("Test: ").or_else(|| line.split_once("Tests: "))?;
        Some(tests.split('`').skip(1).step_by(2))
    });
    let is_defined = |name: &str| sources.contains(&format!("fn {name}("));
    let missing = named.flatten().filter(|name| !is_defined(name));
    missing.map(|name| format!("ARCHITECTURE.md names the test `{name}`, which does not exist")).collect()
}

#[test]
fn the_map_matches_the_territory() {
    let markdown = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert!(!paths_named(&markdown).is_empty(), "a map names paths");
    tidy(missing_paths(&markdown, |path| root().join(path).exists()));
    assert!(markdown.matches("Test").count() > 50, "invariants name tests");
    let sources: String = sources(&[".rs"]).into_iter().map(|file| file.text).collect();
    tidy(missing_tests(&markdown, &sources));
}

#[test]
fn must_find_a_path_that_is_gone() {
    let markdown = "`shared/src/{gpt,gone}.rs`, `deny.toml` and `.ci/run`; the route `/api/runs`, `GptConfig::new`, \
                    `cargo xtask run`, `f32/f16 <T>`\n```text\nnot `looked/at`\n```\n`kernels/old/`";
    let named = paths_named(markdown);
    assert_eq!(named, ["shared/src/gpt.rs", "shared/src/gone.rs", "deny.toml", ".ci/run", "kernels/old/"]);
    let there = ["shared/src/gpt.rs", "deny.toml", ".ci/run"];
    assert_eq!(missing_paths(markdown, |path| there.contains(&path)).len(), 2);
}

#[test]
fn must_find_a_test_that_is_gone() {
    let markdown =
        "- Sizes are stated once. Test: `is_there`.\n- Nothing leaks. Tests: `is_there`, `is_gone`.\n- No test.\n";
    assert_eq!(missing_tests(markdown, "fn is_there() {}\nfn is_gone_too() {}").len(), 1);
}
