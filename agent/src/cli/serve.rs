//! `headroom serve`: opens the port, prints the page's address, and serves until a signal ends it.

mod log;
mod options;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use headroom_protocol::{Scope, event::EventKind};
use thiserror::Error;
use tokio::{runtime, task::spawn_blocking, time::timeout};

use super::{
    Exit,
    args::{InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::Command,
    pairing::{self, Invitation},
    print, set_aside,
};
use headroom_agent_core::{
    folders::{
        self,
        lock::{AgentLock, LockError},
    },
    logging, platform, random,
};
use headroom_server::{
    self as server, FILES_MAX, State,
    access::{Access, error::FileError},
    archive::Archive,
    assets::Assets,
    host::{HostOptions, HostPolicy, Scheme},
    orders::Orders,
    rig::Rig,
    run_manager,
    tls::{Tls, TlsError},
    webhook::{self, Webhook},
};
use headroom_watch::continued;
use log::{Levels, LogFormat};
use options::{FLAGS, Request};

/// Limit of threads that block on the disk. It covers the history's readers; further requests queue rather than compete
/// for one file.
const BLOCKING_THREADS: usize = 16;
/// Time limit for the history to flush.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for blocked threads after everything else has ended.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// Environment variable with the webhook address. Other users can read a command line, but not this variable.
const WEBHOOK_VARIABLE: &str = "HEADROOM_WEBHOOK";
/// Length of a session ID in bytes.
const SESSION_BYTES: usize = 8;

/// Why the server cannot start.
#[derive(Debug, Error)]
pub enum Error {
    /// The address cannot be bound.
    #[error("cannot listen on {listen}: {error}")]
    Bind {
        /// Address as given.
        listen: SocketAddr,
        /// What the system reports.
        error: io::Error,
    },
    /// The event loop, a thread or a signal handler cannot be created.
    #[error("cannot start the server: {0}")]
    Start(io::Error),
    /// There is no directory for history and tokens.
    #[error(transparent)]
    Folder(#[from] folders::Error),
    /// The training directory cannot be opened.
    #[error("cannot open the folder {} of --train: {error}", .folder.display())]
    TrainFolder {
        /// Directory as given.
        folder: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// Another agent uses the data directory, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The tokens cannot be read.
    #[error(transparent)]
    Access(#[from] FileError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The webhook address cannot be used.
    #[error(transparent)]
    Webhook(#[from] webhook::Error),
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Bind { listen, error } => match error.kind() {
                io::ErrorKind::AddrInUse => Some(format!(
                    "is `headroom serve` running already? --listen {} takes any free port",
                    SocketAddr::new(listen.ip(), 0)
                )),
                io::ErrorKind::AddrNotAvailable => Some("it has to be an address of this machine".to_owned()),
                io::ErrorKind::PermissionDenied => Some("ports below 1024 are the administrator's".to_owned()),
                _ => None,
            },
            Self::Start(_) | Self::Webhook(_) | Self::TrainFolder { .. } => None,
            Self::Folder(error) => Some(error.hint()),
            Self::Lock(error) => Some(error.hint()),
            Self::Access(error) => error.hint(),
            Self::Tls(error) => Some(error.hint()),
        }
    }
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "serve",
    summary: "Monitor GPUs and serve the web UI",
    about: "\
Monitors this machine's GPUs and serves the page. Prints the link of the page. The first
start also prints a link that pairs one browser within ten minutes. Ctrl-C ends it.",
    usage: &["headroom serve [OPTIONS]"],
    options: || shown(FLAGS),
    notes: "\
The server accepts only requests for its address, for a loopback name or for a --host. This
prevents DNS rebinding by other web pages.

Access from another machine, safest first:
  tailscale serve 8420, and --host MACHINE.TAILNET.ts.net here
  ssh -L 8420:127.0.0.1:8420 THIS-MACHINE there, and http://127.0.0.1:8420/ in its browser
  --listen 0.0.0.0:8420 with --tls-cert and --tls-key; without TLS, traffic is readable
`headroom token pair` prints a link for the next device.",
    exits: &[(0, "ended by Ctrl-C or SIGTERM"), (1, "the server cannot start for another reason")],
    examples: &["headroom serve", "headroom serve --listen 127.0.0.1:9000 --train ~/nanoGPT"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, or the address, the directory or a file is unavailable.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    request.check()?;
    let levels = Levels::chosen(request.levels.take());
    let levels =
        levels.map_err(|InvalidValue { why, meant }| UsageError::BadVariable { name: log::VARIABLE, why, meant });
    log::start(levels?, request.log_format);
    // One thread suffices for all viewers: messages are encoded once, and sent faster than many viewers can read them.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(Error::Start)?;
    let served = runtime.block_on(serve(request));
    // A disk that does not respond cannot prevent the program's end.
    runtime.shutdown_timeout(END_TIME_MAX);
    served.map(|()| Exit::Success)
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

async fn serve(request: Request) -> Result<(), super::Error> {
    // Before the signal handlers: a signal ends the wait for a named pipe that nothing writes to.
    let tls = request.tls.as_ref().map(|(certificate, key)| Tls::read(certificate, key)).transpose();
    let tls = tls.map_err(Error::Tls)?;
    let shutdown = shutdown().map_err(Error::Start)?;
    if let Some(folder) = &request.train {
        let opened = run_manager::check_folder(folder);
        opened.map_err(|error| Error::TrainFolder { folder: folder.clone(), error })?;
    }
    let folder = folders::data(request.data_dir.as_deref()).map_err(Error::Folder)?;
    let lock = AgentLock::take(&folder).map_err(Error::Lock)?;
    let access = Access::open(&folder).map_err(Error::Access)?;
    let (listen, format) = (request.listen, request.log_format);
    let listener = server::listen(listen).map_err(|error| Error::Bind { listen, error })?;
    let n_files = platform::raise_open_files(u64::from(FILES_MAX));
    let name = request.name.or_else(|| sysinfo::System::host_name().ok()).unwrap_or_else(|| "rig".to_owned());
    let webhook =
        request.webhook.or_else(|| std::env::var(WEBHOOK_VARIABLE).ok().filter(|address| !address.is_empty()));
    let posts = webhook.is_some();
    let webhook = webhook.map(|address| {
        // A failure names the host of the address only.
        Webhook::start(&address, |failure| tracing::warn!(target: logging::WEBHOOK, "{failure}"))
    });
    let rig = Rig::start(
        &folder,
        request.keep,
        &name,
        webhook.transpose().map_err(Error::Webhook)?,
        request.train.as_deref(),
        log_event,
    )
    .map_err(Error::Start)?;
    let scheme = if tls.is_some() { Scheme::Https } else { Scheme::Http };
    let address = listener.local_addr().map_err(Error::Start)?;
    let hosts = HostPolicy::of(address, HostOptions { scheme, names: request.hosts, origins: request.origins });
    let session = random::hex(SESSION_BYTES).map_err(Error::Start)?;
    let assets = Assets::embedded();
    let greeting = Greeting { address, is_encrypted: tls.is_some(), has_page: assets.has_page(), n_files };
    greet(&greeting, &hosts, &access, format)?;
    if let Some(why) = rig.run_manager.training().unavailable.filter(|_| request.train.is_some()) {
        tracing::warn!(target: logging::RUNS, "no training can be started: {why}");
    }
    if posts && rig.store.settings().is_ok_and(|settings| settings.alerts.is_empty()) {
        note(format, "no alert is set: the webhook gets nothing until one is, on the rig's page\n");
    }
    // Without this thread, the next `headroom runs` or `headroom watch` continues the runs.
    let continued = continued::OrphanSearch::new(&folder).map_err(Error::Start)?;
    let following = access.clone().follow_aside().map_err(Error::Start)?;
    let asked: (Arc<dyn Archive>, Arc<dyn Orders>) = (Arc::new(rig.store.clone()), Arc::new(rig.run_manager.clone()));
    let state = State::new(assets, hosts, access, rig.hub.clone(), asked, (name, session));
    server::serve(listener, Arc::new(state), tls, shutdown).await;
    drop((following, continued));
    let flushed = timeout(FLUSH_TIME_MAX, spawn_blocking(move || drop(rig))).await;
    // Held until the history is written: the next agent writes to the same file.
    drop(lock);
    if flushed.is_err() {
        tracing::error!(target: logging::HISTORY, "cannot write the last data to history within {FLUSH_TIME_MAX:?}");
    }
    note(format, "stopped\n");
    Ok(())
}

/// Logs events that concern the operator of the machine.
fn log_event(what: &EventKind) {
    match what {
        EventKind::HistoryPaused { reason } => {
            tracing::warn!(target: logging::HISTORY, "history is paused: {reason}; live data continues");
        }
        // A warning, so that the end of a pause is visible wherever its beginning is.
        EventKind::HistoryResumed => tracing::warn!(target: logging::HISTORY, "history is recorded again"),
        EventKind::GpuLost { gpu } => tracing::warn!(target: logging::TELEMETRY, gpu, "a GPU stopped responding"),
        EventKind::GpuRecovered { gpu } => tracing::warn!(target: logging::TELEMETRY, gpu, "a GPU responds again"),
        EventKind::GpuXid { gpu, xid } => {
            tracing::warn!(target: logging::TELEMETRY, gpu, xid, "the driver reported an error of a GPU");
        }
        EventKind::ClockSet { from_ms, to_ms } => {
            tracing::info!(target: logging::SERVE, from_ms, to_ms, "the system clock was set");
        }
        EventKind::SettingsChanged => tracing::info!(target: logging::ALERTS, "the settings were changed"),
        what => {
            if let Some(said) = set_aside::said(what) {
                let lines: Vec<&str> = said.trim_start_matches("headroom: ").lines().map(str::trim).collect();
                tracing::warn!(target: logging::HISTORY, "{}", lines.join("; "));
            }
        }
    }
}

/// Prints a note. In a JSON log it is a log event.
fn note(format: LogFormat, text: &str) {
    match format {
        LogFormat::Text => print::note(text),
        LogFormat::Json => text.lines().for_each(|line| tracing::info!(target: logging::SERVE, "{line}")),
    }
}

/// Prints a warning. In a JSON log it is a log event.
fn warn(format: LogFormat, text: &str) {
    match format {
        LogFormat::Text => print::error(text),
        LogFormat::Json => text.lines().for_each(|line| tracing::warn!(target: logging::SERVE, "{line}")),
    }
}

/// Facts for the startup message.
struct Greeting {
    address: SocketAddr,
    is_encrypted: bool,
    has_page: bool,
    n_files: u64,
}

/// Prints the link and the startup message. Invites a browser at the first start.
fn greet(greeting: &Greeting, hosts: &HostPolicy, access: &Access, format: LogFormat) -> Result<(), super::Error> {
    let link = hosts.link();
    let far_link = hosts.far_link(local_address());
    access.keep_links(&link, far_link.as_deref()).map_err(Error::Access)?;
    let invitation = if !access.is_new() {
        String::new()
    } else if format == LogFormat::Json || (std::env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal())
    {
        // A log keeps this output, so it must not contain a pairing code.
        "no device is paired yet: `headroom token pair` prints a link that lets one in\n".to_owned()
    } else {
        let code = access.new_code(Scope::Control).map_err(Error::Access)?;
        let invitation = Invitation { link: &link, far_link: far_link.as_deref(), code: &code };
        format!(
            "no device is paired yet; this link lets one in, once, within ten minutes:\n  {}\n{}",
            invitation.here(),
            invitation.for_phones(pairing::draws())
        )
    };
    // The server also runs with a closed standard output.
    match print::data(&format!("{link}\n")) {
        Err(error) if !error.is_closed_pipe() => return Err(error.into()),
        _ => {
            // `--quiet` hides notes, not warnings.
            warn(format, &greeting.warnings());
            note(format, &(greeting.text() + &invitation));
        }
    }
    Ok(())
}

impl Greeting {
    fn text(&self) -> String {
        let reach = if self.address.ip().is_loopback() {
            "only this machine can open it".to_owned()
        } else {
            format!("every machine that reaches {} can open it", self.address.ip())
        };
        format!("serving the page; {reach}. Ctrl-C ends it\n")
    }

    fn warnings(&self) -> String {
        let open = if self.address.ip().is_loopback() || self.is_encrypted {
            String::new()
        } else {
            format!(
                "warning: {} without TLS: tokens and everything the page shows cross the network unencrypted; \
                 use --tls-cert and --tls-key, or listen on 127.0.0.1 and connect through a tunnel\n",
                self.address
            )
        };
        let page = if self.has_page {
            ""
        } else {
            "this headroom was built without the page: `cargo xtask run` in its sources builds both\n"
        };
        let files = if self.n_files < u64::from(FILES_MAX) {
            format!("the system allows {} open files, fewer than the most viewers need\n", self.n_files)
        } else {
            String::new()
        };
        format!("{page}{files}{open}")
    }
}

/// Address of this machine in its network: the source address of a connection to another network. Sends nothing.
fn local_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // An address reserved for documentation.
    socket.connect(("192.0.2.1", 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// Completes when a signal asks the program to end. Handlers are in place on return, so no signal is missed.
fn shutdown() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        // Without a handler Ctrl-C ends the program at once, which is acceptable.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_door_is_said() {
        let text = |address: &str, has_page, n_files| {
            let address = address.parse().expect("an address");
            let greeting = Greeting { address, is_encrypted: false, has_page, n_files };
            greeting.warnings() + &greeting.text()
        };
        let everywhere = text("0.0.0.0:1", true, u64::MAX);
        assert!(everywhere.contains("every machine") && !everywhere.contains("open files"), "{everywhere}");
        let here = text("127.0.0.1:1", false, 1024);
        assert!(here.contains("only this machine") && here.contains("cargo xtask run"), "{here}");
        assert!(here.contains("1024 open files"), "{here}");
    }
}
