//! The rig's page with a fake agent that sends the protocol's golden messages.

use crate::{
    accessible::{SCHEMES, violations},
    agent::{Agent, CODE, TOKEN, golden, hello, now_ms, telemetry},
    environment::{Means, named},
    page::{LAPTOP, PHONE, Page, tell_of},
};
use headroom_languages::table;
use headroom_text::{self as text, LANGUAGES};
use serde_json::{Value, json};

/// Viewport of one-handed use, in CSS pixels.
const NARROW: (u32, u32) = (360, 740);
/// ID of the run in the golden `hello`.
pub const RUN: &str = "0123456789abcdef";
const STATE: &str = "document.querySelector('[data-testid=connection]')?.textContent ?? ''";

/// Runs `story` with a page and a fake agent. No page is opened before `story`.
pub fn rig(test: &str, story: impl AsyncFnOnce(&Page, &Agent)) {
    let Some(means) = Means::of(test) else { return };
    let agent = Agent::start(&means.dist);
    let socket = agent.address.replace("http", "ws");
    tell_of(test, &means, &agent.address.clone(), &[socket], None, async |page| story(page, &agent).await);
}

/// Opens the rig's page as a paired browser.
pub async fn open_paired(page: &Page) {
    // Any page of the same origin works, because storage is per origin.
    go(page, "diagnose").await;
    page.script(&format!("localStorage.setItem('headroom.token', '{TOKEN}')")).await;
    go(page, "rig").await;
}

pub async fn go(page: &Page, path: &str) {
    page.goto(&format!("{}{path}", page.address)).await;
}

pub async fn until_state(page: &Page, words: &str) {
    page.until(&format!("it says {words:?}"), &format!("({STATE}).includes({words:?})")).await;
}

/// Sends an event about the golden `hello`'s run. `n` is the event's number after the last event of the `hello`.
pub fn happens(agent: &Agent, n: u64, what: Value) {
    let id = golden("hello.json")["last_event"].as_u64().expect("a number") + n;
    let mut event = json!({ "type": "event", "id": id, "time_ms": now_ms(), "run": RUN });
    event["what"] = what;
    agent.say(event);
}

pub async fn until_says(page: &Page, selector: &str, words: &str) {
    let says =
        format!("document.querySelector({selector:?})?.textContent.replaceAll('\\u00a0', ' ').includes({words:?})");
    page.until(&format!("{selector} says {words:?}"), &says).await;
}

#[test]
fn readings_are_drawn_as_they_come() {
    rig("readings_are_drawn_as_they_come", async |page, agent| {
        open_paired(page).await;
        until_state(page, "Live").await;
        assert_eq!(page.text("[data-testid=rig-name]").await, "rig");
        until_says(page, "[data-metric='1']", "not read yet").await;
        agent.say(telemetry(1, 97));
        until_says(page, "[data-metric='1']", "97 %").await;
        agent.say(telemetry(2, 12));
        until_says(page, "[data-metric='1']", "12 %").await;
        assert_eq!(page.text("[data-testid=memory]").await, "7.00 GiB of 12.00 GiB");
        assert_eq!(page.text("[data-metric='3']").await.replace('\u{a0}', " "), "61 °C");
        assert!(page.text("[data-testid=throttle]").await.contains("power limit"));
        let mut missing = telemetry(3, 50);
        missing["gpus"][0]["power_watts"] = json!({ "missing": "not_supported" });
        agent.say(missing);
        until_says(page, "[data-metric='2']", "not on this GPU").await;
        agent.say(golden("slow.json"));
        until_says(page, "[data-testid=processes]", "python train.py").await;
        let memory: Vec<String> = page
            .value("[...document.querySelectorAll('.processes__memory')].map((cell) => cell.textContent.trim())")
            .await;
        assert_eq!(memory, ["6.00 GiB", "hidden by Windows"], "the largest first, what is hidden last");
        // The GPU is lost, and found again.
        agent.say(golden("inventory.json"));
        page.until("it is drawn as lost", "document.querySelector('.gpu--lost')").await;
        assert!(page.value::<bool>("!document.querySelector('.gpu__plan')").await, "there is nothing to plan against");
        let mut back = golden("inventory.json");
        back["gpus"][0]["present"] = json!(true);
        agent.say(back);
        page.until("it is back", "document.querySelector('.gpu:not(.gpu--lost)')").await;
    });
}

#[test]
fn a_pairing_link_is_used_once_and_leaves_the_address_at_once() {
    rig("a_pairing_link_is_used_once_and_leaves_the_address_at_once", async |page, agent| {
        go(page, &format!("rig#pair={CODE}")).await;
        until_state(page, "Live").await;
        let address: String = page.value("location.href").await;
        assert_eq!(address, format!("{}rig", page.address));
        let asked = agent.requests("POST /api/pair");
        let body: Value = serde_json::from_str(&asked[0]).expect("JSON");
        assert_eq!((asked.len(), &body["code"]), (1, &json!(CODE)));
        assert!(body["name"].as_str().is_some_and(|name| name.contains("Chrome")), "{body}");
        assert_eq!(agent.hellos()[0], json!({ "type": "hello", "protocol": 1, "token": TOKEN }));
        // The next visit needs no link.
        go(page, "diagnose").await;
        go(page, "rig").await;
        until_state(page, "Live").await;
        assert_eq!(agent.requests("POST /api/pair").len(), 1);
        // A used link changes nothing for a paired browser, and shows an error to another one.
        page.script("localStorage.removeItem('headroom.token')").await;
        go(page, "diagnose").await;
        go(page, &format!("rig#pair={CODE}")).await;
        until_says(page, "[data-testid=access]", "The code was used.").await;
        assert_eq!(page.value::<String>("location.hash").await, "");
        page.fill("#token", TOKEN).await;
        page.click("#connect").await;
        until_state(page, "Live").await;
        // The link is pasted into the address of the open page, which loads nothing again.
        page.script(&format!("location.hash = 'pair={CODE}'")).await;
        page.until("it leaves the address", "location.href.endsWith('/rig')").await;
        until_state(page, "Live").await;
        assert_eq!(agent.requests("POST /api/pair").len(), 3);
        // The browser logs the refused code.
        page.browser.console().await;
    });
}

#[test]
fn an_agent_that_is_started_again_is_found_and_nothing_is_missing() {
    rig("an_agent_that_is_started_again_is_found_and_nothing_is_missing", async |page, agent| {
        agent.feed(true);
        open_paired(page).await;
        until_state(page, "Live").await;
        page.until("it is fed", "document.querySelector('.gpu__spark path').getAttribute('d').length > 5").await;
        agent.restart(false);
        until_state(page, "reconnecting in").await;
        let mut again = hello();
        again["last_event"] = json!(again["last_event"].as_u64().expect("a number") + 1);
        let id = &again["last_event"];
        let what = json!({ "kind": "run_iteration", "iter": 260, "loss": 1.5, "time_ms": 100.0 });
        let event = json!({ "id": id, "time_ms": 1, "run": "0123456789abcdef", "what": what });
        let past = json!({ "type": "past", "telemetry": [], "events": [event], "done": true, "from_ms": 0 });
        agent.answer(vec![again.clone(), past]);
        agent.restart(true);
        // A network event makes the page connect at once, without waiting for a timer.
        page.script("dispatchEvent(new Event('online'))").await;
        until_state(page, "Live").await;
        let hellos = agent.hellos();
        let after = &hellos[hellos.len() - 1]["after"];
        assert_eq!(after["event"], golden("hello.json")["last_event"]);
        assert!(after["time_ms"].as_u64().is_some_and(|time_ms| time_ms > 1_700_000_000_000), "{after}");
        page.until("missed data are drawn", "document.querySelector('[data-testid=losses] path[d*=M]')").await;
        // The browser logs the refused sockets.
        page.browser.console().await;
    });
}

#[test]
fn silence_is_reported() {
    rig("silence_is_told", async |page, agent| {
        agent.feed(true);
        open_paired(page).await;
        page.until("it is fed", "document.querySelector('.gpu__spark path')?.getAttribute('d').length > 5").await;
        agent.feed(false);
        until_state(page, "Stale").await;
        page.until("it looks old", "document.querySelector('.rig__body--old')").await;
        until_says(page, "[data-testid=as-of]", "The data shown is from").await;
        agent.feed(true);
        until_state(page, "Live").await;
        page.until("it is current", "document.querySelector('[data-testid=as-of]').textContent === ''").await;
    });
}

#[test]
fn a_token_that_is_revoked_leaves_figures_that_say_from_when_they_are() {
    rig("a_token_that_is_revoked_leaves_figures_that_say_from_when_they_are", async |page, agent| {
        open_paired(page).await;
        until_state(page, "Live").await;
        let mut refused = golden("refused.json");
        (refused["code"], refused["message"]) = (json!("bad_token"), json!("Unknown."));
        agent.answer(vec![refused]);
        agent.restart(true);
        until_says(page, "[data-testid=access]", "does not accept").await;
        page.until("it looks old", "document.querySelector('.rig__body--old [data-testid=gpu]')").await;
        until_says(page, "[data-testid=as-of]", "The data shown is from").await;
        page.browser.console().await;
    });
}

#[test]
fn losses_that_do_not_arrive_are_asked_for_again() {
    rig("losses_that_do_not_arrive_are_asked_for_again", async |page, agent| {
        let why = json!({ "code": "history", "message": "History cannot be read.", "request_id": "9f3c-7" });
        agent.answer_rest("GET /api/runs/", 503, why);
        open_paired(page).await;
        until_says(page, "[data-testid=losses]", "losses: History cannot be read. Request ID: 9f3c-7").await;
        let what = json!({ "kind": "run_iteration", "iter": 7, "loss": 1.5, "time_ms": 100.0 });
        let event = json!({ "id": 1, "time_ms": 1, "run": "0123456789abcdef", "what": what });
        agent.answer_rest("GET /api/runs/", 200, json!([event]));
        page.until("they are drawn", "document.querySelector('[data-testid=losses] path[d*=M]')").await;
        // The browser logs the missing response.
        page.browser.console().await;
    });
}

#[test]
fn event_is_shown_once_with_its_time() {
    rig("event_is_shown_once_with_its_time", async |page, agent| {
        open_paired(page).await;
        until_state(page, "Live").await;
        let id = golden("hello.json")["last_event"].as_u64().expect("a number");
        let gpu = &golden("hello.json")["gpus"][0]["uuid"];
        for (n, what) in [
            json!({ "kind": "card_lost", "gpu": gpu }),
            json!({ "kind": "alert", "alert": { "on": "card_lost" }, "gpu": gpu, "value": null }),
            json!({ "kind": "card_back", "gpu": gpu }),
        ]
        .into_iter()
        .enumerate()
        {
            agent.say(json!({ "type": "event", "id": id + 1 + n as u64, "time_ms": now_ms(), "what": what }));
        }
        until_says(page, "[data-testid=log]", "responds again").await;
        let lines: Vec<String> =
            page.value("[...document.querySelectorAll('[data-testid=log] li')].map((line) => line.textContent)").await;
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains("GeForce RTX 4070 stopped responding"), "{lines:?}");
        let has_seconds = "/\\d\\d:\\d\\d:\\d\\d/.test(document.querySelector('.log__time').textContent)";
        assert!(page.value::<bool>(has_seconds).await, "{lines:?}");
    });
}

#[test]
fn refused_viewer_sees_reason() {
    rig("refused_viewer_sees_reason", async |page, agent| {
        go(page, "rig").await;
        until_state(page, "Not paired").await;
        page.fill("#token", "not the token").await;
        page.click("#connect").await;
        until_says(page, "[data-testid=access]", "does not accept").await;
        assert_eq!(page.value::<Option<String>>("localStorage.getItem('headroom.token')").await, None);
        agent.answer(vec![golden("refused.json")]);
        open_paired(page).await;
        until_state(page, "protocol version 1").await;
        assert!(page.value::<bool>("Boolean(document.querySelector('#reload'))").await);
        let mut many = golden("refused.json");
        (many["code"], many["message"]) = (json!("too_many"), json!("There are too many."));
        agent.answer(vec![many]);
        go(page, "rig").await;
        until_state(page, "Access denied").await;
        until_says(page, "[data-testid=access]", "There are too many.").await;
        agent.answer(vec![hello()]);
        page.click("#again").await;
        until_state(page, "Live").await;
        page.click("#forget").await;
        until_state(page, "Not paired").await;
        assert_eq!(page.value::<Option<String>>("localStorage.getItem('headroom.token')").await, None);
        agent.be_none();
        go(page, "rig").await;
        until_state(page, "No agent here").await;
        until_says(page, "[data-testid=access]", "headroom serve").await;
        page.browser.console().await;
    });
}

#[test]
fn every_state_of_the_driver_and_the_history_is_reported() {
    rig("every_state_of_the_driver_and_the_history_is_reported", async |page, agent| {
        open_paired(page).await;
        until_state(page, "Live").await;
        let states = golden("states.json");
        let words =
            ["Querying", "libnvidia-ml is missing", "Driver Not Loaded", "GPU is lost", "damaged", "disk is full"];
        let states = states.as_array().expect("a list");
        assert_eq!(states.len(), words.len());
        for (state, words) in states.iter().zip(words) {
            agent.say(state.clone());
            until_says(page, "[data-testid=trouble]", words).await;
        }
    });
}

#[test]
fn a_run_shows_its_losses_its_end_and_what_to_change() {
    rig("a_run_shows_its_losses_its_end_and_what_to_change", async |page, agent| {
        open_paired(page).await;
        until_says(page, "[data-testid=run-name]", "shakespeare-char").await;
        assert_eq!(page.text("[data-testid=run-status]").await, "running");
        let id = golden("hello.json")["last_event"].as_u64().expect("a number");
        let happens = |n: u64, what: Value| {
            let event = json!({ "type": "event", "id": id + n, "time_ms": 1, "run": "0123456789abcdef", "what": what });
            agent.say(event);
        };
        for n in 1..=5 {
            let iteration = json!({ "kind": "run_iteration", "iter": 250 + n, "loss": 2.0 / n as f64, "time_ms": 100.0,
                "tokens_per_second": 1000.0, "mfu_printed_percent": 18.5, "mfu_percent": 33.0 });
            happens(n, iteration);
        }
        until_says(page, "[data-testid=facts]", "255 of 5,000").await;
        until_says(page, "[data-testid=facts]", "33.0 %").await;
        until_says(page, "[data-testid=facts]", "0.4000").await;
        let config = "batch_size = 64\ngradient_accumulation_steps = 1\n";
        happens(6, json!({ "kind": "run_config", "config": config, "max_iters": 5000 }));
        let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of \
            11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of \
            the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";
        happens(7, json!({ "kind": "run_oom", "message": message }));
        happens(8, json!({ "kind": "run_status", "status": { "state": "exited", "code": 1 }, "energy_joules": 7.2e6 }));
        until_says(page, "[data-testid=oom]", "Tried to allocate 6.14 GiB").await;
        let diagnosis = json!({ "sentence": "It failed on logits.", "command": "python train.py --batch_size=8" });
        happens(9, json!({ "kind": "run_diagnosed", "diagnosis": diagnosis }));
        until_says(page, "[data-testid=diagnosis]", "It failed on logits.").await;
        until_says(page, "[data-testid=fix]", "--batch_size=8").await;
        until_says(page, "[data-testid=run-status]", "ran out of GPU memory").await;
        until_says(page, "[data-testid=facts]", "2.00 kWh").await;
        until_says(page, "[data-testid=facts]", "0.70 €").await;
        page.click("#oom-all").await;
        until_says(page, "[data-testid=explanation]", "logits (65536, 50304)").await;
        page.until("the run's config went along", "document.querySelector('[data-testid=agreement]')").await;
        page.until("there is a fix", "document.querySelector('[data-fix][data-fits=true]')").await;
    });
}

#[test]
fn plan_mismatch_is_reported_in_page_language() {
    rig("plan_mismatch_is_reported_in_page_language", async |page, agent| {
        open_paired(page).await;
        go(page, "rig?lang=de").await;
        until_says(page, "[data-testid=run-name]", "shakespeare-char").await;
        until_says(page, "[data-testid=facts]", "8,00 GiB vorhergesagt").await;
        let id = golden("hello.json")["last_event"].as_u64().expect("a number");
        let happens = |n: u64, what: Value| {
            let event = json!({ "type": "event", "id": id + n, "time_ms": 1, "run": "0123456789abcdef", "what": what });
            agent.say(event);
        };
        let contradiction = json!({ "figure": "parameters_millions", "printed": 162.19, "planned": 123.587 });
        happens(1, json!({ "kind": "run_unplanned", "contradiction": contradiction, "max_iters": null }));
        until_says(page, "[data-testid=unplanned]", "Keine Vorhersage").await;
        until_says(page, "[data-testid=unplanned]", "162,19").await;
        until_says(page, "[data-testid=unplanned]", "123,59").await;
        assert!(!page.text("[data-testid=facts]").await.contains("vorhergesagt"));
        happens(2, json!({ "kind": "run_oom", "message": "CUDA out of memory. Tried to allocate 6.14 GiB." }));
        let english = json!({ "sentence": "It failed on logits.", "change": "the same training" });
        happens(3, json!({ "kind": "run_diagnosed", "diagnosis": english }));
        until_says(page, "[data-testid=diagnosis][lang=en]", "It failed on logits.").await;
        let mut worded = english;
        worded["others"] = json!([
            { "language": "zh", "sentence": "它在 logits 上失败。" },
            { "language": "de", "sentence": "Er scheitert an logits.", "change": "gleiches Training" }
        ]);
        happens(4, json!({ "kind": "run_diagnosed", "diagnosis": worded }));
        until_says(page, "[data-testid=diagnosis][lang=de]", "Er scheitert an logits.gleiches Training").await;
    });
}

#[test]
fn a_gpu_opens_in_the_calculator_as_it_is_now() {
    rig("a_gpu_opens_in_the_calculator_as_it_is_now", async |page, agent| {
        open_paired(page).await;
        until_state(page, "Live").await;
        agent.say(telemetry(1, 50));
        agent.say(golden("slow.json"));
        until_says(page, "[data-testid=processes]", "python train.py").await;
        until_says(page, "[data-metric='1']", "50 %").await;
        // An ordinary link: a middle click opens the same page.
        let one = 1_u64 << 30;
        let leads = format!("document.querySelector('.gpu__plan').getAttribute('href').includes('&others={one}')");
        page.until("the link contains the GPU's state", &leads).await;
        page.click(".gpu__plan").await;
        page.until("the calculator answers", "document.querySelector('#verdict[data-fits]')").await;
        let fragment: String = page.value("location.hash").await;
        assert!(fragment.contains("gpu=GeForce%20RTX%204070"), "{fragment}");
        // 7 GiB are in use, of which the run on the GPU holds 6. A plan counts only the rest as other processes.
        assert!(fragment.contains(&format!("others={}", 1_u64 << 30)), "{fragment}");
    });
}

#[test]
fn alert_settings_require_permission() {
    rig("alert_settings_require_permission", async |page, agent| {
        open_paired(page).await;
        page.until("the stored rule is shown", "document.querySelector('#rule-temperature:checked:enabled')").await;
        page.click("#rule-failed").await;
        page.fill("#price", "x").await;
        page.click("#save").await;
        until_says(page, "#price-fault", "Invalid price").await;
        page.fill("#price", "0,4").await;
        page.click("#save").await;
        until_says(page, "[data-testid=kept]", "Saved").await;
        let saved = agent.requests("PUT /api/settings");
        let saved: Value = serde_json::from_str(&saved[0]).expect("JSON");
        assert_eq!(saved["price_per_kwh"], json!(0.4));
        let rules: Vec<&str> =
            saved["alerts"].as_array().expect("a list").iter().filter_map(|a| a["on"].as_str()).collect();
        assert_eq!(rules, ["temperature_above", "memory_above", "no_progress", "card_lost"]);
        let mut viewer = hello();
        viewer["scope"] = json!("view");
        agent.answer(vec![viewer]);
        go(page, "rig").await;
        page.until("the form is closed", "document.querySelector('#save')?.disabled").await;
    });
}

#[test]
fn history_is_looked_at_nearer_and_from_further() {
    rig("history_is_looked_at_nearer_and_from_further", async |page, agent| {
        let asked = |agent: &Agent| agent.requests("GET /api/history").len();
        open_paired(page).await;
        until_state(page, "Live").await;
        let span = |n: usize| format!("[data-testid=history] .rig-chart__choice--ranges button:nth-child({n})");
        let is_pressed = |n: usize, is: bool| format!("document.querySelector({:?})?.ariaPressed === '{is}'", span(n));
        page.until(
            "the history's status is shown",
            "document.querySelector('[data-testid=history-said]')?.textContent.length > 5",
        )
        .await;
        page.until("the hour is shown", &is_pressed(1, true)).await;
        let before = asked(agent);
        page.click(&span(2)).await;
        page.until("the day is shown", &is_pressed(2, true)).await;
        page.script("document.querySelector('[data-testid=history-plot]').focus()").await;
        page.press("+").await;
        page.until("keys zoom", &is_pressed(2, false)).await;
        let drag = "const plot = document.querySelector('[data-testid=history-plot]'), box = plot.getBoundingClientRect();
            const at = (kind, share) => plot.dispatchEvent(new PointerEvent(kind, { bubbles: true, isPrimary: true, pointerId: 1,
              pointerType: 'mouse', clientX: box.left + box.width * share, clientY: box.top + 5 }));
            at('pointerdown', 0.2); at('pointermove', 0.4); at('pointerup', 0.6);";
        page.script(drag).await;
        for _ in 0..3 {
            page.until(
                "the button to zoom out is enabled",
                &format!("!document.querySelector({:?}).disabled", span(4)),
            )
            .await;
            page.click(&span(4)).await;
        }
        page.until("it is the hour again", &is_pressed(1, true)).await;
        page.until("it cannot go further back", &format!("document.querySelector({:?}).disabled", span(4))).await;
        assert!(asked(agent) >= before + 2, "each range is requested");
    });
}

#[test]
fn the_rig_speaks_every_language() {
    rig("the_rig_speaks_every_language", async |page, agent| {
        agent.feed(true);
        open_paired(page).await;
        for language in &LANGUAGES {
            go(page, &format!("rig?lang={}", language.code)).await;
            until_state(page, table(language.code).word(text::RIG_LIVE)).await;
            agent.say(golden("slow.json"));
            page.until("processes are there", "document.querySelector('[data-testid=processes]')").await;
            let words: String = page.value("document.body.textContent").await;
            assert!(!words.contains(text::NOT_FETCHED), "{}: a text was not fetched", language.code);
            assert_eq!(page.value::<String>("document.title").await, table(language.code).word(text::TITLE_RIG));
        }
    });
}

#[test]
fn the_rig_is_accessible_and_no_wider_than_its_window() {
    let test = "the_rig_is_accessible_and_no_wider_than_its_window";
    let Some(axe) = named("axe", "HEADROOM_AXE") else { return };
    let axe = std::fs::read_to_string(axe).expect("axe-core's script");
    rig(test, async |page, agent| {
        let mut all = Vec::new();
        for state in ["unpaired", "live", "lost"] {
            match state {
                "unpaired" => go(page, "rig").await,
                _ => open_paired(page).await,
            }
            until_state(page, if state == "unpaired" { "Not paired" } else { "Live" }).await;
            if state != "unpaired" {
                agent.say(telemetry(1, 50));
                agent.say(golden("slow.json"));
                until_says(page, "[data-testid=processes]", "python train.py").await;
            }
            if state == "lost" {
                agent.say(golden("inventory.json"));
                page.until("it is drawn as lost", "document.querySelector('.gpu--lost')").await;
            }
            page.script(&axe).await;
            for (scheme, rules) in SCHEMES {
                page.prefer(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]).await;
                for size in [LAPTOP, PHONE, NARROW] {
                    page.resize(size).await;
                    let found = violations(page, rules).await;
                    all.extend(found.into_iter().map(|found| format!("{state}, {scheme}, {size:?}: {found}")));
                    let width: u32 = page.value("document.documentElement.scrollWidth").await;
                    assert!(width <= size.0, "{state}: {width} of {size:?}");
                    let aside = "[...document.querySelectorAll('.rig__scroll')].some((list) => list.scrollWidth > list.clientWidth)";
                    assert!(!page.value::<bool>(aside).await, "{state}: a list scrolls sideways at {size:?}");
                }
            }
            page.resize(LAPTOP).await;
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
        page.browser.console().await;
    });
}
