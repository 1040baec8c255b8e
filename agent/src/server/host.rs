//! Whether a request was meant for this server.
//!
//! A foreign page can point a name of its own at 127.0.0.1 and would then be of one origin with whatever answers there
//! (DNS rebinding). Its requests carry that name as Host, so a Host that is not ours is refused. An address that was
//! written out cannot be pointed elsewhere.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{Request, State as Extract},
    http::{HeaderMap, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use thiserror::Error;

use super::{State, error::Refusal};

/// Characters of a refused Host or Origin that are shown.
const SHOWN_CHARS: usize = 80;

/// How this server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Openly.
    #[default]
    Http,
    /// By TLS.
    Https,
}

impl Scheme {
    /// As it begins a link.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a link without one means.
    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A further name that the owner says this server goes by: of a proxy before it, or of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// In lower case.
    host: String,
    /// Where it is another port than this server's or the scheme's own.
    port: Option<u16>,
}

impl Name {
    /// Reads `rig.example` or `rig.example:8443`.
    pub fn read(text: &str) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(decimal(port)?)),
            None => (text, None),
        };
        let labels = |host: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            host.split('.').all(|label| (1..=63).contains(&label.len()) && label.bytes().all(is_part))
        };
        (host.len() <= 253 && labels(host)).then(|| Self { host: host.to_ascii_lowercase(), port })
    }

    /// As a link has it.
    pub fn authority(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

/// What the owner adds to what an address tells.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Names besides its address.
    pub names: Vec<Name>,
    /// Origins of foreign pages that may speak to it.
    pub origins: Vec<String>,
}

/// The names a server goes by.
#[derive(Clone, Debug)]
pub struct Hosts {
    address: SocketAddr,
    given: Given,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// No Host, several, or none that can be read.
    #[error("The request does not say clearly which host it is for.")]
    Unclear,
    /// For someone else.
    #[error("This server does not answer for {host}. Open {link} instead, or start it with --host and that name.")]
    Foreign {
        /// What the request says, shortened.
        host: String,
        /// Where this server is.
        link: String,
    },
}

/// Why a request of a page is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OriginError {
    /// No Origin, where every browser sends one.
    #[error("The request does not say which page it comes from: it has no Origin.")]
    Missing,
    /// Of a page that is not this server's.
    #[error("A page of {origin} has no business here. The owner of this rig can allow it with --allow-origin.")]
    Foreign {
        /// What the request says, shortened.
        origin: String,
    },
}

impl Hosts {
    /// Those of a server that listens on this address.
    pub fn of(address: SocketAddr, given: Given) -> Self {
        Self { address, given }
    }

    /// Where a browser on this machine finds the page.
    pub fn link(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        self.link_to(&SocketAddr::new(ip, self.address.port()).to_string())
    }

    /// Where another machine finds it, if one can; `local` is this machine's address in its network.
    pub fn far_link(&self, local: Option<IpAddr>) -> Option<String> {
        let own = self.address.ip();
        if own.is_loopback() {
            // Whoever names it stands before it, and such proxies speak TLS.
            let name = self.given.names.first()?;
            return Some(format!("https://{}/", name.authority()));
        }
        let port = self.address.port();
        let authority = match self.given.names.first() {
            Some(Name { host, port: None }) => format!("{host}:{port}"),
            Some(name) => name.authority(),
            None if own.is_unspecified() => SocketAddr::new(local?, port).to_string(),
            None => self.address.to_string(),
        };
        Some(self.link_to(&authority))
    }

    fn link_to(&self, authority: &str) -> String {
        format!("{}://{authority}/", self.given.scheme.name())
    }

    /// Whether `authority`, as in a Host header, is this server.
    fn answers_for(&self, authority: &str) -> bool {
        let (host, port) = self.parts(authority);
        port == Some(self.address.port()) && self.is_own(host) || self.name(authority).is_some()
    }

    /// A host and its port, which is missing where there is none that can be.
    fn parts<'a>(&self, authority: &'a str) -> (&'a str, Option<u16>) {
        match authority.rsplit_once(':') {
            // The colon of an address in brackets is not a port's.
            Some((host, port)) if !port.ends_with(']') => (host, decimal(port)),
            _ => (authority, Some(self.given.scheme.port())),
        }
    }

    /// The given name that an authority is of.
    fn name(&self, authority: &str) -> Option<&Name> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(decimal(port)?)),
            None => (authority, None),
        };
        self.given.names.iter().find(|name| {
            let fits = match name.port {
                Some(given) => port == Some(given),
                // A proxy has the scheme's port, which a browser leaves out, and without one it is this server's.
                None => port.is_none_or(|port| [self.address.port(), 443, 80].contains(&port)),
            };
            fits && host.eq_ignore_ascii_case(&name.host)
        })
    }

    fn is_own(&self, host: &str) -> bool {
        if host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let ip = match in_brackets {
            Some(ip) => ip.parse().map(IpAddr::V6),
            None => host.parse().map(IpAddr::V4),
        };
        let Ok(ip) = ip else { return false };
        let own = self.address.ip();
        ip == own || ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST || own.is_unspecified()
    }

    fn judge(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), HostError> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(HostError::Unclear) };
        let host = host.to_str().map_err(|_| HostError::Unclear)?;
        // A request line with a whole address overrides Host, so both have to be ours.
        let line = uri.authority().map(axum::http::uri::Authority::as_str);
        match [Some(host), line].into_iter().flatten().find(|authority| !self.answers_for(authority)) {
            None => Ok(()),
            Some("") => Err(HostError::Unclear),
            Some(host) => Err(HostError::Foreign { host: shown(host), link: self.link() }),
        }
    }

    /// Judges where a request comes from, whose Host is this server's already: a page of this very server, by the name
    /// that it was asked for, or one that the owner allows.
    ///
    /// # Errors
    /// It does not say so, or comes from elsewhere.
    pub fn judge_origin(&self, headers: &HeaderMap) -> Result<(), OriginError> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), more) = (origins.next(), origins.next()) else { return Err(OriginError::Missing) };
        let text = String::from_utf8_lossy(origin.as_bytes());
        let foreign = || OriginError::Foreign { origin: shown(&text) };
        if more.is_some() {
            return Err(foreign());
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).ok_or_else(foreign)?;
        let same = text.split_once("://").is_some_and(|(scheme, authority)| {
            let spoken = scheme == self.given.scheme.name() || scheme == "https" && self.name(host).is_some();
            spoken && authority.eq_ignore_ascii_case(host)
        });
        if same || self.is_allowed(&text) { Ok(()) } else { Err(foreign()) }
    }

    /// Whether the owner allows pages of that origin.
    fn is_allowed(&self, origin: &str) -> bool {
        self.given.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

/// Whether a text can be the origin of a page: `https://page.example`, without a path.
pub fn is_origin(text: &str) -> bool {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    authority.is_some_and(|authority| {
        !authority.is_empty() && authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte))
    })
}

/// Digits alone: `parse` would take a sign as well.
fn decimal(port: &str) -> Option<u16> {
    port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten()
}

/// Passes on what is meant for this server.
pub async fn check(Extract(state): Extract<Arc<State>>, request: Request, next: Next) -> Response {
    match state.hosts.judge(request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(error) => Refusal::from(error).into_response(),
    }
}

#[cfg(test)]
mod tests;
