//! The reasons for which a certificate cannot be used.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, io};

use futures_rustls::rustls;
use futures_rustls::rustls::pki_types::pem;
use humantime::format_rfc3339_seconds;

/// The reason for which a certificate cannot be used: one line that names the file.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read the {kind} {}: {}", line(.path.display()), line(.source))]
    Read {
        /// The contents that it should have.
        kind: PemKind,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file has no certificate, or no key.
    #[error("{} has no {kind}, expected a PEM file with -----BEGIN", line(.path.display()))]
    Missing {
        /// The contents that it should have.
        kind: PemKind,
        /// The file.
        path: PathBuf,
    },
    /// A file is no PEM file.
    #[error("{} is no PEM file of a {kind}: {}", line(.path.display()), line(.source))]
    Malformed {
        /// The contents that it should have.
        kind: PemKind,
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: pem::Error,
    },
    /// The key is that of another certificate.
    #[error(
        "the key {} does not belong to the certificate {}, expected the key that the certificate \
         was requested with",
        line(.key),
        line(.certificate)
    )]
    OtherKey {
        /// The file of the certificate.
        certificate: String,
        /// The file of the key.
        key: String,
    },
    /// The first certificate of a file is none of a server.
    #[error(
        "the certificate {} cannot be used: {}, expected the server's certificate (X.509 version \
         3) first in the file",
        line(.certificate),
        line(.source)
    )]
    Unusable {
        /// The file.
        certificate: String,
        /// The mistake.
        source: UnusableReason,
    },
    /// The key is of a kind that is not known, or no key.
    #[error(
        "the key {} cannot be used: {}, expected an RSA, ECDSA or Ed25519 key",
        line(.key),
        line(.source)
    )]
    UnusableKey {
        /// The file.
        key: String,
        /// The mistake.
        source: rustls::Error,
    },
    /// Clients refuse the certificate now.
    #[error("the certificate {} {source}", line(.certificate))]
    Untimely {
        /// The file.
        certificate: String,
        /// The reason.
        source: UntimelyReason,
    },
    /// The certificates in a file cannot vouch for those of clients.
    #[error(
        "{} cannot vouch for clients: {}, expected the certificates of the authorities that issue \
         to clients",
        line(.path.display()),
        line(.source)
    )]
    ClientAuthorities {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The versions of TLS cannot be used.
    #[error("{}", line(.0))]
    Versions(#[source] rustls::Error),
}

/// The contents of a PEM file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PemKind {
    /// A certificate.
    Certificate,
    /// A private key.
    Key,
}

/// The mistake in the certificate of a server.
#[derive(thiserror::Error, Debug)]
pub enum UnusableReason {
    /// It cannot be read.
    #[error("{}", form_mistake(.0))]
    Form(#[source] rustls::Error),
    /// Its contents are wrong.
    #[error("{0}")]
    Contents(#[source] webpki::Error),
    /// It has no time.
    #[error("its time cannot be read")]
    NoTime,
}

/// The reason for which clients refuse a certificate at a time.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, Debug)]
pub enum UntimelyReason {
    /// It has expired at this time.
    #[error(
        "has expired on {}, clients refuse it until it is renewed",
        format_rfc3339_seconds(*.0)
    )]
    Expired(SystemTime),
    /// It is valid from this time on.
    #[error(
        "is valid from {} on, clients refuse it until then; compare the clock",
        format_rfc3339_seconds(*.0)
    )]
    NotYetValid(SystemTime),
}

impl CertificateError {
    /// Whether it is due to a shortage that may pass, such as one of descriptors.
    pub(super) fn may_pass(&self) -> bool {
        let lasts = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
        matches!(self, CertificateError::Read { source, .. } if !lasts.contains(&source.kind()))
    }

    /// The error for a file of PEM that should contain a `kind`.
    pub(super) fn of_file(path: &Path, kind: PemKind, error: pem::Error) -> CertificateError {
        let path = path.to_path_buf();
        match error {
            pem::Error::Io(source) => CertificateError::Read { kind, path, source },
            pem::Error::NoItemsFound => CertificateError::Missing { kind, path },
            source => CertificateError::Malformed { kind, path, source },
        }
    }
}

impl fmt::Display for PemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PemKind::Certificate => "certificate",
            PemKind::Key => "private key",
        })
    }
}

/// Returns the mistake in a certificate's form. For some, rustls has no better text than a name.
fn form_mistake(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => format!("{error:?}"),
        error => error.to_string(),
    }
}

/// Returns a text as one line.
fn line(text: impl fmt::Display) -> String {
    text.to_string().replace(['\n', '\r'], " ")
}
