//! Pastes of megabytes. Each field reacts as to a short text, and lays out only the part that it shows.

use crate::page::{Page, tell, tell_unopened};
use serde_json::Value;

/// Length in characters of the longest text that is read completely.
const LENGTH: usize = 5_000_000;
/// Maximum number of characters of a long text that a field shows: its two ends.
const SHOWN_MAX: u64 = 10_000;

/// Returns a log of [`LENGTH`] that ends with `end`.
fn long(end: &str) -> String {
    let line = "iter 100: loss 3.1415, time 250.00ms, mfu 30.00%\n";
    format!("{}{end}", line.repeat((LENGTH - end.len()) / line.len()))
}

/// Records how many characters the browser puts into any field, before the page's own handlers see the change. A text
/// area lays out a text of [`LENGTH`] for minutes, even if the page shortens it at once.
const RECORD: &str = "window.mostCharacters = 0;
    addEventListener('input', ({ target }) => {
        window.mostCharacters = Math.max(window.mostCharacters, target.value?.length ?? 0);
    }, true)";

/// Replaces a field's text by pasting, and checks that the browser lays out only a part of it at any time.
async fn paste(page: &Page, selector: &str, text: &str) {
    copy(page, &Value::from(text).to_string()).await;
    paste_copied(page, selector).await;
}

/// Copies the value of a JavaScript expression.
async fn copy(page: &Page, expression: &str) {
    page.allow_clipboard().await;
    page.promise(&format!("{{ await navigator.clipboard.writeText({expression}) }}")).await;
}

/// Does as [`paste`] with the text in the clipboard.
async fn paste_copied(page: &Page, selector: &str) {
    page.script(RECORD).await;
    page.click(selector).await;
    page.press_with_control('a').await;
    page.press_with_control('v').await;
    // Two frames pass before the page is drawn with the result.
    page.promise("{ await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))) }").await;
    let most: u64 = page.value("mostCharacters").await;
    assert!(most < SHOWN_MAX, "{selector} was given {most} characters");
}

/// Pastes [`LENGTH`] digits into every one-line field and text area that is shown, and checks that each shows little.
async fn assert_fields_bounded(page: &Page, n_fields_min: usize) {
    let fields: Vec<String> = page
        .value(
            "[...document.querySelectorAll('textarea, input')].filter((field) => field.checkVisibility()
               && !field.disabled && !['checkbox', 'radio', 'range', 'file'].includes(field.type)).map((field) => field.id)",
        )
        .await;
    assert!(fields.len() >= n_fields_min, "{fields:?}");
    copy(page, &format!("'7'.repeat({LENGTH})")).await;
    for id in fields {
        paste_copied(page, &format!("#{id}")).await;
        let length: u64 = page.value(&format!("document.getElementById('{id}').value.length")).await;
        assert!((1..SHOWN_MAX).contains(&length), "{id} has {length} characters");
    }
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
        paste(page, "#config", &text).await;
        page.until("it is read", "document.querySelector('#batch_size').value === '3'").await;
        assert_bounded(page, "config", &text).await;
        // The form still changes the text, and the copy is complete.
        page.fill("#batch_size", "4").await;
        page.until("the verdict follows", "document.querySelector('#batch_size-range').value === '4'").await;
        page.click("#copy-config").await;
        page.until("it is copied", "document.querySelector('#copy-config').textContent.includes('Copied')").await;
        assert_eq!(page.clipboard().await, text.replacen("= 3", "= 4", 1));
        // Another paste of any size replaces the text.
        page.paste("#config", "batch_size = 5\n").await;
        assert!(page.value::<bool>("document.querySelector('[data-testid=config-long]') === null").await);
        page.until("it is read", "document.querySelector('#batch_size').value === '5'").await;
        // A paste inserts at the caret.
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

/// 64 KB as lines of one letter. A text area takes 13 s to lay out so many lines.
#[test]
fn every_text_area_takes_a_bounded_paste_of_short_lines() {
    tell("every_text_area_takes_a_bounded_paste_of_short_lines", async |page| {
        let text = format!("{}batch_size = 3\n", "x\n".repeat(32_000));
        paste(page, "#config", &text).await;
        page.until("it is read", "document.querySelector('#batch_size').value === '3'").await;
        assert_bounded(page, "config", &text).await;
        page.open_diagnose().await;
        for id in ["message", "config"] {
            paste(page, &format!("#{id}"), &text).await;
            assert_bounded(page, id, &text).await;
        }
    });
}

#[test]
fn diagnose_and_embed_answer_a_paste_of_5_mb() {
    tell_unopened("diagnose_and_embed_answer_a_paste_of_5_mb", async |page| {
        page.open_diagnose().await;
        let message = long(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB of \
             which 2.68 GiB is free.\n",
        );
        paste(page, "#message", &message).await;
        page.until(
            "it is explained",
            "document.querySelector('[data-testid=explanation]')?.textContent.includes('6.14 GiB')",
        )
        .await;
        assert_bounded(page, "message", &message).await;
        let config = format!("batch_size = 64\n{}", "# a comment of a config\n".repeat(LENGTH / 24 - 1));
        paste(page, "#config", &config).await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        assert_bounded(page, "config", &config).await;

        page.goto(&format!("{}embed.html", page.address)).await;
        page.until("the field is there", "document.querySelector('#snippet')").await;
        paste(page, "#config", &config).await;
        page.until("the lines follow", "document.querySelector('#snippet').textContent.includes('--batch_size=64')")
            .await;
        assert_bounded(page, "config", &config).await;
        // Lines without settings.
        let log = "iter 100: loss 3.2109, time 123.45ms, mfu 12.34%\n".repeat(LENGTH / 49);
        paste(page, "#config", &log).await;
        page.until("the lines follow", "!document.querySelector('#snippet').textContent.includes('--batch_size=64')")
            .await;
        assert_bounded(page, "config", &log).await;
    });
}

#[test]
fn every_field_takes_a_bounded_paste() {
    tell("every_field_takes_a_bounded_paste", async |page| {
        page.click("#more > summary").await;
        assert_fields_bounded(page, 12).await;
        for (name, n_fields_min, shown) in [
            ("demo.html", 6, "#n-tokens"),
            ("diagnose.html", 2, "#message"),
            ("index.html", 3, "#anything"),
            ("embed.html", 3, "#snippet"),
            ("gpus.html", 4, "[data-testid=gpus]"),
            ("compare.html", 11, "[data-testid=compare-headline]"),
        ] {
            page.goto(&format!("{}{name}", page.address)).await;
            page.until("the form is drawn", &format!("document.querySelector('{shown}')")).await;
            assert_fields_bounded(page, n_fields_min).await;
        }
    });
}

#[test]
fn demo_writes_after_a_long_prompt() {
    tell_unopened("demo_writes_after_a_long_prompt", async |page| {
        page.goto(&format!("{}demo.html", page.address)).await;
        page.until("the model is loaded", "document.querySelector('#write')?.disabled === false").await;
        let prompt = "Once upon a time there was a cat. ".repeat(LENGTH / 34);
        paste(page, "#prompt", &prompt).await;
        assert_bounded(page, "prompt", &prompt).await;
        page.fill("#n-tokens", "20").await;
        page.click("#write").await;
        page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
        assert!(page.text("[data-testid=cut]").await.contains("last 256"));
        page.click("[data-testid=prompt-long] button").await;
        page.until("it is cleared", "document.querySelector('#prompt').value === ''").await;
    });
}
