//! Sizes of touch targets. At one-handed width each control meets WCAG 2.2.

use crate::{
    agent::{golden, hello, telemetry},
    page::{Page, Size, tell},
    rig::{open_paired, rig, until_says, until_state},
};
use serde::Deserialize;
use serde_json::json;

/// Viewport of one-handed use, in CSS pixels.
const NARROW: Size = (360, 740);
/// Minimum width and height in CSS pixels by WCAG 2.2, success criterion 2.5.8.
const LEAST_PX: f64 = 24.0;
/// Comfortable height in CSS pixels of buttons and fields, by success criterion 2.5.5.
const FINGER_PX: f64 = 44.0;

/// An element that can be touched.
#[derive(Debug, Deserialize)]
struct Target {
    /// The element's tag, name and text.
    name: String,
    width: f64,
    height: f64,
    /// Whether the element looks like a button or a field.
    is_control: bool,
}

/// All visible targets. An element's box includes its label's box if the label surrounds or replaces it. Elements that
/// only the keyboard brings on screen do not count. A link within a sentence is as high as its line.
const TARGETS: &str =
    "[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [role=slider]')]
    .filter((element) => element.getClientRects().length > 0 && !element.classList.contains('header__skip'))
    .filter((element) => {
        const words = [...element.parentElement.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
        const isSentence = words.some((node) => node.textContent.trim().length > 1);
        return !(getComputedStyle(element).display === 'inline' && isSentence);
    })
    .map((element) => {
        const boxes = [element, ...(element.labels ?? [])].map((each) => each.getBoundingClientRect());
        const most = (side) => Math.max(...boxes.map((box) => box[side]));
        return {
            name: `${element.tagName} ${element.id} ${element.className} ${element.textContent.trim().slice(0, 30)}`,
            width: most('width'),
            height: most('height'),
            is_control: element.matches('main :is(.button:not(.button--quiet), .input, .rig-chart__button)'),
        };
    })";

/// Checks that no target is too small, and that there are at least `n_least` targets.
async fn assert_can_be_hit(page: &Page, n_least: usize, control_px: f64) {
    page.script("for (const details of document.querySelectorAll('details')) details.open = true").await;
    let targets: Vec<Target> = page.value(TARGETS).await;
    assert!(targets.len() >= n_least, "only {} are there", targets.len());
    let is_small = |target: &&Target| {
        let least_px = if target.is_control { control_px } else { LEAST_PX };
        // Half a pixel is permitted for rounding.
        target.width < LEAST_PX - 0.5 || target.height < least_px - 0.5
    };
    let small: Vec<&Target> = targets.iter().filter(is_small).collect();
    assert!(small.is_empty(), "too small: {small:#?}");
}

#[test]
fn a_finger_hits_each_control_of_the_rig() {
    rig("a_finger_hits_each_control_of_the_rig", async |page, agent| {
        let mut greeting = hello();
        let mut queued = greeting["runs"][0].clone();
        (queued["id"], queued["name"], queued["status"]) = (json!("b1"), json!("waits"), json!({ "state": "queued" }));
        queued["order"] = json!({ "config": "tiny" });
        greeting["runs"].as_array_mut().expect("a list").push(queued);
        agent.answer(vec![greeting]);
        open_paired(page).await;
        until_state(page, "Live").await;
        agent.say(telemetry(1, 50));
        agent.say(golden("slow.json"));
        until_says(page, "[data-testid=processes]", "python train.py").await;
        until_says(page, "[data-testid=queue]", "waits").await;
        page.resize(NARROW).await;
        page.script("document.querySelector('.neighbours').open = true").await;
        page.fill("#address", "rig2:8420").await;
        page.click(".neighbours__form button").await;
        page.until("it is kept", "document.querySelector('.neighbours__list a')").await;
        assert_can_be_hit(page, 30, FINGER_PX).await;
        // The check detects a small target.
        page.script("document.querySelector('#save').style.cssText = 'height: 20px; min-height: 0'").await;
        let targets: Vec<Target> = page.value(TARGETS).await;
        assert!(targets.iter().any(|target| target.name.contains("save") && target.height < LEAST_PX));
    });
}

#[test]
fn a_finger_hits_each_control_of_the_calculator() {
    tell("a_finger_hits_each_control_of_the_calculator", async |page| {
        page.open("1&batch_size=64&gpu=RTX%204070").await;
        page.resize(NARROW).await;
        // The sizes for touch depend on a touch screen, and not on the width.
        assert_can_be_hit(page, 30, LEAST_PX).await;
    });
}
