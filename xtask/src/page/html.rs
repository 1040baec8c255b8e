//! The HTML of a page: its tags with `data-build`, and their replacements.
//!
//! `<link data-build="style" href="styles/base.css" />` names a style sheet, and `file` a file to copy. `program` names
//! the page's program, a binary of `headroom-web`. `worker` names a program that the page's worker loads. `preview` names
//! the image that sites show with a link to the page; its `title` describes it.

use crate::failure::{Failure, Result};
use std::ops::Range;

/// The start of a tag that the build replaces.
const START: &str = "<link data-build=\"";

/// The purpose of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A style sheet, one of those that the build joins.
    Style,
    /// A file that is copied without a change.
    File,
    /// The page's program.
    Program,
    /// The program of a worker.
    Worker,
    /// The image of links to the page.
    Preview,
}

/// A tag with `data-build`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub kind: Kind,
    /// A path relative to `web`, or the name of a program.
    pub href: String,
    /// The description of an image; empty for other tags.
    pub title: String,
    span: Range<usize>,
}

/// Names of the files that a page loads first, and its tags for previews of links.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    pub style_sheet: &'a str,
    pub script: &'a str,
    pub wasm: &'a str,
    pub meta: &'a str,
}

/// Returns the tags in their order.
pub fn tags(html: &str) -> Result<Vec<Tag>> {
    let mut tags = Vec::new();
    for (start, _) in html.match_indices(START) {
        let end = html[start..].find('>').map_or(html.len(), |found| start + found + 1);
        let text = &html[start..end];
        let tag = parse(text).map(|(kind, href, title)| Tag { kind, href, title, span: start..end });
        tags.push(tag.ok_or_else(|| {
            Failure::new(format!("cannot read the tag `{text}`")).hint(
                "`data-build` is \"style\", \"file\", \"program\", \"worker\" or \"preview\", and `href` follows it",
            )
        })?);
    }
    Ok(tags)
}

fn parse(tag: &str) -> Option<(Kind, String, String)> {
    let (kind, rest) = tag.strip_prefix(START)?.split_once('"')?;
    let (href, rest) = rest.trim_start().strip_prefix("href=\"")?.split_once('"')?;
    let title = rest.trim_start().strip_prefix("title=\"").and_then(|rest| rest.split_once('"'));
    let title = title.map_or("", |(title, _)| title);
    let kind = match kind {
        "style" => Kind::Style,
        "file" => Kind::File,
        "program" => Kind::Program,
        "worker" => Kind::Worker,
        "preview" if !title.is_empty() => Kind::Preview,
        _ => return None,
    };
    Some((kind, href.to_owned(), title.to_owned()))
}

/// Returns the page with links to its files. The joined style sheet replaces the first style sheet; the other style
/// sheets, files and workers leave no tag.
pub fn replaced(html: &str, tags: &[Tag], names: Names<'_>) -> String {
    let Names { style_sheet, script, wasm, meta } = names;
    let mut out = String::new();
    let mut at = 0;
    let mut is_styled = false;
    for Tag { kind, span, .. } in tags {
        let before = &html[at..span.start];
        at = span.end;
        match kind {
            Kind::Style if !is_styled => {
                is_styled = true;
                out.push_str(&format!("{before}<link rel=\"stylesheet\" href=\"./{style_sheet}\" />"));
            }
            Kind::Program => out.push_str(&format!(
                "{before}<script type=\"module\" src=\"boot.js\" data-js=\"./{script}\" data-wasm=\"./{wasm}\"></script>\
                 <link rel=\"modulepreload\" href=\"./{script}\" crossorigin=\"anonymous\" />\
                 <link rel=\"preload\" href=\"./{wasm}\" crossorigin=\"anonymous\" as=\"fetch\" \
                 type=\"application/wasm\" />"
            )),
            Kind::Preview => out.extend([before, meta]),
            Kind::Style | Kind::File | Kind::Worker => out.push_str(before.trim_end()),
        }
    }
    out.push_str(&html[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<head>\n<link data-build=\"preview\" href=\"p.png\" title=\"A chart\" />\n<link data-build=\"style\" href=\"a.css\" />\n\
                        <link data-build=\"style\" href=\"b.css\" />\n<link data-build=\"file\" href=\"boot.js\" />\n\
                        <link data-build=\"program\" href=\"demo\" />\n</head>";

    #[test]
    fn tags_are_listed_in_order() {
        let tags = tags(HTML).expect("tags");
        let found: Vec<_> = tags.iter().map(|tag| (tag.kind, &*tag.href)).collect();
        let expected = [
            (Kind::Preview, "p.png"),
            (Kind::Style, "a.css"),
            (Kind::Style, "b.css"),
            (Kind::File, "boot.js"),
            (Kind::Program, "demo"),
        ];
        assert_eq!(found, expected);
        assert_eq!(tags[0].title, "A chart");
    }

    #[test]
    fn links_replace_tags() {
        let names = Names { style_sheet: "s.css", script: "d.js", wasm: "d_bg.wasm", meta: "<meta />" };
        assert_eq!(
            replaced(HTML, &tags(HTML).expect("tags"), names),
            "<head>\n<meta />\n<link rel=\"stylesheet\" href=\"./s.css\" />\n\
             <script type=\"module\" src=\"boot.js\" data-js=\"./d.js\" data-wasm=\"./d_bg.wasm\"></script>\
             <link rel=\"modulepreload\" href=\"./d.js\" crossorigin=\"anonymous\" />\
             <link rel=\"preload\" href=\"./d_bg.wasm\" crossorigin=\"anonymous\" as=\"fetch\" \
             type=\"application/wasm\" />\n</head>"
        );
    }

    #[test]
    fn unknown_tags_are_refused() {
        for tag in [
            "<link data-build=\"sass\" href=\"a.scss\" />",
            "<link data-build=\"style\" rel=\"css\" />",
            "<link data-build=\"preview\" href=\"a.png\" />",
        ] {
            let error = tags(tag).expect_err("an unknown tag");
            assert!(error.to_string().contains(tag), "{error}");
        }
    }
}
