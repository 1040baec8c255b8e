//! Shared links: the tags and images that other sites read, and a plan as an image.

use crate::{
    accessible::{SCHEMES, violations},
    code_changes::copied,
    environment::{Means, named},
    page::{LAPTOP, PHONE, Page, tell, tell_at},
    plain_host::PlainHost,
};
use serde_json::json;
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const PAGES: [&str; 8] = ["index", "diagnose", "gpus", "compare", "demo", "rig", "embed", "trainers"];
/// A run that does not fit, with a long table.
const RUN: &str = "1&batch_size=64&gradient_accumulation_steps=1&gpu=RTX%204070&others=2GiB";
/// Timeout for a download.
const DOWNLOAD_MAX: Duration = Duration::from_secs(60);
/// Pixels of a downloaded image: two for each unit of 1200 x 630.
const SIZE: [u32; 2] = [2400, 1260];

/// Returns the value of an attribute of the first tag that contains `words`.
fn attribute<'a>(html: &'a str, words: &str, name: &str) -> Option<&'a str> {
    let tag = html.split('<').find(|tag| tag.contains(words))?;
    tag.split_once(&format!("{name}=\""))?.1.split('"').next()
}

/// Returns width and height from the header of a PNG file.
fn size_of(png: &[u8]) -> [u32; 2] {
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{:x?}", &png[..8]);
    [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes")))
}

#[test]
fn every_page_has_tags_and_an_image_for_shared_links() {
    let Some(dist) = named("every_page_has_tags_and_an_image_for_shared_links", "HEADROOM_DIST") else { return };
    for page in PAGES {
        let html = fs::read_to_string(dist.join(format!("{page}.html"))).expect("a page");
        let property = |name: &str| {
            let found = attribute(&html, &format!("meta property=\"og:{name}\""), "content");
            found.unwrap_or_else(|| panic!("{page} has no og:{name}"))
        };
        let title = html.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
        assert_eq!(Some(property("title")), title, "{page}");
        assert_eq!(Some(property("description")), attribute(&html, "name=\"description\"", "content"), "{page}");
        assert_eq!((property("type"), property("site_name")), ("website", "Headroom"));
        assert!(property("image:alt").len() > 20, "{page}");
        assert!(attribute(&html, "summary_large_image", "name").is_some_and(|name| name.starts_with("twitter:")));
        let image = property("image");
        let file = &image[image.find("previews/").unwrap_or_else(|| panic!("{page}: {image}"))..];
        let png = fs::read(dist.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let declared = ["image:width", "image:height"].map(|name| property(name).parse::<u32>().expect("a number"));
        assert_eq!(size_of(&png), declared, "{page}");
        assert_eq!(declared, [1200, 630]);
        // A site would replace a shared link by this address and lose the run after the `#`.
        assert!(!html.contains("og:url"), "{page}");

        let icon = attribute(&html, "rel=\"icon\"", "href").expect("an icon");
        assert!(fs::read_to_string(dist.join(icon)).expect("an icon").starts_with("<svg "), "{page}");
        let icon = attribute(&html, "rel=\"apple-touch-icon\"", "href").expect("an icon");
        assert_eq!(size_of(&fs::read(dist.join(icon)).expect("an icon")), [180, 180], "{page}");
    }
    for page in ["index.html", "guide/plan.html"] {
        let folder = dist.join("docs").join(page);
        let html = fs::read_to_string(&folder).expect("a page of the documentation");
        let icon = attribute(&html, "rel=\"icon\"", "href").expect("an icon");
        assert!(folder.parent().expect("a folder").join(icon).is_file(), "{page}: {icon}");
    }
}

/// Lets the browser download files without a question, and returns their folder.
async fn download_folder(page: &Page) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let behaviour = json!({ "behavior": "allow", "downloadPath": folder.path() });
    page.cdp("Browser.setDownloadBehavior", behaviour).await;
    folder
}

async fn downloaded(folder: &Path, name: &str) -> Vec<u8> {
    let (file, start) = (folder.join(name), Instant::now());
    while !file.is_file() {
        assert!(start.elapsed() < DOWNLOAD_MAX, "no download");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    fs::read(file).expect("the download")
}

/// Returns the words of the image that the page shows.
async fn drawn(page: &Page) -> String {
    page.click("#export").await;
    page.until("the image is shown", "document.querySelector('#export-dialog[open] canvas')").await;
    page.value("document.querySelector('#export-dialog canvas').getAttribute('aria-label')").await
}

async fn close(page: &Page) {
    page.click("#export-close").await;
    page.until("it is closed", "!document.querySelector('#export-dialog')").await;
}

#[test]
fn a_plan_is_downloaded_and_copied_as_an_image() {
    tell("a_plan_is_downloaded_and_copied_as_an_image", async |page| {
        let folder = download_folder(page).await;
        page.open(RUN).await;
        let forum = copied(page, "copy-card").await;

        let said = drawn(page).await;
        assert!(said.starts_with("Headroom\n✕\nDoes not fit: "), "{said}");
        let cells = forum.lines().skip(3).filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let rows = cells.filter_map(|cells| cells.split_once(" | ")).filter(|(name, _)| *name != "---");
        let mut n_rows = 0;
        for (name, value) in rows {
            let value = value.replace('`', "");
            assert!(said.contains(name), "{name}: {said}");
            // A long value is shortened.
            let beginning: String = value.chars().take(40).collect();
            assert!(said.contains(beginning.trim()), "{name} {beginning}: {said}");
            n_rows += 1;
        }
        assert!(n_rows >= 5, "{forum}");
        assert!(said.contains("n_layer 12 · n_head 12"), "{said}");
        let address = page.address.trim_start_matches("http://");
        assert!(said.contains(&format!("{address}calculator.html#1&")), "{said}");
        let phases: Vec<String> = page
            .value("[...document.querySelectorAll('#phases tbody tr')].map((row) => row.lastElementChild.textContent)")
            .await;
        assert!(phases.len() > 4 && phases.iter().all(|size| said.contains(size)), "{phases:?}: {said}");

        page.click("#export-download").await;
        let png = downloaded(folder.path(), "headroom.png").await;
        assert_eq!(size_of(&png), SIZE);
        page.allow_clipboard().await;
        page.click("#export-copy").await;
        page.until("the button says so", "document.querySelector('#export-copy').textContent === 'Copied'").await;
        let types = page.promise("(await navigator.clipboard.read()).flatMap((item) => item.types)").await;
        assert_eq!(types, json!(["image/png"]));
        close(page).await;
        // Escape closes it too, and the next press shows it again.
        drawn(page).await;
        page.press(&fantoccini::key::Key::Escape).await;
        page.until("it is closed", "!document.querySelector('#export-dialog')").await;
    });
}

#[test]
fn chart_is_exported_as_svg_and_png() {
    tell("chart_is_exported_as_svg_and_png", async |page| {
        let folder = download_folder(page).await;
        page.open(RUN).await;
        drawn(page).await;
        page.click("#export-svg").await;
        let svg = String::from_utf8(downloaded(folder.path(), "headroom-chart.svg").await).expect("a text");
        // A browser reads it: shapes, and the words of the chart.
        let read = format!(
            "(() => {{
                const svg = new DOMParser().parseFromString({}, 'image/svg+xml').documentElement;
                const words = [...svg.querySelectorAll('text')].map((text) => text.textContent);
                return [svg.localName, svg.querySelectorAll('path').length, words.join('\\n')];
            }})()",
            serde_json::Value::from(svg.as_str())
        );
        let (root, n_paths, words): (String, usize, String) = page.value(&read).await;
        assert_eq!(root, "svg", "{svg:.400}");
        assert!(n_paths > 15, "{n_paths}");
        let headline: String = page.value("document.querySelector('#verdict > :last-child').firstChild.data").await;
        let shown = ["parameters", "activations", "fails here", "backward", "iter 0", "batch_size=64", &headline];
        for word in shown {
            assert!(words.contains(word), "{word}: {words}");
        }
        let colours = "fill=\"";
        let named = svg.split(colours).skip(1).filter(|rest| !rest.starts_with(['#', 'n']));
        assert_eq!(named.count(), 0, "colours have digits that other programs read");
        page.click("#export-png").await;
        let [width, height] = size_of(&downloaded(folder.path(), "headroom-chart.png").await);
        assert!(width == 2080 && height > 600, "{width} x {height}");
        close(page).await;
        assert!(page.value::<bool>("document.querySelectorAll('.chart').length === 1").await);
    });
}

#[test]
fn report_is_printed_with_every_tensor_and_without_controls() {
    tell("report_is_printed_with_every_tensor_and_without_controls", async |page| {
        page.open(RUN).await;
        page.script("document.documentElement.dataset.theme = 'dark'").await;
        let rows = "document.querySelectorAll('.tensors__row').length";
        let before: usize = page.value(rows).await;
        page.script(&format!("print = () => (window.printed = [{rows}, document.documentElement.dataset.theme])"))
            .await;
        drawn(page).await;
        page.click("#export-print").await;
        page.until("the report is printed", "window.printed").await;
        let (all, theme): (usize, String) = page.value("window.printed").await;
        assert!(all > before, "{all} of {before}");
        assert_eq!(theme, "light");
        page.cdp("Emulation.setEmulatedMedia", json!({ "media": "print" })).await;
        page.resize((720, 1000)).await;
        let is_shown = |selector: &str| format!("document.querySelector('{selector}')?.checkVisibility() === true");
        for selector in ["#run-summary", "#verdict", ".figures", ".chart__drawing", "#phases", "#tensors", ".report"] {
            assert!(page.value::<bool>(&is_shown(selector)).await, "{selector} is printed");
        }
        for selector in [".header", "#run", ".verdict__actions", "#tensors-search", ".fixes button"] {
            assert!(!page.value::<bool>(&is_shown(selector)).await, "{selector} is not printed");
        }
        assert!(page.value::<bool>("document.documentElement.scrollWidth <= innerWidth").await);
        let link: String = page.text(".report").await;
        assert!(link.contains("batch_size=64"), "{link}");
        page.cdp("Emulation.setEmulatedMedia", json!({ "media": "" })).await;
        page.script("dispatchEvent(new Event('afterprint'))").await;
        page.until("the page is as before", &format!("{rows} === {before} && !document.querySelector('.report')"))
            .await;
        assert_eq!(page.value::<String>("document.documentElement.dataset.theme").await, "dark");
    });
}

#[test]
fn image_of_a_plan_is_the_same_in_both_themes_and_in_the_language_of_the_page() {
    let test = "image_of_a_plan_is_the_same_in_both_themes_and_in_the_language_of_the_page";
    let Some(means) = Means::of(test) else { return };
    let host = PlainHost::start(&means.dist);
    tell_at(test, &means, &host.address, None, async |page| {
        for (language, words) in [("en", "Fits: "), ("de", "Passt: "), ("ja", "収まります"), ("zh", "显存够用")]
        {
            page.open_link(&format!("{}calculator.html?lang={language}#1&batch_size=4", page.address)).await;
            let mut images: Vec<String> = Vec::new();
            for theme in ["light", "dark"] {
                page.script(&format!("document.documentElement.dataset.theme = '{theme}'")).await;
                let said = drawn(page).await;
                assert!(said.contains(words), "{language}: {said}");
                images.push(page.value("document.querySelector('#export-dialog canvas').toDataURL()").await);
                close(page).await;
            }
            assert!(images[0].len() > 10_000 && images[0] == images[1], "{language}");
        }
    });
    host.assert_complete();
}

#[test]
fn image_of_a_plan_is_accessible_and_fits_every_width() {
    let name = "image_of_a_plan_is_accessible_and_fits_every_width";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell(name, async |page| {
        page.open(RUN).await;
        page.script(&axe).await;
        for size in [LAPTOP, PHONE, (320, 640)] {
            page.resize(size).await;
            drawn(page).await;
            for (theme, rules) in SCHEMES {
                page.prefer(&[("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")]).await;
                let found = violations(page, rules).await;
                assert!(found.is_empty(), "{theme}, {size:?}:\n{}", found.join("\n"));
            }
            let is_whole = "[...document.querySelectorAll('#export-dialog, #export-dialog *')].every((element) => {
                const at = element.getBoundingClientRect();
                return at.left >= 0 && at.right <= innerWidth && at.bottom <= innerHeight;
            })";
            assert!(page.value::<bool>(is_whole).await, "{size:?}");
            close(page).await;
        }
    });
}
