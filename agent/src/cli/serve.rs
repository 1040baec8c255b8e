//! `headroom serve`: opens the port, says where the page is, and serves until it is told to stop.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddr},
};

use thiserror::Error;
use tokio::{net::TcpListener, runtime};

use super::{
    Exit,
    args::{Flag, Parsed, UsageError, Word, nearest, options_help, parse},
    print,
};
use crate::server::{self, State, assets::Assets, host::Hosts};

/// Only this machine can connect, on a port that is easy to remember.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8420);

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
    /// The system gives no event loop or no signals.
    #[error("cannot start the server: {0}")]
    Start(io::Error),
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
            Self::Start(_) => None,
        }
    }
}

#[derive(Debug)]
struct Request {
    listen: SocketAddr,
}

const FLAGS: &[Flag<Request>] = &[Flag {
    name: "listen",
    value: Some("ADDRESS:PORT"),
    doc: "Where to listen; port 0 takes any free one\n[default: 127.0.0.1:8420, this machine only]",
    set: |request, text| {
        request.listen = address(text)?;
        Ok(())
    },
}];

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.split_once(':') {
        Some(("localhost", port)) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        _ => text.to_owned(),
    };
    numeric.parse().map_err(|_| format!("{text:?} is no address with a port; write it as 127.0.0.1:8420 or [::1]:8420"))
}

/// The help of this command.
pub fn help() -> String {
    format!(
        "\
Serves the page on this machine and prints its link. Ctrl-C ends it.

Usage: headroom serve [--listen ADDRESS:PORT]

Options:
{}
Only requests whose Host is this address or a name of this machine's loopback are
answered, so that a foreign page cannot reach the server under a name of its own.
",
        options_help(FLAGS)
    )
}

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or the address cannot be had.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request { listen: DEFAULT_LISTEN };
    if parse("serve", FLAGS, args, &mut request, refuse)? == Parsed::Help {
        print::data(&help())?;
        return Ok(Exit::Success);
    }
    // One thread: files from memory are sent faster than a card's worth of viewers can read them.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    runtime.block_on(serve(request.listen))?;
    Ok(Exit::Success)
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(match word {
        Word::Plain(word) => UsageError::UnexpectedWord { command: "serve", word: word.to_string_lossy().into_owned() },
        Word::Other(option) => UsageError::UnknownOption { command: "serve", near: nearest(FLAGS, &option), option },
    })
}

async fn serve(listen: SocketAddr) -> Result<(), super::Error> {
    let shutdown = shutdown().map_err(Error::Start)?;
    let listener = TcpListener::bind(listen).await.map_err(|error| Error::Bind { listen, error })?;
    let address = listener.local_addr().map_err(Error::Start)?;
    let hosts = Hosts::of(address);
    let assets = Assets::embedded();
    // A reader that has gone wants no link; the page is served all the same.
    match print::data(&format!("{}\n", hosts.link())) {
        Err(error) if !error.is_closed_pipe() => return Err(error.into()),
        _ => print::note(&greeting(address, assets.has_page())),
    }
    server::serve(listener, server::app(State { assets, hosts }), shutdown).await;
    print::note("stopped\n");
    Ok(())
}

fn greeting(address: SocketAddr, has_page: bool) -> String {
    let reach = if address.ip().is_loopback() {
        "only this machine can open it".to_owned()
    } else {
        format!("every machine that reaches {} can open it", address.ip())
    };
    let page = if has_page {
        ""
    } else {
        "this headroom was built without the page: `cargo xtask run` in its sources builds both\n"
    };
    format!("{page}serving the page; {reach}. Ctrl-C ends it\n")
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
    fn addresses_need_a_port() {
        for (text, address) in [
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("localhost:81", Some("127.0.0.1:81")),
            ("[::1]:8420", Some("[::1]:8420")),
            ("0.0.0.0:8420", Some("0.0.0.0:8420")),
            ("8420", None),
            ("127.0.0.1", None),
            ("localhost", None),
            ("example.org:80", None),
            ("127.0.0.1:99999", None),
        ] {
            let expected = address.map(|address| address.parse().expect("an address"));
            assert_eq!(super::address(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn an_open_door_is_said() {
        let everywhere = greeting("0.0.0.0:1".parse().expect("an address"), true);
        assert!(everywhere.contains("every machine"), "{everywhere}");
        let here = greeting("127.0.0.1:1".parse().expect("an address"), false);
        assert!(here.contains("only this machine") && here.contains("cargo xtask run"), "{here}");
    }
}
