//! The real agent's messages on the rig's page, in the page's language.

use crate::{
    environment::Means,
    page::{Page, tell_of},
    rig::{go, until_state},
    rig_runs::choose,
    rig_training::{until_says, until_there},
};
use headroom_languages::table;
use headroom_tests::server::Server;
use headroom_text as text;
use std::{
    fs,
    process::{Command, Stdio},
};

/// A model whose weights are NaN after its first step.
const DIVERGES: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\n\
    dropout = 0.0\ngradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e30\nmin_lr = 1e30\n\
    decay_lr = False\nwarmup_iters = 0\nmax_iters = 50\neval_interval = 1000\nlog_interval = 1\n";
/// The element with the agent's explanation.
const EXPLAINED: &str = "[data-testid=explained]";
const ORDERS: &str = "[data-testid=orders]";

/// Opens the rig's page in a language.
async fn open_in(page: &Page, language: &str, live: text::Key) {
    go(page, &format!("rig?lang={language}")).await;
    until_state(page, table(language).word(live)).await;
}

/// Checks that no line of an element contains an English word of the agent's texts.
async fn has_no_english(page: &Page, selector: &str) {
    let said: String = page.value(&format!("document.querySelector({selector:?}).textContent")).await;
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        assert!([" the ", " is ", " has ", "hint"].iter().all(|word| !line.contains(word)), "{selector}: {line}");
    }
}

#[test]
fn agent_messages_are_in_page_language() {
    let test = "agent_messages_are_in_page_language";
    let Some(means) = Means::of(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config/wild.py");
    fs::create_dir(folder.path().join("config")).expect("a folder");
    fs::write(&config, DIVERGES).expect("a config");
    fs::write(folder.path().join("fox.txt"), "The quick brown fox jumps over the lazy dog. ".repeat(40))
        .expect("a text");
    let prepare = ["data", "prepare", "fox.txt", "--out", "data/fox"];
    let prepared = Command::new(&means.headroom).args(prepare).current_dir(folder.path()).output();
    assert!(prepared.as_ref().is_ok_and(|prepared| prepared.status.success()), "{prepared:?}");
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
        open_in(page, "de", text::RIG_LIVE).await;
        until_there(page, "#start").await;
        choose(page, "#start-config", "wild.py").await;
        choose(page, "#start-device", "cpu").await;
        page.click("#start").await;
        // The explanation arrives as a live event.
        until_says(page, EXPLAINED, "Der Lauf ist divergiert").await;
        until_says(page, EXPLAINED, "Hinweis: eine kleinere --learning_rate=").await;
        has_no_english(page, EXPLAINED).await;
        // A refusal to start a run is in the same language. The config stays, because the end of a run reloads the list.
        fs::write(&config, format!("{DIVERGES}n_head = 3\n")).expect("a config");
        page.click("#start").await;
        until_says(page, ORDERS, "Kein Lauf wurde gestartet: Mit wild.py würde das Training abbrechen.").await;
        // The explanation from the history, in each language.
        for (language, words) in [("ja", "学習は発散しました"), ("zh", "训练已发散"), ("en", "the run has diverged")]
        {
            open_in(page, language, text::RIG_LIVE).await;
            until_says(page, EXPLAINED, words).await;
            if language != "en" {
                has_no_english(page, EXPLAINED).await;
            }
        }
        // The error about a missing directory is translated too.
        fs::remove_dir_all(folder.path()).expect("it was there");
        open_in(page, "de", text::RIG_LIVE).await;
        until_says(page, ORDERS, "ist nicht verwendbar").await;
        // The browser logs the refusal.
        page.browser.console().await;
    });
}
