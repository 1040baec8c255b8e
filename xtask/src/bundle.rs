//! Makes few, small files of what Trunk wrote: one style sheet, and scripts without spaces.
//!
//! A style sheet a component is good to read and slow to load: each is a request, and compresses by itself.

use crate::{
    failure::{Doing, Failure, Result},
    files,
    shell::Shell,
};
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::Path,
};

/// Puts a page's style sheets into one.
pub fn style_sheets_of(dist: &Path, page: &str) -> Result<()> {
    let path = dist.join(page);
    let html = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let sheets = style_sheets(&html);
    let mut css = String::new();
    for sheet in &sheets {
        let file = dist.join(&sheet.file);
        css.push_str(&fs::read_to_string(&file).doing(|| format!("read {}", file.display()))?);
        css.push('\n');
    }
    let mut hasher = DefaultHasher::new();
    css.hash(&mut hasher);
    let name = format!("styles-{:016x}.css", hasher.finish());
    let Some(html) = with_one_sheet(&html, &sheets, &name) else {
        return Err(Failure::new(format!("dist/{page} names no style sheet"))
            .hint(format!("does web/{page} still link styles/*.css?")));
    };
    fs::write(dist.join(&name), css).doing(|| format!("write {name}"))?;
    fs::write(&path, html).doing(|| format!("write {}", path.display()))
}

/// Takes away the style sheets that are in others now, and makes the rest and the scripts small where `esbuild` is there.
pub fn make_small(shell: &Shell, dist: &Path, has_esbuild: bool) -> Result<()> {
    let is_of = |file: &Path, ending: &str| file.extension().is_some_and(|found| found == ending);
    for file in files::files_below(dist)? {
        let is_bundle = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("styles-"));
        if is_of(&file, "css") && !is_bundle {
            fs::remove_file(&file).doing(|| format!("remove {}", file.display()))?;
        } else if has_esbuild && (is_of(&file, "css") || is_of(&file, "js")) {
            minify(shell, &file)?;
        }
    }
    Ok(())
}

fn minify(shell: &Shell, file: &Path) -> Result<()> {
    let path = file.display().to_string();
    shell
        .cmd("esbuild")
        .args([&*path, "--minify", "--allow-overwrite", "--log-level=warning"])
        .args([format!("--outfile={path}")])
        .run("the lines above say what it does not read in that file")
}

/// A `<link rel="stylesheet">`: where it stands, and its file.
#[derive(Debug, PartialEq, Eq)]
struct Sheet {
    start: usize,
    end: usize,
    file: String,
}

fn style_sheets(html: &str) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    let mut at = 0;
    while let Some(start) = html[at..].find("<link").map(|found| at + found) {
        let end = html[start..].find('>').map_or(html.len(), |found| start + found + 1);
        let tag = &html[start..end];
        let href = tag.split("href=").nth(1).and_then(|rest| rest.split(['"', '\'']).nth(1));
        if let (true, Some(href)) = (tag.contains("stylesheet"), href) {
            sheets.push(Sheet { start, end, file: href.trim_start_matches("./").to_owned() });
        }
        at = end;
    }
    sheets
}

/// The page with the first link leading to `name` and the others gone.
fn with_one_sheet(html: &str, sheets: &[Sheet], name: &str) -> Option<String> {
    let first = sheets.first()?;
    let mut out = format!("{}<link rel=\"stylesheet\" href=\"./{name}\">", &html[..first.start]);
    let mut at = first.end;
    for sheet in &sheets[1..] {
        out.push_str(html[at..sheet.start].trim_end());
        at = sheet.end;
    }
    out.push_str(&html[at..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTML: &str = "<head>\n<link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"./a-1.css\"/>\n\
                        <link rel=\"stylesheet\" href=\"./b-2.css\"/>\n</head>";

    #[test]
    fn links_become_one_in_the_place_of_the_first() {
        let sheets = style_sheets(HTML);
        let files: Vec<&str> = sheets.iter().map(|sheet| sheet.file.as_str()).collect();
        assert_eq!(files, ["a-1.css", "b-2.css"]);
        assert_eq!(
            with_one_sheet(HTML, &sheets, "c.css").as_deref(),
            Some("<head>\n<link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"./c.css\">\n</head>")
        );
    }

    #[test]
    fn a_page_without_style_sheets_is_told() {
        assert_eq!(with_one_sheet("<head></head>", &[], "c.css"), None);
    }
}
