//! The documentation as `headroom serve` sends it: every page of its contents, under the server's strict policy.

use crate::{
    accessible::{SCHEMES, violations_in},
    environment::named,
    page::{LAPTOP, PHONE, Page, tell, tell_unopened},
};
use std::fs;

async fn go_to(page: &Page, link: &str) {
    page.goto(link).await;
}

/// Returns the links of the table of contents on the first page, whose address has no trailing slash.
async fn contents(page: &Page) -> Vec<String> {
    go_to(page, &format!("{}docs", page.address)).await;
    let links: Vec<String> = page.value("[...document.querySelectorAll('#contents a')].map((link) => link.href)").await;
    assert!(links.len() > 35, "{links:?}");
    links
}

#[test]
fn header_links_to_the_documentation_in_every_language() {
    let Some(dist) = named("header_links_to_the_documentation", "HEADROOM_DIST") else { return };
    assert!(dist.join("docs/index.html").is_file(), "a static host has the documentation beside the page");
    tell_unopened("header_links_to_the_documentation", async |page| {
        for (language, words) in [("en", "Docs"), ("de", "Doku"), ("ja", "ドキュメント"), ("zh", "文档")] {
            for (at, there) in [
                ("index.html", "#anything"),
                ("calculator.html", "#verdict"),
                ("diagnose.html", "#message"),
                ("demo.html", "#write"),
                ("embed.html", "#gpu"),
                ("gpus.html", "#gpu"),
                ("compare.html", "#gpu"),
            ] {
                go_to(page, &format!("{}{at}?lang={language}", page.address)).await;
                page.until("the page is there", &format!("document.querySelector('{there}')")).await;
                assert_eq!(page.text(".header__pages a:last-child").await, words, "{at}");
            }
            page.click(".header__pages a:last-child").await;
            page.until(
                "the documentation opens",
                "document.querySelector('main h1') && location.pathname.endsWith('/docs/')",
            )
            .await;
        }
    });
}

#[test]
fn documentation_fits_every_width_and_marks_the_page() {
    tell("documentation_fits_every_width_and_marks_the_page", async |page| {
        for link in contents(page).await {
            go_to(page, &link).await;
            let title: String = page.value("document.querySelector('main h1').textContent").await;
            let marked: String = page.value("document.querySelector('#contents [aria-current]').href").await;
            assert_eq!(marked, link, "{title}");
            let n_rules: usize = page.value("document.styleSheets[0].cssRules.length").await;
            assert!(n_rules > 10, "{link} has no style");
            for size in [LAPTOP, PHONE] {
                page.resize(size).await;
                let root = "document.documentElement";
                let beyond: i64 = page.value(&format!("{root}.scrollWidth - {root}.clientWidth")).await;
                assert_eq!(beyond, 0, "{link} is wider than {size:?}");
            }
        }
    });
}

#[test]
fn documentation_has_no_serious_fault() {
    let Some(axe) = named("axe", "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell("documentation_has_no_serious_fault", async |page| {
        let mut all = Vec::new();
        for (i, link) in contents(page).await.into_iter().enumerate() {
            go_to(page, &link).await;
            // The contents are the same on every page, and half of most pages' elements.
            let context = if i == 0 { "document" } else { "{ exclude: ['#contents'] }" };
            page.script(&axe).await;
            for (scheme, rules) in SCHEMES {
                page.prefer(&[("prefers-color-scheme", scheme)]).await;
                all.extend(
                    violations_in(page, context, rules)
                        .await
                        .into_iter()
                        .map(|found| format!("{link}, {scheme}: {found}")),
                );
            }
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
    });
}
