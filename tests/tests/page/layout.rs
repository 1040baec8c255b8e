//! Every width, nothing that moves by itself, and nothing that jumps.

use crate::page::{LAPTOP, PHONE, Page, Size, tell};
use std::collections::BTreeMap;

const FITS: &str = "1&batch_size=2&compile=False&gpu=RTX%204070";
const FAILS: &str = "1&batch_size=64&gpu=RTX%204070";
const SIZES: [Size; 8] = [(360, 740), PHONE, (768, 1024), (1024, 768), (1280, 720), LAPTOP, (1920, 1080), (3840, 2160)];

/// Elements that reach beyond the window's right edge and are not in a box that scrolls.
const BEYOND: &str = "[...document.body.querySelectorAll('*')]
    .filter((element) => {
        const box = element.getBoundingClientRect();
        if (box.width === 0 || box.right <= document.documentElement.clientWidth + 1) return false;
        for (let outer = element.parentElement; outer && outer !== document.body; outer = outer.parentElement)
            if (getComputedStyle(outer).overflowX !== 'visible') return false;
        return true;
    })
    .map((element) => `${element.tagName} ${element.id} ${element.className?.baseVal ?? element.className}`)";

#[test]
fn no_width_scrolls_sideways() {
    tell("no_width_scrolls_sideways", async |page| {
        for fragment in [FITS, FAILS] {
            page.open(fragment).await;
            for size in SIZES {
                page.resize(size).await;
                page.value::<bool>("(document.querySelector('#more').open = true)").await;
                let excess: i64 =
                    page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
                let beyond: Vec<String> = page.value(BEYOND).await;
                assert!(excess <= 0 && beyond.is_empty(), "{size:?} scrolls by {excess} px: {beyond:?}");
            }
        }
        // The measure can fail.
        page.script("document.querySelector('#verdict').style.marginRight = '-99px'; document.querySelector('#verdict').style.width = '5000px'").await;
        assert!(!page.value::<Vec<String>>(BEYOND).await.is_empty());
    });
}

/// Whether something lies over the text that a person pastes, within its borders.
const COVERED: &str = "(() => {
    const text = document.querySelector('#config').getBoundingClientRect();
    return [...document.querySelectorAll('.config__ways > *')].some((way) => {
        const box = way.getBoundingClientRect();
        return box.width > 0 && box.top < text.bottom && box.bottom > text.top && box.left < text.right && box.right > text.left;
    });
})()";

#[test]
fn nothing_lies_over_the_config() {
    tell("nothing_lies_over_the_config", async |page| {
        page.open(FAILS).await;
        for size in SIZES {
            page.resize(size).await;
            assert!(!page.value::<bool>(COVERED).await, "{size:?}");
            let room: f64 = page.value("document.querySelector('#config').clientHeight").await;
            assert!(room >= 64.0, "{size:?}: {room} px are less than three lines");
        }
        // The measure can fail.
        page.script("document.querySelector('.config__ways').style.marginTop = '-40px'").await;
        assert!(page.value::<bool>(COVERED).await);
    });
}

/// Left, top, width and height of everything that has an id or is a panel, within the document.
async fn boxes(page: &Page) -> BTreeMap<String, [f64; 4]> {
    let boxes: BTreeMap<String, [f64; 4]> = page
        .value(
            "Object.fromEntries(['#gpu', '#config', '#problems', '#model', '#batch_size', '#dtype', '#more', '#verdict',
                '#verdict-detail', '.figures', '#copy-link', '#chart', '.legend', '.fixes', '#tensors', '#phases']
                .map((selector) => {
                    const box = document.querySelector(selector).getBoundingClientRect();
                    return [selector, [box.left + scrollX, box.top + scrollY, box.width, box.height]];
                }))",
        )
        .await;
    assert_eq!(boxes.len(), 16);
    boxes
}

/// PyTorch's message stands below these, and only where a run fails: they give up its line.
const BELOW_MESSAGE: [&str; 2] = ["#tensors", "#phases"];

#[test]
fn nothing_jumps_between_fits_and_does_not_fit() {
    tell("nothing_jumps_between_fits_and_does_not_fit", async |page| {
        for size in [LAPTOP, PHONE, (768, 1024), (1024, 768), (1920, 1080)] {
            page.open(FITS).await;
            page.resize(size).await;
            let fits = boxes(page).await;
            page.fill("#batch_size", "64").await;
            page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
            let fails = boxes(page).await;
            let moved: Vec<_> = fits
                .iter()
                .filter(|(name, at)| !BELOW_MESSAGE.contains(&name.as_str()) && fails[*name] != **at)
                .collect();
            for (name, at) in &moved {
                println!("{size:?} {name}: {at:?} becomes {:?}", fails[*name]);
            }
            assert!(moved.is_empty(), "at {size:?} {} boxes move", moved.len());
        }
    });
}

/// Whether the box of an element lies within that of another, to a pixel.
fn within(inner: &str, outer: &str) -> String {
    format!(
        "(() => {{
            const [inner, outer] = [{inner:?}, {outer:?}].map((s) => document.querySelector(s).getBoundingClientRect());
            return inner.height > 0 && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1
                && inner.left >= outer.left - 1 && inner.right <= outer.right + 1;
        }})()"
    )
}

#[test]
fn the_phase_that_fails_is_in_sight_and_whole() {
    tell("the_phase_that_fails_is_in_sight_and_whole", async |page| {
        for size in [(1280, 720), (1366, 768), (1024, 768), PHONE] {
            page.resize(size).await;
            page.open(FITS).await;
            page.fill("#batch_size", "64").await;
            page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
            let row = "tr:has(.phases__badge--fails)";
            page.until("the row is scrolled to", &within(row, ".phases__scroll")).await;
            let cell = format!("{row} > td:last-child");
            assert!(page.value::<bool>(&within(&cell, ".phases")).await, "{size:?} cuts the last column off");
            let has_focus = "document.activeElement.id === 'batch_size'";
            assert!(page.value::<bool>(has_focus).await, "{size:?}: the focus moved");
            let first = "#tensors .tensors__row:nth-child(2)";
            assert!(page.value::<bool>(&within(first, "#tensors")).await, "{size:?} shows less than two tensors");
            let below = "(() => { const row = document.querySelector('.tensors__row');
                const [name, why] = ['name', 'why'].map((part) => row.querySelector(`.tensors__${part}`).getBoundingClientRect());
                return why.top >= name.bottom - 1 && why.width > 60; })()";
            assert!(page.value::<bool>(below).await, "{size:?}: why it is alive has no line");
            assert!(page.value::<f64>("document.querySelector('.message').offsetHeight").await < 52.0, "{size:?}");
        }
    });
}

#[test]
fn a_phone_shows_the_answer_before_the_form_and_keeps_it_in_sight() {
    tell("a_phone_shows_the_answer_before_the_form", async |page| {
        page.open(FAILS).await;
        page.resize(PHONE).await;
        let tops: Vec<f64> = page
            .value(
                "['.verdict', '.chart', '.fixes', '.tensors', '.form', '.phases', '.message']
                    .map((selector) => document.querySelector(selector).getBoundingClientRect().top)",
            )
            .await;
        assert!(tops.windows(2).all(|pair| pair[0] < pair[1]), "{tops:?}");
        let bar_shows = "(() => {
            const box = document.querySelector('.verdict-bar').getBoundingClientRect();
            const at = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
            return at?.className === 'verdict-bar' && box.top === 0;
        })()";
        assert!(!page.value::<bool>(bar_shows).await, "the verdict stands there twice");
        page.script("document.querySelector('.form').scrollIntoView()").await;
        page.until("the bar keeps the verdict", bar_shows).await;
    });
}

/// The longest transition or animation of any element, in seconds.
const LONGEST: &str = "Math.max(...[...document.querySelectorAll('*')].flatMap((element) =>
    ['', '::before', '::after'].flatMap((part) => {
        const style = getComputedStyle(element, part || null);
        return `${style.transitionDuration},${style.animationDuration}`.split(',').map(Number.parseFloat);
    })))";

#[test]
fn who_asks_for_less_motion_gets_none() {
    tell("who_asks_for_less_motion_gets_none", async |page| {
        assert!(page.value::<f64>(LONGEST).await > 0.0, "nothing moves at all: the next line would prove nothing");
        page.prefer(&[("prefers-reduced-motion", "reduce")]).await;
        assert_eq!(page.value::<f64>(LONGEST).await, 0.0, "seconds");
        page.fill("#batch_size", "64").await;
        page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
        assert_eq!(page.value::<f64>(LONGEST).await, 0.0, "seconds");
        assert_eq!(page.value::<u64>("document.getAnimations().length").await, 0);
    });
}
