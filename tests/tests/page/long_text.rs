//! Pastes of megabytes: each field answers as it does for a small text, and lays out no more of them than it shows.

use crate::page::{Page, tell};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The longest text that is read whole.
const LENGTH: usize = 5_000_000;
/// Characters that a field may hold of a long text: its two ends.
const SHOWN_MAX: u64 = 10_000;
/// The time that a paste of any size may take. A browser's own text area takes more than four minutes for this one.
const PASTE_MAX: Duration = Duration::from_secs(15);

/// A log of a run, as long as that, which ends with what matters.
fn long(end: &str) -> String {
    let line = "iter 100: loss 3.1415, time 250.00ms, mfu 30.00%\n";
    format!("{}{end}", line.repeat((LENGTH - end.len()) / line.len()))
}

/// Pastes into a field in the place of all that is in it; gives the time until the page has drawn what came of it.
async fn paste(page: &Page, selector: &str, text: &str) -> Duration {
    page.allow_clipboard().await;
    page.promise(&format!("{{ await navigator.clipboard.writeText({}) }}", Value::from(text))).await;
    page.click(selector).await;
    page.press_with_control('a').await;
    let start = Instant::now();
    page.press_with_control('v').await;
    page.promise("{ await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))) }").await;
    start.elapsed()
}

async fn assert_bounded(page: &Page, id: &str, text: &str) {
    let bytes: String = page.value(&format!("document.getElementById('{id}').dataset.bytes ?? ''")).await;
    assert_eq!(bytes, text.len().to_string(), "{id} keeps the whole text");
    let shown: u64 = page.value(&format!("document.getElementById('{id}').value.length")).await;
    assert!((100..SHOWN_MAX).contains(&shown), "{id} lays out {shown} characters");
    assert!(page.text(&format!("[data-testid={id}-long]")).await.contains("lines: shown in part"));
}

#[test]
fn the_calculator_answers_a_paste_of_5_mb() {
    tell("the_calculator_answers_a_paste_of_5_mb", async |page| {
        let text = format!("batch_size = 3\n{}", "# a comment of a config\n".repeat(LENGTH / 24 - 1));
        let took = paste(page, "#config", &text).await;
        println!("a config of {} bytes: {took:?}", text.len());
        page.until("it is read", "document.querySelector('#batch_size').value === '3'").await;
        assert!(took < PASTE_MAX, "{took:?}");
        assert_bounded(page, "config", &text).await;
        // The form still writes into it, and the copy is whole.
        page.fill("#batch_size", "4").await;
        page.until("the verdict follows", "document.querySelector('#batch_size-range').value === '4'").await;
        page.click("#copy-config").await;
        page.until("it is copied", "document.querySelector('#copy-config').textContent.includes('Copied')").await;
        assert_eq!(page.clipboard().await, text.replacen("= 3", "= 4", 1));
        // Another paste replaces it, whatever its size.
        page.paste("#config", "batch_size = 5\n").await;
        assert!(page.value::<bool>("document.querySelector('[data-testid=config-long]') === null").await);
        page.until("it is read", "document.querySelector('#batch_size').value === '5'").await;
        // Into a text, where the caret is.
        page.paste("#config", "n_layer = 6\n").await;
        page.script("const area = document.querySelector('#config'); area.focus(); area.setSelectionRange(0, 0)").await;
        let text = format!("batch_size = 7\n{}", "# more\n".repeat(20_000));
        page.promise(&format!("{{ await navigator.clipboard.writeText({}) }}", Value::from(text.as_str()))).await;
        page.press_with_control('v').await;
        page.until(
            "both are read",
            "document.querySelector('#batch_size').value === '7' && document.querySelector('#n_layer').value === '6'",
        )
        .await;
        page.click("[data-testid=config-long] button").await;
        page.until(
            "it is cleared",
            "document.querySelector('#config').value === '' && !document.querySelector('#config').readOnly",
        )
        .await;
    });
}

#[test]
fn diagnose_and_embed_answer_a_paste_of_5_mb() {
    tell("diagnose_and_embed_answer_a_paste_of_5_mb", async |page| {
        let link = format!("{}diagnose.html", page.address);
        page.browser.driver.goto(&link).await.expect("the page opens");
        page.until("the field is there", "document.querySelector('#message')").await;
        let message = long(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB of \
             which 2.68 GiB is free.\n",
        );
        let took = paste(page, "#message", &message).await;
        println!("a message of {} bytes: {took:?}", message.len());
        page.until(
            "it is explained",
            "document.querySelector('[data-testid=explanation]')?.textContent.includes('6.14 GiB')",
        )
        .await;
        assert!(took < PASTE_MAX, "{took:?}");
        assert_bounded(page, "message", &message).await;
        let config = format!("batch_size = 64\n{}", "# a comment of a config\n".repeat(LENGTH / 24 - 1));
        let took = paste(page, "#config", &config).await;
        println!("its config of {} bytes: {took:?}", config.len());
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        assert!(took < PASTE_MAX, "{took:?}");
        assert_bounded(page, "config", &config).await;

        page.browser.driver.goto(format!("{}embed.html", page.address)).await.expect("the page opens");
        page.until("the field is there", "document.querySelector('#snippet')").await;
        let took = paste(page, "#config", &config).await;
        page.until("the lines follow", "document.querySelector('#snippet').textContent.includes('--batch_size=64')")
            .await;
        assert!(took < PASTE_MAX, "{took:?}");
        assert_bounded(page, "config", &config).await;
    });
}
