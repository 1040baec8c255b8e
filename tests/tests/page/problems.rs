//! What cannot be read is said, with its place, and never in the way.

use crate::{TRAIN_GPT2, page::tell};

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

#[test]
fn hostile_texts_do_not_hang_the_page() {
    const LENGTH: usize = 100_000;
    tell("hostile_texts_do_not_hang_the_page", async |page| {
        page.choose_card("GeForce RTX 4070").await;
        page.paste("#config", TRAIN_GPT2).await;
        let numbers = page.numbers().await;
        let brackets = ["(", "[", "{", "-", "not ", "'", "\\", "(1,", "2**", "batch_size=", "\n[", "--a=(", "a\u{301}"];
        for part in brackets {
            let text = part.repeat(LENGTH / part.len());
            page.paste("#config", &format!("batch_size = {text}")).await;
            // The page reads before it lets anyone else run, so an answer to this is one after that.
            page.value::<bool>("true").await;
        }
        page.paste("#config", TRAIN_GPT2).await;
        let verdict = format!("document.querySelector('#verdict').textContent.trim() === {:?}", numbers.verdict);
        page.until("the verdict is back", &verdict).await;
        crate::numbers::assert_same(&numbers, &page.numbers().await);
    });
}
