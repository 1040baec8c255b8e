//! The pages' texts: a file per page and language, of which a page fetches one.

use crate::failure::{Failure, IoContext, Result};
use headroom_languages::packed;
use headroom_text::LANGUAGES;
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::Path,
};

/// The prefix of a text file's name. The page, the language and a hash follow.
pub const PREFIX: &str = "text-";
/// The worker's name in the text sections; the page has the same in web/src/components/rig/writes.rs.
const WORKER: &str = "writes";

/// Writes a page's text files, and their names into its HTML, where boot.js finds them.
pub fn add_to(dist: &Path, page: &str) -> Result<()> {
    let path = dist.join(page);
    let html = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let mut attributes = String::new();
    let texts: Vec<String> = LANGUAGES.iter().map(|language| packed(language, name_of(page))).collect();
    // One hash for all languages takes fewer bytes of the compressed page.
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    for (language, texts) in LANGUAGES.iter().zip(texts) {
        let name = format!("{PREFIX}{}-{}-{:016x}.txt", name_of(page), language.code, hasher.finish());
        fs::write(dist.join(&name), texts).doing(|| format!("write {name}"))?;
        attributes.push_str(&format!(" data-text-{}=\"{name}\"", language.code));
    }
    let Some(html) = with_attributes(&html, &attributes) else {
        return Err(Failure::new(format!("dist/{page} starts no program"))
            .hint("does xtask/src/page/html.rs still write data-wasm?"));
    };
    fs::write(&path, html).doing(|| format!("write {}", path.display()))
}

/// Writes the texts of the rig page's generation worker, which fetches them when it starts. Their names have no hash,
/// like that of its program.
pub fn add_of_worker(dist: &Path) -> Result<()> {
    for language in &LANGUAGES {
        let name = format!("{PREFIX}{WORKER}-{}.txt", language.code);
        fs::write(dist.join(&name), packed(language, WORKER)).doing(|| format!("write {name}"))?;
    }
    Ok(())
}

/// Returns the page's name in the text sections.
fn name_of(page: &str) -> &str {
    match page.trim_end_matches(".html") {
        "index" => "start",
        "calculator" => "budget",
        name => name,
    }
}

fn with_attributes(html: &str, attributes: &str) -> Option<String> {
    let (before, behind) = html.split_once(" data-wasm=")?;
    Some(format!("{before}{attributes} data-wasm={behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_next_to_program() {
        let html = r#"<script src="boot.js" data-js="a.js" data-wasm="a.wasm"></script>"#;
        let with = r#"<script src="boot.js" data-js="a.js" data-text-en="t.txt" data-wasm="a.wasm"></script>"#;
        assert_eq!(with_attributes(html, " data-text-en=\"t.txt\"").as_deref(), Some(with));
        assert_eq!(with_attributes("<p>", ""), None);
    }

    #[test]
    fn every_page_has_texts_of_its_own() {
        for page in crate::page::PAGES {
            let texts = packed(&LANGUAGES[0], name_of(page));
            let all = packed(&LANGUAGES[0], "");
            assert!(texts.len() > all.len(), "{page}: no section of the texts names it");
        }
    }
}
