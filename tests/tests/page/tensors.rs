//! The list of live tensors: search, groups and CSV.

use crate::{
    accessible::{schemes_in, violations},
    chart::{DETAILS, FAILS, FITS, mouse, point_at},
    environment::named,
    page::{LAPTOP, PHONE, Page, Size, tell, tell_unopened},
};
use fantoccini::key::Key;
use serde_json::json;
use std::fs;

/// Returns an expression for the rows of a list that a surrounding box cuts off.
fn cut(rows: &str) -> String {
    format!(
        "[...document.querySelectorAll('{rows}')].filter((row) => {{
            const box = row.getBoundingClientRect();
            for (let outer = row.parentElement; outer && !outer.matches('.budget__answer, main'); outer = outer.parentElement) {{
                const around = outer.getBoundingClientRect();
                if (getComputedStyle(outer).overflowY !== 'visible' && (box.top < around.top - 1 || box.bottom > around.bottom + 1)) return true;
            }}
            return false;
        }}).length"
    )
}

#[test]
fn tensors_are_shown_in_whole_rows_searched_and_exported() {
    tell("tensors_are_shown_in_whole_rows_searched_and_exported", async |page| {
        page.open(FAILS).await;
        let sizes: [Size; 6] = [(320, 640), PHONE, (844, 390), (1280, 720), LAPTOP, (1440, 900)];
        for size in sizes {
            page.resize(size).await;
            for rows in [".tensors__row", "#phases tr"] {
                assert_eq!(page.value::<u64>(&cut(rows)).await, 0, "{rows} at {size:?}");
            }
            if size.0 <= 420 {
                let shortened = "[...document.querySelectorAll('.tensors__row > *')].filter((part) => part.scrollWidth > part.clientWidth + 1).length";
                assert_eq!(page.value::<u64>(shortened).await, 0, "{size:?}");
            }
        }
        page.resize(LAPTOP).await;
        let n = "document.querySelectorAll('.tensors__row').length";
        let shown: u64 = page.value(n).await;
        let label = page.text("#tensors-all").await;
        page.click("#tensors-all").await;
        page.until("all are listed", &format!("{n} > {shown}")).await;
        let all: u64 = page.value(n).await;
        assert!(label.starts_with(&format!("Show all {all};")), "{label}");
        let sum: u64 =
            page.value("[...document.querySelectorAll('.tensors__row')].reduce((sum, row) => sum + Number(row.dataset.bytes), 0)").await;
        let total: String = page.value("document.querySelector('.tensors__total').title").await;
        assert_eq!(total.chars().filter(char::is_ascii_digit).collect::<String>(), sum.to_string());

        page.fill("#tensors-search", "WTE").await;
        page.until("one is found", &format!("{n} === 1")).await;
        assert_eq!(page.text(".tensors__name").await, "transformer.wte.weight");
        page.fill("#tensors-search", "no such tensor").await;
        page.until("none is found", "document.querySelector('.tensors__none')").await;
        page.fill("#tensors-search", "").await;
        // The CSV is created on a click, so that moving over the chart creates no files.
        page.script(
            "document.querySelector('#tensors-csv').addEventListener('click', (event) => event.preventDefault())",
        )
        .await;
        page.click("#tensors-csv").await;
        let csv: String = page.value("decodeURIComponent(document.querySelector('#tensors-csv').href)").await;
        let (_, csv) = csv.split_once("utf-8,").expect("an address with the text");
        let rows: Vec<Vec<String>> = csv.lines().map(cells).collect();
        assert_eq!(rows[0], ["name", "category", "layer", "module", "tensors", "shape", "dtype", "bytes"]);
        assert!(rows.iter().all(|row| row.len() == 8), "{csv}");
        let bytes: u64 = rows[1..].iter().map(|row| row[7].parse::<u64>().expect("bytes")).sum();
        assert_eq!(bytes, sum);
        let of = |name: &str| rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {csv}"));
        let wte = ["parameters", "", "transformer.wte", "1", "(50304, 768)", "float32", "154533888"];
        assert_eq!(of("transformer.wte.weight")[1..], wte);
        // One row for each layer.
        let weight = of("transformer.h.3.mlp.c_fc.weight");
        assert_eq!(weight[1..5], ["parameters", "3", "transformer.h.3.mlp", "1"]);
    });
}

/// Splits a line of CSV.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for char in line.chars() {
        match char {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            char => cells.last_mut().expect("a cell").push(char),
        }
    }
    cells
}

/// The names and the bytes of the groups.
async fn groups(page: &Page) -> Vec<(String, u64)> {
    let read =
        "[...document.querySelectorAll('#tensors summary')].map((s) => [s.dataset.group, Number(s.dataset.bytes)])";
    page.value(read).await
}

#[test]
fn tensors_are_grouped_by_layer_category_and_module() {
    tell("tensors_are_grouped_by_layer_category_and_module", async |page| {
        page.open(FITS).await;
        let total: String = page.value("document.querySelector('.tensors__total').title").await;
        let total: u64 = total.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("bytes");
        let choose = async |grouping: &str| {
            let select = format!("document.querySelector('#tensors-group').value = '{grouping}'");
            page.script(&format!(
                "{select}; document.querySelector('#tensors-group').dispatchEvent(new Event('change'))"
            ))
            .await;
        };
        page.click("#tensors-all").await;
        for grouping in ["layer", "category", "module"] {
            choose(grouping).await;
            let groups = groups(page).await;
            assert_eq!(groups.iter().map(|group| group.1).sum::<u64>(), total, "{grouping}: {groups:?}");
            let names: Vec<&str> = groups.iter().map(|group| group.0.as_str()).collect();
            match grouping {
                "layer" => {
                    assert_eq!(names[..3], ["Outside of the layers", "Layer 0", "Layer 1"]);
                    assert_eq!(names.len(), 13);
                }
                "category" => assert!(groups.is_sorted_by(|one, next| one.1 >= next.1), "{groups:?}"),
                _ => {
                    for name in ["transformer.h.3.attn", "transformer.wte", "lm_head"] {
                        assert!(names.contains(&name), "{name}: {names:?}");
                    }
                }
            }
        }
        // A group has its number of tensors and its share, and opens to its tensors.
        let module = "#tensors details:has([data-group='transformer.h.3.attn'])";
        let row = page.text(&format!("{module} summary")).await;
        assert!(row.contains("tensors") && row.contains(" %") && row.contains("MiB"), "{row}");
        page.script(&format!("document.querySelector(\"{module} summary\").focus()")).await;
        page.press(&Key::Enter).await;
        let rows =
            |part: &str| format!("[...document.querySelectorAll(\"{module} .tensors__row:not(summary)\")]{part}");
        page.until("it is open", &format!("{} > 3", rows(".length"))).await;
        let sums = format!(
            "{} === Number(document.querySelector(\"{module} summary\").dataset.bytes)",
            rows(".reduce((sum, row) => sum + Number(row.dataset.bytes), 0)")
        );
        assert!(page.value::<bool>(&sums).await, "the tensors add up to the group");
        assert!(
            page.value::<bool>(&rows(".some((row) => row.textContent.includes('transformer.h.3.attn.c_attn.weight'))"))
                .await
        );
        // Another moment keeps the group open, and the focus on it.
        let is_open = format!(
            "document.querySelector(\"{module}\").open && document.activeElement.dataset.group === 'transformer.h.3.attn'"
        );
        let before: u64 = page.value("Number(document.querySelector('#tensors summary').dataset.bytes)").await;
        mouse(page, "mouseMoved", point_at(page, 0.05, 0.5).await, false).await;
        page.until(
            "another moment is listed",
            &format!("Number(document.querySelector('#tensors summary').dataset.bytes) !== {before}"),
        )
        .await;
        assert!(page.value::<bool>(&is_open).await);
        mouse(page, "mouseMoved", (1.0, 1.0), false).await;
        // The search is for names of tensors, and for names of groups.
        page.fill("#tensors-search", "h.3.ATTN").await;
        page.until("one group is found", "document.querySelectorAll('#tensors summary').length === 1").await;
        page.fill("#tensors-search", "c_fc.weight").await;
        page.until("the layers are found", "document.querySelectorAll('#tensors summary').length === 12").await;
        choose("layer").await;
        let found = groups(page).await;
        assert!(found.len() == 12 && found.iter().all(|group| group.0.starts_with("Layer ")), "{found:?}");
        page.fill("#tensors-search", "layer 3").await;
        page.until("one layer is found", "document.querySelectorAll('#tensors summary').length === 1").await;
        // Without groups, the search finds a single layer in the rows of several.
        choose("none").await;
        page.fill("#tensors-search", "h.3.mlp.c_fc.weight").await;
        page.until("its tensors are found", "document.querySelector('#tensors .tensors__name')").await;
        let names = "[...document.querySelectorAll('#tensors .tensors__name')].map((name) => name.textContent)";
        let names: Vec<String> = page.value(names).await;
        assert!(names.iter().any(|name| name == "transformer.h.3.mlp.c_fc.weight"), "{names:?}");
        assert!(names.iter().all(|name| name.contains("h.3.mlp.c_fc.weight")), "{names:?}");
    });
}

#[test]
fn grouped_tensors_are_accessible_and_fit_every_width() {
    let name = "grouped_tensors_are_accessible_and_fit_every_width";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        for language in ["en", "de", "ja", "zh"] {
            page.open_link(&format!("{}calculator.html?lang={language}#{FITS}", page.address)).await;
            page.script(&axe).await;
            page.script("const group = document.querySelector('#tensors-group'); group.value = 'module'; group.dispatchEvent(new Event('change'))").await;
            page.click("#tensors summary").await;
            page.until(
                "a group is open",
                "document.querySelector('#tensors details[open] .tensors__row:not(summary)')",
            )
            .await;
            for size in [(320, 640), PHONE, LAPTOP] {
                page.resize(size).await;
                let beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
                assert_eq!(page.value::<i64>(beyond).await, 0, "{language}, {size:?}");
                for (scheme, rules) in schemes_in(language) {
                    page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
                    assert_eq!(violations(page, *rules).await, Vec::<String>::new(), "{language}, {size:?}, {scheme}");
                }
            }
        }
    });
}

/// The list formats its sums itself. The box at the pointer has the program's sizes.
#[test]
fn sizes_of_the_list_are_those_of_the_program() {
    tell_unopened("sizes_of_the_list_are_those_of_the_program", async |page| {
        for language in ["en", "de", "ja", "zh"] {
            for run in ["1&batch_size=1&n_layer=2&n_embd=640&n_head=10&vocab_size=65&gpu=RTX%204070", FITS] {
                page.goto("about:blank").await;
                page.open_link(&format!("{}calculator.html?lang={language}#{run}", page.address)).await;
                for x in [0.02, 0.3, 0.6] {
                    mouse(page, "mouseMoved", point_at(page, x, 0.5).await, false).await;
                    page.until("the details are shown", DETAILS).await;
                    let read = |list: &str, name: &str, size: &str| {
                        format!("[...document.querySelectorAll('{list}')].slice(0, 3)
                        .map((row) => [row.querySelector('{name}').textContent, row.querySelector('{size}').textContent])")
                    };
                    let boxed: Vec<(String, String)> =
                        page.value(&read(".chart__details ul:last-of-type li", "code", "span")).await;
                    let listed: Vec<(String, String)> =
                        page.value(&read("#tensors li", ".tensors__name", ".tensors__bytes")).await;
                    assert_eq!(listed, boxed, "{language}, {run}, {x}");
                }
                let total: (String, String) = page.value("(() => {
                    const group = document.querySelector('#tensors-group');
                    group.value = 'category';
                    group.dispatchEvent(new Event('change'));
                    document.querySelector('#tensors-all').click();
                    const boxed = Object.fromEntries([...document.querySelectorAll('.chart__details ul:first-of-type li')]
                        .map((row) => [...row.querySelectorAll('span')].map((part) => part.textContent)));
                    const listed = Object.fromEntries([...document.querySelectorAll('#tensors summary')]
                        .map((row) => [row.dataset.group, row.querySelector('.tensors__bytes').textContent]));
                    const sorted = (sizes) => JSON.stringify(Object.entries(sizes).sort());
                    return [sorted(boxed), sorted(listed)];
                })()").await;
                assert_eq!(total.0, total.1, "{language}, {run}");
                assert!(total.0.len() > 100, "{}", total.0);
            }
        }
    });
}

#[test]
fn a_part_that_does_not_load_is_reported() {
    tell("a_part_that_does_not_load_is_reported", async |page| {
        page.cdp("Network.enable", json!({})).await;
        page.cdp("Network.setBlockedURLs", json!({ "urls": ["*/tensors.js*", "*/export.js*"] })).await;
        // Another document, for which nothing is loaded.
        page.goto("about:blank").await;
        page.open(FITS).await;
        let alert = |place: &str| format!("document.querySelector('{place} > [role=alert]')?.textContent ?? ''");
        page.until("the list is missing", &format!("({}).includes('did not load')", alert("#tensors-body"))).await;
        // A press on Export shows one sentence, and the next one tries again.
        for _ in 0..2 {
            page.click("#export").await;
            let n = "document.querySelectorAll('.verdict__actions > [role=alert]').length === 1";
            page.until(
                "the dialog is missing",
                &format!("({}).includes('did not load') && {n}", alert(".verdict__actions")),
            )
            .await;
        }
        page.cdp("Network.setBlockedURLs", json!({ "urls": [] })).await;
        page.click("#export").await;
        page.until("the dialog is shown", "document.querySelector('#export-dialog[open]')").await;
        assert!(page.value::<bool>("!document.querySelector('.verdict__actions > [role=alert]')").await);
    });
}
