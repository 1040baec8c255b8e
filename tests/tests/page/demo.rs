//! The page where a GPT runs, on both backends: Chromium's WebGPU on its software adapter, and WebAssembly.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use headroom_kernels::{
    decode::{Decoder, Storage},
    layout::Layout,
    rng::Stream,
    sampling::Sampling,
    weights::{Naming, model_header, write_model},
};
use headroom_shared::{
    gpt::{GptConfig, GptShape},
    text::english,
};
use serde_json::{Map, Value, json};

use crate::{
    accessible::violations,
    means::named,
    page::{LAPTOP, PHONE, Page, tell_with},
};

/// Chromium's own software adapter, so that WebGPU is tested wherever the tests run.
const WEBGPU: [&str; 2] = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

const READY: &str = "!document.querySelector('#write')?.disabled";
const FAILED: &str = "document.querySelector('[data-testid=failure]')";

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/demo/stories.safetensors")
}

async fn open(page: &Page) {
    page.browser.driver.goto(format!("{}demo.html", page.address)).await.expect("the page opens");
    page.until("the model is loaded", READY).await;
}

/// Tells a story of the demo, in a browser with these flags.
fn demo(test: &str, flags: &[&str], story: impl AsyncFnOnce(&Page)) {
    tell_with(test, flags, async |page| {
        open(page).await;
        story(page).await;
    });
}

/// Sets what a text is written by, presses the button, and gives what stands there in the end, the prompt included.
async fn write(page: &Page, prompt: &str, seed: u64, n_tokens: u32) -> String {
    for (id, value) in [("prompt", prompt), ("seed", &seed.to_string()), ("n-tokens", &n_tokens.to_string())] {
        page.fill(&format!("#{id}"), value).await;
    }
    page.click("#write").await;
    page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
    page.value("document.querySelector('#tokens').textContent").await
}

/// Chooses a way to run it, and waits until it does.
async fn run_on(page: &Page, way: &str, said: &str) {
    page.click(&format!("#way-{way}")).await;
    let runs = format!("{READY} && document.querySelector('[data-testid=backend]').textContent.includes({said:?})");
    page.until(&format!("{said} runs"), &runs).await;
}

async fn choose(page: &Page, files: &[&Path]) {
    let input = page.find("#model-file").await;
    let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    input.send_keys(names.join("\n")).await.expect("the files are chosen");
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
    // Beyond the context of 128 characters, where every token moves all others.
    const N_TOKENS: u32 = 125;
    demo("both_backends_write_what_the_command_line_writes", &WEBGPU, async |page| {
        let mut command = Command::new(&page.headroom);
        command.args(["sample", "--prompt", PROMPT, "--seed", "7", "--temperature", "0.8", "--top-k", "40"]);
        command.args(["--max-new-tokens", &N_TOKENS.to_string()]).arg("--ckpt").arg(shipped());
        let output = command.output().expect("headroom runs");
        let expected = String::from_utf8(output.stdout).expect("text");
        assert!(expected.len() > PROMPT.len() + 50, "{}", String::from_utf8_lossy(&output.stderr));
        for (way, said) in
            [("cpu", "WebAssembly"), ("webgpu", "WebGPU"), ("webgpu-half", "WebGPU"), ("cpu", "WebAssembly")]
        {
            run_on(page, way, said).await;
            let text = write(page, PROMPT, 7, N_TOKENS).await;
            assert_eq!(text.trim_end(), expected.trim_end(), "{way}");
            let other = write(page, PROMPT, 8, N_TOKENS).await;
            assert_ne!(other.trim_end(), expected.trim_end(), "{way}: another seed");
            let equal = page.text("[data-testid=equal]").await;
            assert!(equal.contains("to the byte as planned"), "{way}: {equal}");
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
        let shares =
            "[...document.querySelectorAll('.candidate__share')].map((share) => parseFloat(share.textContent))";
        let last: Vec<f64> = page.value(shares).await;
        assert!(!last.is_empty() && last.is_sorted_by(|a, b| a >= b), "{last:?}");
        page.script("document.querySelector('#tokens').focus()").await;
        page.press(thirtyfour::Key::Home).await;
        page.until("the first is marked", "document.querySelector('#tokens').children[16].ariaCurrent === 'true'")
            .await;
        let chosen = page.text(".candidate--chosen .candidate__name").await;
        let first: String = page.value("document.querySelector('#tokens').children[16].textContent").await;
        assert_eq!(chosen.replace('␣', " "), first);
    });
}

#[test]
fn a_text_can_be_stopped_and_the_page_stays_awake() {
    demo("a_text_can_be_stopped_and_the_page_stays_awake", &[], async |page| {
        page.fill("#n-tokens", "2000").await;
        page.click("#slowly").await;
        page.click("#write").await;
        page.until("it writes", "document.querySelector('#tokens').children.length > 18").await;
        assert_eq!(page.text("#write").await, "Stop");
        page.click("#write").await;
        page.until(
            "it stopped",
            "document.querySelector('[data-testid=ended]').textContent.startsWith('Stopped after')",
        )
        .await;
        let n: u64 = page.value("document.querySelector('#tokens').children.length").await;
        assert!(n < 200, "{n} tokens");
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
        // Arrow keys go past what is closed, and the focus stays where they went.
        page.script("document.querySelector('#way-best').focus()").await;
        page.press(thirtyfour::Key::Down).await;
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
fn a_number_that_is_none_is_told_and_not_taken() {
    demo("a_number_that_is_none_is_told_and_not_taken", &[], async |page| {
        for (id, typed) in [("temperature", "abc"), ("top-k", "x"), ("seed", "1e3"), ("n-tokens", "5000")] {
            page.fill(&format!("#{id}"), typed).await;
            let told = format!("document.querySelector('#{id}').ariaInvalid === 'true'");
            page.until(&format!("{id} is told"), &told).await;
            assert_eq!(page.value::<String>(&format!("document.querySelector('#{id}').value")).await, typed);
        }
        page.fill("#temperature", "0,5").await;
        page.until("a comma is a point", "document.querySelector('#temperature').ariaInvalid !== 'true'").await;
    });
}

#[test]
fn a_prompt_of_unknown_characters_is_told_and_kept() {
    demo("a_prompt_of_unknown_characters_is_told_and_kept", &[], async |page| {
        page.fill("#prompt", "Ein schöner Tag").await;
        page.click("#write").await;
        page.until("it is told", "document.querySelector('#prompt-fault').textContent.includes('ö')").await;
        assert_eq!(page.value::<String>("document.querySelector('#prompt').value").await, "Ein schöner Tag");
        assert!(write(page, "A fine day", 1, 20).await.starts_with("A fine day"));
    });
}

#[test]
fn a_gpu_that_is_lost_is_told_and_the_cpu_goes_on() {
    demo("a_gpu_that_is_lost_is_told_and_the_cpu_goes_on", &WEBGPU, async |page| {
        run_on(page, "webgpu", "WebGPU").await;
        page.click("#slowly").await;
        page.click("#write").await;
        page.until("it writes", "document.querySelector('#tokens').children.length > 18").await;
        page.cdp("Browser.crashGpuProcess", json!({})).await;
        page.until("the loss is told", FAILED).await;
        let told = page.text("[data-testid=failure]").await;
        assert!(told.contains("GPU"), "{told}");
        page.click("[data-testid=failure] .button").await;
        page.until("the CPU is there", READY).await;
        assert!(page.text("[data-testid=backend]").await.contains("WebAssembly"));
        // What the browser itself says of the crash is not the page's fault.
        page.browser.console().await;
    });
}

fn grouped(n: usize) -> String {
    english().grouped(n as u64)
}

#[test]
fn broken_files_are_named_and_leave_a_way_back() {
    demo("broken_files_are_named_and_leave_a_way_back", &[], async |page| {
        let folder = scratch("demo_broken");
        let whole = fs::read(shipped()).expect("the model that ships");
        let header_bytes = u64::from_le_bytes(whole[..8].try_into().expect("8 bytes"));
        let header_bytes = usize::try_from(header_bytes).expect("a header that fits");
        let huge = json!({ "transformer.wte.weight":
            { "dtype": "F32", "shape": [1_000_000_000_u64, 1_000_000_000_u64], "data_offsets": [0, 4_000_000_000_000_000_000_u64] } })
        .to_string();
        let huge = [&(huge.len() as u64).to_le_bytes()[..], huge.as_bytes()].concat();
        let other_shape = String::from_utf8_lossy(&whole[8..8 + header_bytes]).replacen(
            "\"shape\":[128,128]",
            "\"shape\":[256,64] ",
            1,
        );
        let other_shape = [&whole[..8], other_shape.as_bytes(), &whole[8 + header_bytes..]].concat();
        for (name, bytes, says) in [
            (
                "cut.safetensors",
                &whole[..whole.len() - 5000],
                &*format!("the file has {}: it is cut short", grouped(whole.len() - 5000)),
            ),
            ("claims.safetensors", &huge[..], "transformer.wte.weight"),
            ("long.safetensors", &[0xFF; 64][..], "long"),
            ("shape.safetensors", &other_shape[..], "[256, 64]"),
            ("empty.safetensors", &[][..], "0 bytes"),
            ("weights.pt", b"PK\x03\x04 and so on, as torch.save writes".as_slice(), "safetensors"),
        ] {
            let file = folder.join(name);
            fs::write(&file, bytes).expect("space");
            choose(page, &[&file]).await;
            page.until(&format!("{name} is refused"), FAILED).await;
            let told = page.text("[data-testid=failure]").await;
            assert!(told.contains(says), "{name}: {told}");
            assert!(told.contains(&format!("In {name}: ")), "{told}");
            page.click("[data-testid=failure] .button").await;
            page.until("the model that ships is back", READY).await;
        }
    });
}

/// A model of byte pairs under nanoGPT's names, and the tokenizer beside it.
fn small_gpt2(folder: &Path) -> (GptConfig, Vec<f32>, PathBuf, PathBuf) {
    let shape =
        GptShape { n_layer: 2, n_head: 2, n_embd: 64, block_size: 32, vocab_size: 260, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("a shape");
    let mut stream = Stream::new(3, 0);
    #[expect(clippy::cast_possible_truncation, reason = "any weights will do")]
    let params: Vec<f32> =
        (0..Layout::new(&config).expect("small").len()).map(|_| 0.3 * stream.normal() as f32).collect();
    let mut file = Vec::new();
    let metadata = [("n_head".to_owned(), "2".to_owned())].into();
    write_model(&mut file, &config, &params, Naming::NanoGpt, &metadata).expect("memory takes it");
    let model = folder.join("model.safetensors");
    fs::write(&model, file).expect("space");
    let tokenizer = folder.join("tokenizer.json");
    fs::write(&tokenizer, tokenizer_json().to_string()).expect("space");
    (config, params, model, tokenizer)
}

/// Whether a byte stands for itself in GPT-2's vocabulary.
fn seen(byte: u32) -> bool {
    (33..=126).contains(&byte) || (161..=172).contains(&byte) || (174..=255).contains(&byte)
}

/// Bytes in the order of their ids.
fn byte_order() -> impl Iterator<Item = u32> {
    (0..256).filter(|byte| seen(*byte)).chain((0..256).filter(|byte| !seen(*byte)))
}

/// GPT-2's way to write bytes: those that can be seen stand for themselves, the others for what follows 255.
fn tokenizer_json() -> Value {
    let mut others = 256..;
    let names = byte_order().map(|byte| if seen(byte) { byte } else { others.next().expect("endless") });
    let mut vocab: Map<String, Value> = names
        .enumerate()
        .map(|(id, code)| (char::from_u32(code).expect("a character").to_string(), json!(id)))
        .collect();
    let merges = [("t", "h", "th"), ("th", "e", "the"), ("Ġ", "the", "Ġthe")];
    for (id, (_, _, whole)) in (256..).zip(&merges) {
        vocab.insert((*whole).to_owned(), json!(id));
    }
    vocab.insert("<|endoftext|>".to_owned(), json!(259));
    let merges: Vec<String> = merges.iter().map(|(left, right, _)| format!("{left} {right}")).collect();
    json!({
        "version": "1.0",
        "added_tokens": [{ "id": 259, "content": "<|endoftext|>", "special": true }],
        "normalizer": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true },
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocab, "merges": merges },
    })
}

#[test]
fn a_dropped_gpt2_asks_for_its_tokenizer_and_writes() {
    demo("a_dropped_gpt2_asks_for_its_tokenizer_and_writes", &[], async |page| {
        let (config, params, model, tokenizer) = small_gpt2(&scratch("demo_gpt2"));
        choose(page, &[&model]).await;
        page.until("the tokenizer is missing", FAILED).await;
        let told = page.text("[data-testid=failure]").await;
        assert!(told.contains("tokenizer.json") && told.contains("260"), "{told}");
        // It alone, as the weights are there.
        choose(page, &[&tokenizer]).await;
        page.until("the model is loaded", READY).await;
        // And the other way round.
        page.click("#shipped").await;
        page.until("the model that ships is back", READY).await;
        choose(page, &[&tokenizer]).await;
        page.until("the weights are missing", FAILED).await;
        choose(page, &[&model]).await;
        page.until("the model is loaded", READY).await;
        assert_eq!(page.text("[data-testid=model]").await, "model.safetensors");
        page.fill("#temperature", "0").await;
        write(page, "the the<|endoftext|>t", 1, 12).await;
        let ids = "[...document.querySelectorAll('.token--given')].map((token) => token.textContent)";
        assert_eq!(page.value::<Vec<String>>(ids).await, ["the", " the", "<|endoftext|>", "t"]);
        let mut decoder = Decoder::new(&config, &params, Storage::F32).expect("it fits");
        // "t" is the 84th of the bytes that can be seen.
        decoder.prefill(&[257, 258, 259, u32::from(b't') - 33]).expect("a prompt");
        let sampling = Sampling { temperature: 0.0, top_k: 40, seed: 1 };
        let expected: Vec<u32> = (0..12).map(|draw| decoder.next(&sampling, draw).expect("a token")).collect();
        let chosen: Vec<String> = names(page).await;
        assert_eq!(chosen.len(), expected.len());
        // A token's name is told with its candidates; walking there shows it.
        page.script("document.querySelector('#tokens').focus()").await;
        page.press(thirtyfour::Key::Home).await;
        for (index, token) in expected.iter().enumerate() {
            let marked = format!("document.querySelector('#tokens').children[{}].ariaCurrent === 'true'", index + 4);
            page.until("the token is marked", &marked).await;
            assert_eq!(page.text(".candidate--chosen .candidate__name").await, name_of(*token), "token {index}");
            page.press(thirtyfour::Key::Right).await;
        }
    });
}

async fn names(page: &Page) -> Vec<String> {
    page.value("[...document.querySelectorAll('#tokens .token:not(.token--given)')].map((token) => token.textContent)")
        .await
}

/// What the page calls a token of [`tokenizer_json`].
fn name_of(token: u32) -> String {
    match token {
        256 => "th".to_owned(),
        257 => "the".to_owned(),
        258 => "␣the".to_owned(),
        259 => "<|endoftext|>".to_owned(),
        id => match byte_order().nth(id as usize).expect("a byte") {
            0x20 => "␣".to_owned(),
            0x0A => "⏎".to_owned(),
            0x09 => "⇥".to_owned(),
            byte if byte < 0x80 => char::from_u32(byte).expect("ASCII").to_string(),
            byte => format!("\\x{byte:02x}"),
        },
    }
}

#[test]
fn what_does_not_fit_is_known_before_a_weight_is_read() {
    demo("what_does_not_fit_is_known_before_a_weight_is_read", &["--disable-features=WebGPU"], async |page| {
        let [model, tokenizer] = sparse_model(&scratch("demo_large"), 48, 40, 2560, 260);
        choose(page, &[&model, &tokenizer]).await;
        page.until("it does not fit", FAILED).await;
        let told = page.text("[data-testid=failure]").await;
        assert!(told.starts_with("This does not fit"), "{told}");
        let said = page.text(".demo__ways").await;
        assert!(said.contains("15.03 GiB") && said.contains("more than the") && said.contains("WebAssembly"), "{said}");
        fs::remove_file(&model).expect("it can go");
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

#[test]
fn the_demo_is_accessible_and_no_wider_than_its_window() {
    let Some(axe) = named("axe", "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    demo("the_demo_is_accessible_and_no_wider_than_its_window", &[], async |page| {
        write(page, "Once upon a time", 1, 40).await;
        page.script(&axe).await;
        let mut all = Vec::new();
        for scheme in ["light", "dark"] {
            page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
            for size in [LAPTOP, PHONE] {
                page.resize(size).await;
                let found = violations(page).await;
                all.extend(found.into_iter().map(|found| format!("{scheme}, {size:?}: {found}")));
                let wide: i64 = page.value("document.documentElement.scrollWidth - innerWidth").await;
                assert!(wide <= 0, "{size:?}: {wide} pixels too wide");
            }
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
    });
}

/// A model whose weights are zeros, which take no room on a disk and as much time as any others, and a tokenizer.
fn sparse_model(folder: &Path, n_layer: u64, n_head: u64, n_embd: u64, vocab_size: u64) -> [PathBuf; 2] {
    let shape = GptShape { n_layer, n_head, n_embd, block_size: 1024, vocab_size, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("a shape");
    let header = model_header(&config, Naming::NanoGpt, &[("n_head".to_owned(), n_head.to_string())].into());
    let header = header.expect("it can be addressed");
    let model = folder.join("model.safetensors");
    fs::write(&model, &header).expect("space");
    let bytes = header.len() as u64 + 4 * config.n_parameters().expect("a number");
    fs::OpenOptions::new().write(true).open(&model).expect("a file").set_len(bytes).expect("a sparse file");
    let tokenizer = folder.join("tokenizer.json");
    fs::write(&tokenizer, tokenizer_json().to_string()).expect("space");
    [model, tokenizer]
}

/// Tokens a second of the page as it is shipped, on both backends: printed, and judged by who reads it, as machines
/// differ. `HEADROOM_BENCH_GPT2=1` has GPT-2 124M besides, which takes minutes.
#[test]
fn bench_of_the_demo_in_the_browser() {
    demo("bench_of_the_demo_in_the_browser", &WEBGPU, async |page| {
        let large = std::env::var_os("HEADROOM_BENCH_GPT2").is_some();
        for (model, n_tokens) in [("stories", 100), ("gpt2", 16)].into_iter().take(if large { 2 } else { 1 }) {
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
                page.until("it begins anew", "document.querySelector('#write')?.disabled").await;
                wait_long(
                    page,
                    &format!(
                        "{READY} && document.querySelector('[data-testid=backend]').textContent.includes({said:?})"
                    ),
                )
                .await;
                // Once for what a browser compiles when it is first used.
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

/// Half a gigabyte takes its time.
async fn wait_long(page: &Page, expression: &str) {
    let start = std::time::Instant::now();
    while !page.value::<bool>(&format!("Boolean({expression})")).await {
        assert!(start.elapsed().as_secs() < 600, "waited in vain: {expression}");
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
        // The log does show them, but for what a worker asks itself.
        let requests = page.browser.requests().await;
        assert!(requests.iter().any(|request| of_demo(&request)), "{requests:?}");
        page.open("").await;
    });
}
