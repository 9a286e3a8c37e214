//! The things outside of the text that a configuration names, which the server looks at.

use std::ops::Range;
use std::path::PathBuf;

use crate::address::Address;
use crate::encryption::CertificateFiles;
use crate::rights::{KeySource, TokenRule};

/// A place in the text of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place(pub(crate) Range<usize>);

/// A thing outside of the text that a configuration names.
#[derive(Clone, PartialEq, Debug)]
pub enum Resource {
    /// An address to listen on, whose host must be one of this machine.
    Listen(Address),
    /// A certificate and its key, at the place of the certificate.
    KeyPair {
        /// The files.
        files: CertificateFiles,
        /// The place of the key.
        key: Place,
    },
    /// A file with the certificates of authorities.
    Authorities(PathBuf),
    /// The key of tokens, in a file or in a variable of the environment.
    TokenKey(TokenRule),
    /// The secret that an application and the gateway sign with, in a file or in a variable of the
    /// environment.
    Secret(KeySource),
    /// A file of users, as `htpasswd` writes it.
    Users(PathBuf),
    /// A page for errors.
    ErrorPage(PathBuf),
    /// A folder whose files are served.
    Folder(PathBuf),
    /// A file that a route with this path is probably meant for, although its path stands for a
    /// folder.
    FileOfRoute {
        /// The path of the route.
        path: String,
        /// The file, which is not there if all is right.
        file: PathBuf,
    },
    /// A log, which need not be there yet.
    Log(PathBuf),
    /// A Redis or Valkey server as the broker. Nobody asks it, but not every build of the server
    /// can talk to one.
    Redis,
}
