//! The encryption of connections to servers.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::UpstreamTls;

/// The parameters of TLS to the servers.
pub(super) struct Tls {
    pub connector: TlsConnector,
    /// The same name for all servers; if there is none, the host of each.
    pub name: Option<ServerName<'static>>,
}

impl Tls {
    pub(super) fn new(tls: &UpstreamTls, h2: bool) -> Result<Tls, String> {
        let protocols: &[&[u8]] = if h2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        let connector = client_tls(&tls.ca, protocols)?;
        let name = tls.server_name.clone().map(ServerName::try_from).transpose();
        let name = name.map_err(|error| format!("the name of a server, {error}"))?;
        Ok(Tls { connector, name })
    }
}

/// Returns the encryption of connections to servers with a certificate of the authorities in a
/// file.
///
/// # Errors
///
/// The mistake in words.
pub(crate) fn client_tls(ca: &Path, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    let failed = |what: &dyn fmt::Display| {
        format!("reading the certificates that vouch for servers, {}: {what}", ca.display())
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca).map_err(|error| failed(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"it has none; a PEM file begins one with -----BEGIN CERTIFICATE-----"));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}
