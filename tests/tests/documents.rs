//! Tests of README, ARCHITECTURE and the book in `docs`: links and paths have targets, and README stays one page.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// README's limits: its lines, and the mean number of words per sentence.
const README_LINES_MAX: usize = 150;
const README_SENTENCE_WORDS_MAX: usize = 18;

/// Top-level directories. A path in backticks that begins with one names a file of the repository.
const FOLDERS: &[&str] = &["agent/", "docs/", "fuzz/", "kernels/", "shared/", "tests/", "vendor/", "web/", "xtask/"];

/// The parts of a Markdown file that the rules check.
#[derive(Debug, Default)]
struct Document {
    links: Vec<String>,
    anchors: BTreeSet<String>,
    /// Text in backticks outside of code blocks.
    code: Vec<String>,
    /// Paragraphs and list items as plain text, code as one word.
    prose: Vec<String>,
}

fn parsed(markdown: &str) -> Document {
    let mut document = Document::default();
    let mut heading = None::<String>;
    let mut paragraph = String::new();
    let (mut in_block, mut in_table) = (false, false);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let id = anchor(&heading.take().unwrap_or_default());
                let unique = (0..).map(|n| if n == 0 { id.clone() } else { format!("{id}-{n}") });
                document.anchors.extend(unique.into_iter().find(|id| !document.anchors.contains(id)));
            }
            Event::Start(Tag::CodeBlock(_)) => in_block = true,
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Start(Tag::Table(_)) => in_table = true,
            Event::End(TagEnd::Table) => in_table = false,
            Event::End(TagEnd::Paragraph | TagEnd::Item) if !paragraph.trim().is_empty() => {
                document.prose.push(std::mem::take(&mut paragraph));
            }
            Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                } else if !in_table {
                    paragraph.push_str("code");
                }
                document.code.push(text.into_string());
            }
            Event::Text(text) => match &mut heading {
                Some(heading) => heading.push_str(&text),
                None if in_block || in_table => {}
                None => paragraph.push_str(&text),
            },
            Event::SoftBreak | Event::HardBreak => paragraph.push(' '),
            _ => {}
        }
    }
    document
}

/// Returns a heading's identifier, as mdBook generates it.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().to_lowercase().chars().filter_map(kept).collect()
}

/// Resolves `to` relative to the file `from`. The result is relative to the repository and has no `..`.
fn resolved(from: &str, to: &str) -> String {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let mut parts: Vec<String> = Vec::new();
    for component in folder.join(to).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Finds links of `documents` without a target. Documents are keyed by path. Web links are not opened.
fn dead_links(documents: &BTreeMap<String, Document>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, document) in documents {
        for link in document.links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, id)| (file, Some(id)));
            let target = if file.is_empty() { path.clone() } else { resolved(path, file) };
            if !exists(&target) {
                findings.push(format!("{path}: {link} does not exist"));
            } else if let Some(anchor) = anchor
                && documents.get(&target).is_none_or(|target| !target.anchors.contains(anchor))
            {
                findings.push(format!("{path}: {link}: {target} has no heading for it"));
            }
        }
    }
    findings
}

/// Finds paths of the repository, in backticks, that do not exist. A `*` or a placeholder in capitals marks a pattern.
fn dead_paths(documents: &BTreeMap<String, Document>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, document) in documents {
        let is_path = |code: &&String| {
            FOLDERS.iter().any(|folder| code.starts_with(folder)) && !code.contains(['*', '{', ' ', '…', '<'])
        };
        for code in document.code.iter().filter(is_path).filter(|code| !exists(code)) {
            findings.push(format!("{path} names `{code}`, which does not exist"));
        }
    }
    findings
}

/// Finds pages that are missing in the table of contents, and entries without a page.
fn unlisted_pages(summary: &Document, pages: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<String> = summary.links.iter().map(|link| resolved("docs/src/SUMMARY.md", link)).collect();
    pages.symmetric_difference(&listed).map(|page| format!("{page} is only one of listed and present")).collect()
}

fn mean_sentence_words(document: &Document) -> f64 {
    let ends = |c: char| matches!(c, '.' | ':' | '?' | '!');
    let sentences = document.prose.iter().flat_map(|text| text.split_inclusive(' ').collect::<Vec<_>>().into_iter());
    let words: Vec<&str> = sentences.map(str::trim).filter(|word| !word.is_empty()).collect();
    let n_ends = words.iter().filter(|word| word.ends_with(ends)).count().max(1);
    words.len() as f64 / n_ends as f64
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a directory of the workspace")
}

fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files.extend(markdown_below(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") {
            files.push(path);
        }
    }
    files
}

/// Reads README, ARCHITECTURE and every page of the book, keyed by path.
fn documents() -> BTreeMap<String, Document> {
    let mut files = markdown_below(&root().join("docs"));
    assert!(files.len() > 30, "the walk finds the book");
    files.extend(["README.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    let relative = |path: &Path| path.strip_prefix(root()).expect("below").display().to_string().replace('\\', "/");
    let document = |path: &PathBuf| parsed(&fs::read_to_string(path).expect("text"));
    files.iter().map(|path| (relative(path), document(path))).collect()
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn links_lead_to_files_and_headings() {
    let documents = documents();
    assert!(documents.values().map(|document| document.links.len()).sum::<usize>() > 100, "links are found");
    assert_none(&dead_links(&documents, exists));
}

#[test]
fn paths_name_files_of_the_repository() {
    let documents = documents();
    assert!(documents.values().any(|document| document.code.iter().any(|code| code == "shared/planner/src/advice.rs")));
    assert_none(&dead_paths(&documents, exists));
}

#[test]
fn summary_lists_every_page() {
    let documents = documents();
    let pages = documents.keys().filter(|path| path.starts_with("docs/src/") && !path.ends_with("/SUMMARY.md"));
    assert_none(&unlisted_pages(&documents["docs/src/SUMMARY.md"], &pages.cloned().collect()));
}

#[test]
fn readme_is_one_page_of_short_sentences() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README");
    let n_lines = readme.lines().count();
    assert!(n_lines <= README_LINES_MAX, "README has {n_lines} lines");
    let words = mean_sentence_words(&parsed(&readme));
    assert!(words <= README_SENTENCE_WORDS_MAX as f64, "README's mean sentence has {words:.1} words");
}

// Tests that each rule finds its violation.

fn some(texts: &[(&str, &str)]) -> BTreeMap<String, Document> {
    texts.iter().map(|(path, text)| ((*path).to_owned(), parsed(text))).collect()
}

#[test]
fn must_find_a_dead_link() {
    let guide =
        ("docs/src/guide/a.md", "# `plan` & more\n\n[x](../b.md#end) [y](#plan--more) [z](https://x.example/a)\n");
    let there = |path: &str| path.starts_with("docs/src/");
    assert_none(&dead_links(&some(&[guide, ("docs/src/b.md", "## End\n")]), there));
    assert_eq!(
        dead_links(&some(&[guide, ("docs/src/b.md", "## Start\n")]), there).len(),
        1,
        "the heading does not exist"
    );
    assert_eq!(dead_links(&some(&[("README.md", "![x](docs/no.png)")]), |_| false).len(), 1, "the file does not exist");
    assert_none(&dead_links(&some(&[("README.md", "`[x](no.md)`\n\n```text\n[x](no.md)\n```\n")]), |_| false));
}

#[test]
fn must_find_a_dead_path() {
    let text = "`shared/src/gone.rs`, `shared/src/*.rs`, `config/train_gpt2.py`\n\n| a |\n| --- |\n| `web/gone` |\n";
    assert_eq!(dead_paths(&some(&[("README.md", text)]), |_| false).len(), 2);
}

#[test]
fn must_find_an_unlisted_page() {
    let summary = parsed("- [A](a.md)\n- [B](guide/b.md)\n");
    let pages = |names: &[&str]| names.iter().map(|name| format!("docs/src/{name}")).collect();
    assert_none(&unlisted_pages(&summary, &pages(&["a.md", "guide/b.md"])));
    assert_eq!(unlisted_pages(&summary, &pages(&["a.md", "guide/c.md"])).len(), 2);
}

#[test]
fn mean_sentence_counts_prose_alone() {
    let text = "# Six words in a long heading\n\nOne two three. One.\n\n```text\nnot one word of this\n```\n\n- one `two x` three.\n";
    let words = mean_sentence_words(&parsed(text));
    assert!((words - 7.0 / 3.0).abs() < 1e-9, "{words}");
}
