//! The reasons for which a server does not start, or does not take on another configuration.

use std::path::PathBuf;
use std::{fmt, io};

use superpoll_http::certificates::CertificateError;
use superpoll_http::listen;
use superpoll_http::rules::RulesError;
use superpoll_http::upstream::ClientTlsError;
use superpoll_hub::channel::ChannelKeyError;

use crate::automatic_error::AutomaticError;
use crate::config::Address;

/// The reason for which a server did not start, or did not take on another configuration. Its
/// [causes](crate::causes) name the file or the setting, and the kind of the mistake.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can listen on an address of the configuration.
    Listen {
        /// The address.
        address: Address,
        /// The kernel's error.
        source: io::Error,
    },
    /// The service manager listens on addresses that no listener has, or an inherited socket has no
    /// address.
    Inherited(String),
    /// A folder of files cannot be opened.
    Folder {
        /// The folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The access log cannot be opened.
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The files of the demonstration, which are in the program, cannot be used.
    Demonstration(io::Error),
    /// The files of a rule of a host or a route cannot be used: users, or pages for errors.
    Rules(RulesError),
    /// The key of a channel's tokens cannot be used.
    ChannelKey(ChannelKeyError),
    /// The certificates of an upstream cannot be used.
    Upstream {
        /// The name of the upstream.
        name: String,
        /// The reason.
        source: ClientTlsError,
    },
    /// A certificate or its key cannot be used.
    Certificate(CertificateError),
    /// The folder, the authority or the names of certificates that the server gets by itself cannot
    /// be used.
    AutomaticCertificates(AutomaticError),
    /// A relay cannot be opened.
    Relay {
        /// The address that is relayed, or the server that it is relayed to.
        relay: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A relay names an upstream that is not there.
    UnknownUpstream(String),
    /// The broker of the channels has a setting that has to change.
    Broker(String),
    /// The keeper process cannot be reached, or refuses.
    Keeper(superpoll_keeper::Error),
    /// The poller of idle connections cannot be created.
    ParkingLot(io::Error),
    /// The runtime has ended.
    Runtime(superpoll_rt::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Listen { address, source } => {
                f.write_str(&listen::cannot_listen(address, source))
            }
            Error::Folder { path, source } => {
                write!(f, "opening the folder {} to serve its files: {source}", path.display())
            }
            Error::AccessLog { path, source } => {
                write!(f, "opening the access log {}: {source}", path.display())
            }
            Error::Demonstration(error) => write!(f, "preparing the demonstration: {error}"),
            Error::Inherited(what) | Error::Broker(what) => f.write_str(what),
            Error::Rules(error) => error.fmt(f),
            Error::ChannelKey(error) => error.fmt(f),
            Error::Upstream { source, .. } => source.fmt(f),
            Error::AutomaticCertificates(error) => error.fmt(f),
            Error::Certificate(error) => error.fmt(f),
            Error::Relay { relay, source } => write!(f, "relaying to {relay}: {source}"),
            Error::UnknownUpstream(name) => write!(f, "the upstream {name} is not defined"),
            Error::Keeper(error) => error.fmt(f),
            Error::ParkingLot(error) => {
                write!(f, "creating the poller of idle connections: {error}")
            }
            Error::Runtime(error) => write!(f, "starting the server: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Listen { source, .. }
            | Error::Folder { source, .. }
            | Error::AccessLog { source, .. }
            | Error::Relay { source, .. }
            | Error::Demonstration(source)
            | Error::ParkingLot(source) => Some(source),
            Error::Certificate(error) => Some(error),
            Error::Keeper(error) => Some(error),
            Error::Runtime(error) => Some(error),
            Error::Rules(error) => Some(error),
            Error::ChannelKey(error) => Some(error),
            Error::Upstream { source, .. } => Some(source),
            Error::AutomaticCertificates(error) => Some(error),
            Error::Inherited(_) | Error::UnknownUpstream(_) | Error::Broker(_) => None,
        }
    }
}

impl From<CertificateError> for Error {
    fn from(error: CertificateError) -> Error {
        Error::Certificate(error)
    }
}

impl From<superpoll_keeper::Error> for Error {
    fn from(error: superpoll_keeper::Error) -> Error {
        Error::Keeper(error)
    }
}

impl From<superpoll_rt::Error> for Error {
    fn from(error: superpoll_rt::Error) -> Error {
        Error::Runtime(error)
    }
}
