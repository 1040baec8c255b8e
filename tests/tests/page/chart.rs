//! The chart of memory over the run.

use crate::page::{LAPTOP, PHONE, Page, tell, tell_unopened};
use fantoccini::key::Key;
use serde_json::json;

/// A run that does not fit.
pub const FAILS: &str = "1&batch_size=64&gpu=RTX%204070";
/// A run that fits.
pub const FITS: &str = "1&batch_size=4&gpu=RTX%204070";

/// The column of the run that the chart shows.
const AT: &str = "Number(document.querySelector('#chart').ariaValueNow)";
/// Whether the box with the shown column's categories and tensors is visible.
pub const DETAILS: &str = "getComputedStyle(document.querySelector('.chart__details')).display !== 'none'";

/// Returns a point of the drawing in CSS pixels of the window. `x` and `y` are fractions of its width and height.
pub async fn point_at(page: &Page, x: f64, y: f64) -> (f64, f64) {
    page.script("document.querySelector('#chart').scrollIntoView({ block: 'center' })").await;
    let [left, top, width, height]: [f64; 4] = page
        .value("(() => { const b = document.querySelector('#chart').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        .await;
    (left + x * width, top + y * height)
}

/// Sends a mouse event at a point of the window.
pub async fn mouse(page: &Page, kind: &str, (x, y): (f64, f64), is_down: bool) {
    let button = if is_down || kind == "mouseReleased" { "left" } else { "none" };
    let event =
        json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": u8::from(is_down), "clickCount": 1 });
    page.cdp("Input.dispatchMouseEvent", event).await;
}

/// Presses at one fraction of the drawing's width and releases at another.
async fn drag(page: &Page, from: f64, to: f64) {
    let (from, to) = (point_at(page, from, 0.4).await, point_at(page, to, 0.4).await);
    mouse(page, "mouseMoved", from, false).await;
    mouse(page, "mousePressed", from, true).await;
    mouse(page, "mouseMoved", (f64::midpoint(from.0, to.0), from.1), true).await;
    mouse(page, "mouseMoved", to, true).await;
    mouse(page, "mouseReleased", to, false).await;
}

#[test]
fn a_moment_shows_its_categories_and_largest_tensors() {
    tell("a_moment_shows_its_categories_and_largest_tensors", async |page| {
        page.open(FAILS).await;
        assert!(!page.value::<bool>(DETAILS).await, "no moment is selected");
        for x in [0.3, 0.6, 0.9] {
            mouse(page, "mouseMoved", point_at(page, x, 0.5).await, false).await;
            page.until("the details are shown", DETAILS).await;
            let categories: Vec<String> = page
                .value(
                    "[...document.querySelectorAll('.chart__details ul:first-of-type li')].map((l) => l.textContent)",
                )
                .await;
            assert!(categories.len() >= 4, "{categories:?}");
            assert!(categories.iter().all(|line| line.contains("iB") || line.contains(" B")), "{categories:?}");
            let largest = page.text(".chart__details ul:last-of-type li").await;
            let listed = page.text("#tensors .tensors__name").await;
            assert!(largest.starts_with(&listed) && largest.contains('(') && largest.contains("iB"), "{largest}");
            let is_inside: bool = page
                .value(
                    "(() => { const [a, b] = ['.chart__details', '#chart'].map((s) => document.querySelector(s).getBoundingClientRect());
                     return a.left >= b.left - 1 && a.right <= b.right + 1; })()",
                )
                .await;
            assert!(is_inside, "the box leaves the drawing at {x}");
        }
        mouse(page, "mouseMoved", (1.0, 1.0), false).await;
        page.until("the details are gone", &format!("!({DETAILS})")).await;
        // The keyboard works too, and a screen reader announces the value.
        page.script("document.querySelector('#copy-command').focus()").await;
        page.press(&Key::Tab).await;
        page.until("the chart has the focus", "document.activeElement.id === 'chart'").await;
        page.press(&Key::Home).await;
        page.until("the start is shown", &format!("{AT} === 0 && {DETAILS}")).await;
        let said: String = page.value("document.querySelector('#chart').ariaValueText").await;
        assert!(said.contains("parameters") && said.contains("iB"), "{said}");
    });
}

#[test]
fn the_legend_hides_a_category_and_reset_brings_it_back() {
    tell("the_legend_hides_a_category_and_reset_brings_it_back", async |page| {
        page.open(FITS).await;
        let drawn = |band: u8| format!("document.querySelector('.chart__bands .band-{band}').getAttribute('d') ?? ''");
        let parameters: String = page.value(&drawn(2)).await;
        let activations: String = page.value(&drawn(6)).await;
        assert!(!activations.is_empty());
        page.click("button[data-band='6']").await;
        page.until("activations are not drawn", &format!("({}) === ''", drawn(6))).await;
        let pressed: String = page.value("document.querySelector(\"button[data-band='6']\").ariaPressed").await;
        assert_eq!(pressed, "false");
        assert_ne!(page.value::<String>(&drawn(2)).await, parameters, "the rest has the whole height");
        assert!(
            page.value::<bool>("!document.querySelector('.chart__card')").await,
            "a part is not compared with the GPU"
        );
        page.click("#chart-reset").await;
        page.until("activations are back", &format!("({}) !== ''", drawn(6))).await;
        assert_eq!(page.value::<String>(&drawn(6)).await, activations);
        assert!(page.value::<bool>("!document.querySelector('#chart-reset')").await);
    });
}

#[test]
fn a_drag_zooms_and_a_click_pins() {
    tell("a_drag_zooms_and_a_click_pins", async |page| {
        page.open(FITS).await;
        let columns = "document.querySelector('.chart__drawing').viewBox.baseVal.width";
        let all: f64 = page.value(columns).await;
        drag(page, 0.25, 0.5).await;
        page.until("a quarter is shown", &format!("Math.abs({columns} / {all} - 0.25) < 0.02")).await;
        // A click selects a column of the zoomed part.
        let (x, y) = point_at(page, 0.5, 0.5).await;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            mouse(page, kind, (x, y), kind == "mousePressed").await;
        }
        page.until("it is pinned", "location.hash.includes('&pin=')").await;
        let share: f64 = page.value(&format!("{AT} / {all}")).await;
        assert!((share - 0.375).abs() < 0.02, "{share}");
        // Keys stay in the zoomed part, and zoom further.
        page.press(&Key::Home).await;
        page.until("its start", &format!("Math.abs({AT} / {all} - 0.25) < 0.02")).await;
        page.press("+").await;
        page.until("half of it", &format!("Math.abs({columns} / {all} - 0.125) < 0.02")).await;
        page.click("#chart-reset").await;
        page.until("all of it", &format!("{columns} === {all}")).await;
        // Escape resets the part and the moment with one press.
        drag(page, 0.25, 0.5).await;
        page.until("a quarter is shown", &format!("Math.abs({columns} / {all} - 0.25) < 0.02")).await;
        page.script("document.querySelector('#chart').focus()").await;
        page.press(&Key::Home).await;
        page.until("a moment is pinned", "location.hash.includes('&pin=')").await;
        page.press(&Key::Escape).await;
        page.until("all of it", &format!("{columns} === {all}")).await;
        page.until("no moment is pinned", "!location.hash.includes('&pin=')").await;
        let title: String = page.value("document.querySelector('#chart-title').parentElement.title").await;
        assert!(title.contains("To zoom, drag"), "{title}");
    });
}

/// The boxes of the moment's text and of the drawing: left, top, right and bottom.
const MOMENT: &str = "['.chart__moment', '#chart'].map((selector) => {
    const box = document.querySelector(selector).getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom]; })";

#[test]
fn the_moments_text_is_above_the_drawing_and_no_wider() {
    tell_unopened("the_moments_text_is_above_the_drawing_and_no_wider", async |page| {
        for width in [320, 390, 1280] {
            page.resize((width, 844)).await;
            page.goto(&format!("{}trainers.html?lang=de", page.address)).await;
            page.until("the run is drawn", "document.querySelector('#chart .chart__bands [d]')").await;
            for x in [0.02, 0.3, 0.49, 0.51, 0.7, 0.98] {
                let at = point_at(page, x, 0.4).await;
                mouse(page, "mousePressed", at, true).await;
                mouse(page, "mouseReleased", at, false).await;
                mouse(page, "mouseMoved", (1.0, 1.0), false).await;
                let follows = format!(
                    "Math.abs(document.querySelector('.chart__cursor').getBoundingClientRect().left - {}) < 8",
                    at.0
                );
                page.until("the cursor follows", &follows).await;
                let [[left, top, right, bottom], plot]: [[f64; 4]; 2] = page.value(MOMENT).await;
                assert!(right - left > 40.0 && bottom - top > 8.0, "{width} px, {x}: the text is hidden");
                assert!(left >= plot[0] - 1.0 && right <= plot[2] + 1.0, "{width} px, {x}: {left} to {right}");
                assert!(bottom <= plot[1], "{width} px, {x}: the text covers the drawing");
            }
        }
    });
}

#[test]
fn a_tap_shows_the_categories() {
    tell("a_tap_shows_the_categories", async |page| {
        page.resize(PHONE).await;
        page.cdp("Emulation.setTouchEmulationEnabled", json!({ "enabled": true })).await;
        page.open(FITS).await;
        let at = point_at(page, 0.4, 0.5).await;
        mouse(page, "mousePressed", at, true).await;
        mouse(page, "mouseReleased", at, false).await;
        mouse(page, "mouseMoved", (1.0, 1.0), false).await;
        page.until("nothing is pointed at", "!document.querySelector('#chart').matches(':hover')").await;
        page.until("the details stay", DETAILS).await;
        assert!(page.text(".chart__details").await.contains("activations"));
        page.script("document.activeElement.blur()").await;
        page.until("the details are gone", &format!("!({DETAILS})")).await;
    });
}

#[test]
fn wheel_keys_double_click_and_two_fingers_move_the_view() {
    tell("wheel_keys_double_click_and_two_fingers_move_the_view", async |page| {
        page.open(FITS).await;
        let columns = "document.querySelector('.chart__drawing').viewBox.baseVal.width";
        let all: f64 = page.value(columns).await;
        let is_share = |share: f64| format!("Math.abs({columns} / {all} - {share}) < 0.02");
        let wheel = async |delta: (i32, i32), modifiers: u8| {
            let (x, y) = point_at(page, 0.5, 0.5).await;
            let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": delta.0, "deltaY": delta.1,
                "modifiers": modifiers });
            page.cdp("Input.dispatchMouseEvent", event).await;
        };
        // With the control key, which is also what a touchpad sends for a pinch.
        wheel((0, -240), 2).await;
        page.until("half is shown", &is_share(0.5)).await;
        let range = page.text("[data-testid=chart-range]").await;
        assert!(range.starts_with("In this part: ") && range.contains(" to "), "{range}");
        page.script("document.querySelector('#chart').focus()").await;
        page.press(&Key::Home).await;
        page.until("the middle half is shown", &format!("Math.abs({AT} / {all} - 0.25) < 0.02")).await;
        wheel((240, 0), 0).await;
        page.press(&Key::Home).await;
        page.until("a later half is shown", &format!("Math.abs({AT} / {all} - 0.375) < 0.02")).await;
        wheel((0, 240), 2).await;
        page.until("all is shown", &is_share(1.0)).await;
        assert_eq!(page.text("[data-testid=chart-range]").await, "");
        for (key, share) in [("w", 0.5), ("w", 0.25), ("a", 0.25), ("d", 0.25), ("s", 0.5), ("s", 1.0)] {
            page.press(key).await;
            page.until(&format!("{key} leads to {share}"), &is_share(share)).await;
        }
        let (x, y) = point_at(page, 0.9, 0.5).await;
        let double = || async {
            for (kind, count) in [("mousePressed", 1), ("mouseReleased", 1), ("mousePressed", 2), ("mouseReleased", 2)]
            {
                let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": count });
                page.cdp("Input.dispatchMouseEvent", event).await;
            }
        };
        double().await;
        page.until(
            "one phase is shown",
            &format!("document.querySelectorAll('.chart__ticks--phases > *').length === 1 && {columns} < {all}"),
        )
        .await;
        double().await;
        page.until("all is shown again", &is_share(1.0)).await;
        let touch = async |kind: &str, at: &[f64]| {
            let mut points = Vec::new();
            for (id, share) in at.iter().enumerate() {
                let (x, y) = point_at(page, *share, 0.5).await;
                points.push(json!({ "x": x, "y": y, "id": id }));
            }
            page.cdp("Input.dispatchTouchEvent", json!({ "type": kind, "touchPoints": points })).await;
        };
        touch("touchStart", &[0.4]).await;
        touch("touchStart", &[0.4, 0.6]).await;
        touch("touchMove", &[0.3, 0.7]).await;
        page.until("half is shown", &is_share(0.5)).await;
        touch("touchEnd", &[]).await;
        assert!(page.value::<bool>(&is_share(0.5)).await, "lifting the fingers keeps the view");
    });
}

#[test]
fn a_pinned_moment_travels_in_the_link() {
    tell("a_pinned_moment_travels_in_the_link", async |page| {
        page.open(FITS).await;
        let follows: i64 = page.value(AT).await;
        let (x, y) = point_at(page, 0.2, 0.5).await;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            mouse(page, kind, (x, y), kind == "mousePressed").await;
        }
        page.until("the address has it", "location.hash.includes('&pin=')").await;
        let (pinned, tensors): (i64, _) = (page.value(AT).await, page.numbers().await.tensors);
        assert_ne!(pinned, follows);
        page.click("#copy-link").await;
        page.until("the button says so", "document.querySelector('#copy-link').textContent.includes('Copied')").await;
        let link = page.clipboard().await;
        page.goto("about:blank").await;
        page.open_link(&link).await;
        page.until("it is pinned", &format!("{AT} === {pinned}")).await;
        assert_eq!(page.numbers().await.tensors, tensors);
        assert!(!page.value::<String>("document.querySelector('#config').value").await.contains("pin"));
        // The command line accepts the same link.
        page.click(".tensors .button--quiet").await;
        page.until("the link has none", "!location.hash.includes('pin')").await;
        assert_eq!(page.value::<i64>(AT).await, follows);
    });
}

#[test]
fn the_capacitys_label_leaves_the_failing_stretch_free() {
    tell("the_capacitys_label_leaves_the_failing_stretch_free", async |page| {
        for batch_size in [14, 16, 24, 32, 64] {
            page.open(&format!("1&batch_size={batch_size}&gpu=RTX%204070")).await;
            for size in [LAPTOP, PHONE, (844, 390), (1920, 1080)] {
                page.resize(size).await;
                // From the left end to the line, and above the line by a label's height.
                let covers: bool = page
                    .value(
                        "(() => { const box = (s) => document.querySelector(s).getBoundingClientRect();
                         const [card, line] = [box('.chart__card'), box('.chart__failure')];
                         const plot = box('#chart');
                         const from = line.left - plot.width * 0.12;
                         return card.right > from && card.left < line.right + 16; })()",
                    )
                    .await;
                assert!(!covers, "batch_size {batch_size} at {size:?}");
            }
        }
    });
}

/// The number of visible ticks without a label.
const UNLABELLED: &str = "[...document.querySelectorAll('.chart__tick span')].filter((tick) => {
    if (getComputedStyle(tick).display === 'none') return false;
    const before = getComputedStyle(tick, '::before').content;
    return !tick.textContent.trim() && (before === 'none' || before === '\"\"');
}).length";

#[test]
fn every_tick_has_a_label() {
    tell_unopened("every_tick_has_a_label", async |page| {
        for language in ["en", "de", "zh"] {
            page.open_link(&format!("{}calculator.html?lang={language}#{FITS}", page.address)).await;
            for size in [LAPTOP, PHONE, (1920, 1080)] {
                page.resize(size).await;
                assert_eq!(page.value::<u64>(UNLABELLED).await, 0, "{language} {size:?}");
            }
        }
    });
}

#[test]
fn a_phone_shows_the_run_and_leads_to_its_form() {
    tell("a_phone_shows_the_run_and_leads_to_its_form", async |page| {
        page.open(FAILS).await;
        for size in [(360, 740), (844, 390)] {
            page.resize(size).await;
            page.script("scrollTo(0, 0)").await;
            let row = page.text("#run-summary").await;
            assert!(row.contains("GPT-2 124M") && row.contains("64") && row.contains("RTX 4070"), "{row}");
            let bottom: f64 = page.value("document.querySelector('#run-summary').getBoundingClientRect().bottom").await;
            assert!(bottom <= f64::from(size.1), "{size:?}: {bottom}");
            page.click("#run-summary").await;
            let seen = "(() => { const box = document.querySelector('#gpu').getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight; })()";
            page.until("the GPU field is in sight", seen).await;
        }
        page.resize(LAPTOP).await;
        assert!(page.value::<bool>("document.querySelector('#run-summary').offsetParent === null").await);
    });
}

/// Whether the details cover the pointer's column.
const COVERS: &str = "(() => {
    const [box, cursor] = ['.chart__details', '.chart__cursor'].map((s) => document.querySelector(s).getBoundingClientRect());
    return box.height > 0 && box.left < cursor.left + 1 && box.right > cursor.left - 1 && box.top < cursor.bottom - 1; })()";

#[test]
fn details_never_cover_the_moment_under_the_pointer() {
    tell("details_never_cover_the_moment_under_the_pointer", async |page| {
        for (width, height) in [(1024, 768), (1280, 900), (1440, 900), (768, 1024), (390, 844)] {
            page.resize((width, height)).await;
            page.open(FITS).await;
            page.script("document.querySelector('#chart').scrollIntoView({ block: 'center' })").await;
            for x in [0.05, 0.3, 0.45, 0.49, 0.51, 0.55, 0.7, 0.95] {
                let at = point_at(page, x, 0.4).await;
                mouse(page, "mouseMoved", at, false).await;
                page.until("the details are there", DETAILS).await;
                let follows = format!(
                    "Math.abs(document.querySelector('.chart__cursor').getBoundingClientRect().left - {}) < 8",
                    at.0
                );
                page.until("the cursor follows", &follows).await;
                assert!(!page.value::<bool>(COVERS).await, "{width} px: covers {x}");
            }
        }
        page.resize((1280, 900)).await;
        page.open(FITS).await;
        // After a zoom, the details are those of the moment under the pointer.
        for (from, to) in [(0.2, 0.5), (0.3, 0.52)] {
            drag(page, from, to).await;
            let (x, _) = point_at(page, to, 0.5).await;
            let follows =
                format!("Math.abs(document.querySelector('.chart__cursor').getBoundingClientRect().left - {x}) < 40");
            page.until("the cursor is under the pointer", &follows).await;
            assert!(!page.value::<bool>(COVERS).await, "after a zoom to {to}");
            page.script("document.querySelector('#chart-reset').click()").await;
        }
        // The check detects a cover.
        page.script("document.querySelector('.chart__details').style.cssText = 'left: 0; width: 100%'").await;
        assert!(page.value::<bool>(COVERS).await);
    });
}
