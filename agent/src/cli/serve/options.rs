//! What `headroom serve` takes.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use headroom_shared::units::{human_size, parse_size};

use crate::{
    cli::args::{Flag, InDataFolder, UsageError},
    server::host::{Name, is_origin},
    store::{BYTES_MIN, DAYS_MAX, Keep},
};

/// Only this machine can connect, on a port that is easy to remember.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8420);
/// Characters of the rig's name.
const NAME_CHARS_MAX: usize = 64;

/// What the words say.
#[derive(Debug)]
pub struct Request {
    pub listen: SocketAddr,
    pub data_dir: Option<PathBuf>,
    pub name: Option<String>,
    pub hosts: Vec<Name>,
    pub origins: Vec<String>,
    /// How much history may take.
    pub keep: Keep,
    /// Where alerts are posted.
    pub webhook: Option<String>,
    /// The folder whose configs and data sets may be trained.
    pub train: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Certificate and key, where both are given.
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
            keep: Keep::default(),
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
    /// Holds the options against each other.
    ///
    /// # Errors
    /// One is there without the other that it needs.
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

/// All of them.
pub const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "listen",
        value: Some("ADDRESS:PORT"),
        doc: "Where to listen; port 0 takes any free one\n[default: 127.0.0.1:8420, this machine only]",
        set: |request, text| {
            request.listen = address(text)?;
            Ok(())
        },
    },
    Flag::DATA_DIR,
    Flag {
        name: "name",
        value: Some("NAME"),
        doc: "What the page calls this machine\n[default: its host name]",
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
        doc: "A further name that this server goes by, of a proxy or of this machine;\nmay be given more than once",
        set: |request, text| {
            let name = Name::read(text).ok_or_else(|| format!("{text:?} is no host's name"))?;
            request.hosts.push(name);
            Ok(())
        },
    },
    Flag {
        name: "allow-origin",
        value: Some("ORIGIN"),
        doc: "A foreign page that may speak to this server, with a token of its own, as in\nhttps://page.example; may be given more than once",
        set: |request, text| {
            if !is_origin(text) {
                return Err(format!("{text:?} is no origin; write it as https://page.example, without a path").into());
            }
            request.origins.push(text.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "keep-days",
        value: Some("N"),
        doc: "Days of recording for which telemetry is kept, minute by minute\n[default: 30]; runs stay until they are deleted",
        set: |request, text| {
            request.keep.days = match text.parse() {
                Ok(days @ 1..=DAYS_MAX) => days,
                _ => return Err(format!("{text:?} is no number of days, 1 to {DAYS_MAX}").into()),
            };
            Ok(())
        },
    },
    Flag {
        name: "keep-size",
        value: Some("SIZE"),
        doc: "What history may take of the disk; the oldest telemetry goes first\n[default: 1GiB]",
        set: |request, text| {
            let bytes = parse_size(text).map_err(|error| error.to_string())?;
            if bytes < BYTES_MIN {
                return Err(format!("{} is the least that an hour at full rate fits in", human_size(BYTES_MIN)).into());
            }
            request.keep.bytes_max = bytes;
            Ok(())
        },
    },
    Flag {
        name: "train",
        value: Some("FOLDER"),
        doc: "Lets a device of the scope control start trainings of what is in FOLDER, in\nnanoGPT's layout: config/*.py and data/*/, and the built-in stories",
        set: |request, folder| {
            if folder.is_empty() {
                return Err("a folder has a name".to_owned().into());
            }
            crate::foreman::check_folder(Path::new(folder))
                .map_err(|error| format!("cannot open the folder {folder}: {error}"))?;
            request.train = Some(folder.into());
            Ok(())
        },
    },
    Flag {
        name: "webhook",
        value: Some("URL"),
        doc: "Where alerts are posted, as JSON with a text; a secret, so rather\n[default: HEADROOM_WEBHOOK]",
        set: |request, text| {
            request.webhook = Some(text.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "tls-cert",
        value: Some("FILE"),
        doc: "Serve by https: the certificate with its chain, as PEM",
        set: |request, text| {
            request.certificate = Some(text.into());
            Ok(())
        },
    },
    Flag {
        name: "tls-key",
        value: Some("FILE"),
        doc: "And its private key, as PEM",
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
