//! Certificates and keys, from files or from memory.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::{self, PemObject};
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::sign::CertifiedKey;
use futures_rustls::rustls::{Error, InconsistentKeys};

use super::CertificateError;
use super::facts::Facts;
use crate::config::CertificateFiles;

/// A certificate with its chain and its key, ready for handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// The chain and the key.
    pub(super) key: Arc<CertifiedKey>,
    pub(super) facts: Facts,
}

impl Certificate {
    /// Reads a certificate and its key from files.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has no certificate or key, or the key is that of another
    /// certificate.
    pub(crate) fn read(files: &CertificateFiles) -> Result<Certificate, CertificateError> {
        let name = files.certificate.display().to_string();
        let (chain, key) = (chain(&files.certificate)?, key(&files.key)?);
        Certificate::new(&name, &files.key.display().to_string(), chain, key)
    }

    /// Makes a certificate from PEM texts: the chain with the server's certificate first, and the
    /// key. `name` stands for both in errors.
    ///
    /// # Errors
    ///
    /// As [`read`](Certificate::read).
    #[cfg(feature = "acme")]
    pub(crate) fn from_pem(
        name: &str,
        chain: &str,
        key: &str,
    ) -> Result<Certificate, CertificateError> {
        let certificates =
            collect(Path::new(name), CertificateDer::pem_slice_iter(chain.as_bytes()))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| CertificateError::of_file(Path::new(name), KEY, error))?;
        Certificate::new(name, name, certificates, key)
    }

    fn new(
        name: &str,
        key_name: &str,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Certificate, CertificateError> {
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let key = certified.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                CertificateError::new(format!(
                    "the key {key_name} does not belong to the certificate {name}, expected the \
                     key that the certificate was requested with"
                ))
            }
            Error::InvalidCertificate(error) => unusable(name, &format!("{error:?}")),
            error => CertificateError::new(format!(
                "the key {key_name} cannot be used: {error}, expected an RSA, ECDSA or Ed25519 key"
            )),
        })?;
        let facts = key.end_entity_cert().map_err(|error| error.to_string()).and_then(Facts::read);
        let facts = facts.map_err(|what| unusable(name, &what))?;
        Ok(Certificate { key: Arc::new(key), facts })
    }

    /// Returns the names that the certificate is for.
    pub(crate) fn names(&self) -> &[String] {
        &self.facts.names
    }

    /// Returns when the certificate begins to be valid.
    #[cfg(feature = "acme")]
    pub(crate) fn not_before(&self) -> SystemTime {
        self.facts.not_before
    }

    /// Returns when the certificate ceases to be valid.
    pub(crate) fn not_after(&self) -> SystemTime {
        self.facts.not_after
    }

    /// Returns the reason for which clients refuse the certificate at a time, with advice.
    pub(crate) fn refused_at(&self, now: SystemTime) -> Option<String> {
        let date = |time| humantime::format_rfc3339_seconds(time);
        if now > self.facts.not_after {
            let since = date(self.facts.not_after);
            return Some(format!("has expired on {since}, clients refuse it until it is renewed"));
        }
        let from = date(self.facts.not_before);
        (now < self.facts.not_before).then(|| {
            format!("is valid from {from} on, clients refuse it until then; compare the clock")
        })
    }
}

const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";

fn unusable(name: &str, what: &str) -> CertificateError {
    let expected = "expected the server's certificate (X.509 version 3) first in the file";
    CertificateError::new(format!("the certificate {name} cannot be used: {what}, {expected}"))
}

/// Reads a file of certificates.
///
/// # Errors
///
/// The file cannot be read, or has no certificate.
pub(crate) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| CertificateError::of_file(path, CERTIFICATE, error))?;
    collect(path, certificates)
}

fn collect(
    path: &Path,
    certificates: impl Iterator<Item = Result<CertificateDer<'static>, pem::Error>>,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let wrong = |error| CertificateError::of_file(path, CERTIFICATE, error);
    let found = certificates.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(found) }
}

/// Reads the file of a private key.
///
/// # Errors
///
/// The file cannot be read, or has no key.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| CertificateError::of_file(path, KEY, error))
}
