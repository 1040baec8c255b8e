//! What cannot be read is said, with its place, and never in the way.

use crate::{
    TRAIN_GPT2,
    numbers::assert_same,
    page::{Page, tell},
};
use std::{fs, path::PathBuf};
use thirtyfour::Key;

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

        // The place leads there.
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
        // Each key that makes sense is taken as it comes: what is kept is the last that did.
        for (field, typed, kept) in [
            ("other-processes", "abc", "0"),
            ("other-processes", "-1", "0"),
            ("other-processes", "1,024", "1.02"),
            ("batch_size", "8.5", "8"),
            ("batch_size", "-3", "12"),
            ("eval_iters", "x", "200"),
            ("world_size", "0", "1"),
            ("torch", "latest", "2.11"),
            ("context", "much", ""),
        ] {
            page.open("").await;
            page.value::<bool>("(document.querySelector('#more').open = true)").await;
            page.fill(&format!("#{field}"), typed).await;
            let input = format!("document.getElementById('{field}')");
            page.until("the field is marked", &format!("{input}.ariaInvalid === 'true'")).await;
            page.press(Key::Tab).await;
            assert_eq!(page.value::<String>(&format!("{input}.value")).await, typed, "{field} loses {typed}");
            let reason = page.text(&format!("#{field}-fault")).await;
            assert!(reason.starts_with("Not a"), "{field} says {reason:?} of {typed}");
            if !kept.is_empty() {
                assert!(reason.ends_with(&format!("; {kept} stays")), "{field} says {reason:?} of {typed}");
            }
            let described = format!("{input}.getAttribute('aria-describedby')");
            assert_eq!(page.value::<String>(&described).await, format!("{field}-fault"));
        }
        page.open("").await;
        for (typed, shown) in [("2,5", "2.5"), ("800MiB", "0.78"), ("", "0")] {
            page.click("#other-processes").await;
            page.press_with_control('a').await;
            page.press(Key::Backspace).await;
            page.press(typed).await;
            page.press(Key::Tab).await;
            page.until("it is taken", &format!("document.querySelector('#other-processes').value === '{shown}'")).await;
            assert!(
                !page.value::<bool>("document.querySelector('#other-processes').hasAttribute('aria-invalid')").await
            );
        }
        // Emptied, a count is none; and the way back is to mend it.
        page.fill("#batch_size", "4").await;
        page.press_with_control('a').await;
        page.press(Key::Backspace + Key::Tab).await;
        page.until("an empty count is marked", "document.querySelector('#batch_size').ariaInvalid === 'true'").await;
        page.fill("#batch_size", "6").await;
        page.until("and mended", "!document.querySelector('#batch_size').hasAttribute('aria-invalid')").await;
    });
}

#[test]
fn a_text_without_a_run_is_no_good_news() {
    tell("a_text_without_a_run_is_no_good_news", async |page| {
        for text in ["<!doctype html><p>404</p>", "RuntimeError: CUDA error: invalid device ordinal"] {
            page.paste("#config", text).await;
            page.until("there is none", "document.querySelector('.verdict').dataset.outcome === 'none'").await;
            assert_eq!(page.text("#verdict").await, "No plan: no settings found");
            let all = page.text("#problems").await;
            assert!(all.contains("no nanoGPT settings were found"), "{all}");
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
        // What is not prevented, the browser opens in the page's place.
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
        let link = format!("{}?anew#1&batch_size=64&n_head=7", page.address);
        page.browser.driver.goto(link).await.expect("the page opens");
        page.until("there is none", &format!("{words}?.startsWith('Nothing to draw')")).await;
        page.until("nor changes", "document.querySelector('#fixes').textContent.includes('once there is a plan')")
            .await;
    });
}

/// As a file, because a browser's own text area takes minutes for a paste of so many lines.
async fn open_file(page: &Page, text: &str) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page_problems.py");
    fs::write(&file, text).expect("a writable folder");
    let input = page.find("#config-file").await;
    input.send_keys(file.to_string_lossy()).await.expect("the file is chosen");
    // A text area has no carriage returns, and these texts neither.
    let shown = format!("document.querySelector('#config').value === {}", serde_json::Value::from(text));
    page.until("the file is read", &shown).await;
}

#[test]
fn hostile_files_do_not_hang_the_page() {
    const LENGTH: usize = 100_000;
    const PARTS: [&str; 13] =
        ["(", "[", "{", "-", "not ", "'", "\\", "(1,", "2**", "batch_size=", "\n[", "--a=(", "a\u{301}"];
    tell("hostile_files_do_not_hang_the_page", async |page| {
        page.choose_card("GeForce RTX 4070").await;
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
