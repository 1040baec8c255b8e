//! The page that lists the GPUs on which a run fits.

use headroom_planner::hardware::devices;

use crate::{
    accessible::{Rules, violations},
    environment::named,
    page::{Page, tell, tell_unopened},
};
use std::fs;

const PLANNED: &str = "document.querySelector('[data-testid=gpus-summary]')?.dataset.planning === 'false'";
const NAMES: &str = "[...document.querySelectorAll('[data-testid=gpus] tbody tr')].map((row) => row.dataset.gpu)";
const HEADLINE: &str = "document.querySelector('[data-testid=gpus-summary]').textContent";

async fn open(page: &Page, fragment: &str) {
    page.goto(&format!("{}gpus.html#{fragment}", page.address)).await;
    planned(page).await;
}

/// Waits until every GPU is planned, and shows all of them.
async fn planned(page: &Page) {
    page.until("every GPU is planned", PLANNED).await;
    // Back may show the page as it was, with all GPUs.
    page.script("document.querySelector('#gpus-all')?.click()").await;
}

async fn names(page: &Page) -> Vec<String> {
    page.value(NAMES).await
}

#[test]
fn each_gpu_leads_to_the_calculator_with_the_same_verdict() {
    tell("each_gpu_leads_to_the_calculator_with_the_same_verdict", async |page| {
        page.open("1&gpu=RTX%204070").await;
        page.paste("#config", "batch_size = 24  # mine\n").await;
        page.until("it is read", "document.querySelector('#batch_size').value === '24'").await;
        page.click(".header__pages [href*='gpus.html']").await;
        page.until("every GPU is planned", PLANNED).await;
        let first = names(page).await;
        assert!(first.len() < 30 && first.contains(&"GeForce RTX 4070".to_owned()), "{first:?}");
        page.click("#gpus-all").await;
        assert_eq!(names(page).await.len(), devices().len());
        assert_eq!(
            page.value::<String>("document.activeElement.closest('tr').dataset.gpu").await,
            names(page).await[24]
        );
        let current: Vec<String> = page
            .value(
                "[...document.querySelectorAll('[data-testid=gpus] tr[aria-current]')].map((row) => row.dataset.gpu)",
            )
            .await;
        assert_eq!(current, ["GeForce RTX 4070"]);
        let fitting: usize =
            page.value("document.querySelectorAll('[data-testid=gpus] tr[data-outcome=fits]').length").await;
        let headline: String = page.value(HEADLINE).await;
        let narrow: usize =
            page.value("document.querySelectorAll('[data-testid=gpus] tr[data-outcome=narrow]').length").await;
        let more = if narrow == 0 { String::new() } else { format!(", and {narrow} more narrowly") };
        assert_eq!(headline.trim(), format!("Fits {fitting} of {} GPUs{more}", devices().len()));
        for name in ["GeForce RTX 3060 12GB", "GeForce RTX 4090", "Tesla T4", "GeForce GTX 1060 6GB"] {
            let row = format!("[data-testid=gpus] tr[data-gpu='{name}']");
            let said = page.text(&format!("{row} .gpus__result")).await;
            page.click(&format!("{row} a")).await;
            page.until("the calculator is there", "document.querySelector('#verdict[data-fits]')").await;
            let verdict = page.text("#verdict").await;
            assert!(verdict.starts_with(&said), "{name}: {verdict:?} is not {said:?}");
            assert_eq!(page.value::<String>("document.querySelector('#gpu').value").await, name);
            let config: String = page.value("document.querySelector('#config').value").await;
            assert_eq!(config, "batch_size = 24  # mine\n");
            page.back().await;
            planned(page).await;
            assert_eq!(page.text(&format!("{row} .gpus__result")).await, said);
        }
    });
}

#[test]
fn gpus_are_filtered_and_ordered() {
    tell_unopened("gpus_are_filtered_and_ordered", async |page| {
        open(page, "1&batch_size=24").await;
        let all = names(page).await;
        page.fill("#gpus-search", "12 GB").await;
        page.until("it is narrowed", &format!("{NAMES}.length === 13")).await;
        page.fill("#gpus-search", "RTX 9999").await;
        page.until("nothing is found", "document.querySelector('[data-testid=gpus-nothing]').textContent").await;
        page.fill("#gpus-search", " ").await;
        page.until("all are back", &format!("{NAMES}.length === {}", all.len())).await;
        page.click("#gpus-fitting").await;
        page.until("some are left out", &format!("{NAMES}.length < {}", all.len())).await;
        assert!(
            page.value::<bool>("document.querySelector('[data-testid=gpus] tr[data-outcome=fails]') === null").await
        );
        page.script(
            "const order = document.querySelector('#gpus-order');
             order.value = '1'; order.dispatchEvent(new Event('change', { bubbles: true }))",
        )
        .await;
        let sizes = "[...document.querySelectorAll('[data-testid=gpus] tbody td.gpus__number:nth-of-type(1)')]
            .map((cell) => parseFloat(cell.textContent))";
        page.until(
            "the smallest is first",
            &format!("{sizes}.every((size, index, all) => index === 0 || all[index - 1] <= size + 1)"),
        )
        .await;
        let detail: String = page.value(&format!("{HEADLINE}.trim()")).await;
        assert!(detail.starts_with("Fits "), "{detail}");
        page.script(
            "const order = document.querySelector('#gpus-order');
             order.value = '3'; order.dispatchEvent(new Event('change', { bubbles: true }))",
        )
        .await;
        let watt_hours = "[...document.querySelectorAll('[data-testid=gpus] td.gpus__energy')]
            .map((cell) => parseFloat(cell.textContent.slice(2)) * (cell.textContent.endsWith('kWh') ? 1000 : 1))
            .filter(Number.isFinite)";
        page.until(
            "the least energy is first",
            &format!("{watt_hours}.every((one, index, all) => index === 0 || all[index - 1] <= one)"),
        )
        .await;
        assert!(page.value::<usize>(&format!("{watt_hours}.length")).await > 20);
    });
}

#[test]
fn energy_is_an_upper_bound_of_boards_with_a_known_limit() {
    tell_unopened("energy_is_an_upper_bound_of_boards_with_a_known_limit", async |page| {
        open(page, "1&batch_size=12").await;
        for (name, is_known) in [("GeForce RTX 4090", true), ("Tesla T4", true), ("GeForce RTX 4060 Laptop GPU", false)]
        {
            let energy = page.text(&format!("[data-testid=gpus] tr[data-gpu='{name}'] .gpus__energy")).await;
            assert_eq!(energy.starts_with("≤ ") && energy.ends_with("Wh"), is_known, "{name}: {energy:?}");
        }
        let hint = page.text("[data-testid=gpus-energy]").await;
        assert!(hint.starts_with("Energy: upper bound for 1,000 iterations"), "{hint}");
    });
}

#[test]
fn gpus_follow_the_config_and_name_the_reason_for_no_plan() {
    tell_unopened("gpus_follow_the_config_and_name_the_reason_for_no_plan", async |page| {
        open(page, "1&batch_size=8").await;
        let few: String = page.value(HEADLINE).await;
        page.paste("#config", "batch_size = 64\n").await;
        page.until("fewer fit", &format!("{PLANNED} && {HEADLINE} !== {few:?}")).await;
        page.until("the address follows", "location.hash.includes('batch_size=64')").await;
        page.paste("#config", "batch_size = 100000\n").await;
        page.until("none fits", &format!("{HEADLINE}.includes('Fits no GPU')")).await;
        page.paste("#config", "compile = maybe\n").await;
        page.until("the reason is there", &format!("{HEADLINE}.includes('No plan: compile cannot be read')")).await;
        assert_eq!(names(page).await, Vec::<String>::new());
        // The run does not depend on the GPU in the field.
        page.paste("#config", "batch_size = 8\n").await;
        page.until("it is planned again", &format!("{PLANNED} && {HEADLINE} === {few:?}")).await;
        page.back().await;
        page.until("the config is back", "document.querySelector('#config').value === 'compile = maybe\\n'").await;
    });
}

#[test]
fn batch_sizes_have_verdicts_and_set_the_config() {
    tell_unopened("batch_sizes_have_verdicts_and_set_the_config", async |page| {
        open(page, "1&batch_size=24&gpu=RTX%204070").await;
        let cell = |size: u64| format!("[data-testid=batches] [data-batch='{size}']");
        let pressed = "document.querySelector('[data-testid=batches] [aria-pressed=true]')?.dataset.batch";
        assert_eq!(page.value::<String>(pressed).await, "24");
        let best: String = page.value("document.querySelector('.strip__size_best').dataset.batch").await;
        assert!(page.text("[data-testid=batch-advice]").await.starts_with(&format!("Recommended: {best},")));
        assert!(page.text(&cell(24)).await.contains("Does not fit: "));
        assert!(page.text(".strip__size_best").await.contains("Fits: "));
        assert!(page.text(".strip__size_best").await.contains(" per token"));
        page.click(".strip__size_best").await;
        page.until("it is the run's", &format!("{PLANNED} && {pressed} === {best:?}")).await;
        page.until("the address follows", &format!("location.hash.includes('batch_size={best}&')")).await;
        let row = "document.querySelector('[data-testid=gpus] tr[aria-current]').dataset.outcome";
        assert_eq!(page.value::<String>(row).await, "fits");
        page.back().await;
        page.until("the size is back", &format!("{PLANNED} && {pressed} === '24'")).await;
        page.paste("#config", "compile = maybe\n").await;
        page.until("no plan, no sizes", &format!("{PLANNED} && !document.querySelector('[data-testid=batches]')"))
            .await;
    });
}

#[test]
fn a_pasted_model_is_listed_on_every_gpu_and_opens_in_its_calculator() {
    tell_unopened("a_pasted_model_is_listed_on_every_gpu_and_opens_in_its_calculator", async |page| {
        open(page, "1&batch_size=24&gpu=RTX%204070").await;
        page.start_paste("#config", "Qwen/Qwen3-1.7B").await;
        page.until("the model is listed", &format!("{PLANNED} && document.querySelector('[data-testid=gpus-run]')"))
            .await;
        planned(page).await;
        assert_eq!(page.text("[data-testid=gpus-run]").await, "Qwen3-1.7B · LoRA 16 · batch 2");
        let orders: usize = page.value("document.querySelector('#gpus-order').options.length").await;
        assert_eq!(orders, 2, "no times are known");
        assert_eq!(page.value::<usize>("document.querySelectorAll('.gpus__time').length").await, 0);
        let address: String = page.value("location.hash").await;
        assert!(address.contains("trainer=hf") && address.contains("gpu=RTX%204070"), "{address}");

        let row = "[data-testid=gpus] tr[data-gpu='GeForce RTX 3060 12GB']";
        let result = page.text(&format!("{row} .gpus__result")).await;
        page.click(&format!("{row} a")).await;
        page.until("the calculator is there", "document.querySelector('.verdict:not([data-outcome=none]) #verdict')")
            .await;
        let verdict = page.text("#verdict").await;
        assert!(verdict.starts_with(&result), "{verdict:?} is not {result:?}");
        assert_eq!(page.value::<String>("document.querySelector('#gpu').value").await, "GeForce RTX 3060 12GB");

        // The calculator's run comes along.
        page.click(".header__pages [href*='gpus.html']").await;
        page.until("it is listed again", &format!("{PLANNED} && document.querySelector('[data-testid=gpus-run]')"))
            .await;
        assert_eq!(page.text("[data-testid=gpus-run]").await, "Qwen3-1.7B · LoRA 16 · batch 2");
        let best: String = page.value("document.querySelector('.strip__size_best').dataset.batch").await;
        page.click(".strip__size_best").await;
        let pressed = "document.querySelector('[data-testid=batches] [aria-pressed=true]')?.dataset.batch";
        page.until("the size is set", &format!("{PLANNED} && {pressed} === {best:?}")).await;
        assert!(page.text("[data-testid=gpus-run]").await.ends_with(&format!("batch {best}")));
        page.click("#undo").await;
        page.until("the size is back", &format!("{PLANNED} && {pressed} === '2'")).await;
        page.choose_gpu("GeForce RTX 4060").await;
        let current = "document.querySelector('[data-testid=gpus] tr[aria-current]')?.dataset.gpu";
        page.until("the mark follows the GPU", &format!("{current} === 'GeForce RTX 4060'")).await;
        page.click("#gpus-other").await;
        page.until("the text is back", "document.activeElement.id === 'config'").await;
        page.until("nanoGPT is planned", &format!("{PLANNED} && !location.hash.includes('trainer=')")).await;
    });
}

#[test]
fn a_typed_run_of_a_trainer_is_offered() {
    tell_unopened("a_typed_run_of_a_trainer_is_offered", async |page| {
        open(page, "1&gpu=RTX%203060").await;
        page.fill("#config", "python -m scripts.base_train --compile=False --depth=4").await;
        page.click("#gpus-take").await;
        page.until("the run is listed", &format!("{PLANNED} && document.querySelector('[data-testid=gpus-run]')"))
            .await;
        assert!(page.text("[data-testid=gpus-run]").await.starts_with("nanochat d4"));
        // nanochat has no plan below compute capability 8.0.
        assert_eq!(page.text("[data-testid=gpus-summary] + p").await.matches("for the other").count(), 1);
        assert!(names(page).await.iter().all(|name| !name.contains("Tesla T4")));
        page.back().await;
        page.until("the text is back", "document.querySelector('#config').value.includes('base_train')").await;
    });
}

#[test]
fn list_of_gpus_is_accessible_and_fits_every_width() {
    let name = "list_of_gpus_is_accessible_and_fits_every_width";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        open(page, "1&batch_size=24").await;
        page.script(&axe).await;
        for size in [(320, 700), (390, 844), (820, 1180), (1280, 800), (1920, 1080)] {
            page.resize(size).await;
            let beyond: i64 =
                page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
            assert!(beyond <= 0, "{size:?}: {beyond} px too wide");
            assert_eq!(violations(page, Rules::All).await, Vec::<String>::new(), "{size:?}");
        }
        page.start_paste("#config", "Qwen/Qwen3-0.6B").await;
        page.until("the model is listed", &format!("{PLANNED} && document.querySelector('[data-testid=gpus-run]')"))
            .await;
        page.resize((320, 700)).await;
        let beyond: i64 =
            page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert!(beyond <= 0, "{beyond} px too wide");
        assert_eq!(violations(page, Rules::All).await, Vec::<String>::new());
    });
}
