//! Back and Forward move through the user's changes. Pasting a text of another form opens the run in it.

use crate::page::{Page, tell, tell_unopened};
use fantoccini::key::Key;
use std::fs;

const CONFIG: &str = "document.querySelector('#config').value";
const OFFERED: &str = "document.querySelector('.fixes:not(.stale) [data-fix=micro_batch][data-fits=true]')";

async fn length(page: &Page) -> u64 {
    page.value("history.length").await
}

async fn shows(page: &Page, key: &str, value: &str) {
    page.until(&format!("{key} is {value}"), &format!("document.getElementById('{key}').value === '{value}'")).await;
}

#[test]
fn back_undoes_complete_actions() {
    tell("back_undoes_complete_actions", async |page| {
        page.open("1&gpu=RTX%204070&others=2GiB&batch_size=12&gradient_accumulation_steps=1").await;
        let before = length(page).await;
        page.fill("#batch_size", "64").await;
        page.until("the address follows", "location.hash.includes('batch_size=64')").await;
        assert_eq!(length(page).await, before + 1, "an edit adds an entry");
        let before = before + 1;

        page.until("fixes are offered", OFFERED).await;
        page.click("[data-fix=micro_batch] button").await;
        page.until("the run fits", "document.querySelector('#verdict[data-fits=true]')").await;
        page.until("the address follows", "location.hash.includes('batch_size=8&')").await;
        assert_eq!(length(page).await, before + 1, "a fix adds an entry");
        let fixed: String = page.value(CONFIG).await;
        page.choose_gpu("Tesla T4").await;
        page.until("the address follows", "location.hash.includes('Tesla%20T4')").await;
        assert_eq!(length(page).await, before + 2, "a GPU adds an entry");
        let on_t4: String = page.value(CONFIG).await;
        assert!(fixed.contains("# headroom: fits") && !on_t4.contains("# headroom"), "{fixed}\n{on_t4}");

        page.back().await;
        page.until("the GPU is back", "document.querySelector('#gpu').value === 'RTX 4070'").await;
        page.until("with the comments", &format!("{CONFIG} === {fixed:?}")).await;
        page.back().await;
        shows(page, "batch_size", "64").await;
        page.forward().await;
        shows(page, "batch_size", "8").await;
    });
}

#[test]
fn undo_and_redo_follow_the_steps_of_this_page_only() {
    tell("undo_and_redo_follow_the_steps_of_this_page_only", async |page| {
        let can = |id: &str| format!("document.querySelector('#{id}').ariaDisabled === 'false'");
        page.open("1&batch_size=4&gpu=RTX%204070").await;
        // Undo never leaves the page.
        for _ in 0..2 {
            page.script("document.querySelector('#undo').click()").await;
            page.script("document.querySelector('#verdict').focus()").await;
            page.press_with_control('z').await;
        }
        shows(page, "batch_size", "4").await;
        page.fill("#batch_size", "8").await;
        page.until("it can be undone", &can("undo")).await;
        page.choose_gpu("Tesla T4").await;
        page.until("the address follows", "location.hash.includes('Tesla%20T4')").await;
        page.click("#undo").await;
        page.until("the GPU is back", "document.querySelector('#gpu').value === 'RTX 4070'").await;
        assert_eq!(page.value::<String>("document.activeElement.id").await, "undo", "the button keeps the focus");
        page.press_with_control('z').await;
        shows(page, "batch_size", "4").await;
        page.until("the first step", &format!("!({}) && {}", can("undo"), can("redo"))).await;
        page.press_with_control('y').await;
        shows(page, "batch_size", "8").await;
        // A reload keeps what can be undone.
        page.browser.driver.refresh().await.expect("the page reloads");
        page.until("it can be undone", &can("undo")).await;
        page.click("#undo").await;
        shows(page, "batch_size", "4").await;
        // A new edit discards what was undone.
        page.fill("#batch_size", "2").await;
        page.until("nothing can be redone", &format!("!({}) && {}", can("redo"), can("undo"))).await;
        // A text field has its own undo.
        page.fill("#batch_size", "3").await;
        page.press_with_control('z').await;
        assert!(page.value::<bool>(&can("undo")).await);
    });
}

#[test]
fn back_undoes_an_edit_and_not_a_keystroke() {
    tell("back_undoes_an_edit_and_not_a_keystroke", async |page| {
        page.open("1&batch_size=4&gpu=RTX%204070").await;
        let before = length(page).await;
        page.click("#config").await;
        page.press_with_control('a').await;
        page.press("batch_size = 8\nn_layer = 6\nblock_size = 512\n").await;
        page.until("the address follows", "location.hash.includes('block_size=512')").await;
        assert_eq!(length(page).await, before + 1, "one entry for all keystrokes");
        let edited: String = page.value(CONFIG).await;
        // Another field is another edit.
        page.fill("#dropout", "0.1").await;
        page.until("the address follows", "location.hash.includes('dropout=0.1')").await;
        assert_eq!(length(page).await, before + 2);
        page.back().await;
        page.until("the text is back", &format!("{CONFIG} === {edited:?}")).await;
        page.back().await;
        shows(page, "batch_size", "4").await;
        shows(page, "n_layer", "12").await;
        assert_eq!(length(page).await, before + 2, "going back adds no entry");
        page.forward().await;
        page.until("the edit is back", &format!("{CONFIG} === {edited:?}")).await;
        shows(page, "n_layer", "6").await;
        page.forward().await;
        shows(page, "dropout", "0.1").await;
    });
}

#[test]
fn focused_field_shows_the_restored_run() {
    tell("focused_field_shows_the_restored_run", async |page| {
        page.open("1&batch_size=32&gpu=RTX%204070").await;
        page.fill("#batch_size", "8").await;
        page.until("the address follows", "location.hash.includes('batch_size=8')").await;
        page.fill("#n_layer", "6").await;
        page.until("the address follows", "location.hash.includes('n_layer=6')").await;
        for (step, n_layer, batch_size) in [("back", "12", "8"), ("forward", "6", "8"), ("back", "12", "8")] {
            page.script(&format!("history.{step}()")).await;
            page.until(
                "the run is restored",
                &format!("document.querySelector('#n_layer-range').value === '{n_layer}'"),
            )
            .await;
            shows(page, "n_layer", n_layer).await;
            shows(page, "batch_size", batch_size).await;
            assert!(page.value::<bool>("document.activeElement.id === 'n_layer'").await, "the field keeps the focus");
        }
        // An invalid text goes with the run that it was typed for.
        page.press_with_control('a').await;
        page.press("6.5").await;
        page.until("the field is marked", "document.querySelector('#n_layer').ariaInvalid === 'true'").await;
        page.script("location.hash = '1&n_layer=24&n_head=16&n_embd=1024&gpu=RTX%204070'").await;
        shows(page, "n_layer", "24").await;
        page.until("the mark is gone", "document.querySelector('#n_layer').ariaInvalid !== 'true'").await;
    });
}

#[test]
fn back_undoes_an_edit_of_diagnose() {
    tell_unopened("back_undoes_an_edit_of_diagnose", async |page| {
        page.goto(&format!("{}diagnose.html", page.address)).await;
        page.until("the example is offered", "document.querySelector('#example')").await;
        page.click("#example").await;
        page.until("it is explained", "document.querySelector('[data-testid=agreement]')").await;
        let (given, before) = (page.value::<String>(CONFIG).await, length(page).await);
        page.click("#config").await;
        page.press_with_control('a').await;
        page.press("batch_size = 64\nn_layer = 6\n").await;
        page.until("the address follows", "location.hash.includes('n_layer=6')").await;
        assert_eq!(length(page).await, before + 1);
        page.back().await;
        page.until("the config is back", &format!("{CONFIG} === {given:?}")).await;
        page.forward().await;
        page.until("the edit is back", &format!("{CONFIG}.includes('n_layer = 6')")).await;
        assert!(page.value::<bool>("document.querySelector('#message').value.includes('6.14 GiB')").await);
    });
}

#[test]
fn a_fix_keeps_the_tokens_of_the_run_as_it_is() {
    tell("a_fix_keeps_the_tokens_of_the_run_as_it_is", async |page| {
        page.open("1&gpu=RTX%204070&others=2GiB&batch_size=64&gradient_accumulation_steps=1").await;
        for steps in ["8", "64", "512"] {
            page.until("fixes are offered", OFFERED).await;
            page.click("[data-fix=micro_batch] button").await;
            shows(page, "batch_size", "8").await;
            shows(page, "gradient_accumulation_steps", steps).await;
            page.fill("#batch_size", "64").await;
            page.until("the run fails", "document.querySelector('#verdict[data-fits=false]')").await;
        }
    });
}

#[test]
fn comments_of_a_fix_go_with_gpu_and_other_keys() {
    tell_unopened("comments_of_a_fix_go_with_gpu_and_other_keys", async |page| {
        for change in ["gpu", "n_layer", "others"] {
            page.open_link(&format!(
                "{}calculator.html?{change}#1&gpu=RTX%204070&others=2GiB&batch_size=64",
                page.address
            ))
            .await;
            page.until("fixes are offered", OFFERED).await;
            page.click("[data-fix=micro_batch] button").await;
            page.until("they are there", &format!("{CONFIG}.includes('# headroom: fits')")).await;
            match change {
                "gpu" => page.choose_gpu("Tesla T4").await,
                "n_layer" => page.fill("#n_layer", "24").await,
                _ => page.fill("#other-processes", "3").await,
            }
            page.until("they are gone", &format!("!{CONFIG}.includes('# headroom')")).await;
            page.click("#copy-config").await;
            assert!(!page.clipboard().await.contains("# headroom"), "{change}");
        }
    });
}

#[test]
fn a_pasted_link_or_json_opens_its_run() {
    tell("a_pasted_link_or_json_opens_its_run", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        page.start_paste("#config", "https://example.org/headroom/#1&batch_size=3&n_layer=6&gpu=L4").await;
        shows(page, "batch_size", "3").await;
        shows(page, "gpu", "L4").await;
        assert_eq!(page.value::<String>(CONFIG).await, "batch_size = 3\nn_layer = 6\n");

        let folder = tempfile::tempdir().expect("a directory");
        let config = folder.path().join("small.py");
        fs::write(&config, "batch_size = 3\nn_layer = 6\n").expect("written");
        let json = page.command_line(&config, &["--gpu", "L4"]).to_string();
        page.open("1&batch_size=12&gpu=RTX%204070").await;
        page.start_paste("#config", &json).await;
        shows(page, "batch_size", "3").await;
        shows(page, "n_layer", "6").await;
        shows(page, "gpu", "L4").await;

        page.start_paste(
            "#config",
            r#"{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 1024, "n_positions": 512}"#,
        )
        .await;
        for (key, value) in [("n_layer", "24"), ("n_head", "16"), ("n_embd", "1024"), ("block_size", "512")] {
            shows(page, key, value).await;
        }
        page.press_with_control('a').await;
        page.press(&Key::Delete).await;
        page.start_paste(
            "#config",
            r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "vocab_size": 32000}"#,
        )
        .await;
        let headline = "document.querySelector('#verdict').textContent";
        let why = "this is a Llama config; Headroom plans nanoGPT models";
        page.until("it has no plan", &format!("{headline}.includes('No plan: {why}')")).await;
        page.start_paste("#config", "batch_size: 8\nn_layer: 6\n").await;
        page.until("nor has YAML", &format!("{headline}.includes('No plan: this is YAML')")).await;
    });
}

#[test]
fn a_link_with_an_unreadable_value_shows_its_error() {
    tell("a_link_with_an_unreadable_value_shows_its_error", async |page| {
        page.paste("#config", "batch_size = abc").await;
        let headline = "document.querySelector('#verdict')?.textContent.includes('batch_size cannot be read')";
        page.until("there is no plan", headline).await;
        let said = page.text("#verdict-detail").await;
        page.click("#copy-command").await;
        assert_eq!(page.clipboard().await, "python train.py --batch_size=abc");
        page.click("#copy-link").await;
        let link = page.clipboard().await;
        assert!(link.contains("batch_size=abc"), "{link}");
        page.goto(&link.replacen('#', "?anew#", 1)).await;
        page.until("there is no plan", headline).await;
        assert_eq!(page.text("#verdict-detail").await, said);
        assert_eq!(page.value::<String>(CONFIG).await.trim_end(), "batch_size = abc");
    });
}
