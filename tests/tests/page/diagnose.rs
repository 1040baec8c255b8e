//! From a message to a run that fits: paste, read, apply, copy.

use crate::{
    accessible::{SCHEMES, violations},
    page::{Page, tell, tell_unopened},
};
use std::fs;

const MESSAGE: &str = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
    capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. \
    Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";
const CONFIG: &str = "# mine\nbatch_size = 64  # too much\ngradient_accumulation_steps = 1\n";

#[test]
fn a_message_is_pasted_explained_and_mended() {
    tell_unopened("a_message_is_pasted_explained_and_mended", async |page| {
        page.open_diagnose().await;
        page.paste("#message", MESSAGE).await;
        page.until("candidates are there", "document.querySelectorAll('[data-testid=candidates] li').length > 2").await;
        // The candidates are collapsed.
        assert!(!page.value::<bool>("document.querySelector('.diagnose__candidates').open").await);
        assert!(page.text("[data-testid=explanation]").await.contains("logits (65536, 50304) bfloat16"));
        page.paste("#config", CONFIG).await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        assert_eq!(page.text("[data-testid=agreement]").await, "Requested and allocated memory match exactly");
        assert!(page.text("[data-testid=explanation]").await.contains("It fails in evaluation"));

        // The calculator opens with the fix applied.
        page.click("[data-fix=micro_batch] a").await;
        page.until("the calculator answers", "document.querySelector('#verdict[data-fits=true]')").await;
        let config: String = page.value("document.querySelector('#config').value").await;
        // The pasted config with its comments, and a comment for each change and its reason.
        assert!(config.starts_with("# mine\nbatch_size = 8  # too much"), "{config}");
        assert!(config.contains("# headroom: fits"), "{config}");

        // Going back restores the pasted texts.
        page.back().await;
        page.until("the message is there again", "document.querySelector('#message')?.value.includes('6.14 GiB')")
            .await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, CONFIG);
    });
}

/// Returns the plan's message for 124M with 64 sequences, on a GPU where other processes hold 1 GiB.
async fn solvable_message(page: &Page) -> String {
    let plan = std::process::Command::new(&page.headroom)
        .args(["plan", "--batch_size=64", "--gpu", "RTX 4070", "--other-processes", "1GiB", "--json"])
        .output()
        .expect("the program runs");
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("a plan as JSON");
    plan["oom"]["message"].as_str().expect("the run fails").to_owned()
}

#[test]
fn a_message_alone_is_solved_and_shared() {
    tell_unopened("a_message_alone_is_solved_and_shared", async |page| {
        page.open_diagnose().await;
        let message = solvable_message(page).await;
        page.paste("#message", &format!("my-secret-host {message}")).await;
        page.until("it is solved", "document.querySelector('[data-testid=offers][data-exact=true]')").await;
        let said = page.text("[data-testid=explanation]").await;
        assert_eq!(said, "One common run reproduces your message exactly: GPT-2 124M, batch 64 × 1024, compiled.");
        assert!(page.text("[data-testid=not-shown]").await.contains("gradient_accumulation_steps"));
        let unsolved: String = page.value("location.hash").await;
        assert!(unsolved.contains("oom.requested=6.14GiB") && !unsolved.contains("secret"), "{unsolved}");

        page.click("[data-testid=use-run]").await;
        page.until("it is explained", "document.querySelector('[data-testid=agreement]')").await;
        assert_eq!(page.text("[data-testid=agreement]").await, "Exact match with your message");
        assert!(page.value::<String>("document.querySelector('#config').value").await.contains("batch_size = 64\n"));
        assert!(page.text("[data-testid=fixed-command]").await.contains("train.py"));
        assert!(page.text("[data-testid=run-missing]").await.contains("GiB"));
        // The first fix is on the first screen, above the list of tensors.
        let top: f64 = page.value("document.querySelector('[data-fix]').getBoundingClientRect().top").await;
        assert!(top < 500.0, "{top}");
        let solved: String = page.value("location.hash").await;
        assert!(solved.contains("batch_size=64") && solved.contains("oom.allocated="), "{solved}");

        // A reload keeps the text, which the link in another window does not have.
        let message = "document.querySelector('#message').value";
        page.browser.driver.refresh().await.expect("the page reloads");
        page.until("it is there again", "document.querySelector('[data-testid=agreement]')").await;
        assert_eq!(page.value::<String>("location.hash").await, solved);
        assert!(page.value::<String>(message).await.contains("secret"));
        let link = format!("{}diagnose.html?link{solved}", page.address);
        page.goto(&link).await;
        page.until("it is there again", "document.querySelector('[data-testid=agreement]')").await;
        assert!(!page.value::<String>(message).await.contains("secret"));
        page.back().await;
        page.until("it is there again", &format!("{message}.includes('secret')")).await;
        page.back().await;
        page.until("the run is open again", "document.querySelector('[data-testid=offers][data-exact=true]')").await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, "");
        page.back().await;
        page.until("nothing is pasted", "document.querySelector('[data-testid=empty] h1')").await;
    });
}

#[test]
fn a_near_run_is_not_called_exact() {
    tell_unopened("a_near_run_is_not_called_exact", async |page| {
        page.open_diagnose().await;
        page.paste("#message", MESSAGE).await;
        page.until("near runs are offered", "document.querySelector('[data-testid=offers][data-exact=false]')").await;
        assert!(page.text("[data-testid=offers]").await.contains("reserved memory differs by"));
        assert!(!page.text(".diagnose__answer").await.to_lowercase().contains("exact"));
        // A candidate tensor's batch becomes a run.
        page.click(".diagnose__candidates summary").await;
        page.click("[data-testid=candidates] button").await;
        page.until("it is explained", "document.querySelector('[data-testid=agreement]')").await;
        let config: String = page.value("document.querySelector('#config').value").await;
        assert_eq!(config, "batch_size = 64\nblock_size = 1024\n");
    });
}

#[test]
fn bar_shows_where_the_gpu_ends() {
    tell_unopened("bar_shows_where_the_gpu_ends", async |page| {
        page.open_diagnose().await;
        page.paste("#message", MESSAGE).await;
        page.until("it is explained", "document.querySelector('[data-testid=explanation]')").await;
        // The request extends beyond the GPU's memory.
        let end = "(() => { const bar = document.querySelector('[data-testid=bar]').getBoundingClientRect(); \
            const end = document.querySelector('[data-testid=gpu-end]')?.getBoundingClientRect(); \
            return end ? (end.left - bar.left) / bar.width : null })()";
        let end: f64 = page.value::<Option<f64>>(end).await.expect("the bar marks the GPU's memory");
        assert!((end - 11.69 / (11.69 + 6.14 - 2.68)).abs() < 0.01, "{end}");
    });
}

#[test]
fn first_fix_is_on_the_first_screen() {
    tell_unopened("first_fix_is_on_the_first_screen", async |page| {
        page.open_diagnose().await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", CONFIG).await;
        page.until("fixes are offered", "document.querySelector('[data-fix]')").await;
        let top: f64 = page.value("document.querySelector('[data-fix]').getBoundingClientRect().top").await;
        assert!(top < 500.0, "{top}");
    });
}

#[test]
fn unreadable_config_keeps_the_offers_and_marks_its_field() {
    tell_unopened("unreadable_config_keeps_the_offers_and_marks_its_field", async |page| {
        page.open_diagnose().await;
        let message = solvable_message(page).await;
        page.paste("#message", &message).await;
        page.until("it is solved", "document.querySelector('[data-testid=offers][data-exact=true]')").await;
        page.paste("#config", "hello").await;
        page.until("the field is marked", "document.querySelector('#config').ariaInvalid === 'true'").await;
        assert!(page.text("#config-fault").await.contains("no settings"));
        page.until("the offers stay", "document.querySelector('[data-testid=offers][data-exact=true]')").await;
        page.click("[data-testid=use-run]").await;
        page.until("the run agrees", "document.querySelector('[data-testid=agreement]')").await;
        assert_eq!(page.text("#config-fault").await, "");
    });
}

#[test]
fn message_in_the_config_field_is_explained() {
    tell_unopened("message_in_the_config_field_is_explained", async |page| {
        page.open_diagnose().await;
        let message = solvable_message(page).await;
        // The text leaves the field at once, so that a paste cannot be awaited there.
        let text = serde_json::Value::from(message.as_str());
        page.script(&format!(
            "const field = document.querySelector('#config');
            field.value = {text};
            field.dispatchEvent(new Event('input', {{ bubbles: true }}));"
        ))
        .await;
        page.until("it is solved", "document.querySelector('[data-testid=offers][data-exact=true]')").await;
        assert_eq!(page.value::<String>("document.querySelector('#message').value").await.trim(), message.trim());
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, "");
    });
}

#[test]
fn message_without_figures_lists_what_it_lacks() {
    tell_unopened("message_without_figures_lists_what_it_lacks", async |page| {
        page.open_diagnose().await;
        page.paste("#message", "CUDA out of memory. Tried to allocate 6.14 GiB.").await;
        page.until("runs are offered", "document.querySelector('[data-testid=offers][data-exact=false]')").await;
        let said = page.text("[data-testid=offers-title]").await;
        assert!(said.contains("the allocated memory") && said.contains("requested size only"), "{said}");
        assert!(page.text("[data-testid=offers]").await.contains("GPT-2 124M, batch 64 × 1024"));
        page.paste("#message", "GPU 0 has a total capacity of 11.69 GiB of which 2.68 GiB is free.").await;
        page.until("the figures are listed", "document.querySelector('[data-testid=unsolved]')").await;
        let said = page.text("[data-testid=unsolved]").await;
        assert!(said.contains("the requested size") && !said.contains("total memory"), "{said}");
    });
}

#[test]
fn fitting_config_is_compared_with_the_message() {
    tell_unopened("fitting_config_is_compared_with_the_message", async |page| {
        page.open_diagnose().await;
        page.paste("#message", &solvable_message(page).await).await;
        page.paste("#config", "batch_size = 8\n").await;
        page.until("they are compared", "document.querySelector('[data-testid=differences]')").await;
        let said = page.text("[data-testid=differences]").await;
        assert!(said.contains("6.14 GiB in your message") && said.contains("batch_size"), "{said}");
        page.until("runs are offered", "document.querySelector('[data-testid=offers][data-exact=true]')").await;
        assert!(page.value::<bool>("document.querySelector('[data-testid=fixes]') === null").await);
        page.click("[data-testid=use-run]").await;
        page.until("the run agrees", "!document.querySelector('[data-testid=differences]')").await;
        assert_eq!(page.text("[data-testid=agreement]").await, "Exact match with your message");
    });
}

#[test]
fn implausible_config_is_reported_with_message() {
    tell_unopened("implausible_config_is_reported_with_message", async |page| {
        page.open_diagnose().await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "n_embd = 770\nfoo = bar(\n").await;
        page.until("it is reported", "document.querySelectorAll('[data-testid=problems] li').length === 2").await;
        let problems = page.text("[data-testid=problems]").await;
        assert!(problems.contains("770") && problems.contains("2:10"), "{problems}");
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
    let Some(axe) = crate::environment::named("the_diagnose_page_has_no_serious_fault", "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened("the_diagnose_page_has_no_serious_fault", async |page| {
        page.open_diagnose().await;
        page.click("#example").await;
        page.until("it is explained", "document.querySelector('[data-testid=fixes] li')").await;
        page.script(&axe).await;
        for (scheme, rules) in SCHEMES {
            page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
            for size in [crate::page::LAPTOP, crate::page::PHONE] {
                page.resize(size).await;
                let found = violations(page, rules).await;
                assert!(found.is_empty(), "{scheme} {size:?}:\n{}", found.join("\n"));
                let wide: bool = page.value("document.documentElement.scrollWidth > innerWidth").await;
                assert!(!wide, "{scheme} {size:?} scrolls sideways");
            }
        }
    });
}
