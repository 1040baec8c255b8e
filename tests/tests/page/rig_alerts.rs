//! Alerts on the rig's page, and settings that another device changes at the same time.

use crate::{
    agent::{golden, hello},
    page::PHONE,
    rig::{go, open_paired, rig, until_says, until_state},
};
use fantoccini::key::Key;
use serde_json::{Value, json};

const N_FIRED: &str = "document.querySelectorAll('[data-testid=fired] li').length";

fn number() -> u64 {
    golden("hello.json")["last_event"].as_u64().expect("a number")
}

#[test]
fn an_alert_from_before_the_page_is_shown_and_dismissed_for_all() {
    rig("an_alert_from_before_the_page_is_shown_and_dismissed_for_all", async |page, agent| {
        open_paired(page).await;
        until_says(page, "[data-testid=fired]", "hotter than 85").await;
        until_says(page, "[data-testid=fired]", "failed").await;
        page.resize(PHONE).await;
        let width: u32 = page.value("document.documentElement.scrollWidth").await;
        assert!(width <= PHONE.0, "{width}");
        page.script("document.querySelector('#dismiss-9').focus()").await;
        page.press(&Key::Enter).await;
        let asked = "performance.getEntriesByType('resource').some((entry) => entry.name.endsWith('/api/alerts/9'))";
        page.until("the request reaches the agent", asked).await;
        let alert = json!({ "on": "run_failed" });
        let what = json!({ "kind": "alert_dismissed", "alert": alert, "gpu": null });
        let event =
            json!({ "type": "event", "id": number() + 1, "time_ms": 1, "run": "fedcba9876543210", "what": what });
        agent.say(event);
        page.until("one is left", &format!("{N_FIRED} === 1")).await;
        page.until("the keyboard goes on", "document.activeElement.id === 'dismiss-11'").await;
        assert_eq!(agent.requests("DELETE /api/alerts/9").len(), 1);
        // A page gets the active alerts from the `hello` alone.
        let (mut viewer, left) = (hello(), golden("hello.json")["alerts"][0].clone());
        (viewer["scope"], viewer["alerts"]) = (json!("view"), json!([left]));
        let lost = json!({ "id": 3, "time_ms": 1, "what": { "kind": "card_lost", "gpu": left["gpu"] } });
        let past = json!({ "type": "past", "telemetry": [], "events": [lost], "done": true, "from_ms": 0 });
        agent.answer(vec![viewer, past]);
        go(page, "rig").await;
        until_state(page, "Live").await;
        page.until("it is there", &format!("{N_FIRED} === 1")).await;
        assert!(!page.value::<bool>("Boolean(document.querySelector('[data-testid=fired] button'))").await);
        until_says(page, "[data-testid=log]", "stopped responding").await;
    });
}

#[test]
fn conflicting_settings_are_offered_for_choice() {
    rig("conflicting_settings_are_offered_for_choice", async |page, agent| {
        let alerts = |settings: &Value| settings["alerts"].as_array().expect("a list").len();
        open_paired(page).await;
        page.until("the stored rule is shown", "document.querySelector('#rule-temperature:checked:enabled')").await;
        // A page without changes of its own follows the other device.
        let mut theirs = agent.settings();
        theirs["alerts"] =
            json!([{ "on": "temperature_above", "celsius": 70 }, { "on": "temperature_above", "celsius": 90 }]);
        agent.set_elsewhere(number() + 1, theirs.clone());
        page.until(
            "both bounds are there",
            "document.querySelectorAll('[id^=rule-temperature-number][type=number]').length === 2",
        )
        .await;
        page.until(
            "the first rule comes from the other device",
            "document.querySelector('#rule-temperature-number').value === '70'",
        )
        .await;
        // A change here, and one on the other device meanwhile.
        page.click("#rule-temperature-add").await;
        page.click("#rule-lost").await;
        theirs["price_per_kwh"] = json!(0.5);
        agent.set_elsewhere(number() + 2, theirs.clone());
        until_says(page, "[data-testid=conflict]", "changed elsewhere").await;
        page.click("#save").await;
        assert_eq!(agent.settings(), theirs, "the other page's settings are kept");
        page.click("#keep-mine").await;
        until_says(page, "[data-testid=kept]", "Saved").await;
        page.until("the question is gone", "!document.querySelector('[data-testid=conflict]')").await;
        assert_eq!(alerts(&agent.settings()), 4, "{}", agent.settings());
        // The same conflict, resolved the other way.
        page.click("#rule-temperature-number-remove").await;
        page.fill("#price", "9").await;
        agent.set_elsewhere(number() + 3, theirs.clone());
        until_says(page, "[data-testid=conflict]", "changed elsewhere").await;
        page.click("#take-theirs").await;
        page.until("the other device's price is shown", "document.querySelector('#price').value === '0.5'").await;
        page.click("#save").await;
        until_says(page, "[data-testid=kept]", "Saved").await;
        assert_eq!(alerts(&agent.settings()), 2, "{}", agent.settings());
        page.browser.console().await;
    });
}
