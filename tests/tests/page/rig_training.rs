//! A training from the page to the end: the real agent starts a tiny model on this machine's processor, and the page
//! follows, queues, stops, goes on and deletes.

use crate::{
    means::Means,
    page::{Page, tell_of},
    rig::{go, until_state},
    rig_runs::choose,
};
use headroom_tests::server::Server;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// What a busy machine needs at most to start a program, or to end it.
const PATIENCE: Duration = Duration::from_secs(120);
/// A model that learns in no time; it ends when it is told to, and by itself where a test that failed left it behind.
const CONFIG: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e-2\nmax_iters = 3000000\neval_interval = 500\n\
    log_interval = 20\n";

async fn until(page: &Page, what: &str, expression: &str) {
    let begun = Instant::now();
    while !page.value::<bool>(&format!("Boolean({expression})")).await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}: {expression}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for words as long as a busy machine may need.
pub async fn until_says(page: &Page, selector: &str, words: &str) {
    let says = format!("document.querySelector({selector:?})?.textContent.includes({words:?})");
    until(page, &format!("{selector} says {words:?}"), &says).await;
}

/// Waits for an element.
pub async fn until_there(page: &Page, selector: &str) {
    until(page, &format!("{selector} is there"), &format!("document.querySelector({selector:?})")).await;
}

/// Orders a run of that name.
async fn order(page: &Page, name: &str) {
    until_there(page, "#start").await;
    choose(page, "#start-config", "fox.py").await;
    choose(page, "#start-device", "cpu").await;
    page.fill("#start-name", name).await;
    page.click("#start").await;
    until_says(page, "[data-testid=orders] [role=status]", name).await;
}

/// What the owner allows: a config and the data that it names.
fn allow(headroom: &Path, folder: &Path) {
    fs::create_dir(folder.join("config")).expect("a folder");
    fs::write(folder.join("config/fox.py"), CONFIG).expect("a config");
    fs::write(folder.join("fox.txt"), "The quick brown fox jumps over the lazy dog. ".repeat(40)).expect("a text");
    let prepare = ["data", "prepare", "fox.txt", "--out", "data/fox"];
    let prepared = Command::new(headroom).args(prepare).current_dir(folder).output().expect("headroom runs");
    assert!(prepared.status.success(), "{prepared:?}");
}

#[test]
fn a_model_is_trained_from_the_page() {
    let test = "a_model_is_trained_from_the_page";
    let Some(means) = Means::of(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    allow(&means.headroom, folder.path());
    let server = Server::start_with(&means.headroom, |command| {
        command.arg("--train").arg(folder.path()).env_remove("JOURNAL_STREAM");
    });
    let mut add = Command::new(&means.headroom);
    add.args(["token", "add", "page", "--scope", "control"]).env("HEADROOM_DATA_DIR", server.folder());
    let added = add.stdin(Stdio::null()).output().expect("headroom runs");
    let token = String::from_utf8(added.stdout).expect("text").trim().to_owned();
    let address = format!("http://{}/", server.host());
    let socket = format!("ws://{}/", server.host());
    tell_of(test, &means, &address, &[socket], Some(server), async |page| {
        go(page, "diagnose").await;
        page.script(&format!("localStorage.setItem('headroom.token', '{token}')")).await;
        go(page, "rig").await;
        until_state(page, "Live").await;
        order(page, "red").await;
        until_says(page, "[data-testid=run-name]", "red").await;
        until_says(page, "[data-testid=run-status]", "running").await;
        until(page, "its losses are drawn", "document.querySelector('.rig-chart__iterations')?.getAttribute('d')")
            .await;
        until_says(page, "[data-testid=facts]", "Learning rate").await;
        until_there(page, "[data-testid=beside-1]").await;
        // One process a device: the next one waits, and is taken out.
        order(page, "blue").await;
        until_says(page, "[data-testid=queue]", "blue").await;
        page.click("[data-testid=queue] button").await;
        until(page, "nothing waits", "!document.querySelector('[data-testid=queue]')").await;
        // What is at work stayed in sight.
        until_says(page, "[data-testid=run-name]", "red").await;
        let red = "[...document.querySelectorAll('[data-testid=choose-run] option')].find((option) => option.text.startsWith('red'))";
        until_there(page, "#act-stop").await;
        page.click("#act-stop").await;
        // It saved what it had, and goes on from there.
        until_there(page, "#act-goon").await;
        page.click("#act-goon").await;
        until_there(page, "#act-stop").await;
        until_says(page, "[data-testid=run-status]", "running").await;
        page.click("#act-stop").await;
        until_there(page, "#act-delete").await;
        page.click("#act-delete").await;
        until_says(page, "[data-testid=acts]", "its checkpoint of").await;
        page.click("#act-delete").await;
        until(page, "it is gone", &format!("!{red}")).await;
    });
}
