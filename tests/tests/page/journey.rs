//! The main story: a config, a GPU, a verdict, a batch that does not fit, one that fits, and the link to it.

use crate::{
    TRAIN_GPT2,
    numbers::{assert_same, difference},
    page::{Page, tell},
};
use fantoccini::{
    actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction},
    key::Key,
    wd::WindowHandle,
};
use serde_json::Value;
use std::{fs, path::PathBuf};

/// A GPU's short name for the command line. The page lists its full name.
const GPU: &str = "RTX 4070";

/// Returns the command line's plan for the config with this batch size.
fn command_line(page: &Page, batch_size: u64) -> Value {
    let config = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page_journey.py");
    fs::write(&config, TRAIN_GPT2).expect("a writable folder");
    page.command_line(&config, &["--gpu", GPU, &format!("--batch_size={batch_size}")])
}

/// Checks that the page and the command line agree on every count.
async fn assert_as_the_command_line_says(page: &Page, batch_size: u64) {
    let (numbers, plan) = (page.numbers().await, command_line(page, batch_size));
    assert_eq!(plan["config"]["batch_size"], batch_size);
    assert_eq!(plan["headroom_bytes"], numbers.headroom_bytes, "batch {batch_size}");
    assert_eq!(plan["fits"], page.fits().await, "batch {batch_size}");
    let phases = plan["phases"].as_array().expect("phases");
    assert_eq!(phases.len(), numbers.phases.len());
    for (phase, shown) in phases.iter().zip(&numbers.phases) {
        assert_eq!(phase["name"], shown.name);
        let keys = ["live_bytes_peak", "max_memory_allocated", "max_memory_reserved"];
        assert_eq!(keys.map(|key| phase[key].as_u64().expect("bytes")), shown.bytes, "{} at {batch_size}", shown.name);
    }
    assert_eq!(plan["oom"]["message"].as_str(), numbers.message.as_deref(), "batch {batch_size}");
}

async fn set_batch_size(page: &Page, batch_size: &str) {
    page.fill("#batch_size", batch_size).await;
    let shown = format!("document.querySelector('#batch_size-range').value === '{batch_size}'");
    page.until("the slider follows the field", &shown).await;
}

async fn batch_size(page: &Page) -> u64 {
    page.value::<String>("document.querySelector('#batch_size').value").await.parse().expect("a count")
}

/// Drags the slider's thumb to the left, and then moves it step by step.
async fn lower_the_batch_until_it_fits(page: &Page) {
    let slider = page.find("#batch_size-range").await;
    let width: f64 = page.value("document.querySelector('#batch_size-range').getBoundingClientRect().width").await;
    let mouse = MouseActions::new("mouse".to_owned())
        .then(PointerAction::MoveToElement { element: slider, duration: None, x: 0.0, y: 0.0 })
        .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
        .then(PointerAction::MoveBy { duration: None, x: -width / 4.0, y: 0.0 })
        .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
    page.browser.driver.perform_actions(mouse).await.expect("the thumb is dragged");
    page.until("the drag lowers the batch", "Number(document.querySelector('#batch_size').value) < 64").await;
    let dragged = batch_size(page).await;
    assert!((16..56).contains(&dragged), "a quarter of the slider to the left of its middle is {dragged}");
    assert!(!page.fits().await, "batch {dragged} fits: nothing left to step through");
    let config: String = page.value("document.querySelector('#config').value").await;
    assert!(config.contains(&format!("batch_size = {dragged}\n")), "the text has the batch: {config}");
    while !page.fits().await {
        let before = batch_size(page).await;
        assert!(before > 1, "no batch fits");
        page.press(&Key::Left).await;
        let lower = format!("document.querySelector('#batch_size').value === '{}'", before - 1);
        page.until("an arrow key lowers the batch by one", &lower).await;
    }
}

async fn open_in_new_window(page: &Page, link: &str) -> WindowHandle {
    let first = page.browser.driver.window().await.expect("a window");
    let second = page.browser.driver.new_window(true).await.expect("another window").handle;
    page.browser.driver.switch_to_window(second).await.expect("it is there");
    page.open_link(link).await;
    first
}

#[test]
fn a_batch_is_lowered_until_it_fits_and_its_link_opens_to_the_same_numbers() {
    tell("a_batch_is_lowered_until_it_fits", async |page| {
        page.paste("#config", TRAIN_GPT2).await;
        page.choose_gpu("H100 80GB HBM3").await;
        page.until("the model fits a large GPU", "document.querySelector('#verdict').dataset.fits === 'true'").await;
        page.choose_gpu("GeForce RTX 4070").await;
        assert_as_the_command_line_says(page, 12).await;

        set_batch_size(page, "64").await;
        page.until("64 sequences are too many", "document.querySelector('#verdict').dataset.fits === 'false'").await;
        let plan = command_line(page, 64);
        let numbers = page.numbers().await;
        assert!(numbers.verdict.starts_with("Does not fit"), "{}", numbers.verdict);
        // nanoGPT evaluates before it trains, and the second batch is allocated beside the first one's logits.
        assert_eq!(plan["oom"]["phase"], "eval");
        assert!(numbers.detail.contains("in evaluation"), "{}", numbers.detail);
        assert_eq!(plan["oom"]["tensor"], "logits");
        assert!(numbers.detail.contains("logits"), "{}", numbers.detail);
        assert!(numbers.message.as_deref().is_some_and(|message| message.contains("CUDA out of memory")));
        assert_as_the_command_line_says(page, 64).await;
        let config: String = page.value("document.querySelector('#config').value").await;
        assert_eq!(config, TRAIN_GPT2.replace("batch_size = 12", "batch_size = 64"), "the rest of the text stays");

        lower_the_batch_until_it_fits(page).await;
        let fitting = batch_size(page).await;
        assert_as_the_command_line_says(page, fitting).await;
        assert_eq!(command_line(page, fitting + 1)["fits"], false, "it is the largest that fits");

        page.click("#copy-link").await;
        page.until("the button says so", "document.querySelector('#copy-link').textContent.includes('Copied')").await;
        let link = page.clipboard().await;
        assert!(link.starts_with(&page.address) && link.contains('#'), "{link}");
        page.until("the address is the link", &format!("location.href === {link:?}")).await;

        let numbers = page.numbers().await;
        let first = open_in_new_window(page, &link).await;
        assert_same(&numbers, &page.numbers().await);
        assert_eq!(batch_size(page).await, fitting);
        // The same comparison detects a different link.
        let other = link.replace(&format!("batch_size={fitting}"), &format!("batch_size={}", fitting - 1));
        assert_ne!(link, other, "the link has the batch by its name");
        page.open_link(&other).await;
        page.until(
            "the other link is shown",
            &format!("document.querySelector('#batch_size').value === '{}'", fitting - 1),
        )
        .await;
        assert!(difference(&numbers, &page.numbers().await).is_some(), "another batch, the same numbers");
        page.browser.driver.close_window().await.expect("it closes");
        page.browser.driver.switch_to_window(first).await.expect("the first is still there");
    });
}
