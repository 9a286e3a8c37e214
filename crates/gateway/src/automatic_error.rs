//! The reasons for which certificates that the server gets by itself cannot be had. They are the
//! same in a build without these.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use futures_rustls::rustls;
use futures_rustls::rustls::pki_types::pem;
use rustix::process::geteuid;
use superpoll_http::certificates::CertificateError;
use superpoll_http::upstream::AuthoritiesError;

use crate::config::NoNamesError;

/// The reason for which the server cannot get certificates by itself.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum AutomaticError {
    /// The program was built without the feature `acme`.
    #[error(
        "this superpoll was built without automatic certificates, expected certificate = FILE and \
         key = FILE, or a build with the feature acme: cargo install --path crates/cli --features \
         acme"
    )]
    Absent,
    /// No folder for keys and certificates is named, neither by the configuration nor by the
    /// environment.
    #[error(
        "no folder for keys and certificates: neither $STATE_DIRECTORY nor $XDG_STATE_HOME nor \
         $HOME is set, expected storage = FOLDER"
    )]
    NoFolder,
    /// No host has a name that the authority can certify.
    #[error("{0}")]
    NoNames(#[from] NoNamesError),
    /// The folder of keys and certificates cannot be used.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// The certificates that vouch for the authority's server cannot be used.
    #[error("reading the certificates in directory_ca, {path}: {}", authorities(.source))]
    DirectoryCa {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: AuthoritiesError,
    },
    /// The system has no certificates that vouch for the authority's server.
    #[error(
        "this system has no certificates that the certificate authority could be verified with; \
         install the package ca-certificates, or name a file with directory_ca"
    )]
    NoSystemAuthorities,
    /// TLS to the authority is not possible.
    #[error("{0}")]
    Tls(#[source] rustls::Error),
    /// The own authority cannot be made.
    #[error("making a certificate authority: {0}")]
    Authority(#[source] Box<dyn Error + Send + Sync>),
}

/// The reason for which a file or a folder of keys and certificates cannot be used.
#[derive(thiserror::Error, Debug)]
#[error("{path}: {kind}")]
pub struct StorageError {
    /// The file or the folder.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub kind: StorageErrorKind,
}

/// The kind of a [`StorageError`].
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum StorageErrorKind {
    /// It cannot be read or written.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// It is no folder.
    #[error("it is a link or a file, expected a folder")]
    NotAFolder,
    /// It is no file.
    #[error("it is no file")]
    NotAFile,
    /// It belongs to this user, as whom the server does not run.
    #[error(
        "it belongs to the user {0}, and the server runs as {own}, expected chown {own}",
        own = geteuid().as_raw()
    )]
    Foreign(u32),
    /// Other users can write to the folder.
    #[error("other users can write to the folder, expected chmod 700")]
    OpenFolder,
    /// Other users can read or write the file.
    #[error("other users have access to the file, expected chmod 600")]
    OpenFile,
    /// The file makes no sense.
    #[error("{0}; the file is left as it is: move it away to begin anew")]
    Damaged(#[source] Damage),
}

/// The mistake in a file of keys and certificates. It has nothing of a key.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// It is no text.
    #[error("{0}")]
    NotText(#[source] io::Error),
    /// It is too large.
    #[error("it has more than 1 MiB")]
    TooLarge,
    /// It is not in the form of JSON that it should have.
    #[error("it is no {expected}: line {line}, column {column}")]
    Json {
        /// The thing that it should be.
        expected: &'static str,
        /// The line of the mistake, from one.
        line: usize,
        /// Its column, from one.
        column: usize,
    },
    /// It is an account at another authority, of this directory.
    #[error("it is an account at {0}")]
    OtherDirectory(String),
    /// Its certificate cannot be used.
    #[error("{0}")]
    Certificate(#[source] IssuedError),
}

/// The reason for which a certificate of an authority, with its key, cannot be used. `what`
/// stands for both in its words.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum IssuedError {
    /// It has more than so many issuers.
    #[error("{what} has more than {most} certificates")]
    TooLong {
        /// The words for it.
        what: &'static str,
        /// The most certificates.
        most: usize,
    },
    /// It is no certificate for a server, or the key is another one's.
    #[error("{0}")]
    Unusable(#[from] CertificateError),
    /// It is not in PEM.
    #[error("{what} is no PEM text: {source}")]
    Malformed {
        /// The words for it.
        what: &'static str,
        /// The mistake.
        source: pem::Error,
    },
    /// It is for other names.
    #[error("{what} is for the names {:?} instead of {wanted:?}", .names.join(", "))]
    OtherNames {
        /// The words for it.
        what: &'static str,
        /// Its names.
        names: Vec<String>,
        /// The name that it should be for.
        wanted: String,
    },
    /// Its key cannot sign.
    #[error("{0}")]
    Key(#[source] Box<dyn Error + Send + Sync>),
}

/// Returns the reason for which a file of certificates cannot be used, for `directory_ca`.
fn authorities(error: &AuthoritiesError) -> String {
    match error {
        AuthoritiesError::Empty => "it has none, expected -----BEGIN CERTIFICATE-----".to_owned(),
        error => error.to_string(),
    }
}
