//! What a reader sees and hears: names, units, punctuation, and the cause of a failure.

use crate::page::{Page, tell, tell_unopened};
use std::collections::BTreeSet;

const FAILS: &str = "1&batch_size=64&gpu=RTX%204070";

/// 50 MiB of free segments on a GPU whose tensors take 11.20 of 11.69 GiB do not explain the failure.
#[test]
fn full_gpu_is_not_called_fragmented() {
    tell_unopened("full_gpu_is_not_called_fragmented", async |page| {
        page.open_diagnose().await;
        let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity \
            of 11.69 GiB of which 8.00 MiB is free. Including non-PyTorch memory, this process has 11.68 GiB memory in \
            use. Of the allocated memory 11.20 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but \
            unallocated.";
        page.paste("#message", message).await;
        page.until("it is explained", "document.querySelector('[data-testid=explanation]')?.textContent.length > 40")
            .await;
        let said = page.text("[data-testid=explanation]").await;
        assert!(!said.contains("fragmentation") && said.contains("The GPU is full"), "{said}");
    });
}

/// Autograd saves nothing in evaluation. This run fails there.
#[test]
fn tensors_of_evaluation_are_not_saved_for_backward() {
    tell("tensors_of_evaluation_are_not_saved_for_backward", async |page| {
        page.open(FAILS).await;
        let reasons = "[...document.querySelectorAll('#tensors .tensors__row')].map((row) => row.textContent)";
        let rows: Vec<String> = page.value(reasons).await;
        assert!(rows.iter().any(|row| row.contains("logits")), "{rows:?}");
        let saved: Vec<_> = rows.iter().filter(|row| row.contains("saved in forward")).collect();
        assert!(saved.is_empty(), "{saved:?}");
    });
}

#[test]
fn missing_memory_has_a_readable_unit() {
    tell("missing_memory_has_a_readable_unit", async |page| {
        page.open("1&n_layer=500&block_size=16384&gpu=RTX%204070").await;
        let said = page.text("#verdict").await;
        assert!(said.contains(" TiB short"), "{said}");
    });
}

/// The pages that need no agent, with a selector of what each draws.
const PAGES: [(&str, &str); 8] = [
    ("compare.html", "[data-testid=compare-headline]"),
    ("demo.html", "#write"),
    ("diagnose.html", "#message"),
    ("embed.html", "#snippet"),
    ("gpus.html", "[data-testid=gpus]"),
    ("index.html", "#anything"),
    ("trainers.html", "#verdict[data-fits]"),
    ("calculator.html", "#verdict[data-fits]"),
];

/// Opens each page that needs no agent, and runs `story` with its name.
async fn on_each_page(page: &Page, mut story: impl AsyncFnMut(&str)) {
    for (name, shown) in PAGES {
        page.goto(&format!("{}{name}", page.address)).await;
        page.until("the page is drawn", &format!("document.querySelector('{shown}')")).await;
        story(name).await;
    }
}

/// A screen reader spells invisible characters, and a search for the key misses it.
#[test]
fn labels_are_the_keys_of_nanogpt() {
    tell("labels_are_the_keys_of_nanogpt", async |page| {
        on_each_page(page, async |name| {
            let invisible = "[...document.querySelectorAll('label, [aria-label]')]
                .map((label) => `${label.ariaLabel ?? ''} ${label.textContent}`)
                .filter((label) => /\\p{Cf}/u.test(label))";
            let invisible: Vec<String> = page.value(invisible).await;
            assert!(invisible.is_empty(), "{name}: {invisible:?}");
        })
        .await;
        let labels = "[...document.querySelectorAll('label')].map((label) => label.textContent.trim())";
        let labels: Vec<String> = page.value(labels).await;
        for key in ["batch_size", "block_size", "n_layer", "n_head", "n_embd"] {
            assert!(labels.iter().any(|label| label == key), "{key} is not in {labels:?}");
        }
    });
}

#[test]
fn regions_are_named_by_their_content() {
    tell("regions_are_named_by_their_content", async |page| {
        on_each_page(page, async |name| {
            let names = "[...document.querySelectorAll('section, [role=region]')].map((region) => region.ariaLabel)";
            let names: Vec<Option<String>> = page.value(names).await;
            assert!(!names.is_empty(), "{name}");
            assert!(!names.iter().any(|label| label.as_deref() == Some("Headroom")), "{name}: {names:?}");
        })
        .await;
    });
}

#[test]
fn diagnose_has_a_heading_before_a_message() {
    tell_unopened("diagnose_has_a_heading_before_a_message", async |page| {
        page.open_diagnose().await;
        page.until("there is a heading", "document.querySelector('main h1')").await;
    });
}

#[test]
fn each_language_has_its_own_punctuation() {
    tell_unopened("each_language_has_its_own_punctuation", async |page| {
        for language in ["zh", "ja"] {
            page.open_link(&format!("{}calculator.html?lang={language}#{FAILS}", page.address)).await;
            let reasons = "[...document.querySelectorAll('.tensors__why')].map((reason) => reason.textContent)";
            let reasons: Vec<String> = page.value(reasons).await;
            assert!(reasons.len() > 3, "{reasons:?}");
            assert!(reasons.iter().all(|reason| !reason.contains(": ")), "{language}: {reasons:?}");
        }
        page.open_link(&format!("{}calculator.html?lang=de#{FAILS}", page.address)).await;
        let ticks = "[...document.querySelectorAll('.chart__ticks--phases [data-short]')]
            .map((tick) => [tick.dataset.short, tick.textContent])";
        let ticks: BTreeSet<(String, String)> = page.value(ticks).await;
        assert!(ticks.len() > 3, "{ticks:?}");
        // A short label without a full stop is a contraction: its letters are in the long one, in order.
        for (short, long) in ticks.iter().filter(|(short, _)| !short.contains('.')) {
            let mut letters = long.chars().flat_map(char::to_lowercase);
            let is_contraction = short.to_lowercase().chars().all(|letter| letters.any(|other| other == letter));
            assert!(is_contraction, "{short:?} is not short for {long:?}: {ticks:?}");
        }
    });
}
