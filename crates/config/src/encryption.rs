//! The encryption of connections between clients and the server.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::acme::Automatic;

/// Encryption towards clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificates of the server; a client gets the one that is for the name that it asks for.
    /// The first is for clients that ask for no name, or for a name that no certificate has.
    pub certificates: Vec<CertificateFiles>,
    /// The source of certificates without files. Default: none.
    pub automatic: Option<Automatic>,
    /// The oldest version of TLS that is accepted. Default: 1.2.
    pub min_version: TlsVersion,
    /// The certificates that clients show. Default: clients are not asked for certificates.
    pub client: Option<ClientCertificates>,
    /// The protocols that a relay agrees to (ALPN), the best first. Default: none, a relay agrees
    /// to no protocol, which clients take for whichever they like. Listeners of HTTP have none
    /// here.
    pub alpn: Vec<String>,
}

/// A certificate and its key, both as PEM files.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CertificateFiles {
    /// The file of the server's certificate, followed by the certificates of its issuers.
    pub certificate: PathBuf,
    /// The file of the private key.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// Returns the name of the certificate in logs and metrics.
    #[must_use]
    pub fn label(&self) -> String {
        self.certificate.display().to_string()
    }
}

/// A version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2. The default.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// The certificates that clients show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificates {
    /// The file of the authorities' certificates that vouch for clients.
    pub ca: PathBuf,
    /// Whether a client without a certificate is refused. A client with a wrong certificate always
    /// is.
    pub is_required: bool,
}

/// A host that is served over encrypted connections only: other requests are redirected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Https {
    /// How long browsers use encrypted connections to the host without asking again
    /// (`Strict-Transport-Security`). Default: 365 days. `None`: browsers are not told.
    pub hsts: Option<Duration>,
}
