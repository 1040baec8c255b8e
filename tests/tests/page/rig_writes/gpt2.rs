//! Checkpoints with GPT-2's tokens. The page fetches the tokenizer from the agent, and generates the same text as the
//! command line.

use std::{fs, path::Path, process::Command};

use headroom_tokenizer::bpe::ByteBpe;
use serde_json::{Value, json};

use super::{CHECKPOINTS, ENDED, PATIENCE, asked_json, of_agent, press, until_ended, writes};
use crate::{page::Page, rig::until_says};

/// A model that learns its one line by heart. Some characters of the line are several tokens.
const CONFIG: &str = "n_layer = 1\nn_embd = 32\nn_head = 2\nblock_size = 64\nbatch_size = 2\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\neval_interval = 120\nmax_iters = 120\nlearning_rate = 1e-2\n\
    min_lr = 1e-3\nwarmup_iters = 10\nlr_decay_iters = 120\nalways_save_checkpoint = True\ndataset = 'crab'\n";
const LINE: &str = "The naïve crab 🦀 said to the other crab: “I’ll walk 12 steps.”\n";
/// Texts with their token IDs from an independent implementation of GPT-2's tokenizer.
const GOLDEN: &str = include_str!("../../../../agent/tests/tokens/gpt2.json");
/// The context length of [`CONFIG`] in tokens.
const BLOCK_SIZE: usize = 64;

fn prepare(headroom: &Path, folder: &Path) {
    fs::write(folder.join("crab.txt"), LINE.repeat(200)).expect("a text");
    let words = ["data", "prepare", "crab.txt", "--tokenizer", "gpt2", "--out", "data/crab"];
    let output = Command::new(headroom).args(words).current_dir(folder).output().expect("headroom runs");
    assert!(output.status.success(), "{output:?}");
}

/// Returns the directory of the only run.
fn out_dir(folder: &Path) -> std::path::PathBuf {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let mut found =
        entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("out-")));
    found.next().expect("a run's folder")
}

#[test]
fn a_run_of_gpt2_tokens_writes_what_the_command_line_writes() {
    const TEST: &str = "a_run_of_gpt2_tokens_writes_what_the_command_line_writes";
    const PROMPT: &str = "A naïve crab 🦀";
    of_agent(TEST, CONFIG, prepare, async |page, folder, token| {
        // The page's own request, with temperature 0, because sampling would need the same random numbers.
        page.script(
            "const post = Worker.prototype.postMessage;
             Worker.prototype.postMessage = function (said) {
               if (said.ask) said.ask = said.ask.replace('\"temperature\":0.8', '\"temperature\":0');
               return post.call(this, said);
             };",
        )
        .await;
        page.fill("#writes-prompt", PROMPT).await;
        page.click("#writes-write").await;
        page.until_for(PATIENCE, "the text ends", ENDED).await;
        let said = page.text("[data-testid=writes-said]").await;
        assert!(said.contains("Stopped at the limit of 500 tokens."), "{said}");
        let written: String = page.value("document.querySelector('[data-testid=writes-text]').textContent").await;
        let mut command = Command::new(&page.headroom);
        command.args(["sample", "--temperature", "0", "--prompt", PROMPT, "--ckpt"]).arg(out_dir(folder));
        let output = command.output().expect("headroom runs");
        let expected = String::from_utf8(output.stdout).expect("text");
        // If the last token ends in the middle of a character, the command line prints a replacement character.
        let expected = expected.strip_suffix('\n').expect("a line").trim_end_matches('\u{fffd}');
        assert_eq!(written, expected);
        // The model learned the line, including characters of several tokens.
        assert!(written.starts_with(PROMPT) && written.matches('🦀').count() > 3, "{written}");
        are_cut_alike(page, token).await;
    });
}

/// Checks that the browser's regular expressions split prompts into the same tokens as GPT-2's tokenizer.
async fn are_cut_alike(page: &Page, token: &str) {
    let golden: Vec<(String, Vec<u32>)> = serde_json::from_str(GOLDEN).expect("JSON");
    // As a prompt, `<|endoftext|>` is the token of that name. An empty text has no first token.
    let golden: Vec<_> = golden.into_iter().filter(|(text, _)| !text.is_empty() && text != "<|endoftext|>").collect();
    assert!(golden.len() > 40);
    let tokenizer: Value = asked_json(page, token, "/api/tokenizers/gpt2").await;
    // The worker fetched the tokenizer before, so the agent answers only that it has not changed.
    let sent = "performance.getEntriesByType('resource').find(({ name }) => name.endsWith('/gpt2')).transferSize";
    let sent_bytes: u64 = page.value(sent).await;
    assert!((1..100_000).contains(&sent_bytes), "{sent_bytes} bytes");
    let tokenizer = ByteBpe::from_tokenizer_json(tokenizer.to_string().as_bytes()).expect("GPT-2's");
    let prompts: Vec<&str> = golden.iter().map(|(text, _)| text.as_str()).collect();
    let runs = asked_json(page, token, "/api/runs").await;
    let id = runs[0]["id"].as_str().expect("a run");
    // A worker like that of the demo page, which reports each token of a prompt. The browser puts a large `blob()` of a
    // response on the disk, and fails if little of the disk is free. An `arrayBuffer()` is in memory.
    page.script(&format!(
        "window.began = [];
         const headers = {{ authorization: 'Bearer {token}' }};
         const file = async (path, name) => new File([await (await fetch(path, {{ headers }})).arrayBuffer()], name);
         const open = {{ Open: {{ source: 'Files', way: 'Cpu', gpu_bytes: null }} }};
         const write = (prompt) => ({{ Write: {{ prompt, temperature: 0, top_k: 0, seed: 1, n_tokens: 1, pause_millis: 0,
           maps: false }} }});
         const prompts = {};
         const worker = new Worker('worker.js', {{ type: 'module' }});
         const ask = (ask, files) => worker.postMessage({{ ask: JSON.stringify(ask), files }});
         worker.onmessage = ({{ data }}) => {{
           const message = JSON.parse(data);
           if (message.Began) window.began.push(message.Began);
           if (message.Failed) window.began.push(message.Failed);
           if ((message.Ready || message.Ended) && prompts.length > 0) ask(write(prompts.shift()), []);
         }};
         Promise.all([file('/api/runs/{id}/checkpoint', 'ckpt.safetensors'), file('/api/tokenizers/gpt2', 'tokenizer.json')])
           .then((files) => ask(open, files), (error) => window.began.push(`${{error}}`));",
        json!(prompts)
    ))
    .await;
    let all_read = format!("window.began.length >= {} || typeof window.began[0] === 'string'", prompts.len());
    page.until_for(PATIENCE, "all are read", &all_read).await;
    let began: Vec<Value> = page.value("window.began").await;
    for ((text, ids), began) in golden.iter().zip(began) {
        let pieces = spelt(&tokenizer, &ids[ids.len().saturating_sub(BLOCK_SIZE)..]);
        assert_eq!(began, json!({ "tokens": pieces, "n_tokens": ids.len() }), "{text:?}");
    }
}

/// Returns the text that each token adds. It is empty while a character is incomplete.
fn spelt(tokenizer: &ByteBpe, ids: &[u32]) -> Vec<String> {
    let mut pending = Vec::new();
    let add = |id: &u32| {
        pending.extend_from_slice(tokenizer.token_bytes(*id).expect("a token"));
        let whole = match std::str::from_utf8(&pending) {
            Ok(whole) => whole.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = pending.split_off(whole);
        String::from_utf8(std::mem::replace(&mut pending, rest)).expect("whole characters")
    };
    ids.iter().map(add).collect()
}

/// Changes a checkpoint's metadata to name GPT-2's tokenizer.
fn said_to_be_gpt2(file: &[u8]) -> Vec<u8> {
    let n = usize::try_from(u64::from_le_bytes(file[..8].try_into().expect("eight bytes"))).expect("small");
    let mut header: Value = serde_json::from_slice(&file[8..8 + n]).expect("a header");
    header["__metadata__"]["tokenizer"] = json!("\"gpt2\"");
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &file[8 + n..]].concat()
}

#[test]
fn a_tokenizer_that_does_not_come_is_said_before_weights_are_fetched() {
    const TOKENIZER: &str = "GET /api/tokenizers/gpt2";
    writes("a_tokenizer_that_does_not_come_is_said_before_weights_are_fetched", async |page, agent| {
        agent.save(&said_to_be_gpt2(&CHECKPOINTS[0]));
        // An older agent's response.
        agent.answer_rest(TOKENIZER, 404, json!({ "code": "not_found", "message": "There is no such address." }));
        press(page).await;
        until_says(page, "[data-testid=writes-said]", "The agent reported: There is no such address.").await;
        assert_eq!(agent.requests(TOKENIZER).len(), 1);
        assert!(agent.requests("GET /api/runs/0123456789abcdef/checkpoint").len() <= 2, "the head alone");
        page.until("it can be pressed again", "!document.querySelector('#writes-write').disabled").await;
        // A newer checkpoint has character tokens, so no tokenizer is requested.
        agent.save(&CHECKPOINTS[0]);
        page.click("#writes-write").await;
        until_ended(page).await;
        assert_eq!(agent.requests(TOKENIZER).len(), 1);
        // The browser logs the refusal.
        page.browser.console().await;
    });
}
