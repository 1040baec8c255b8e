//! Words to avoid: each has a plain technical term that a reader can search for.

use super::{File, file, files, tidy};

/// Words to avoid, and the limit of their uses outside the documentation. A limit may only shrink: write the field's
/// term instead, as in docs/src/development/glossary.md.
const AVOIDED: &[(&str, usize)] = &[
    ("anew", 20),
    ("are asked", 0),
    ("as it stands", 1),
    ("cannot be meant", 0),
    ("card", 72),
    ("cards", 14),
    ("computed again", 13),
    ("for want of", 0),
    ("go on with", 4),
    ("goes on with", 0),
    ("gone on with", 1),
    ("in the place of", 7),
    ("is asked", 7),
    ("is no number", 6),
    ("is none", 15),
    ("no such", 40),
    ("nobody", 13),
    ("others hold", 2),
    ("so long ago", 0),
    ("somebody", 2),
    ("stands", 29),
    ("told", 5),
    ("want of memory", 0),
    ("what is asked for", 0),
    ("who comes", 0),
    ("who computes", 0),
    ("who has it", 0),
    ("who multiplies", 0),
    ("whoever", 1),
];

/// Whether a file's words count: text written in this project. Recorded data and generated pages do not.
fn counts_words(path: &str) -> bool {
    const ENDINGS: &[&str] = &[
        ".rs", ".md", ".css", ".html", ".hbs", ".js", ".toml", ".service", ".sh", ".py", ".cu", ".cuh", ".wgsl",
        ".sql", ".snap", "/en.txt",
    ];
    const ELSEWHERE: &[&str] = &[
        "tests/golden/",
        "fuzz/corpus/",
        "fuzz/dictionaries/",
        "vendor/",
        "docs/src/reference/cli.md",
        "docs/src/reference/exit-codes.md",
        "docs/src/reference/metrics.md",
        "tests/tests/tidy/words.rs",
    ];
    ENDINGS.iter().any(|ending| path.ends_with(ending)) && !ELSEWHERE.iter().any(|start| path.starts_with(start))
}

fn is_documentation(path: &str) -> bool {
    path == "README.md" || path == "ARCHITECTURE.md" || path.starts_with("docs/")
}

/// Number of occurrences of whole words in a counted text.
fn uses(text: &str, words: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let is_use = |(start, found): &(usize, &str)| {
        !text[..*start].ends_with(is_part) && !text[start + found.len()..].starts_with(is_part)
    };
    text.match_indices(words).filter(is_use).count()
}

/// A text prepared for counting: lower case and single blanks; for the documentation's Markdown, without code.
fn counted(file: &File) -> String {
    let text = if file.path.ends_with(".md") && is_documentation(&file.path) {
        let prose = file.text.split("```").step_by(2).collect::<String>();
        prose.split('`').step_by(2).collect()
    } else {
        file.text.clone()
    };
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words above their limit in `avoided`, and any of them in the documentation.
fn avoided_words(files: &[File], avoided: &[(&str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut n_uses = vec![0; avoided.len()];
    for file in files.iter().filter(|file| counts_words(&file.path)) {
        let text = counted(file);
        for ((words, _), n_uses) in avoided.iter().zip(&mut n_uses) {
            let n = uses(&text, words);
            if !is_documentation(&file.path) {
                *n_uses += n;
            } else if n > 0 {
                findings.push(format!("{} has {words:?}, a word to avoid", file.path));
            }
        }
    }
    for ((words, n_max), n_uses) in avoided.iter().zip(n_uses).filter(|((_, n_max), n_uses)| n_uses > n_max) {
        findings.push(format!("{words:?} is used {n_uses} times, over {n_max}: use the field's term in new text"));
    }
    findings
}

#[test]
fn text_uses_the_fields_terms() {
    let files = files();
    assert!(files.iter().any(|file| file.path == "docs/src/guide/plan.md"), "the walk finds the documentation");
    tidy(avoided_words(&files, AVOIDED));
}

#[test]
fn must_find_avoided_words() {
    let avoided = [("for want of", 1), ("nobody", 0)];
    let findings = |path: &str, text: &str| avoided_words(&[file(path, text)], &avoided).len();
    assert_eq!(findings("agent/src/a.rs", "// For want\n of memory; is_nobody, nobodys"), 0);
    assert_eq!(findings("agent/src/a.rs", "// For want of memory and for want of time. Nobody."), 2);
    assert_eq!(findings("docs/src/a.md", "For want of memory"), 1, "none in the documentation");
    assert_eq!(findings("README.md", "Call `nobody`.\n\n```sh\nnobody\n```\n"), 0, "code is not prose");
    assert_eq!(findings("tests/golden/a.md", "Nobody, nobody"), 0, "recorded elsewhere");
}
