//! The calculator of nanochat and Hugging Face.

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    accessible::{Rules, violations},
    environment::named,
    page::{LAPTOP, Page, tell, tell_unopened},
};

/// A model that the list of models does not have.
const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
  "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16"}"#;
const HEADROOM: &str = "document.querySelector('#verdict').dataset.headroomBytes";
const NOT_PLANNED: &str = "document.querySelector('.verdict').dataset.outcome === 'none'";
const COMPUTED: &str = "!document.querySelector('[data-testid=advice]').classList.contains('stale')";

async fn open(page: &Page, fragment: &str) {
    page.goto(&format!("{}trainers.html#{fragment}", page.address)).await;
    page.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
}

/// The plan of the command line.
fn plan(page: &Page, arguments: &[&str]) -> Value {
    let output =
        Command::new(&page.headroom).arg("plan").args(arguments).args(["--gpu", "RTX 4070", "--json"]).output();
    serde_json::from_slice(&output.expect("headroom runs").stdout).expect("a plan as JSON")
}

async fn value(page: &Page, id: &str) -> String {
    page.value(&format!("document.querySelector('#{id}').value")).await
}

/// Asserts that the page has the figures of a plan.
async fn assert_shows(page: &Page, plan: &Value) {
    page.until("the plan is shown", &format!("{HEADROOM} === '{}'", plan["headroom_bytes"])).await;
    for phase in plan["phases"].as_array().expect("phases") {
        let name = phase["name"].as_str().expect("a name");
        let cells = format!(
            "[...document.querySelectorAll('#phases tr[data-phase={name}] td')].map((cell) => Number(cell.dataset.bytes))"
        );
        let shown: Vec<u64> = page.value(&cells).await;
        let bytes = ["live_bytes_peak", "max_memory_allocated", "max_memory_reserved"].map(|key| phase[key].as_u64());
        assert_eq!(shown.into_iter().map(Some).collect::<Vec<_>>(), bytes, "{name}");
    }
    page.until("what fits is computed", COMPUTED).await;
    for (key, largest) in plan["largest"].as_object().expect("an object") {
        let shown = page.text(&format!("[data-testid=fits] [data-key={key}] strong")).await;
        let expected = largest.as_u64().map_or_else(|| "none fits".to_owned(), |largest| largest.to_string());
        assert_eq!(shown, expected, "{key}");
    }
}

#[test]
fn nanochat_has_the_plan_of_the_command_line() {
    tell("nanochat_has_the_plan_of_the_command_line", async |page| {
        page.click(".trainers [href*='trainer=nanochat']").await;
        page.until(
            "the verdict is there",
            "document.querySelector('#command') && document.querySelector('#verdict[data-fits]')",
        )
        .await;
        page.choose_gpu("GeForce RTX 4070").await;
        page.fill("#command", "--compile=False --depth=6 --device-batch-size=4").await;
        assert_shows(page, &plan(page, &["nanochat", "--compile=False", "--depth=6", "--device-batch-size=4"])).await;
        // The form edits the command, and a pasted command fills the form.
        page.fill("#depth", "8").await;
        assert_eq!(value(page, "command").await, "--compile=False --depth=8 --device-batch-size=4");
        page.paste("#command", "--compile=False --depth=8 --device-batch-size=4 --max-seq-len=1024").await;
        assert_shows(
            page,
            &plan(page, &["nanochat", "--compile=False", "--depth=8", "--device-batch-size=4", "--max-seq-len=1024"]),
        )
        .await;
        assert_eq!(value(page, "max-seq-len").await, "1024");
        // A value that fits is applied, and Back undoes it.
        let before: String = page.value(HEADROOM).await;
        page.click("[data-testid=fits] [data-key=device-batch-size] button").await;
        page.until("it is applied", "document.querySelector('#device-batch-size').value !== '4'").await;
        page.back().await;
        page.until("it is undone", &format!("{HEADROOM} === '{before}'")).await;
        assert_eq!(value(page, "device-batch-size").await, "4");
        // A compiled run has no plan, and the reason and the hint are shown.
        page.fill("#command", "python -m scripts.base_train --depth=8").await;
        page.until("there is no plan", NOT_PLANNED).await;
        let detail = page.text("#verdict-detail").await;
        assert!(detail.contains("--compile=True") && detail.contains("--compile=False"), "{detail}");
        page.until("the address has it", "location.hash.includes('options=--depth%3D8&')").await;
        page.script("location.reload()").await;
        page.until(
            "the command is back",
            "document.querySelector('#command')?.value === 'python -m scripts.base_train --depth=8'",
        )
        .await;
    });
}

#[test]
fn a_hugging_face_run_has_the_plan_of_the_command_line() {
    tell_unopened("a_hugging_face_run_has_the_plan_of_the_command_line", async |page| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.json");
        fs::write(&file, CONFIG).expect("the folder is writable");
        let file = file.to_str().expect("a UTF-8 path");
        open(page, "1&trainer=hf&gpu=RTX%204070").await;
        page.paste("#config", CONFIG).await;
        page.fill("#command", "--bf16 --per_device_train_batch_size=4 --lora_r=8").await;
        let words = ["hf", file, "--bf16", "--per_device_train_batch_size=4", "--lora_r=8"];
        assert_shows(page, &plan(page, &words)).await;
        // Another trainer and back: nothing that was entered is lost.
        page.click(".trainers [href*='trainer=nanochat']").await;
        page.until("nanochat is shown", "document.querySelector('#depth')").await;
        page.click(".trainers [href*='trainer=hf']").await;
        page.until("the config is back", "document.querySelector('#config')?.value.includes('1408')").await;
        assert_shows(page, &plan(page, &words)).await;
        // A link opens the same run.
        page.allow_clipboard().await;
        page.click("#copy-link").await;
        page.until("the link is copied", "document.querySelector('#copy-link .button__said').textContent").await;
        let link = page.clipboard().await;
        page.script("sessionStorage.clear()").await;
        page.goto("about:blank").await;
        page.goto(&link).await;
        page.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
        assert_shows(page, &plan(page, &words)).await;
        // Another architecture has no plan, the key is named, and the text stays.
        let other = CONFIG.replace("llama", "mamba");
        page.paste("#config", &other).await;
        page.until("there is no plan", NOT_PLANNED).await;
        let detail = page.text("#verdict-detail").await;
        assert!(detail.contains("`model_type` is mamba"), "{detail}");
        assert_eq!(value(page, "config").await, other);
        // A model of the list.
        page.script(
            "const list = document.querySelector('#model'); list.value = '1'; list.dispatchEvent(new Event('change'))",
        )
        .await;
        page.until("it is planned", "document.querySelector('#verdict[data-fits]')").await;
        page.back().await;
        page.until("the text is back", "document.querySelector('#config').value.includes('mamba')").await;
    });
}

#[test]
fn every_window_shows_a_trainer_without_scrolling_sideways() {
    let name = "every_window_shows_a_trainer_without_scrolling_sideways";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        for language in ["en", "de", "ja", "zh"] {
            for trainer in ["nanochat", "hf"] {
                page.goto(&format!("{}trainers.html?lang={language}#1&trainer={trainer}", page.address)).await;
                page.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
                page.until("what fits is computed", COMPUTED).await;
                page.value::<bool>("(document.querySelector('#more').open = true)").await;
                for size in [(320, 700), (390, 844), (820, 1180), (1280, 800), (1920, 1080), (2560, 1440)] {
                    page.resize(size).await;
                    let beyond: i64 =
                        page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
                    assert!(beyond <= 0, "{language} {trainer} {size:?}: {beyond} px too wide");
                }
                page.resize(LAPTOP).await;
                if language == "en" {
                    page.script(&axe).await;
                    assert_eq!(violations(page, Rules::All).await, Vec::<String>::new(), "{trainer}");
                }
            }
        }
    });
}

#[test]
fn a_message_in_a_log_of_another_trainer_is_explained_with_fixes() {
    tell_unopened("a_message_in_a_log_of_another_trainer_is_explained_with_fixes", async |page| {
        let options = ["--bf16", "--per_device_train_batch_size=16"];
        let plan = plan(page, &[&["hf", "Qwen3-0.6B"], &options[..]].concat());
        let message = plan["oom"]["message"].as_str().expect("a run that fails");
        let log = format!("$ python sft.py --model_name_or_path Qwen/Qwen3-0.6B {}\n{message}\n", options.join(" "));
        page.open_diagnose().await;
        page.paste("#message", &log).await;
        let agreement = "document.querySelector('[data-testid=agreement]')?.textContent";
        page.until("it is explained", &format!("{agreement} === 'Exact match with your message'")).await;
        let fix = "[data-testid=trainer-fixes] [data-fits=true] a";
        page.until("fixes are there", &format!("document.querySelector('{fix}')")).await;
        page.click(fix).await;
        page.until("the fixed run fits", "document.querySelector('#verdict[data-fits=true]')").await;
        assert!(page.value::<String>("location.hash").await.contains("trainer=hf"));
    });
}

#[test]
fn edits_of_a_trainers_run_are_undone_and_recent_runs_reopen() {
    tell_unopened("edits_of_a_trainers_run_are_undone_and_recent_runs_reopen", async |page| {
        const CAN: &str = "['undo', 'redo'].map((id) => document.getElementById(id).ariaDisabled === 'false').join()";
        const BATCH: &str = "document.querySelector('#device-batch-size').value";
        let run = "1&trainer=nanochat&options=--compile%3DFalse%20--depth%3D6%20--device-batch-size%3D2&gpu=RTX%204070";
        open(page, run).await;
        page.until("nothing can be undone", &format!("{CAN} === 'false,false'")).await;
        page.fill("#device-batch-size", "4").await;
        page.until("the edit can be undone", &format!("{CAN} === 'true,false'")).await;
        page.click("#undo").await;
        page.until("it is undone", &format!("{BATCH} === '2' && {CAN} === 'false,true'")).await;
        page.script("document.body.focus()").await;
        page.click("#redo").await;
        page.until("it is done again", &format!("{BATCH} === '4' && {CAN} === 'true,false'")).await;
        // Runs of both calculators are in one list, and each opens in its own.
        page.goto(&format!("{}demo.html", page.address)).await;
        page.open("1&batch_size=4&gpu=T4").await;
        page.until("the list's button is there", "document.querySelector('#recent').hidden === false").await;
        page.click("#recent").await;
        let rows: Vec<String> =
            page.value("[...document.querySelectorAll('#recent-list li')].map((row) => row.textContent)").await;
        assert!(rows.len() == 2 && rows[1].starts_with("nanochat d6 · batch 4 · RTX 4070"), "{rows:?}");
        page.click("#recent-list li:last-child a").await;
        page.until("the run is shown", &format!("document.querySelector('#command') && {BATCH} === '4'")).await;
        page.click("#recent").await;
        page.click("#recent-list [href*='calculator.html']").await;
        page.until("nanoGPT's run is shown", "document.querySelector('#batch_size')?.value === '4'").await;
    });
}
