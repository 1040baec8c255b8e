//! A headless Chromium for each test, which always ends with the test.

use crate::environment::Means;
use fantoccini::{
    Client, ClientBuilder,
    error::CmdError,
    wd::{Capabilities, WebDriverCompatibleCommand},
};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Chromium's flags. A sandbox is rarely available in a container, and only Headroom's pages are opened. All sites'
/// frames share one process, because the log lacks the requests of a frame in another process. So do all pages: a process
/// per page takes a third more of a test's CPU time, as each starts V8 and compiles the program again. Transitions draw
/// frames that no test reads: without them, the tests of the GPU field take 47 s of CPU time instead of 54 s.
const FLAGS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    "--force-prefers-reduced-motion",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
/// Attempts to start ChromeDriver.
const START_ATTEMPTS: u32 = 5;
/// Timeout after which the browser is killed.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// A browser session. `driver` is declared before `_chromedriver`, as fields are dropped in order.
#[derive(Debug)]
pub struct Browser {
    /// The WebDriver session.
    pub driver: Client,
    _chromedriver: Chromedriver,
}

impl Browser {
    /// Starts a browser with a new, empty profile and additional flags.
    pub async fn start(means: &Means, flags: &[&str]) -> Self {
        let chromedriver = Chromedriver::start(means);
        let flags: Vec<_> = FLAGS.iter().chain(flags).collect();
        // The "performance" log holds every request of a page, from each of its windows.
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": means.chromium, "args": flags },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let wanted: Capabilities = wanted.as_object().expect("an object").clone();
        let address = format!("http://127.0.0.1:{}", chromedriver.port);
        // Without it each command waits 40 ms for the acknowledgement of its first packet.
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let connected = ClientBuilder::new(connector).capabilities(wanted).connect(&address).await;
        let driver = connected.expect("Chromium starts");
        Self { driver, _chromedriver: chromedriver }
    }

    /// Returns the console messages and the browser's own complaints since the last call.
    pub async fn console(&self) -> Vec<String> {
        let entries = self.log("browser").await;
        let entries = entries.iter().map(|entry| (&entry["level"], entry["message"].as_str().unwrap_or_default()));
        // The browser logs this itself if WebGPU finds no GPU, even if the page handles it.
        let entries = entries.filter(|(_, message)| !message.ends_with("No available adapters."));
        entries.map(|(level, message)| format!("{level}: {message}")).collect()
    }

    /// Returns every address requested since the last call.
    pub async fn requests(&self) -> Vec<String> {
        let entries = self.log("performance").await;
        let events = entries.iter().filter_map(|entry| serde_json::from_str::<Value>(entry["message"].as_str()?).ok());
        let sent = events.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| Some(event["message"]["params"]["request"]["url"].as_str()?.to_owned())).collect()
    }

    /// Closes the browser and its session.
    ///
    /// ChromeDriver kills the process that it started. That may be a script, as Debian's `chromium-headless-shell`, which
    /// leaves the browser running. Therefore the browser closes itself first.
    pub async fn close(&self) {
        // The answers may be lost with the browser.
        let _ = self.cdp("Browser.close", json!({})).await;
        let _ = self.driver.clone().close().await;
    }

    /// Sends a command of the Chrome DevTools Protocol, and returns its result.
    pub async fn cdp(&self, method: &str, parameters: Value) -> Result<Value, CmdError> {
        let body = json!({ "cmd": method, "params": parameters });
        self.driver.issue_cmd(ChromeCommand { path: "goog/cdp/execute", body }).await
    }

    /// Returns a log's entries since the last call.
    async fn log(&self, kind: &str) -> Vec<Value> {
        let command = ChromeCommand { path: "se/log", body: json!({ "type": kind }) };
        let entries = self.driver.issue_cmd(command).await.expect("a log");
        serde_json::from_value(entries).expect("entries")
    }
}

/// A command of ChromeDriver beyond the WebDriver standard.
#[derive(Debug)]
struct ChromeCommand {
    /// Path below the session's.
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

#[derive(Debug)]
struct Chromedriver {
    process: Child,
    port: u16,
}

impl Chromedriver {
    /// Starts ChromeDriver on a free port.
    ///
    /// With `--port=0`, ChromeDriver takes a free IPv4 port and exits if another process has that port on IPv6
    /// ("IPv6 port not available"). A new attempt takes another port.
    fn start(means: &Means) -> Self {
        let mut printed = String::new();
        for _ in 0..START_ATTEMPTS {
            let mut command = Command::new(&means.chromedriver);
            command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut process = command.spawn().expect("chromedriver runs");
            for line in BufReader::new(process.stdout.take().expect("piped")).lines().map_while(Result::ok) {
                if let Some(port) = port_in(&line) {
                    return Self { process, port };
                }
                printed += &format!("{line}\n");
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("chromedriver does not start in {START_ATTEMPTS} attempts: {printed}")
    }

    /// Requests a shutdown. Killing ChromeDriver would leave its browser running.
    fn shut_down(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(SHUTDOWN_MAX))?;
        stream.write_all(b"GET /shutdown HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new()).map(|_| ())
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        let _ = self.shut_down();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Parses the port of a line such as "ChromeDriver was started successfully on port 41234."
fn port_in(line: &str) -> Option<u16> {
    line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
}

#[test]
fn the_port_is_read_from_what_chromedriver_prints() {
    assert_eq!(port_in("ChromeDriver was started successfully on port 41234."), Some(41234));
    assert_eq!(port_in("Starting ChromeDriver 156.0.8078.79 on port 0"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn a_browser_ends_with_its_session() {
    let Some(means) = Means::of("a_browser_ends_with_its_session") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let browser = Browser::start(&means, &[]).await;
        let folder = browser.driver.capabilities().expect("capabilities")["chrome"]["userDataDir"].clone();
        let folder = folder.as_str().expect("a folder").to_owned();
        let runs = || {
            let processes = std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
            let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
            lines.filter(|line| String::from_utf8_lossy(line).contains(&format!("--user-data-dir={folder}"))).count()
        };
        assert!(runs() > 0, "no process has the profile {folder}");
        browser.close().await;
        let start = std::time::Instant::now();
        while runs() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "{} processes of the browser still run", runs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
