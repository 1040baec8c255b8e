//! The whole page without a mouse.

use crate::page::{Page, tell};
use fantoccini::key::Key;
use std::collections::BTreeSet;

/// JavaScript for the name of a focusable element.
const NAME: &str = "const name = (element) => element.id ? `#${element.id}`
    : element.type === 'radio' ? `radio ${element.name}`
    : `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;";

/// Returns the names of all controls, with one name for each group of radio buttons.
async fn controls(page: &Page) -> BTreeSet<String> {
    let script = format!(
        "{NAME} return [...document.querySelectorAll(
            'a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]
            .filter((element) => !element.disabled && element.checkVisibility())
            .map(name)"
    );
    serde_json::from_value(page.script(&script).await).expect("names")
}

async fn focused(page: &Page) -> String {
    let script = format!("{NAME} return name(document.activeElement)");
    serde_json::from_value(page.script(&script).await).expect("a name")
}

/// Presses Tab until this control has the focus.
async fn tab_to(page: &Page, wanted: &str) {
    for _ in 0..200 {
        if focused(page).await == wanted {
            return;
        }
        page.press(&Key::Tab).await;
    }
    panic!("200 times Tab, and never at {wanted}");
}

#[test]
fn tab_reaches_every_control() {
    tell("tab_reaches_every_control", async |page| {
        page.fill("#batch_size", "64").await;
        page.until("it fails", "document.querySelector('#verdict').dataset.fits === 'false'").await;
        page.value::<bool>("(document.querySelector('#more').open = true)").await;
        let mut before = controls(page).await;
        loop {
            assert!(before.len() > 40, "{before:?}");
            let reached = walk(page, &before).await;
            // Fixes arrive a moment after their plan and replace those that were listed.
            let after = controls(page).await;
            if after == before {
                let never: Vec<_> = before.difference(&reached).collect();
                assert!(never.is_empty(), "never reached: {never:?}");
                break;
            }
            before = after;
        }
    });
}

/// Whether the verdict, which stays at the top of a wide window, covers a part of the control with the focus.
const COVERED: &str = "(() => {
    const verdict = document.querySelector('.budget .verdict');
    const control = document.activeElement;
    if (!verdict || verdict.contains(control) || control === document.body) return false;
    const [over, box] = [verdict, control].map((element) => element.getBoundingClientRect());
    return box.top < over.bottom - 1 && box.bottom > over.top && box.left < over.right && box.right > over.left;
})()";

/// Returns every control that Tab reaches in two rounds.
async fn walk(page: &Page, controls: &BTreeSet<String>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    page.script("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)").await;
    tab_to(page, &focused_first(controls)).await;
    for _ in 0..controls.len() * 2 {
        let now = focused(page).await;
        // The focus is visible.
        let shows: bool = page
            .value("document.activeElement === document.body || document.activeElement.matches(':focus-visible')")
            .await;
        assert!(shows, "{now} does not show its focus");
        assert!(!page.value::<bool>(COVERED).await, "the verdict covers {now}");
        reached.insert(now);
        page.press(&Key::Tab).await;
    }
    reached
}

/// Returns the first control of the walk. The walk is circular, so any control would do.
fn focused_first(controls: &BTreeSet<String>) -> String {
    controls.get("#gpu").expect("the GPU is a control").clone()
}

#[test]
fn a_run_is_planned_with_keys_alone() {
    tell("a_run_is_planned_with_keys_alone", async |page| {
        tab_to(page, "#gpu").await;
        page.press("3060").await;
        page.until("the list is open", "document.querySelector('#gpu').ariaExpanded === 'true'").await;
        let listed: u64 = page.value("document.querySelectorAll('#gpu-list [role=option]').length").await;
        assert!(listed >= 1);
        page.press(&format!("{}{}", Key::Down, Key::Up)).await;
        page.press(&Key::Enter).await;
        page.until("the list is closed", "document.querySelector('#gpu').ariaExpanded === 'false'").await;
        assert!(page.value::<String>("document.querySelector('#gpu').value").await.contains("3060"));

        tab_to(page, "#batch_size-range").await;
        let left = page.numbers().await.headroom_bytes;
        page.press(&Key::Right).await;
        page.until("the slider moves", "document.querySelector('#batch_size').value === '13'").await;
        let less = page.numbers().await.headroom_bytes;
        assert!(less < left, "one more sequence takes room: {left} and {less}");
        tab_to(page, "#batch_size").await;
        page.press(&Key::Down).await;
        page.until("the field moves", "document.querySelector('#batch_size-range').value === '12'").await;
        assert_eq!(page.numbers().await.headroom_bytes, left);

        // Compiled code has no blocks left to recompute.
        tab_to(page, "#compile").await;
        page.press(" ").await;
        page.until("it is off", "!document.querySelector('#compile').checked").await;
        let left = page.numbers().await.headroom_bytes;

        tab_to(page, "SUMMARY More").await;
        page.press(&Key::Enter).await;
        page.until("it opens", "document.querySelector('#more').open").await;
        tab_to(page, "#activation_checkpointing").await;
        page.press(" ").await;
        page.until("it is on", "document.querySelector('#activation_checkpointing').checked").await;
        assert!(page.numbers().await.headroom_bytes > left, "checkpointing leaves more");

        tab_to(page, "#chart").await;
        let at = "Number(document.querySelector('#chart').ariaValueNow)";
        let (first, before): (i64, _) = (page.value(at).await, page.numbers().await.tensors);
        page.press(&Key::Home).await;
        page.until("the start is shown", &format!("{at} === 0")).await;
        page.press(&format!("{}{}", Key::Right, Key::Right)).await;
        page.until("two steps on", &format!("{at} === 2")).await;
        assert_ne!(page.numbers().await.tensors, before, "another moment, other tensors");
        // The column stays pinned when the focus leaves, until Escape releases it.
        page.press(&Key::Tab).await;
        page.until("it is kept", &format!("{at} === 2")).await;
        tab_to(page, "#chart").await;
        page.press(&Key::Escape).await;
        page.until("the first moment is back", &format!("{at} === {first}")).await;
        assert_eq!(page.numbers().await.tensors, before);
    });
}
