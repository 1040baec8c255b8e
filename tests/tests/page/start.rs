//! The start page: one field that takes any text about a run, and opens the page that answers it.

use crate::{
    accessible::{SCHEMES, violations},
    environment::named,
    page::{LAPTOP, PHONE, Page, tell_unopened},
};
use fantoccini::key::Key;
use std::fs;

const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of \
    11.69 GiB of which 2.49 GiB is free. Including non-PyTorch memory, this process has 7.22 GiB memory in use. Of the \
    allocated memory 6.78 GiB is allocated by PyTorch, and 261.11 MiB is reserved by PyTorch but unallocated.";
const TEXT: &str = "document.querySelector('#anything')?.value";
const BUTTONS: &str = "[...document.querySelectorAll('[data-testid=open]')].map((button) => button.textContent)";
const VERDICT: &str = "document.querySelector('#verdict[data-fits]')";

async fn open(page: &Page) {
    page.goto(&format!("{}index.html", page.address)).await;
    page.until("the field is there", "document.querySelector('#anything')").await;
}

/// Waits for a page by the name of its file.
async fn arrives(page: &Page, file: &str, shown: &str) {
    page.until(&format!("{file} opens"), &format!("location.pathname.endsWith('/{file}') && {shown}")).await;
}

#[test]
fn a_pasted_message_opens_its_explanation_and_back_returns() {
    tell_unopened("a_pasted_message_opens_its_explanation_and_back_returns", async |page| {
        open(page).await;
        page.start_paste("#anything", MESSAGE).await;
        arrives(page, "diagnose.html", "document.querySelector('[data-testid=explanation]')").await;
        assert_eq!(page.value::<String>("document.querySelector('#message').value").await, MESSAGE);
        page.back().await;
        arrives(page, "index.html", "document.querySelector('#anything')").await;
        page.until("the text is back", &format!("{TEXT}.startsWith('torch.OutOfMemoryError')")).await;
        assert_eq!(page.value::<Vec<String>>(BUTTONS).await, ["Explain this message"]);
    });
}

#[test]
fn a_pasted_config_opens_the_calculator_with_its_comments_on_the_chosen_gpu() {
    tell_unopened("a_pasted_config_opens_the_calculator_with_its_comments_on_the_chosen_gpu", async |page| {
        open(page).await;
        page.choose_gpu("GeForce RTX 3060 12GB").await;
        page.start_paste("#anything", "batch_size = 64  # mine\n").await;
        arrives(page, "calculator.html", VERDICT).await;
        let config: String = page.value("document.querySelector('#config').value").await;
        assert!(config.contains("batch_size = 64  # mine"), "{config}");
        assert!(page.value::<String>("document.querySelector('#gpu').value").await.contains("3060"));
        // The chosen GPU is that of the next visit.
        open(page).await;
        assert!(page.value::<String>("document.querySelector('#gpu').value").await.contains("3060"));
    });
}

#[test]
fn enter_opens_a_typed_line() {
    tell_unopened("enter_opens_a_typed_line", async |page| {
        open(page).await;
        let field = page.find("#anything").await;
        field.send_keys("350M, batch 4").await.expect("a field");
        page.until("it is read", &format!("{BUTTONS}.length === 1")).await;
        field.send_keys(&String::from(char::from(Key::Enter))).await.expect("a field");
        arrives(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#n_layer').value").await, "24");
    });
}

#[test]
fn a_model_or_a_command_opens_its_trainer() {
    tell_unopened("a_model_or_a_command_opens_its_trainer", async |page| {
        open(page).await;
        page.start_paste("#anything", "https://huggingface.co/Qwen/Qwen2.5-0.5B").await;
        arrives(page, "trainers.html", VERDICT).await;
        page.until("the model is shown", "document.querySelector('#run-summary').textContent.includes('Qwen2.5-0.5B')")
            .await;
        open(page).await;
        page.start_paste("#anything", "python -m scripts.base_train --compile=False --depth=6 --device-batch-size=2")
            .await;
        arrives(page, "trainers.html", VERDICT).await;
        page.until("the run is shown", "document.querySelector('#run-summary').textContent.includes('nanochat d6')")
            .await;
    });
}

#[test]
fn texts_with_two_answers_or_none_stay() {
    tell_unopened("texts_with_two_answers_or_none_stay", async |page| {
        open(page).await;
        let config = r#"{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 1024, "n_positions": 1024, "vocab_size": 50257}"#;
        page.start_paste("#anything", config).await;
        page.until("both are offered", &format!("{BUTTONS}.length === 2")).await;
        let buttons = page.value::<Vec<String>>(BUTTONS).await;
        assert_eq!(buttons, ["Fine-tune it with Hugging Face", "Train it with nanoGPT"]);
        // A paste replaces a text.
        page.start_paste("#anything", "no run at all").await;
        page.until("nothing is offered", "document.querySelector('[data-testid=recognized][data-outcome=none]')").await;
        assert_eq!(page.value::<Vec<String>>(BUTTONS).await, [""; 0]);
        // The page in another language keeps the text.
        page.value::<bool>(
            "(() => { const list = document.querySelector('.header__language'); list.value = 'de';
              return list.dispatchEvent(new Event('change', { bubbles: true })); })()",
        )
        .await;
        page.until("it is in German", &format!("document.documentElement.lang === 'de' && {TEXT} === 'no run at all'"))
            .await;
    });
}

#[test]
fn a_log_of_megabytes_opens_its_explanation() {
    tell_unopened("a_log_of_megabytes_opens_its_explanation", async |page| {
        open(page).await;
        let log = "iter 100: loss 3.1415, time 250.00ms, mfu 40.00%\n".repeat(100_000) + MESSAGE + "\n";
        page.start_paste("#anything", &log).await;
        arrives(page, "diagnose.html", "document.querySelector('[data-testid=explanation]')").await;
    });
}

#[test]
fn links_without_a_page_open_the_calculator() {
    tell_unopened("links_without_a_page_open_the_calculator", async |page| {
        page.goto(&format!("{}?lang=de#1&batch_size=3&gpu=L4", page.address)).await;
        arrives(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "3");
        assert_eq!(page.value::<String>("document.documentElement.lang").await, "de");
        // The forwarded address is no step of the history.
        open(page).await;
        page.script("location.hash = '#1&batch_size=5&gpu=L4'").await;
        arrives(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "5");
    });
}

#[test]
fn recent_runs_are_listed_and_cleared() {
    tell_unopened("recent_runs_are_listed_and_cleared", async |page| {
        let rows = "[...document.querySelectorAll('#recent-runs li a')]";
        page.open("1&batch_size=7&gpu=RTX%204070").await;
        open(page).await;
        page.until("the run is listed", &format!("{rows}.length > 0")).await;
        let row: String = page.value(&format!("{rows}[0].textContent")).await;
        assert!(row.contains("GPT-2") && row.contains('7'), "{row}");
        page.click("#recent-runs li a").await;
        arrives(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "7");
        open(page).await;
        page.until("the run is listed", &format!("{rows}.length > 0")).await;
        // The verdict is in the language of the page. One that an earlier version kept as text stays as it was.
        page.script(
            "const [run] = JSON.parse(localStorage.getItem('headroom.recent'));
             const old = { hash: '#1&batch_size=6', run: 'old', verdict: 'Fits: 1.00 GiB left', outcome: 'fits' };
             localStorage.setItem('headroom.recent', JSON.stringify([run, old]));",
        )
        .await;
        page.goto(&format!("{}index.html?lang=de", page.address)).await;
        page.until("both runs are listed", &format!("{rows}.length === 2")).await;
        let verdicts: Vec<String> = page.value(&format!("{rows}.map((row) => row.lastElementChild.textContent)")).await;
        assert!(verdicts[0].starts_with("Passt: ") && verdicts[0].ends_with(" GiB frei"), "{verdicts:?}");
        assert!(verdicts[0].contains(','), "{verdicts:?}");
        assert_eq!(verdicts[1], "Fits: 1.00 GiB left");
        page.click("#recent-clear").await;
        page.until("the list is gone", "document.querySelector('#recent-runs').hidden").await;
    });
}

#[test]
fn axe_finds_nothing_on_the_start_page() {
    let test = "axe_finds_nothing_on_the_start_page";
    let Some(axe) = named(test, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(test, async |page| {
        open(page).await;
        page.script(&axe).await;
        for text in ["", "hello"] {
            page.fill("#anything", text).await;
            for (scheme, rules) in SCHEMES {
                page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
                for size in [LAPTOP, PHONE] {
                    page.resize(size).await;
                    let found = violations(page, rules).await;
                    assert!(found.is_empty(), "{scheme}, {size:?}: {}", found.join("\n"));
                }
            }
        }
    });
}
