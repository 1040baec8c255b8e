//! What cannot be read is said, with its place, and never in the way.

use crate::{
    TRAIN_GPT2,
    numbers::assert_same,
    page::{Page, tell},
};
use std::{fs, path::PathBuf};

#[test]
fn a_line_that_cannot_be_evaluated_is_named_and_the_rest_is_planned() {
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
        assert!(page.fits().await, "half a GPT-2 at 4 sequences: {}", page.numbers().await.verdict);

        // The place leads there.
        page.click("#problems .problems__place").await;
        let selected =
            "document.getElementById('config').value.slice(0, document.getElementById('config').selectionStart)";
        let before: String = page.value(selected).await;
        assert_eq!(before, config[..config.find("open(").expect("it is there")], "the text area shows the place");
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
