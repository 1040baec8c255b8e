//! Protection against DNS rebinding: checks of `Host` and `Origin`.
//!
//! A foreign page can resolve its own name to 127.0.0.1, and then has the same origin as any server there. The requests
//! of such a page carry the foreign name as `Host`, so requests with any other `Host` than this server's are refused. A
//! literal IP address cannot be rebound.

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

use super::State;

/// The number of characters shown of a refused `Host` or `Origin`.
const SHOWN_CHARS: usize = 80;

/// The scheme of this server's URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// Returns the name used in URLs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the default port.
    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// An additional name of this server, set by the owner: of a reverse proxy or of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// In lower case.
    host: String,
    /// Present if it differs from this server's port and from the scheme's default.
    port: Option<u16>,
}

impl Name {
    /// Parses `rig.example` or `rig.example:8443`.
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

    /// Returns the authority as used in a URL.
    pub fn authority(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

/// The owner's settings for names and origins.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// The scheme.
    pub scheme: Scheme,
    /// Names in addition to the address.
    pub names: Vec<Name>,
    /// Allowed origins of foreign pages.
    pub origins: Vec<String>,
}

/// The names of a server.
#[derive(Clone, Debug)]
pub struct HostPolicy {
    address: SocketAddr,
    given: HostOptions,
}

/// The reason why `Host` is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// No `Host`, several, or an unreadable one.
    #[error("The request does not say clearly which host it is for.")]
    Unclear,
    /// The `Host` of another server.
    #[error("This server does not answer for {host}. Open {link} instead, or start it with --host and that name.")]
    Foreign {
        /// The `Host` of the request, shortened.
        host: String,
        /// The URL of this server.
        link: String,
    },
}

/// The reason why `Origin` is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OriginError {
    /// No `Origin`, although every browser sends one.
    #[error("The request does not say which page it comes from: it has no Origin.")]
    Missing,
    /// The origin of a page that is not allowed.
    #[error("A page of {origin} has no business here. The owner of this rig can allow it with --allow-origin.")]
    Foreign {
        /// The `Origin` of the request, shortened.
        origin: String,
    },
}

impl HostPolicy {
    /// Creates the names of a server that listens on `address`.
    pub fn of(address: SocketAddr, given: HostOptions) -> Self {
        Self { address, given }
    }

    /// Returns the URL of the page for a browser on this machine.
    pub fn link(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        self.link_to(&SocketAddr::new(ip, self.address.port()).to_string())
    }

    /// Returns the URL for other machines, if the server is reachable; `local` is this machine's address in its
    /// network.
    pub fn far_link(&self, local: Option<IpAddr>) -> Option<String> {
        let own = self.address.ip();
        if own.is_loopback() {
            // A name on a loopback server belongs to a reverse proxy, and such proxies use TLS.
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

    /// Returns whether `authority`, as in a `Host` header, is this server's.
    fn answers_for(&self, authority: &str) -> bool {
        let (host, port) = self.parts(authority);
        port == Some(self.address.port()) && self.is_own(host) || self.name(authority).is_some()
    }

    /// Splits an authority into host and port; the port is `None` if invalid.
    fn parts<'a>(&self, authority: &'a str) -> (&'a str, Option<u16>) {
        match authority.rsplit_once(':') {
            // The last colon of an address in brackets does not precede a port.
            Some((host, port)) if !port.ends_with(']') => (host, decimal(port)),
            _ => (authority, Some(self.given.scheme.port())),
        }
    }

    /// Returns the configured name that matches an authority.
    fn name(&self, authority: &str) -> Option<&Name> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(decimal(port)?)),
            None => (authority, None),
        };
        self.given.names.iter().find(|name| {
            let fits = match name.port {
                Some(given) => port == Some(given),
                // A proxy uses the scheme's default port, which browsers omit. Without a proxy, the port is this
                // server's.
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
        // A request line with an absolute URL overrides `Host`, so both must match.
        let line = uri.authority().map(axum::http::uri::Authority::as_str);
        match [Some(host), line].into_iter().flatten().find(|authority| !self.answers_for(authority)) {
            None => Ok(()),
            Some("") => Err(HostError::Unclear),
            Some(host) => Err(HostError::Foreign { host: shown(host), link: self.link() }),
        }
    }

    /// Checks the `Origin` of a request whose `Host` is valid. A page of this server under the requested name passes,
    /// as does a page of an allowed origin.
    ///
    /// # Errors
    /// `Origin` is missing or not allowed.
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

    /// Returns whether the owner allows pages of a foreign origin.
    pub fn is_allowed(&self, origin: &str) -> bool {
        self.given.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

/// Returns whether a text is a valid origin of a page, such as `https://page.example`, without a path.
pub fn is_origin(text: &str) -> bool {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    authority.is_some_and(|authority| {
        !authority.is_empty() && authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte))
    })
}

/// Parses a port of digits alone; `parse` would accept a sign.
fn decimal(port: &str) -> Option<u16> {
    port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten()
}

/// Middleware that refuses requests for other hosts.
pub async fn check(Extract(state): Extract<Arc<State>>, request: Request, next: Next) -> Response {
    match state.hosts.judge(request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests;
