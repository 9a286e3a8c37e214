//! Certificates and keys, as files name them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_rustls::rustls::ServerConfig;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::{self, PemObject};
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Tls;

/// The reason for which a certificate cannot be used.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    what: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reading {}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for TlsError {}

fn wrong(path: &Path, kind: &str) -> impl FnOnce(pem::Error) -> TlsError {
    move |error| {
        let what = match error {
            pem::Error::Io(error) => error.to_string(),
            pem::Error::NoItemsFound => {
                format!("it has no {kind}; a PEM file begins one with -----BEGIN")
            }
            error => format!("it is no PEM file of a {kind}: {error:?}"),
        };
        TlsError { path: path.to_path_buf(), what }
    }
}

/// Reads a certificate and its key, and offers HTTP/2 and HTTP/1.1.
pub(super) fn acceptor(tls: &Tls) -> Result<Arc<ServerConfig>, TlsError> {
    let path = &tls.certificate;
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_file_iter(path).map_err(wrong(path, "certificate"))? {
        chain.push(certificate.map_err(wrong(path, "certificate"))?);
    }
    if chain.is_empty() {
        return Err(wrong(path, "certificate")(pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(wrong(&tls.key, "private key"))?;
    let refused = |error: futures_rustls::rustls::Error| TlsError {
        path: tls.key.clone(),
        what: format!("it does not go with {}: {error}", path.display()),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    crate::tls::prepare(&mut config);
    Ok(Arc::new(config))
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}
