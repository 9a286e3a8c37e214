//! The reasons for which a server does not start, or does not take on another configuration.

use std::io;
use std::path::PathBuf;

use superpoll_http::certificates::CertificateError;
use superpoll_http::listen;
use superpoll_http::rules::RulesError;
use superpoll_http::upstream::ClientTlsError;
use superpoll_hub::channel::{ChannelKeyError, GripKeyError};

use crate::automatic_error::AutomaticError;
use crate::config::Address;

/// The reason for which a server did not start, or did not take on another configuration. Its
/// [causes](crate::causes) name the file or the setting, and the kind of the mistake.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Nothing can listen on an address of the configuration.
    #[error("{}", listen::cannot_listen(.address, .source))]
    Listen {
        /// The address.
        address: Address,
        /// The kernel's error.
        source: io::Error,
    },
    /// The service manager listens on addresses that no listener has, or an inherited socket has no
    /// address.
    #[error("{0}")]
    Inherited(String),
    /// A folder of files cannot be opened.
    #[error("opening the folder {path} to serve its files: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The access log cannot be opened.
    #[error("opening the access log {path}: {source}")]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The files of the demonstration, which are in the program, cannot be used.
    #[error("preparing the demonstration: {0}")]
    Demonstration(#[source] io::Error),
    /// The files of a rule of a host or a route cannot be used: users, or pages for errors.
    #[error("{0}")]
    Rules(#[from] RulesError),
    /// The key of a channel's tokens cannot be used.
    #[error("{0}")]
    ChannelKey(#[from] ChannelKeyError),
    /// The key by which an application holds connections cannot be used.
    #[error(transparent)]
    GripKey(#[from] GripKeyError),
    /// The certificates of an upstream cannot be used.
    #[error("{source}")]
    Upstream {
        /// The name of the upstream.
        name: String,
        /// The reason.
        source: ClientTlsError,
    },
    /// A certificate or its key cannot be used.
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    /// The folder, the authority or the names of certificates that the server gets by itself cannot
    /// be used.
    #[error("{0}")]
    AutomaticCertificates(#[from] AutomaticError),
    /// A relay cannot be opened.
    #[error("relaying to {relay}: {source}")]
    Relay {
        /// The address that is relayed, or the server that it is relayed to.
        relay: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A relay names an upstream that is not there.
    #[error("the upstream {0} is not defined")]
    UnknownUpstream(String),
    /// The broker of the channels has a setting that has to change.
    #[error("{0}")]
    Broker(String),
    /// The keeper process cannot be reached, or refuses.
    #[error("{0}")]
    Keeper(#[from] superpoll_keeper::Error),
    /// The poller of idle connections cannot be created.
    #[error("creating the poller of idle connections: {0}")]
    ParkingLot(#[source] io::Error),
    /// The runtime has ended.
    #[error("starting the server: {0}")]
    Runtime(#[from] superpoll_rt::Error),
}
