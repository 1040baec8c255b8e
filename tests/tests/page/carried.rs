//! State that moves from page to page: the run in the header's links, and a message from the calculator to Diagnose.

use crate::{
    accessible::{SCHEMES, violations},
    environment::named,
    page::{LAPTOP, PHONE, Page, tell, tell_unopened},
};
use std::fs;

const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of \
    11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the \
    allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";

async fn go(page: &Page, href: &str, there: &str) {
    page.click(&format!(".header__pages [href*='{href}']")).await;
    page.until("the page is there", there).await;
}

const VERDICT: &str = "document.querySelector('#verdict[data-fits]')";

#[test]
fn the_headers_links_carry_the_run() {
    tell("the_headers_links_carry_the_run", async |page| {
        page.choose_gpu("GeForce RTX 3060 12GB").await;
        page.paste("#config", "batch_size = 32  # mine\n").await;
        page.until("it is read", "document.querySelector('#batch_size').value === '32'").await;
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        // The config is as it was pasted.
        let config = "document.querySelector('#config').value";
        page.until("the config is there", &format!("{config} === 'batch_size = 32  # mine\\n'")).await;
        go(page, "calculator.html", VERDICT).await;
        let gpu = "document.querySelector('#gpu').value";
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 3060 12GB");
        assert_eq!(page.value::<String>(config).await, "batch_size = 32  # mine\n");
        // By way of a page that shows no run.
        go(page, "demo.html", "document.querySelector('#write')").await;
        go(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 3060 12GB");
        assert_eq!(page.value::<String>(config).await, "batch_size = 32  # mine\n");
        // The run that Diagnose found, on the message's GPU.
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "batch_size = 64\n").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        go(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 4070");
        // The message is still there.
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.until("the message is there", "document.querySelector('#message').value.includes('6.14 GiB')").await;
    });
}

#[test]
fn headers_links_carry_run_and_message() {
    tell("headers_links_carry_run_and_message", async |page| {
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "batch_size = 64\n").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        let whole = "location.hash.includes('batch_size=64') && location.hash.includes('oom.requested=6.14GiB')";
        page.until("the address has both", whole).await;
        let address: String = page.value("location.href").await;
        go(page, "calculator.html", VERDICT).await;
        assert!(!page.value::<String>("location.hash").await.contains("oom."), "the calculator shows no message");
        let link: String = page.value("document.querySelector('.header__pages [href*=diagnose]').href").await;
        assert_eq!(link, address);
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.until("it is explained", "document.querySelector('[data-testid=agreement]')").await;
        assert_eq!(page.value::<String>("location.href").await, address);
        // The link alone, as in another browser.
        page.script("sessionStorage.clear()").await;
        page.goto("about:blank").await;
        page.goto(&address).await;
        page.until("it is explained", "document.querySelector('[data-testid=agreement]')").await;
        // A message that the calculator passes on is in the address too.
        page.script("sessionStorage.clear()").await;
        page.open("").await;
        page.paste("#config", MESSAGE).await;
        page.click("[data-testid=to-diagnose]").await;
        page.until("the address has the message", "location.hash.includes('oom.requested=6.14GiB')").await;
    });
}

#[test]
fn message_of_another_gpu_does_not_change_an_opened_run() {
    tell("message_of_another_gpu_does_not_change_an_opened_run", async |page| {
        page.paste("#config", MESSAGE).await;
        page.click("[data-testid=to-diagnose]").await;
        page.until("the address has the message", "location.hash.includes('oom.requested=6.14GiB')").await;
        let figures: String = page.value("location.hash.slice(location.hash.indexOf('&oom.'))").await;
        page.open("1&batch_size=24&gpu=RTX%204090").await;
        let gpu = "document.querySelector('#gpu').value";
        let answer = async || (page.value::<String>(gpu).await, page.text("#verdict").await);
        let before = answer().await;
        assert_eq!(before.0, "RTX 4090");
        let link: String = page.value("document.querySelector('.header__pages [href*=diagnose]').href").await;
        assert!(!link.contains("oom."), "the message is of another run: {link}");
        page.goto(&(link + &figures)).await;
        page.until("the message is there", "document.querySelector('#message')?.value.includes('6.14 GiB')").await;
        go(page, "calculator.html", VERDICT).await;
        assert_eq!(answer().await, before);
        // A reload of Diagnose changes nothing either.
        for is_reloaded in [false, true] {
            go(page, "diagnose.html", "document.querySelector('#message')").await;
            page.until("the message is there", "document.querySelector('#message').value.includes('6.14 GiB')").await;
            if is_reloaded {
                page.browser.driver.refresh().await.expect("the page opens");
                page.until("the page is there", "document.querySelector('#message')").await;
            }
            go(page, "calculator.html", VERDICT).await;
            assert_eq!(answer().await, before);
            assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "24");
        }
    });
}

#[test]
fn message_in_the_calculator_has_one_offer_and_no_syntax_error() {
    tell("message_in_the_calculator_has_one_offer_and_no_syntax_error", async |page| {
        page.paste("#config", MESSAGE).await;
        page.until("the link to the diagnosis is shown", "document.querySelector('[data-testid=to-diagnose]')").await;
        assert_eq!(page.text("#problems").await, "");
        page.paste("#config", &format!("batch_size = 64\n{MESSAGE}\n")).await;
        page.until("the link to the diagnosis is shown", "document.querySelector('[data-testid=to-diagnose]')").await;
        assert!(!page.text("#problems").await.contains("not expected here"), "{}", page.text("#problems").await);
    });
}

#[test]
fn link_of_an_unread_command_opens_the_same_command() {
    tell("link_of_an_unread_command_opens_the_same_command", async |page| {
        let command = "python train.py config/my_config.py --batch_size=8";
        page.paste("#config", command).await;
        page.until(
            "the file is missing",
            "document.querySelector('#verdict').textContent.includes('config/my_config.py')",
        )
        .await;
        page.click("#copy-link").await;
        let link = page.clipboard().await;
        page.script("sessionStorage.clear()").await;
        page.goto(&link.replacen('#', "?fresh#", 1)).await;
        page.until("it is the same", &format!("document.querySelector('#config')?.value.trim() === {command:?}")).await;
        assert!(page.text("#verdict").await.contains("config/my_config.py was not read"));
    });
}

#[test]
fn untouched_calculator_passes_no_config_to_diagnose() {
    tell("untouched_calculator_passes_no_config_to_diagnose", async |page| {
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, "");
        page.paste("#message", MESSAGE).await;
        page.until("it is explained", "document.querySelector('[data-testid=candidates]')").await;
        assert!(page.value::<bool>("document.querySelector('[data-testid=agreement]') === null").await);
    });
}

#[test]
fn log_with_a_command_and_a_message_leads_to_its_diagnosis() {
    tell("log_with_a_command_and_a_message_leads_to_its_diagnosis", async |page| {
        let log = format!("$ python train.py --batch_size=64\nOverriding: batch_size = 64\n{MESSAGE}\n");
        page.open("1&gpu=RTX%203090").await;
        page.paste("#config", &log).await;
        page.until("it is read", "document.querySelector('#batch_size').value === '64'").await;
        page.click("[data-testid=to-diagnose]").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        assert!(page.text("[data-testid=explanation]").await.contains("to the last digit"));
        // The header's link leads back to the whole log.
        go(page, "calculator.html", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, log);
        page.click("[data-testid=to-diagnose]").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        let config: String = page.value("document.querySelector('#config').value").await;
        assert_eq!(config, "batch_size = 64\n");
        assert!(page.value::<bool>("document.querySelector('#message').value.includes('6.14 GiB')").await);
    });
}

#[test]
fn a_message_in_the_calculator_leads_to_its_explanation() {
    tell("a_message_in_the_calculator_leads_to_its_explanation", async |page| {
        assert!(page.value::<bool>("document.querySelector('[data-testid=to-diagnose]') === null").await);
        // The log is longer than the text that is passed on.
        let log = format!("{}{MESSAGE}\n{}", "loading\n".repeat(50_000), "bye\n".repeat(50_000));
        for text in [MESSAGE.to_owned(), log] {
            page.open("").await;
            page.start_paste("#config", &text).await;
            page.until("the link to the diagnosis is shown", "document.querySelector('[data-testid=to-diagnose]')")
                .await;
            page.click("[data-testid=to-diagnose]").await;
            let explained =
                "document.querySelector('[data-testid=explanation]')?.textContent.includes('logits (65536, 50304)')";
            page.until("it is explained", explained).await;
            page.script("sessionStorage.clear()").await;
            page.goto("about:blank").await;
        }
    });
}

#[test]
fn text_survives_another_page_back_and_a_reload() {
    tell("text_survives_another_page_back_and_a_reload", async |page| {
        let config = "document.querySelector('#config')";
        let log = |n_lines: usize| {
            let lines = "iter 1: loss 4.0, time 100.00ms, mfu 10.00%\n".repeat(n_lines);
            format!("Overriding: batch_size = 64\n{lines}{MESSAGE}\n")
        };
        for (text, is_message) in [
            ("# mine\nbatch_size = 8  # why\nwandb_log = True\n".to_owned(), false),
            ("bach_size = 64\n".to_owned(), false),
            (log(4), true),
            (log(40_000), true),
        ] {
            // A long text is shown in part; its size is an attribute.
            let is_long = text.len() > 64 * 1024;
            let bytes = text.len();
            let is_there = match is_long {
                true => format!("{config}?.dataset.bytes === '{bytes}'"),
                false => format!("{config}?.value === {}", serde_json::Value::from(text.as_str())),
            };
            page.open("1&gpu=RTX%204070").await;
            page.start_paste("#config", &text).await;
            page.until("it is read", &is_there).await;
            let verdict = page.text("#verdict").await;
            if is_message {
                page.click("[data-testid=to-diagnose]").await;
                page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
                if is_long {
                    page.until("all of it", &format!("document.querySelector('#message').dataset.bytes === '{bytes}'"))
                        .await;
                }
            } else {
                go(page, "embed.html", "document.querySelector('#snippet')").await;
                page.until("the text is there", &is_there).await;
            }
            // Another run takes the place of the text that the pages pass on.
            go(page, "diagnose.html", "document.querySelector('#message')").await;
            page.paste("#config", "batch_size = 2\n").await;
            page.until("the address follows", "location.hash.includes('batch_size=2')").await;
            let mut n_steps: i32 = 0;
            while !page.value::<String>("location.pathname").await.ends_with("/calculator.html") {
                page.back().await;
                page.until("a page is there", "document.querySelector('#config')").await;
                n_steps += 1;
                assert!(n_steps < 6, "Back leads to the calculator");
            }
            for what in ["Back", "a reload"] {
                page.until(&format!("the text is there after {what}"), &is_there).await;
                assert_eq!(page.text("#verdict").await, verdict, "{what}");
                page.browser.driver.refresh().await.expect("the page reloads");
            }
            page.script("sessionStorage.clear()").await;
            page.goto("about:blank").await;
        }
    });
}

#[test]
fn diagnose_gets_the_latest_run_and_not_one_that_was_left_there() {
    tell("diagnose_gets_the_latest_run_and_not_one_that_was_left_there", async |page| {
        let config = "document.querySelector('#config').value";
        for batch_size in [8, 32] {
            let text = format!("batch_size = {batch_size}  # mine\n");
            page.paste("#config", &text).await;
            go(page, "diagnose.html", "document.querySelector('#message')").await;
            assert_eq!(page.value::<String>(config).await, text);
            go(page, "calculator.html", VERDICT).await;
        }
    });
}

#[test]
fn a_new_run_has_no_message_of_an_earlier_one() {
    tell("a_new_run_has_no_message_of_an_earlier_one", async |page| {
        let link = "document.querySelector('.header__pages [href*=diagnose]').href";
        let is_passed_on = format!("{link}.includes('oom.requested=6.14GiB')");
        page.paste("#config", &format!("batch_size = 64\n{MESSAGE}\n")).await;
        page.click("[data-testid=to-diagnose]").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        page.click("[data-testid=open-budget] a").await;
        page.until("the calculator is there", VERDICT).await;
        assert!(page.value::<bool>(&is_passed_on).await);
        // A change of the same run keeps it.
        page.fill("#batch_size", "32").await;
        page.until("the address follows", "location.hash.includes('batch_size=32')").await;
        assert!(page.value::<bool>(&is_passed_on).await);
        page.paste("#config", "batch_size = 2\n").await;
        page.until("the link has the new run", &format!("{link}.includes('batch_size=2&')")).await;
        assert!(!page.value::<bool>(&is_passed_on).await);
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        let fields = "[document.querySelector('#message').value, document.querySelector('#config').value]";
        assert_eq!(page.value::<[String; 2]>(fields).await, ["", "batch_size = 2\n"]);
    });
}

#[test]
fn recent_runs_are_listed_and_cleared_on_this_device() {
    let test = "recent_runs_are_listed_and_cleared_on_this_device";
    let Some(axe) = named(test, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(test, async |page| {
        const ROWS: &str = "[...document.querySelectorAll('#recent-list li')].map((row) => row.textContent)";
        const RUNS: [(&str, &str); 3] = [("4", "RTX%204070"), ("8", "T4"), ("16", "RTX%203060%2012GB")];
        for (batch_size, gpu) in RUNS {
            page.goto(&format!("{}demo.html", page.address)).await;
            page.open(&format!("1&batch_size={batch_size}&gpu={gpu}")).await;
            page.until("the list's button is there", "document.querySelector('#recent').hidden === false").await;
        }
        page.script(&axe).await;
        for size in [LAPTOP, PHONE] {
            page.resize(size).await;
            page.click("#recent").await;
            let rows: Vec<String> = page.value(ROWS).await;
            assert_eq!(rows.len(), RUNS.len(), "{rows:?}");
            for (row, (batch_size, _)) in rows.iter().rev().zip(RUNS) {
                assert!(row.contains(&format!("batch_size {batch_size} ")) && row.contains("iB"), "{row}");
            }
            for (theme, rules) in SCHEMES {
                page.prefer(&[("prefers-color-scheme", theme), ("prefers-reduced-motion", "reduce")]).await;
                let found = violations(page, rules).await;
                assert!(found.is_empty(), "{theme}, {size:?}:\n{}", found.join("\n"));
            }
            let is_whole = "(() => {
                const at = document.querySelector('#recent-list').getBoundingClientRect();
                return at.left >= 0 && at.right <= innerWidth && at.top >= 0 && at.bottom <= innerHeight;
            })()";
            assert!(page.value::<bool>(is_whole).await, "{size:?}");
            // A second press closes it.
            page.click("#recent").await;
            page.until("it is closed", "!document.querySelector('#recent-list')").await;
        }
        page.resize(LAPTOP).await;
        page.click("#recent").await;
        page.click("#recent-list li:last-child a").await;
        page.until("the run is shown", "document.querySelector('#batch_size').value === '4'").await;
        let gpu: String = page.value("document.querySelector('#gpu').value").await;
        assert_eq!(gpu, "RTX 4070");
        page.until("the list is closed", "!document.querySelector('#recent-list')").await;
        page.back().await;
        page.until("Back works", "document.querySelector('#batch_size').value === '16'").await;
        page.click("#recent").await;
        page.click("#recent-clear").await;
        page.until("nothing is kept", "localStorage.getItem('headroom.recent') === null").await;
        page.until("nothing is listed", "document.querySelector('#recent').ariaDisabled === 'true'").await;
        // Leaving does not keep the run again.
        page.goto(&format!("{}demo.html", page.address)).await;
        assert!(page.value::<bool>("localStorage.getItem('headroom.recent') === null").await);
        // What another program wrote there is no run.
        page.script("localStorage.setItem('headroom.recent', '[1, {\"hash\": \"javascript:0\"}, null]')").await;
        page.open("1&batch_size=4&gpu=T4").await;
        page.until("the button is there", "document.querySelector('#recent').hidden === false").await;
        page.click("#recent").await;
        let rows: Vec<String> = page.value(ROWS).await;
        assert!(rows.len() == 1 && rows[0].contains("T4"), "{rows:?}");
    });
}
