//! The pages' texts: a file a page and language, which the page names and fetches one of.

use crate::failure::{Doing, Failure, Result};
use headroom_shared::text::{LANGUAGES, Table};
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::Path,
};

/// What a file of texts begins with; the rest is its page, its language and a hash.
pub const PREFIX: &str = "text-";
/// What the sections call that worker. The page has the name in web/src/components/rig/writes.rs.
const WORKER: &str = "writes";

/// Writes a page's texts and their names into its HTML, where boot.js looks for them.
pub fn add_to(dist: &Path, page: &str) -> Result<()> {
    let path = dist.join(page);
    let html = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let mut attributes = String::new();
    for language in &LANGUAGES {
        let packed = Table::packed(language, name_of(page));
        let mut hasher = DefaultHasher::new();
        packed.hash(&mut hasher);
        let name = format!("{PREFIX}{}-{}-{:016x}.txt", name_of(page), language.code, hasher.finish());
        fs::write(dist.join(&name), packed).doing(|| format!("write {name}"))?;
        attributes.push_str(&format!(" data-text-{}=\"{name}\"", language.code));
    }
    let Some(html) = with_attributes(&html, &attributes) else {
        return Err(Failure::new(format!("dist/{page} starts no program"))
            .hint("does Trunk.toml's pattern_script still have data-wasm?"));
    };
    fs::write(&path, html).doing(|| format!("write {}", path.display()))
}

/// Writes the texts of the worker that writes in a rig's page, which it fetches itself when it is begun; without a hash in
/// their names, as its program is.
pub fn add_of_worker(dist: &Path) -> Result<()> {
    for language in &LANGUAGES {
        let name = format!("{PREFIX}{WORKER}-{}.txt", language.code);
        fs::write(dist.join(&name), Table::packed(language, WORKER)).doing(|| format!("write {name}"))?;
    }
    Ok(())
}

/// The page's name in the sections of the texts.
fn name_of(page: &str) -> &str {
    match page.trim_end_matches(".html") {
        "index" => "budget",
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
    fn the_names_stand_beside_the_program() {
        let html = r#"<script src="boot.js" data-js="a.js" data-wasm="a.wasm"></script>"#;
        let with = r#"<script src="boot.js" data-js="a.js" data-text-en="t.txt" data-wasm="a.wasm"></script>"#;
        assert_eq!(with_attributes(html, " data-text-en=\"t.txt\"").as_deref(), Some(with));
        assert_eq!(with_attributes("<p>", ""), None);
    }

    #[test]
    fn every_page_has_texts_of_its_own() {
        for page in crate::page::PAGES {
            let packed = Table::packed(&LANGUAGES[0], name_of(page));
            let all = Table::packed(&LANGUAGES[0], "");
            assert!(packed.len() > all.len(), "{page}: no section of the texts names it");
        }
    }
}
