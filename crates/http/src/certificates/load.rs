//! Certificates and keys, from files or from memory.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::{self, PemObject};
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use futures_rustls::rustls::sign::CertifiedKey;
use futures_rustls::rustls::{Error, InconsistentKeys};
use superpoll_config::CertificateFiles;
use webpki::{EndEntityCert, KeyUsage};

use super::error::{CertificateError, PemKind, UntimelyReason, UnusableReason};

/// A certificate with its chain and its key, ready for handshakes.
#[derive(Clone, Debug)]
pub struct Certificate {
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
    pub fn read(files: &CertificateFiles) -> Result<Certificate, CertificateError> {
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
    pub fn from_pem(name: &str, chain: &str, key: &str) -> Result<Certificate, CertificateError> {
        let certificates =
            collect(Path::new(name), CertificateDer::pem_slice_iter(chain.as_bytes()))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| CertificateError::of_file(Path::new(name), PemKind::Key, error))?;
        Certificate::new(name, name, certificates, key)
    }

    fn new(
        name: &str,
        key_name: &str,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Certificate, CertificateError> {
        let unusable = |source| CertificateError::Unusable { certificate: name.to_owned(), source };
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let key = certified.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateError::OtherKey {
                certificate: name.to_owned(),
                key: key_name.to_owned(),
            },
            Error::InvalidCertificate(_) => unusable(UnusableReason::Form(error)),
            source => CertificateError::UnusableKey { key: key_name.to_owned(), source },
        })?;
        let facts = key.end_entity_cert().map_err(UnusableReason::Form).and_then(Facts::read);
        let facts = facts.map_err(unusable)?;
        Ok(Certificate { key: Arc::new(key), facts })
    }

    /// Returns the names that the certificate is for.
    pub fn names(&self) -> &[String] {
        &self.facts.names
    }

    /// Returns when the certificate begins to be valid.
    pub fn not_before(&self) -> SystemTime {
        self.facts.not_before
    }

    /// Returns when the certificate ceases to be valid.
    pub fn not_after(&self) -> SystemTime {
        self.facts.not_after
    }

    /// Returns the reason for which clients refuse the certificate at a time.
    pub fn refused_at(&self, now: SystemTime) -> Option<UntimelyReason> {
        let Facts { not_before, not_after, .. } = self.facts;
        if now > not_after {
            return Some(UntimelyReason::Expired(not_after));
        }
        (now < not_before).then_some(UntimelyReason::NotYetValid(not_before))
    }
}

/// Reads a file of certificates.
///
/// # Errors
///
/// The file cannot be read, or has no certificate.
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| CertificateError::of_file(path, PemKind::Certificate, error))?;
    collect(path, certificates)
}

fn collect(
    path: &Path,
    certificates: impl Iterator<Item = Result<CertificateDer<'static>, pem::Error>>,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let wrong = |error| CertificateError::of_file(path, PemKind::Certificate, error);
    let found = certificates.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(found) }
}

/// Reads the file of a private key.
///
/// # Errors
///
/// The file cannot be read, or has no key.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| CertificateError::of_file(path, PemKind::Key, error))
}

// The parts of a certificate that a server looks at: its names and its time.

/// Names and time of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// The DNS names in lower case; `*.` at the start stands for one label.
    pub(super) names: Vec<String>,
    /// When the certificate begins to be valid.
    pub(super) not_before: SystemTime,
    /// When the certificate ceases to be valid.
    pub(super) not_after: SystemTime,
}

impl Facts {
    /// Reads a certificate.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Facts, UnusableReason> {
        let parsed = EndEntityCert::try_from(certificate).map_err(UnusableReason::Contents)?;
        let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let (not_before, not_after) = validity(&parsed)?;
        Ok(Facts { names, not_before, not_after })
    }
}

/// Returns from when and until when a certificate is valid.
///
/// webpki has no function for this, but its errors state both. It looks at the time before it looks
/// for an issuer, so the verification needs no root, and ends with one of these two errors. A
/// parser of our own, or another library, would be a second reader of the same bytes.
fn validity(certificate: &EndEntityCert<'_>) -> Result<(SystemTime, SystemTime), UnusableReason> {
    let verify_at = |time: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
        let usage = KeyUsage::server_auth();
        certificate.verify_for_usage(&[], &[], &[], time, usage, None, None).err()
    };
    // No certificate reaches into the year 10000: its form of a time has four digits.
    let not_after = match verify_at(u64::from(u32::MAX) * 100) {
        Some(webpki::Error::CertExpired { not_after, .. }) => not_after.as_secs(),
        Some(error) => return Err(UnusableReason::Contents(error)),
        None => return Err(UnusableReason::NoTime),
    };
    let not_before = match verify_at(0) {
        Some(webpki::Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        // Valid at the beginning of the clock already.
        _ => 0,
    };
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    Ok((at(not_before), at(not_after)))
}
