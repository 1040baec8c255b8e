//! Builds the documentation, `docs`, into `dist/docs`: mdBook's pages in Headroom's own template, without mdBook's
//! scripts.
//!
//! The server's Content-Security-Policy permits neither inline scripts nor inline styles. A page with one fails the
//! build.

use crate::{
    compress::{self, Effort},
    failure::{Failure, IoContext, Result},
    files,
    shell::{Shell, note, step},
    tools,
};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// Pages of mdBook that no link refers to.
const NOT_PAGES: &[&str] = &["404.html", "toc.html"];
/// Start of the table of contents in the template.
const CONTENTS: &str = "<nav id=\"contents\"";

/// Installs mdBook if it is missing, and builds the documentation if one of its sources changed.
pub fn ensure(shell: &Shell, effort: Effort) -> Result<()> {
    tools::ensure_mdbook(shell)?;
    let book = shell.root.join("docs");
    let mut inputs = files::files_below(&book)?;
    inputs.extend(["ARCHITECTURE.md", "xtask/src/docs.rs", "xtask/src/pins.rs"].map(|name| shell.root.join(name)));
    let digest = files::digest(&inputs, &format!("{effort:?}"))?;
    let stamp = shell.target.join("xtask/docs.stamp");
    let to = shell.root.join("dist/docs");
    if files::is_stamped(&stamp, &digest) && to.join("index.html.br").is_file() {
        note("the documentation in dist/docs is up to date");
        return Ok(());
    }
    let built = shell.target.join("xtask/docs");
    step("build the documentation", "mdBook, then a compressed copy of each page", || {
        files::remake(&built)?;
        let command = shell.cmd("mdbook").args(["build", "--dest-dir", &built.display().to_string()]).dir(&book);
        let (output, success) = command.capture()?;
        if !success || has_warning(&output) {
            return Err(Failure::new(format!("mdBook reports problems in docs:\n{output}")));
        }
        files::remake(&to)?;
        let is_output = |file: &&PathBuf| !NOT_PAGES.iter().any(|name| built.join(name) == **file);
        let all = files::files_below(&built)?;
        for file in all.iter().filter(is_output).filter(|file| is_published(&built, file)) {
            publish(&built, file, &to)?;
        }
        compress::folder(&to, effort)
    })?;
    files::write_stamp(&stamp, &digest)
}

/// Returns whether a line begins with a level above INFO, as in ` WARN include failed`.
fn has_warning(output: &str) -> bool {
    output.lines().any(|line| ["WARN", "ERROR"].iter().any(|level| line.trim_start().starts_with(level)))
}

/// Returns whether a file is a page, Headroom's style sheet or a picture. Scripts and styles of mdBook's template are
/// omitted.
fn is_published(built: &Path, file: &Path) -> bool {
    let is_page = file.extension() == Some(OsStr::new("html"));
    is_page || ["theme", "images"].iter().any(|folder| file.starts_with(built.join(folder)))
}

fn publish(built: &Path, file: &Path, to: &Path) -> Result<()> {
    let name = file.strip_prefix(built).unwrap_or(file);
    let target = to.join(name);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
    }
    if file.extension() != Some(OsStr::new("html")) {
        return fs::copy(file, &target).map(drop).doing(|| format!("copy {}", file.display()));
    }
    let html = fs::read_to_string(file).doing(|| format!("read {}", file.display()))?;
    let name = name.display().to_string().replace('\\', "/");
    if let Some(inline) = inline_code(&html) {
        return Err(Failure::new(format!("docs: {name} has `{inline}`, which the server's policy forbids"))
            .hint("docs/theme has the template; a table's columns have no alignment"));
    }
    let html = with_focusable_blocks(&with_contents(&html, &name)?);
    fs::write(&target, html).doing(|| format!("write {}", target.display()))
}

/// Returns the first inline script or style, which the server's policy blocks.
fn inline_code(html: &str) -> Option<&'static str> {
    ["<script", "<style", " style=\"", " onclick=\"", "javascript:"].into_iter().find(|code| html.contains(code))
}

/// Makes the links of the table of contents relative to the page; mdBook writes them relative to the root. Marks the
/// link to the page itself.
fn with_contents(html: &str, name: &str) -> Result<String> {
    let Some(at) = html.find(CONTENTS) else {
        return Err(Failure::new(format!("docs: {name} has no table of contents"))
            .hint("docs/theme/index.hbs has it in <nav id=\"contents\">"));
    };
    let (page, contents) = html.split_at(at);
    let up = "../".repeat(name.matches('/').count());
    let contents = contents
        .replace("href=\"", &format!("href=\"{up}"))
        .replace(&format!("href=\"{up}{name}\""), &format!("href=\"{up}{name}\" aria-current=\"page\""));
    Ok(format!("{page}{contents}"))
}

/// Makes blocks that may scroll sideways focusable by keyboard.
fn with_focusable_blocks(html: &str) -> String {
    html.replace("<pre>", "<pre tabindex=\"0\">")
        .replace("<div class=\"table-wrapper\">", "<div class=\"table-wrapper\" tabindex=\"0\">")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_link_from_the_page() {
        let html =
            "<a href=\"b.html\"></a><nav id=\"contents\"><a href=\"index.html\"></a><a href=\"guide/a.html\"></a>";
        assert_eq!(
            with_contents(html, "guide/a.html").expect("a page"),
            "<a href=\"b.html\"></a><nav id=\"contents\"><a href=\"../index.html\"></a>\
             <a href=\"../guide/a.html\" aria-current=\"page\"></a>"
        );
        assert_eq!(
            with_contents("<nav id=\"contents\"><a href=\"index.html\">", "index.html").expect("a page"),
            "<nav id=\"contents\"><a href=\"index.html\" aria-current=\"page\">"
        );
        with_contents("<main></main>", "a.html").expect_err("no contents");
    }

    #[test]
    fn scrolling_blocks_are_focusable() {
        assert_eq!(
            with_focusable_blocks("<pre><code>x</code></pre><div class=\"table-wrapper\"><table>"),
            "<pre tabindex=\"0\"><code>x</code></pre><div class=\"table-wrapper\" tabindex=\"0\"><table>"
        );
    }

    #[test]
    fn inline_code_is_found() {
        assert_eq!(inline_code("<p class=\"a\">&lt;script&gt;</p>"), None);
        for html in ["<script>x</script>", "<td style=\"text-align: left\">", "<style>a{}</style>"] {
            assert!(inline_code(html).is_some(), "{html}");
        }
    }

    #[test]
    fn warnings_are_found() {
        assert!(!has_warning(" INFO Book building has started\n INFO Running the html backend"));
        assert!(has_warning(" INFO Book building has started\n WARN unresolved include"));
        assert!(has_warning("ERROR no such file"));
    }

    #[test]
    fn only_pages_styles_and_pictures_are_published() {
        let built = Path::new("/b");
        for (name, published) in [
            ("index.html", true),
            ("guide/plan.html", true),
            ("theme/book.css", true),
            ("images/calculator.png", true),
            ("book.js", false),
            ("css/chrome.css", false),
        ] {
            assert_eq!(is_published(built, &built.join(name)), published, "{name}");
        }
    }
}
