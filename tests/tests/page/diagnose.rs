//! From a message to a run that fits: paste, read, apply, copy.

use crate::page::{Page, tell};
use std::fs;

const MESSAGE: &str = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
    capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. \
    Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";
const CONFIG: &str = "# mine\nbatch_size = 64  # too much\ngradient_accumulation_steps = 1\n";

async fn open(page: &Page) {
    let address = format!("{}diagnose.html", page.address);
    page.browser.driver.goto(&address).await.expect("the page opens");
    page.until("the field is there", "document.querySelector('#message')").await;
}

#[test]
fn a_message_is_pasted_explained_and_mended() {
    tell("a_message_is_pasted_explained_and_mended", async |page| {
        open(page).await;
        page.paste("#message", MESSAGE).await;
        page.until("candidates are shown", "document.querySelectorAll('[data-testid=candidates] li').length > 2").await;
        assert!(page.text("[data-testid=explanation]").await.contains("logits (65536, 50304) bfloat16"));
        page.paste("#config", CONFIG).await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        assert_eq!(page.text("[data-testid=agreement]").await, "Exact match with your message");
        assert!(page.text("[data-testid=explanation]").await.contains("It fails in evaluation"));

        // The calculator opens with the fix made.
        page.click("[data-fix=micro_batch] a").await;
        page.until("the calculator answers", "document.querySelector('#verdict[data-fits=true]')").await;
        let config: String = page.value("document.querySelector('#config').value").await;
        // As it was pasted, comments and all, with what was changed and why.
        assert!(config.starts_with("# mine\nbatch_size = 8  # too much"), "{config}");
        assert!(config.contains("# headroom: fits"), "{config}");

        // The way back has what was pasted.
        page.script("history.back()").await;
        page.until("the message is there again", "document.querySelector('#message')?.value.includes('6.14 GiB')")
            .await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, CONFIG);
        page.open("").await;
    });
}

#[test]
fn a_config_that_cannot_be_meant_is_told_beside_the_message() {
    tell("a_config_that_cannot_be_meant_is_told_beside_the_message", async |page| {
        open(page).await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "n_embd = 770\nfoo = bar(\n").await;
        page.until("it is told", "document.querySelectorAll('[data-testid=problems] li').length === 2").await;
        let told = page.text("[data-testid=problems]").await;
        assert!(told.contains("770") && told.contains("2:10"), "{told}");
        page.open("").await;
    });
}

#[test]
fn a_fix_is_applied_in_the_calculator_says_why_and_is_taken_back() {
    tell("a_fix_is_applied_in_the_calculator_says_why_and_is_taken_back", async |page| {
        page.open("1&gpu=RTX%204070&others=2GiB").await;
        page.paste("#config", CONFIG).await;
        page.until(
            "fixes are offered",
            "document.querySelector('.fixes:not(.stale) [data-fix=micro_batch][data-fits=true]')",
        )
        .await;
        page.click("[data-fix=micro_batch] button").await;
        page.until("the run fits", "document.querySelector('#verdict[data-fits=true]')").await;
        let config: String = page.value("document.querySelector('#config').value").await;
        assert!(config.starts_with("# mine\nbatch_size = 8"), "{config}");
        assert!(config.contains("# too much") && config.contains("# headroom: fits"), "{config}");
        page.click("#copy-config").await;
        page.until("it is copied", "document.querySelector('#copy-config').textContent.includes('Copied')").await;
        assert_eq!(page.promise("await navigator.clipboard.readText()").await.as_str(), Some(config.as_str()));
        page.click("#undo-fix").await;
        page.until("the run is as it was", "document.querySelector('#config').value.includes('batch_size = 64')").await;
    });
}

#[test]
fn the_diagnose_page_has_no_serious_fault() {
    let Some(axe) = crate::means::named("the_diagnose_page_has_no_serious_fault", "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell("the_diagnose_page_has_no_serious_fault", async |page| {
        open(page).await;
        page.click("#example").await;
        page.until("it is explained", "document.querySelector('[data-testid=fixes] li')").await;
        page.script(&axe).await;
        for scheme in ["light", "dark"] {
            page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
            for size in [crate::page::LAPTOP, crate::page::PHONE] {
                page.resize(size).await;
                let found = crate::accessible::violations(page).await;
                assert!(found.is_empty(), "{scheme} {size:?}:\n{}", found.join("\n"));
                let wide: bool = page.value("document.documentElement.scrollWidth > innerWidth").await;
                assert!(!wide, "{scheme} {size:?} scrolls sideways");
            }
        }
    });
}
