//! The reason for which a certificate cannot be used.

use std::fmt;
use std::path::Path;

use futures_rustls::rustls::pki_types::pem;

/// The reason for which a certificate cannot be used: one line that names the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CertificateError(String);

impl CertificateError {
    pub(super) fn new(what: impl Into<String>) -> CertificateError {
        CertificateError(what.into().replace(['\n', '\r'], " "))
    }

    /// The error for a file of PEM that should contain a `kind`.
    pub(super) fn of_file(path: &Path, kind: &str, error: pem::Error) -> CertificateError {
        let path = path.display();
        CertificateError::new(match error {
            pem::Error::Io(error) => format!("cannot read the {kind} {path}: {error}"),
            pem::Error::NoItemsFound => {
                format!("{path} has no {kind}, expected a PEM file with -----BEGIN")
            }
            error => format!("{path} is no PEM file of a {kind}: {error}"),
        })
    }
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateError {}
