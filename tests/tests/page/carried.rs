//! What goes along from page to page: the run in the header's links, and a message from the calculator to Diagnose.

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
        page.choose_card("GeForce RTX 3060 12GB").await;
        page.paste("#config", "batch_size = 32  # mine\n").await;
        page.until("it is read", "document.querySelector('#batch_size').value === '32'").await;
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        // As it was pasted.
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
        // What Diagnose found: the run on the message's GPU.
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "batch_size = 64\n").await;
        page.until("the run is simulated", "document.querySelector('[data-testid=agreement]')").await;
        go(page, "./#", VERDICT).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
        assert_eq!(page.value::<String>(gpu).await, "GeForce RTX 4070");
        // And the message waits there.
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        page.until("the message is there", "document.querySelector('#message').value.includes('6.14 GiB')").await;
        page.open("").await;
    });
}

#[test]
fn a_calculator_that_nobody_touched_gives_diagnose_no_config() {
    tell("a_calculator_that_nobody_touched_gives_diagnose_no_config", async |page| {
        go(page, "diagnose.html", "document.querySelector('#message')").await;
        assert_eq!(page.value::<String>("document.querySelector('#config').value").await, "");
        page.paste("#message", MESSAGE).await;
        page.until("it is explained", "document.querySelector('[data-testid=candidates]')").await;
        assert!(page.value::<bool>("document.querySelector('[data-testid=agreement]') === null").await);
        page.open("").await;
    });
}

#[test]
fn a_message_in_the_calculator_leads_to_its_explanation() {
    tell("a_message_in_the_calculator_leads_to_its_explanation", async |page| {
        assert!(page.value::<bool>("document.querySelector('[data-testid=to-diagnose]') === null").await);
        // In a log that is longer than what goes along.
        let log = format!("{}{MESSAGE}\n{}", "loading\n".repeat(50_000), "bye\n".repeat(50_000));
        for text in [MESSAGE.to_owned(), log] {
            page.open("").await;
            page.allow_clipboard().await;
            page.promise(&format!("{{ await navigator.clipboard.writeText({}) }}", serde_json::Value::from(text)))
                .await;
            page.click("#config").await;
            page.press_with_control('a').await;
            page.press_with_control('v').await;
            page.until("the way is offered", "document.querySelector('[data-testid=to-diagnose]')").await;
            page.click("[data-testid=to-diagnose]").await;
            let explained =
                "document.querySelector('[data-testid=explanation]')?.textContent.includes('logits (65536, 50304)')";
            page.until("it is explained", explained).await;
            page.script("sessionStorage.clear()").await;
            page.browser.driver.goto("about:blank").await.expect("a page");
        }
        page.open("").await;
    });
}
