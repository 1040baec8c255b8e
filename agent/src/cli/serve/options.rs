//! Options of `headroom serve`.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use headroom_text::units::{human_size, parse_size};

use super::log::{Levels, LogFormat};
use crate::cli::args::{Flag, InDataFolder, UsageError};
use headroom_agent_core::store::{BYTES_MIN, DAYS_MAX, RetentionLimits};
use headroom_server::host::{Name, is_origin};

/// Default address: local connections only, on a memorable port.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8420);
/// Limit of the rig's name in characters.
const NAME_CHARS_MAX: usize = 64;

/// Parsed arguments.
#[derive(Debug)]
pub struct Request {
    pub listen: SocketAddr,
    pub data_dir: Option<PathBuf>,
    pub name: Option<String>,
    pub hosts: Vec<Name>,
    pub origins: Vec<String>,
    /// Limits of the history.
    pub keep: RetentionLimits,
    /// Levels of the log, unless the environment sets them.
    pub levels: Option<Levels>,
    pub log_format: LogFormat,
    /// URL to which alerts are posted.
    pub webhook: Option<String>,
    /// Training directory, whose configs and data sets are allowed.
    pub train: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Certificate and key, if both are given.
    pub tls: Option<(PathBuf, PathBuf)>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            listen: DEFAULT_LISTEN,
            data_dir: None,
            name: None,
            hosts: vec![],
            origins: vec![],
            keep: RetentionLimits::default(),
            levels: None,
            log_format: LogFormat::default(),
            webhook: None,
            train: None,
            certificate: None,
            key: None,
            tls: None,
        }
    }
}

impl InDataFolder for Request {
    fn set_data_folder(&mut self, folder: PathBuf) {
        self.data_dir = Some(folder);
    }
}

impl Request {
    /// Checks combinations of options.
    ///
    /// # Errors
    /// An option lacks another one that it requires.
    pub fn check(&mut self) -> Result<(), UsageError> {
        self.tls = match (self.certificate.take(), self.key.take()) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(UsageError::Missing { command: "serve", what: "--tls-key FILE beside --tls-cert" });
            }
            (None, Some(_)) => {
                return Err(UsageError::Missing { command: "serve", what: "--tls-cert FILE beside --tls-key" });
            }
        };
        Ok(())
    }
}

/// Option table.
pub const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "listen",
        value: Some("ADDRESS:PORT"),
        doc: "Address to listen on; port 0 selects a free port\n[default: 127.0.0.1:8420, this machine only]",
        set: |request, text| {
            request.listen = address(text)?;
            Ok(())
        },
    },
    Flag::DATA_DIR,
    Flag {
        name: "name",
        value: Some("NAME"),
        doc: "Name of this machine in the page [default: its host name]",
        set: |request, text| {
            let n_chars = text.chars().count();
            if !(1..=NAME_CHARS_MAX).contains(&n_chars) || text.chars().any(char::is_control) {
                return Err(format!("a name has 1 to {NAME_CHARS_MAX} characters").into());
            }
            request.name = Some(text.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "host",
        value: Some("NAME[:PORT]"),
        doc: "Additional host name of this server, for example of a proxy; repeatable",
        set: |request, text| {
            let name = Name::read(text).ok_or_else(|| format!("{text:?} is no host's name"))?;
            request.hosts.push(name);
            Ok(())
        },
    },
    Flag {
        name: "allow-origin",
        value: Some("ORIGIN"),
        doc: "Allow requests from this web origin with a token, such as\nhttps://page.example; repeatable",
        set: |request, text| {
            if !is_origin(text) {
                return Err(format!("{text:?} is not an origin such as https://page.example, which has no path").into());
            }
            request.origins.push(text.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "keep-days",
        value: Some("N"),
        doc: "Days of telemetry to keep, in minutes [default: 30]. Runs are\nkept until deleted",
        set: |request, text| {
            request.keep.days = match text.parse() {
                Ok(days @ 1..=DAYS_MAX) => days,
                _ => return Err(format!("{text:?} is not a number of days from 1 to {DAYS_MAX}").into()),
            };
            Ok(())
        },
    },
    Flag {
        name: "keep-size",
        value: Some("SIZE"),
        doc: "Maximum size of the history; the oldest telemetry is deleted first\n[default: 1GiB]",
        set: |request, text| {
            let bytes = parse_size(text).map_err(|error| error.to_string())?;
            if bytes < BYTES_MIN {
                return Err(
                    format!("the minimum is {}, the size of an hour at full rate", human_size(BYTES_MIN)).into()
                );
            }
            request.keep.bytes_max = bytes;
            Ok(())
        },
    },
    Flag {
        name: "train",
        value: Some("FOLDER"),
        doc: "Allow clients with the scope control to train the configs (config/*.py) and\ndata sets (data/*/) of this folder, and the built-in stories",
        set: |request, folder| {
            if folder.is_empty() {
                return Err("a folder has a name".to_owned().into());
            }
            request.train = Some(folder.into());
            Ok(())
        },
    },
    Flag {
        name: "webhook",
        value: Some("URL"),
        doc: "Post alerts to this URL, as JSON with a text. Prefer the variable\nfor a secret URL [default: HEADROOM_WEBHOOK]",
        set: |request, text| {
            request.webhook = Some(text.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "log",
        value: Some("LEVELS"),
        doc: "Log levels: off, error, warn, info, debug or trace, also by area, as in\nwarn,http=debug [default: HEADROOM_LOG, else warn]",
        set: |request, text| {
            request.levels = Some(Levels::read(text)?);
            Ok(())
        },
    },
    Flag {
        name: "log-format",
        value: Some("FORMAT"),
        doc: "Format of the log: text, or json with one object per line [default: text]",
        set: |request, word| {
            request.log_format = LogFormat::read(word)?;
            Ok(())
        },
    },
    Flag {
        name: "tls-cert",
        value: Some("FILE"),
        doc: "Serve HTTPS with this certificate chain (PEM)",
        set: |request, text| {
            request.certificate = Some(text.into());
            Ok(())
        },
    },
    Flag {
        name: "tls-key",
        value: Some("FILE"),
        doc: "Private key of the certificate (PEM)",
        set: |request, text| {
            request.key = Some(text.into());
            Ok(())
        },
    },
];

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.split_once(':') {
        Some(("localhost", port)) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        _ => text.to_owned(),
    };
    numeric.parse().map_err(|_| format!("{text:?} is no address with a port; write it as 127.0.0.1:8420 or [::1]:8420"))
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
    fn a_certificate_needs_its_key() {
        for (certificate, key, is_good) in
            [(None, None, true), (Some("c"), Some("k"), true), (Some("c"), None, false), (None, Some("k"), false)]
        {
            let mut request =
                Request { certificate: certificate.map(Into::into), key: key.map(Into::into), ..Request::default() };
            assert_eq!(request.check().is_ok(), is_good, "{certificate:?} {key:?}");
        }
    }
}
