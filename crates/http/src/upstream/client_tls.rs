//! The encryption of connections to servers.
//!
//! The certificate that servers are shown comes from a store that follows its files, as those of
//! listeners do. Connections that are open keep the one that they began with; new ones show the new
//! one, and make a full handshake: a resumed session would continue with the former certificate.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use futures_rustls::TlsConnector;
use futures_rustls::rustls::client::{ResolvesClientCert, Resumption};
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::{self, PemObject};
use futures_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use futures_rustls::rustls::sign::CertifiedKey;
use futures_rustls::rustls::{self, ClientConfig, RootCertStore, SignatureScheme};
use superpoll_config::UpstreamTls;

use crate::certificates::{Certificate, CertificateError, CertificateStore};

/// The reason for which connections to servers cannot be encrypted.
#[derive(Debug)]
pub enum ClientTlsError {
    /// The certificates of the authorities cannot be used.
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: AuthoritiesError,
    },
    /// The certificate that servers are shown cannot be used.
    Identity(Box<CertificateError>),
    /// The name of the servers is none.
    ServerName(InvalidDnsNameError),
}

/// The reason for which a file of the certificates of authorities cannot be used.
#[derive(Debug)]
pub enum AuthoritiesError {
    /// It cannot be read.
    Read(io::Error),
    /// It is no PEM file.
    Malformed(pem::Error),
    /// It has none.
    Empty,
    /// One of them is no certificate of an authority.
    Unusable(rustls::Error),
}

impl fmt::Display for ClientTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientTlsError::Authorities { path, source } => {
                let what = "reading the certificates that vouch for servers";
                write!(f, "{what}, {}: {source}", path.display())
            }
            ClientTlsError::Identity(error) => error.fmt(f),
            ClientTlsError::ServerName(error) => write!(f, "the name of a server, {error}"),
        }
    }
}

impl Error for ClientTlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ClientTlsError::Authorities { source, .. } => Some(source),
            ClientTlsError::Identity(error) => Some(&**error),
            ClientTlsError::ServerName(error) => Some(error),
        }
    }
}

impl fmt::Display for AuthoritiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthoritiesError::Read(error) => write!(f, "I/O error: {error}"),
            AuthoritiesError::Malformed(error) => error.fmt(f),
            AuthoritiesError::Empty => {
                f.write_str("it has none; a PEM file begins one with -----BEGIN CERTIFICATE-----")
            }
            AuthoritiesError::Unusable(error) => error.fmt(f),
        }
    }
}

impl Error for AuthoritiesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AuthoritiesError::Read(error) => Some(error),
            AuthoritiesError::Malformed(error) => Some(error),
            AuthoritiesError::Unusable(error) => Some(error),
            AuthoritiesError::Empty => None,
        }
    }
}

impl From<pem::Error> for AuthoritiesError {
    fn from(error: pem::Error) -> AuthoritiesError {
        match error {
            pem::Error::Io(error) => AuthoritiesError::Read(error),
            error => AuthoritiesError::Malformed(error),
        }
    }
}

impl From<rustls::Error> for AuthoritiesError {
    fn from(error: rustls::Error) -> AuthoritiesError {
        AuthoritiesError::Unusable(error)
    }
}

/// The parameters of TLS to the servers.
pub(super) struct Tls {
    pub connector: TlsConnector,
    /// For connections that are relayed, which offer other protocols than those of HTTP.
    pub relayed: TlsConnector,
    /// The same name for all servers; if there is none, the host of each.
    pub name: Option<ServerName<'static>>,
    /// The certificate that servers are shown.
    pub identity: Option<Arc<CertificateStore>>,
}

/// The certificate that a store has at the moment.
#[derive(Debug)]
struct Identity(Arc<CertificateStore>);

impl ResolvesClientCert for Identity {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.0.select(None).filter(|own| own.key.choose_scheme(schemes).is_some())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Tls {
    pub(super) fn new(tls: &UpstreamTls, h2: bool) -> Result<Tls, ClientTlsError> {
        let protocols: &[&[u8]] = if h2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        let identity = tls.identity.as_ref().map(|files| {
            let store = CertificateStore::new(None);
            store.install(&files.label(), Certificate::read(files)?);
            Ok(store)
        });
        let identity =
            identity.transpose().map_err(|error| ClientTlsError::Identity(Box::new(error)))?;
        let connector = connector(&tls.ca, protocols, identity.clone())?;
        let alpn: Vec<&[u8]> = tls.alpn.iter().map(String::as_bytes).collect();
        let relayed = self::connector(&tls.ca, &alpn, identity.clone())?;
        let name = tls.server_name.clone().map(ServerName::try_from).transpose();
        let name = name.map_err(ClientTlsError::ServerName)?;
        Ok(Tls { connector, relayed, name, identity })
    }
}

/// Returns the encryption of connections to servers with a certificate of the authorities in a
/// file.
///
/// # Errors
///
/// The file cannot be read, or has no certificate of an authority.
pub fn client_tls(ca: &Path, protocols: &[&[u8]]) -> Result<TlsConnector, ClientTlsError> {
    connector(ca, protocols, None)
}

/// Reads a file with the certificates of authorities.
///
/// # Errors
///
/// The file cannot be read, or has no certificate of an authority.
pub fn authorities(path: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    if roots.is_empty() { Err(AuthoritiesError::Empty) } else { Ok(roots) }
}

fn connector(
    ca: &Path,
    protocols: &[&[u8]],
    identity: Option<Arc<CertificateStore>>,
) -> Result<TlsConnector, ClientTlsError> {
    let failed = |source| ClientTlsError::Authorities { path: ca.to_path_buf(), source };
    let roots = authorities(ca).map_err(failed)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.into()))?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(store) => {
            let mut config = builder.with_client_cert_resolver(Arc::new(Identity(store)));
            config.resumption = Resumption::disabled();
            config
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}
