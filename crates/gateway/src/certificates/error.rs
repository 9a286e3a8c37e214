//! The reason for which a certificate cannot be used.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use futures_rustls::rustls::pki_types::pem;

/// The reason for which a certificate cannot be used: one line that names the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CertificateError {
    what: String,
    /// Whether the same files may be right at the next attempt: they could not be read.
    may_pass: bool,
}

impl CertificateError {
    pub(super) fn new(what: impl Into<String>) -> CertificateError {
        CertificateError { what: what.into().replace(['\n', '\r'], " "), may_pass: false }
    }

    /// Whether it is due to a lack that may pass, such as one of descriptors.
    pub(super) fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// The error for a file of PEM that should contain a `kind`.
    pub(super) fn of_file(path: &Path, kind: &str, error: pem::Error) -> CertificateError {
        let path = path.display();
        let may_pass = matches!(&error, pem::Error::Io(error)
            if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied));
        let error = CertificateError::new(match error {
            pem::Error::Io(error) => format!("cannot read the {kind} {path}: {error}"),
            pem::Error::NoItemsFound => {
                format!("{path} has no {kind}, expected a PEM file with -----BEGIN")
            }
            error => format!("{path} is no PEM file of a {kind}: {error}"),
        });
        CertificateError { may_pass, ..error }
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for CertificateError {}
