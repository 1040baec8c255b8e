//! Text generation from a run's checkpoint in the rig's page: which parts are fetched, and what happens if the file
//! changes meanwhile. A fake agent serves a checkpoint that `headroom train` wrote. The last test uses a real agent,
//! which trains and serves the checkpoint itself.

mod gpt2;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use headroom_kernels::weights::{CHECKSUMS, read_header};
use headroom_tests::server::Server;
use serde_json::{Value, json};

use crate::{
    accessible::{SCHEMES, violations},
    agent::{Agent, hello},
    environment::{Means, named},
    page::{LAPTOP, PHONE, Page, tell_of},
    rig::{go, open_paired, rig, until_says, until_state},
};

/// Timeout for an agent to start a run, prepare its data and train.
const PATIENCE: Duration = Duration::from_secs(120);
/// `max_iters` of two checkpoints of one run. nanoGPT's loop does one iteration more.
const MAX_ITERS: [u64; 2] = [2, 3];
/// WebDriver's code of the Delete key, which removes the selection.
const DELETE: &str = "\u{e017}";
const ENDED: &str = "/(written|after .* tokens?|limit of .* tokens?)\\./.test(document.querySelector('[data-testid=writes-said]').textContent)";

/// Both checkpoints, trained once.
static CHECKPOINTS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let headroom = std::env::var_os("HEADROOM_BIN").expect("the program was built");
    let folder = tempfile::tempdir().expect("a folder");
    MAX_ITERS.map(|max_iters| trained(Path::new(&headroom), folder.path(), max_iters))
});

/// Trains a tiny model for `max_iters` + 1 iterations and returns its checkpoint.
fn trained(headroom: &Path, folder: &Path, max_iters: u64) -> Vec<u8> {
    let mut command = Command::new(headroom);
    command.current_dir(folder).arg("train");
    for key in ["n_layer=1", "n_embd=16", "n_head=2", "block_size=32", "batch_size=2", "eval_iters=1"] {
        command.arg(format!("--{key}"));
    }
    command.args(["--gradient_accumulation_steps=1", "--eval_interval=1", "--always_save_checkpoint=True"]);
    command.arg(format!("--max_iters={max_iters}")).args(["--out_dir=out", "--force"]);
    let output = command.output().expect("headroom runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(folder.join("out/ckpt.safetensors")).expect("a checkpoint")
}

/// Returns a `hello` in which the run has this checkpoint.
fn greeting(iter: u64, bytes: usize) -> Value {
    let mut hello = hello();
    hello["runs"][0]["checkpoint"] = json!({ "iter": iter, "bytes": bytes });
    hello
}

/// Opens a page on which the first checkpoint is ready to be fetched.
fn writes(test: &str, story: impl AsyncFnOnce(&Page, &Agent)) {
    rig(test, async |page, agent| {
        agent.save(&CHECKPOINTS[0]);
        agent.answer(vec![greeting(MAX_ITERS[0] + 1, CHECKPOINTS[0].len())]);
        open_paired(page).await;
        until_state(page, "Live").await;
        story(page, agent).await;
    });
}

async fn press(page: &Page) {
    page.fill("#writes-prompt", "Once").await;
    page.click("#writes-write").await;
}

async fn until_ended(page: &Page) {
    page.until_for(PATIENCE, "the text ends", ENDED).await;
    let text: String = page.value("document.querySelector('[data-testid=writes-text]').textContent").await;
    assert!(text.starts_with("Once") && text.chars().count() > 50, "{text}");
}

#[test]
fn a_checkpoint_writes_by_a_press_and_nothing_is_fetched_before() {
    writes("a_checkpoint_writes_by_a_press_and_nothing_is_fetched_before", async |page, agent| {
        until_says(page, "[data-testid=writes-which]", "saved before iteration 3 ").await;
        let fetched = "performance.getEntriesByType('resource').map((entry) => entry.name).join(' ')";
        let before: String = page.value(fetched).await;
        assert!(before.contains(".wasm") && !before.contains("worker"), "{before}");
        assert!(!before.contains("headroom-demo") && !before.contains("text-writes"), "{before}");
        assert_eq!(agent.requests("GET /api/runs/0123456789abcdef/checkpoint").len(), 0);
        press(page).await;
        until_ended(page).await;
        until_says(page, "[data-testid=writes-said]", "tokens/s").await;
        let said = page.text("[data-testid=writes-said]").await;
        assert!(said.contains("WebAssembly") || said.contains("WebGPU"), "{said}");
        assert!(!said.contains('\u{fffd}'), "{said}");
        until_says(page, "[data-testid=writes-which]", "Checkpoint saved before iteration 3").await;
        // The page fetches the head and the weights. It fetches neither the optimizer's moments nor the checksums.
        let file = &CHECKPOINTS[0];
        let header = read_header(&mut std::io::Cursor::new(file)).expect("a checkpoint");
        let is_moment = |name: &str| name.starts_with("optimizer") || name == CHECKSUMS || name.contains("exp_avg");
        let weights = header.tensors().iter().filter(|(name, _)| !is_moment(name));
        let end = weights.map(|(_, info)| info.range.end).max().expect("weights");
        assert!(end < file.len() as u64 / 2, "{end} of {}", file.len());
        let ranges = agent.requests("GET /api/runs/0123456789abcdef/checkpoint");
        let last = |range: &String| range.split_once('-').expect("a range").1.parse::<u64>().expect("a number");
        assert_eq!(ranges[0], "bytes=0-7");
        assert_eq!(ranges.iter().map(last).max(), Some(end - 1), "{ranges:?}");
        // A second text of the same model fetches nothing.
        let first: String = page.value("document.querySelector('[data-testid=writes-text]').textContent").await;
        page.click("#writes-write").await;
        let other = format!("document.querySelector('[data-testid=writes-text]').textContent !== {}", json!(first));
        page.until("another text begins", &other).await;
        until_ended(page).await;
        assert_eq!(agent.requests("GET /api/runs/0123456789abcdef/checkpoint").len(), ranges.len());
        page.fill("#writes-prompt", "§ and Ж").await;
        page.click("#writes-write").await;
        until_says(page, "[data-testid=writes-said]", "does not contain '§' 'Ж'.").await;
        let prompt: String = page.value("document.querySelector('#writes-prompt').value").await;
        assert_eq!(prompt, "§ and Ж", "it can be corrected");
        // An empty prompt is valid. The text then begins with a newline.
        page.fill("#writes-prompt", DELETE).await;
        page.click("#writes-write").await;
        page.until_for(PATIENCE, "the text ends", ENDED).await;
        let text: String = page.value("document.querySelector('[data-testid=writes-text]').textContent").await;
        assert!(text.starts_with('\n') && text.chars().count() > 50, "{text}");
    });
}

#[test]
fn a_newer_checkpoint_is_offered_and_one_that_is_replaced_meanwhile_said() {
    writes("a_newer_checkpoint_is_offered_and_one_that_is_replaced_meanwhile_said", async |page, agent| {
        let newer = &CHECKPOINTS[1];
        // The newer checkpoint arrives after the old one's head is fetched.
        agent.save_after(2, newer);
        press(page).await;
        until_says(page, "[data-testid=writes-said]", "saved a newer checkpoint").await;
        page.until("it can be pressed again", "!document.querySelector('#writes-write').disabled").await;
        // The browser logs the refused part.
        page.browser.console().await;
        page.click("#writes-write").await;
        until_ended(page).await;
        until_says(page, "[data-testid=writes-which]", "Checkpoint saved before iteration 4").await;
        // The run saves another checkpoint and reports it.
        agent.save(&CHECKPOINTS[0]);
        let checkpoint = json!({ "iter": 5000, "bytes": newer.len() });
        let what = json!({ "kind": "run_saved", "checkpoint": checkpoint });
        agent.say(json!({ "type": "event", "id": 13, "time_ms": 1, "run": "0123456789abcdef", "what": what }));
        until_says(page, "[data-testid=writes-newer]", "iteration 5,000").await;
        page.click("#writes-load").await;
        until_says(page, "[data-testid=writes-which]", "Checkpoint saved before iteration 3").await;
        until_ended(page).await;
    });
}

#[test]
fn failed_worker_fetch_is_retried_or_reported() {
    writes("failed_worker_fetch_is_retried_or_reported", async |page, agent| {
        agent.close_checkpoint(true);
        press(page).await;
        until_says(page, "[data-testid=writes-said]", "This token is not known any more.").await;
        agent.close_checkpoint(false);
        // The user stops the retries.
        agent.break_parts(u64::MAX);
        page.click("#writes-write").await;
        page.until("it can be stopped", "document.querySelector('#writes-stop')").await;
        page.click("#writes-stop").await;
        page.until("it can be pressed again", "!document.querySelector('#writes-write').disabled").await;
        until_says(page, "[data-testid=writes-which]", "The first click downloads").await;
        let n = agent.requests("GET /api/runs/0123456789abcdef/checkpoint").len();
        agent.break_parts(1);
        page.click("#writes-write").await;
        until_ended(page).await;
        let ranges = agent.requests("GET /api/runs/0123456789abcdef/checkpoint");
        assert_eq!(ranges[n..n + 2], ["bytes=0-7", "bytes=0-7"], "resumes at the previous offset: {ranges:?}");
        // The browser logs both failures.
        page.browser.console().await;
    });
}

#[test]
fn the_panel_is_accessible_and_as_wide_as_its_page() {
    const TEST: &str = "the_panel_is_accessible_and_as_wide_as_its_page";
    writes(TEST, async |page, _| {
        let Some(axe) = named(TEST, "HEADROOM_AXE") else { return };
        let axe = fs::read_to_string(axe).expect("axe-core's script");
        press(page).await;
        until_ended(page).await;
        page.script(&axe).await;
        for (scheme, rules) in SCHEMES {
            page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
            for size in [LAPTOP, PHONE] {
                page.resize(size).await;
                let found = violations(page, rules).await;
                assert!(found.is_empty(), "{scheme}, {size:?}: {found:?}");
                let width: u32 = page.value("document.documentElement.scrollWidth").await;
                assert!(width <= size.0, "{width} of {size:?}");
            }
        }
    });
}

/// The keys of a tiny run that saves at once. As a config they are one per line.
const TINY: &str = "n_layer = 1\nn_embd = 16\nn_head = 2\nblock_size = 32\nbatch_size = 2\neval_iters = 1\n\
    gradient_accumulation_steps = 1\neval_interval = 1\nalways_save_checkpoint = True\nmax_iters = 2\ndataset = 'builtin'\n";

/// Sends a request to the agent and returns the whole response.
fn asked(server: &Server, token: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.host()).expect("it listens");
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        server.host(),
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Fetches JSON from the agent with a token. The response passes through the driver as text. GPT-2 has a token
/// `constructor`, which the browser's driver would treat as an object's constructor.
async fn asked_json(page: &Page, token: &str, path: &str) -> Value {
    let headers = json!({ "headers": { "authorization": format!("Bearer {token}") } });
    let answer = page.promise(&format!("(await fetch('{path}', {headers})).text()")).await;
    serde_json::from_str(answer.as_str().expect("text")).expect("JSON")
}

/// Starts a real agent, trains by `config` and runs `story` on its page after the run has ended. `prepare` creates the
/// data in the agent's directory. `story` receives the directory and a token.
fn of_agent(test: &str, config: &str, prepare: impl FnOnce(&Path, &Path), story: impl AsyncFnOnce(&Page, &Path, &str)) {
    let Some(means) = Means::of(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    fs::write(folder.path().join("config/tiny.py"), config).expect("a config");
    prepare(&means.headroom, folder.path());
    let mut token = String::new();
    let server = Server::start_with(&means.headroom, |command| {
        command.arg("--train").arg(folder.path());
        // The token is added before the agent starts, because a running agent learns of a token later.
        let data = command.get_envs().find(|(name, _)| *name == "HEADROOM_DATA_DIR").and_then(|(_, data)| data);
        let mut adding = Command::new(&means.headroom);
        adding.args(["token", "add", "browser", "--scope", "control"]);
        adding.env("HEADROOM_DATA_DIR", data.expect("a folder of its own"));
        let output = adding.output().expect("headroom runs");
        token = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    });
    let order = || asked(&server, &token, "POST /api/runs", r#"{"config":"tiny.py","device":"cpu"}"#);
    let (start, mut answer) = (Instant::now(), order());
    // The agent opens its history while it already answers.
    while answer.starts_with("HTTP/1.1 503") && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(100));
        answer = order();
    }
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let address = server.link().to_owned();
    let socket = address.replace("http", "ws");
    tell_of(test, &means, &address, &[socket], None, async |page| {
        go(page, "diagnose").await;
        page.script(&format!("localStorage.setItem('headroom.token', '{token}')")).await;
        go(page, "rig").await;
        until_state(page, "Live").await;
        page.until_for(PATIENCE, "it has saved", "document.querySelector('[data-testid=writes-which]')").await;
        page.until_for(PATIENCE, "it has ended", "document.querySelector('.run__status--done')").await;
        story(page, folder.path(), &token).await;
    });
}

#[test]
fn a_run_that_the_agent_trains_writes_in_its_page() {
    of_agent(
        "a_run_that_the_agent_trains_writes_in_its_page",
        TINY,
        |_, _| {},
        async |page, _, _| {
            press(page).await;
            until_ended(page).await;
            until_says(page, "[data-testid=writes-which]", "Checkpoint saved after the last iteration").await;
        },
    );
}
