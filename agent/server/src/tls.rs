//! TLS with a certificate and key from the owner's files.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
    },
    server::TlsStream,
};

use headroom_agent_core::logging::HTTP;

/// The time limit of a handshake: two round trips and some arithmetic.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The maximum size of a PEM file in bytes. A chain of certificates has a few thousand.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// The reason why the files cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain the expected item.
    #[error("cannot read {what} from {}: {error}", path.display())]
    File {
        /// The expected item.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The PEM error.
        error: pem::Error,
    },
    /// The key does not match the certificate, or an algorithm is not supported.
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(#[from] rustls::Error),
}

impl TlsError {
    /// Returns whether reading a file failed, so that its content may be valid.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::File { error: pem::Error::Io(_), .. })
    }

    /// Returns a suggestion to resolve the error.
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => "both are PEM files: `-----BEGIN …`, the certificate with its chain".to_owned(),
            Self::Pair(_) => "the key has to be the one that the first certificate of the file was made for".to_owned(),
        }
    }
}

/// Reads a PEM file of at most [`PEM_BYTES_MAX`], so that an endless file such as `/dev/zero` takes no memory.
fn read_pem(path: &Path) -> Result<Vec<u8>, pem::Error> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PEM_BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(pem::Error::Io)?;
    if text.len() as u64 > PEM_BYTES_MAX {
        return Err(pem::Error::Io(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB")));
    }
    Ok(text)
}

/// The TLS configuration for incoming connections.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a certificate with its chain, and its key.
    ///
    /// # Errors
    /// A file cannot be read, or the key does not match the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let file = |what, path: &Path| {
            let path = path.to_owned();
            move |error| TlsError::File { what, path, error }
        };
        let chain = read_pem(certificate)
            .and_then(|text| CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>())
            .and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
            .map_err(file("a certificate", certificate))?;
        let key =
            read_pem(key).and_then(|text| PrivateKeyDer::from_pem_slice(&text)).map_err(file("a private key", key))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Performs the handshake; `None` if the client does not speak TLS or exceeds the time limit.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Option<TlsStream<S>> {
        let accepted = timeout(HANDSHAKE_TIME_MAX, self.0.accept(stream)).await.ok()?;
        accepted.inspect_err(|error| tracing::debug!(target: HTTP, %error, "a TLS handshake failed")).ok()
    }
}
