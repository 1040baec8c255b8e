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

/// A selection of axe-core's rules. Those of colours take four fifths of its time.
#[derive(Debug, Clone, Copy)]
pub enum Rules {
    All,
    Colors,
    AllButColors,
}

impl Rules {
    /// Returns the options of axe-core that select the rules. The third rule of colours, `color-contrast-enhanced`, is
    /// off by default.
    fn options(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Colors => "runOnly: ['color-contrast', 'link-in-text-block'],",
            Self::AllButColors => {
                "rules: { 'color-contrast': { enabled: false }, 'link-in-text-block': { enabled: false } },"
            }
        }
    }
}

/// The colour schemes, and the rules to check in each. A scheme changes colours alone: the style sheets have
/// `light-dark()` and no `prefers-color-scheme`.
pub const SCHEMES: [(&str, Rules); 2] = [("light", Rules::All), ("dark", Rules::Colors)];

/// The colour schemes and the rules to check in one of a page's languages. A language changes texts and not colours.
pub fn schemes_in(language: &str) -> &'static [(&'static str, Rules)] {
    if language == "en" { &SCHEMES } else { &[("light", Rules::AllButColors)] }
}

/// Returns axe-core's serious and critical findings, as text.
pub async fn violations(page: &Page, rules: Rules) -> Vec<String> {
    violations_in(page, "document", rules).await
}

/// Returns the findings in a part of the page: a JavaScript expression for axe-core's context.
pub async fn violations_in(page: &Page, context: &str, rules: Rules) -> Vec<String> {
    // axe-core fetches nothing, as all stylesheets are the page's own.
    let options = format!("{{ {} resultTypes: ['violations'], preload: false }}", rules.options());
    let found = page.promise(&format!("(await axe.run({context}, {options})).violations")).await;
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
            for (scheme, rules) in SCHEMES {
                page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
                for size in [LAPTOP, PHONE] {
                    page.resize(size).await;
                    let found = violations(page, rules).await;
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
        for (rules, expected) in [
            (Rules::All, ["color-contrast: ", "label: "].as_slice()),
            (Rules::Colors, &["color-contrast: "]),
            (Rules::AllButColors, &["label: "]),
        ] {
            let found = violations(page, rules).await;
            for rule in expected {
                assert!(found.iter().any(|found| found.starts_with(rule)), "{rule} in {found:?}");
            }
        }
    });
}
