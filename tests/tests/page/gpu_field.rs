//! The GPU field: its list, its search, and a text that names no GPU.

use crate::page::{Page, tell, tell_unopened};
use fantoccini::key::Key;
use std::collections::BTreeSet;

const GPU: &str = "document.querySelector('#gpu')";

async fn field(page: &Page) -> String {
    page.value(&format!("{GPU}.value")).await
}

/// Returns the names in the open list.
async fn listed(page: &Page) -> Vec<String> {
    page.value(
        "[...document.querySelectorAll('#gpu-list .combobox__choice > span:first-child')].map((o) => o.textContent)",
    )
    .await
}

#[test]
fn enter_keeps_the_gpu_that_is_there() {
    tell("enter_keeps_the_gpu_that_is_there", async |page| {
        let (left, before) = (page.numbers().await.headroom_bytes, field(page).await);
        page.click("#gpu").await;
        page.until("the list is open", &format!("{GPU}.ariaExpanded === 'true'")).await;
        let current = "document.querySelector('#gpu-list [aria-selected=true]').firstElementChild.textContent";
        assert_eq!(page.value::<String>(current).await, "GeForce RTX 4070");
        page.press(&Key::Enter).await;
        page.until("the list is closed", &format!("{GPU}.ariaExpanded === 'false'")).await;
        assert_eq!(field(page).await, before);
        assert_eq!(page.numbers().await.headroom_bytes, left);
    });
}

#[test]
fn a_size_lists_every_gpu_of_that_size() {
    tell("a_size_lists_every_gpu_of_that_size", async |page| {
        page.click("#gpu").await;
        page.until("all are listed", "document.querySelectorAll('#gpu-list .combobox__choice').length > 100").await;
        for (typed, name) in [
            ("12 GB", "GeForce RTX 4070 SUPER"),
            ("12GB", "GeForce RTX 5070"),
            ("24", "GeForce RTX 4090"),
            ("rtx3060", "GeForce RTX 3060 12GB"),
            ("4070ti", "GeForce RTX 4070 Ti"),
        ] {
            page.fill("#gpu", typed).await;
            let names = "[...document.querySelectorAll('#gpu-list .combobox__choice')].map((o) => o.firstElementChild.textContent).join(';')";
            page.until_says(&format!("`;${{{names}}};`"), &format!(";{name};")).await;
        }
        page.fill("#gpu", "x").await;
        page.press(&Key::Backspace).await;
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
            // The last row uses the size itself.
            assert_eq!(found.pop().as_deref(), Some(&*format!("Another GPU with {typed}")));
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), of_12, "{typed}");
        }
        // There is no verdict while the user types.
        assert_eq!(page.text("#verdict").await, "No plan yet: choose a GPU");
        page.press(&Key::Escape).await;
        assert_eq!(field(page).await, "RTX 4070");
        assert!(page.text("#verdict-detail").await.contains("RTX 4070;"), "{}", page.text("#verdict-detail").await);
    });
}

const NO_VERDICT: &str = "document.querySelector('.verdict').dataset.outcome === 'none'";

#[test]
fn a_name_of_no_gpu_is_marked_and_has_no_verdict() {
    tell("a_name_of_no_gpu_is_marked_and_has_no_verdict", async |page| {
        // Enter and Tab leave an invalid text in the same way.
        for leave in [Key::Enter, Key::Tab] {
            page.choose_gpu("GeForce RTX 3060 12GB").await;
            page.fill("#gpu", "foobar").await;
            // The verdict of the previous GPU disappears before the field is left, also for a screen reader.
            page.until_says("document.querySelector('#verdict').textContent", "No plan yet").await;
            page.until("the field is marked", &format!("{GPU}.ariaInvalid === 'true'")).await;
            page.until("there is no verdict", NO_VERDICT).await;
            assert!(page.text("#gpu-list").await.starts_with("No matching GPU."));
            assert_eq!(page.text("#verdict").await, "No plan yet: choose a GPU");
            let heard = "document.querySelector('p.visually-hidden[role=status]').textContent";
            page.until("it is announced", &format!("{heard}.startsWith('No plan yet')")).await;
            page.press(&leave).await;
            page.until("the field is marked", &format!("{GPU}.ariaInvalid === 'true'")).await;
            page.until("there is no verdict", NO_VERDICT).await;
            assert_eq!(field(page).await, "foobar");
            assert!(page.text("#gpu-fault").await.starts_with("No matching GPU."));
            assert_eq!(page.value::<String>(&format!("{GPU}.getAttribute('aria-describedby')")).await, "gpu-fault");
            // Clearing the field leaves it empty, and a GPU is back once it is left.
            page.click("#gpu").await;
            page.press_with_control('a').await;
            page.press(&Key::Backspace).await;
            page.until("the field is empty", &format!("{GPU}.value === '' && !{GPU}.placeholder")).await;
            assert!(page.value::<bool>(NO_VERDICT).await);
            page.press(&Key::Tab).await;
            page.until("there is a verdict", "document.querySelector('#verdict[data-fits]')").await;
            assert_eq!(field(page).await, "GeForce RTX 3060 12GB");
            assert!(page.value::<bool>(&format!("!{GPU}.ariaInvalid")).await);
        }
    });
}

/// A link may name a GPU that the table lacks.
#[test]
fn unknown_gpu_of_a_link_is_named_once_and_can_be_cleared() {
    tell_unopened("unknown_gpu_of_a_link_is_named_once_and_can_be_cleared", async |page| {
        page.goto(&format!("{}calculator.html?fresh#1&gpu=foobar", page.address)).await;
        page.until("the field is marked", &format!("{GPU}?.ariaInvalid === 'true'")).await;
        let count = "document.body.innerText.split('foobar').length - 1";
        assert_eq!(page.value::<u64>(count).await, 1);
        assert!(page.text("#gpu-fault").await.contains("unknown GPU \"foobar\""));
        for leave in [Key::Enter, Key::Tab] {
            page.click("#gpu").await;
            page.press_with_control('a').await;
            page.press(&Key::Backspace).await;
            page.press(&leave).await;
            assert_eq!(field(page).await, "");
            assert!(page.value::<bool>(NO_VERDICT).await);
        }
        page.choose_gpu("GeForce RTX 4070").await;
        page.until("there is a verdict", "document.querySelector('#verdict[data-fits]')").await;
    });
}

#[test]
fn ambiguous_text_selects_no_gpu() {
    tell("ambiguous_text_selects_no_gpu", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        page.until("the address follows", "location.hash.includes('4070')").await;
        let address: String = page.value("location.hash").await;
        for typed in ["rtx 30", "12 GB", "24", "kaggle"] {
            for leave in [Key::Enter, Key::Tab] {
                page.fill("#gpu", typed).await;
                page.until("GPUs are listed", "document.querySelectorAll('#gpu-list .combobox__choice').length > 1")
                    .await;
                let highlighted = "document.querySelector('#gpu-list [aria-selected=true]')";
                assert!(page.value::<bool>(&format!("{highlighted} === null")).await, "{typed}");
                assert!(page.value::<bool>(&format!("!{GPU}.ariaInvalid")).await, "{typed}");
                page.press(&leave).await;
                page.until("the field is marked", &format!("{GPU}.ariaInvalid === 'true'")).await;
                assert_eq!(page.text("#gpu-fault").await, "Several GPUs match. Choose one from the list.");
                assert_eq!(page.text("#verdict").await, "No plan yet: choose a GPU");
                assert_eq!(page.text("#verdict-detail").await, "In the GPU field, Escape restores GeForce RTX 4070.");
                assert_eq!(
                    (field(page).await.as_str(), page.value::<String>("location.hash").await),
                    (typed, address.clone())
                );
                page.script("document.querySelector('#gpu').focus()").await;
                page.press(&Key::Escape).await;
                page.until("the GPU is back", &format!("{GPU}.value === 'GeForce RTX 4070'")).await;
                page.until("there is a verdict", "document.querySelector('#verdict[data-fits]')").await;
            }
        }
        // A row that the arrow keys reached is a choice.
        page.fill("#gpu", "rtx 30").await;
        let first = listed(page).await.remove(0);
        page.press(&format!("{}{}", Key::Down, Key::Tab)).await;
        page.until("it is chosen", &format!("{GPU}.value === {first:?}")).await;
        page.until("there is a verdict", "document.querySelector('#verdict[data-fits]')").await;
    });
}

#[test]
fn sizes_are_accepted_with_decimal_point_and_comma() {
    tell("sizes_are_accepted_with_decimal_point_and_comma", async |page| {
        for (typed, shown) in [
            ("12,5 GiB", "12.50 GiB"),
            ("12.5", "12.50 GiB"),
            ("12,5", "12.50 GiB"),
            ("12,5 GB", "11.64 GiB"),
            ("8 GiB", "8.00 GiB"),
        ] {
            for leave in [Key::Enter, Key::Tab] {
                page.choose_gpu("GeForce RTX 4070").await;
                page.fill("#gpu", typed).await;
                assert_eq!(page.text("#verdict").await, "No plan yet: choose a GPU");
                assert!(page.text("#verdict-detail").await.starts_with(&format!("Press Enter for {typed}")), "{typed}");
                page.press(&leave).await;
                let has = format!("document.querySelector('.figures').textContent.includes('{shown}')");
                page.until("the size is planned", &has).await;
            }
        }
    });
}

#[test]
fn typed_gpu_disables_what_belongs_to_the_previous_one() {
    tell("typed_gpu_disables_what_belongs_to_the_previous_one", async |page| {
        const COPIES: [&str; 5] = ["copy-link", "copy-card", "export", "copy-command", "copy-train"];
        page.open("1&batch_size=64&gpu=RTX%204070").await;
        page.until("fixes are offered", "document.querySelector('.fixes:not(.stale) .fixes__fix button')").await;
        let text: String = page.value("document.querySelector('#config').value").await;
        for typed in ["309", "foobar"] {
            page.fill("#gpu", typed).await;
            page.until("there is no verdict", "document.querySelector('.verdict').dataset.outcome === 'none'").await;
            for id in COPIES {
                assert!(page.value::<bool>(&format!("document.querySelector('#{id}').disabled")).await, "{id}");
            }
            assert!(page.value::<bool>("document.querySelector('#fixes').inert").await);
            page.script("document.querySelector('.fixes__fix button').click()").await;
            assert_eq!(page.value::<String>("document.querySelector('#config').value").await, text);
            let said: String = page.value("document.querySelector('.chart').textContent").await;
            assert!(said.contains("Showing the plan for the previous GPU"), "{said}");
            page.press(&Key::Escape).await;
            page.until("there is a verdict", "document.querySelector('#verdict[data-fits]')").await;
            assert!(page.value::<bool>("!document.querySelector('#fixes').inert").await);
            assert!(page.value::<bool>("!document.querySelector('#copy-card').disabled").await);
        }
    });
}

#[test]
fn memory_beside_the_gpu_takes_no_click() {
    tell("memory_beside_the_gpu_takes_no_click", async |page| {
        let hit = "(() => { const box = document.querySelector('#gpu').getBoundingClientRect();
            return [0.02, 0.5, 0.8, 0.98].every((x) => document.elementFromPoint(box.left + x * box.width,
                box.top + box.height / 2).id === 'gpu') })()";
        assert!(page.value::<bool>(hit).await);
        for name in ["RTX PRO 6000 Blackwell Server Edition", "GeForce RTX 4070"] {
            page.choose_gpu(name).await;
            let whole = "(() => { const field = document.querySelector('#gpu'); return field.scrollWidth <= field.clientWidth })()";
            page.until("the name is shown whole", whole).await;
        }
    });
}

#[test]
fn tab_and_enter_accept_the_same_gpu() {
    tell("tab_and_enter_accept_the_same_gpu", async |page| {
        for (typed, name) in [("rtx3060", "GeForce RTX 3060 12GB"), ("g5", "A10G"), ("4070ti", "GeForce RTX 4070 Ti")] {
            for leave in [Key::Enter, Key::Tab] {
                page.choose_gpu("GeForce RTX 4070").await;
                page.fill("#gpu", typed).await;
                page.press(&leave).await;
                page.until("it is chosen", &format!("{GPU}.value === {name:?} && {GPU}.ariaExpanded === 'false'"))
                    .await;
            }
        }
    });
}

#[test]
fn emptied_field_keeps_the_gpu() {
    tell("emptied_field_keeps_the_gpu", async |page| {
        page.choose_gpu("GeForce RTX 4070").await;
        for leave in [Key::Enter, Key::Tab, Key::Escape] {
            page.fill("#gpu", "x").await;
            page.press(&Key::Backspace).await;
            page.until("all are listed", "document.querySelectorAll('#gpu-list .combobox__choice').length > 100").await;
            let current = "document.querySelector('#gpu-list [aria-selected=true]').firstElementChild.textContent";
            assert_eq!(page.value::<String>(current).await, "GeForce RTX 4070");
            assert!(page.value::<bool>(NO_VERDICT).await, "an empty field has no verdict");
            page.press(&leave).await;
            page.until("the GPU is kept", &format!("{GPU}.value === 'GeForce RTX 4070'")).await;
            assert!(page.text("#verdict-detail").await.contains("RTX 4070"));
        }
    });
}

#[test]
fn list_is_grouped_and_knows_clouds() {
    tell("list_is_grouped_and_knows_clouds", async |page| {
        page.click("#gpu").await;
        page.until("it is open", "document.querySelectorAll('#gpu-list [role=group]').length === 5").await;
        let groups: Vec<String> =
            page.value("[...document.querySelectorAll('#gpu-list [role=group]')].map((g) => g.ariaLabel)").await;
        assert_eq!(groups, ["GeForce", "GeForce, laptop", "Workstation", "Data center", "Notebooks and clouds"]);
        page.fill("#gpu", "kaggle").await;
        page.until("two are found", "document.querySelectorAll('#gpu-list [role=option]').length === 3").await;
        let rows: Vec<String> = page
            .value("[...document.querySelectorAll('#gpu-list [role=option]')].map((o) => o.textContent.trim())")
            .await;
        assert!(rows[1].contains("Kaggle T4 x2") && rows[1].contains("2 × Tesla T4; a plan is for one"), "{rows:?}");
        assert!(rows[2].contains("Kaggle P100"), "{rows:?}");
        page.press(&format!("{}{}", Key::Down, Key::Enter)).await;
        page.until("it is taken", &format!("{GPU}.value === 'Tesla T4'")).await;
    });
}

#[test]
fn the_gpu_is_remembered_and_a_links_gpu_wins() {
    tell("the_gpu_is_remembered_and_a_links_gpu_wins", async |page| {
        let kept = "localStorage.getItem('headroom.gpu')";
        page.open("1&gpu=L4").await;
        assert!(
            page.value::<bool>(&format!("{kept} === null")).await,
            "a link's GPU is not stored as the user's choice"
        );
        page.choose_gpu("GeForce RTX 3090").await;
        page.until("it is kept", &format!("{kept} === 'GeForce RTX 3090'")).await;
        for (fragment, gpu) in [("", "GeForce RTX 3090"), ("1&batch_size=4", "GeForce RTX 3090"), ("1&gpu=L4", "L4")] {
            page.goto("about:blank").await;
            page.open(fragment).await;
            assert_eq!(field(page).await, gpu, "{fragment}");
        }
        assert!(page.value::<bool>(&format!("{kept} === 'GeForce RTX 3090'")).await);
    });
}

#[test]
fn thumbs_stay_where_the_pointer_puts_them() {
    tell("thumbs_stay_where_the_pointer_puts_them", async |page| {
        for (key, values) in [("n_head", "1 2 3 4 6 8 12 16 24 32"), ("n_embd", "96 192 288 384 480 576 672 768")] {
            page.fill("#n_embd", "768").await;
            page.fill("#n_head", "12").await;
            let slider = format!("document.querySelector('#{key}-range')");
            page.script(&format!("{slider}.focus()")).await;
            let last: u64 = page.value(&format!("Math.round(({slider}.max - {slider}.min) / {slider}.step)")).await;
            let (mut seen, mut said) = (Vec::new(), Vec::new());
            // The input events of a thumb that is dragged from left to right.
            for step in 0..=last {
                page.script(&format!(
                    "const slider = {slider}; slider.value = Number(slider.min) + {step} * slider.step;
                     slider.dispatchEvent(new Event('input', {{ bubbles: true }}))"
                ))
                .await;
                page.promise("{ await new Promise((r) => requestAnimationFrame(r)) }").await;
                let thumb = format!("Math.round(({slider}.value - {slider}.min) / {slider}.step)");
                assert_eq!(page.value::<u64>(&thumb).await, step, "{key}: the thumb stays");
                seen.push(page.value::<String>(&format!("document.querySelector('#{key}').value")).await);
                said.push(page.value::<Option<String>>(&format!("{slider}.ariaValueText")).await);
                assert!(page.value::<bool>("document.querySelector('#verdict[data-fits]') !== null").await);
            }
            assert!(seen.join(" ").starts_with(values), "{key}: {seen:?}");
            assert!(said.into_iter().eq(seen.into_iter().map(Some)), "{key}");
        }
        // Keys move from divisor to divisor.
        page.fill("#n_embd", "768").await;
        page.fill("#n_head", "12").await;
        page.script("document.querySelector('#n_head-range').focus()").await;
        page.press(&Key::Right).await;
        page.until("the next divisor", "document.querySelector('#n_head').value === '16'").await;
        page.press(&format!("{}{}", Key::Left, Key::Left)).await;
        page.until("two back", "document.querySelector('#n_head').value === '8'").await;
    });
}
