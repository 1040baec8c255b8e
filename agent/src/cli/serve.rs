//! `headroom serve`: opens the port, says where the page is, and serves until it is told to stop.

mod options;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use headroom_shared::protocol::{Scope, event::What};
use thiserror::Error;
use tokio::{runtime, task::spawn_blocking, time::timeout};

use super::{
    Exit,
    args::{Parsed, UsageError, Word, parse, refusal, shown},
    command::Command,
    pairing::{self, Invitation},
    print, set_aside,
};
use crate::{
    folders::{
        self,
        lock::{AgentLock, LockError},
    },
    platform, random,
    rig::Rig,
    server::{
        self, FILES_MAX, State,
        access::{Access, file::FileError},
        archive::Archive,
        assets::Assets,
        host::{Given, Hosts, Scheme},
        orders::Orders,
        tls::{Tls, TlsError},
    },
    webhook::{self, Webhook},
};
use options::{FLAGS, Request};

/// Threads that may wait for the disk at once. History's readers are some; a queue before them is better than a
/// hundred readers of one file.
const BLOCKING_THREADS: usize = 16;
/// Time for history to write what is left.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for threads that still wait for the disk when everything else has ended.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// What names the address that alerts are posted to, where no option does: what stands in a command line, others read.
const WEBHOOK_VARIABLE: &str = "HEADROOM_WEBHOOK";
/// Bytes that make a start's number.
const SESSION_BYTES: usize = 8;

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("cannot listen on {listen}: {error}")]
    Bind {
        /// As given.
        listen: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no event loop, no thread or no signals.
    #[error("cannot start the server: {0}")]
    Start(io::Error),
    /// There is no place for history and tokens.
    #[error(transparent)]
    Folder(#[from] folders::Error),
    /// Another agent uses the data folder, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Tokens cannot be read.
    #[error(transparent)]
    Access(#[from] FileError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Nothing can be posted to the owner's address.
    #[error(transparent)]
    Webhook(#[from] webhook::Error),
}

impl Error {
    /// What to try instead.
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
            Self::Start(_) | Self::Webhook(_) => None,
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
Monitors this machine's GPUs and serves the page. Prints the page's link; at the first
start also one that pairs a browser, valid once, for ten minutes. Ctrl-C ends it.",
    usage: &["headroom serve [OPTIONS]"],
    options: || shown(FLAGS),
    notes: "\
Only requests whose Host is this address, a name of this machine's loopback or a --host
are answered, so that a foreign page cannot reach the server under a name of its own.

From another machine, the safest first:
  tailscale serve 8420, and --host MACHINE.TAILNET.ts.net here
  ssh -L 8420:127.0.0.1:8420 THIS-MACHINE there, and http://127.0.0.1:8420/ in its browser
  --listen 0.0.0.0:8420 with --tls-cert and --tls-key; without TLS, the network can read along
`headroom token pair` prints a link for the next device.",
    exits: &[(0, "ended by Ctrl-C or SIGTERM"), (1, "the server cannot start for another reason")],
    examples: &["headroom serve", "headroom serve --listen 127.0.0.1:9000 --train ~/nanoGPT"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or the address, the folder or a file cannot be had.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == Parsed::Help {
        return COMMAND.print_help();
    }
    request.check()?;
    // One thread for all viewers: what they get is encoded once, and sent faster than a card's worth of them can read.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(Error::Start)?;
    let served = runtime.block_on(serve(request));
    // A disk that does not answer keeps nobody from ending the program.
    runtime.shutdown_timeout(END_TIME_MAX);
    served.map(|()| Exit::Success)
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

async fn serve(request: Request) -> Result<(), super::Error> {
    let shutdown = shutdown().map_err(Error::Start)?;
    let tls = request.tls.as_ref().map(|(certificate, key)| Tls::read(certificate, key)).transpose();
    let tls = tls.map_err(Error::Tls)?;
    let folder = folders::data(request.data_dir.as_deref()).map_err(Error::Folder)?;
    let lock = AgentLock::take(&folder).map_err(Error::Lock)?;
    let access = Access::open(&folder).map_err(Error::Access)?;
    let listen = request.listen;
    let listener = server::listen(listen).map_err(|error| Error::Bind { listen, error })?;
    let n_files = platform::raise_open_files(u64::from(FILES_MAX));
    let name = request.name.or_else(|| sysinfo::System::host_name().ok()).unwrap_or_else(|| "rig".to_owned());
    let webhook =
        request.webhook.or_else(|| std::env::var(WEBHOOK_VARIABLE).ok().filter(|address| !address.is_empty()));
    let posts = webhook.is_some();
    let webhook = webhook.map(|address| Webhook::start(&address, |failure| print::error(&format!("{failure}\n"))));
    let rig = Rig::start(
        &folder,
        request.keep,
        &name,
        webhook.transpose().map_err(Error::Webhook)?,
        request.train.as_deref(),
        |what| {
            let said = match what {
                What::HistoryPaused { reason } => {
                    Some(format!("history is paused: {reason}; what is measured is shown live all the same\n"))
                }
                What::HistoryResumed => Some("history is kept again\n".to_owned()),
                what => set_aside::said(what),
            };
            if let Some(said) = said {
                print::error(&said);
            }
        },
    )
    .map_err(Error::Start)?;
    let scheme = if tls.is_some() { Scheme::Https } else { Scheme::Http };
    let address = listener.local_addr().map_err(Error::Start)?;
    let hosts = Hosts::of(address, Given { scheme, names: request.hosts, origins: request.origins });
    let session = random::hex(SESSION_BYTES).map_err(Error::Start)?;
    let assets = Assets::embedded();
    let greeting = Greeting { address, is_encrypted: tls.is_some(), has_page: assets.has_page(), n_files };
    greet(&greeting, &hosts, &access)?;
    if let Some(why) = rig.foreman.training().unavailable.filter(|_| request.train.is_some()) {
        print::error(&format!("no training can be started: {why}\n"));
    }
    if posts && rig.store.settings().is_ok_and(|settings| settings.alerts.is_empty()) {
        print::note("no alert is set: the webhook gets nothing until one is, on the rig's page\n");
    }
    let following = access.clone().follow_aside().map_err(Error::Start)?;
    let asked: (Arc<dyn Archive>, Arc<dyn Orders>) = (Arc::new(rig.store.clone()), Arc::new(rig.foreman.clone()));
    let state = State::new(assets, hosts, access, rig.hub.clone(), asked, (name, session));
    server::serve(listener, Arc::new(state), tls, shutdown).await;
    drop(following);
    let flushed = timeout(FLUSH_TIME_MAX, spawn_blocking(move || drop(rig))).await;
    // Held until history is written: the next agent writes to the same file.
    drop(lock);
    if flushed.is_err() {
        print::error("history did not take everything in time\n");
    }
    print::note("stopped\n");
    Ok(())
}

/// What a person is told at the start.
struct Greeting {
    address: SocketAddr,
    is_encrypted: bool,
    has_page: bool,
    n_files: u64,
}

/// Prints the link, and what else there is to know. At the first start a browser is invited.
fn greet(greeting: &Greeting, hosts: &Hosts, access: &Access) -> Result<(), super::Error> {
    let link = hosts.link();
    let far_link = hosts.far_link(local_address());
    access.keep_links(&link, far_link.as_deref()).map_err(Error::Access)?;
    let invitation = if !access.is_new() {
        String::new()
    } else if std::env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal() {
        // What is said here is kept by the system's log, where a code that lets somebody in has no business.
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
    // A reader that has gone wants no link; the page is served all the same.
    match print::data(&format!("{link}\n")) {
        Err(error) if !error.is_closed_pipe() => return Err(error.into()),
        _ => print::note(&(greeting.text() + &invitation)),
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
        format!("{page}{files}{open}serving the page; {reach}. Ctrl-C ends it\n")
    }
}

/// This machine's address in its network: the one that it would speak to another network from. Nothing is sent.
fn local_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // An address of documentation, that nobody has.
    socket.connect(("192.0.2.1", 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// Resolves when the program is asked to end. Handlers are in place when this returns, so no signal is missed.
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
        // Without a handler Ctrl-C ends the program at once, which is all that is left to do.
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
            Greeting { address, is_encrypted: false, has_page, n_files }.text()
        };
        let everywhere = text("0.0.0.0:1", true, u64::MAX);
        assert!(everywhere.contains("every machine") && !everywhere.contains("open files"), "{everywhere}");
        let here = text("127.0.0.1:1", false, 1024);
        assert!(here.contains("only this machine") && here.contains("cargo xtask run"), "{here}");
        assert!(here.contains("1024 open files"), "{here}");
    }
}
