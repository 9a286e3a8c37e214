//! Checks of the files that a configuration names: folders, certificates and keys, and the place of
//! a log.

use std::io;
use std::path::Path;

use futures_rustls::rustls::pki_types::pem::{self, PemObject};
use futures_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn describe(path: &Path, what: &str, error: pem::Error) -> String {
    let path = path.display();
    match error {
        pem::Error::Io(error) => format!("cannot read the {what} {path}: {error}"),
        pem::Error::NoItemsFound => {
            format!("{path} has no {what}, expected a PEM file with -----BEGIN")
        }
        error => format!("{path} is no PEM file of a {what}: {error}"),
    }
}

/// Checks a file of certificates; the error says why it is wrong.
pub(super) fn certificate(path: &Path) -> Result<(), String> {
    let wrong = |error| describe(path, "certificate", error);
    let mut found = false;
    for certificate in CertificateDer::pem_file_iter(path).map_err(wrong)? {
        certificate.map_err(wrong)?;
        found = true;
    }
    if found { Ok(()) } else { Err(wrong(pem::Error::NoItemsFound)) }
}

/// Checks the file of a private key; the error says why it is wrong.
pub(super) fn key(path: &Path) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_file(path);
    key.map(drop).map_err(|error| describe(path, "private key", error))
}

/// Checks a folder; the error says why it is wrong.
pub(super) fn folder(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot read the folder {}: {error}", path.display());
    std::fs::read_dir(path).map(drop).map_err(wrong)
}

/// Checks that a log can be written; it need not exist yet.
pub(super) fn log(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot write the log {}: {error}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(wrong(io::ErrorKind::IsADirectory.into())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            std::fs::metadata(folder.unwrap_or(Path::new("."))).map(drop).map_err(wrong)
        }
        Err(error) => Err(wrong(error)),
    }
}
