//! A certificate for the servers, and clients that trust it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::error::{Error, Result};

/// A certificate in a folder.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    config: Arc<ClientConfig>,
}

impl Certificate {
    /// Makes a certificate for `localhost` and writes it into a folder.
    pub(super) fn make(folder: &Path) -> Result<Certificate> {
        let failed =
            |error: &dyn std::fmt::Display| Error::usage(format!("making a certificate: {error}"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .map_err(|error| failed(&error))?;
        let (certificate, key) = (folder.join("localhost.pem"), folder.join("localhost.key"));
        fs::write(&certificate, made.cert.pem()).map_err(|error| failed(&error))?;
        fs::write(&key, made.signing_key.serialize_pem()).map_err(|error| failed(&error))?;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).map_err(|error| failed(&error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Certificate { certificate, key, config: Arc::new(config) })
    }

    /// A client's side of an encrypted connection.
    pub(super) fn client(&self) -> Result<ClientConnection> {
        ServerName::try_from("localhost")
            .map_err(|error| Error::usage(format!("naming a server: {error}")))
            .and_then(|name| {
                ClientConnection::new(self.config.clone(), name)
                    .map_err(|error| Error::usage(format!("beginning with TLS: {error}")))
            })
    }
}
