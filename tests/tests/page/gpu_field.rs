//! The GPU's field: its list, what it finds, and what it does with a text that names no GPU.

use crate::page::{Page, tell};
use std::collections::BTreeSet;
use thirtyfour::Key;

const GPU: &str = "document.querySelector('#gpu')";

async fn field(page: &Page) -> String {
    page.value(&format!("{GPU}.value")).await
}

/// Names in the open list.
async fn listed(page: &Page) -> Vec<String> {
    page.value(
        "[...document.querySelectorAll('#gpu-list .combobox__choice > span:first-child')].map((o) => o.textContent)",
    )
    .await
}

#[test]
fn enter_keeps_the_gpu_that_is_there() {
    tell("enter_keeps_the_gpu_that_is_there", async |page| {
        let left = page.numbers().await.headroom_bytes;
        page.click("#gpu").await;
        page.until("the list is open", &format!("{GPU}.ariaExpanded === 'true'")).await;
        let current = "document.querySelector('#gpu-list [aria-selected=true]').firstElementChild.textContent";
        assert_eq!(page.value::<String>(current).await, "GeForce RTX 4070");
        page.press(Key::Enter).await;
        page.until("the list is closed", &format!("{GPU}.ariaExpanded === 'false'")).await;
        assert_eq!(field(page).await, "GeForce RTX 4070");
        assert_eq!(page.numbers().await.headroom_bytes, left);
    });
}

#[test]
fn a_size_lists_every_gpu_of_that_size() {
    tell("a_size_lists_every_gpu_of_that_size", async |page| {
        page.click("#gpu").await;
        page.until("all are listed", "document.querySelectorAll('#gpu-list .combobox__choice').length > 100").await;
        let of_12 = "[...document.querySelectorAll('#gpu-list .combobox__choice')]
            .filter((o) => o.lastElementChild.textContent.startsWith('12 GB')).map((o) => o.firstElementChild.textContent)";
        let of_12: BTreeSet<String> = page.value(of_12).await;
        assert!(of_12.len() >= 13 && of_12.contains("GeForce RTX 4070 SUPER"), "{of_12:?}");
        for typed in ["12 GB", "12GB"] {
            page.fill("#gpu", typed).await;
            page.until("the list narrows", "document.querySelectorAll('#gpu-list .combobox__choice').length < 40")
                .await;
            let mut found = listed(page).await;
            // The last row takes the size itself.
            assert_eq!(found.pop().as_deref(), Some(&*format!("Another GPU with {typed}")));
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), of_12, "{typed}");
        }
        for (typed, name) in
            [("24", "GeForce RTX 4090"), ("rtx3060", "GeForce RTX 3060 12GB"), ("4070ti", "GeForce RTX 4070 Ti")]
        {
            page.fill("#gpu", typed).await;
            let has = format!(
                "[...document.querySelectorAll('#gpu-list .combobox__choice')].some((o) => o.firstElementChild.textContent === {name:?})"
            );
            page.until("it is listed", &has).await;
        }
        // While a person types, nothing is planned.
        assert!(page.text("#verdict-detail").await.contains("RTX 4070;"), "{}", page.text("#verdict-detail").await);
        page.press(Key::Escape).await;
        assert_eq!(field(page).await, "RTX 4070");
    });
}

#[test]
fn a_name_of_no_gpu_is_marked_and_has_no_verdict() {
    tell("a_name_of_no_gpu_is_marked_and_has_no_verdict", async |page| {
        let no_verdict = "document.querySelector('.verdict').dataset.outcome === 'none'";
        // What Enter and what Tab make of it.
        for leave in [Key::Enter, Key::Tab] {
            page.fill("#gpu", "foobar").await;
            assert!(page.text("#gpu-list").await.starts_with("No matching GPU."));
            page.press(leave).await;
            page.until("the field is marked", &format!("{GPU}.ariaInvalid === 'true'")).await;
            page.until("there is no verdict", no_verdict).await;
            let said = page.text("#gpu-fault").await;
            assert!(said.contains("foobar"), "{said}");
            assert_eq!(page.value::<String>(&format!("{GPU}.getAttribute('aria-describedby')")).await, "gpu-fault");
            page.choose_card("GeForce RTX 3060 12GB").await;
            page.until("there is a verdict", "document.querySelector('#verdict[data-fits]')").await;
            assert!(page.value::<bool>(&format!("!{GPU}.ariaInvalid")).await);
        }
        // A size that is half typed is planned by nobody, and a whole one as soon as it is taken.
        page.fill("#gpu", "8 GiB").await;
        assert!(page.text("#verdict-detail").await.contains("RTX 3060"));
        page.press(Key::Enter).await;
        page.until("the size is planned", "document.querySelector('.figures').textContent.includes('8.00 GiB')").await;
        page.fill("#gpu", "").await;
        page.press(Key::Tab).await;
        page.until("an emptied field goes back", &format!("{GPU}.value === '8GiB'")).await;
    });
}

#[test]
fn the_gpu_is_remembered_and_a_links_gpu_wins() {
    tell("the_gpu_is_remembered_and_a_links_gpu_wins", async |page| {
        let kept = "localStorage.getItem('headroom.gpu')";
        page.open("1&gpu=L4").await;
        assert!(page.value::<bool>(&format!("{kept} === null")).await, "a link's GPU is nobody's choice");
        page.choose_card("GeForce RTX 3090").await;
        page.until("it is kept", &format!("{kept} === 'GeForce RTX 3090'")).await;
        for (fragment, gpu) in [("", "GeForce RTX 3090"), ("1&batch_size=4", "GeForce RTX 3090"), ("1&gpu=L4", "L4")] {
            page.browser.driver.goto("about:blank").await.expect("a page");
            page.open(fragment).await;
            assert_eq!(field(page).await, gpu, "{fragment}");
        }
        assert!(page.value::<bool>(&format!("{kept} === 'GeForce RTX 3090'")).await);
    });
}

#[test]
fn the_heads_slider_moves_one_way() {
    tell("the_heads_slider_moves_one_way", async |page| {
        // As a browser reports a thumb that is dragged from left to right.
        let mut heads = Vec::new();
        for raw in 8..=32 {
            page.script(&format!(
                "const slider = document.querySelector('#n_head-range'); slider.value = {raw};
                 slider.dispatchEvent(new Event('input', {{ bubbles: true }}))"
            ))
            .await;
            page.promise("{ await new Promise((r) => requestAnimationFrame(r)) }").await;
            heads.push(
                page.value::<String>("document.querySelector('#n_head').value").await.parse::<u64>().expect("a count"),
            );
        }
        assert!(heads.is_sorted() && heads.contains(&8) && heads.contains(&32), "{heads:?}");
        // Keys go from divisor to divisor.
        page.fill("#n_head", "12").await;
        page.script("document.querySelector('#n_head-range').focus()").await;
        page.press(Key::Right).await;
        page.until("the next divisor", "document.querySelector('#n_head').value === '16'").await;
        page.press(Key::Left + Key::Left).await;
        page.until("two back", "document.querySelector('#n_head').value === '8'").await;
    });
}
