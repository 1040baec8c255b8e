//! The calculator embedded in pages built by mdBook and MkDocs. The pages are on one site and Headroom's files on
//! another, each in a subdirectory.

use crate::{
    environment::{Means, named},
    page::{LAPTOP, PHONE, Page, tell_of},
    plain_host::PlainHost,
};
use fantoccini::key::Key;
use headroom_tests::server::Server;
use std::path::Path;

/// The URL of Headroom's files in the pages of `tests/hosts`.
const NAMED: &str = "https://headroom.example/docs/tools/";
/// Skipped tests are counted under this name, from which `cargo xtask test` derives that Python is missing.
const MKDOCS: &str = "mkdocs";

/// Opens a chapter of a site on its own host. Headroom's files are at `tools`.
fn tell_in(test: &str, means: &Means, chapter: &str, site: &Path, tools: &str, story: impl AsyncFnOnce(&Page)) {
    let host = PlainHost::start_with(site, NAMED, tools);
    let address = host.address_as_other_site();
    tell_of(test, means, &address, &[tools.to_owned()], None, async |page| {
        // A site may scroll smoothly, and a click would miss.
        page.prefer(&[("prefers-reduced-motion", "reduce")]).await;
        page.goto(&format!("{address}{chapter}")).await;
        story(page).await;
        assert_no_cookies(page).await;
    });
    host.assert_complete();
}

/// Runs `story` inside an element's frame.
async fn inside<T>(page: &Page, id: &str, story: impl AsyncFnOnce() -> T) -> T {
    page.enter_frame_of(&format!("#{id}")).await;
    let outcome = story().await;
    page.leave_frame().await;
    outcome
}

/// Waits for the verdict inside a frame, and returns whether the run fits.
async fn fits(page: &Page, id: &str) -> bool {
    inside(page, id, async || {
        page.until("there is an answer", "document.querySelector('#verdict[data-fits]')").await;
        page.fits().await
    })
    .await
}

async fn theme(page: &Page, id: &str) -> String {
    inside(page, id, async || page.value("document.documentElement.dataset.theme").await).await
}

async fn follows(page: &Page, id: &str, theme: &str) {
    let follows = format!("document.documentElement.dataset.theme === '{theme}'");
    inside(page, id, async || page.until("the theme follows", &follows).await).await;
}

async fn is_made(page: &Page, id: &str) -> bool {
    page.value(&format!("Boolean(document.getElementById({id:?}).shadowRoot?.querySelector('iframe'))")).await
}

async fn scroll_to(page: &Page, id: &str) {
    page.script(&format!("document.getElementById({id:?}).scrollIntoView({{ block: 'center' }})")).await;
}

/// Checks that the frame is exactly as high as its content, in pixels, and that the content is not wider than the
/// frame.
async fn assert_fits_exactly(page: &Page, id: &str) {
    scroll_to(page, id).await;
    let height = format!("document.getElementById({id:?}).shadowRoot.querySelector('iframe').clientHeight");
    let mut last = (0, 0);
    // The frame's page reports its height after layout. The outer page then resizes the frame.
    for _ in 0..200 {
        let frame: i64 = page.value(&height).await;
        let content: i64 = inside(page, id, async || {
            page.value("Math.ceil(document.querySelector('main').getBoundingClientRect().height)").await
        })
        .await;
        last = (frame, content);
        if frame == content {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(last.0 == last.1 && last.1 > 300, "{id}: a frame of {} px for {} px", last.0, last.1);
    let scrolls: Vec<i64> = inside(page, id, async || {
        page.value(
            "[document.documentElement.scrollHeight - innerHeight, document.documentElement.scrollWidth - innerWidth,
                     innerWidth - document.documentElement.clientWidth]",
        )
        .await
    })
    .await;
    assert!(scrolls.iter().all(|excess| *excess <= 0), "{id} scrolls in its frame: {scrolls:?}");
}

async fn assert_no_cookies(page: &Page) {
    let cookies = page.cdp("Network.getAllCookies", serde_json::json!({})).await;
    assert_eq!(cookies["cookies"].as_array().map(Vec::len), Some(0), "{cookies}");
}

async fn assert_stores_nothing(page: &Page, id: &str) {
    let kept: usize = inside(page, id, async || page.value("localStorage.length + sessionStorage.length").await).await;
    assert_eq!(kept, 0, "{id} stores something");
}

/// Waits 300 ms for pending frame messages, because the tests check that nothing happens.
async fn settle(page: &Page) {
    page.promise("{ await new Promise((done) => setTimeout(done, 300)) }").await;
}

/// Checks that a frame far below the window is created, and answers, only when it comes near.
async fn assert_lazy(page: &Page, tools: &str) {
    page.until("the script is there", "customElements.get('headroom-calculator')").await;
    assert!(!fits(page, "large").await, "64 sequences on 12 GB");
    assert!(!is_made(page, "far").await, "a frame far below loads at once");
    let reserved: i64 = page.value("document.getElementById('far').offsetHeight").await;
    assert!(reserved > 500, "no space is reserved: {reserved}");
    scroll_to(page, "far").await;
    assert!(fits(page, "far").await, "24 GiB");
    let asked: String = page.value("document.getElementById('far').shadowRoot.querySelector('iframe').src").await;
    assert!(asked.starts_with(&format!("{tools}embed.html?host=")), "{asked}");
}

/// Checks that calculators are independent, and that a changed configuration is kept when it is opened as a page.
async fn assert_separate_and_kept(page: &Page, tools: &str) {
    scroll_to(page, "small").await;
    assert!(fits(page, "small").await, "a small model");
    let small: String = inside(page, "small", async || page.value("document.querySelector('#open').href").await).await;
    scroll_to(page, "large").await;
    let link = inside(page, "large", async || {
        assert_eq!(page.value::<String>("document.querySelector('#gpu').value").await, "RTX 4070");
        assert_eq!(page.value::<String>("document.querySelector('#other-processes').value").await, "1.97");
        page.fill("#batch_size", "4").await;
        page.press(&Key::Tab).await;
        page.until("it fits", "document.querySelector('#verdict').dataset.fits === 'true'").await;
        page.value::<String>("document.querySelector('#open').href").await
    })
    .await;
    assert!(
        link.starts_with(&format!("{tools}calculator.html?lang=en#1&")) && link.contains("&batch_size=4&"),
        "{link}"
    );
    let unchanged: String =
        inside(page, "small", async || page.value("document.querySelector('#open').href").await).await;
    assert_eq!(unchanged, small, "an edit of one changes another");
    let first = page.browser.driver.window().await.expect("a window");
    inside(page, "large", async || page.click("#open").await).await;
    let windows = page.browser.driver.windows().await.expect("windows");
    let second = windows.into_iter().find(|window| *window != first).expect("it opens in a window of its own");
    page.browser.driver.switch_to_window(second).await.expect("it is there");
    page.until("the calculator answers", "document.querySelector('#verdict[data-fits=true]')").await;
    assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "4");
    assert_eq!(page.value::<String>("document.querySelector('#gradient_accumulation_steps').value").await, "1");
    assert_eq!(page.value::<String>("document.querySelector('#other-processes').value").await, "1.97");
    assert!(page.value::<bool>("opener === null").await, "the new page can reach its opener");
    page.browser.driver.close_window().await.expect("it closes");
    page.browser.driver.switch_to_window(first).await.expect("the first is still there");
}

async fn assert_heights(page: &Page) {
    for size in [LAPTOP, PHONE, (820, 1180)] {
        page.resize(size).await;
        for id in ["large", "small", "far"] {
            assert_fits_exactly(page, id).await;
        }
    }
    page.resize(LAPTOP).await;
    // With opened lists and applied fixes too.
    scroll_to(page, "large").await;
    inside(page, "large", async || {
        page.fill("#batch_size", "64").await;
        page.until("fixes are offered", "document.querySelectorAll('.fixes:not(.stale) .fixes__fix').length > 1").await;
    })
    .await;
    assert_fits_exactly(page, "large").await;
    inside(page, "large", async || page.click("#gpu").await).await;
    assert_fits_exactly(page, "large").await;
    inside(page, "large", async || {
        page.press(&format!("{}{}", Key::Escape, Key::Tab)).await;
        page.click(".fixes__fix[data-fits=true] button").await;
        page.until("the fix is made", "document.querySelector('#verdict').dataset.fits === 'true'").await;
    })
    .await;
    assert_fits_exactly(page, "large").await;
}

#[test]
fn a_book_shows_calculators_of_another_site() {
    let test = "a_book_shows_calculators_of_another_site";
    let (Some(means), Some(site)) = (Means::of(test), named(test, "HEADROOM_MDBOOK")) else { return };
    let tools = PlainHost::start(&means.dist);
    tell_in(test, &means, "fit.html", &site, &tools.address, async |page| {
        assert_lazy(page, &tools.address).await;
        assert_separate_and_kept(page, &tools.address).await;
        assert_heights(page).await;
        for id in ["large", "small", "far"] {
            assert_stores_nothing(page, id).await;
        }
        // mdBook's theme switch. The other two frames have a fixed theme.
        for (button, expected) in [("coal", "dark"), ("rust", "light"), ("navy", "dark"), ("light", "light")] {
            page.script(&format!("document.getElementById('mdbook-theme-{button}').click()")).await;
            follows(page, "large", expected).await;
        }
        page.script("document.getElementById('mdbook-theme-ayu').click()").await;
        follows(page, "large", "dark").await;
        assert_eq!((theme(page, "small").await, theme(page, "far").await), ("light".into(), "dark".into()));
    });
    tools.assert_complete();
}

#[test]
fn mkdocs_shows_calculators_of_another_site() {
    let (Some(means), Some(site)) = (Means::of(MKDOCS), named(MKDOCS, "HEADROOM_MKDOCS")) else { return };
    let tools = PlainHost::start(&means.dist);
    tell_in(MKDOCS, &means, "", &site, &tools.address, async |page| {
        assert_lazy(page, &tools.address).await;
        assert_separate_and_kept(page, &tools.address).await;
        assert_heights(page).await;
        for (button, expected) in [("dark", "dark"), ("light", "light"), ("auto", "light")] {
            page.script(&format!("document.querySelector('[data-bs-theme-value={button}]').click()")).await;
            follows(page, "large", expected).await;
        }
        // Both the frame and its content follow the system's theme.
        page.prefer(&[("prefers-color-scheme", "dark"), ("prefers-reduced-motion", "reduce")]).await;
        follows(page, "large", "dark").await;
        assert_eq!(theme(page, "small").await, "light");
        // mdBook's search logs when it is ready. Nothing else may log.
        let console = page.browser.console().await;
        assert!(console.iter().all(|line| line.contains("/search/worker.js")), "{console:?}");
    });
}

#[test]
fn the_program_serves_what_others_embed_and_nothing_else_of_it() {
    let test = "the_program_serves_what_others_embed_and_nothing_else_of_it";
    let (Some(means), Some(site)) = (Means::of(test), named(test, "HEADROOM_MDBOOK")) else { return };
    let server = Server::start(&means.headroom);
    tell_in(test, &means, "fit.html", &site, server.link(), async |page| {
        assert!(!fits(page, "large").await);
        assert_fits_exactly(page, "large").await;
        page.assert_quiet().await;
        // The calculator's own page refuses to be framed.
        page.script(&format!(
            "const other = document.createElement('iframe');
             other.src = {:?};
             document.body.append(other)",
            server.link()
        ))
        .await;
        settle(page).await;
        let console = page.browser.console().await;
        assert!(console.iter().any(|line| line.contains("frame-ancestors")), "{console:?}");
        page.browser.driver.refresh().await.expect("it loads again");
        assert!(!fits(page, "large").await);
        page.browser.console().await;
    });
}

/// A page that sends and receives the calculator's messages, but is not a calculator.
const STRANGER: &str = "<!doctype html><script>
    const send = () => {
        parent.postMessage({ headroom: 'height', value: 3333 }, '*');
        for (let at = 0; at < parent.length; at++) parent[at].postMessage({ headroom: 'theme', value: 'dark' }, '*');
    };
    addEventListener('message', (event) => event.data === 'send' && send());
</script>";

#[test]
fn messages_from_anyone_else_change_nothing() {
    let test = "messages_from_anyone_else_change_nothing";
    let (Some(means), Some(site)) = (Means::of(test), named(test, "HEADROOM_MDBOOK")) else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    std::fs::write(folder.join("index.html"), STRANGER).expect("a writable folder");
    let (stranger, tools) = (PlainHost::start(&folder), PlainHost::start(&means.dist));
    let host = PlainHost::start_with(&site, NAMED, &tools.address);
    let also = [tools.address.clone(), stranger.address.clone()];
    tell_of(test, &means, &host.address, &also, None, async |page| {
        page.goto(&format!("{}fit.html", host.address)).await;
        assert!(!fits(page, "large").await);
        assert_fits_exactly(page, "large").await;
        let height = "document.getElementById('large').shadowRoot.querySelector('iframe').clientHeight";
        let before: i64 = page.value(height).await;
        assert_eq!(theme(page, "large").await, "light");

        // A frame of another origin beside the calculator, which sends messages to both.
        page.promise(&format!(
            "{{ const other = document.createElement('iframe');
                other.id = 'stranger';
                other.src = {:?};
                document.body.append(other);
                await new Promise((done) => other.onload = done);
                other.contentWindow.postMessage('send', '*');
                await new Promise((done) => setTimeout(done, 300)) }}",
            stranger.address
        ))
        .await;
        assert_eq!((page.value::<i64>(height).await, theme(page, "large").await), (before, "light".into()));

        // Messages from the page itself, which is not a calculator's frame, and malformed messages.
        page.script("postMessage({ headroom: 'height', value: 3333 }, '*')").await;
        for message in [
            "{ headroom: 'height', value: 'calc(9999px)' }",
            "{ headroom: 'height', value: -5 }",
            "null",
            "'height'",
            "{ headroom: 'theme', value: 3 }",
        ] {
            inside(page, "large", async || page.script(&format!("parent.postMessage({message}, '*')")).await).await;
        }
        settle(page).await;
        assert_eq!((page.value::<i64>(height).await, theme(page, "large").await), (before, "light".into()));

        // A calculator that was created for another page sends this page nothing and ignores its messages.
        let n_messages: i64 = serde_json::from_value(
            page.promise(&format!(
                "{{ const other = document.createElement('iframe');
                    other.id = 'others';
                    other.width = 700;
                    let n_messages = 0;
                    addEventListener('message', (event) => n_messages += event.source === other.contentWindow);
                    other.src = '{}embed.html?host=https%3A%2F%2Fother.example&theme=light#1';
                    document.body.append(other);
                    await new Promise((done) => other.onload = done);
                    await new Promise((done) => setTimeout(done, 1500));
                    other.contentWindow.postMessage({{ headroom: 'theme', value: 'dark' }}, '*');
                    await new Promise((done) => setTimeout(done, 300));
                    return n_messages }}",
                tools.address
            ))
            .await,
        )
        .expect("a count");
        assert_eq!(n_messages, 0, "it sends no message to another origin");
        page.find("#others").await.enter_frame().await.expect("a frame");
        page.until("it does answer", "document.querySelector('#verdict[data-fits]')").await;
        assert_eq!(page.value::<String>("document.documentElement.dataset.theme").await, "light");
        page.leave_frame().await;
        // The browser logs that no frame of that origin received the message.
        let console = page.browser.console().await;
        assert!(console.iter().all(|line| line.contains("https://other.example")), "{console:?}");

        // The same messages from the right window at the right origin change both. The height is larger than before. A
        // lower frame would show a scroll bar, become narrower and report another height.
        let higher = before + 77;
        let message = format!("parent.postMessage({{ headroom: 'height', value: {higher} }}, '*')");
        inside(page, "large", async || page.script(&message).await).await;
        page.until("the frame's own height applies", &format!("{height} === {higher}")).await;
        let frame = "document.getElementById('large').shadowRoot.querySelector('iframe').contentWindow";
        page.script(&format!("{frame}.postMessage({{ headroom: 'theme', value: 'dark' }}, '*')")).await;
        follows(page, "large", "dark").await;
    });
}

#[test]
fn link_is_shown_without_scripts() {
    let test = "link_is_shown_without_scripts";
    let (Some(means), Some(site)) = (Means::of(test), named(test, "HEADROOM_MDBOOK")) else { return };
    let tools = PlainHost::start(&means.dist);
    tell_in(test, &means, "fit.html", &site, &tools.address, async |page| {
        page.cdp("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true })).await;
        page.browser.driver.refresh().await.expect("it loads again");
        let link = page.find("#large a").await;
        assert_eq!(link.text().await.expect("words"), "The GPU memory of GPT-2 at a batch of 64 on an RTX 4070");
        let (_, _, width, height) = link.rectangle().await.expect("a place");
        assert!(width > 100.0 && height > 10.0, "{width} x {height}");
        let href = link.attr("href").await.expect("an address").expect("an address");
        assert!(href.starts_with(&format!("{}#1&batch_size=64&", tools.address)), "{href}");
        page.cdp("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": false })).await;
        // The link opens the same configuration.
        page.open_link(&href).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
    });
}
