//! Relays: listeners whose bytes are passed on unchanged, apart from encryption.

use std::fmt;
use std::time::Duration;

use crate::address::Address;
use crate::scalar::ProxyVersion;

/// The other end of a listener that relays TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relay {
    /// The other end of connections that no route is for. `None`: such connections are closed.
    pub to: Option<RelayEnd>,
    /// The other ends for some server names. Default: none, and the client's first bytes are not
    /// looked at.
    pub routes: Vec<RelayRoute>,
    /// The names that certificates by ACME are wanted for, in addition to those of the routes.
    /// Default: none.
    pub names: Vec<String>,
    /// How long a connection may be without a byte in either direction. Default: no limit.
    pub idle: Option<Duration>,
    /// The version of the PROXY protocol whose header tells the other end about the client.
    /// Default: that of the upstream, else none.
    pub proxy_protocol: Option<ProxyVersion>,
}

/// The other end of relayed connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelayEnd {
    /// One address.
    Address(Address),
    /// The servers of an upstream, by its name.
    Upstream(String),
}

impl fmt::Display for RelayEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayEnd::Address(address) => address.fmt(f),
            RelayEnd::Upstream(name) => write!(f, "the upstream {name}"),
        }
    }
}

/// The other end for clients that ask for some server names (SNI).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayRoute {
    /// The names in lower case; `*.` at the start stands for one label or more.
    pub server_names: Vec<String>,
    /// The other end.
    pub to: RelayEnd,
}

impl fmt::Display for Relay {
    /// Writes the other end as users know it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.to, self.routes.is_empty()) {
            (Some(to), true) => to.fmt(f),
            (Some(to), false) => write!(f, "{to} or by server name"),
            (None, _) => f.write_str("an end by server name"),
        }
    }
}
