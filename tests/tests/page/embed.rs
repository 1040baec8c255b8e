//! The calculator in pages that mdBook and MkDocs made, on one site, with Headroom's files on another, each in a folder.

use crate::{
    means::{Means, named},
    page::{LAPTOP, PHONE, Page, tell_of},
    plain_host::PlainHost,
};
use headroom_tests::server::Server;
use std::path::Path;
use thirtyfour::{Key, WebElement};

/// Where the pages in `tests/hosts` look for Headroom's files.
const NAMED: &str = "https://headroom.example/docs/tools/";
/// Counted under the name by which `cargo xtask test` knows that Python is missing.
const MKDOCS: &str = "mkdocs";

/// Opens a chapter of a site on its own host; Headroom's files are at `tools`.
fn tell_in(test: &str, means: &Means, chapter: &str, site: &Path, tools: &str, story: impl AsyncFnOnce(&Page)) {
    let host = PlainHost::start_with(site, NAMED, tools);
    let address = host.address_as_other_site();
    tell_of(test, means, &address, &[tools.to_owned()], None, async |page| {
        // A site may scroll slowly, and a click would miss.
        page.prefer(&[("prefers-reduced-motion", "reduce")]).await;
        page.browser.driver.goto(format!("{address}{chapter}")).await.expect("the page opens");
        story(page).await;
        assert_no_cookies(page).await;
    });
    host.assert_complete();
}

/// The frame that an element made.
async fn frame(page: &Page, id: &str) -> WebElement {
    let frame = format!("document.getElementById({id:?}).shadowRoot?.querySelector('iframe')");
    page.until("the frame is made", &frame).await;
    let found = page.browser.driver.execute(format!("return {frame}"), Vec::new()).await.expect("a script runs");
    found.element().expect("an element")
}

/// Does something inside an element's frame.
async fn inside<T>(page: &Page, id: &str, story: impl AsyncFnOnce() -> T) -> T {
    frame(page, id).await.enter_frame().await.expect("a frame");
    let told = story().await;
    page.browser.driver.enter_default_frame().await.expect("the page");
    told
}

/// Waits for the answer inside a frame, and says whether the run fits.
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

/// The frame is as high as what is in it, to the pixel, and what is in it as wide as the frame at most.
async fn assert_fits_exactly(page: &Page, id: &str) {
    scroll_to(page, id).await;
    let height = format!("document.getElementById({id:?}).shadowRoot.querySelector('iframe').clientHeight");
    let mut last = (0, 0);
    // The frame's page lays itself out and says so; the page around it then makes room.
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

/// Waits until nothing is under way in any frame, as what is awaited is that nothing happens.
async fn settle(page: &Page) {
    page.promise("{ await new Promise((done) => setTimeout(done, 300)) }").await;
}

/// Far below, nothing is made; near, it is, and answers.
async fn assert_lazy(page: &Page, tools: &str) {
    page.until("the script is there", "customElements.get('headroom-calculator')").await;
    assert!(!fits(page, "large").await, "64 sequences on 12 GB");
    assert!(!is_made(page, "far").await, "what is far below is made at once");
    let reserved: i64 = page.value("document.getElementById('far').offsetHeight").await;
    assert!(reserved > 500, "no room is kept: {reserved}");
    scroll_to(page, "far").await;
    assert!(fits(page, "far").await, "24 GiB");
    let asked: String = page.value("document.getElementById('far').shadowRoot.querySelector('iframe').src").await;
    assert!(asked.starts_with(&format!("{tools}embed.html?host=")), "{asked}");
}

/// Each answers for itself; what is changed in one is changed in it alone, and goes along when it is opened.
async fn assert_separate_and_kept(page: &Page, tools: &str) {
    scroll_to(page, "small").await;
    assert!(fits(page, "small").await, "a small model");
    let small: String = inside(page, "small", async || page.value("document.querySelector('#open').href").await).await;
    scroll_to(page, "large").await;
    let link = inside(page, "large", async || {
        assert_eq!(page.value::<String>("document.querySelector('#gpu').value").await, "RTX 4070");
        assert_eq!(page.value::<String>("document.querySelector('#other-processes').value").await, "1.97");
        page.fill("#batch_size", "4").await;
        page.press(Key::Tab).await;
        page.until("it fits", "document.querySelector('#verdict').dataset.fits === 'true'").await;
        page.value::<String>("document.querySelector('#open').href").await
    })
    .await;
    assert!(link.starts_with(&format!("{tools}?lang=en#1&")) && link.contains("&batch_size=4&"), "{link}");
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
    assert!(page.value::<bool>("opener === null").await, "it could reach back");
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
    // Opened lists and applied fixes too.
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
        page.press(Key::Escape + Key::Tab).await;
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
        // The book's own switch; the other two say what they want.
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
        // It follows the system, and so does what is in it.
        page.prefer(&[("prefers-color-scheme", "dark"), ("prefers-reduced-motion", "reduce")]).await;
        follows(page, "large", "dark").await;
        assert_eq!(theme(page, "small").await, "light");
        // The site's own search says when it is ready, and nobody else says anything.
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
        // The calculator itself is in nobody's page.
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

/// Sends what a calculator sends and takes, from where no calculator is.
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
        page.browser.driver.goto(format!("{}fit.html", host.address)).await.expect("the page opens");
        assert!(!fits(page, "large").await);
        assert_fits_exactly(page, "large").await;
        let height = "document.getElementById('large').shadowRoot.querySelector('iframe').clientHeight";
        let before: i64 = page.value(height).await;
        assert_eq!(theme(page, "large").await, "light");

        // A frame of another origin beside it, which speaks to both.
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

        // The page itself, which is no frame of ours, and words that are none of the two.
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

        // A calculator that was made for another page tells this one nothing, nor does it obey it.
        let told: i64 = serde_json::from_value(
            page.promise(&format!(
                "{{ const other = document.createElement('iframe');
                    other.id = 'others';
                    other.width = 700;
                    let told = 0;
                    addEventListener('message', (event) => told += event.source === other.contentWindow);
                    other.src = '{}embed.html?host=https%3A%2F%2Fother.example&theme=light#1';
                    document.body.append(other);
                    await new Promise((done) => other.onload = done);
                    await new Promise((done) => setTimeout(done, 1500));
                    other.contentWindow.postMessage({{ headroom: 'theme', value: 'dark' }}, '*');
                    await new Promise((done) => setTimeout(done, 300));
                    return told }}",
                tools.address
            ))
            .await,
        )
        .expect("a count");
        assert_eq!(told, 0, "it speaks to whoever is around it");
        page.find("#others").await.enter_frame().await.expect("a frame");
        page.until("it does answer", "document.querySelector('#verdict[data-fits]')").await;
        assert_eq!(page.value::<String>("document.documentElement.dataset.theme").await, "light");
        page.browser.driver.enter_default_frame().await.expect("the page");
        // The browser says that nobody by that name was there.
        let console = page.browser.console().await;
        assert!(console.iter().all(|line| line.contains("https://other.example")), "{console:?}");

        // The same words from the right window at the right origin do change both.
        // Higher than it is: a lower frame scrolls, gets narrower by that, and has another height to tell.
        let higher = before + 77;
        let message = format!("parent.postMessage({{ headroom: 'height', value: {higher} }}, '*')");
        inside(page, "large", async || page.script(&message).await).await;
        page.until("the frame's own word counts", &format!("{height} === {higher}")).await;
        let frame = "document.getElementById('large').shadowRoot.querySelector('iframe').contentWindow";
        page.script(&format!("{frame}.postMessage({{ headroom: 'theme', value: 'dark' }}, '*')")).await;
        follows(page, "large", "dark").await;
    });
}

#[test]
fn without_scripts_a_link_stands_there() {
    let test = "without_scripts_a_link_stands_there";
    let (Some(means), Some(site)) = (Means::of(test), named(test, "HEADROOM_MDBOOK")) else { return };
    let tools = PlainHost::start(&means.dist);
    tell_in(test, &means, "fit.html", &site, &tools.address, async |page| {
        page.cdp("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": true })).await;
        page.browser.driver.refresh().await.expect("it loads again");
        let link = page.find("#large a").await;
        assert_eq!(link.text().await.expect("words"), "The GPU memory of GPT-2 at a batch of 64 on an RTX 4070");
        let shape = link.rect().await.expect("a place");
        assert!(shape.width > 100.0 && shape.height > 10.0, "{shape:?}");
        let href = link.attr("href").await.expect("an address").expect("an address");
        assert!(href.starts_with(&format!("{}#1&batch_size=64&", tools.address)), "{href}");
        page.cdp("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": false })).await;
        // It leads to the same question.
        page.open_link(&href).await;
        assert_eq!(page.value::<String>("document.querySelector('#batch_size').value").await, "64");
    });
}
