//! axe-core checks the page in light and dark, wide and narrow, fitting and failing.

use crate::{
    environment::named,
    page::{LAPTOP, PHONE, Page, tell},
};
use serde::Deserialize;
use std::fs;

/// Skipped tests are counted under this name, from which `cargo xtask test` derives that axe-core is missing.
const NAME: &str = "axe";

#[derive(Debug, Deserialize)]
struct Violation {
    id: String,
    impact: Option<String>,
    help: String,
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    html: String,
    failure_summary: Option<String>,
}

/// The colour schemes in which a page is checked in each of its languages: both in English, and the light one in others.
/// A language changes texts and not colours, and a scheme changes colours alone.
pub fn schemes_in(language: &str) -> &'static [&'static str] {
    if language == "en" { &["light", "dark"] } else { &["light"] }
}

/// Returns axe-core's serious and critical findings, as text.
pub async fn violations(page: &Page) -> Vec<String> {
    // axe-core fetches nothing, as all stylesheets are the page's own.
    let found =
        page.promise("(await axe.run(document, { resultTypes: ['violations'], preload: false })).violations").await;
    let found: Vec<Violation> = serde_json::from_value(found).expect("axe-core's report");
    let grave = |violation: &Violation| matches!(violation.impact.as_deref(), Some("serious" | "critical"));
    let words = |violation: Violation| {
        let nodes = violation.nodes.iter().map(|node| {
            format!("\n    {} {}", node.html, node.failure_summary.as_deref().unwrap_or_default().replace('\n', " "))
        });
        format!("{}: {}{}", violation.id, violation.help, nodes.collect::<String>())
    };
    found.into_iter().filter(grave).map(words).collect()
}

#[test]
fn axe_finds_nothing_serious() {
    let Some(axe) = named(NAME, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell(NAME, async |page| {
        let mut all = Vec::new();
        for (fragment, state) in
            [("1&batch_size=2&gpu=RTX%204070", "fits"), ("1&batch_size=64&bogus=1&learning_rate=x", "fails")]
        {
            page.open(fragment).await;
            page.script(&axe).await;
            page.value::<bool>("(document.querySelector('#more').open = true)").await;
            for scheme in ["light", "dark"] {
                page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
                for size in [LAPTOP, PHONE] {
                    page.resize(size).await;
                    let found = violations(page).await;
                    all.extend(found.into_iter().map(|found| format!("{state}, {scheme}, {size:?}: {found}")));
                }
            }
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
        // The check detects an input without a label and a low contrast.
        page.script(
            "document.querySelector('main').append(document.createElement('input'));
             document.querySelector('#verdict-detail').style.cssText = 'color: #777; background: #666'",
        )
        .await;
        let found = violations(page).await;
        for rule in ["label: ", "color-contrast: "] {
            assert!(found.iter().any(|found| found.starts_with(rule)), "{rule} in {found:?}");
        }
    });
}
