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

/// The port that a link without one means.
const HTTP_PORT: u16 = 80;
/// Characters of a refused Host that are shown.
const SHOWN_CHARS: usize = 80;

/// The names a server goes by.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    address: SocketAddr,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// No Host, several, or none that can be read.
    #[error("The request does not say clearly which host it is for.")]
    Unclear,
    /// For someone else.
    #[error("This server does not answer for {host}. Open {link} instead.")]
    Foreign {
        /// What the request says, shortened.
        host: String,
        /// Where this server is.
        link: String,
    },
}

impl Hosts {
    /// Those of a server that listens on this address.
    pub fn of(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Where a browser on this machine finds the page.
    pub fn link(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}/", SocketAddr::new(ip, self.address.port()))
    }

    /// Whether `authority`, as in a Host header, is this server.
    fn answers_for(&self, authority: &str) -> bool {
        let (host, port) = match authority.rsplit_once(':') {
            // The colon of an address in brackets is not a port's.
            Some((host, port)) if !port.ends_with(']') => (host, decimal(port)),
            _ => (authority, Some(HTTP_PORT)),
        };
        port == Some(self.address.port()) && self.is_named(host)
    }

    fn is_named(&self, host: &str) -> bool {
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
            Some(host) => Err(HostError::Foreign { host: host.chars().take(SHOWN_CHARS).collect(), link: self.link() }),
        }
    }
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
mod tests {
    use super::*;

    fn hosts(address: &str) -> Hosts {
        Hosts::of(address.parse().expect("an address"))
    }

    #[track_caller]
    fn check(address: &str, answered: &[&str], refused: &[&str]) {
        let hosts = hosts(address);
        for host in answered {
            assert!(hosts.answers_for(host), "{address} refuses {host:?}");
        }
        for host in refused {
            assert!(!hosts.answers_for(host), "{address} answers for {host:?}");
        }
    }

    #[test]
    fn loopback_answers_for_loopback_alone() {
        let refused = [
            "",
            ":8420",
            "localhost",
            "localhost:80",
            "localhost:08421",
            "localhost:+8420",
            "localhost:8420x",
            "localhost:",
            "localhost.:8420",
            "localhost.evil.example:8420",
            "evil.example:8420",
            "127.0.0.1.nip.io:8420",
            "user@localhost:8420",
            "localhost:8420@evil.example",
            "127.0.0.1:80:8420",
            "127.1:8420",
            "0x7f000001:8420",
            "2130706433:8420",
            "127.0.0.2:8420",
            "0.0.0.0:8420",
            "[::]:8420",
            "::1:8420",
            "[::1",
            "[::1]",
            "[::1]8420",
            "[::ffff:127.0.0.1]:8420",
            "[127.0.0.1]:8420",
            "192.168.1.5:8420",
            " localhost:8420",
            "lоcalhost:8420",
        ];
        check("127.0.0.1:8420", &["127.0.0.1:8420", "localhost:8420", "LocalHost:8420", "[::1]:8420"], &refused);
    }

    #[test]
    fn a_given_address_answers_for_itself_and_loopback() {
        check("192.168.1.5:8420", &["192.168.1.5:8420", "localhost:8420"], &["192.168.1.6:8420", "rig.local:8420"]);
        check("[fe80::1]:8420", &["[fe80::1]:8420", "[FE80:0::1]:8420"], &["[fe80::2]:8420"]);
    }

    #[test]
    fn all_addresses_answer_for_addresses_and_no_name() {
        check("0.0.0.0:8420", &["192.168.1.6:8420", "[fe80::2]:8420"], &["rig.local:8420", "192.168.1.6:80"]);
    }

    #[test]
    fn on_port_80_a_host_may_leave_it_out() {
        check("127.0.0.1:80", &["localhost", "127.0.0.1", "[::1]", "localhost:80"], &["localhost:8420"]);
    }

    #[test]
    fn the_link_can_be_opened_here() {
        assert_eq!(hosts("127.0.0.1:81").link(), "http://127.0.0.1:81/");
        assert_eq!(hosts("0.0.0.0:81").link(), "http://127.0.0.1:81/");
        assert_eq!(hosts("[::]:81").link(), "http://[::1]:81/");
    }

    #[test]
    fn a_request_line_with_a_foreign_address_is_refused() {
        let hosts = hosts("127.0.0.1:8420");
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "localhost:8420".parse().expect("a value"));
        let judge = |uri: &str| hosts.judge(&headers, &uri.parse().expect("an address"));
        assert_eq!(judge("/"), Ok(()));
        assert_eq!(judge("http://127.0.0.1:8420/"), Ok(()));
        judge("http://evil.example/").expect_err("it is for another");
    }
}
