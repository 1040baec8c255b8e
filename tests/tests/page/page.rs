//! The page in a browser: what a person does to it, and what they see.

use crate::{browser::Browser, means::Means, numbers::Numbers};
use headroom_tests::server::Server;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use thirtyfour::{By, Key, TypingData, WebElement, error::WebDriverErrorInner};

/// How long anything may take to show; far more than it does, as machines are shared.
const WAIT_MAX: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// How long a page may move under a click before something is in its way for good.
const MOVES_MAX: Duration = Duration::from_secs(3);

/// A window's width and height in CSS pixels.
pub type Size = (u32, u32);
/// A laptop's.
pub const LAPTOP: Size = (1280, 800);
/// A phone's.
pub const PHONE: Size = (390, 844);

/// A page that is open, with the browser and the server behind it.
pub struct Page {
    /// The browser.
    pub browser: Browser,
    /// The page's address, ending in a slash.
    pub address: String,
    /// Beginnings of other addresses that it may ask: those of files of ours on another host.
    also: Vec<String>,
    server: Option<Server>,
    /// The program, to ask it the same question.
    pub headroom: PathBuf,
}

/// Opens the page as `headroom serve` serves it, runs `story`, and looks at the console and the network after it.
pub fn tell(test: &str, story: impl AsyncFnOnce(&Page)) {
    let Some(means) = Means::of(test) else { return };
    let server = Server::start(&means.headroom);
    let address = server.link().to_owned();
    tell_at(test, &means, &address, Some(server), story);
}

/// The same in a browser with other flags, and with nothing opened yet: the story says which page it is of.
pub fn tell_with(test: &str, flags: &[&str], story: impl AsyncFnOnce(&Page)) {
    let Some(means) = Means::of(test) else { return };
    let server = Server::start(&means.headroom);
    let address = server.link().to_owned();
    tell_in(test, &means, flags, &address, &[], Some(server), story);
}

/// The same for a page at any address.
pub fn tell_at(test: &str, means: &Means, address: &str, server: Option<Server>, story: impl AsyncFnOnce(&Page)) {
    tell_of(test, means, address, &[], server, async |page| {
        page.open("").await;
        story(page).await;
    });
}

/// The same for a page of somebody's, which is not opened yet, and may ask those other addresses too.
pub fn tell_of(
    test: &str,
    means: &Means,
    address: &str,
    also: &[String],
    server: Option<Server>,
    story: impl AsyncFnOnce(&Page),
) {
    tell_in(test, means, &[], address, also, server, story);
}

fn tell_in(
    test: &str,
    means: &Means,
    flags: &[&str],
    address: &str,
    also: &[String],
    server: Option<Server>,
    story: impl AsyncFnOnce(&Page),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let page = runtime.block_on(async {
        let browser = Browser::start(means, flags).await;
        Page { browser, address: address.to_owned(), also: also.to_vec(), server, headroom: means.headroom.clone() }
    });
    let told = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            page.resize(LAPTOP).await;
            story(&page).await;
            page.assert_quiet().await;
        });
    }));
    if told.is_err() {
        runtime.block_on(page.leave_picture(test));
    }
    let Page { browser, server, .. } = page;
    let quit = runtime.block_on(browser.driver.clone().quit());
    drop((browser, server, runtime));
    told.map(|()| quit.expect("Chromium ends")).unwrap_or_else(|panic| resume_unwind(panic));
}

impl Page {
    /// Opens the page, with a fragment or none, and waits until it has answered.
    pub async fn open(&self, fragment: &str) {
        let hash = if fragment.is_empty() { "" } else { "#" };
        self.open_link(&format!("{}{hash}{fragment}", self.address)).await;
    }

    /// Opens a link.
    pub async fn open_link(&self, link: &str) {
        self.browser.driver.goto(link).await.expect("the page opens");
        self.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
    }

    /// The command line's answer to the same question; a run that does not fit is an answer too.
    pub fn command_line(&self, config: &Path, arguments: &[&str]) -> Value {
        let mut command = std::process::Command::new(&self.headroom);
        let output = command.arg("plan").arg(config).args(arguments).arg("--json").output().expect("headroom runs");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// What a script returns.
    pub async fn script(&self, script: &str) -> Value {
        let result = self.browser.driver.execute(script, Vec::new()).await;
        result.unwrap_or_else(|error| panic!("{script}: {error}")).json().clone()
    }

    /// What an expression comes to.
    pub async fn value<T: DeserializeOwned>(&self, expression: &str) -> T {
        let value = self.script(&format!("return {expression}")).await;
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{expression} is {value}: {error}"))
    }

    /// What a promise comes to. The browser waits for it.
    pub async fn promise(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             (async () => {expression})().then((value) => done({{ value }}), (error) => done({{ error: `${{error}}` }}))"
        );
        let result = self.browser.driver.execute_async(script, Vec::new()).await;
        let result = result.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert!(result.json().get("error").is_none(), "{expression}: {}", result.json());
        result.json()["value"].clone()
    }

    /// Waits until an expression is true, and fails with what was waited for.
    pub async fn until(&self, what: &str, expression: &str) {
        self.until_for(WAIT_MAX, what, expression).await;
    }

    /// The same, of what takes its time.
    pub async fn until_for(&self, most: Duration, what: &str, expression: &str) {
        let start = Instant::now();
        while !self.value::<bool>(&format!("Boolean({expression})")).await {
            assert!(start.elapsed() < most, "waited in vain until {what}: {expression}");
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// A command of the browser's own protocol.
    pub async fn cdp(&self, method: &str, parameters: Value) -> Value {
        let answer = self.browser.driver.cdp().send_raw(method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Gives the window's inside a size, also one that a real window cannot have.
    pub async fn resize(&self, (width, height): Size) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
        self.until("the window has its size", &format!("innerWidth === {width} && innerHeight === {height}")).await;
        // What was laid out for the size before is laid out and drawn anew.
        self.promise("{ await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))) }").await;
    }

    /// Says what the person's system asks for, as "prefers-color-scheme".
    pub async fn prefer(&self, features: &[(&str, &str)]) {
        let features: Vec<_> = features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.cdp("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// An element.
    pub async fn find(&self, selector: &str) -> WebElement {
        let found = self.browser.driver.find(By::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    /// What an element says, blanks pressed together.
    pub async fn text(&self, selector: &str) -> String {
        self.value(&format!("document.querySelector({selector:?}).textContent.replace(/\\s+/g, ' ').trim()")).await
    }

    /// Clicks, after scrolling as a person would: to the middle, where nothing that floats is in the way. What moves away
    /// meanwhile, as a frame does that takes its height, is aimed at again.
    pub async fn click(&self, selector: &str) {
        let start = Instant::now();
        loop {
            self.script(&format!("document.querySelector({selector:?}).scrollIntoView({{ block: 'center' }})")).await;
            match self.find(selector).await.click().await {
                Ok(()) => return,
                Err(error) => {
                    let moved = matches!(error.as_inner(), WebDriverErrorInner::ElementClickIntercepted(_));
                    assert!(moved && start.elapsed() < MOVES_MAX, "{selector}: {error}");
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Presses keys, one after the other, wherever the focus is.
    pub async fn press(&self, keys: impl Into<TypingData>) {
        let chain = self.browser.driver.action_chain().send_keys(keys);
        chain.perform().await.expect("the keys are pressed");
    }

    /// Presses a key while holding Control.
    pub async fn press_with_control(&self, key: char) {
        let chain = self.browser.driver.action_chain().key_down(Key::Control).key_down(key);
        chain.key_up(key).key_up(Key::Control).perform().await.expect("the keys are pressed");
    }

    /// Puts a text in the place of a field's.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.click(selector).await;
        self.press_with_control('a').await;
        self.press(text).await;
    }

    /// Pastes a text in the place of a field's, from the clipboard.
    pub async fn paste(&self, selector: &str, text: &str) {
        self.allow_clipboard().await;
        let text = Value::from(text);
        self.promise(&format!("{{ await navigator.clipboard.writeText({text}) }}")).await;
        self.click(selector).await;
        self.press_with_control('a').await;
        self.press_with_control('v').await;
        let same = format!("document.querySelector({selector:?}).value === {text}");
        self.until("the text is pasted", &same).await;
    }

    /// What is on the clipboard.
    pub async fn clipboard(&self) -> String {
        self.allow_clipboard().await;
        let text = self.promise("navigator.clipboard.readText()").await;
        text.as_str().expect("a text").to_owned()
    }

    /// As a person's answer to the browser's question would.
    pub async fn allow_clipboard(&self) {
        let permissions = json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
        self.cdp("Browser.grantPermissions", permissions).await;
    }

    /// Chooses a card by its name in the list.
    pub async fn choose_card(&self, name: &str) {
        self.fill("#gpu", name).await;
        let choice = format!(
            "[...document.querySelectorAll('#gpu-list [role=option]')].find((o) => o.firstElementChild?.textContent === {name:?})"
        );
        self.until("the card is in the list", &choice).await;
        let id: String = self.value(&format!("{choice}.id")).await;
        self.click(&format!("#{id}")).await;
        self.until("the list is closed", "document.querySelector('#gpu').ariaExpanded === 'false'").await;
        assert_eq!(self.value::<String>("document.querySelector('#gpu').value").await, name);
    }

    /// Every number that is shown.
    pub async fn numbers(&self) -> Numbers {
        Numbers::read(self).await
    }

    /// Whether the run fits, as the verdict says.
    pub async fn fits(&self) -> bool {
        self.value::<String>("document.querySelector('#verdict').dataset.fits").await == "true"
    }

    /// Nothing in the console, and nothing asked of anyone else.
    pub async fn assert_quiet(&self) {
        let console = self.browser.console().await;
        assert!(console.is_empty(), "the console is not empty:\n{}", console.join("\n"));
        let requests = self.browser.requests().await;
        assert!(requests.iter().any(|request| request.ends_with(".wasm")), "the log has no program: {requests:?}");
        let ours = || self.also.iter().chain([&self.address]).map(String::as_str).chain(["data:"]);
        let is_ours = |request: &&String| ours().any(|beginning| request.starts_with(beginning));
        let foreign: Vec<_> = requests.iter().filter(|request| !is_ours(request)).collect();
        assert!(foreign.is_empty(), "the page asks others: {foreign:?}");
    }

    /// Leaves a picture of a page that failed a test.
    #[expect(clippy::print_stdout, reason = "a failed test says where its picture is")]
    async fn leave_picture(&self, test: &str) {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.png"));
        if self.browser.driver.screenshot(&path).await.is_ok() {
            println!("how the page looked: {}", path.display());
        }
    }
}
