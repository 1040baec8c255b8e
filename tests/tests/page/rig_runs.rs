//! Runs on the rig's page: started, queued, stopped, resumed, deleted and compared.

use crate::{
    agent::{Agent, golden, hello, now_ms},
    page::Page,
    rig::{RUN, go, happens, open_paired, rig, until_says, until_state},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Timeout for a request on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ORDERS: &str = "[data-testid=orders]";
const ACTS: &str = "[data-testid=acts]";

/// Selects an option of a list.
pub async fn choose(page: &Page, selector: &str, value: &str) {
    let choose = format!(
        "const list = document.querySelector({selector:?}); list.value = {value:?};
         list.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    );
    page.script(&choose).await;
}

async fn until_value(page: &Page, selector: &str, value: &str) {
    let has = format!("document.querySelector({selector:?})?.value === {value:?}");
    page.until(&format!("{selector} has {value:?}"), &has).await;
}

async fn until_there(page: &Page, selector: &str) {
    page.until(&format!("{selector} is there"), &format!("document.querySelector({selector:?})")).await;
}

/// Waits until the agent has received `n` requests of a kind, and checks that there are no more.
async fn until_asked(page: &Page, agent: &Agent, path: &str, n: usize) {
    let begun = Instant::now();
    while agent.requests(path).len() < n && begun.elapsed() < PATIENCE {
        // Any command lets the page continue meanwhile.
        page.value::<bool>("true").await;
    }
    assert_eq!(agent.requests(path).len(), n, "{path}");
}

/// Returns the `hello` message with its run changed.
fn greeting(change: impl FnOnce(&mut Value)) -> Value {
    let mut hello = hello();
    change(&mut hello["runs"][0]);
    hello
}

/// Returns the body of the last request of a kind, as JSON.
fn last(agent: &Agent, path: &str) -> Value {
    serde_json::from_str(agent.requests(path).last().expect("it was asked")).expect("JSON")
}

#[test]
fn a_run_is_ordered_from_what_is_allowed_and_a_refusal_loses_nothing() {
    rig("a_run_is_ordered_from_what_is_allowed_and_a_refusal_loses_nothing", async |page, agent| {
        agent.answer_rest("POST /api/runs", 409, json!({ "code": "queue", "message": "16 runs wait already." }));
        open_paired(page).await;
        until_value(page, "#start-dataset", "builtin").await;
        assert_eq!(page.value::<String>("document.querySelector('#start-device').value").await, "cuda:0");
        choose(page, "#start-config", "gpt2").await;
        // Choosing a config also chooses its data set.
        until_value(page, "#start-dataset", "owt").await;
        choose(page, "#start-device", "cpu").await;
        page.fill("#start-name", " mine ").await;
        page.click("#start").await;
        until_says(page, ORDERS, "Failed: 16 runs wait already.").await;
        let order = json!({ "config": "gpt2", "dataset": "owt", "device": "cpu", "name": "mine" });
        assert_eq!(last(agent, "POST /api/runs"), order);
        until_value(page, "#start-name", " mine ").await;
        until_value(page, "#start-config", "gpt2").await;
        agent.answer_rest("POST /api/runs", 201, json!({ "id": "fedcba", "name": "mine", "started_ms": 1 }));
        page.click("#start").await;
        until_says(page, ORDERS, "The agent accepted mine").await;
        until_value(page, "#start-name", "").await;
        assert_eq!((last(agent, "POST /api/runs"), agent.requests("POST /api/runs").len()), (order, 2));
        // The browser logs the refusal.
        page.browser.console().await;
    });
}

#[test]
fn where_nothing_can_be_started_the_page_says_what_would_allow_it() {
    rig("where_nothing_can_be_started_the_page_says_what_would_allow_it", async |page, agent| {
        let none = |why: &str| json!({ "unavailable": why, "configs": [], "datasets": [], "devices": [] });
        let mut not_allowed = none("So: `headroom serve --train FOLDER` names one.");
        not_allowed["unavailable_text"] = json!({ "key": "no_folder_allowed" });
        agent.answer_rest("GET /api/training", 200, not_allowed);
        open_paired(page).await;
        until_says(page, ORDERS, "headroom serve --train FOLDER").await;
        assert!(!page.text(ORDERS).await.contains("names one"), "the page shows the message exactly once");
        agent.answer_rest("GET /api/training", 200, none("Cannot use the --train folder."));
        go(page, "rig").await;
        until_says(page, ORDERS, "Cannot use the --train folder").await;
        assert!(page.value::<bool>("!document.querySelector('#start')").await);
        agent.answer_rest("GET /api/training", 503, json!({ "code": "busy", "message": "Not now." }));
        go(page, "rig").await;
        until_says(page, ORDERS, "Cannot load the configs and data sets: Not now.").await;
        page.browser.console().await;
    });
}

#[test]
fn managed_run_is_stopped_resumed_and_deleted() {
    rig("managed_run_is_stopped_resumed_and_deleted", async |page, agent| {
        let refusal = json!({ "code": "no", "message": "It is being saved." });
        agent.answer_rest("POST /api/runs/", 409, refusal);
        agent.answer_rest("DELETE /api/runs/", 200, json!({}));
        open_paired(page).await;
        until_there(page, "#act-stop").await;
        page.click("#act-stop").await;
        until_says(page, ACTS, "Failed: It is being saved.").await;
        agent.answer_rest("POST /api/runs/", 202, json!({}));
        page.click("#act-stop").await;
        page.until(
            "the refusal is gone",
            &format!("!document.querySelector({ACTS:?}).textContent.includes('Not done')"),
        )
        .await;
        until_asked(page, agent, &format!("POST /api/runs/{RUN}/stop"), 2).await;
        happens(agent, 1, json!({ "kind": "run_stopping" }));
        until_says(page, ACTS, "finishing the iteration and saving").await;
        assert!(page.value::<bool>("!document.querySelector('#act-stop')").await);
        let ended =
            json!({ "kind": "run_status", "status": { "state": "killed", "signal": 15 }, "energy_joules": null });
        happens(agent, 2, ended.clone());
        until_there(page, "#act-goon").await;
        page.click("#act-goon").await;
        until_asked(page, agent, &format!("POST /api/runs/{RUN}/resume"), 1).await;
        happens(agent, 3, json!({ "kind": "run_resumed", "pid": 7 }));
        until_there(page, "#act-stop").await;
        happens(agent, 4, ended);
        until_there(page, "#act-delete").await;
        // The first press shows what is deleted. A second press deletes it, or another button keeps it.
        page.click("#act-delete").await;
        until_says(page, ACTS, "its checkpoint of 124 MiB").await;
        page.click("#act-keep").await;
        until_says(page, "#act-delete", "Delete").await;
        page.click("#act-delete").await;
        until_says(page, "#act-delete", "Delete permanently").await;
        assert_eq!(agent.requests("DELETE /api/runs/").len(), 0);
        page.click("#act-delete").await;
        until_asked(page, agent, &format!("DELETE /api/runs/{RUN}"), 1).await;
        happens(agent, 5, json!({ "kind": "run_deleted", "name": "of the past" }));
        until_says(page, "[data-testid=log]", "of the past was deleted").await;
        until_says(page, "[data-testid=run]", "No run yet").await;
        page.browser.console().await;
    });
}

#[test]
fn run_failed_before_save_restarts_by_same_request() {
    rig("run_failed_before_save_restarts_by_same_request", async |page, agent| {
        let order = json!({ "config": "gpt2", "dataset": "owt", "device": "cpu", "name": "mine" });
        let mut failed = greeting(|run| {
            (run["checkpoint"], run["order"]) = (json!(null), order.clone());
            (run["status"], run["ended_ms"]) = (json!({ "state": "exited", "code": 1 }), run["started_ms"].clone());
        });
        agent.answer(vec![failed.clone()]);
        agent.answer_rest("POST /api/runs", 409, json!({ "code": "queue", "message": "16 runs wait already." }));
        open_paired(page).await;
        until_says(page, "#act-startagain", "Restart").await;
        page.click("#act-startagain").await;
        until_says(page, ACTS, "Failed: 16 runs wait already.").await;
        agent.answer_rest("POST /api/runs", 201, json!({ "id": "fedcba", "name": "mine", "started_ms": 1 }));
        page.click("#act-startagain").await;
        until_says(page, ACTS, "The agent accepted mine").await;
        assert_eq!((last(agent, "POST /api/runs"), agent.requests("POST /api/runs").len()), (order.clone(), 2));
        // Once the agent reports the new run, the page shows it and moves the focus to its buttons.
        let what = json!({ "kind": "run_started", "run": { "id": "fedcba", "name": "mine", "started_ms": now_ms(),
            "ended_ms": null, "status": { "state": "queued" }, "pid": null, "order": order } });
        let id = failed["last_event"].as_u64().expect("a number") + 1;
        agent.say(json!({ "type": "event", "id": id, "time_ms": now_ms(), "run": "fedcba", "what": what }));
        until_says(page, "[data-testid=run-status]", "queued").await;
        page.until("the focus is not lost", "document.activeElement.id === 'acts'").await;
        // A viewer with scope `view` cannot start runs, also not again those that another viewer started.
        failed["scope"] = json!("view");
        agent.answer(vec![failed.clone()]);
        go(page, "rig").await;
        until_says(page, ACTS, "View-only access").await;
        assert!(page.value::<bool>("!document.querySelector('#act-startagain')").await);
        (failed["scope"], failed["runs"][0]["order"]) = (json!("control"), json!(null));
        agent.answer(vec![failed]);
        go(page, "rig").await;
        until_there(page, "#act-delete").await;
        assert!(page.value::<bool>("!document.querySelector('#act-startagain')").await);
        // The browser logs the refusal.
        page.browser.console().await;
    });
}

#[test]
fn view_scope_has_no_buttons_and_sees_reason() {
    rig("view_scope_has_no_buttons_and_sees_reason", async |page, agent| {
        let mut hello = greeting(|_| {});
        hello["scope"] = json!("view");
        agent.answer(vec![hello]);
        open_paired(page).await;
        until_says(page, ACTS, "View-only access").await;
        until_says(page, ORDERS, "View-only access").await;
        let buttons = format!("document.querySelectorAll('{ACTS} button, {ORDERS} button, {ORDERS} select').length");
        assert_eq!(page.value::<u32>(&buttons).await, 0);
        assert!(agent.requests("GET /api/training").is_empty(), "a viewer does not request the options");
    });
}

#[test]
fn runs_that_wait_are_reported_in_their_order_and_can_be_removed() {
    rig("runs_that_wait_are_reported_in_their_order_and_can_be_removed", async |page, agent| {
        agent.answer_rest("POST /api/runs/", 202, json!({}));
        open_paired(page).await;
        until_state(page, "Live").await;
        let first = golden("hello.json")["last_event"].as_u64().expect("a number");
        for (n, name) in [(1, "first"), (2, "second")] {
            let run = json!({ "id": name, "name": name, "started_ms": now_ms() + n, "ended_ms": null,
                "status": { "state": "queued" }, "pid": null, "order": { "config": "gpt2", "device": "cuda:0" } });
            let what = json!({ "kind": "run_started", "run": run });
            agent.say(json!({ "type": "event", "id": first + n, "time_ms": now_ms(), "run": name, "what": what }));
        }
        until_says(page, "[data-testid=queue] li:nth-child(2)", "second gpt2 · cuda:0").await;
        until_says(page, "[data-testid=queue] li:nth-child(1)", "first").await;
        // The page still shows the active run.
        until_says(page, "[data-testid=run-name]", "shakespeare-char").await;
        page.click("#wait-first").await;
        until_asked(page, agent, "POST /api/runs/first/stop", 1).await;
        let what =
            json!({ "kind": "run_status", "status": { "state": "killed", "signal": 15 }, "energy_joules": null });
        agent.say(json!({ "type": "event", "id": first + 3, "time_ms": now_ms(), "run": "first", "what": what }));
        until_says(page, "[data-testid=queue] li:nth-child(1)", "second").await;
    });
}

#[test]
fn losses_are_compared_smoothed_and_said_with_what_differs() {
    rig("losses_are_compared_smoothed_and_said_with_what_differs", async |page, agent| {
        let mut hello = greeting(|run| run["config"] = json!("batch_size = 64\nlearning_rate = 6e-4\n"));
        let mut other = hello["runs"][0].clone();
        (other["id"], other["name"], other["config"]) =
            (json!("fedcba"), json!("slower"), json!("batch_size = 8\nlearning_rate = 6e-4\n"));
        (other["status"], other["ended_ms"]) = (json!({ "state": "exited", "code": 0 }), other["started_ms"].clone());
        hello["runs"].as_array_mut().expect("a list").push(other);
        agent.answer(vec![hello]);
        let printed = |run: &str, loss: f64| {
            let event = |iter: u64| {
                let what = json!({ "kind": "run_iteration", "iter": iter, "loss": loss + (iter % 2) as f64, "time_ms": 1.0,
                    "learning_rate": 6e-4, "gradient_norm": 1.25 });
                json!({ "id": iter + 1, "time_ms": 1, "run": run, "what": what })
            };
            (0..300).map(event).collect::<Vec<_>>()
        };
        agent.answer_rest(&format!("GET /api/runs/{RUN}/events"), 200, json!(printed(RUN, 2.0)));
        agent.answer_rest("GET /api/runs/fedcba/events", 200, json!(printed("fedcba", 3.0)));
        open_paired(page).await;
        page.until("losses are drawn", "document.querySelector('.rig-chart__iterations')?.getAttribute('d')").await;
        until_says(page, "[data-testid=beside-0]", "6e-4").await;
        until_says(page, "[data-testid=beside-1]", "1.250").await;
        choose(page, "#compare", "fedcba").await;
        page.until(
            "the other is drawn",
            "document.querySelector('.rig-chart__plot .rig-chart__other--0')?.getAttribute('d')",
        )
        .await;
        until_says(page, "[data-testid=other]", "slower").await;
        until_says(page, "[data-testid=differences]", "batch_size648").await;
        assert!(!page.text("[data-testid=differences]").await.contains("learning_rate"));
        let smoothed = "[data-testid=losses] .rig-chart__button:nth-child(2)";
        page.click(smoothed).await;
        let drawn = "document.querySelector('.rig-chart__smooth')?.getAttribute('d')";
        page.until("a smoothed line is drawn", drawn).await;
        until_says(page, "[data-testid=losses]", "weight 0.90").await;
        page.click("#other-0").await;
        page.until("no other run is drawn", "!document.querySelector('[data-testid=other]')").await;
        // The browser stores the choice.
        go(page, "rig").await;
        page.until("it is smoothed again", drawn).await;
    });
}

/// Whether a fact overflows its place, or a compared run's name touches its end.
const TOUCHES: &str = "(() => {
    const facts = [...document.querySelectorAll('.run__fact')].some((fact) => fact.scrollWidth > fact.clientWidth);
    const [name, ends] = [...document.querySelector('[data-testid=beside-0] p').children].map((of) => of.getBoundingClientRect());
    return facts || name.right + 4 > ends.left;
})()";

#[test]
fn a_learning_rate_beyond_measure_has_room_on_a_phone() {
    rig("a_learning_rate_beyond_measure_has_room_on_a_phone", async |page, agent| {
        let what =
            json!({ "kind": "run_iteration", "iter": 300, "loss": 3.5e22, "time_ms": 1.0, "learning_rate": 1e30 });
        let printed = json!([{ "id": 1, "time_ms": 1, "run": RUN, "what": what.clone() }]);
        agent.answer_rest(&format!("GET /api/runs/{RUN}/events"), 200, printed);
        page.resize((360, 740)).await;
        open_paired(page).await;
        until_state(page, "Live").await;
        happens(agent, 1, what);
        until_says(page, "[data-testid=facts]", "Loss3.5e22").await;
        until_says(page, "[data-testid=facts]", "Learning rate1e30").await;
        until_says(page, "[data-testid=beside-0]", "Learning rate 1e30").await;
        assert!(!page.value::<bool>(TOUCHES).await);
        // The check detects an overflow.
        let wide = "const value = document.querySelector('.run__fact dd');
            value.style.whiteSpace = 'nowrap'; value.textContent = '1000000000000.0'.repeat(4)";
        page.script(wide).await;
        assert!(page.value::<bool>(TOUCHES).await);
    });
}

#[test]
fn runs_of_one_name_and_minute_are_distinguished() {
    rig("runs_of_one_name_and_minute_are_distinguished", async |page, agent| {
        let mut hello = greeting(|run| run["config"] = json!("batch_size = 64\n"));
        let begun_ms = hello["runs"][0]["started_ms"].as_u64().expect("a time");
        // The last two start in the same second.
        for (id, later_ms) in [("89abcdef01", 2000), ("fedcba9876", 2999)] {
            let mut other = hello["runs"][0].clone();
            (other["id"], other["started_ms"]) = (json!(id), json!(begun_ms + later_ms));
            (other["config"], other["status"]) = (json!("batch_size = 8\n"), json!({ "state": "exited", "code": 0 }));
            hello["runs"].as_array_mut().expect("a list").push(other);
        }
        agent.answer(vec![hello]);
        open_paired(page).await;
        until_there(page, "#compare").await;
        let texts = |selector: &str| {
            format!("[...document.querySelectorAll('{selector}')].map((node) => node.textContent.trim())")
        };
        let listed: Vec<String> = page.value(&texts("[data-testid=choose-run] option")).await;
        assert!(listed.iter().all(|of| of.starts_with("shakespeare-char · ")), "{listed:?}");
        assert!(listed[0].ends_with(":40") && listed[1].ends_with(":42 · 89abcdef"), "{listed:?}");
        assert_eq!((listed.len(), listed[2].ends_with(":42 · fedcba98")), (3, true), "{listed:?}");
        assert_eq!(page.value::<Vec<String>>(&texts("#compare option")).await[1..], listed[1..]);
        for id in ["89abcdef01", "fedcba9876"] {
            choose(page, "#compare", id).await;
        }
        until_there(page, "#other-1").await;
        let heads: Vec<String> = page.value(&texts("[data-testid=differences] thead th")).await;
        assert_eq!(heads[1..], listed[..]);
        let leave: Vec<String> = page
            .value("[...document.querySelectorAll('[data-testid=other] button')].map((button) => button.ariaLabel)")
            .await;
        assert_eq!(leave, [format!("Remove {}", listed[1]), format!("Remove {}", listed[2])]);
    });
}
