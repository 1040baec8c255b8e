//! Training from the page to the end. A real agent starts a tiny model on the CPU. The page follows, queues, stops,
//! resumes and deletes the run.

use crate::{
    environment::Means,
    page::{Page, tell_of},
    rig::{go, until_state},
    rig_runs::choose,
};
use headroom_tests::{server::Server, training_root::TrainingRoot};
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// Timeout for starting or ending a program on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A model that trains in a moment. The run ends only when it is stopped.
const CONFIG: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e-2\nmax_iters = 3000000\neval_interval = 500\n\
    log_interval = 20\n";

/// Waits like [`Page::until`], with a longer timeout.
pub async fn until(page: &Page, what: &str, expression: &str) {
    page.until_for(PATIENCE, what, expression).await;
}

/// Waits until an element's text contains `words`, with a longer timeout than [`Page::until`].
pub async fn until_says(page: &Page, selector: &str, words: &str) {
    let says = format!("document.querySelector({selector:?})?.textContent.includes({words:?})");
    until(page, &format!("{selector} says {words:?}"), &says).await;
}

/// Waits until an element exists, with a longer timeout than [`Page::until`].
pub async fn until_there(page: &Page, selector: &str) {
    until(page, &format!("{selector} is there"), &format!("document.querySelector({selector:?})")).await;
}

/// Starts a run with this name through the form.
pub async fn order(page: &Page, config: &str, device: &str, name: &str) {
    until_there(page, "#start").await;
    choose(page, "#start-config", config).await;
    choose(page, "#start-device", device).await;
    page.fill("#start-name", name).await;
    page.click("#start").await;
    until_says(page, "[data-testid=orders] [role=status]", name).await;
}

/// Returns a token with scope `control`.
pub fn control(headroom: &Path, server: &Server) -> String {
    let mut add = Command::new(headroom);
    add.args(["token", "add", "page", "--scope", "control"]).env("HEADROOM_DATA_DIR", server.folder());
    let added = add.stdin(Stdio::null()).output().expect("headroom runs");
    String::from_utf8(added.stdout).expect("text").trim().to_owned()
}

#[test]
fn a_model_is_trained_from_the_page() {
    let test = "a_model_is_trained_from_the_page";
    let Some(means) = Means::of(test) else { return };
    let grounds = TrainingRoot::new(&means.headroom, &[("fox.py", CONFIG)]);
    let server = Server::start_with(&means.headroom, |command| {
        command.arg("--train").arg(grounds.path()).env_remove("JOURNAL_STREAM");
    });
    let token = control(&means.headroom, &server);
    let address = format!("http://{}/", server.host());
    let socket = format!("ws://{}/", server.host());
    tell_of(test, &means, &address, &[socket], Some(server), async |page| {
        go(page, "diagnose").await;
        page.script(&format!("localStorage.setItem('headroom.token', '{token}')")).await;
        go(page, "rig").await;
        until_state(page, "Live").await;
        order(page, "fox.py", "cpu", "red").await;
        until_says(page, "[data-testid=run-name]", "red").await;
        until_says(page, "[data-testid=run-status]", "running").await;
        until(page, "its losses are drawn", "document.querySelector('.rig-chart__iterations')?.getAttribute('d')")
            .await;
        until_says(page, "[data-testid=facts]", "Learning rate").await;
        until_there(page, "[data-testid=beside-1]").await;
        // One process per device: the next run is queued, and then removed from the queue.
        order(page, "fox.py", "cpu", "blue").await;
        until_says(page, "[data-testid=queue]", "blue").await;
        page.click("[data-testid=queue] button").await;
        until(page, "nothing waits", "!document.querySelector('[data-testid=queue]')").await;
        // The page still shows the active run.
        until_says(page, "[data-testid=run-name]", "red").await;
        let red = "[...document.querySelectorAll('[data-testid=choose-run] option')].find((option) => option.text.startsWith('red'))";
        until_there(page, "#act-stop").await;
        page.click("#act-stop").await;
        // The run saved its state and resumes from it.
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
