//! The page that generates the snippet for embedding, and the embedded calculator by itself.

use crate::{
    accessible::{SCHEMES, violations},
    environment::{Means, named},
    page::{LAPTOP, PHONE, Page, Size, tell, tell_of, tell_unopened},
    plain_host::PlainHost,
};
use std::{fs, path::Path};

const RUN: &str = "1&batch_size=64&gradient_accumulation_steps=1&gpu=RTX%204070&others=2GiB";
/// From the narrowest phone to a wide column.
const WIDTHS: [Size; 6] = [(320, 640), (360, 740), PHONE, (640, 800), (768, 1024), (900, 900)];

async fn enter_preview(page: &Page) {
    page.enter_frame_of("headroom-calculator").await;
    page.until("the preview answers", "document.querySelector('#verdict[data-fits]')").await;
}

async fn leave(page: &Page) {
    page.leave_frame().await;
}

#[test]
fn the_lines_are_written_shown_and_work_on_another_site() {
    let test = "the_lines_are_written_shown_and_work_on_another_site";
    let Some(means) = Means::of(test) else { return };
    let mut lines = None;
    tell(test, async |page| {
        // The page opens with the calculator's run.
        page.open(RUN).await;
        page.click(".header__pages [href*='embed.html']").await;
        page.until("the page is there", "document.querySelector('#snippet')").await;
        let said = page.text("#snippet").await;
        assert!(said.contains("config=\"--gradient_accumulation_steps=1 --batch_size=64\""), "{said}");
        assert!(said.contains(" gpu=\"RTX 4070\" others=\"2\" lang=\"en\" theme=\"auto\">"), "{said}");
        page.script("document.querySelector('#preview').scrollIntoView()").await;
        enter_preview(page).await;
        assert!(!page.fits().await);
        leave(page).await;

        // The preview follows the form without a reload.
        page.script("document.querySelector('headroom-calculator').mark = 1").await;
        page.fill("#config", "--batch_size=2").await;
        page.script("document.querySelector('#theme').value = '2'; document.querySelector('#theme').dispatchEvent(new Event('change'))").await;
        page.until("the lines follow", "document.querySelector('#snippet').textContent.includes('=2\" gpu')").await;
        page.script("document.querySelector('#preview').scrollIntoView()").await;
        enter_preview(page).await;
        page.until("the preview follows", "document.querySelector('#verdict').dataset.fits === 'true'").await;
        page.until("its theme too", "document.documentElement.dataset.theme === 'dark'").await;
        leave(page).await;
        assert!(page.value::<bool>("document.querySelector('headroom-calculator').mark === 1").await);

        page.click("#copy-snippet").await;
        page.until("the button says so", "document.querySelector('#copy-snippet').textContent.includes('Copied')")
            .await;
        lines = Some((page.clipboard().await, page.address.clone()));
    });
    let (lines, own) = lines.expect("the page was served");
    // The copied snippet on another host. The server that generated it is gone, so a file host replaces it.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("snippet");
    fs::create_dir_all(&folder).expect("a writable folder");
    fs::write(
        folder.join("index.html"),
        format!("<!doctype html><title>mine</title><link rel=icon href='data:,'><p>Before.\n\n{lines}\n<p>After."),
    )
    .expect("a writable folder");
    let tools = PlainHost::start(&means.dist);
    let site = PlainHost::start_with(&folder, &own, &tools.address);
    let address = site.address_as_other_site();
    tell_of(test, &means, &address, std::slice::from_ref(&tools.address), None, async |page| {
        page.goto(&address).await;
        enter_preview(page).await;
        assert!(page.fits().await);
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "2");
        leave(page).await;
    });
}

#[test]
fn the_short_name_of_the_page_has_a_preview_too() {
    tell_unopened("the_short_name_of_the_page_has_a_preview_too", async |page| {
        page.goto(&format!("{}embed#{RUN}", page.address)).await;
        page.until("the page is there", "document.querySelector('#snippet')").await;
        page.script("document.querySelector('#preview').scrollIntoView()").await;
        enter_preview(page).await;
        assert!(!page.fits().await);
        leave(page).await;
    });
}

#[test]
fn snippet_leaves_out_what_changes_no_figure() {
    tell_unopened("snippet_leaves_out_what_changes_no_figure", async |page| {
        page.goto(&format!("{}embed.html#{RUN}", page.address)).await;
        page.until("the page is there", "document.querySelector('#snippet')").await;
        page.fill("#config", "--max_iters=5000 --eval_interval=100 --n_layer=12 --batch_size=2").await;
        let said = page.until_says("document.querySelector('#snippet').textContent", "batch_size=2").await;
        for key in ["max_iters", "eval_interval", "n_layer"] {
            assert!(!said.contains(key), "{said}");
        }
    });
}

#[test]
fn embedded_sliders_have_room_for_their_values() {
    tell_unopened("embedded_sliders_have_room_for_their_values", async |page| {
        let link = format!("{}embed.html?host=https%3A%2F%2Fdocs.example&theme=light#{RUN}", page.address);
        page.goto(&link).await;
        page.until("there is an answer", "document.querySelector('.verdict[data-outcome]')").await;
        for size in WIDTHS.into_iter().chain([(479, 800), (480, 800), (639, 800), (720, 800)]) {
            page.resize(size).await;
            let widths = "[...document.querySelectorAll('input[type=range]')].map((slider) => slider.offsetWidth)
                .filter((width) => width > 0)";
            let widths: Vec<u64> = page.value(widths).await;
            assert!(!widths.is_empty() && widths.iter().all(|width| *width >= 100), "{size:?}: {widths:?}");
        }
    });
}

#[test]
fn embedded_page_is_accessible_and_fits_every_width() {
    let name = "what_is_embedded_has_no_serious_fault";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        for run in [RUN, "1&config=--batch_size%3D2&gpu=L4", "1&config=nonsense"] {
            let link = format!("{}embed.html?host=https%3A%2F%2Fdocs.example&theme=light#{run}", page.address);
            // Opens a blank page first, because a change of the fragment alone loads nothing.
            page.goto("about:blank").await;
            page.goto(&link).await;
            page.until("there is an answer", "document.querySelector('.verdict[data-outcome]')").await;
            page.script(&axe).await;
            for (theme, rules) in SCHEMES {
                page.script(&format!("document.documentElement.dataset.theme = '{theme}'")).await;
                page.prefer(&[("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")]).await;
                for size in WIDTHS {
                    page.resize(size).await;
                    let excess: i64 = page.value("document.documentElement.scrollWidth - innerWidth").await;
                    assert!(excess <= 0, "{run} at {size:?} scrolls sideways by {excess} px");
                    if [PHONE, (768, 1024)].contains(&size) {
                        let found = violations(page, rules).await;
                        assert!(found.is_empty(), "{run}, {theme}, {size:?}:\n{}", found.join("\n"));
                    }
                }
            }
        }
        // Outside a frame it sends no messages.
        page.resize(LAPTOP).await;
    });
}

#[test]
fn the_page_that_writes_the_lines_has_no_serious_fault() {
    let name = "the_page_that_writes_the_lines_has_no_serious_fault";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        page.goto(&format!("{}embed.html#{RUN}", page.address)).await;
        page.until("the page is there", "document.querySelector('#snippet')").await;
        page.script("document.querySelector('#preview').scrollIntoView()").await;
        enter_preview(page).await;
        leave(page).await;
        page.script(&axe).await;
        for (scheme, rules) in SCHEMES {
            page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
            for size in [LAPTOP, PHONE] {
                page.resize(size).await;
                // The frame is checked by itself, above.
                let found = violations(page, rules).await;
                let found: Vec<_> = found.into_iter().filter(|found| !found.starts_with("frame-tested")).collect();
                assert!(found.is_empty(), "{scheme} {size:?}:\n{}", found.join("\n"));
                let wide: bool = page.value("document.documentElement.scrollWidth > innerWidth").await;
                assert!(!wide, "{scheme} {size:?} scrolls sideways");
            }
        }
    });
}
