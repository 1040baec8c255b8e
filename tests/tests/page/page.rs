//! Drives the page in a browser: user actions, and what the page shows.

use crate::{browser::Browser, environment::Means, numbers::Numbers};
use fantoccini::{
    Locator,
    actions::{InputSource, KeyAction, KeyActions},
    elements::Element,
    error::{CmdError, ErrorStatus},
    key::Key,
};
use headroom_tests::server::Server;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Timeout for anything to appear. Far above the usual time, because machines are shared.
const WAIT_MAX: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(40);

/// Timeout for a click on an element that moves or is covered.
const MOVES_MAX: Duration = Duration::from_secs(20);

/// A window's width and height in CSS pixels.
pub type Size = (u32, u32);
/// A laptop's window.
pub const LAPTOP: Size = (1280, 800);
/// A phone's window.
pub const PHONE: Size = (390, 844);

/// An open page with its browser and its server.
pub struct Page {
    /// The browser that shows the page.
    pub browser: Browser,
    /// The page's base URL, with a trailing slash.
    pub address: String,
    /// URL prefixes of other hosts that the page may request: those of Headroom's files on another host.
    also: Vec<String>,
    server: Option<Server>,
    /// Path of the `headroom` binary, to compare the page with the command line.
    pub headroom: PathBuf,
}

/// Opens the page as `headroom serve` serves it and runs `story`. Afterwards checks the console and the network log.
pub fn tell(test: &str, story: impl AsyncFnOnce(&Page)) {
    let Some(means) = Means::of(test) else { return };
    let server = Server::start(&means.headroom);
    let address = server.link().to_owned();
    tell_at(test, &means, &address, Some(server), story);
}

/// Runs `story` as [`tell`] does, without a page that is opened before. It saves the start of the calculator in a test of
/// another page.
pub fn tell_unopened(test: &str, story: impl AsyncFnOnce(&Page)) {
    tell_with(test, &[], story);
}

/// Runs `story` as [`tell_unopened`] does, in a browser with extra flags.
pub fn tell_with(test: &str, flags: &[&str], story: impl AsyncFnOnce(&Page)) {
    let Some(means) = Means::of(test) else { return };
    let server = Server::start(&means.headroom);
    let address = server.link().to_owned();
    tell_in(test, &means, flags, &address, &[], Some(server), story);
}

/// Runs `story` as [`tell`] does, on a page at any address.
pub fn tell_at(test: &str, means: &Means, address: &str, server: Option<Server>, story: impl AsyncFnOnce(&Page)) {
    tell_of(test, means, address, &[], server, async |page| {
        page.open("").await;
        story(page).await;
    });
}

/// Runs `story` as [`tell_at`] does, on a host page that is not opened before `story`. The page may also request the
/// addresses in `also`.
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
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            page.resize(LAPTOP).await;
            story(&page).await;
            page.assert_quiet().await;
        });
    }));
    if outcome.is_err() {
        runtime.block_on(page.leave_picture(test));
    }
    let Page { browser, server, .. } = page;
    runtime.block_on(browser.close());
    drop((browser, server, runtime));
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}

impl Page {
    /// Opens the calculator, with a fragment if it is not empty, and waits for the verdict.
    pub async fn open(&self, fragment: &str) {
        let hash = if fragment.is_empty() { "" } else { "#" };
        self.open_link(&format!("{}calculator.html{hash}{fragment}", self.address)).await;
    }

    /// Opens a link and waits for the verdict and for the list of tensors, which loads later.
    pub async fn open_link(&self, link: &str) {
        self.goto(link).await;
        self.until("the verdict is there", "document.querySelector('#verdict[data-fits]')").await;
        self.until("the tensors are listed", "!document.querySelector('#tensors-body:empty')").await;
    }

    /// Opens Diagnose without a message.
    pub async fn open_diagnose(&self) {
        self.goto(&format!("{}diagnose.html", self.address)).await;
        self.until("the field is there", "document.querySelector('#message')").await;
    }

    /// Opens an address, and waits until it is loaded.
    pub async fn goto(&self, address: &str) {
        self.browser.driver.goto(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
    }

    /// Goes one step back in the browser's history.
    ///
    /// A script with `history.back()` may go back twice: ChromeDriver repeats a script that a navigation interrupts.
    pub async fn back(&self) {
        self.browser.driver.back().await.expect("there is a step back");
    }

    /// Goes one step forward in the browser's history.
    pub async fn forward(&self) {
        self.browser.driver.forward().await.expect("there is a step forward");
    }

    /// Returns the plan of the command line for the same configuration. A run that does not fit has a plan too.
    pub fn command_line(&self, config: &Path, arguments: &[&str]) -> Value {
        let mut command = std::process::Command::new(&self.headroom);
        let output = command.arg("plan").arg(config).args(arguments).arg("--json").output().expect("headroom runs");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Runs a script and returns its result.
    pub async fn script(&self, script: &str) -> Value {
        let result = self.browser.driver.execute(script, Vec::new()).await;
        result.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Evaluates a JavaScript expression.
    pub async fn value<T: DeserializeOwned>(&self, expression: &str) -> T {
        let value = self.script(&format!("return {expression}")).await;
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{expression} is {value}: {error}"))
    }

    /// Evaluates an expression and awaits its promise in the browser.
    pub async fn promise(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             (async () => {expression})().then((value) => done({{ value }}), (error) => done({{ error: `${{error}}` }}))"
        );
        let result = self.browser.driver.execute_async(&script, Vec::new()).await;
        let result = result.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert!(result.get("error").is_none(), "{expression}: {result}");
        result["value"].clone()
    }

    /// Waits until an expression is true. An expression that throws, such as one on an element that the page has not
    /// yet, is not true. Panics with `what` after the timeout.
    pub async fn until(&self, what: &str, expression: &str) {
        self.until_for(WAIT_MAX, what, expression).await;
    }

    /// Waits like [`Self::until`], with a timeout of `most`.
    pub async fn until_for(&self, most: Duration, what: &str, expression: &str) {
        let start = Instant::now();
        // The page's exceptions are part of the message: a misspelt expression never becomes true.
        let script = format!("try {{ return Boolean({expression}) }} catch (error) {{ return `${{error}}` }}");
        loop {
            let value = self.script(&script).await;
            if value == true {
                return;
            }
            assert!(start.elapsed() < most, "timed out waiting until {what}: {expression:.400} is {value}");
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Waits until an expression is a text that contains `words`, and returns the text. White space counts as one blank.
    /// Panics with the last text after the timeout.
    pub async fn until_says(&self, expression: &str, words: &str) -> String {
        let start = Instant::now();
        let script = format!(
            "try {{ return `${{{expression} ?? ''}}`.replace(/\\s+/g, ' ') }} catch (error) {{ return `${{error}}` }}"
        );
        loop {
            let value = self.script(&script).await;
            let text = value.as_str().unwrap_or_default();
            if text.contains(words) {
                return text.to_owned();
            }
            assert!(start.elapsed() < WAIT_MAX, "waited in vain for {words:?}: {expression} is {text:?}");
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Sends a command of the Chrome DevTools Protocol.
    pub async fn cdp(&self, method: &str, parameters: Value) -> Value {
        let answer = self.browser.cdp(method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sets the viewport's size, which may be one that a real window cannot have.
    pub async fn resize(&self, (width, height): Size) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
        self.until("the window has its size", &format!("innerWidth === {width} && innerHeight === {height}")).await;
        // Two frames pass before everything of the previous size is laid out and drawn again.
        self.promise("{ await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))) }").await;
    }

    /// Emulates media features such as `prefers-color-scheme`.
    pub async fn prefer(&self, features: &[(&str, &str)]) {
        let features: Vec<_> = features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.cdp("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Returns the element that matches a CSS selector.
    pub async fn find(&self, selector: &str) -> Element {
        let found = self.browser.driver.find(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    /// Enters the frame of a calculator's element, after it is made.
    pub async fn enter_frame_of(&self, selector: &str) {
        let frame = format!("document.querySelector({selector:?})?.shadowRoot?.querySelector('iframe')");
        self.until("the frame is made", &frame).await;
        let root = self.find(selector).await.shadow_root().await.expect("a shadow root");
        let frame = root.find(Locator::Css("iframe")).await.expect("a frame");
        frame.enter_frame().await.expect("the frame is entered");
    }

    /// Leaves a frame for the page around it.
    pub async fn leave_frame(&self) {
        self.browser.driver.enter_parent_frame().await.expect("a page around the frame");
    }

    /// Returns an element's text, with runs of whitespace collapsed.
    pub async fn text(&self, selector: &str) -> String {
        self.value(&format!("document.querySelector({selector:?}).textContent.replace(/\\s+/g, ' ').trim()")).await
    }

    /// Scrolls an element to the middle of the window, where nothing floating covers it, and clicks it. Tries again if
    /// the element moves meanwhile, as when a frame takes its height.
    pub async fn click(&self, selector: &str) {
        let start = Instant::now();
        loop {
            self.script(&format!("document.querySelector({selector:?}).scrollIntoView({{ block: 'center' }})")).await;
            match self.find(selector).await.click().await {
                Ok(()) => return,
                Err(error) => {
                    let moved = matches!(&error, CmdError::Standard(error) if error.error == ErrorStatus::ElementClickIntercepted);
                    assert!(moved && start.elapsed() < MOVES_MAX, "{selector}: {error}");
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Presses keys in sequence on the focused element: characters, or a [`Key`].
    pub async fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|value| [KeyAction::Down { value }, KeyAction::Up { value }]);
        self.perform(strokes).await;
    }

    /// Presses a key while holding Control.
    pub async fn press_with_control(&self, key: char) {
        let control = char::from(Key::Control);
        let pressed = [KeyAction::Down { value: control }, KeyAction::Down { value: key }];
        self.perform(pressed.into_iter().chain([KeyAction::Up { value: key }, KeyAction::Up { value: control }])).await;
    }

    async fn perform(&self, actions: impl IntoIterator<Item = KeyAction>) {
        let keyboard = KeyActions::new("keyboard".to_owned());
        let actions = actions.into_iter().fold(keyboard, InputSource::then);
        self.browser.driver.perform_actions(actions).await.expect("the keys are pressed");
    }

    /// Replaces a field's text by typing.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.click(selector).await;
        self.press_with_control('a').await;
        self.press(text).await;
    }

    /// Replaces a field's text by pasting from the clipboard, and waits until the field shows it.
    pub async fn paste(&self, selector: &str, text: &str) {
        self.start_paste(selector, text).await;
        let same = format!("document.querySelector({selector:?}).value === {}", Value::from(text));
        self.until("the text is pasted", &same).await;
    }

    /// Pastes a text that the field may shorten or rewrite.
    pub async fn start_paste(&self, selector: &str, text: &str) {
        self.allow_clipboard().await;
        self.promise(&format!("{{ await navigator.clipboard.writeText({}) }}", Value::from(text))).await;
        self.click(selector).await;
        self.press_with_control('a').await;
        self.press_with_control('v').await;
    }

    /// Returns the clipboard's text.
    pub async fn clipboard(&self) -> String {
        self.allow_clipboard().await;
        let text = self.promise("navigator.clipboard.readText()").await;
        text.as_str().expect("a text").to_owned()
    }

    /// Grants access to the clipboard, as a user would when the browser asks.
    pub async fn allow_clipboard(&self) {
        let permissions = json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
        self.cdp("Browser.grantPermissions", permissions).await;
    }

    /// Chooses a GPU by its name in the list. The name arrives in one step, as from an input method: the page plans
    /// after each key, so that typing a name takes a second.
    pub async fn choose_gpu(&self, name: &str) {
        self.click("#gpu").await;
        self.press_with_control('a').await;
        self.cdp("Input.insertText", json!({ "text": name })).await;
        let choice = format!(
            "[...document.querySelectorAll('#gpu-list [role=option]')].find((o) => o.firstElementChild?.textContent === {name:?})"
        );
        self.until("the GPU is in the list", &choice).await;
        let id: String = self.value(&format!("{choice}.id")).await;
        self.click(&format!("#{id}")).await;
        self.until("the list is closed", "document.querySelector('#gpu').ariaExpanded === 'false'").await;
        assert_eq!(self.value::<String>("document.querySelector('#gpu').value").await, name);
    }

    /// Returns every number that the page shows.
    pub async fn numbers(&self) -> Numbers {
        Numbers::read(self).await
    }

    /// Returns whether the run fits according to the verdict.
    pub async fn fits(&self) -> bool {
        self.value::<String>("document.querySelector('#verdict').dataset.fits").await == "true"
    }

    /// Checks that no text of the page is missing, that the console is empty, and that the page requested nothing from
    /// other hosts.
    pub async fn assert_quiet(&self) {
        let has_missing_text: bool = self.value("document.body.textContent.includes('\\uFFFD')").await;
        assert!(!has_missing_text, "a text is not among those of the page");
        let console = self.browser.console().await;
        assert!(console.is_empty(), "the console is not empty:\n{}", console.join("\n"));
        let requests = self.browser.requests().await;
        assert!(requests.iter().any(|request| request.ends_with(".wasm")), "the log has no program: {requests:?}");
        let ours = || self.also.iter().chain([&self.address]).map(String::as_str).chain(["data:"]);
        let is_ours = |request: &&String| ours().any(|beginning| request.starts_with(beginning));
        let foreign: Vec<_> = requests.iter().filter(|request| !is_ours(request)).collect();
        assert!(foreign.is_empty(), "the page requests other origins: {foreign:?}");
    }

    /// Saves a screenshot of the page of a failed test.
    #[expect(clippy::print_stdout, reason = "a failed test says where its picture is")]
    async fn leave_picture(&self, test: &str) {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.png"));
        let picture = self.browser.driver.screenshot().await;
        if picture.is_ok_and(|picture| std::fs::write(&path, picture).is_ok()) {
            println!("how the page looked: {}", path.display());
        }
    }
}
