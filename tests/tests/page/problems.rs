//! Problems of the input are shown with their place. A run that stops, or a field that is invalid, has no plan.

use crate::{
    TRAIN_GPT2,
    numbers::assert_same,
    page::{Page, tell},
};
use fantoccini::key::Key;
use std::{fs, path::PathBuf};

#[test]
fn a_line_that_cannot_be_evaluated_is_named_and_gives_no_plan() {
    tell("a_line_that_cannot_be_evaluated_is_named", async |page| {
        let config = "batch_size = 4\ncompile = False\nblock_size = int(open('block.txt').read())\nn_layer = 6\n";
        page.paste("#config", config).await;
        page.until(
            "the place is shown",
            "document.querySelector('#problems .problems__place')?.textContent === '3:18'",
        )
        .await;
        let problem = page.text("#problems").await;
        assert!(problem.contains("block_size"), "{problem}");
        for (id, value) in [("batch_size", "4"), ("n_layer", "6"), ("block_size", "1024")] {
            assert_eq!(page.value::<String>(&format!("document.getElementById('{id}').value")).await, value, "{id}");
        }
        assert_eq!(page.text("#verdict").await, "No plan: block_size cannot be read");

        // The link selects the place.
        page.click("#problems .problems__place").await;
        let selected =
            "document.getElementById('config').value.slice(0, document.getElementById('config').selectionStart)";
        let before: String = page.value(selected).await;
        assert_eq!(before, config[..config.find("open(").expect("it is there")], "the text area shows the place");
    });
}

#[test]
fn fields_keep_what_they_do_not_take_and_say_so() {
    tell("fields_keep_what_they_do_not_take", async |page| {
        for (field, label, typed, valid) in [
            ("other-processes", "Other programs, GiB", "abc", "0"),
            ("other-processes", "Other programs, GiB", "-1", "0"),
            ("other-processes", "Other programs, GiB", "1,024", "1"),
            ("batch_size", "batch_size", "8.5", "8"),
            ("batch_size", "batch_size", "-3", "12"),
            ("batch_size", "batch_size", "1e99", "12"),
            ("dropout", "dropout", "5", "0.5"),
            ("eval_iters", "eval_iters", "x", "200"),
            ("eval_interval", "eval_interval", "0", "1000"),
            ("world_size", "Processes (DDP)", "0", "1"),
            ("torch", "PyTorch", "latest", "2.11"),
            ("context", "CUDA context, MiB", "much", "480"),
        ] {
            page.open("").await;
            page.value::<bool>("(document.querySelector('#more').open = true)").await;
            page.fill(&format!("#{field}"), typed).await;
            let input = format!("document.getElementById('{field}')");
            page.until("the field is marked", &format!("{input}.ariaInvalid === 'true'")).await;
            page.press(&Key::Tab).await;
            assert_eq!(page.value::<String>(&format!("{input}.value")).await, typed, "{field} loses {typed}");
            let reason = page.text(&format!("#{field}-fault")).await;
            assert!(reason.starts_with("Expected "), "{field} shows {reason:?} for {typed}");
            // The reason is visible beside the field, and no verdict of the value before is left.
            let fault = format!("document.getElementById('{field}-fault')");
            assert_eq!(page.value::<String>(&format!("getComputedStyle({fault}).opacity")).await, "1", "{field}");
            assert_eq!(page.text("#verdict").await, format!("No plan: {label} cannot be read"));
            assert_eq!(page.text("#verdict-detail").await, reason);
            let outcome = "document.querySelector('.verdict').dataset.outcome";
            assert_eq!(page.value::<String>(outcome).await, "none", "{field}");
            for id in ["copy-link", "copy-card", "export", "copy-command", "copy-train"] {
                assert!(
                    page.value::<bool>(&format!("document.getElementById('{id}').disabled")).await,
                    "{field}: {id}"
                );
            }
            assert!(page.value::<bool>("document.getElementById('fixes').inert").await, "{field}");
            assert!(page.text("#phases-title").await.ends_with("(previous plan)"));
            assert!(page.text("#tensors-title").await.ends_with("(previous plan)"));
            let described = format!("{input}.getAttribute('aria-describedby')");
            assert_eq!(page.value::<String>(&described).await, format!("{field}-fault"));
            page.fill(&format!("#{field}"), valid).await;
            page.until("the verdict is back", &format!("{outcome} !== 'none' && !{input}.ariaInvalid")).await;
        }
        // A config that is pasted replaces what was typed, and a link does so too.
        page.open("1&batch_size=8").await;
        page.fill("#n_layer", "0").await;
        page.press(&Key::Tab).await;
        page.paste("#config", "batch_size = 4").await;
        page.until("the field has its value", "document.querySelector('#n_layer').value === '12'").await;
        page.until("there is a plan", "document.querySelector('#verdict[data-fits]')").await;
        page.open("").await;
        for (typed, shown) in [("2,5", "2.5"), ("800MiB", "0.78"), ("", "0")] {
            page.click("#other-processes").await;
            page.press_with_control('a').await;
            page.press(&Key::Backspace).await;
            page.press(typed).await;
            page.press(&Key::Tab).await;
            page.until("it is taken", &format!("document.querySelector('#other-processes').value === '{shown}'")).await;
            assert!(
                !page.value::<bool>("document.querySelector('#other-processes').hasAttribute('aria-invalid')").await
            );
        }
        // An empty count is invalid until it is corrected.
        page.fill("#batch_size", "4").await;
        page.press_with_control('a').await;
        page.press(&Key::Backspace).await;
        page.until("no verdict is left", "document.querySelector('.verdict').dataset.outcome === 'none'").await;
        page.press(&Key::Tab).await;
        page.until("an empty count is marked", "document.querySelector('#batch_size').ariaInvalid === 'true'").await;
        page.fill("#batch_size", "6").await;
        page.until("the field is valid again", "!document.querySelector('#batch_size').hasAttribute('aria-invalid')")
            .await;
    });
}

#[test]
fn a_text_without_a_run_is_no_good_news() {
    tell("a_text_without_a_run_is_no_good_news", async |page| {
        for text in ["<!doctype html><p>404</p>", "RuntimeError: CUDA error: invalid device ordinal"] {
            page.paste("#config", text).await;
            page.until("the plan is gone", "document.querySelector('.verdict').dataset.outcome === 'none'").await;
            assert_eq!(page.text("#verdict").await, "No plan: no settings found");
            let all = page.text("#problems").await;
            assert!(all.contains("No nanoGPT settings were found"), "{all}");
        }
        page.paste("#config", "batch_size = 2").await;
        page.until("a run is", "document.querySelector('.verdict').dataset.outcome === 'fits'").await;
    });
}

#[test]
fn a_file_may_be_dropped_anywhere() {
    tell("a_file_may_be_dropped_anywhere", async |page| {
        let drop = "{
            const data = new DataTransfer();
            data.items.add(new File(['batch_size = 7'], 'config.py'));
            return ['dragover', 'drop'].map((kind) => !document.querySelector('#chart')
                .dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true })));
        }";
        // If the event is not prevented, the browser replaces the page by the file.
        let prevented: Vec<bool> = serde_json::from_value(page.promise(drop).await).expect("two answers");
        assert_eq!(prevented, [true, true]);
        page.until("the file is read", "document.querySelector('#batch_size').value === '7'").await;
        assert!(!page.value::<bool>("document.querySelector('.config').matches('.config--dragging')").await);
    });
}

#[test]
fn only_a_plan_that_is_drawn_is_the_last_one() {
    tell("only_a_plan_that_is_drawn_is_the_last_one", async |page| {
        page.fill("#n_head", "7").await;
        let words = "document.querySelector('.chart__none')?.textContent";
        page.until("the last plan stays", &format!("{words}?.startsWith('Showing the last valid plan')")).await;
        let link = format!("{}calculator.html?anew#1&batch_size=64&n_head=7", page.address);
        page.goto(&link).await;
        page.until("the chart is empty", &format!("{words}?.startsWith('Nothing to draw')")).await;
        page.until("nor changes", "document.querySelector('#fixes').textContent.includes('once there is a plan')")
            .await;
    });
}

#[test]
fn every_problem_of_a_config_can_be_seen() {
    tell("every_problem_of_a_config_can_be_seen", async |page| {
        let names = ["batch_sise", "n_layers", "block_sizes", "n_heads", "dropouts", "n_embed", "biass"];
        let config: String = names.iter().map(|name| format!("{name} = 1\n")).collect();
        page.paste("#config", &format!("batch_size = 2\n{config}")).await;
        page.until(
            "they are counted",
            "document.querySelector('#all-problems')?.textContent === 'Show all 7 problems'",
        )
        .await;
        let seen = "[...document.querySelectorAll('#problems li:not(.problems__read)')].filter((line) => {
            const [box, outer] = [line, document.querySelector('#problems')].map((e) => e.getBoundingClientRect());
            return box.top >= outer.top - 1 && box.bottom <= outer.bottom + 1;
        }).map((line) => line.textContent)";
        assert!(page.value::<Vec<String>>(seen).await.len() < 7);
        page.click("#all-problems").await;
        page.until("all are shown", &format!("({seen}).length === 7")).await;
        let lines: Vec<String> = page.value(seen).await;
        assert!(lines.iter().any(|line| line.contains("Did you mean batch_size?")), "{lines:?}");
        page.click("#all-problems").await;
        page.until("few are shown", &format!("({seen}).length < 7")).await;
    });
}

/// Opens a text as a file, because a text area takes minutes to paste that many lines.
async fn open_file(page: &Page, text: &str) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page_problems.py");
    fs::write(&file, text).expect("a writable folder");
    let input = page.find("#config-file").await;
    input.send_keys(&file.to_string_lossy()).await.expect("the file is chosen");
    // A text area has no carriage returns, and neither have these texts. For a long text the field has only its length.
    let field = "document.querySelector('#config')";
    let whole = serde_json::Value::from(text);
    let shown = format!("{field}.value === {whole} || {field}.dataset.bytes === '{}'", text.len());
    page.until("the file is read", &shown).await;
}

#[test]
fn hostile_files_do_not_hang_the_page() {
    const LENGTH: usize = 100_000;
    const PARTS: [&str; 13] =
        ["(", "[", "{", "-", "not ", "'", "\\", "(1,", "2**", "batch_size=", "\n[", "--a=(", "a\u{301}"];
    tell("hostile_files_do_not_hang_the_page", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        open_file(page, TRAIN_GPT2).await;
        let numbers = page.numbers().await;
        for part in PARTS {
            open_file(page, &format!("batch_size = {}", part.repeat(LENGTH / part.len()))).await;
        }
        open_file(page, TRAIN_GPT2).await;
        let verdict = format!("document.querySelector('#verdict').textContent.trim() === {:?}", numbers.verdict);
        page.until("the verdict is back", &verdict).await;
        assert_same(&numbers, &page.numbers().await);
    });
}
