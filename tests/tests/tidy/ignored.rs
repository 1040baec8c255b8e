//! No test is ignored. The attribute marks the body of a child process, which its test starts.

use super::{File, sources, tidy};

const REASON: &str = "the child process of ";

/// Returns the attributes that name no test of the same file.
fn ignored_tests(file: &File) -> Vec<String> {
    let attributes = file.text.split("#[ignore").skip(1).filter_map(|rest| rest.split(']').next());
    let names_parent = |attribute: &str| {
        let reason = attribute.split('"').nth(1).and_then(|reason| reason.strip_prefix(REASON));
        reason.is_some_and(|test| file.text.contains(&format!("fn {test}(")))
    };
    let wrong = attributes.filter(|attribute| !names_parent(attribute));
    wrong.map(|attribute| format!("{}: #[ignore{attribute}] does not name a test of this file", file.path)).collect()
}

#[test]
fn only_child_processes_are_ignored() {
    let is_rule = |file: &File| file.path.ends_with("tidy/ignored.rs") || file.path.ends_with("harness/src/lib.rs");
    let files = sources(&[".rs"]);
    assert!(files.iter().any(|file| file.text.contains(REASON)), "the rule finds an attribute");
    tidy(files.iter().filter(|file| !is_rule(file)).flat_map(ignored_tests));
}

#[test]
fn must_find_ignored_tests() {
    let file =
        |attribute: &str| File { path: "a.rs".into(), text: format!("fn kill() {{}}\n{attribute}\nfn child() {{}}") };
    assert_eq!(ignored_tests(&file("#[ignore = \"the child process of kill\"]")), [""; 0]);
    for attribute in ["#[ignore]", "#[ignore = \"slow\"]", "#[ignore = \"the child process of gone\"]"] {
        assert_eq!(ignored_tests(&file(attribute)).len(), 1, "{attribute}");
    }
}
