//! A headless Chromium for each test, which always ends with the test.

use crate::environment::Means;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};
use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver};

/// Chromium's flags. A sandbox is rarely available in a container, and only Headroom's pages are opened. All sites'
/// frames share one process, because the log lacks the requests of a frame in another process.
const FLAGS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-site-isolation-trials",
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
    pub driver: WebDriver,
    _chromedriver: Chromedriver,
}

impl Browser {
    /// Starts a browser with a new, empty profile and additional flags.
    pub async fn start(means: &Means, flags: &[&str]) -> Self {
        let chromedriver = Chromedriver::start(means);
        let mut wanted = DesiredCapabilities::chrome();
        wanted.set_binary(&means.chromium.to_string_lossy()).expect("a path");
        for flag in FLAGS.iter().chain(flags) {
            wanted.add_arg(flag).expect("a flag");
        }
        // The "performance" log holds every request of a page, from each of its windows.
        for log in ["browser", "performance"] {
            wanted.set_logging_prefs(log, LoggingPrefsLogLevel::All).expect("a log");
        }
        let address = format!("http://127.0.0.1:{}", chromedriver.port);
        let driver = WebDriver::new(address, wanted).await.expect("Chromium starts");
        Self { driver, _chromedriver: chromedriver }
    }

    /// Returns the console messages and the browser's own complaints since the last call.
    pub async fn console(&self) -> Vec<String> {
        let entries = self.driver.browser_log().await.expect("a log");
        // The browser logs this itself if WebGPU finds no GPU, even if the page handles it.
        let entries = entries.into_iter().filter(|entry| !entry.message.ends_with("No available adapters."));
        entries.map(|entry| format!("{}: {}", entry.level, entry.message)).collect()
    }

    /// Returns every address requested since the last call.
    pub async fn requests(&self) -> Vec<String> {
        let entries = self.driver.get_log("performance").await.expect("a log");
        let events = entries.iter().filter_map(|entry| serde_json::from_str::<Value>(&entry.message).ok());
        let sent = events.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| Some(event["message"]["params"]["request"]["url"].as_str()?.to_owned())).collect()
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
