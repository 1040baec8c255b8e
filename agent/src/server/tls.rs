//! TLS from files that the owner names.

use std::{
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

/// Time for a handshake; two round trips and some arithmetic.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Why files cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// One cannot be read, or has nothing of its kind.
    #[error("cannot read {what} from {}: {error}", path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// What is wrong.
        error: pem::Error,
    },
    /// They do not go together, or are of a kind that is not known.
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(#[from] rustls::Error),
}

impl TlsError {
    /// Whether the system refused a file, which may be fine otherwise.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::File { error: pem::Error::Io(_), .. })
    }

    /// What to try.
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => "both are PEM files: `-----BEGIN …`, the certificate with its chain".to_owned(),
            Self::Pair(_) => "the key has to be the one that the first certificate of the file was made for".to_owned(),
        }
    }
}

/// What connections are taken by.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a certificate with its chain, and its key.
    ///
    /// # Errors
    /// One cannot be read, or they do not go together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let file = |what, path: &Path| {
            let path = path.to_owned();
            move |error| TlsError::File { what, path, error }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
            .map_err(file("a certificate", certificate))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(file("a private key", key))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// A connection by TLS; `None` where the client does not speak it, or not in time.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Option<TlsStream<S>> {
        timeout(HANDSHAKE_TIME_MAX, self.0.accept(stream)).await.ok()?.ok()
    }
}
