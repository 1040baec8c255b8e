//! The page that compares two runs.

use crate::{
    accessible::{schemes_in, violations},
    chart::{mouse, point_at},
    environment::named,
    page::{LAPTOP, PHONE, Page, tell, tell_unopened},
};
use fantoccini::key::Key;
use std::fs;

const HEADLINE: &str = "document.querySelector('[data-testid=compare-headline]').textContent.trim()";
const OFFERED: &str = "document.querySelector('.fixes:not(.stale) [data-fix=micro_batch]')";
/// A run that fails beside one that fits.
const BOTH: &str = "1&batch_size=64&gpu=RTX%204070&against=1%26batch_size%3D4%26gpu%3DRTX%25204070";

async fn open(page: &Page, fragment: &str) {
    page.goto("about:blank").await;
    page.goto(&format!("{}compare.html#{fragment}", page.address)).await;
    page.until("both runs are shown", "document.querySelector('.compare__tile[data-run=changed]')").await;
}

/// The texts of the tile of a run, and of all tables.
async fn tile(page: &Page, run: &str) -> String {
    page.text(&format!(".compare__tile[data-run={run}]")).await
}

/// The boxes of all elements with a selector: left, top, right and bottom.
fn boxes(selector: &str) -> String {
    format!(
        "[...document.querySelectorAll('{selector}')].map((element) => {{
            const box = element.getBoundingClientRect();
            return [box.left, box.top, box.right, box.bottom]; }})"
    )
}

async fn shown(page: &Page) -> Vec<String> {
    let mut all = vec![page.value::<String>(HEADLINE).await];
    for selector in [".compare__tiles", "[data-testid=compare-categories]", "[data-testid=compare-phases]"] {
        all.push(page.text(selector).await);
    }
    all.push(page.value("document.querySelector('.compare__line').getAttribute('d')").await);
    all
}

#[test]
fn comparison_pins_the_calculators_run_and_follows_a_change() {
    tell("comparison_pins_the_calculators_run_and_follows_a_change", async |page| {
        page.open("1&gpu=RTX%204070").await;
        page.paste("#config", "batch_size = 4  # mine\n").await;
        page.until("it is read", "document.querySelector('#batch_size').value === '4'").await;
        let pinned = page.text("#verdict > span:last-child").await;
        page.click(".header__pages [href*='compare.html']").await;
        page.until("both runs are the same", &format!("{HEADLINE} === 'Both runs are the same'")).await;
        page.fill("#batch_size", "64").await;
        page.until("the runs differ", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, "batch_size = 64  # mine\n");
        let rows: Vec<String> = page
            .value("[...document.querySelectorAll('[data-testid=compare-settings] tbody tr')].map((row) => row.dataset.setting)")
            .await;
        assert_eq!(rows, ["batch_size"]);
        page.until(
            "the address has both",
            "location.hash.includes('batch_size=64') && location.hash.includes('&against=1%26batch_size%3D4')",
        )
        .await;
        // Each tile has the verdict and the memory of the calculator.
        let (verdicts, before) =
            ([".compare__tile[data-run=pinned]", ".compare__tile[data-run=changed]"], shown(page).await);
        let mut said = Vec::new();
        for verdict in verdicts {
            said.push(page.text(&format!("{verdict} .compare__verdict")).await);
        }
        assert!(pinned.starts_with(&said[0]), "{pinned:?} is not {:?}", said[0]);
        let used = "[...document.querySelectorAll('[data-testid=compare-categories] tr:last-child td')].map((cell) => cell.dataset.bytes)";
        let used: Vec<String> = page.value(used).await;
        assert_eq!(
            used[1].parse::<i64>().expect("bytes") - used[0].parse::<i64>().expect("bytes"),
            used[2].parse::<i64>().expect("bytes")
        );
        let link: String = page.value("location.href").await;
        for (run, fragment) in ["1&batch_size=4&gpu=RTX%204070", "1&batch_size=64&gpu=RTX%204070"].iter().enumerate() {
            page.open(fragment).await;
            assert!(page.text("#verdict").await.starts_with(&said[run]), "{:?}", said[run]);
            let title: String = page.value("document.querySelectorAll('.figures__figure')[2].title.replace(/\\D+bytes.*/, '').replaceAll(',', '')").await;
            assert_eq!(title, used[run]);
        }
        // Another tab has neither the history nor the stored text.
        page.script("sessionStorage.clear()").await;
        page.goto("about:blank").await;
        page.goto(&link).await;
        page.until("it is the same", &format!("{HEADLINE} === {:?}", before[0])).await;
        assert_eq!(shown(page).await, before);
    });
}

#[test]
fn runs_are_swapped_pinned_and_changed_back_and_back_undoes_it() {
    tell_unopened("runs_are_swapped_pinned_and_changed_back_and_back_undoes_it", async |page| {
        open(page, BOTH).await;
        let [pinned, changed] = [tile(page, "pinned").await, tile(page, "changed").await];
        page.click("#compare-swap").await;
        page.until("the headline turns", &format!("{HEADLINE}.endsWith('less and fits')")).await;
        let figures = |text: &str| text.trim_start_matches("Pinned").trim_start_matches("Changed").to_owned();
        assert_eq!(figures(&tile(page, "pinned").await), figures(&changed));
        assert_eq!(figures(&tile(page, "changed").await), figures(&pinned));
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "4");
        page.until("the address follows", "location.hash.startsWith('#1&batch_size=4&')").await;
        page.back().await;
        page.until("it is undone", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        assert_eq!([tile(page, "pinned").await, tile(page, "changed").await], [pinned.clone(), changed.clone()]);
        page.forward().await;
        page.until("it is done again", &format!("{HEADLINE}.endsWith('less and fits')")).await;
        page.back().await;
        page.until("it is undone", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        page.click("#compare-pin").await;
        page.until("both are the same", &format!("{HEADLINE} === 'Both runs are the same'")).await;
        assert_eq!(figures(&tile(page, "pinned").await), figures(&changed));
        page.back().await;
        page.until("it is undone", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        page.click("#compare-back").await;
        page.until("both are the same", &format!("{HEADLINE} === 'Both runs are the same'")).await;
        assert_eq!(figures(&tile(page, "changed").await), figures(&pinned));
    });
}

#[test]
fn two_gpus_are_compared_with_both_limits() {
    tell_unopened("two_gpus_are_compared_with_both_limits", async |page| {
        open(page, "1&batch_size=12&gpu=RTX%204070").await;
        page.choose_gpu("GeForce RTX 4090").await;
        page.until("the GPUs differ", &format!("{HEADLINE}.endsWith('and fits')")).await;
        let limits: Vec<String> = page
            .value("[...document.querySelectorAll('.compare__limit')].map((limit) => limit.textContent.trim())")
            .await;
        assert_eq!(limits.len(), 2, "{limits:?}");
        assert!(limits[0].starts_with("Pinned 11.") && limits[1].starts_with("Changed 23."), "{limits:?}");
        assert!(page.text("[data-testid=compare-settings]").await.contains("RTX 4090"));
        // Labels of close limits are below each other, and those of failures below the drawing.
        for size in [LAPTOP, PHONE] {
            page.resize(size).await;
            open(page, "1&batch_size=64&gpu=RTX%203060%2012GB&against=1%26batch_size%3D32%26gpu%3DRTX%25204070").await;
            let [pinned, changed]: [[f64; 4]; 2] = page.value(&boxes(".compare__limit")).await;
            let is_apart = pinned[3] <= changed[1] + 1.0 || pinned[2] <= changed[0] || changed[2] <= pinned[0];
            assert!(is_apart, "{size:?}: {pinned:?} covers {changed:?}");
            let failures: Vec<[f64; 4]> = page.value(&boxes("[data-testid=compare-failure] strong")).await;
            let plot: Vec<[f64; 4]> = page.value(&boxes(".compare__plot")).await;
            assert_eq!(failures.len(), 2);
            for failure in failures {
                let is_inside = failure[0] >= plot[0][0] && failure[2] <= plot[0][2] + 1.0;
                assert!(is_inside && failure[1] >= plot[0][3] - 1.0, "{size:?}: {failure:?} in {plot:?}");
            }
        }
        page.resize(LAPTOP).await;
        open(page, "1&batch_size=12&gpu=RTX%204090&against=1%26batch_size%3D12%26gpu%3DRTX%25204070").await;
        // While no GPU is chosen, there is no comparison.
        page.fill("#gpu", "RTX").await;
        page.until("no GPU is chosen", &format!("{HEADLINE}.includes('choose a GPU')")).await;
        page.press(&char::from(Key::Escape).to_string()).await;
        page.until("it is back", &format!("{HEADLINE}.endsWith('and fits')")).await;
    });
}

#[test]
fn focus_on_a_fix_previews_it_and_applying_keeps_it() {
    tell_unopened("focus_on_a_fix_previews_it_and_applying_keeps_it", async |page| {
        open(page, "1&batch_size=64&gpu=RTX%204070").await;
        page.until("fixes are offered", OFFERED).await;
        let address: String = page.value("location.href").await;
        let (before, n_entries) = (shown(page).await, page.value::<u64>("history.length").await);
        let top = "document.querySelector('[data-fix=micro_batch]').getBoundingClientRect().top + scrollY";
        let place: f64 = page.value(top).await;
        let is_preview = "document.querySelector('[data-testid=compare-headline]').dataset.preview === 'true'";
        page.script("document.querySelector('[data-fix=micro_batch] button').focus()").await;
        page.until("it is previewed", is_preview).await;
        assert!(page.value::<String>(HEADLINE).await.ends_with("less and fits"));
        assert!(tile(page, "changed").await.starts_with("Preview: batch_size = "));
        assert_eq!(page.value::<f64>(top).await, place, "the fix stays under the pointer");
        let previewed = shown(page).await;
        assert_ne!(previewed, before);
        assert_eq!(page.value::<String>("location.href").await, address);
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
        // The next control is another fix, and the field after that is not one.
        page.press(&char::from(Key::Tab).to_string()).await;
        page.until("the next one is previewed", &format!("{is_preview} && {HEADLINE} !== {:?}", "")).await;
        page.script("document.querySelector('#batch_size').focus()").await;
        page.until("the preview ends", &format!("!({is_preview})")).await;
        assert_eq!(shown(page).await, before);
        page.script("document.querySelector('[data-fix=micro_batch]').dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))").await;
        page.until("the pointer previews it", is_preview).await;
        page.script("document.querySelector('#fixes').dispatchEvent(new PointerEvent('pointerleave'))").await;
        page.until("the preview ends", &format!("!({is_preview})")).await;
        assert_eq!(page.value::<u64>("history.length").await, n_entries);
        page.script("document.querySelector('[data-fix=micro_batch] button').focus()").await;
        page.until("it is previewed", is_preview).await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until("it is applied", &format!("!({is_preview}) && {HEADLINE}.endsWith('less and fits')")).await;
        page.until("the address follows", "location.hash.includes('&against=1%26batch_size%3D64')").await;
        assert_eq!(shown(page).await[2..], previewed[2..]);
        page.back().await;
        page.until("it is undone", &format!("{HEADLINE} === 'Both runs are the same'")).await;
    });
}

#[test]
fn runs_of_other_trainers_are_compared_and_a_fix_is_kept() {
    const FIX: &str = "document.querySelector('.fixes:not(.stale) [data-fix=micro_batch] button')";
    tell_unopened("runs_of_other_trainers_are_compared_and_a_fix_is_kept", async |page| {
        let run = "1&trainer=nanochat&options=--compile%3DFalse%20--depth%3D8%20--device-batch-size%3D2&gpu=RTX%204070";
        page.goto(&format!("{}trainers.html#{run}", page.address)).await;
        page.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
        let verdict = page.text("#verdict > span:last-child").await;
        page.click(".header__pages [href*='compare.html']").await;
        page.until("both runs are the same", &format!("{HEADLINE} === 'Both runs are the same'")).await;
        assert!(verdict.starts_with(&page.text("[data-run=pinned] .compare__verdict").await), "{verdict}");
        page.fill("#device-batch-size", "16").await;
        page.until("the runs differ", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        assert!(page.text("[data-testid=compare-settings]").await.contains("device-batch-size"));
        let both = "device-batch-size%3D16') && location.hash.includes('&against=1%26trainer%3Dnanochat";
        page.until("the address has both", &format!("location.hash.includes('{both}')")).await;
        // A fix of the changed run is previewed, applied and undone.
        page.until("fixes are offered", FIX).await;
        let before = shown(page).await;
        page.script(&format!("{FIX}.focus()")).await;
        page.until("it is previewed", &format!("{HEADLINE}.endsWith('more and fits')")).await;
        let previewed = shown(page).await;
        page.script("document.querySelector('#depth').focus()").await;
        page.until("the preview ends", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        assert_eq!(shown(page).await, before);
        page.script(&format!("{FIX}.click()")).await;
        page.until("it is applied", &format!("{HEADLINE} === {:?}", previewed[0])).await;
        assert_eq!(shown(page).await[2..], previewed[2..]);
        page.click("#undo").await;
        page.until("it is undone", &format!("{HEADLINE} === {:?}", before[0])).await;
        assert_eq!(shown(page).await, before);
        // Another tab shows the same. The calculator opens the changed run.
        let link: String = page.value("location.href").await;
        page.script("sessionStorage.clear()").await;
        page.goto("about:blank").await;
        page.goto(&link).await;
        page.until("it is the same", &format!("{HEADLINE} === {:?}", before[0])).await;
        assert_eq!(shown(page).await, before);
        page.click(".header__pages [href*='trainers.html']").await;
        page.until("the calculator is there", "document.querySelector('#device-batch-size')?.value === '16'").await;
        page.until("the verdict is there", "document.querySelector('.verdict').dataset.outcome === 'fails'").await;
        assert!(page.value::<bool>("document.querySelector('#notice') === null").await);
        // A link of nanoGPT in the same window shows its form.
        page.goto(&link).await;
        page.until("both runs are shown", "document.querySelector('#device-batch-size')").await;
        page.script(&format!("location.hash = '{BOTH}'")).await;
        page.until("nanoGPT is shown", "document.querySelector('#batch_size')?.value === '64'").await;
    });
}

#[test]
fn other_pages_open_a_comparison_with_the_changed_run() {
    tell("other_pages_open_a_comparison_with_the_changed_run", async |page| {
        page.open(BOTH).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
        assert!(page.value::<bool>("document.querySelector('#notice') === null").await);
        for (name, shown) in [("gpus.html", "#config"), ("embed.html", "#snippet"), ("diagnose.html", "#config")] {
            page.goto("about:blank").await;
            page.goto(&format!("{}{name}#{BOTH}", page.address)).await;
            page.until("the page is there", &format!("document.querySelector('{shown}')")).await;
            let text: String = page.value("document.querySelector('#config').value").await;
            assert_eq!(text, "batch_size = 64\n", "{name}");
            assert!(page.value::<bool>("document.querySelector('#notice') === null").await, "{name}");
        }
    });
}

#[test]
fn comparison_is_accessible_and_fits_every_width() {
    let name = "comparison_is_accessible_and_fits_every_width";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        for language in ["en", "de", "ja", "zh"] {
            page.goto("about:blank").await;
            page.goto(&format!("{}compare.html?lang={language}#{BOTH}", page.address)).await;
            page.until("fixes are offered", "document.querySelector('.fixes:not(.stale)')").await;
            page.script(&axe).await;
            for size in [(320, 700), PHONE, (820, 1180), (1040, 768), (1100, 768), (1240, 768), LAPTOP, (1920, 1080)] {
                page.resize(size).await;
                let beyond: i64 =
                    page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
                assert!(beyond <= 0, "{language}, {size:?}: {beyond} px too wide");
                // Scrolling within the page would hide figures; a text area and code scroll by themselves.
                let inner: Vec<String> = page
                    .value(
                        "[...document.querySelectorAll('main *:not(textarea, pre, select, input)')].filter((e) => e.scrollWidth > e.clientWidth + 1
                           && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)).map((e) => e.className)",
                    )
                    .await;
                assert_eq!(inner, Vec::<String>::new(), "{language}, {size:?}");
                for (scheme, rules) in schemes_in(language) {
                    page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
                    assert_eq!(violations(page, *rules).await, Vec::<String>::new(), "{language}, {size:?}, {scheme}");
                }
            }
        }
    });
}

const DETAILS: &str = "document.querySelector('[data-testid=compare-details] caption')?.textContent";

/// The bytes of a table's rows: pinned, changed, and their difference.
async fn details(page: &Page) -> Vec<Vec<Option<i64>>> {
    let read = "[...document.querySelectorAll('[data-testid=compare-details] tbody:first-of-type tr')]
        .map((row) => [...row.querySelectorAll('td')].map((cell) => cell.dataset.bytes ? Number(cell.dataset.bytes) : null))";
    page.value(read).await
}

#[test]
fn a_moment_of_both_runs_is_shown_by_pointer_and_keyboard() {
    tell_unopened("a_moment_of_both_runs_is_shown_by_pointer_and_keyboard", async |page| {
        open(page, BOTH).await;
        assert!(page.value::<bool>(&format!("!({DETAILS})")).await, "no moment is selected");
        for size in [LAPTOP, PHONE] {
            page.resize(size).await;
            for x in [0.3, 0.6, 0.95] {
                mouse(page, "mouseMoved", point_at(page, x, 0.5).await, false).await;
                page.until("the details are shown", DETAILS).await;
                let rows = details(page).await;
                let (total, categories) = rows.split_last().expect("rows");
                assert!(categories.len() >= 4, "{rows:?}");
                for run in [0, 1, 2] {
                    let sum: i64 = categories.iter().filter_map(|row| row[run]).sum();
                    assert_eq!(Some(sum), total[run], "{rows:?}");
                }
                let tensors = "document.querySelectorAll('.compare__tensors tr').length";
                assert_eq!(page.value::<u64>(tensors).await, 4, "a title and three tensors");
                // The box does not cover the moment that it describes.
                let box_and_line = "['[data-testid=compare-details]', '.compare__cursor'].map((selector) => {
                    const box = document.querySelector(selector).getBoundingClientRect();
                    return [box.left, box.top, box.right, box.bottom];
                })";
                let [[left, top, right, bottom], line]: [[f64; 4]; 2] = page.value(box_and_line).await;
                let is_beside = right <= line[0] || left >= line[2] || top >= line[3] || bottom <= line[1];
                assert!(is_beside && left >= 0.0 && right <= f64::from(size.0), "{size:?}, {x}");
            }
            mouse(page, "mouseMoved", (1.0, 1.0), false).await;
            page.until("the details are gone", &format!("!({DETAILS})")).await;
        }
        // The keyboard works too, and a screen reader announces the value.
        page.script("document.querySelector('#chart').focus()").await;
        page.press(&Key::Home).await;
        page.until("the start is shown", &format!("{DETAILS} === 'init'")).await;
        page.press(&Key::PageDown).await;
        page.until("the next phase is shown", &format!("{DETAILS} === 'eval, first batch'")).await;
        let said: String = page.value("document.querySelector('#chart').ariaValueText").await;
        assert!(
            said.starts_with("eval, first batch") && said.contains("activations") && said.contains(" → "),
            "{said}"
        );
        page.press(&Key::Escape).await;
        page.until("the details are gone", &format!("!({DETAILS})")).await;
        // A touch keeps the moment until another place is touched.
        mouse(page, "mousePressed", point_at(page, 0.4, 0.5).await, true).await;
        mouse(page, "mouseReleased", point_at(page, 0.4, 0.5).await, false).await;
        mouse(page, "mouseMoved", (1.0, 1.0), false).await;
        page.until("the details stay", DETAILS).await;
        page.script("document.activeElement.blur()").await;
        page.until("the details are gone", &format!("!({DETAILS})")).await;
    });
}

#[test]
fn a_phase_of_one_run_is_marked_and_not_drawn_as_zero() {
    tell_unopened("a_phase_of_one_run_is_marked_and_not_drawn_as_zero", async |page| {
        open(page, "1&gradient_accumulation_steps=1&gpu=RTX%204070&against=1%26gpu%3DRTX%25204070").await;
        let marks = "document.querySelectorAll('.compare__absent').length";
        assert!(page.value::<u64>(marks).await > 0);
        assert!(page.text(".compare__legend").await.contains("One run lacks this phase"));
        let x = "(() => { const [mark, plot] = ['.compare__absent', '#chart'].map((s) => document.querySelector(s).getBoundingClientRect());
            return (mark.left + mark.width / 2 - plot.left) / plot.width; })()";
        let x: f64 = page.value(x).await;
        mouse(page, "mouseMoved", point_at(page, x, 0.5).await, false).await;
        page.until("the details are shown", DETAILS).await;
        let rows = details(page).await;
        assert!(rows.iter().all(|row| row[0].is_some() && row[1].is_none() && row[2].is_none()), "{rows:?}");
        open(page, BOTH).await;
        assert_eq!(page.value::<u64>(marks).await, 0, "both runs repeat their micro-steps");
    });
}

#[test]
fn pinned_run_and_its_comments_stay_in_other_pages_and_languages() {
    tell("pinned_run_and_its_comments_stay_in_other_pages_and_languages", async |page| {
        page.open("1&gpu=RTX%204070").await;
        page.paste("#config", "batch_size = 4  # mine\n").await;
        page.until("it is read", "document.querySelector('#batch_size').value === '4'").await;
        page.click(".header__pages [href*='compare.html']").await;
        page.until("both runs are the same", &format!("{HEADLINE} === 'Both runs are the same'")).await;
        page.fill("#batch_size", "64").await;
        page.until("the runs differ", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
        let tiles = [tile(page, "pinned").await, tile(page, "changed").await];
        for (other, there) in
            [("calculator.html", "#verdict[data-fits]"), ("demo.html", "#write"), ("gpus.html", "[data-testid=gpus]")]
        {
            page.click(&format!(".header__pages [href*='{other}']")).await;
            page.until("the page is there", &format!("document.querySelector('{there}')")).await;
            page.click(".header__pages [href*='compare.html']").await;
            page.until("both runs are shown", "document.querySelector('.compare__tile[data-run=changed]')").await;
            page.until("the runs differ", &format!("{HEADLINE}.endsWith('more and does not fit')")).await;
            assert_eq!([tile(page, "pinned").await, tile(page, "changed").await], tiles, "{other}");
        }
        // The changed run of the calculator is compared with the pinned one.
        page.click(".header__pages [href*='calculator.html']").await;
        page.until("the calculator is there", "document.querySelector('#verdict[data-fits]')").await;
        page.fill("#batch_size", "8").await;
        page.until("it is changed", "location.hash.includes('batch_size=8')").await;
        page.click(".header__pages [href*='compare.html']").await;
        page.until(
            "the pinned run stays",
            "document.querySelector('[data-testid=compare-settings]')?.textContent.includes('48')",
        )
        .await;
        page.script("const list = document.querySelector('#language'); list.value = 'de'; list.dispatchEvent(new Event('change'))").await;
        page.until(
            "the page is in German",
            "document.documentElement.lang === 'de' && document.querySelector('#compare-swap')",
        )
        .await;
        page.click("#compare-swap").await;
        page.until("the comment is kept", "document.querySelector('#config').value === 'batch_size = 4  # mine\\n'")
            .await;
        page.script("sessionStorage.clear(); localStorage.clear()").await;
    });
}
