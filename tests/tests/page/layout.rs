//! The layout at every width. Nothing moves by itself, and nothing jumps.

use crate::{
    page::{LAPTOP, PHONE, Page, Size, tell, tell_unopened},
    rig::{go, open_paired, rig},
};
use std::collections::BTreeMap;

const FITS: &str = "1&batch_size=2&compile=False&gpu=RTX%204070";
const FAILS: &str = "1&batch_size=64&gpu=RTX%204070";
const SIZES: [Size; 9] =
    [(320, 640), (360, 740), PHONE, (768, 1024), (1024, 768), (1280, 720), LAPTOP, (1920, 1080), (3840, 2160)];

/// Elements that extend beyond the window's right edge outside a scrolling box.
const BEYOND: &str = "[...document.body.querySelectorAll('*')]
    .filter((element) => {
        const box = element.getBoundingClientRect();
        if (box.width === 0 || box.right <= document.documentElement.clientWidth + 1) return false;
        for (let outer = element.parentElement; outer && outer !== document.body; outer = outer.parentElement)
            if (getComputedStyle(outer).overflowX !== 'visible') return false;
        return true;
    })
    .map((element) => `${element.tagName} ${element.id} ${element.className?.baseVal ?? element.className}`)";

/// Whether neither column scrolls sideways. On a wide window each column scrolls by itself.
const INSIDE: &str = "['.budget__run', '.budget__answer'].map((selector) => document.querySelector(selector))
    .every((column) => column.scrollWidth <= column.clientWidth || getComputedStyle(column).display === 'contents')";

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
                let inside: bool = page.value(INSIDE).await;
                assert!(inside, "a column of {size:?} scrolls sideways");
            }
        }
        // The longest names, and a long file name without a blank.
        for language in ["de", "ja", "zh"] {
            page.goto(&format!("{}calculator.html?lang={language}#{FAILS}", page.address)).await;
            page.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
            for size in SIZES.into_iter().chain([(760, 900), (900, 900), (1100, 800)]) {
                page.resize(size).await;
                let excess: i64 =
                    page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
                assert!(
                    excess <= 0,
                    "{language} {size:?} scrolls by {excess} px: {:?}",
                    page.value::<Vec<String>>(BEYOND).await
                );
            }
        }
        page.resize((320, 640)).await;
        page.open("").await;
        page.paste("#config", &format!("python train.py config/{}.py", "my_config_".repeat(12))).await;
        page.until("there is no plan", "document.querySelector('.verdict').dataset.outcome === 'none'").await;
        let excess: i64 =
            page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert!(excess <= 0, "scrolls by {excess} px: {:?}", page.value::<Vec<String>>(BEYOND).await);
        page.open(FAILS).await;
        page.resize(LAPTOP).await;
        // The checks detect an overflow.
        page.script("document.querySelector('.budget__answer > *').style.marginRight = '-99px'").await;
        assert!(!page.value::<bool>(INSIDE).await);
        page.resize(PHONE).await;
        page.script("document.querySelector('#verdict').style.marginRight = '-99px'; document.querySelector('#verdict').style.width = '5000px'").await;
        assert!(!page.value::<Vec<String>>(BEYOND).await.is_empty());
    });
}

/// Whether an element covers the config's text area, within its borders.
const COVERED: &str = "(() => {
    const text = document.querySelector('#config').getBoundingClientRect();
    return [...document.querySelectorAll('.config__ways > *')].some((way) => {
        const box = way.getBoundingClientRect();
        return box.width > 0 && box.top < text.bottom && box.bottom > text.top && box.left < text.right && box.right > text.left;
    });
})()";

#[test]
fn nothing_covers_the_config() {
    tell("nothing_covers_the_config", async |page| {
        page.open(FAILS).await;
        for size in SIZES {
            page.resize(size).await;
            assert!(!page.value::<bool>(COVERED).await, "{size:?}");
            let room: f64 = page.value("document.querySelector('#config').clientHeight").await;
            assert!(room >= 64.0, "{size:?}: {room} px are less than three lines");
        }
        // The check detects a cover.
        page.script("document.querySelector('.config__ways').style.marginTop = '-40px'").await;
        assert!(page.value::<bool>(COVERED).await);
    });
}

#[test]
fn wide_page_scrolls_as_one() {
    tell("wide_page_scrolls_as_one", async |page| {
        page.open(FAILS).await;
        for size in [(1024, 768), (1280, 720), LAPTOP, (1280, 900), (1440, 900), (1920, 1080)] {
            page.resize(size).await;
            page.until("fixes are offered", "document.querySelector('.fixes:not(.stale) .fixes__fix')").await;
            for inner in
                [".budget__run", ".budget__answer", ".problems", ".fixes__body", ".tensors__list", ".phases__scroll"]
            {
                let whole = format!(
                    "(() => {{ const list = document.querySelector('{inner}');
                        return list.scrollHeight <= list.clientHeight + 1 && list.scrollWidth <= list.clientWidth + 1 }})()"
                );
                assert!(page.value::<bool>(&whole).await, "{size:?}: {inner} scrolls by itself");
            }
            // The verdict stays at the top of the window.
            page.script("scrollTo(0, 400)").await;
            page.until("the window scrolls", "scrollY > 100").await;
            let top: f64 = page.value("document.querySelector('.verdict').getBoundingClientRect().top").await;
            assert!((0.0..1.0).contains(&top), "{size:?}: the verdict is at {top}");
            page.script("scrollTo(0, 0)").await;
        }
    });
}

/// Labels of the chart's axis that are cut.
const CUT_TICKS: &str = "[...document.querySelectorAll('.chart__tick span')]
    .filter((label) => label.offsetWidth > 0
        && (label.scrollWidth > label.clientWidth + 1 || (label.closest('.chart__ticks--phases') && label.scrollHeight > label.clientHeight + 1)))
    .map((label) => label.textContent)";

#[test]
fn axis_labels_are_whole() {
    tell_unopened("axis_labels_are_whole", async |page| {
        for language in ["en", "de", "ja", "zh"] {
            page.goto(&format!("{}calculator.html?lang={language}#{FAILS}", page.address)).await;
            page.until("the chart is there", "document.querySelector('.chart__tick')").await;
            for size in SIZES {
                page.resize(size).await;
                let cut: Vec<String> = page.value(CUT_TICKS).await;
                assert!(cut.is_empty(), "{language} {size:?}: {cut:?}");
            }
        }
    });
}

/// Texts of the header, the verdict and the config's head that are cut.
const CUT_TEXTS: &str =
    "[...document.querySelectorAll('.header__promise, .header__pages a, #verdict-detail, .config__label')]
    .filter((text) => text.offsetWidth > 0
        && (text.scrollWidth > text.clientWidth + 1 && getComputedStyle(text).display !== 'inline'
            || text.scrollHeight > text.clientHeight + 2 && text.clientHeight > 0))
    .map((text) => text.textContent)";

#[test]
fn german_texts_are_whole() {
    tell_unopened("german_texts_are_whole", async |page| {
        page.goto(&format!("{}calculator.html?lang=de#{FAILS}", page.address)).await;
        page.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
        for size in [PHONE, (768, 1024), (1024, 768), (1240, 900), (1280, 900), (1440, 900), (1920, 1080)] {
            page.resize(size).await;
            let cut: Vec<String> = page.value(CUT_TEXTS).await;
            assert!(cut.is_empty(), "{size:?}: {cut:?}");
            let table = "(() => { const list = document.querySelector('.phases__scroll');
                return list.scrollWidth <= list.clientWidth })()";
            assert!(page.value::<bool>(table).await, "{size:?} cuts columns of the phases");
            // The list of presets has a line of its own, or space for its longest name.
            let width: f64 = page.value("document.querySelector('#start-from').clientWidth").await;
            assert!(width >= 224.0, "{size:?}: the presets have {width} px");
        }
        // The check detects a cut text.
        page.script("document.querySelector('#verdict-detail').style.cssText = 'width: 40px; white-space: nowrap; overflow: hidden'").await;
        assert!(!page.value::<Vec<String>>(CUT_TEXTS).await.is_empty());
    });
}

/// Returns left, top, width and height of every panel and every form control, relative to the document.
async fn boxes(page: &Page) -> BTreeMap<String, [f64; 4]> {
    // The verdict stays at the top of a scrolled window.
    page.script("scrollTo(0, 0)").await;
    let boxes: BTreeMap<String, [f64; 4]> = page
        .value(
            "Object.fromEntries(['#gpu', '#config', '#problems', '#model', '#more', '#verdict', '#verdict-detail',
                '.figures', '.verdict__fixes', '#copy-link', '#chart', '.legend', '.fixes', '#tensors', '#phases']
                .concat([...document.querySelectorAll('.form [id]')].map((control) => `#${control.id}`))
                .map((selector) => {
                    const box = document.querySelector(selector).getBoundingClientRect();
                    return [selector, [box.left + scrollX, box.top + scrollY, box.width, box.height]];
                }))",
        )
        .await;
    assert!(boxes.len() > 32, "only {} boxes", boxes.len());
    boxes
}

/// Elements below the fixes or PyTorch's message, which have the height of their content. No form control is among them.
const BELOW: [&str; 2] = ["#tensors", "#phases"];

#[test]
fn nothing_jumps_between_fits_and_does_not_fit() {
    tell_unopened("nothing_jumps_between_fits_and_does_not_fit", async |page| {
        let sizes = [LAPTOP, (320, 640), PHONE, (768, 1024), (1023, 768), (1024, 768), (1920, 1080)];
        for (language, size) in ["en", "de"].into_iter().flat_map(|language| sizes.map(|size| (language, size))) {
            page.open_link(&format!("{}calculator.html?lang={language}#{FITS}", page.address)).await;
            page.resize(size).await;
            let fits = boxes(page).await;
            page.fill("#batch_size", "64").await;
            page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
            let fails = boxes(page).await;
            // The list of fixes has the height of its content.
            let n_same = |name: &str| if name == ".fixes" { 3 } else { 4 };
            let moved: Vec<_> = fits
                .iter()
                .filter(|(name, at)| {
                    let n = n_same(name);
                    !BELOW.contains(&name.as_str()) && fails[*name][..n] != at[..n]
                })
                .collect();
            for (name, at) in &moved {
                println!("{language} {size:?} {name}: {at:?} becomes {:?}", fails[*name]);
            }
            assert!(moved.is_empty(), "{language} {size:?}: {} boxes move", moved.len());
        }
    });
}

/// Returns an expression for whether an element's box is within another box, with a tolerance of one pixel.
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
fn the_phase_that_fails_is_whole() {
    tell("the_phase_that_fails_is_whole", async |page| {
        for size in [(1280, 720), (1366, 768), (1024, 768), PHONE] {
            page.resize(size).await;
            page.open(FITS).await;
            page.fill("#batch_size", "64").await;
            page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
            let row = "tr:has(.phases__badge--fails)";
            page.until("the row is whole", &within(row, ".phases__scroll")).await;
            let cell = format!("{row} > td:last-child");
            assert!(page.value::<bool>(&within(&cell, ".phases")).await, "{size:?} cuts the last column off");
            let has_focus = "document.activeElement.id === 'batch_size'";
            assert!(page.value::<bool>(has_focus).await, "{size:?}: the focus moved");
            let first = "#tensors .tensors__row:nth-child(2)";
            assert!(page.value::<bool>(&within(first, "#tensors")).await, "{size:?} shows less than two tensors");
            let below = "(() => { const row = document.querySelector('.tensors__row');
                const [name, why] = ['name', 'why'].map((part) => row.querySelector(`.tensors__${part}`).getBoundingClientRect());
                return why.top >= name.bottom - 1 && why.width > 60; })()";
            assert!(page.value::<bool>(below).await, "{size:?}: the reason has no line of its own");
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
                "['.verdict', '.verdict__fixes', '.chart', '.form', '.fixes', '.tensors', '.phases', '.message']
                    .map((selector) => document.querySelector(selector).getBoundingClientRect().top)",
            )
            .await;
        assert!(tops.windows(2).all(|pair| pair[0] < pair[1]), "{tops:?}");
        let bar_shows = "(() => {
            const box = document.querySelector('.verdict-bar').getBoundingClientRect();
            const at = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
            return at?.className === 'verdict-bar' && box.top === 0;
        })()";
        assert!(!page.value::<bool>(bar_shows).await, "the verdict is shown twice");
        page.script("document.querySelector('.form').scrollIntoView()").await;
        page.until("the bar keeps the verdict", bar_shows).await;
    });
}

/// Rows that a panel cuts, and boxes within panels that scroll by themselves.
const CUT_ROWS: &str = "['.fixes', '.tensors', '.phases'].flatMap((selector) => {
    const panel = document.querySelector(selector);
    const boxes = [...panel.querySelectorAll(':scope > div, :scope > ol')].filter((box) =>
        getComputedStyle(box).overflow !== 'visible'
        && (box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1));
    const rows = [...panel.querySelectorAll('.fixes__lead, .fixes__fix, .tensors__row, tr > *')];
    const cut = rows.filter((row) => {
        const inner = row.getBoundingClientRect();
        for (let outer = row.parentElement; outer !== panel.parentElement; outer = outer.parentElement) {
            const box = outer.getBoundingClientRect();
            if (inner.top < box.top - 1 || inner.bottom > box.bottom + 1
                || inner.left < box.left - 1 || inner.right > box.right + 1) return true;
        }
        return inner.height === 0;
    });
    return [...boxes, ...cut, ...(rows.length ? [] : [panel])].map((element) => `${selector}: ${element.className} ${element.textContent.slice(0, 40)}`);
})";

/// Height of a panel below its last row.
const BLANK: &str = "document.querySelector('.fixes').getBoundingClientRect().bottom
    - [...document.querySelectorAll('.fixes__lead, .fixes__fix')].at(-1).getBoundingClientRect().bottom";

#[test]
fn narrow_panels_show_whole_rows() {
    tell_unopened("narrow_panels_show_whole_rows", async |page| {
        for language in ["en", "de", "zh", "ja"] {
            for fragment in [FITS, FAILS] {
                page.open_link(&format!("{}calculator.html?lang={language}#{fragment}", page.address)).await;
                page.until(
                    "the advice is there",
                    "document.querySelector('.fixes:not(.stale) :is(.fixes__lead, .fixes__fix)')",
                )
                .await;
                for size in [(320, 640), (360, 740), PHONE, (768, 1024), (1023, 768)] {
                    page.resize(size).await;
                    let cut: Vec<String> = page.value(CUT_ROWS).await;
                    assert!(cut.is_empty(), "{language} {size:?} {fragment}: {cut:?}");
                    let blank: f64 = page.value(BLANK).await;
                    assert!(blank < 8.0, "{language} {size:?} {fragment}: {blank} px below the last row are blank");
                }
            }
        }
        // The checks detect a panel of a fixed height and a column that is cut.
        page.script("document.querySelector('.fixes__body').style.cssText = 'height: 9rem; overflow-y: auto'").await;
        assert!(!page.value::<Vec<String>>(CUT_ROWS).await.is_empty());
        page.open(FITS).await;
        page.until("the advice is there", "document.querySelector('.fixes__lead')").await;
        page.script("document.querySelector('.phases__table').style.width = '120%'").await;
        assert!(!page.value::<Vec<String>>(CUT_ROWS).await.is_empty());
        page.script("document.querySelector('.fixes').style.height = '40rem'").await;
        assert!(page.value::<f64>(BLANK).await > 8.0);
    });
}

#[test]
fn a_phone_leads_from_the_verdict_to_the_first_fix() {
    tell("a_phone_leads_from_the_verdict_to_the_first_fix", async |page| {
        for size in [(320, 640), PHONE, (768, 1024)] {
            page.open(FAILS).await;
            page.resize(size).await;
            page.until("fixes are offered", "document.querySelector('.fixes:not(.stale) .fixes__fix')").await;
            let bottom: f64 =
                page.value("document.querySelector('.verdict__fixes').getBoundingClientRect().bottom").await;
            assert!(bottom < f64::from(size.1), "{size:?}: the button is below the first screen");
            assert_eq!(page.text(".verdict__fixes").await, "Possible changes ↓");
            page.click(".verdict__fixes").await;
            page.until("the panel is focused", "document.activeElement.id === 'fixes-title'").await;
            let is_shown = "(() => {
                const [bar, title, button] = ['.verdict-bar', '#fixes-title', '.fixes__fix .button']
                    .map((selector) => document.querySelector(selector).getBoundingClientRect());
                return title.top >= bar.bottom && button.bottom <= innerHeight;
            })()";
            page.until("the first fix is in sight", is_shown).await;
        }
        page.open(FITS).await;
        assert_eq!(page.text(".verdict__fixes").await, "Possible changes ↓");
        page.resize(LAPTOP).await;
        assert!(page.value::<bool>("document.querySelector('.verdict__fixes').offsetHeight === 0").await);
    });
}

#[test]
fn sliders_of_a_phone_have_room() {
    tell("sliders_of_a_phone_have_room", async |page| {
        for (width, least) in [(320, 160.0), (360, 200.0), (390, 230.0), (768, 400.0)] {
            page.resize((width, 800)).await;
            let shortest: f64 = page
                .value(
                    "Math.min(...[...document.querySelectorAll('.number__range')].map((range) => range.clientWidth))",
                )
                .await;
            assert!(shortest >= least, "at {width} px a slider has {shortest} px");
        }
    });
}

/// The longest transition or animation of any element, in seconds.
const LONGEST: &str = "Math.max(...[...document.querySelectorAll('*')].flatMap((element) =>
    ['', '::before', '::after'].flatMap((part) => {
        const style = getComputedStyle(element, part || null);
        return `${style.transitionDuration},${style.animationDuration}`.split(',').map(Number.parseFloat);
    })))";

#[test]
fn reduced_motion_disables_animation() {
    tell("reduced_motion_disables_animation", async |page| {
        page.prefer(&[("prefers-reduced-motion", "no-preference")]).await;
        assert!(page.value::<f64>(LONGEST).await > 0.0, "nothing moves at all: the next line would prove nothing");
        page.prefer(&[("prefers-reduced-motion", "reduce")]).await;
        assert_eq!(page.value::<f64>(LONGEST).await, 0.0, "seconds");
        page.fill("#batch_size", "64").await;
        page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
        assert_eq!(page.value::<f64>(LONGEST).await, 0.0, "seconds");
        assert_eq!(page.value::<u64>("document.getAnimations().length").await, 0);
    });
}

/// Checkboxes that are shown, with their sides in CSS pixels.
const CHECKBOXES: &str = "[...document.querySelectorAll('input[type=checkbox]')].filter((box) => box.checkVisibility())
    .map((box) => { const { width, height } = box.getBoundingClientRect(); return [box.id, width, height] })";

/// Checks that no label squeezes its checkbox. At a window of `width`, all sides have `side_px(width)`.
async fn assert_checkboxes_whole(page: &Page, n_checkboxes: usize, side_px: impl Fn(u32) -> f64) {
    page.script("for (const details of document.querySelectorAll('details')) details.open = true").await;
    for size in [(320, 640), PHONE, LAPTOP] {
        page.resize(size).await;
        let boxes: Vec<(String, f64, f64)> = page.value(CHECKBOXES).await;
        assert_eq!(boxes.len(), n_checkboxes, "{size:?}: {boxes:?}");
        let side = side_px(size.0);
        let is_squeezed = |(_, width, height): &&_| (*width, *height) != (side, side);
        let squeezed: Vec<_> = boxes.iter().filter(is_squeezed).collect();
        assert!(squeezed.is_empty(), "{size:?}: {squeezed:?} are not squares of {side} px");
    }
}

#[test]
fn checkboxes_are_squares_of_16_px() {
    tell_unopened("checkboxes_are_squares_of_16_px", async |page| {
        for language in ["en", "de"] {
            for (name, shown, n_checkboxes) in [
                ("calculator.html", "#verdict[data-fits]", 6),
                ("index.html", "#anything", 0),
                ("diagnose.html", "#message", 0),
                ("demo.html", "#slowly", 1),
                ("embed.html", "#snippet", 0),
                ("gpus.html", "[data-testid=gpus]", 1),
                ("compare.html", "[data-testid=compare-headline]", 6),
                ("embed.html?host=none", "#verdict[data-fits]", 1),
            ] {
                let separator = if name.contains('?') { '&' } else { '?' };
                let link = format!("{}{name}{separator}lang={language}", page.address);
                page.goto(&link).await;
                page.until("the form is drawn", &format!("document.querySelector('{shown}')")).await;
                assert_checkboxes_whole(page, n_checkboxes, |_| 16.0).await;
            }
        }
        // The check detects a checkbox that gives way to its label.
        page.script("document.querySelector('#compile').style.cssText = 'flex: 0 1 13px; width: auto'").await;
        let boxes: Vec<(String, f64, f64)> = page.value(CHECKBOXES).await;
        assert!(boxes.iter().any(|(id, width, height)| id == "compile" && width < height), "{boxes:?}");
    });
}

#[test]
fn checkboxes_of_alert_rules_are_squares() {
    rig("checkboxes_of_alert_rules_are_squares", async |page, _| {
        open_paired(page).await;
        for language in ["en", "de", "ja", "zh"] {
            go(page, &format!("rig?lang={language}")).await;
            page.until("the rules are shown", "document.querySelector('#rule-temperature:checked:enabled')").await;
            // In a narrow window they are as large as a touch target must be.
            assert_checkboxes_whole(page, 5, |width| if width < 760 { 24.0 } else { 16.0 }).await;
        }
    });
}
