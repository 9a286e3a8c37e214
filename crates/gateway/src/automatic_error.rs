//! The reasons for which certificates that the server gets by itself cannot be had. They are the
//! same in a build without these.

use std::error::Error;
use std::path::PathBuf;
use std::{fmt, io};

use futures_rustls::rustls;
use futures_rustls::rustls::pki_types::pem;
use rustix::process::geteuid;
use superpoll_http::certificates::CertificateError;
use superpoll_http::upstream::AuthoritiesError;

use crate::config::NoNamesError;

/// The reason for which the server cannot get certificates by itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum AutomaticError {
    /// The program was built without the feature `acme`.
    Absent,
    /// No folder for keys and certificates is named, neither by the configuration nor by the
    /// environment.
    NoFolder,
    /// No host has a name that the authority can certify.
    NoNames(NoNamesError),
    /// The folder of keys and certificates cannot be used.
    Storage(StorageError),
    /// The certificates that vouch for the authority's server cannot be used.
    DirectoryCa {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: AuthoritiesError,
    },
    /// The system has no certificates that vouch for the authority's server.
    NoSystemAuthorities,
    /// TLS to the authority is not possible.
    Tls(rustls::Error),
    /// The own authority cannot be made.
    Authority(Box<dyn Error + Send + Sync>),
}

/// The reason for which a file or a folder of keys and certificates cannot be used.
#[derive(Debug)]
pub struct StorageError {
    /// The file or the folder.
    pub path: PathBuf,
    /// The reason.
    pub kind: StorageErrorKind,
}

/// The kind of a [`StorageError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// It cannot be read or written.
    Io(io::Error),
    /// It is no folder.
    NotAFolder,
    /// It is no file.
    NotAFile,
    /// It belongs to this user, as whom the server does not run.
    Foreign(u32),
    /// Other users can write to the folder.
    OpenFolder,
    /// Other users can read or write the file.
    OpenFile,
    /// The file makes no sense.
    Damaged(Damage),
}

/// The mistake in a file of keys and certificates. It has nothing of a key.
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// It is no text.
    NotText(io::Error),
    /// It is too large.
    TooLarge,
    /// It is not in the form of JSON that it should have.
    Json {
        /// The thing that it should be.
        expected: &'static str,
        /// The line of the mistake, from one.
        line: usize,
        /// Its column, from one.
        column: usize,
    },
    /// It is an account at another authority, of this directory.
    OtherDirectory(String),
    /// Its certificate cannot be used.
    Certificate(IssuedError),
}

/// The reason for which a certificate of an authority, with its key, cannot be used. `source`
/// stands for both in its words.
#[derive(Debug)]
#[non_exhaustive]
pub enum IssuedError {
    /// It has more than so many issuers.
    TooLong {
        /// The words for it.
        source: &'static str,
        /// The most certificates.
        most: usize,
    },
    /// It is no certificate for a server, or the key is another one's.
    Unusable(CertificateError),
    /// It is not in PEM.
    Malformed {
        /// The words for it.
        source: &'static str,
        /// The mistake.
        error: pem::Error,
    },
    /// It is for other names.
    OtherNames {
        /// The words for it.
        source: &'static str,
        /// Its names.
        names: Vec<String>,
        /// The name that it should be for.
        wanted: String,
    },
    /// Its key cannot sign.
    Key(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for AutomaticError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AutomaticError::Absent => f.write_str(
                "this superpoll was built without automatic certificates, expected \
                 certificate = FILE and key = FILE, or a build with the feature acme: \
                 cargo install --path crates/cli --features acme",
            ),
            AutomaticError::NoFolder => f.write_str(
                "no folder for keys and certificates: neither $STATE_DIRECTORY nor \
                 $XDG_STATE_HOME nor $HOME is set, expected storage = FOLDER",
            ),
            AutomaticError::NoNames(error) => error.fmt(f),
            AutomaticError::Storage(error) => error.fmt(f),
            AutomaticError::DirectoryCa { path, source } => {
                write!(f, "reading the certificates in directory_ca, {}: ", path.display())?;
                match source {
                    AuthoritiesError::Empty => {
                        f.write_str("it has none, expected -----BEGIN CERTIFICATE-----")
                    }
                    source => source.fmt(f),
                }
            }
            AutomaticError::NoSystemAuthorities => f.write_str(
                "this system has no certificates that the certificate authority could be \
                 verified with; install the package ca-certificates, or name a file with \
                 directory_ca",
            ),
            AutomaticError::Tls(error) => error.fmt(f),
            AutomaticError::Authority(error) => {
                write!(f, "making a certificate authority: {error}")
            }
        }
    }
}

impl Error for AutomaticError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AutomaticError::NoNames(error) => Some(error),
            AutomaticError::Storage(error) => Some(error),
            AutomaticError::DirectoryCa { source, .. } => Some(source),
            AutomaticError::Tls(error) => Some(error),
            AutomaticError::Authority(error) => Some(&**error),
            AutomaticError::Absent
            | AutomaticError::NoFolder
            | AutomaticError::NoSystemAuthorities => None,
        }
    }
}

impl From<StorageError> for AutomaticError {
    fn from(error: StorageError) -> AutomaticError {
        AutomaticError::Storage(error)
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            StorageErrorKind::Io(error) => error.fmt(f),
            StorageErrorKind::NotAFolder => {
                f.write_str("it is a link or a file, expected a folder")
            }
            StorageErrorKind::NotAFile => f.write_str("it is no file"),
            StorageErrorKind::Foreign(owner) => {
                let own = geteuid().as_raw();
                let what = format!("it belongs to the user {owner}, and the server runs as {own}");
                write!(f, "{what}, expected chown {own}")
            }
            StorageErrorKind::OpenFolder => {
                f.write_str("other users can write to the folder, expected chmod 700")
            }
            StorageErrorKind::OpenFile => {
                f.write_str("other users have access to the file, expected chmod 600")
            }
            StorageErrorKind::Damaged(damage) => {
                write!(f, "{damage}; the file is left as it is: move it away to begin anew")
            }
        }
    }
}

impl Error for StorageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            StorageErrorKind::Io(error) => Some(error),
            StorageErrorKind::Damaged(damage) => Some(damage),
            _ => None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NotText(error) => error.fmt(f),
            Damage::TooLarge => f.write_str("it has more than 1 MiB"),
            Damage::Json { expected, line, column } => {
                write!(f, "it is no {expected}: line {line}, column {column}")
            }
            Damage::OtherDirectory(directory) => write!(f, "it is an account at {directory}"),
            Damage::Certificate(error) => error.fmt(f),
        }
    }
}

impl Error for Damage {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Damage::NotText(error) => Some(error),
            Damage::Certificate(error) => Some(error),
            Damage::TooLarge | Damage::Json { .. } | Damage::OtherDirectory(_) => None,
        }
    }
}

impl fmt::Display for IssuedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IssuedError::TooLong { source, most } => {
                write!(f, "{source} has more than {most} certificates")
            }
            IssuedError::Unusable(error) => error.fmt(f),
            IssuedError::Malformed { source, error } => {
                write!(f, "{source} is no PEM text: {error}")
            }
            IssuedError::OtherNames { source, names, wanted } => {
                let names = names.join(", ");
                write!(f, "{source} is for the names {names:?} instead of {wanted:?}")
            }
            IssuedError::Key(error) => error.fmt(f),
        }
    }
}

impl Error for IssuedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            IssuedError::Unusable(error) => Some(error),
            IssuedError::Malformed { error, .. } => Some(error),
            IssuedError::Key(error) => Some(&**error),
            IssuedError::TooLong { .. } | IssuedError::OtherNames { .. } => None,
        }
    }
}
