//! State that moves from page to page: the run in the header's links, and a message from the calculator to Diagnose.

use crate::page::{Page, tell};

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
        go(page, "./#", VERDICT).await;
        let gpu = "document.querySelector('#gpu').value";
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 3060 12GB");
        assert_eq!(page.value::<String>(config).await, "batch_size = 32  # mine\n");
        // By way of a page that shows no run.
        go(page, "demo.html", "document.querySelector('#write')").await;
        go(page, "./#", VERDICT).await;
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 3060 12GB");
        assert_eq!(page.value::<String>(config).await, "batch_size = 32  # mine\n");
        // The run that Diagnose found, on the message's GPU.
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "batch_size = 64\n").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        go(page, "./#", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 4070");
        // The message is still there.
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.until("the message is there", "document.querySelector('#message').value.includes('6.14 GiB')").await;
        page.open("").await;
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
        go(page, "./#", VERDICT).await;
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
        page.script("sessionStorage.clear()").await;
        page.open("").await;
    });
}

#[test]
fn message_of_another_gpu_does_not_change_an_opened_run() {
    tell("message_of_another_gpu_does_not_change_an_opened_run", async |page| {
        page.paste("#config", MESSAGE).await;
        page.click("[data-testid=to-diagnose]").await;
        page.until("the address has the message", "location.hash.includes('oom.requested=6.14GiB')").await;
        page.open("1&batch_size=24&gpu=RTX%204090").await;
        let gpu = "document.querySelector('#gpu').value";
        let answer = async || (page.value::<String>(gpu).await, page.text("#verdict").await);
        let before = answer().await;
        assert_eq!(before.0, "RTX 4090");
        // A reload of Diagnose changes nothing either.
        for is_reloaded in [false, true] {
            go(page, "diagnose.html", "document.querySelector('#message')").await;
            page.until("the message is there", "document.querySelector('#message').value.includes('6.14 GiB')").await;
            if is_reloaded {
                page.browser.driver.refresh().await.expect("the page opens");
                page.until("the page is there", "document.querySelector('#message')").await;
            }
            go(page, "./#", VERDICT).await;
            assert_eq!(answer().await, before);
            assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "24");
        }
        page.script("sessionStorage.clear()").await;
        page.open("").await;
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
        page.open("").await;
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
        page.open("").await;
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
        let config: String = page.value("document.querySelector('#config').value").await;
        assert_eq!(config, "batch_size = 64\n");
        assert!(page.value::<bool>("document.querySelector('#message').value.includes('6.14 GiB')").await);
        page.script("sessionStorage.clear()").await;
        page.open("").await;
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
            page.allow_clipboard().await;
            page.promise(&format!("{{ await navigator.clipboard.writeText({}) }}", serde_json::Value::from(text)))
                .await;
            page.click("#config").await;
            page.press_with_control('a').await;
            page.press_with_control('v').await;
            page.until("the link to the diagnosis is shown", "document.querySelector('[data-testid=to-diagnose]')")
                .await;
            page.click("[data-testid=to-diagnose]").await;
            let explained =
                "document.querySelector('[data-testid=explanation]')?.textContent.includes('logits (65536, 50304)')";
            page.until("it is explained", explained).await;
            page.script("sessionStorage.clear()").await;
            page.goto("about:blank").await;
        }
        page.open("").await;
    });
}
