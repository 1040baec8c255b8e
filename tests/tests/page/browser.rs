//! A headless Chromium of its own for each test, gone with it whatever happens.

use crate::means::Means;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};
use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver};

/// No sandbox: in a container there is rarely one to be had, and the only page opened is ours. One process for the frames
/// of all sites: the log holds no requests of a frame that has a process of its own.
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
/// A browser that does not go by itself within this is killed.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// The browser. The session is before the driver, as fields are dropped in order.
#[derive(Debug)]
pub struct Browser {
    /// The session.
    pub driver: WebDriver,
    _chromedriver: Chromedriver,
}

impl Browser {
    /// Starts one with a new, empty profile, and these flags besides.
    pub async fn start(means: &Means, flags: &[&str]) -> Self {
        let chromedriver = Chromedriver::start(means);
        let mut wanted = DesiredCapabilities::chrome();
        wanted.set_binary(&means.chromium.to_string_lossy()).expect("a path");
        for flag in FLAGS.iter().chain(flags) {
            wanted.add_arg(flag).expect("a flag");
        }
        // "performance" holds every request that a page makes, whichever of its windows makes it.
        for log in ["browser", "performance"] {
            wanted.set_logging_prefs(log, LoggingPrefsLogLevel::All).expect("a log");
        }
        let address = format!("http://127.0.0.1:{}", chromedriver.port);
        let driver = WebDriver::new(address, wanted).await.expect("Chromium starts");
        Self { driver, _chromedriver: chromedriver }
    }

    /// What a page wrote into its console since the last call, and what the browser has against it.
    pub async fn console(&self) -> Vec<String> {
        let entries = self.driver.browser_log().await.expect("a log");
        // The browser writes that one itself wherever WebGPU finds no GPU, whatever the page makes of it.
        let entries = entries.into_iter().filter(|entry| !entry.message.ends_with("No available adapters."));
        entries.map(|entry| format!("{}: {}", entry.level, entry.message)).collect()
    }

    /// Every address that was asked for since the last call.
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
    fn start(means: &Means) -> Self {
        let mut command = Command::new(&means.chromedriver);
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("chromedriver runs");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| port_in(&line));
        Self { process, port: port.expect("chromedriver prints its port") }
    }

    /// Asks it to close its browser and itself, which killing it would leave running.
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

/// "ChromeDriver was started successfully on port 41234."
fn port_in(line: &str) -> Option<u16> {
    line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
}

#[test]
fn the_port_is_read_from_what_chromedriver_prints() {
    assert_eq!(port_in("ChromeDriver was started successfully on port 41234."), Some(41234));
    assert_eq!(port_in("Starting ChromeDriver 156.0.8078.79 on port 0"), None);
}
