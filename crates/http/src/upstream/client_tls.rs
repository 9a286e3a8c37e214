//! The encryption of connections to servers.
//!
//! The certificate that servers are shown comes from a store that follows its files, as those of
//! listeners do. Connections that are open keep the one that they began with; new ones show the new
//! one, and make a full handshake: a resumed session would continue with the former certificate.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use futures_rustls::rustls::client::{ResolvesClientCert, Resumption};
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::sign::CertifiedKey;
use futures_rustls::rustls::{ClientConfig, RootCertStore, SignatureScheme};
use superpoll_config::UpstreamTls;

use crate::certificates::{Certificate, CertificateStore};

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
    pub(super) fn new(tls: &UpstreamTls, h2: bool) -> Result<Tls, String> {
        let protocols: &[&[u8]] = if h2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        let identity = tls.identity.as_ref().map(|files| {
            let store = CertificateStore::new(None);
            let read = Certificate::read(files).map_err(|error| error.to_string())?;
            store.install(&files.label(), read);
            Ok::<_, String>(store)
        });
        let identity = identity.transpose()?;
        let connector = connector(&tls.ca, protocols, identity.clone())?;
        let alpn: Vec<&[u8]> = tls.alpn.iter().map(String::as_bytes).collect();
        let relayed = self::connector(&tls.ca, &alpn, identity.clone())?;
        let name = tls.server_name.clone().map(ServerName::try_from).transpose();
        let name = name.map_err(|error| format!("the name of a server, {error}"))?;
        Ok(Tls { connector, relayed, name, identity })
    }
}

/// Returns the encryption of connections to servers with a certificate of the authorities in a
/// file.
///
/// # Errors
///
/// The mistake in words.
pub fn client_tls(ca: &Path, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    connector(ca, protocols, None)
}

fn connector(
    ca: &Path,
    protocols: &[&[u8]],
    identity: Option<Arc<CertificateStore>>,
) -> Result<TlsConnector, String> {
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
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
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
