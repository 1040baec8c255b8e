//! The demo page on both backends: WebGPU on Chromium's software adapter, and WebAssembly.

mod attention;
mod files;
mod progress;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use headroom_harness::repetitions;
use serde_json::json;

use crate::{
    accessible::{SCHEMES, violations},
    environment::named,
    page::{LAPTOP, PHONE, Page, Size, tell_with},
};
use files::sparse_model;

/// Flags that select Chromium's software adapter, so that WebGPU can be tested on any machine.
const WEBGPU: [&str; 2] = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

/// True once the form is drawn and a model is loaded.
const READY: &str = "document.querySelector('#write')?.disabled === false";
const FAILED: &str = "document.querySelector('[data-testid=failure]')";

fn shipped() -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/demo/stories.safetensors");
    // WebDriver rejects a path with dots.
    file.canonicalize().expect("the model that ships")
}

async fn open(page: &Page) {
    page.goto(&format!("{}demo.html", page.address)).await;
    page.until("the model is loaded", READY).await;
}

/// Runs `story` on the demo page in a browser with these flags.
fn demo(test: &str, flags: &[&str], story: impl AsyncFnOnce(&Page)) {
    tell_with(test, flags, async |page| {
        open(page).await;
        story(page).await;
    });
}

/// Fills in the form, presses the button, and returns the final text including the prompt.
async fn write(page: &Page, prompt: &str, seed: u64, n_tokens: u32) -> String {
    for (id, value) in [("prompt", prompt), ("seed", &seed.to_string()), ("n-tokens", &n_tokens.to_string())] {
        page.fill(&format!("#{id}"), value).await;
    }
    page.click("#write").await;
    page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
    page.value("document.querySelector('#tokens').textContent").await
}

/// Chooses a backend and waits until the model runs on it.
async fn run_on(page: &Page, way: &str, said: &str) {
    page.click(&format!("#way-{way}")).await;
    let runs = format!("{READY} && document.querySelector('[data-testid=backend]').textContent.includes({said:?})");
    page.until(&format!("{said} runs"), &runs).await;
}

async fn choose(page: &Page, files: &[&Path]) {
    let input = page.find("#model-file").await;
    let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    input.send_keys(&names.join("\n")).await.expect("the files are chosen");
}

fn scratch(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a writable folder");
    folder
}

#[test]
fn both_backends_write_what_the_command_line_writes() {
    const PROMPT: &str = "Mia had a red ball.";
    // The context has 256 characters. Beyond it, the demo drops the older half of the context, and nanoGPT one token.
    const CONTEXT: usize = 256;
    const N_TOKENS: u32 = 320;
    /// Another seed has another token among these.
    const FEW_TOKENS: u32 = 40;
    demo("both_backends_write_what_the_command_line_writes", &WEBGPU, async |page| {
        let mut command = Command::new(&page.headroom);
        command.args(["sample", "--prompt", PROMPT, "--seed", "7", "--temperature", "0.8", "--top-k", "40"]);
        command.args(["--max-new-tokens", &(CONTEXT - PROMPT.len()).to_string()]).arg("--ckpt").arg(shipped());
        let output = command.output().expect("headroom runs");
        let expected = String::from_utf8(output.stdout).expect("text");
        let expected = expected.trim_end();
        assert!(expected.len() > PROMPT.len() + 50, "{}", String::from_utf8_lossy(&output.stderr));
        let mut first = None;
        for (way, said) in
            [("cpu", "WebAssembly"), ("webgpu", "WebGPU"), ("webgpu-half", "WebGPU"), ("cpu", "WebAssembly")]
        {
            run_on(page, way, said).await;
            let text = write(page, PROMPT, 7, N_TOKENS).await;
            assert_eq!(text.get(..CONTEXT).map(str::trim_end), Some(expected), "{way}");
            assert_eq!(first.get_or_insert_with(|| text.clone()), &text, "{way}: beyond the context");
            let other = write(page, PROMPT, 8, FEW_TOKENS).await;
            assert!(other.len() > PROMPT.len() && !text.starts_with(&other), "{way}: another seed writes {other:?}");
            let equal = page.text("[data-testid=equal]").await;
            assert!(equal.contains("exactly as planned"), "{way}: {equal}");
            page.until("the map is there", "document.querySelector('[data-testid=map]')").await;
            let cells: u64 = page.value("document.querySelectorAll('.map__grade').length").await;
            assert!(cells >= 4, "{way}: a map of {cells} shades");
            assert!(page.text("[data-testid=rate]").await.contains("tokens/s"), "{way}");
        }
    });
}

#[test]
fn a_token_shows_what_could_have_stood_there() {
    demo("a_token_shows_what_could_have_stood_there", &[], async |page| {
        write(page, "Once upon a time", 1, 30).await;
        let shares = "[...document.querySelectorAll('.candidate__share')].map((share) => parseFloat(share.textContent.replace('<', '')))";
        let last: Vec<f64> = page.value(shares).await;
        assert!(!last.is_empty() && last.is_sorted_by(|a, b| a >= b), "{last:?}");
        page.script("document.querySelector('#tokens').focus()").await;
        page.press(&fantoccini::key::Key::Home).await;
        // The prompt has 16 tokens.
        for _ in 0..16 {
            page.press(&fantoccini::key::Key::Right).await;
        }
        page.until("the first is marked", "document.querySelector('#tokens').children[16].ariaCurrent === 'true'")
            .await;
        let chosen = page.text(".candidate--chosen .candidate__name").await;
        let first: String = page.value("document.querySelector('#tokens').children[16].textContent").await;
        assert_eq!(chosen.replace('·', " "), first);
    });
}

#[test]
fn without_webgpu_the_cpu_writes_and_the_page_says_why() {
    demo("without_webgpu_the_cpu_writes_and_the_page_says_why", &["--disable-features=WebGPU"], async |page| {
        let line = page.text("[data-testid=backend]").await;
        assert!(line.contains("CPU in WebAssembly, simd128"), "{line}");
        assert!(line.contains("WebGPU"), "{line}");
        for (way, is_closed) in [("webgpu", true), ("webgpu-half", true), ("cpu", false), ("cpu-int16", false)] {
            let closed: bool = page.value(&format!("document.querySelector('#way-{way}').disabled")).await;
            assert_eq!(closed, is_closed, "{way}");
        }
        // Arrow keys skip disabled options, and keep the focus on the chosen one.
        page.script("document.querySelector('#way-best').focus()").await;
        page.press(&fantoccini::key::Key::Down).await;
        page.until("the CPU was chosen", "document.querySelector('#way-cpu').checked").await;
        page.until(
            "it runs",
            &format!("{READY} && document.querySelector('[data-testid=backend]').textContent.includes('You chose it')"),
        )
        .await;
        assert_eq!(page.value::<String>("document.activeElement.id").await, "way-cpu");
        assert!(write(page, "Once", 1, 20).await.len() >= 24);
    });
}

#[test]
fn invalid_number_is_reported_and_no_text_is_generated() {
    demo("invalid_number_is_reported_and_no_text_is_generated", &[], async |page| {
        for (id, typed, valid) in
            [("temperature", "abc", "1"), ("top-k", "x", "3"), ("seed", "1e3", "4"), ("n-tokens", "5000", "5")]
        {
            page.fill(&format!("#{id}"), typed).await;
            let is_invalid = format!("document.querySelector('#{id}').ariaInvalid === 'true'");
            page.until(&format!("{id} is reported"), &is_invalid).await;
            assert_eq!(page.value::<String>(&format!("document.querySelector('#{id}').value")).await, typed);
            page.until(&format!("{id} disables the button"), "document.querySelector('#write').disabled").await;
            page.script("document.querySelector('#prompt').focus()").await;
            page.press_with_control(fantoccini::key::Key::Enter.into()).await;
            assert_eq!(page.value::<u64>("document.querySelectorAll('.token').length").await, 0, "{id}");
            page.fill(&format!("#{id}"), valid).await;
            page.until("the button is enabled", READY).await;
        }
        page.fill("#temperature", "0,5").await;
        page.until("a decimal comma is accepted", "document.querySelector('#temperature').ariaInvalid !== 'true'")
            .await;
    });
}

#[test]
fn a_prompt_of_unknown_characters_is_reported_and_kept() {
    demo("a_prompt_of_unknown_characters_is_reported_and_kept", &[], async |page| {
        page.fill("#prompt", "Ein schöner Tag").await;
        page.click("#write").await;
        page.until("it is reported", "document.querySelector('#prompt-fault').textContent.includes('ö')").await;
        assert_eq!(page.value::<String>("document.querySelector('#prompt').value").await, "Ein schöner Tag");
        assert!(write(page, "A fine day", 1, 20).await.starts_with("A fine day"));
    });
}

#[test]
fn prompt_beyond_context_is_reported_and_does_not_block() {
    demo("prompt_beyond_context_is_reported_and_does_not_block", &[], async |page| {
        let long = "Once upon a time there was a cat. ".repeat(3_000);
        page.script(&format!(
            "const prompt = document.querySelector('#prompt'); prompt.value = {long:?};
             prompt.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        ))
        .await;
        page.fill("#n-tokens", "20").await;
        page.click("#write").await;
        page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
        let notice = page.text("[data-testid=cut]").await;
        assert!(notice.contains("102,000 tokens") && notice.contains("last 256"), "{notice}");
        let spans: u64 = page.value("document.querySelector('#tokens').children.length").await;
        assert_eq!(spans, 256 + 20);
        page.click("[data-testid=prompt-long] button").await;
        write(page, "Once", 1, 20).await;
        assert!(
            page.value::<bool>("document.querySelector('[data-testid=cut]') === null").await,
            "a short text is shown whole"
        );
    });
}

#[test]
fn another_language_keeps_what_was_set_and_names_what_cannot_be_kept() {
    demo("another_language_keeps_what_was_set_and_names_what_cannot_be_kept", &[], async |page| {
        choose(page, &[&shipped()]).await;
        page.until("a file is open", &format!("{READY} && document.querySelector('#shipped')")).await;
        run_on(page, "cpu-int16", "WebAssembly").await;
        for (id, typed) in [
            ("prompt", "A cat"),
            ("temperature", "0.5"),
            ("top-k", "7"),
            ("seed", "99"),
            ("n-tokens", "12"),
            ("gpu-memory", "6"),
        ] {
            page.fill(&format!("#{id}"), typed).await;
        }
        page.click("#slowly").await;
        page.script(
            "const picker = document.querySelector('#language'); picker.value = 'de';
             picker.dispatchEvent(new Event('change', { bubbles: true }))",
        )
        .await;
        page.until("it is in German", "document.documentElement.lang === 'de'").await;
        page.until("the model is loaded", READY).await;
        for (id, shown) in [
            ("prompt", "A cat"),
            ("temperature", "0,5"),
            ("top-k", "7"),
            ("seed", "99"),
            ("n-tokens", "12"),
            ("gpu-memory", "6,00 GiB"),
        ] {
            assert_eq!(page.value::<String>(&format!("document.querySelector('#{id}').value")).await, shown, "{id}");
        }
        for id in ["slowly", "way-cpu-int16"] {
            assert!(page.value::<bool>(&format!("document.querySelector('#{id}').checked")).await, "{id}");
        }
        assert!(page.text("[data-testid=left-behind]").await.contains("stories.safetensors"));
        choose(page, &[&shipped()]).await;
        page.until("it is open again", "!document.querySelector('[data-testid=left-behind]')").await;
        page.until("the model is loaded", READY).await;
    });
}

#[test]
fn a_gpu_that_is_lost_is_reported_and_the_cpu_goes_on() {
    demo("a_gpu_that_is_lost_is_reported_and_the_cpu_goes_on", &WEBGPU, async |page| {
        run_on(page, "webgpu", "WebGPU").await;
        page.click("#slowly").await;
        page.click("#write").await;
        page.until("it writes", "document.querySelector('#tokens').children.length > 18").await;
        page.cdp("Browser.crashGpuProcess", json!({})).await;
        page.until("the loss is reported", FAILED).await;
        let notice = page.text("[data-testid=failure]").await;
        assert!(notice.contains("GPU"), "{notice}");
        page.click("[data-testid=failure] .button").await;
        page.until("the CPU is there", READY).await;
        assert!(page.text("[data-testid=backend]").await.contains("WebAssembly"));
        // The browser's own message about the crash is expected.
        page.browser.console().await;
    });
}

#[test]
fn a_gpu_that_is_lost_while_nothing_is_written_is_reported_at_once() {
    demo("a_gpu_that_is_lost_while_nothing_is_written_is_reported_at_once", &WEBGPU, async |page| {
        run_on(page, "webgpu", "WebGPU").await;
        page.cdp("Browser.crashGpuProcess", json!({})).await;
        page.until("the loss is reported", FAILED).await;
        page.click("[data-testid=failure] .button").await;
        page.until("the CPU is there", READY).await;
        assert!(write(page, "Once", 1, 20).await.len() >= 24);
        page.browser.console().await;
    });
}

#[test]
fn a_gpus_memory_is_counted_with_once_it_is_known() {
    demo("a_gpus_memory_is_counted_with_once_it_is_known", &WEBGPU, async |page| {
        page.fill("#gpu-memory", "1 MiB").await;
        let refused = "document.querySelector('.way:has(#way-webgpu)')?.textContent.includes('of your GPU')";
        page.until("WebGPU is refused", refused).await;
        page.until("the rest goes on", READY).await;
        page.fill("#gpu-memory", "2 GiB").await;
        page.until(
            "it fits",
            "document.querySelector('.way:has(#way-webgpu)')?.textContent.includes('of your GPU') === false",
        )
        .await;
        page.until("the rest goes on", READY).await;
    });
}

/// Asserts that the page has no violation in either scheme and is no wider than its window. `axe` is axe-core's script.
async fn assert_accessible(page: &Page, axe: &str, sizes: &[Size]) {
    page.script(axe).await;
    let mut all = Vec::new();
    for (scheme, rules) in SCHEMES {
        page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
        for &size in sizes {
            page.resize(size).await;
            let found = violations(page, rules).await;
            all.extend(found.into_iter().map(|found| format!("{scheme}, {size:?}: {found}")));
            let wide: i64 = page.value("document.documentElement.scrollWidth - innerWidth").await;
            assert!(wide <= 0, "{size:?}: {wide} pixels too wide");
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn the_demo_is_accessible_and_no_wider_than_its_window() {
    let Some(axe) = named("axe", "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    demo("the_demo_is_accessible_and_no_wider_than_its_window", &[], async |page| {
        write(page, "Once upon a time", 1, 40).await;
        assert_accessible(page, &axe, &[LAPTOP, PHONE]).await;
    });
}

/// Prints tokens per second of the shipped page on both backends. There is no bound, as machines differ.
/// `HEADROOM_BENCH_GPT2=1` adds GPT-2 124M, which takes minutes.
#[test]
fn bench_of_the_demo_in_the_browser() {
    demo("bench_of_the_demo_in_the_browser", &WEBGPU, async |page| {
        let large = std::env::var_os("HEADROOM_BENCH_GPT2").is_some();
        let n_stories = if large { 100 } else { repetitions(20, 100) };
        for (model, n_tokens) in [("stories", n_stories), ("gpt2", 8)].into_iter().take(if large { 2 } else { 1 }) {
            if model == "gpt2" {
                let [model, tokenizer] = sparse_model(&scratch("demo_bench"), 12, 12, 768, 50257);
                choose(page, &[&model, &tokenizer]).await;
                page.until("weights are loaded", "document.querySelector('#cancel')").await;
                wait_long(page, READY).await;
            }
            for (way, said) in
                [("cpu", "WebAssembly"), ("cpu-int16", "WebAssembly"), ("webgpu", "WebGPU"), ("webgpu-half", "WebGPU")]
            {
                page.click(&format!("#way-{way}")).await;
                page.until("the demo starts over", "document.querySelector('#write')?.disabled").await;
                wait_long(
                    page,
                    &format!(
                        "{READY} && document.querySelector('[data-testid=backend]').textContent.includes({said:?})"
                    ),
                )
                .await;
                // The first text is a warm-up for the browser's compilation.
                for prompt in ["Warm", "Once upon a time"] {
                    for (id, value) in [("prompt", prompt), ("n-tokens", &n_tokens.to_string())] {
                        page.fill(&format!("#{id}"), value).await;
                    }
                    page.click("#write").await;
                    wait_long(page, "document.querySelector('[data-testid=ended]').textContent !== ''").await;
                }
                let rate = page.text("[data-testid=rate]").await;
                assert!(rate.ends_with("tokens/s"), "{rate}");
                println!("{}", json!({ "bench": "demo", "model": model, "way": way, "rate": rate }));
            }
        }
    });
}

/// Waits up to ten minutes, as the model has half a gigabyte.
async fn wait_long(page: &Page, expression: &str) {
    let start = std::time::Instant::now();
    while !page.value::<bool>(&format!("Boolean({expression})")).await {
        assert!(start.elapsed().as_secs() < 600, "timed out waiting for {expression}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[test]
fn the_model_comes_only_when_the_demo_opens() {
    crate::page::tell("the_model_comes_only_when_the_demo_opens", async |page| {
        page.open("").await;
        let requests = page.browser.requests().await;
        let of_demo = |request: &&String| request.contains("demo") || request.ends_with(".safetensors");
        assert_eq!(requests.iter().find(of_demo), None);
        open(page).await;
        // The log contains requests, except those that a worker sends.
        let requests = page.browser.requests().await;
        assert!(requests.iter().any(|request| of_demo(&request)), "{requests:?}");
        page.open("").await;
    });
}
