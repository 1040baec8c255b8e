//! Models that a user opens in the demo: intact and broken ones, with and without a tokenizer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use headroom_kernels::{
    decode::{Decoder, Storage},
    layout::Layout,
    rng::Stream,
    sampling::Sampling,
    weights::{NamingScheme, model_header, write_model},
};
use headroom_languages::english;
use headroom_planner::gpt::{GptConfig, GptShape};
use serde_json::{Map, Value, json};

use super::{FAILED, READY, choose, demo, scratch, shipped, write};
use crate::page::Page;

fn grouped(n: usize) -> String {
    english().grouped(n as u64)
}

#[test]
fn refused_image_leaves_the_text() {
    demo("refused_image_leaves_the_text", &[], async |page| {
        page.fill("#prompt", "Once").await;
        page.fill("#n-tokens", "1").await;
        page.click("#write").await;
        let written = "document.querySelector('#tokens')?.textContent";
        page.until("a token is written", &format!("{written}?.startsWith('Once') && {written}.length > 4")).await;
        let text: String = page.value(written).await;
        let file = scratch("demo_image").join("loss.png");
        fs::write(&file, b"\x89PNG\r\n\x1a\n and so on").expect("space");
        choose(page, &[&file]).await;
        page.until("it is refused", FAILED).await;
        assert_eq!(page.value::<String>(&format!("{written} ?? ''")).await, text);
        assert!(page.value::<bool>(READY).await, "the model is still there");
    });
}

#[test]
fn broken_files_are_named_and_leave_the_model_as_it_is() {
    demo("broken_files_are_named_and_leave_the_model_as_it_is", &[], async |page| {
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
        let model = page.text("[data-testid=model]").await;
        let text = write(page, "Once", 1, 12).await;
        for (name, bytes, says) in [
            (
                "cut.safetensors",
                &whole[..whole.len() - 5000],
                &*format!("the file has {}: it is truncated", grouped(whole.len() - 5000)),
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
            let failure = page.text("[data-testid=failure]").await;
            assert!(failure.contains(says), "{name}: {failure}");
            assert!(failure.contains(&format!("In {name}: ")), "{failure}");
            // The previous model and its text remain.
            assert_eq!(page.text("[data-testid=model]").await, model, "{name}");
            assert_eq!(page.value::<String>("document.querySelector('#tokens').textContent").await, text, "{name}");
            assert!(page.value::<bool>(READY).await, "{name}");
            page.click("[data-testid=failure] .button").await;
            page.until("it is closed", &format!("!{FAILED}")).await;
        }
        // A file that is not a model is rejected, and does not affect the next file.
        for (name, bytes) in [("loss.png", b"\x89PNG\r\n\x1a\n and so on".as_slice()), ("notes.txt", b"hello")] {
            let file = folder.join(name);
            fs::write(&file, bytes).expect("space");
            choose(page, &[&file]).await;
            page.until(&format!("{name} is refused"), FAILED).await;
            let said = page.text("[data-testid=failure]").await;
            assert!(
                said.contains("None of these files contains weights") && !said.contains("header"),
                "{name}: {said}"
            );
            page.click("[data-testid=failure] .button").await;
            page.until("it is closed", &format!("!{FAILED}")).await;
        }
        // Text generation continues, and another model can be opened.
        assert_eq!(write(page, "Once", 1, 12).await, text);
        choose(page, &[&shipped()]).await;
        let opened = "document.querySelector('[data-testid=model]')?.textContent === 'stories.safetensors'";
        page.until("the other is loaded", &format!("{opened} && {READY}")).await;
        assert_eq!(page.value::<String>("document.querySelector('#tokens').textContent").await, "");
    });
}

/// Writes a model with a byte-pair vocabulary under nanoGPT's names, and its tokenizer. Returns the config, the weights
/// and both paths.
pub fn small_gpt2(folder: &Path) -> (GptConfig, Vec<f32>, PathBuf, PathBuf) {
    let shape =
        GptShape { n_layer: 2, n_head: 2, n_embd: 64, block_size: 32, vocab_size: 260, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("a shape");
    let mut stream = Stream::new(3, 0);
    #[expect(clippy::cast_possible_truncation, reason = "any weights will do")]
    let params: Vec<f32> =
        (0..Layout::new(&config).expect("small").len()).map(|_| 0.3 * stream.normal() as f32).collect();
    let mut file = Vec::new();
    let metadata = [("n_head".to_owned(), "2".to_owned())].into();
    write_model(&mut file, &config, &params, NamingScheme::NanoGpt, &metadata).expect("writing to memory cannot fail");
    let model = folder.join("model.safetensors");
    fs::write(&model, file).expect("space");
    let tokenizer = folder.join("tokenizer.json");
    fs::write(&tokenizer, tokenizer_json().to_string()).expect("space");
    (config, params, model, tokenizer)
}

/// Returns whether GPT-2's vocabulary writes a byte as the character of the same code.
fn seen(byte: u32) -> bool {
    (33..=126).contains(&byte) || (161..=172).contains(&byte) || (174..=255).contains(&byte)
}

/// Returns all bytes in the order of their token IDs.
fn byte_order() -> impl Iterator<Item = u32> {
    (0..256).filter(|byte| seen(*byte)).chain((0..256).filter(|byte| !seen(*byte)))
}

/// A tokenizer in GPT-2's form. Printable bytes are written as themselves, and the others as characters from 256.
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
        let failure = page.text("[data-testid=failure]").await;
        assert!(failure.contains("tokenizer.json") && failure.contains("260"), "{failure}");
        // The tokenizer alone, after the weights were opened.
        choose(page, &[&tokenizer]).await;
        let opened =
            format!("document.querySelector('[data-testid=model]')?.textContent === 'model.safetensors' && {READY}");
        page.until("the model is loaded", &opened).await;
        // The tokenizer first, then the weights.
        page.click("#shipped").await;
        page.until("the model that ships is back", READY).await;
        choose(page, &[&tokenizer]).await;
        page.until("the weights are missing", FAILED).await;
        choose(page, &[&model]).await;
        page.until("the model is loaded", &opened).await;
        page.fill("#temperature", "0").await;
        write(page, "the the<|endoftext|>t", 1, 12).await;
        let ids = "[...document.querySelectorAll('.token--given')].map((token) => token.textContent)";
        assert_eq!(page.value::<Vec<String>>(ids).await, ["the", " the", "<|endoftext|>", "t"]);
        let mut decoder = Decoder::new(&config, &params, Storage::F32).expect("it fits");
        // "t" is the 84th of the printable bytes.
        decoder.prefill(&[257, 258, 259, u32::from(b't') - 33]).expect("a prompt");
        let sampling = Sampling { temperature: 0.0, top_k: 40, seed: 1 };
        let expected: Vec<u32> = (0..12).map(|draw| decoder.next(&sampling, draw).expect("a token")).collect();
        let chosen: Vec<String> = names(page).await;
        assert_eq!(chosen.len(), expected.len());
        // Moving to a token shows its candidates, which include its name.
        page.script("document.querySelector('#tokens').focus()").await;
        page.press(&fantoccini::key::Key::Home).await;
        // The prompt has four tokens.
        for _ in 0..4 {
            page.press(&fantoccini::key::Key::Right).await;
        }
        for (index, token) in expected.iter().enumerate() {
            let marked = format!("document.querySelector('#tokens').children[{}].ariaCurrent === 'true'", index + 4);
            page.until("the token is marked", &marked).await;
            assert_eq!(page.text(".candidate--chosen .candidate__name").await, name_of(*token), "token {index}");
            page.press(&fantoccini::key::Key::Right).await;
        }
    });
}

/// Drops files or directories onto the middle of the page.
async fn drop_onto(page: &Page, paths: &[&Path]) {
    let files: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
    for kind in ["dragEnter", "dragOver", "drop"] {
        let data = json!({ "items": [], "files": files, "dragOperationsMask": 1 });
        page.cdp("Input.dispatchDragEvent", json!({ "type": kind, "x": 400, "y": 300, "data": data })).await;
    }
}

#[test]
fn a_folder_that_is_dropped_is_looked_into() {
    demo("a_folder_that_is_dropped_is_looked_into", &[], async |page| {
        let folder = scratch("demo_folder");
        small_gpt2(&folder);
        fs::create_dir(folder.join("onnx")).expect("space");
        for beside in ["README.md", ".gitattributes", "pytorch_model.bin", "onnx/other.safetensors"] {
            fs::write(folder.join(beside), "beside").expect("space");
        }
        drop_onto(page, &[&folder]).await;
        page.until("the model is loaded", &format!("document.querySelector('#shipped') && {READY}")).await;
        assert_eq!(page.text("[data-testid=model]").await, "model.safetensors");
        // Files outside a directory can be dropped, too.
        drop_onto(page, &[&shipped()]).await;
        let opened = "document.querySelector('[data-testid=model]')?.textContent === 'stories.safetensors'";
        page.until("the other is loaded", &format!("{opened} && {READY}")).await;
        let empty = scratch("demo_folder_empty");
        fs::write(empty.join("README.md"), "no model").expect("space");
        drop_onto(page, &[&empty]).await;
        page.until("it is refused", FAILED).await;
        let failure = page.text("[data-testid=failure]").await;
        assert!(failure.contains("Drop model.safetensors"), "{failure}");
    });
}

#[test]
fn a_tokenizer_of_another_size_is_remarked_on() {
    demo("a_tokenizer_of_another_size_is_remarked_on", &[], async |page| {
        let [model, tokenizer] = sparse_model(&scratch("demo_sizes"), 1, 1, 64, 1000);
        choose(page, &[&model, &tokenizer]).await;
        page.until(
            "the model is loaded",
            "document.querySelector('#shipped') && !document.querySelector('#write').disabled",
        )
        .await;
        let notes = page.text(".demo__notes").await;
        assert!(notes.contains("Note: the tokenizer has 260 tokens but the model has 1,000"), "{notes}");
        // The model has fewer tokens than the tokenizer, so a prompt may contain a token that the model lacks.
        let [model, tokenizer] = sparse_model(&scratch("demo_sizes"), 1, 1, 64, 259);
        choose(page, &[&model, &tokenizer]).await;
        page.until("the model is loaded", "document.querySelector('.demo__notes')?.textContent.includes('the model has 259') && !document.querySelector('#write').disabled").await;
        page.fill("#prompt", "a<|endoftext|>").await;
        page.click("#write").await;
        page.until("it is reported", "document.querySelector('#prompt-fault').textContent.includes('<|endoftext|>')")
            .await;
        assert!(write(page, "the", 1, 5).await.starts_with("the"));
    });
}

async fn names(page: &Page) -> Vec<String> {
    page.value("[...document.querySelectorAll('#tokens .token:not(.token--given)')].map((token) => token.textContent)")
        .await
}

/// Returns the page's name for a token of [`tokenizer_json`].
fn name_of(token: u32) -> String {
    match token {
        256 => "th".to_owned(),
        257 => "the".to_owned(),
        258 => "·the".to_owned(),
        259 => "<|endoftext|>".to_owned(),
        id => match byte_order().nth(id as usize).expect("a byte") {
            0x20 => "·".to_owned(),
            0x0A => "⏎".to_owned(),
            0x09 => "⇥".to_owned(),
            byte if byte < 0x80 => char::from_u32(byte).expect("ASCII").to_string(),
            byte => format!("\\x{byte:02x}"),
        },
    }
}

#[test]
fn oversized_model_is_refused_before_reading_weights() {
    demo("oversized_model_is_refused_before_reading_weights", &["--disable-features=WebGPU"], async |page| {
        let [model, tokenizer] = sparse_model(&scratch("demo_large"), 48, 40, 2560, 260);
        choose(page, &[&model, &tokenizer]).await;
        page.until("it does not fit", FAILED).await;
        let failure = page.text("[data-testid=failure]").await;
        assert!(failure.starts_with("The model does not fit"), "{failure}");
        let said = page.text(".demo__ways").await;
        assert!(said.contains("15.03 GiB") && said.contains("more than the") && said.contains("WebAssembly"), "{said}");
        fs::remove_file(&model).expect("it can go");
    });
}

/// Writes a model whose weights are zeros, and its tokenizer. The sparse file takes no space on disk, but computing
/// takes as long as with any other weights.
pub fn sparse_model(folder: &Path, n_layer: u64, n_head: u64, n_embd: u64, vocab_size: u64) -> [PathBuf; 2] {
    let shape = GptShape { n_layer, n_head, n_embd, block_size: 1024, vocab_size, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("a shape");
    let header = model_header(&config, NamingScheme::NanoGpt, &[("n_head".to_owned(), n_head.to_string())].into());
    let header = header.expect("it can be addressed");
    let model = folder.join("model.safetensors");
    fs::write(&model, &header).expect("space");
    let bytes = header.len() as u64 + 4 * config.n_parameters().expect("a number");
    fs::OpenOptions::new().write(true).open(&model).expect("a file").set_len(bytes).expect("a sparse file");
    let tokenizer = folder.join("tokenizer.json");
    fs::write(&tokenizer, tokenizer_json().to_string()).expect("space");
    [model, tokenizer]
}
